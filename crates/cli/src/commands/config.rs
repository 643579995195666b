//! `config`: every setting, its value, and who set it.

use mainstem_api::actions::{AcceptReport, AcceptedVersion};
use mainstem_api::exit_code;
use mainstem_core::config::keys::{all_keys, find_key};
use mainstem_core::config::layers::{SettingListing, SettingOrigin};
use mainstem_core::diagnostic::nearest_word;
use mainstem_core::inbox::CONFIG;
use mainstem_engine::accepted_files::AcceptedFiles;
use mainstem_engine::query::list_pending_files;
use serde_json::{Value, json};

use crate::args::ConfigArgs;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// Prints all settings, or those below a key.
pub(crate) fn cmd_config(context: &CliContext, args: &ConfigArgs) -> CommandResult {
    let repo = context.open_repo().ok();
    let resolved = context.resolve_settings(repo.as_ref())?;
    let wanted = args.key.as_deref().unwrap_or("");
    let shown: Vec<&SettingListing> =
        resolved.values.iter().filter(|value| value.key.starts_with(wanted)).collect();
    if shown.is_empty() && find_key(wanted).is_none() {
        return Err(unknown_key_error(wanted, &resolved.values));
    }
    if context.global.json {
        let values: Vec<Value> = shown.into_iter().map(setting_json).collect();
        output::write_json(&values)?;
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = shown
        .into_iter()
        .map(|value| {
            let text = if value.value.is_empty() { "–" } else { &value.value };
            vec![value.key.clone(), output::sanitize_text(text), origin_text(value)]
        })
        .collect();
    output::write_stdout(&output::format_wrapped_table(&rows))?;
    Ok(exit_code::OK)
}

/// Accepts what landings changed about runs.
pub(crate) fn accept_pending(context: &CliContext) -> CommandResult {
    let (repo, layout, look) = context.open_run(None)?;
    let pending = list_pending_files(&repo, Some(look.machine.target_branch()))?;
    AcceptedFiles::new(&repo, layout.state_dir()).accept_versions(&pending)?;
    if context.global.json {
        let accepted = pending.iter().map(|file| AcceptedVersion {
            path: file.path.clone(),
            blob: file.blob.as_ref().map(ToString::to_string),
            commit: file.commit.to_string(),
        });
        output::write_json(&AcceptReport { accepted: accepted.collect() })?;
        return Ok(exit_code::OK);
    }
    if pending.is_empty() {
        output::write_stderr("nothing to accept: no landed work changed settings or checks");
    }
    for file in &pending {
        let by = file.tasks.join(", ");
        output::write_stderr(&format!(
            "accepted {} as changed by {by}; the next run uses the new version",
            file.path
        ));
    }
    Ok(exit_code::OK)
}

/// The same by `mainstem answer`.
pub(crate) fn answer_pending(context: &CliContext, text: &str) -> CommandResult {
    match text.trim().to_lowercase().as_str() {
        "1" | "accept" | "yes" => accept_pending(context),
        _ => Err(CliError::new(format!(
            "the answer to {CONFIG} must be `accept`, not `{}`",
            output::sanitize_text(text)
        ))
        .with_hint("to keep the old version, revert the file and commit")),
    }
}

fn origin_text(value: &SettingListing) -> String {
    match value.line {
        Some(line) => format!("{}:{line}", value.origin),
        None => value.origin.to_string(),
    }
}

fn setting_json(value: &SettingListing) -> Value {
    let origin = match &value.origin {
        SettingOrigin::Default => "default",
        SettingOrigin::User(_) => "user",
        SettingOrigin::Project(_) => "project",
        SettingOrigin::Env(_) => "env",
        SettingOrigin::Flag => "flag",
    };
    json!({
        "key": value.key, "value": toml_as_json(&value.value), "origin": origin,
        "source": value.origin.to_string(), "line": value.line,
    })
}

/// A value written as TOML, as JSON; null if it is not set.
fn toml_as_json(toml: &str) -> Value {
    let table = format!("v = {toml}").parse::<toml::Table>().ok();
    table.and_then(|mut table| table.remove("v")).map_or(Value::Null, |value| json!(value))
}

fn unknown_key_error(wanted: &str, values: &[SettingListing]) -> CliError {
    let sections = all_keys().filter_map(|doc| doc.key.split('.').next());
    let known = values.iter().map(|value| value.key.as_str()).chain(sections);
    let failure = CliError::new(format!("unknown setting `{}`", output::sanitize_text(wanted)));
    match nearest_word(wanted, known) {
        Some(near) => failure.with_hint(format!("did you mean `{near}`?")),
        None => failure.with_hint("list all settings: mainstem config"),
    }
}
