//! Finds the programs of one crate for tests of another.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `fake-agent` program, built if need be.
///
/// Cargo builds a package's programs only for that package's own tests, so tests of other packages
/// ask for it here; after the first time in a process it costs nothing.
pub fn fake_agent() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("mainstem-testkit", "fake-agent"))
}

/// The product's program, built if need be.
pub fn mainstem() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("mainstem", "mainstem"))
}

/// A vendor's coding agent, if `cargo xtask test` could install it; otherwise the test says that it is
/// skipped.
pub fn real_agent(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a test has a program");
    let target = test.ancestors().nth(3).expect("tests lie three folders below the target folder");
    let program = target.join("agents/node_modules/.bin").join(name);
    program.exists().then_some(program)
}

fn build(package: &str, name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program");
    // <target>/<profile>/deps/<test>
    let profile = test.ancestors().nth(2).expect("tests lie two folders below the target folder");
    let target = profile.parent().expect("a profile's folder lies in the target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--offline", "-p", package, "--bin", name]);
    command.arg("--manifest-path");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    command.arg("--target-dir").arg(target);
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(other) => {
            command.args(["--profile", other]);
        }
    }
    let output = command.output().expect("cargo runs the tests and can be run by them");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot build {name}: {said}");
    profile.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fake_agent_is_built_and_runs() {
        let status = Command::new(fake_agent()).args(["exit", "5"]).status();
        assert_eq!(status.expect("it was just built").code(), Some(5));
    }
}
