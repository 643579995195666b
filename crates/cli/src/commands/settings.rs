//! `config`: every setting, its value, and who set it.

use mainstem_api::exit_code;
use mainstem_core::config::keys::{find, keys};
use mainstem_core::config::layers::{Origin, Shown};
use mainstem_core::diag::nearest;
use mainstem_core::inbox::CONFIG;
use mainstem_engine::accepted::{Accepted, Pending};
use serde_json::{Value, json};

use crate::args::ConfigArgs;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

/// Prints all settings, or those below a key.
pub(crate) fn config(context: &Context, args: &ConfigArgs) -> Outcome {
    let repo = context.repo().ok();
    let resolved = context.resolved(repo.as_ref())?;
    let wanted = args.key.as_deref().unwrap_or("");
    let shown: Vec<&Shown> =
        resolved.values.iter().filter(|value| value.key.starts_with(wanted)).collect();
    if shown.is_empty() && find(wanted).is_none() {
        return Err(unknown(wanted, &resolved.values));
    }
    if context.global.json {
        let values: Vec<Value> = shown.into_iter().map(as_json).collect();
        print::out_json(&values)?;
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = shown
        .into_iter()
        .map(|value| {
            let text = if value.value.is_empty() { "–" } else { &value.value };
            vec![value.key.clone(), print::harmless(text), source(value)]
        })
        .collect();
    print::out(&print::folded_table(&rows))?;
    Ok(exit_code::OK)
}

/// Accepts what landings changed about runs.
pub(crate) fn accept(context: &Context) -> Outcome {
    let (repo, layout, look) = context.look(None)?;
    let pending = context.pending_files(&repo, Some(look.machine.target()))?;
    Accepted::new(&repo, layout.state()).accept(&pending)?;
    if context.global.json {
        let file =
            |file: &Pending| json!({ "path": file.path, "blob": file.blob, "commit": file.commit });
        let files: Vec<Value> = pending.iter().map(file).collect();
        print::out_json(&json!({ "accepted": files }))?;
        return Ok(exit_code::OK);
    }
    if pending.is_empty() {
        print::err("nothing to accept: no landed work changed settings or checks");
    }
    for file in &pending {
        let by = file.tasks.join(", ");
        print::err(&format!(
            "accepted {} as changed by {by}; the next run uses the new version",
            file.path
        ));
    }
    Ok(exit_code::OK)
}

/// The same by `mainstem answer`.
pub(crate) fn answer(context: &Context, text: &str) -> Outcome {
    match text.trim().to_lowercase().as_str() {
        "1" | "accept" | "yes" => accept(context),
        _ => Err(Failure::new(format!(
            "the answer to {CONFIG} must be `accept`, not `{}`",
            print::harmless(text)
        ))
        .hint("to keep the old version, revert the file and commit")),
    }
}

fn source(value: &Shown) -> String {
    match value.line {
        Some(line) => format!("{}:{line}", value.origin),
        None => value.origin.to_string(),
    }
}

fn as_json(value: &Shown) -> Value {
    let origin = match &value.origin {
        Origin::Default => "default",
        Origin::User(_) => "user",
        Origin::Project(_) => "project",
        Origin::Env(_) => "env",
        Origin::Flag => "flag",
    };
    json!({
        "key": value.key, "value": plain(&value.value), "origin": origin,
        "source": value.origin.to_string(), "line": value.line,
    })
}

/// A value written as TOML, as JSON; null if it is not set.
fn plain(toml: &str) -> Value {
    let table = format!("v = {toml}").parse::<toml::Table>().ok();
    table.and_then(|mut table| table.remove("v")).map_or(Value::Null, |value| json!(value))
}

fn unknown(wanted: &str, values: &[Shown]) -> Failure {
    let sections = keys().filter_map(|doc| doc.key.split('.').next());
    let known = values.iter().map(|value| value.key.as_str()).chain(sections);
    let failure = Failure::new(format!("unknown setting `{}`", print::harmless(wanted)));
    match nearest(wanted, known) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("list all settings: mainstem config"),
    }
}
