//! Names that say nothing: of files, and of things declared in Rust.
//!
//! Does not read file contents; `source` hands it identifiers.

use super::Finding;

/// A type called so tells where code was put, not what it is. One word of a CamelCase name is enough.
const EMPTY_NOUNS: &[&str] = &["Manager", "Service", "Helper", "Helpers"];

/// Modules and files called so collect whatever had no better place. Whole names only.
const DRAWERS: &[&str] =
    &["manager", "service", "helper", "helpers", "util", "utils", "common", "misc"];

/// A file with such an adjective is a copy beside the one it should have replaced.
const ADJECTIVES: &[&str] = &["simple", "enhanced", "advanced", "optimized", "improved"];

/// Judges each folder and file name of a path.
pub(super) fn check_path(path: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in path.split('/') {
        let stem = part.split('.').next().unwrap_or_default().to_lowercase();
        if DRAWERS.contains(&stem.as_str()) {
            let fix = "name it after what it holds";
            findings.push(Finding::new(path, 1, format!("`{part}` is a drawer, not a name"), fix));
        }
        let adjective = stem.split(['-', '_']).find(|word| ADJECTIVES.contains(word));
        if let Some(adjective) = adjective {
            let fix = "replace the old file instead of adding one beside it";
            findings.push(Finding::new(path, 1, format!("file name with `{adjective}`"), fix));
        }
    }
    findings
}

/// Why a module may not be called so, if so. Other things may: git itself has a `common` directory.
pub(super) fn check_module(name: &str) -> Option<String> {
    DRAWERS.contains(&name).then(|| format!("`{name}` is a drawer, not a name"))
}

/// Why an identifier may not be used, if so.
pub(super) fn check_ident(ident: &str) -> Option<String> {
    let noun = camel_words(ident).find(|word| EMPTY_NOUNS.contains(word))?;
    Some(format!("`{ident}` says `{noun}`"))
}

/// The words of a CamelCase name; a snake_case one has none of interest.
fn camel_words(ident: &str) -> impl Iterator<Item = &str> {
    let mut cuts: Vec<usize> =
        ident.char_indices().filter(|(_, c)| c.is_ascii_uppercase()).map(|(at, _)| at).collect();
    cuts.push(ident.len());
    let words: Vec<&str> = cuts.windows(2).map(|pair| &ident[pair[0]..pair[1]]).collect();
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_nouns_are_found_inside_type_names_only_as_whole_words() {
        assert!(check_ident("WorktreeManager").is_some());
        assert!(check_ident("ServiceBag").is_some());
        assert!(check_ident("TestHelpers").is_some());
        assert_eq!(check_ident("Serviceable"), None);
        assert_eq!(check_ident("service"), None, "a systemd service may be spoken of");
    }

    #[test]
    fn drawers_are_found_but_not_inside_longer_names() {
        assert!(check_module("utils").is_some());
        assert!(check_module("common").is_some());
        assert_eq!(check_module("common_dir"), None);
        assert_eq!(check_ident("common"), None, "a variable may hold git's common directory");
        assert_eq!(check_path("crates/host/src/utils.rs").len(), 1);
        assert_eq!(check_path("crates/common/src/lib.rs").len(), 1);
        assert_eq!(check_path("crates/host/src/git/common_dir.rs"), []);
    }

    #[test]
    fn copies_with_adjectives_are_found() {
        assert_eq!(check_path("crates/cli/src/simple_run.rs").len(), 1);
        assert_eq!(check_path("docs/guide/run-improved.md").len(), 1);
        assert_eq!(check_path("docs/guide/simplest.md"), []);
    }
}
