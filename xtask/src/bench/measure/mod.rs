//! The measuring half: each bench is a function in a file of its own, listed in [`BENCHES`].
//!
//! Machines are noisy: a bench prints ratios of one run and, where the design names a number, that number beside what
//! was measured. Missing a number is a note; only a broken promise (work lost, processes left) is a finding.

mod gather10k;
mod graph100k;
mod graphs;
mod landing;
mod makespan;
mod makespan_real;
mod noop;
mod proc;
mod restart;
mod scene;
mod snapshot;
mod start;
mod table;
mod thousand;
mod timeline;
mod train;

use std::path::{Path, PathBuf};

use crate::{Verdict, shell};

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
    /// A folder to make scenes in; empty at the start of each bench, gone after it.
    pub(crate) scratch: PathBuf,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "start",
        what: "start-up time of the binary over that of `true`",
        run: start::run,
    },
    Bench {
        name: "makespan",
        what: "schedules of random heavy-tailed graphs over their lower bound, in virtual time",
        run: makespan::run,
    },
    Bench {
        name: "makespan-real",
        what: "the same with real agents and real landings",
        run: makespan_real::run,
    },
    Bench {
        name: "noop",
        what: "what a task costs whose agent does next to nothing",
        run: noop::run,
    },
    Bench { name: "graph100k", what: "a plan of 100,000 tasks", run: graph100k::run },
    Bench {
        name: "gather10k",
        what: "10,000 planned tasks made one plan, over reading them",
        run: gather10k::run,
    },
    Bench { name: "thousand", what: "1,000 agents at once", run: thousand::run },
    Bench { name: "restart", what: "taking over a run of 10,000 landed tasks", run: restart::run },
    Bench {
        name: "landing",
        what: "landing without a working tree over `git merge` in a checkout",
        run: landing::run,
    },
    Bench {
        name: "train",
        what: "ways of landing, in virtual time; ours against one lane with real gates",
        run: train::run,
    },
    Bench {
        name: "snapshot",
        what: "a snapshot of a workspace of 50,000 files over plain git",
        run: snapshot::run,
    },
];

/// Runs the named benches, or all.
pub(super) fn run(root: &Path, names: &[&str]) -> Result<Verdict, String> {
    let chosen = choose(names)?;
    let target = shell::target_dir(root)?;
    let binary = binary(root, &target)?;
    let mut verdict = Verdict::Clean;
    let mut broken = Vec::new();
    for bench in chosen {
        println!("== {}: {}", bench.name, bench.what);
        println!("   load average {}", proc::load());
        let scratch = target.join("xtask-bench").join(bench.name);
        fresh(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        let context = Context { binary: binary.clone(), scratch };
        // A bench that breaks must not keep the others from running.
        match (bench.run)(&context) {
            Ok(Verdict::Clean) => {}
            Ok(Verdict::Findings) => verdict = Verdict::Findings,
            Err(why) => {
                println!("   broken: {why}");
                broken.push(bench.name);
            }
        }
        proc::end_all(&proc::below(&context.scratch));
        // What was ended just now may still be writing its last file.
        let gone = || fresh(&context.scratch).and_then(|()| std::fs::remove_dir(&context.scratch));
        if !proc::wait_until(std::time::Duration::from_secs(10), || gone().is_ok()) {
            return Err(format!("{} cannot be removed", context.scratch.display()));
        }
        println!();
    }
    if broken.is_empty() { Ok(verdict) } else { Err(format!("broken: {}", broken.join(", "))) }
}

/// The release build of this checkout, or the one that `BENCH_BINARY` names: another version, to compare.
fn binary(root: &Path, target: &Path) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("BENCH_BINARY") {
        let path = PathBuf::from(named);
        return path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    }
    let build = ["build", "--quiet", "--release", "--package", "mainstem"];
    if !shell::succeeds(shell::cargo(root).args(build))? {
        return Err("the release binary does not build".to_owned());
    }
    Ok(target.join("release").join("mainstem"))
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
        let why = choose(&["start", "stat"]).err().unwrap_or_default();
        assert!(why.starts_with("no bench named stat; there are: start, makespan, "), "{why}");
    }

    #[test]
    fn no_name_means_all() {
        assert_eq!(choose(&[]).map(|all| all.len()), Ok(BENCHES.len()));
    }
}
