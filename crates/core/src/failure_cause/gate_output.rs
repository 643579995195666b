//! Reading the end of a check's output: which path was refused, which program or package is missing, which line
//! says most. Each function knows the phrases of some programs and nothing of what follows from them.

use crate::failure_cause::GateEnvironment;
use crate::test_count::TestCount;

/// Phrases with which programs say that they may not write, in lower case.
const DENIALS: &[&str] = &[
    "read-only file system",
    "permission denied",
    "operation not permitted",
    "erofs",
    "eacces",
    "eperm",
    "os error 30",
    "os error 13",
];

/// How many lines before a refusal may name its path.
const LINES_BEFORE: usize = 3;

/// The path that the sandbox did not let the check write, as the last refusal in its output names it.
pub(super) fn find_denied_path(lines: &[&str], around: &GateEnvironment<'_>) -> Option<String> {
    let refused = |path: &String| (around.denies_write)(path);
    for (at, line) in lines.iter().enumerate().rev() {
        let lower = line.to_lowercase();
        if !DENIALS.iter().any(|words| lower.contains(words)) {
            continue;
        }
        // Some name the path in the lines before, and the reason as "caused by".
        let nearby = (at.saturating_sub(LINES_BEFORE)..=at).rev();
        let found = nearby.map(|n| absolute_paths_in(lines[n], around.home));
        if let Some(path) = found.flatten().find(refused) {
            return Some(path);
        }
    }
    None
}

/// Absolute paths in a line, in quotes or bare.
fn absolute_paths_in(line: &str, home: Option<&str>) -> Vec<String> {
    const QUOTES: &[char] = &['\'', '"', '`', '‘', '’', '“', '”'];
    let quoted = line.split(QUOTES).skip(1).step_by(2);
    let bare = line.split(|c: char| c.is_whitespace() || QUOTES.contains(&c) || "([=<".contains(c));
    let clean = |word: &str| -> Option<String> {
        let word = word.trim_end_matches([':', ',', '.', ';', ')', ']', '>']);
        match (word.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => Some(format!("{home}/{rest}")),
            _ => (word.starts_with('/') && word.len() > 1).then(|| word.to_owned()),
        }
    };
    quoted.chain(bare).filter_map(clean).collect()
}

/// A path as people write it.
pub(super) fn shorten_path(path: &str, home: Option<&str>) -> String {
    let below = home.filter(|home| home.len() > 1).and_then(|home| path.strip_prefix(home));
    match below {
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        Some("") => "~".to_owned(),
        _ => path.to_owned(),
    }
}

/// The folder to allow so that this path can be written: the one around it, but never a whole home or a whole top folder.
pub(super) fn folder_to_allow(path: &str, home: Option<&str>) -> String {
    let short = shorten_path(path.trim_end_matches('/'), home);
    match short.rsplit_once('/') {
        Some((folder, _))
            if folder.matches('/').count() > usize::from(!folder.starts_with('~')) =>
        {
            folder.to_owned()
        }
        _ => short,
    }
}

/// The programs say themselves that memory ran out.
pub(super) fn is_out_of_memory(lines: &[&str]) -> bool {
    const WORDS: &[&str] = &[
        "JavaScript heap out of memory",
        "java.lang.OutOfMemoryError",
        "Cannot allocate memory",
        "std::bad_alloc",
        "fatal error: runtime: out of memory",
    ];
    let rust = |line: &str| line.contains("memory allocation of ") && line.contains(" failed");
    lines.iter().any(|line| WORDS.iter().any(|words| line.contains(words)) || rust(line))
}

/// The network is not there.
pub(super) fn is_network_missing(lines: &[&str]) -> bool {
    const WORDS: &[&str] = &[
        "could not resolve host",
        "temporary failure in name resolution",
        "name or service not known",
        "getaddrinfo eai_again",
        "getaddrinfo enotfound",
        "network is unreachable",
        "failed to lookup address information",
        "no such host",
    ];
    let says = |line: &&str| {
        let line = line.to_lowercase();
        WORDS.iter().any(|words| line.contains(words))
    };
    lines.iter().any(says)
}

/// The runner says that there was nothing to run.
pub(super) fn ran_no_tests(lines: &[&str]) -> bool {
    let mut tally = TestCount::default();
    lines.iter().for_each(|line| tally.read_line(line));
    tally.is_zero()
}

/// A package that is not installed, and the command that installs what this checkout needs. Where packages are
/// installed already, a missing one is the work's own fault.
pub(super) fn find_missing_dependency(
    gate: &str,
    lines: &[&str],
    around: &GateEnvironment<'_>,
) -> Option<(String, String)> {
    let has = around.has;
    if !has("node_modules") && has("package.json") {
        let module = lines.iter().find_map(|line| missing_node_module(line));
        let tool = || {
            let by_script = ["npm", "pnpm", "yarn", "bun", "npx"];
            let runs_script =
                by_script.iter().any(|word| gate.split_whitespace().any(|w| w == *word));
            missing_program_in_lines(lines)
                .filter(|name| runs_script && !by_script.contains(&name.as_str()))
        };
        if let Some(name) = module.or_else(tool) {
            return Some((name, node_setup_command(has).to_owned()));
        }
    }
    if !has(".venv") && !has("venv") {
        let module = lines.iter().find_map(|line| missing_python_module(line));
        if let Some(name) = module {
            return Some((name, python_setup_command(has).to_owned()));
        }
    }
    let ruby = lines.iter().any(|line| line.contains("Run `bundle install`"));
    if ruby {
        return Some(("gems".to_owned(), "bundle install".to_owned()));
    }
    let php = !has("vendor") && lines.iter().any(|line| line.contains("vendor/autoload.php"));
    php.then(|| ("vendor/autoload.php".to_owned(), "composer install".to_owned()))
}

fn missing_node_module(line: &str) -> Option<String> {
    let starts = ["Cannot find module ", "Cannot find package "];
    let rest = starts.iter().find_map(|words| line.split_once(words)).map(|(_, rest)| rest)?;
    let name = rest.trim_start_matches(['\'', '"']);
    let name = name.split(['\'', '"']).next()?;
    // A file of the project's own is not something that a package manager installs.
    (!name.is_empty() && !name.starts_with(['.', '/'])).then(|| name.to_owned())
}

fn missing_python_module(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("No module named ")?;
    let by_import = before.contains("ModuleNotFoundError");
    let by_flag = before.contains("python") && before.trim_end().ends_with(':');
    let name = rest.trim().trim_matches(['\'', '"']);
    let name = name.split(['\'', '"', ';']).next().unwrap_or(name);
    ((by_import || by_flag) && !name.is_empty()).then(|| name.to_owned())
}

/// The command that installs a JavaScript project's packages.
pub fn node_setup_command(has: &dyn Fn(&str) -> bool) -> &'static str {
    match () {
        () if has("pnpm-lock.yaml") => "pnpm install --frozen-lockfile",
        () if has("yarn.lock") => "yarn install --frozen-lockfile",
        () if has("bun.lock") || has("bun.lockb") => "bun install --frozen-lockfile",
        () if has("package-lock.json") || has("npm-shrinkwrap.json") => "npm ci",
        () => "npm install",
    }
}

/// The command that installs a Python project's packages.
pub fn python_setup_command(has: &dyn Fn(&str) -> bool) -> &'static str {
    match () {
        () if has("uv.lock") => "uv sync",
        () if has("poetry.lock") => "poetry install",
        () if has("requirements.txt") => {
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
        }
        () => "python3 -m venv .venv && .venv/bin/pip install -e .",
    }
}

/// A program that was not found.
pub(super) fn find_missing_program(gate: &str, code: i32, lines: &[&str]) -> Option<String> {
    let passed_on = || lines.iter().any(|line| line.contains("Error 127"));
    if code != 127 && !passed_on() {
        return None;
    }
    missing_program_in_lines(lines).or_else(|| gate.split_whitespace().next().map(str::to_owned))
}

/// The last line that says that a program was not found, and which.
fn missing_program_in_lines(lines: &[&str]) -> Option<String> {
    let word = |text: &str| {
        let word = text.trim().rsplit([' ', ':']).next().unwrap_or_default();
        let word = word.trim_matches(['\'', '"', '`', '‘', '’']);
        (!word.is_empty()).then(|| word.to_owned())
    };
    lines.iter().rev().find_map(|line| {
        let line = line.trim();
        if let Some((_, name)) = line.split_once("command not found: ") {
            return word(name);
        }
        let said = [": not found", ": command not found", ": No such file or directory"];
        let before = said.iter().find_map(|words| line.strip_suffix(words))?;
        // Shells, env and make say it of programs; `cat: x: No such file` is something else.
        let of_program = !line.ends_with("No such file or directory")
            || ["env: ", "make: ", "/usr/bin/env: ", "sh: ", "bash: "]
                .iter()
                .any(|who| line.starts_with(who));
        word(before).filter(|_| of_program)
    })
}

/// The program that may not be executed.
pub(super) fn find_refused_program(gate: &str, lines: &[&str]) -> String {
    let named = lines.iter().rev().find_map(|line| {
        let before = line.trim().strip_suffix(": Permission denied")?;
        before.rsplit([' ', ':']).next().map(str::to_owned)
    });
    named.or_else(|| gate.split_whitespace().next().map(str::to_owned)).unwrap_or_default()
}

/// What a fact's detail has of a check's output: all but the line in which we say how it ended.
pub fn output_in_detail(detail: &str) -> &str {
    let (first, rest) = detail.split_once('\n').unwrap_or((detail, ""));
    let ours =
        ["exit code ", "signal ", "it ran out of time", "it used more than ", "it ran no test"];
    if ours.iter().any(|words| first.starts_with(words)) { rest } else { detail }
}

/// The line of an output that says most about why it failed.
pub fn most_telling_line(output: &str) -> Option<&str> {
    const NOISE: &[&str] =
        &["error: test failed, to rerun", "npm ERR!", "npm error", "make: ***", "note: run with"];
    const BY_WEIGHT: &[&[&str]] = &[
        &["assert", "not found", "No such file", "denied", "Read-only file system"],
        &["panicked at", "Error: ", "error[", "error: ", "Exception", "FAILED", "--- FAIL"],
        &["error", "fail", "Fail", "expected"],
    ];
    let lines = || {
        let lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.filter(|line| !NOISE.iter().any(|noise| line.starts_with(noise)))
    };
    let says = |words: &[&str]| lines().rfind(|line| words.iter().any(|word| line.contains(word)));
    BY_WEIGHT.iter().find_map(|words| says(words)).or_else(|| lines().next_back())
}
