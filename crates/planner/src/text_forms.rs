//! What can be read off plain text: slugs, titles in their bare form, paths, safe ids.
//!
//! Knows nothing of plans or formats; every function is linear in its text.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use mainstem_core::glob::check_glob;
use mainstem_core::id::{ID_LEN_MAX, check_id};

/// The longest slug; cut at a hyphen.
pub const SLUG_MAX: usize = 50;

/// Verbs that a title may start with without saying anything about what is made.
const VERBS: [&str; 10] = [
    "set up",
    "implement",
    "create",
    "add",
    "build",
    "define",
    "write",
    "configure",
    "design",
    "establish",
];

/// Words that many epics use for tasks of their own.
const GENERIC: [&str; 52] = [
    "a",
    "an",
    "and",
    "api",
    "basic",
    "ci",
    "cleanup",
    "code",
    "config",
    "configuration",
    "core",
    "data",
    "database",
    "docs",
    "documentation",
    "e2e",
    "end",
    "endpoint",
    "endpoints",
    "error",
    "errors",
    "final",
    "for",
    "handling",
    "initial",
    "integration",
    "interface",
    "layer",
    "logging",
    "migration",
    "migrations",
    "model",
    "models",
    "module",
    "monitoring",
    "of",
    "performance",
    "project",
    "readme",
    "refactoring",
    "review",
    "schema",
    "scaffolding",
    "setup",
    "structure",
    "suite",
    "test",
    "testing",
    "tests",
    "the",
    "unit",
    "validation",
];

/// Lower case, words by single spaces, no punctuation.
pub fn plain_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            out.push(c);
        } else if !out.ends_with(' ') && !out.is_empty() && c != '\'' && c != '’' {
            out.push(' ');
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// A title's bare form: plain, without one leading verb, never empty because of that.
pub fn bare_title(title: &str) -> String {
    let plain = plain_words(title);
    for verb in VERBS {
        if let Some(rest) = plain.strip_prefix(verb).and_then(|rest| rest.strip_prefix(' ')) {
            return rest.to_owned();
        }
    }
    plain
}

/// A title that several epics may use for different work: it names nothing of its own.
pub fn is_generic_title(bare: &str) -> bool {
    bare.split(' ').all(|word| GENERIC.contains(&word))
}

/// Lower-case ASCII words by hyphens, at most [`SLUG_MAX`] long; empty if nothing is left.
pub fn slugify(text: &str) -> String {
    slugify_within(text, SLUG_MAX)
}

fn slugify_within(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
        if out.len() > max + 1 {
            break;
        }
    }
    if out.len() > max {
        let cut = out[..=max].rfind('-').filter(|at| *at > 0).unwrap_or(max);
        out.truncate(cut);
    }
    out.truncate(out.trim_end_matches('-').len());
    out
}

/// An id of ours for an id of theirs: itself if it can be one, otherwise the nearest that can.
pub fn safe_task_id(theirs: &str) -> String {
    if check_id(theirs).is_ok() {
        return theirs.to_owned();
    }
    let mut out = String::new();
    for c in theirs.chars() {
        let fine = c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let c = if fine { c } else { '-' };
        let first = out.is_empty() && !c.is_ascii_alphanumeric();
        let double = matches!(c, '-' | '.') && out.ends_with(c);
        if !first && !double {
            out.push(c);
        }
        if out.len() >= ID_LEN_MAX - 4 {
            break;
        }
    }
    out.truncate(out.trim_end_matches(['-', '.']).len());
    if out.to_ascii_lowercase().ends_with(".lock") {
        out.push('_');
    }
    if out.is_empty() { "task".to_owned() } else { out }
}

/// The first of `name`, `name-2`, `name-3` … that `taken` does not hold, ignoring case; it is then
/// taken.
pub fn unique_name(name: &str, taken: &mut BTreeMap<String, usize>) -> String {
    let mut candidate = name.to_owned();
    loop {
        if let Entry::Vacant(place) = taken.entry(candidate.to_ascii_lowercase()) {
            place.insert(1);
            return candidate;
        }
        let base = name.to_ascii_lowercase();
        let count = taken.entry(base).or_insert(1);
        *count += 1;
        let tail = format!("-{count}");
        let mut head = name.len().min(ID_LEN_MAX - tail.len());
        while !name.is_char_boundary(head) {
            head -= 1;
        }
        candidate = format!("{}{tail}", &name[..head]);
    }
}

/// Text of one line, without control characters.
pub fn collapse_to_line(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(clean).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Files and folders that a text names, in order, each once: `src/a.rs`, `crates/x/**`, `a.toml` in
/// backticks. Links and absolute paths are none.
pub fn find_paths(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '(' | ')');
    for (i, part) in text.split('`').enumerate() {
        let quoted = i % 2 == 1;
        for word in part.split(separator) {
            let word = word.trim_end_matches(['.', ':', '!', '?']).trim_start_matches("./");
            if looks_like_path(word, quoted) && !found.iter().any(|path| path == word) {
                found.push(word.to_owned());
            }
        }
    }
    found
}

fn looks_like_path(word: &str, quoted: bool) -> bool {
    if word.len() < 3 || word.len() > 200 || word.contains("://") || word.contains("//") {
        return false;
    }
    let good = |b: u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-' | b'*' | b'@' | b'+')
    };
    if !word.bytes().all(good)
        || word.starts_with(['/', '-', '@', '+'])
        || check_glob(word).is_err()
    {
        return false;
    }
    let extension = word.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let file = extension.is_some_and(|(stem, end)| {
        let letters = end.bytes().any(|b| b.is_ascii_alphabetic());
        !stem.is_empty() && (1..=8).contains(&end.len()) && letters && !end.contains('*')
    });
    if word.contains('/') {
        // "and/or" is no folder; a folder says so by its end or its depth.
        file || word.ends_with("/**") || word.ends_with("/*") || word.ends_with('/')
    } else {
        file && quoted && !word.starts_with('.')
    }
}

/// A path as `writes` takes it: a folder means what is in it.
pub fn path_as_glob(path: &str) -> String {
    match path.strip_suffix('/') {
        Some(folder) => format!("{folder}/**"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_lose_one_verb_and_never_everything() {
        assert_eq!(bare_title("Set up the  Database!"), "the database");
        assert_eq!(bare_title("Implement"), "implement");
        assert_eq!(bare_title("Address book"), "address book");
        assert_eq!(bare_title("Add add-ons"), "add ons");
        assert!(
            is_generic_title(&bare_title("Write tests"))
                && is_generic_title(&bare_title("Add unit tests"))
        );
        assert!(!is_generic_title(&bare_title("Create the cart table")));
    }

    #[test]
    fn slugs_are_short_kebab_ascii_cut_at_a_hyphen() {
        assert_eq!(slugify("Hello, Wörld & more"), "hello-w-rld-more");
        let long = slugify(&"word ".repeat(30));
        assert!(long.len() <= SLUG_MAX && long.ends_with("word"), "{long}");
        assert_eq!(slugify("日本"), "");
        assert_eq!(slugify(&"x".repeat(80)).len(), SLUG_MAX);
    }

    #[test]
    fn paths_are_found_and_prose_is_not() {
        let text = "Create X in src/x.py and `Cargo.toml`, see https://a.b/c.html (docs/**), and/or \
                    e.g. 1.2.3 or ../up/a.rs or /etc/passwd; also tests/api/ and v1.2";
        assert_eq!(find_paths(text), ["src/x.py", "Cargo.toml", "docs/**", "tests/api/"]);
        assert_eq!(path_as_glob("tests/api/"), "tests/api/**");
    }

    #[test]
    fn ids_of_others_become_safe_and_stay_apart() {
        for (theirs, ours) in [
            ("bd-a1.2", "bd-a1.2"),
            ("a b/c", "a-b-c"),
            ("#12", "12"),
            ("..", "task"),
            ("x.lock", "x.lock_"),
        ] {
            assert_eq!(safe_task_id(theirs), ours);
            assert_eq!(check_id(&safe_task_id(theirs)), Ok(()));
        }
        let mut taken = BTreeMap::new();
        let names = ["a", "A", "a", "a-2"].map(|name| unique_name(name, &mut taken));
        assert_eq!(names, ["a", "A-2", "a-3", "a-2-2"]);
    }
}
