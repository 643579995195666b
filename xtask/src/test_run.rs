//! `cargo xtask test`: every check in one command, each step timed, one plain closing line.
//!
//! Knows which tools to start and how their test runners report; does not know any test.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::{Verdict, chaos, gen_docs, real_agents, realworld, shell, tidy};

/// The oldest git that the product takes.
const GIT_MIN: (u32, u32) = (2, 39);

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Leave out the slow checks (lints and docs).
    quick: bool,
    /// Run only tests whose name contains this.
    filter: Option<String>,
}

impl Options {
    /// `None` for a flag that is not ours.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = words;
        loop {
            rest = match rest {
                [] => return Some(options),
                ["--quick", rest @ ..] => {
                    options.quick = true;
                    rest
                }
                ["--filter", name, rest @ ..] => {
                    options.filter = Some((*name).to_owned());
                    rest
                }
                _ => return None,
            };
        }
    }
}

/// Passed and failed tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

/// Runs every step even after a failure, so that one run shows all there is to mend.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Verdict, String> {
    prepare(root)?;
    let mut report = Report::default();
    report.step("fmt", || cargo_step(root, &["fmt", "--all", "--check"]));
    if !options.quick {
        report.step("clippy", || {
            let all = ["clippy", "--workspace", "--all-targets", "--features", "xtask/measure"];
            cargo_step(root, &[&all[..], &["--", "-D", "warnings"]].concat())
        });
        // What systems without /proc run is at least known to compile.
        report.step("portable", || {
            let host = ["clippy", "-p", "mainstem-host", "--all-targets", "--"];
            let portable = ["--cfg", "mainstem_portable", "-D", "warnings"];
            cargo_step(root, &[&host[..], &portable[..]].concat())
        });
    }
    let built = report.step("build", || cargo_step(root, &["build", "--workspace", "--bins"]));
    if built && !options.quick {
        report.step("agents", || real_agents::install(root));
    }
    if built {
        report.tests(root, options);
    }
    if let (true, Some(path)) = (built && options.filter.is_none(), path_to_old_git(root)) {
        report.step("old git", || {
            let mut tests = runner(root, &Options { filter: Some("git::".to_owned()), ..*options });
            shell::succeeds(tests.env("PATH", path))
        });
    }
    if built && !options.quick && options.filter.is_none() {
        report.step("chaos", || chaos::slice(root));
        report.step("realworld", || {
            let played = realworld::run(root, &["--slice"]).expect("BUG: the slice is a choice");
            Ok(played? == Verdict::Clean)
        });
    }
    if built && !options.quick {
        report.step("doc", || {
            let mut doc = shell::cargo(root);
            doc.args(["doc", "--workspace", "--no-deps", "--quiet"]);
            shell::succeeds(doc.env("RUSTDOCFLAGS", "-D warnings"))
        });
    }
    if built {
        report.step("reference", || {
            Ok(gen_docs::run(root, gen_docs::Mode::Check)? == Verdict::Clean)
        });
    }
    report.step("tidy", || Ok(tidy::print(root)? == Verdict::Clean));
    if !options.quick {
        report.deny(root);
    }
    Ok(report.close())
}

/// What happened so far.
#[derive(Default)]
struct Report {
    tally: Tally,
    failed_steps: Vec<&'static str>,
}

impl Report {
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<bool, String>) -> bool {
        println!("== {name}");
        let begun = Instant::now();
        let ok = work().unwrap_or_else(|why| {
            println!("{why}");
            false
        });
        let word = if ok { "ok" } else { "FAILED" };
        println!("== {name}: {word} in {:.1} s", begun.elapsed().as_secs_f64());
        if !ok {
            self.failed_steps.push(name);
        }
        ok
    }

    fn tests(&mut self, root: &Path, options: &Options) {
        let mut tally = Tally::default();
        self.step("test", || {
            let seen = shell::watch(&mut runner(root, options))?;
            tally = count(&seen.lines);
            if seen.ok && tally.passed == 0 {
                return Err("the runner ended well but ran no test".to_owned());
            }
            Ok(seen.ok)
        });
        self.tally = tally;
    }

    fn deny(&mut self, root: &Path) {
        if has_cargo(root, "deny") {
            self.step("deny", || cargo_step(root, &["deny", "--offline", "check"]));
        } else {
            println!("== deny: skipped, cargo-deny is not installed (tidy checked the licences)");
        }
    }

    /// A failed step without a failed test counts as one failure, so the line never says 0 when the exit code is 1.
    fn failures(&self) -> u64 {
        let counted = |step: &&&str| **step != "test" || self.tally.failed == 0;
        let steps = self.failed_steps.iter().filter(counted).count();
        self.tally.failed + u64::try_from(steps).expect("BUG: there are fewer than ten steps")
    }

    fn close(&self) -> Verdict {
        if !self.failed_steps.is_empty() {
            println!("failed steps: {}", self.failed_steps.join(", "));
        }
        let failed = self.failures();
        println!("{} passed, {failed} failed", self.tally.passed);
        if failed == 0 { Verdict::Clean } else { Verdict::Findings }
    }
}

fn cargo_step(root: &Path, args: &[&str]) -> Result<bool, String> {
    shell::succeeds(shell::cargo(root).args(args))
}

fn runner(root: &Path, options: &Options) -> Command {
    let mut runner = shell::cargo(root);
    if has_cargo(root, "nextest") {
        runner.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
        runner.args(["--status-level", "slow", "--final-status-level", "fail"]);
    } else {
        println!("cargo-nextest is not installed: using cargo test");
        runner.args(["test", "--workspace", "--no-fail-fast"]);
    }
    runner.args(&options.filter);
    runner
}

/// The last summary of cargo-nextest, or the sum of the built-in runner's. Never both: under nextest a failing test's
/// own output ends with a line of the built-in runner.
fn count(lines: &[String]) -> Tally {
    let lines = || lines.iter().map(|line| line.trim());
    let nextest = lines().rfind(|line| line.starts_with("Summary [") && line.contains("run:"));
    if let Some((_, summary)) = nextest.and_then(|line| line.split_once("run:")) {
        return count_summary(summary);
    }
    let mut tally = Tally::default();
    for summary in lines().filter_map(|line| line.strip_prefix("test result:")) {
        let one = count_summary(summary);
        tally.passed += one.passed;
        tally.failed += one.failed;
    }
    tally
}

fn count_summary(summary: &str) -> Tally {
    let words = summary.split([' ', ',', ';', '(', ')']);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let number = |at: usize, back: usize| {
        at.checked_sub(back).and_then(|before| words[before].parse::<u64>().ok())
    };
    let mut tally = Tally::default();
    for (at, word) in words.iter().enumerate() {
        match *word {
            "passed" => tally.passed += number(at, 1).unwrap_or(0),
            // nextest splits failures to start from failed ones: "1 exec failed".
            "failed" => tally.failed += number(at, 1).or(number(at, 2)).unwrap_or(0),
            "timed" => tally.failed += number(at, 1).unwrap_or(0),
            _ => {}
        }
    }
    tally
}

/// Looks for what the steps and the tests need; installs it where that is possible.
fn prepare(root: &Path) -> Result<(), String> {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !has_cargo(root, tool) {
            return Err(format!("cargo {tool} is missing; run `rustup component add {component}`"));
        }
    }
    walls(root)?;
    let found = git_version(root);
    if found.is_some_and(|version| version >= GIT_MIN) {
        return Ok(());
    }
    let (major, minor) = GIT_MIN;
    let lacking = match found {
        None => "git is missing".to_owned(),
        Some((old_major, old_minor)) => format!("git {old_major}.{old_minor} is too old"),
    };
    println!("{lacking}: the tests need git {major}.{minor} or newer");
    if !install(root, "git")? {
        return Err(format!("{lacking}; install git {major}.{minor} or newer and run this again"));
    }
    match git_version(root) {
        Some(version) if version >= GIT_MIN => Ok(()),
        _ => Err(format!("this system offers no git {major}.{minor}; install a newer one by hand")),
    }
}

/// Without bubblewrap half of the attacks are not tried: it is installed if that is possible.
fn walls(root: &Path) -> Result<(), String> {
    let there = || shell::output(shell::command("bwrap", root).arg("--version")).is_ok();
    if cfg!(target_os = "linux") && !there() && !install(root, "bubblewrap")? {
        println!("bubblewrap is not installed: its wall is not tested");
    }
    Ok(())
}

fn git_version(root: &Path) -> Option<(u32, u32)> {
    let said = shell::output(shell::command("git", root).arg("--version")).ok()?;
    parse_git_version(&String::from_utf8_lossy(&said))
}

/// A `PATH` that prefers the system's own git, where that is one of the oldest that the product takes and
/// another one is used: what works with new options only is found here.
fn path_to_old_git(root: &Path) -> Option<String> {
    const SYSTEM: &str = "/usr/bin";
    let said =
        shell::output(shell::command(format!("{SYSTEM}/git"), root).arg("--version")).ok()?;
    let old = parse_git_version(&String::from_utf8_lossy(&said))?;
    let used = git_version(root)?;
    let path = std::env::var("PATH").unwrap_or_default();
    (GIT_MIN..used).contains(&old).then(|| format!("{SYSTEM}:{path}"))
}

fn parse_git_version(said: &str) -> Option<(u32, u32)> {
    let mut parts = said.trim().strip_prefix("git version ")?.split(['.', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// `Ok(false)` where we may not install: no apt-get, or not root.
fn install(root: &Path, package: &str) -> Result<bool, String> {
    let id = shell::output(shell::command("id", root).arg("-u")).unwrap_or_default();
    let is_root = String::from_utf8_lossy(&id).trim() == "0";
    let has_apt = shell::output(shell::command("apt-get", root).arg("--version")).is_ok();
    if !is_root || !has_apt {
        return Ok(false);
    }
    println!("installing {package} with apt-get");
    let update = shell::succeeds(shell::command("apt-get", root).args(["update", "-q"]))?;
    let mut add = shell::command("apt-get", root);
    add.args(["install", "-y", "-q", package]).env("DEBIAN_FRONTEND", "noninteractive");
    Ok(update && shell::succeeds(&mut add)?)
}

/// Whether cargo knows a subcommand.
fn has_cargo(root: &Path, subcommand: &str) -> bool {
    shell::output(shell::cargo(root).args([subcommand, "--version"])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_summary_of_nextest_is_counted() {
        let text = "   PASS [0.1s] a 3 passed\n     Summary [   1.203s] 14 tests run: 9 passed (2 slow), 3 failed, 1 timed out, 1 exec failed, 4 skipped";
        assert_eq!(count(&lines(text)), Tally { passed: 9, failed: 5 });
    }

    #[test]
    fn the_summaries_of_every_test_binary_are_summed() {
        let text = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                    test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.00s";
        assert_eq!(count(&lines(text)), Tally { passed: 4, failed: 2 });
    }

    #[test]
    fn a_failing_test_shown_by_nextest_is_counted_once() {
        let text = "    test result: FAILED. 0 passed; 1 failed; 0 ignored\n\
                    Summary [ 0.2s] 58 tests run: 57 passed, 1 failed, 0 skipped";
        assert_eq!(count(&lines(text)), Tally { passed: 57, failed: 1 });
    }

    #[test]
    fn a_test_that_prints_a_number_is_not_counted() {
        assert_eq!(count(&lines("we saw 7 passed cars")), Tally::default());
    }

    #[test]
    fn a_failed_step_is_a_failure_even_when_every_test_passed() {
        let mut report =
            Report { tally: Tally { passed: 5, failed: 0 }, failed_steps: vec!["fmt"] };
        assert_eq!((report.failures(), report.close()), (1, Verdict::Findings));
        report.failed_steps = vec!["fmt", "test"];
        report.tally.failed = 2;
        assert_eq!(report.failures(), 3, "two tests and the formatting");
        report = Report { tally: Tally { passed: 0, failed: 0 }, failed_steps: vec!["test"] };
        assert_eq!(report.failures(), 1, "tests that do not compile");
    }

    #[test]
    fn git_versions_of_several_makers_are_read() {
        assert_eq!(parse_git_version("git version 2.47.3\n"), Some((2, 47)));
        assert_eq!(parse_git_version("git version 2.39.5 (Apple Git-154)"), Some((2, 39)));
        assert_eq!(parse_git_version("git version 2.9.0.windows.1"), Some((2, 9)));
        assert_eq!(parse_git_version("hg 6.0"), None);
        assert!((2, 9) < GIT_MIN, "versions compare as numbers");
    }

    #[test]
    fn flags_may_come_in_any_order() {
        let wanted = Options { quick: true, filter: Some("train".to_owned()) };
        assert_eq!(Options::parse(&["--filter", "train", "--quick"]), Some(wanted));
        assert_eq!(Options::parse(&["train"]), None);
    }
}
