//! Looking a value up in JSON, TOML or YAML.

use super::Compare;
use crate::plan::doc::{self, Format, Node, Value};
use crate::verdict::Verdict;

/// Compares the value at `path`. What is not there, or cannot be compared, is an error.
pub(super) fn judge(
    file: &str,
    bytes: &[u8],
    path: &str,
    compare: Compare,
    wanted: &str,
) -> Result<(Verdict, String), String> {
    let format = Format::from_path(file).ok_or_else(|| format!("unknown format of `{file}`"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| format!("`{file}` is not a text file"))?;
    let root = doc::parse_raw(text, format).map_err(|faults| {
        let first = faults.finish(text).into_iter().next();
        let why = first
            .map_or_else(String::new, |fault| format!("{}: line {}", fault.message, fault.line));
        format!("cannot read `{file}`: {why}")
    })?;
    let found = look_up(&root, path).ok_or_else(|| format!("`{file}` has no `{path}`"))?;
    let found =
        plain(found).ok_or_else(|| format!("`{path}` in `{file}` is not a single value"))?;
    let wanted = wanted.trim_matches('"');
    let good = match compare {
        Compare::Equal => same(&found, wanted),
        Compare::NotEqual => !same(&found, wanted),
        Compare::AtLeast | Compare::AtMost => {
            let number = |text: &str| text.trim().trim_end_matches('%').parse::<f64>().ok();
            let pair = number(&found).zip(number(wanted));
            let (a, b) = pair.filter(|(a, b)| a.is_finite() && b.is_finite()).ok_or_else(|| {
                format!("`{path}` in `{file}` is `{found}`, which cannot be compared with {wanted}")
            })?;
            if compare == Compare::AtLeast { a >= b } else { a <= b }
        }
    };
    let said = format!("`{path}` in `{file}` is `{found}`");
    Ok((if good { Verdict::Passed } else { Verdict::Failed }, said))
}

fn same(found: &str, wanted: &str) -> bool {
    let numbers = found.parse::<f64>().ok().zip(wanted.parse::<f64>().ok());
    found == wanted || numbers.is_some_and(|(a, b)| a == b)
}

fn look_up<'n>(root: &'n Node<'n>, path: &str) -> Option<&'n Value<'n>> {
    let path = path.trim_start_matches(['$', '.']).replace('[', ".").replace(']', "");
    let mut value = &root.value;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        value = match value {
            Value::Table(entries) => &entries.iter().find(|(key, _)| key.text == step)?.1.value,
            Value::List(items) => &items.get(step.parse::<usize>().ok()?)?.value,
            _ => return None,
        };
    }
    Some(value)
}

fn plain(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Bool(yes) => yes.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Str(text) => text.to_string(),
        Value::Date(date) => date.clone(),
        Value::Null | Value::List(_) | Value::Table(_) => return None,
    })
}
