//! `cargo xtask bench`: measurements on a release build.
//!
//! This half knows none of the product's crates. It starts the measuring half, which does, as a release build of this
//! same program with the feature `measure`, so that every other chore runs when the product does not compile.

#[cfg(feature = "measure")]
mod measure;

use std::path::Path;

use crate::Verdict;

/// Runs the named benches, or all.
#[cfg(feature = "measure")]
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<Verdict, String> {
    measure::run(root, names)
}

/// Runs the named benches, or all.
#[cfg(not(feature = "measure"))]
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<Verdict, String> {
    let mut cargo = crate::shell::cargo(root);
    cargo.args(["run", "--quiet", "--release", "--package", "xtask", "--features", "measure"]);
    cargo.args(["--", "bench"]).args(names);
    Ok(if crate::shell::succeeds(&mut cargo)? { Verdict::Clean } else { Verdict::Findings })
}
