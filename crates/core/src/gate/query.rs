//! Looking a value up in JSON, TOML or YAML.

use super::GateComparison;
use crate::plan::document::{self, DocumentFormat, DocumentNode, DocumentValue};
use crate::verdict::GateVerdict;

/// Compares the value at `path`. What is not there, or cannot be compared, is an error.
pub(super) fn judge_query(
    file: &str,
    bytes: &[u8],
    path: &str,
    compare: GateComparison,
    wanted: &str,
) -> Result<(GateVerdict, String), String> {
    let format =
        DocumentFormat::from_path(file).ok_or_else(|| format!("unknown format of `{file}`"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| format!("`{file}` is not a text file"))?;
    let root = document::parse_with_faults(text, format).map_err(|faults| {
        let first = faults.into_diagnostics(text).into_iter().next();
        let why = first
            .map_or_else(String::new, |fault| format!("{}: line {}", fault.message, fault.line));
        format!("cannot read `{file}`: {why}")
    })?;
    let found = look_up_value(&root, path).ok_or_else(|| format!("`{file}` has no `{path}`"))?;
    let found =
        scalar_text(found).ok_or_else(|| format!("`{path}` in `{file}` is not a single value"))?;
    let wanted = wanted.trim_matches('"');
    let good = match compare {
        GateComparison::Equal => values_match(&found, wanted),
        GateComparison::NotEqual => !values_match(&found, wanted),
        GateComparison::AtLeast | GateComparison::AtMost => {
            let number = |text: &str| text.trim().trim_end_matches('%').parse::<f64>().ok();
            let pair = number(&found).zip(number(wanted));
            let (a, b) = pair.filter(|(a, b)| a.is_finite() && b.is_finite()).ok_or_else(|| {
                format!("`{path}` in `{file}` is `{found}`, which cannot be compared with {wanted}")
            })?;
            if compare == GateComparison::AtLeast { a >= b } else { a <= b }
        }
    };
    let said = format!("`{path}` in `{file}` is `{found}`");
    Ok((if good { GateVerdict::Passed } else { GateVerdict::Failed }, said))
}

fn values_match(found: &str, wanted: &str) -> bool {
    let numbers = found.parse::<f64>().ok().zip(wanted.parse::<f64>().ok());
    found == wanted || numbers.is_some_and(|(a, b)| a == b)
}

fn look_up_value<'n>(root: &'n DocumentNode<'n>, path: &str) -> Option<&'n DocumentValue<'n>> {
    let path = path.trim_start_matches(['$', '.']).replace('[', ".").replace(']', "");
    let mut value = &root.value;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        value = match value {
            DocumentValue::Table(entries) => {
                &entries.iter().find(|(key, _)| key.text == step)?.1.value
            }
            DocumentValue::List(items) => &items.get(step.parse::<usize>().ok()?)?.value,
            _ => return None,
        };
    }
    Some(value)
}

fn scalar_text(value: &DocumentValue<'_>) -> Option<String> {
    Some(match value {
        DocumentValue::Bool(yes) => yes.to_string(),
        DocumentValue::Int(number) => number.to_string(),
        DocumentValue::Float(number) => number.to_string(),
        DocumentValue::Str(text) => text.to_string(),
        DocumentValue::Date(date) => date.clone(),
        DocumentValue::Null | DocumentValue::List(_) | DocumentValue::Table(_) => return None,
    })
}
