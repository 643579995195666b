//! Which files only a person may let pass, because they decide what a gate says: the scripts that gates and setup
//! commands name, what makes and task runners run for them, and what `gates.guard` adds. Test sources are not
//! among them. Knows commands and paths, no files.

use std::collections::{BTreeMap, BTreeSet};

use globset::GlobMatcher;

use crate::gate::compile_glob;

/// Programs that run the scripts of `package.json`.
const PACKAGE_RUNNERS: [&str; 4] = ["npm", "pnpm", "yarn", "bun"];
/// What `make` reads, whichever is there.
const MAKEFILES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];
const JUSTFILES: [&str; 3] = ["justfile", "Justfile", ".justfile"];
/// Programs whose arguments are test sources.
const TEST_RUNNERS: [&str; 14] = [
    "pytest", "py.test", "unittest", "nose2", "jest", "vitest", "mocha", "ava", "rspec", "phpunit",
    "--test", "cargo", "go", "deno",
];
/// Programs that only look into the files they are given.
const READERS: [&str; 27] = [
    "test", "[", "[[", "grep", "egrep", "fgrep", "rg", "cat", "head", "tail", "wc", "diff", "cmp",
    "ls", "stat", "sort", "uniq", "cut", "tr", "jq", "find", "echo", "printf", "touch", "rm", "cp",
    "mkdir",
];
/// Words of the shell that stand before a program.
const BEFORE_A_PROGRAM: [&str; 12] =
    ["!", "if", "then", "else", "elif", "while", "until", "do", "exec", "time", "env", "command"];
/// Folders of test sources.
const TEST_FOLDERS: [&str; 5] = ["test", "tests", "spec", "specs", "__tests__"];

/// The rules in force.
#[derive(Debug, Default)]
pub struct GuardRules {
    /// Files that a command names, and by which command.
    named: BTreeMap<String, String>,
    /// The command that runs scripts of `package.json`.
    package: Option<String>,
    /// Files of task runners by name, and the command that runs them.
    recipes: Vec<(&'static str, String)>,
    /// What the settings add.
    added: Vec<(GlobMatcher, String)>,
    /// What the settings let pass.
    relaxed: Vec<GlobMatcher>,
}

/// Why a change is guarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardReason {
    pub because: String,
    /// Only if the `scripts` of that package file changed.
    pub scripts_only: bool,
}

impl GuardRules {
    /// The rules for these commands, with `gates.guard`: globs add files, and `!` before a glob lets files pass.
    pub fn new<'a>(commands: impl IntoIterator<Item = &'a String>, globs: &[String]) -> Self {
        let mut guard = Self::default();
        for command in commands {
            guard.add_command(command);
        }
        for glob in globs {
            // The settings were checked when they were read.
            match glob.strip_prefix('!') {
                Some(glob) => guard.relaxed.extend(compile_glob(glob)),
                None => {
                    let because = format!("matches `{glob}` in gates.guard");
                    guard.added.extend(compile_glob(glob).map(|matcher| (matcher, because)));
                }
            }
        }
        guard
    }

    fn add_command(&mut self, command: &str) {
        if command.trim_start().starts_with('@') {
            return;
        }
        let because = format!("used by `{command}`");
        let mut folders = BTreeSet::new();
        for words in split_simple_commands(command) {
            folders.extend(visited_folders(&words));
            self.add_simple_command(&words, &folders, &because);
        }
    }

    /// One program and its arguments. What a program only looks into is what the gate checks, not the check.
    fn add_simple_command(&mut self, words: &[&str], folders: &BTreeSet<&str>, because: &str) {
        let because = because.to_owned();
        let name = |word: &&str| word.rsplit('/').next().unwrap_or(word).to_owned();
        let names: Vec<String> = words.iter().map(name).collect();
        let runs = |known: &[&str]| names.iter().any(|name| known.contains(&name.as_str()));
        if names.first().is_some_and(|program| READERS.contains(&program.as_str())) {
            return;
        }
        if runs(&PACKAGE_RUNNERS) {
            self.package.get_or_insert_with(|| because.clone());
        }
        if runs(&["make", "gmake"]) {
            self.recipes.extend(MAKEFILES.map(|name| (name, because.clone())));
        }
        if runs(&["just"]) {
            self.recipes.extend(JUSTFILES.map(|name| (name, because.clone())));
        }
        let tests = runs(&TEST_RUNNERS);
        for word in words {
            if word.starts_with('-') || word.starts_with('/') || (tests && is_test_source(word)) {
                continue;
            }
            let inside = folders.iter().map(|folder| format!("{folder}/{word}"));
            for path in std::iter::once((*word).to_owned()).chain(inside) {
                self.named.entry(normalize_path(&path)).or_insert_with(|| because.clone());
            }
        }
    }

    /// The files that commands name, and those of task runners at the root of the repository.
    pub fn named_files(&self) -> Vec<String> {
        let recipes = self.recipes.iter().map(|(name, _)| (*name).to_owned());
        let package = self.package.iter().map(|_| "package.json".to_owned());
        self.named.keys().cloned().chain(recipes).chain(package).collect()
    }

    /// A guarded file is found at this path as well: it is a link, or lies in a folder that is one.
    pub fn also(&mut self, path: &str, really: String) {
        let Some(rule) = self.guard_reason(path, true) else { return };
        self.named.entry(really).or_insert(rule.because);
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
            && self.package.is_none()
            && self.recipes.is_empty()
            && self.added.is_empty()
    }

    /// Whether a change to this file is guarded, and why. A command's word is a guarded file only if that file
    /// was there before: what did not exist decided nothing.
    pub fn guard_reason(&self, path: &str, existed: bool) -> Option<GuardReason> {
        if self.relaxed.iter().any(|glob| glob.is_match(path)) {
            return None;
        }
        let whole =
            |because: &String| GuardReason { because: because.clone(), scripts_only: false };
        if let Some((_, because)) = self.added.iter().find(|(glob, _)| glob.is_match(path)) {
            return Some(whole(because));
        }
        if let Some(because) = self.named.get(path).filter(|_| existed) {
            return Some(whole(because));
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        if let Some((_, because)) = self.recipes.iter().find(|(recipe, _)| *recipe == name) {
            return Some(whole(because));
        }
        let package = self.package.as_ref().filter(|_| existed && name == "package.json")?;
        Some(GuardReason { because: package.clone(), scripts_only: true })
    }
}

/// The programs that a shell command runs, each with its arguments; also those inside quotes.
fn split_simple_commands(command: &str) -> Vec<Vec<&str>> {
    let ends = |c: char| c.is_whitespace() || "<>\"'$={},".contains(c);
    let simple = command.split([';', '|', '&', '(', ')', '`', '\n']);
    let words = simple.map(|part| part.split(ends).filter(|word| !word.is_empty()).collect());
    words.map(strip_command_prefix).filter(|words| !words.is_empty()).collect()
}

/// Without what stands before a program.
fn strip_command_prefix(mut words: Vec<&str>) -> Vec<&str> {
    let shells = ["sh", "bash", "dash", "zsh", "ksh"];
    loop {
        let skip = match words.as_slice() {
            [first, ..] if BEFORE_A_PROGRAM.contains(first) => 1,
            [shell, flag, _, ..]
                if shells.contains(shell) && flag.starts_with('-') && flag.ends_with('c') =>
            {
                2
            }
            _ => return words,
        };
        words.drain(..skip);
    }
}

/// Folders that a command goes to.
fn visited_folders<'a>(words: &[&'a str]) -> BTreeSet<&'a str> {
    let goes = |pair: &&[&'a str]| matches!(pair[0], "cd" | "-C" | "--prefix" | "--cwd" | "--dir");
    words.windows(2).filter(goes).map(|pair| pair[1].trim_end_matches('/')).collect()
}

/// A path without `./` and `a/..`.
fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn is_test_source(word: &str) -> bool {
    let (folders, name) = word.rsplit_once('/').unwrap_or(("", word));
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    folders.split('/').any(|folder| TEST_FOLDERS.contains(&folder))
        || name.contains(".test.")
        || name.contains(".spec.")
        || stem.starts_with("test_")
        || ["_test", "_spec", "Test", "Tests", "Spec"].iter().any(|end| stem.ends_with(end))
}

/// The `scripts` of a package file; none if there are none, or it cannot be read as one.
pub fn package_scripts(package_json: &[u8]) -> Option<serde_json::Value> {
    let value: serde_json::Value = serde_json::from_slice(package_json).ok()?;
    value.get("scripts").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(commands: &[&str], globs: &[&str]) -> GuardRules {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        GuardRules::new(&owned(commands), &owned(globs))
    }

    fn guards(commands: &[&str], path: &str) -> bool {
        guard(commands, &[]).guard_reason(path, true).is_some()
    }

    #[test]
    fn a_file_that_stands_in_a_command_is_guarded_if_it_was_there() {
        assert!(guards(&["sh test.sh"], "test.sh"));
        assert!(guards(&["./ci/run.sh --all"], "ci/run.sh"));
        assert!(guards(&["bash -c 'cd sub && ./check.sh'"], "sub/check.sh"));
        assert!(guards(&["tool --config=ci/tool.toml"], "ci/tool.toml"));
        assert!(!guards(&["sh test.sh"], "src/test.sh"));
        assert!(!guards(&["@file_exists test.sh"], "test.sh"));
        assert_eq!(guard(&["sh bad.sh"], &[]).guard_reason("bad.sh", false), None);
    }

    #[test]
    fn a_script_that_is_a_link_is_guarded_where_it_really_is() {
        let mut rules = guard(&["sh test.sh", "make check"], &["!free.sh"]);
        assert!(rules.named_files().contains(&"Makefile".to_owned()));
        rules.also("test.sh", "scripts/real.sh".to_owned());
        rules.also("Makefile", "build/main.mk".to_owned());
        rules.also("free.sh", "other.sh".to_owned());
        assert!(rules.guard_reason("scripts/real.sh", true).is_some());
        assert!(rules.guard_reason("build/main.mk", true).is_some());
        assert_eq!(rules.guard_reason("other.sh", true), None);
    }

    #[test]
    fn what_a_gate_only_looks_into_is_not_guarded() {
        for command in ["! grep -q BUG a.txt", "test -e x && cat a.txt", "sh -c 'wc -l < a.txt'"] {
            assert!(!guards(&[command], "a.txt"), "{command}");
        }
        assert!(guards(&["test -e x && sh a.txt"], "a.txt"));
        assert!(guards(&["sh -ec \"./check.sh | grep -q ok\""], "check.sh"));
    }

    #[test]
    fn test_sources_are_not_guarded_though_a_runner_is_given_them() {
        for command in ["pytest tests/test_a.py", "python -m unittest tests/test_a.py"] {
            assert!(!guards(&[command], "tests/test_a.py"), "{command}");
        }
        assert!(!guards(&["npx jest src/a.test.ts"], "src/a.test.ts"));
        assert!(!guards(&["cargo test"], "tests/it.rs"));
        assert!(guards(&["sh tests/run.sh"], "tests/run.sh"), "the gate's own script is guarded");
    }

    #[test]
    fn what_task_runners_read_is_guarded_where_a_gate_runs_them() {
        let npm = guard(&["npm test"], &[]).guard_reason("package.json", true);
        assert!(npm.is_some_and(|rule| rule.scripts_only));
        assert_eq!(guard(&["npm test"], &[]).guard_reason("new/package.json", false), None);
        assert!(guard(&["make check"], &[]).guard_reason("GNUmakefile", false).is_some());
        assert!(guards(&["just test"], "justfile"));
        assert!(!guards(&["cargo test"], "Makefile"));
    }

    #[test]
    fn the_settings_widen_and_relax() {
        let ci = guard(&["sh test.sh"], &[".github/**", "!test.sh"]);
        assert!(ci.guard_reason(".github/workflows/ci.yml", false).is_some());
        assert_eq!(ci.guard_reason("test.sh", true), None);
        assert!(guard(&["sh test.sh"], &["!**"]).guard_reason("test.sh", true).is_none());
        assert!(guard(&[], &[]).is_empty());
    }

    #[test]
    fn only_the_scripts_of_a_package_file_count() {
        let one = br#"{"scripts":{"test":"mocha"},"dependencies":{}}"#;
        let two = br#"{"scripts":{"test":"mocha"},"dependencies":{"a":"1"}}"#;
        assert_eq!(package_scripts(one), package_scripts(two));
        assert_ne!(package_scripts(one), package_scripts(br#"{"scripts":{"test":"true"}}"#));
        assert_eq!(package_scripts(b"no json"), None);
    }
}
