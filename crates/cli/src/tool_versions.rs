//! Versions of the agents' tools: asked for once and remembered by the program's file, because some of
//! them take seconds to say it.

#![expect(
    clippy::disallowed_methods,
    reason = "a tool is asked for its version here and now, outside any run"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, UNIX_EPOCH};

use mainstem_host::{clock, files};
use serde::{Deserialize, Serialize};

/// A tool that does not say its version within this is not asked further.
const PATIENCE: Duration = Duration::from_secs(10);
/// A wrapper stays the same file when what it starts is updated, so nothing is believed for longer.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// Entries of the file that remembers; the oldest go.
const KEPT_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CachedVersion {
    file: String,
    at_ms: i64,
    version: String,
}

/// The version of each program, all asked at once; none of one that does not say.
pub(crate) fn query_versions(programs: &[PathBuf]) -> Vec<Option<String>> {
    let store = cache_path();
    let mut known = read_cache(store.as_deref());
    let now = clock::now_ms();
    let fresh = |answer: &&CachedVersion| (0..KEPT_MS).contains(&(now - answer.at_ms));
    let files: Vec<Option<String>> =
        programs.iter().map(|program| program_identity(program)).collect();
    let found = |file: &Option<String>| {
        let answer = known.get(file.as_ref()?).filter(fresh)?;
        Some(answer.version.clone())
    };
    let mut versions: Vec<Option<String>> = files.iter().map(found).collect();
    let unknown: Vec<usize> = (0..programs.len()).filter(|at| versions[*at].is_none()).collect();
    let answers: Vec<Option<String>> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            unknown.iter().map(|at| scope.spawn(|| query_version(&programs[*at]))).collect();
        asked.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    for (at, version) in unknown.iter().zip(answers) {
        if let (Some(file), Some(version)) = (&files[*at], &version) {
            let answer = CachedVersion { file: file.clone(), at_ms: now, version: version.clone() };
            known.insert(file.clone(), answer);
        }
        versions[*at] = version;
    }
    if let (Some(store), false) = (store, unknown.is_empty()) {
        write_cache(&store, known);
    }
    versions
}

/// The dotted number in what a program says of its version.
pub(crate) fn parse_version(text: &str) -> Option<Vec<u64>> {
    let words = text.split(|c: char| c.is_whitespace() || "(),".contains(c));
    words.map(|word| word.trim_start_matches('v')).find_map(|word| {
        let plain = word.split(['-', '+']).next().unwrap_or(word);
        let parts: Option<Vec<u64>> = plain.split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() > 1)
    })
}

/// Whether the first version is older than the second; unknown ones are not.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((parse_version(version), parse_version(than)), (Some(version), Some(than)) if version < than)
}

fn cache_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("mainstem").join("versions.json"))
}

fn read_cache(store: Option<&Path>) -> BTreeMap<String, CachedVersion> {
    let text = store.and_then(|store| std::fs::read_to_string(store).ok()).unwrap_or_default();
    let answers: Vec<CachedVersion> = serde_json::from_str(&text).unwrap_or_default();
    answers.into_iter().map(|answer| (answer.file.clone(), answer)).collect()
}

/// What cannot be remembered is asked for again.
fn write_cache(store: &Path, known: BTreeMap<String, CachedVersion>) {
    let mut answers: Vec<CachedVersion> = known.into_values().collect();
    answers.sort_by_key(|answer| std::cmp::Reverse(answer.at_ms));
    answers.truncate(KEPT_MAX);
    if let (Some(folder), Ok(text)) = (store.parent(), serde_json::to_vec(&answers)) {
        let _ = std::fs::create_dir_all(folder);
        let _ = files::write_atomic(store, &text);
    }
}

/// The program's file without links, its size and age.
fn program_identity(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    let seen = real.metadata().ok()?;
    let age = seen.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(format!("{} {} {age}", real.display(), seen.len()))
}

/// The first line it prints when asked for its version.
fn query_version(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let pipe = child.stdout.take()?;
    let (sender, text) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = std::io::Read::read_to_end(&mut std::io::Read::take(pipe, 4096), &mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    let text = text.recv_timeout(PATIENCE).ok();
    let _ = child.kill();
    let _ = child.wait();
    let line = text?.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say_and_compared_by_number() {
        assert_eq!(parse_version("2.1.325 (Claude Code)"), Some(vec![2, 1, 325]));
        assert_eq!(parse_version("codex-cli 0.166.0"), Some(vec![0, 166, 0]));
        assert_eq!(parse_version("v1.18.33-beta.1"), Some(vec![1, 18, 33]));
        assert_eq!(parse_version("no number here"), None);
        assert!(is_older("codex-cli 0.91.0", "0.147.0"), "0.91 is older than 0.147");
        assert!(!is_older("2.1.197 (Claude Code)", "2.1.197"));
        assert!(!is_older("who knows", "2.1.197"));
    }
}
