//! `config set`: writes one setting to the project's or the user's file, and leaves everything else in it as it is.

use std::path::{Path, PathBuf};

use mainstem_api::exit_code;
use mainstem_core::config::keys::{Kind, find, keys};
use mainstem_core::config::layers::{Layer, Origin, resolve};
use mainstem_core::diag::nearest;
use mainstem_host::files;
use serde_json::json;
use toml_edit::{DocumentMut, Item, Table, Value};

use crate::args::SetArgs;
use crate::context::{CONFIG_FILE, Context, user_config};
use crate::failure::{Failure, Outcome, Place};
use crate::print;

/// Writes a setting, if the file is a good one with it.
pub(crate) fn set(context: &Context, args: &SetArgs) -> Outcome {
    let doc = find(&args.key).ok_or_else(|| unknown(&args.key))?;
    let file = place(context, args.user)?;
    let name = file.display().to_string();
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::io(format!("{name} cannot be read"), &error)),
    };
    let mut document: DocumentMut = before.parse().map_err(|error: toml_edit::TomlError| {
        Failure::new(format!("{name} is not valid TOML: {}", error.message()))
    })?;
    let value = value_of(doc.kind, &args.value);
    put(&mut document, &args.key, value).map_err(|part| {
        Failure::new(format!("{name}: `{part}` is not a section, so {} has no place", args.key))
    })?;
    let after = document.to_string();
    check(context, &name, &before, &after, args.user)?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::io(format!("{} cannot be made", folder.display()), &error))?;
    }
    if after != before {
        files::write_atomic(&file, after.as_bytes())
            .map_err(|error| Failure::io(format!("{name} cannot be written"), &error))?;
    }
    if context.global.json {
        print::out_json(&json!({ "key": args.key, "file": name, "changed": after != before }))?;
    } else if !context.global.quiet {
        let what = if after == before { "already set in" } else { "set in" };
        print::err(&format!("{} {what} {name}", args.key));
    }
    Ok(exit_code::OK)
}

/// The file to write: the user's, or the project's, which is made at the top of the repository.
fn place(context: &Context, user: bool) -> Result<PathBuf, Failure> {
    if user {
        return user_config().ok_or_else(|| Failure::new("there is no home folder: set $HOME"));
    }
    let repo = context.repo()?;
    let top = repo.checkout().map(Path::to_path_buf);
    Ok(context
        .config_file(top.as_deref())
        .unwrap_or_else(|| top.unwrap_or_else(|| context.dir.clone()).join(CONFIG_FILE)))
}

/// What was typed, as a value of the setting's kind: text needs no quotes.
fn value_of(kind: Kind, typed: &str) -> Value {
    let as_toml = typed.trim().parse::<Value>().ok();
    let wants_text = matches!(kind, Kind::Text | Kind::Choice | Kind::Duration | Kind::Size);
    match as_toml {
        Some(value) if !wants_text || value.is_str() => value,
        _ if wants_text => Value::from(typed),
        // A list of one may be typed as that one.
        _ if matches!(kind, Kind::Texts | Kind::Globs | Kind::Command) => Value::from_iter([typed]),
        _ => Value::from(typed),
    }
}

/// Puts a value where a dotted key says; the part of the key that is something else already.
fn put(document: &mut DocumentMut, key: &str, mut value: Value) -> Result<(), String> {
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
fn check(
    context: &Context,
    name: &str,
    before: &str,
    after: &str,
    user: bool,
) -> Result<(), Failure> {
    let layer = if user { Layer::user } else { Layer::project };
    let wrong =
        |text: &str| resolve(&[layer(name.to_owned(), text.to_owned())]).err().unwrap_or_default();
    let found = wrong(after);
    if found.is_empty() || found.len() < wrong(before).len() {
        return Ok(());
    }
    let count = print::count(found.len() as u64, "error");
    let mut failure =
        Failure::new(format!("with this setting {name} would have {count}; nothing was written"));
    for (origin, diagnostic) in found {
        let source = match origin {
            Origin::User(_) | Origin::Project(_) => after.to_owned(),
            _ => String::new(),
        };
        failure.add_place(Place { file: name.to_owned(), source, diagnostics: vec![diagnostic] });
    }
    let _ = context;
    Err(failure)
}

fn unknown(key: &str) -> Failure {
    let failure = Failure::new(format!("there is no setting `{}`", print::harmless(key)));
    match nearest(key, keys().map(|doc| doc.key)) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("mainstem config lists all settings"),
    }
}
