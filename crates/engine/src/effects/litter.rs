//! Files that agents commit by mistake, because the repository does not ignore them: said, never refused.

use std::collections::BTreeMap;

/// Folders that package managers and interpreters fill.
const FOLDERS: [&str; 4] = ["node_modules", "venv", ".venv", "__pycache__"];
/// More new files than one task usually means to add.
const FILES_MAX: usize = 1_000;

/// What is to be said of the files that an attempt added, if anything.
pub(super) fn warning(added: &[String]) -> Option<String> {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for path in added {
        if let Some(what) = usually_ignored(path) {
            *found.entry(what).or_default() += 1;
        }
    }
    let one = |(what, files): (&&str, &usize)| match files {
        1 => (*what).to_owned(),
        files => format!("{what} ({files} files)"),
    };
    let names: Vec<String> = found.iter().map(one).collect();
    match (names.is_empty(), added.len() > FILES_MAX) {
        (false, _) => Some(format!(
            "adds what is usually not committed: {}. If that is a mistake, list it in .gitignore",
            names.join(", ")
        )),
        (true, true) => Some(format!("adds {} files", added.len())),
        (true, false) => None,
    }
}

/// What a path belongs to that repositories usually ignore.
fn usually_ignored(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    let name = parts.next_back()?;
    if let Some(folder) = parts.find_map(|part| FOLDERS.into_iter().find(|known| *known == part)) {
        return Some(folder);
    }
    match name {
        ".env" => Some(".env"),
        name if name.ends_with(".pyc") => Some("*.pyc"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(paths: &[&str]) -> Option<String> {
        warning(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_usually_ignored_is_named_once() {
        assert_eq!(said(&["src/env.rs", ".envrc", "docs/node_modules.md"]), None);
        let paths = ["a/node_modules/x/1", "a/node_modules/x/2", ".env", "p/__pycache__/a.pyc"];
        let text = said(&paths).unwrap_or_default();
        assert!(text.contains(": .env, __pycache__, node_modules (2 files). "), "{text}");
        assert!(said(&["b.pyc"]).unwrap_or_default().contains("*.pyc"));
        let many: Vec<String> = (0..1_001).map(|n| format!("f{n}")).collect();
        assert_eq!(warning(&many).as_deref(), Some("adds 1001 files"));
    }
}
