//! Chores of this repository, in Rust: `cargo xtask <command>`.
//!
//! Knows the workspace's files and tools; knows nothing of the product's types and depends on none of its crates (but for the feature `measure`),
//! so that it still runs when they do not compile.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore's only face is the terminal"
)]

mod bench;
mod chaos;
mod gen_docs;
mod real_agents;
mod realworld;
mod shell;
mod test_run;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <command>

  test [--quick] [--filter NAME]  format, lints, build, tests, docs, tidy: what CI runs
  tidy                            the house rules, one finding per line
  licences                        every dependency's licence against deny.toml
  bench [NAME]...                 measurements on a release build; none named: all of them
  chaos [--seed N] [--rounds N] [--minutes N] [--corpus] …
                                  attacks a release build and asks the oracle what was lost; --help tells all
  realworld [NAME]... [--slice]   public projects from the registries: init and a first run in each
  gen [--check]                   docs/reference from the binary; --check only compares";

/// How a chore ends when nothing broke on the way: clean, or with findings already printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to complain about.
    Clean,
    /// Findings were printed; the exit code says so.
    Findings,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Some(Ok(Verdict::Clean)) => ExitCode::SUCCESS,
        Some(Ok(Verdict::Findings)) => ExitCode::FAILURE,
        Some(Err(why)) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(64)
        }
    }
}

/// `None` means the words make no command.
fn dispatch(words: &[&str]) -> Option<Result<Verdict, String>> {
    let root = shell::workspace_root();
    Some(match words {
        ["test", rest @ ..] => test_run::run(&root, &test_run::Options::parse(rest)?),
        ["tidy"] => tidy::print(&root),
        ["licences"] => tidy::print_licences(&root),
        ["bench", names @ ..] => bench::run(&root, names),
        ["chaos", rest @ ..] => chaos::run(&root, rest),
        ["realworld", rest @ ..] => return realworld::run(&root, rest),
        ["gen"] => gen_docs::run(&root, gen_docs::Mode::Write),
        ["gen", "--check"] => gen_docs::run(&root, gen_docs::Mode::Check),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(Verdict::Clean)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_make_no_command_are_refused() {
        assert!(dispatch(&["tidyup"]).is_none());
        assert!(dispatch(&["test", "--slow"]).is_none());
        assert!(dispatch(&["test", "--filter"]).is_none());
        assert!(dispatch(&["gen", "--chek"]).is_none());
        assert!(dispatch(&[]).is_none());
    }
}
