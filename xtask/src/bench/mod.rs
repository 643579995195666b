//! Measurements on the release binary, each a function in a file of its own, listed in [`BENCHES`].
//!
//! Machines are noisy: a bench prints ratios measured in one run and, where design asks for a number, that number.

mod start;

use std::path::{Path, PathBuf};

use crate::{Verdict, shell};

/// One measurement.
struct Bench {
    /// What is typed after `cargo xtask bench`.
    name: &'static str,
    /// One line for the list.
    what: &'static str,
    run: fn(&Context) -> Result<Verdict, String>,
}

/// What every bench is given.
pub(crate) struct Context {
    /// The release build of `mainstem`.
    pub(crate) binary: PathBuf,
    /// A folder to make scenes in; empty at the start of each bench.
    pub(crate) scratch: PathBuf,
}

const BENCHES: &[Bench] = &[Bench {
    name: "start",
    what: "start-up time of the binary over that of `true`",
    run: start::run,
}];

/// Runs the named benches, or all.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<Verdict, String> {
    let chosen = choose(names)?;
    if !shell::succeeds(shell::cargo(root).args(["build", "--release", "--package", "mainstem"]))? {
        return Err("the release binary does not build".to_owned());
    }
    let target = shell::target_dir(root)?;
    let mut verdict = Verdict::Clean;
    for bench in chosen {
        println!("== {}: {}", bench.name, bench.what);
        let scratch = target.join("xtask-bench").join(bench.name);
        fresh(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        let context = Context { binary: target.join("release").join("mainstem"), scratch };
        if (bench.run)(&context)? == Verdict::Findings {
            verdict = Verdict::Findings;
        }
    }
    Ok(verdict)
}

fn fresh(dir: &Path) -> std::io::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)
}

fn choose(names: &[&str]) -> Result<Vec<&'static Bench>, String> {
    if names.is_empty() {
        return Ok(BENCHES.iter().collect());
    }
    let find = |name: &&str| {
        let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        let found = BENCHES.iter().find(|bench| bench.name == *name);
        found.ok_or_else(|| format!("no bench named {name}; there are: {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bench_is_refused_with_the_known_ones() {
        let why = choose(&["start", "stat"]).err();
        assert_eq!(why.as_deref(), Some("no bench named stat; there are: start"));
    }

    #[test]
    fn no_name_means_all() {
        assert_eq!(choose(&[]).map(|all| all.len()), Ok(BENCHES.len()));
    }
}
