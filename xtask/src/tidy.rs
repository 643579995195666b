//! The house rules as a program: reads the workspace's files and names what breaks a rule.
//!
//! Each rule is a pure function from text to findings, so each has a test in which it fails. This file gathers the
//! files and runs them; it does not know what any rule says.

mod licences;
mod manifests;
mod names;
mod promises;
mod ratchet;
mod source;
mod type_names;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;

use crate::{Verdict, shell};

/// Build output has no place in the tree, and nobody reviews a file of this size.
const FILE_BYTES_MAX: u64 = 200_000;
/// Files that are data by nature and may be larger.
const LARGE_FILES: &[&str] = &["Cargo.lock", "web/package-lock.json"];

/// One broken rule: where, what, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    fix: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}; {}", self.path, self.line, self.what, self.fix)
    }
}

/// One file of the workspace.
struct Entry {
    /// Relative to the root, with `/`.
    path: String,
    bytes: u64,
    /// Absent for a binary file.
    text: Option<String>,
}

/// Prints each finding on a line of its own.
pub(crate) fn print(root: &Path) -> Result<Verdict, String> {
    let mut findings = check(root)?;
    findings.extend(licences::check(root)?);
    Ok(show(&findings))
}

/// The licence check alone.
pub(crate) fn print_licences(root: &Path) -> Result<Verdict, String> {
    Ok(show(&licences::check(root)?))
}

fn show(findings: &[Finding]) -> Verdict {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() { Verdict::Clean } else { Verdict::Findings }
}

/// Every rule that needs nothing but the files, in order of path and line.
fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let entries = gather(root)?;
    let mut findings = check_entries(&entries);
    findings.extend(type_names::check(&declared_types(&entries)));
    let ratchet = fs::read_to_string(root.join(ratchet::PATH));
    let ratchet = ratchet.map_err(|error| format!("{}: {error}", ratchet::PATH))?;
    findings.extend(ratchet::check(&ratchet, &measure(&entries)));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

fn check_entries(entries: &[Entry]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in entries {
        findings.extend(size(entry));
        findings.extend(names::check_path(&entry.path));
        let Some(text) = &entry.text else { continue };
        findings.extend(words::check(&entry.path, text));
        if entry.path.ends_with(".rs") {
            findings.extend(source::check(&entry.path, text));
        }
        if entry.path.ends_with("Cargo.toml") {
            findings.extend(manifests::check(&entry.path, text));
        }
        if entry.path == manifests::CODE_MAP {
            findings.extend(manifests::check_code_map(text));
        }
        if entry.path == "Cargo.lock" {
            findings.extend(manifests::check_lock(text));
        }
    }
    let page = entries.iter().find(|entry| entry.path == promises::PAGE);
    if let Some(text) = page.and_then(|page| page.text.as_deref()) {
        let sources = entries.iter().filter(|entry| entry.path.ends_with(".rs"));
        let texts = sources.filter_map(|entry| entry.text.as_deref());
        findings.extend(promises::check(text, &texts.flat_map(promises::functions).collect()));
    }
    findings
}

fn declared_types(entries: &[Entry]) -> Vec<source::DeclaredType> {
    let sources = entries.iter().filter(|entry| entry.path.ends_with(".rs"));
    let types = sources.flat_map(|entry| {
        source::declared_types(&entry.path, entry.text.as_deref().unwrap_or_default())
    });
    types.collect()
}

fn measure(entries: &[Entry]) -> Vec<ratchet::Measured> {
    let mut measured = Vec::new();
    for entry in entries.iter().filter(|entry| entry.path.ends_with(".rs")) {
        let text = entry.text.as_deref().unwrap_or_default();
        measured.extend(source::measure(&entry.path, text));
    }
    measured
}

fn size(entry: &Entry) -> Option<Finding> {
    if entry.bytes <= FILE_BYTES_MAX || LARGE_FILES.contains(&entry.path.as_str()) {
        return None;
    }
    let what = format!("{} bytes, more than {FILE_BYTES_MAX}", entry.bytes);
    Some(Finding::new(&entry.path, 1, what, "generate it where it is needed, or cut it"))
}

/// What git tracks or would add; without a repository (a source archive), every file outside the build folders.
fn gather(root: &Path) -> Result<Vec<Entry>, String> {
    let paths = if root.join(".git").exists() { git_files(root)? } else { walked_files(root)? };
    let mut entries = Vec::new();
    for path in paths {
        let full = root.join(&path);
        let bytes = match fs::read(&full) {
            Ok(bytes) => bytes,
            // Removed but still in the index: there is nothing left to judge.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{path}: {error}")),
        };
        let length = u64::try_from(bytes.len()).expect("BUG: a length fits in 64 bits");
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        entries.push(Entry { path, bytes: length, text });
    }
    Ok(entries)
}

fn git_files(root: &Path) -> Result<Vec<String>, String> {
    let mut list = shell::command("git", root);
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let said = shell::output(&mut list)?;
    let said = String::from_utf8(said).map_err(|_| "a file name is not UTF-8".to_owned())?;
    let mut paths: Vec<String> =
        said.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn walked_files(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder);
        for entry in entries.map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() {
                if name != "target" && name != "node_modules" {
                    folders.push(path);
                }
                continue;
            }
            let path = path.strip_prefix(root).expect("BUG: found below the root");
            found.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn entry(path: &str, text: &str) -> Entry {
        Entry { path: path.to_owned(), bytes: text.len() as u64, text: Some(text.to_owned()) }
    }

    #[test]
    fn this_workspace_is_tidy() {
        let findings = check(&shell::workspace_root()).unwrap();
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn every_licence_of_a_dependency_is_allowed() {
        let findings = licences::check(&shell::workspace_root()).unwrap();
        assert_eq!(findings, []);
    }

    #[test]
    fn a_finding_says_where_what_and_how_to_mend_it() {
        let found = check_entries(&[entry(
            "crates/core/src/a.rs",
            "//! A file for tests.\nfn a() { todo!() }\n",
        )]);
        assert_eq!(
            found[0].to_string(),
            "crates/core/src/a.rs:2: `todo!` is left over; finish it or return an error"
        );
    }

    #[test]
    fn a_large_file_is_found_unless_it_is_a_lock_file() {
        let large = "x".repeat(200_001);
        assert_eq!(check_entries(&[entry("docs/a.txt", &large)]).len(), 1);
        assert_eq!(size(&entry("Cargo.lock", &large)), None);
        assert_eq!(size(&entry("docs/a.txt", &large[1..])), None);
    }

    #[test]
    fn without_a_repository_the_folders_are_walked() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("target/debug")).unwrap();
        fs::write(dir.path().join("target/debug/x"), "built").unwrap();
        fs::create_dir_all(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/a.rs"), "//! A file for tests.\n").unwrap();
        let entries = gather(dir.path()).unwrap();
        assert_eq!(entries.iter().map(|e| e.path.as_str()).collect::<Vec<_>>(), ["src/a.rs"]);
    }

    #[test]
    fn ignored_files_are_not_judged_and_new_ones_are() {
        let dir = tempfile::tempdir().unwrap();
        assert!(shell::succeeds(shell::command("git", dir.path()).args(["init", "-q"])).unwrap());
        fs::write(dir.path().join(".gitignore"), "out\n").unwrap();
        fs::write(dir.path().join("out"), "x").unwrap();
        fs::write(dir.path().join("new.rs"), "fn a() {}\n").unwrap();
        let entries = gather(dir.path()).unwrap();
        let paths: Vec<&str> = entries.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, [".gitignore", "new.rs"]);
        assert_eq!(check_entries(&entries).len(), 1, "no module doc");
    }
}
