//! What gates run with: a verdict is taken over only if the same programs would give it again. Knows
//! the programs by where they are, how large and how old; asks none of them anything.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use mainstem_core::config::Settings;

/// Programs that others choose a toolchain by, looked at even if no gate names them.
const ALWAYS: [&str; 4] = ["rustc", "node", "python3", "go"];
/// Variables that choose a toolchain.
const VARIABLES: [&str; 2] = ["RUSTUP_TOOLCHAIN", "VIRTUAL_ENV"];

/// A name for what the gates and setup commands of these settings run with, in this sandbox; another one
/// whenever one of the tools, or a setting that they could see, is another.
pub fn toolchain_key(settings: &Settings, sandbox: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (setup, verify) = (&settings.workspace.setup, &settings.gates.verify);
    let named = setup.iter().chain(verify).flat_map(|command| command.split_whitespace());
    let mut words: Vec<&str> = named.chain(ALWAYS).collect();
    words.sort_unstable();
    words.dedup();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for word in words {
        if let Some(found) = find_program(word, &path) {
            add(&found);
        }
    }
    for command in setup {
        add(command);
    }
    add(&format!("{sandbox} {:?} {}", settings.sandbox, settings.gates.need_tests));
    for name in VARIABLES {
        add(&std::env::var(name).unwrap_or_default());
    }
    format!("{hash:016x}")
}

fn find_program(program: &str, path: &OsStr) -> Option<String> {
    if program.contains('/') || !program.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    std::env::split_paths(path).find_map(|folder| describe_program(&folder.join(program)))
}

fn describe_program(program: &Path) -> Option<String> {
    let real: PathBuf = program.canonicalize().ok()?;
    let seen = real.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let age = seen.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(format!("{} {} {age}", real.display(), seen.len()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn settings(verify: &str, setup: &str) -> Settings {
        let file = format!("[gates]\nverify = [{verify:?}]\n[workspace]\nsetup = [{setup:?}]\n");
        let layer = mainstem_core::config::layers::SettingLayer::from_project_file("x", file);
        mainstem_core::config::layers::resolve_settings(&[layer]).unwrap().settings
    }

    #[test]
    fn the_same_tools_have_the_same_name_and_others_another() {
        let key = |verify, setup, sandbox| toolchain_key(&settings(verify, setup), sandbox);
        let one = key("sh -c true", "true", "bwrap");
        assert_eq!(one, key("sh -c true", "true", "bwrap"));
        assert_ne!(one, key("no-such-program run", "true", "bwrap"));
        assert_ne!(one, key("sh -c true", "touch x", "bwrap"), "another setup");
        assert_ne!(one, key("sh -c true", "true", "landlock"), "another sandbox");
    }
}
