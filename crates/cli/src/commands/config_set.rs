//! `config set`: writes one setting to the project's or the user's file, and leaves everything else in it as it is.

use std::path::{Path, PathBuf};

use mainstem_api::actions::SettingChange;
use mainstem_api::exit_code;
use mainstem_core::config::keys::{SettingKind, all_keys, find_key};
use mainstem_core::config::layers::{SettingLayer, SettingOrigin, resolve_settings};
use mainstem_core::diagnostic::nearest_word;
use mainstem_host::files;
use toml_edit::{DocumentMut, Item, Table, Value};

use crate::args::SetArgs;
use crate::context::{CONFIG_FILE, CliContext, user_config_path};
use crate::error::{CliError, CliErrorSource, CommandResult};
use crate::output;

/// Writes a setting, if the file is a good one with it.
pub(crate) fn cmd_config_set(context: &CliContext, args: &SetArgs) -> CommandResult {
    let doc = find_key(&args.key).ok_or_else(|| unknown_key_error(&args.key))?;
    let file = settings_file(context, args.user)?;
    let name = file.display().to_string();
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(CliError::io_error(format!("cannot read {name}"), &error)),
    };
    let mut document: DocumentMut = before.parse().map_err(|error: toml_edit::TomlError| {
        CliError::new(format!("{name} is not valid TOML: {}", error.message()))
    })?;
    let value = parse_value(doc.kind, &args.value);
    put_value(&mut document, &args.key, value).map_err(|part| {
        CliError::new(format!("{name}: cannot set {} because `{part}` is not a table", args.key))
    })?;
    let after = document.to_string();
    check_document(context, &name, &before, &after, args.user)?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|error| {
            CliError::io_error(format!("cannot create {}", folder.display()), &error)
        })?;
    }
    if after != before {
        files::write_atomic(&file, after.as_bytes())
            .map_err(|error| CliError::io_error(format!("cannot write {name}"), &error))?;
    }
    if context.global.json {
        let key = args.key.clone();
        output::write_json(&SettingChange { key, file: name, changed: after != before })?;
    } else if !context.global.quiet {
        let what = if after == before { "already set in" } else { "set in" };
        output::write_stderr(&format!("{} {what} {name}", args.key));
    }
    Ok(exit_code::OK)
}

/// The file to write: the user's, or the project's, which is made at the top of the repository.
fn settings_file(context: &CliContext, user: bool) -> Result<PathBuf, CliError> {
    if user {
        return user_config_path().ok_or_else(|| CliError::new("$HOME is not set"));
    }
    let repo = context.open_repo()?;
    let top = repo.checkout().map(Path::to_path_buf);
    Ok(context
        .find_config_file(top.as_deref())
        .unwrap_or_else(|| top.unwrap_or_else(|| context.dir.clone()).join(CONFIG_FILE)))
}

/// What was typed, as a value of the setting's kind: text needs no quotes.
fn parse_value(kind: SettingKind, typed: &str) -> Value {
    let as_toml = typed.trim().parse::<Value>().ok();
    let wants_text = matches!(
        kind,
        SettingKind::Text | SettingKind::Choice | SettingKind::Duration | SettingKind::Size
    );
    match as_toml {
        Some(value) if !wants_text || value.is_str() => value,
        _ if wants_text => Value::from(typed),
        // A list of one may be typed as that one.
        _ if matches!(kind, SettingKind::Texts | SettingKind::Globs | SettingKind::Command) => {
            Value::from_iter([typed])
        }
        _ => Value::from(typed),
    }
}

/// Puts a value where a dotted key says; the part of the key that is something else already.
fn put_value(document: &mut DocumentMut, key: &str, mut value: Value) -> Result<(), String> {
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().unwrap_or(key);
    let mut table: &mut Table = document.as_table_mut();
    for part in parts {
        let entry = table.entry(part).or_insert_with(|| {
            let mut section = Table::new();
            section.set_implicit(false);
            Item::Table(section)
        });
        if let Item::Value(Value::InlineTable(inline)) = entry {
            *entry = Item::Table(std::mem::take(inline).into_table());
        }
        table = entry.as_table_mut().ok_or_else(|| part.to_owned())?;
    }
    if let Some(Item::Value(there)) = table.get(last) {
        if there.to_string().trim() == value.to_string().trim() {
            return Ok(());
        }
        // A comment at the end of the line stays.
        *value.decor_mut() = there.decor().clone();
    }
    table.insert(last, Item::Value(value));
    Ok(())
}

/// Settings that would be wrong are not written. What was wrong before is no reason to refuse a correction.
fn check_document(
    context: &CliContext,
    name: &str,
    before: &str,
    after: &str,
    user: bool,
) -> Result<(), CliError> {
    let layer = if user { SettingLayer::from_user_file } else { SettingLayer::from_project_file };
    let wrong = |text: &str| {
        resolve_settings(&[layer(name.to_owned(), text.to_owned())]).err().unwrap_or_default()
    };
    let found = wrong(after);
    if found.is_empty() || found.len() < wrong(before).len() {
        return Ok(());
    }
    let count = output::count_noun(found.len() as u64, "error");
    let mut failure = CliError::new(format!(
        "this value would make {name} invalid ({count}); nothing was written"
    ));
    for (origin, diagnostic) in found {
        let source = match origin {
            SettingOrigin::User(_) | SettingOrigin::Project(_) => after.to_owned(),
            _ => String::new(),
        };
        failure.add_source(CliErrorSource {
            file: name.to_owned(),
            source,
            diagnostics: vec![diagnostic],
        });
    }
    let _ = context;
    Err(failure)
}

fn unknown_key_error(key: &str) -> CliError {
    let failure = CliError::new(format!("unknown setting `{}`", output::sanitize_text(key)));
    match nearest_word(key, all_keys().map(|doc| doc.key)) {
        Some(near) => failure.with_hint(format!("did you mean `{near}`?")),
        None => failure.with_hint("list all settings: mainstem config"),
    }
}
