//! Other tools' files on disk: a bounded walk that reads them, and careful writing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use mainstem_host::files::write_atomic;
use mainstem_planner::import_source::{ImportSource, should_enter_folder, should_read_file};

use crate::context::CliContext;
use crate::error::CliError;
use crate::output;

/// A file of tasks is never this large.
const FILE_BYTES_MAX: u64 = 10 << 20;
const BYTES_MAX: u64 = 128 << 20;
/// A folder with more files is a project; name the folder of the tasks.
const FILES_MAX: usize = 20_000;
/// Deeper folders hold no task files.
const DEPTH_MAX: usize = 8;

/// Reads a file, the files of a folder, or standard input.
pub(super) fn read_source(context: &CliContext, typed: &Path) -> Result<ImportSource, CliError> {
    if typed == Path::new("-") {
        return read_standard_input();
    }
    let path = context.resolve_path(typed);
    let name = typed.display().to_string();
    let meta = fs::metadata(&path)
        .map_err(|error| CliError::io_error(format!("cannot read {name}"), &error))?;
    if meta.is_dir() {
        return read_folder(&path, &name);
    }
    let parent = typed.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    let file_name = typed.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut found = vec![(file_name.unwrap_or_default(), read_text(&path, &name)?)];
    // Criteria of some lists stand in a file beside them.
    let beside = path.with_file_name("requirements.md");
    if path.file_name().is_some_and(|name| name == "tasks.md") && beside.is_file() {
        found.push(("requirements.md".to_owned(), read_text(&beside, "requirements.md")?));
    }
    Ok(ImportSource::new(parent, found).with_name(name))
}

fn read_standard_input() -> Result<ImportSource, CliError> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::io_error("cannot read standard input", &error))?;
    let text = decode_text(bytes, "standard input")?;
    // Only the kind of text tells whose it is.
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let name = if start.starts_with(['{', '[']) { "input.json" } else { "input.md" };
    Ok(ImportSource::new("", [(name.to_owned(), text)]).with_name("standard input"))
}

fn decode_text(bytes: Vec<u8>, name: &str) -> Result<String, CliError> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(
            CliError::new(format!("{name} is larger than 10 MiB")).with_hint("split the file")
        );
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::new(format!("{name}: byte {at} is not UTF-8")).with_hint("save the file as UTF-8")
    })
}

/// The text of one file, which must be a regular file and not larger than a list of tasks may be.
pub(crate) fn read_text(path: &Path, name: &str) -> Result<String, CliError> {
    let unreadable =
        |error: std::io::Error| CliError::io_error(format!("cannot read {name}"), &error);
    let mut bytes = Vec::new();
    // A pipe would be waited for, and a device has no end.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(CliError::new(format!("{name} is not a regular file")));
    }
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    decode_text(bytes, name)
}

/// Symbolic links are not followed: they may lead anywhere.
fn read_folder(root: &Path, name: &str) -> Result<ImportSource, CliError> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut todo: Vec<(PathBuf, String, usize)> = vec![(root.to_owned(), String::new(), 0)];
    let mut total = 0;
    while let Some((dir, prefix, depth)) = todo.pop() {
        let unreadable = |error: std::io::Error| {
            CliError::io_error(format!("cannot read {}", dir.display()), &error)
        };
        for entry in fs::read_dir(&dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let kind = entry.file_type().map_err(unreadable)?;
            let Ok(own) = entry.file_name().into_string() else { continue };
            let path = if prefix.is_empty() { own.clone() } else { format!("{prefix}/{own}") };
            if kind.is_dir() && should_enter_folder(&own) && depth < DEPTH_MAX {
                todo.push((entry.path(), path, depth + 1));
            } else if kind.is_file() && should_read_file(&own) {
                match read_text(&entry.path(), &path) {
                    Ok(text) => {
                        total += text.len() as u64;
                        found.push((path, text));
                    }
                    // One odd file of many is no reason to read none of them.
                    Err(failure) => {
                        output::write_stderr(&format!("note: skipped: {}", failure.message));
                    }
                }
            }
            if found.len() > FILES_MAX || total > BYTES_MAX {
                return Err(CliError::new(format!("{name} has too many files"))
                    .with_hint("pass the folder of the task files, such as specs/001-name"));
            }
        }
    }
    Ok(ImportSource::new(name, found))
}

/// A file that is there and was not to be replaced.
pub(crate) fn file_exists_error(path: &Path) -> CliError {
    CliError::new(format!("{} already exists", path.display()))
        .with_hint("use --force to replace it")
}

/// Writes a new file, with its folders.
pub(crate) fn write_new_file(path: &Path, text: &str, force: bool) -> Result<(), CliError> {
    if path.exists() && !force {
        return Err(file_exists_error(path));
    }
    let failed = |error: std::io::Error| {
        CliError::io_error(format!("cannot write {}", path.display()), &error)
    };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    write_atomic(path, text.as_bytes()).map_err(failed)
}

/// Puts changed texts in the place of what was read; a file that changed meanwhile is left alone.
pub(super) fn rewrite_files(
    context: &CliContext,
    source: &ImportSource,
    typed: &Path,
    changed: &BTreeMap<String, String>,
) -> Result<(), CliError> {
    let typed = context.resolve_path(typed);
    let root = if typed.is_dir() { typed } else { typed.parent().unwrap_or(&typed).to_owned() };
    for (path, new) in changed {
        let Some(file) = source.file(path) else {
            write_new_file(&root.join(path), new, false)?;
            continue;
        };
        let name = source.full_path(path);
        let failed =
            |error: std::io::Error| CliError::io_error(format!("cannot write {name}"), &error);
        // Through a link, the file it names is the one that was read.
        let place = fs::canonicalize(root.join(path)).map_err(failed)?;
        let now = fs::read(&place).map_err(failed)?;
        if now != file.text.as_bytes() {
            return Err(CliError::new(format!("{name} changed while it was being read"))
                .with_hint("run mainstem plan push again"));
        }
        let rights = fs::metadata(&place).map_err(failed)?.permissions();
        write_atomic(&place, new.as_bytes()).map_err(failed)?;
        fs::set_permissions(&place, rights).map_err(failed)?;
    }
    Ok(())
}
