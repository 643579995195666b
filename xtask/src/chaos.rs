//! `cargo xtask chaos`: builds what the attack needs and starts it. Knows where the corpus of rounds
//! that failed once is; what a round is, is the business of the crate `chaos`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Verdict, shell};

/// Rounds that failed once, kept as files.
const CORPUS: &str = "crates/chaos/corpus";

/// Attacks a release build.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<Verdict, String> {
    let packages = ["build", "--release", "--quiet", "-p", "mainstem", "-p", "mainstem-chaos"];
    if !shell::succeeds(shell::cargo(root).args(packages).arg("--bins"))? {
        return Err("the product or the attacker does not build".to_owned());
    }
    attack(root, "release", words)
}

/// What every test run attacks with besides its tests, on the debug build: the rounds that failed
/// once, a few rounds of a fresh seed, and the rigs where the machine has what they need.
pub(crate) fn slice(root: &Path) -> Result<bool, String> {
    let parts: [&[&str]; 2] = [&["--corpus"], &["--rounds", "25", "--minutes", "2"]];
    let mut good = true;
    for words in parts {
        good &= attack(root, "debug", words)? == Verdict::Clean;
    }
    let rigs: [&[&str]; 3] = [
        &["--campaign", "disk", "--rounds", "2", "--minutes", "1"],
        &["--campaign", "syscalls", "--rounds", "2", "--minutes", "1"],
        &["--campaign", "power", "--only", "ext4", "--rounds", "2", "--minutes", "1"],
    ];
    for words in rigs {
        // A machine that cannot carry a rig says so, and is no reason to fail.
        match attacker(root, "debug", words)?.status().map_err(|error| error.to_string())?.code() {
            Some(0) => {}
            Some(2) => println!("{} skipped: this machine cannot carry it", words[1]),
            _ => good = false,
        }
    }
    Ok(good)
}

/// Attacks the build of a profile that is there already.
fn attack(root: &Path, profile: &str, words: &[&str]) -> Result<Verdict, String> {
    let mut command = attacker(root, profile, words)?;
    Ok(if shell::succeeds(&mut command)? { Verdict::Clean } else { Verdict::Findings })
}

fn attacker(root: &Path, profile: &str, words: &[&str]) -> Result<Command, String> {
    let target = shell::target_dir(root)?;
    let mut command = shell::command(target.join(profile).join("chaos"), root);
    command.arg("--failures").arg(target.join("chaos"));
    for word in words {
        if *word == "--corpus" {
            for file in corpus(root)? {
                command.arg("--replay").arg(file);
            }
        } else {
            command.arg(word);
        }
    }
    Ok(command)
}

fn corpus(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = root.join(CORPUS);
    let entries =
        std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(format!("no round is kept in {}", folder.display()));
    }
    Ok(files)
}
