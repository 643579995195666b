//! Starts other programs for the chores, always in a named directory.
//!
//! Does not know what any of them is for.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("BUG: xtask is a folder inside the workspace").to_path_buf()
}

/// The cargo that started us, else the one on PATH.
pub(crate) fn cargo(root: &Path) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
}

/// A command that will run in `dir`.
pub(crate) fn command(program: impl AsRef<OsStr>, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir);
    command
}

/// Runs to the end with the terminal inherited; `Ok(false)` is an exit code other than 0.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool, String> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    Ok(status.success())
}

/// Runs to the end and gives back stdout, or an error that holds stderr.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let out = command.output().map_err(|error| cannot_start(command, &error))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{} ended with {}: {}", name(command), out.status, said.trim()))
}

/// What a watched command said and whether it succeeded.
pub(crate) struct Watched {
    /// Every line of stdout and stderr; the order between the two is not kept.
    pub(crate) lines: Vec<String>,
    pub(crate) ok: bool,
}

/// Runs to the end, shows the output as it comes and keeps a copy.
pub(crate) fn watch(command: &mut Command) -> Result<Watched, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    let out = child.stdout.take().expect("BUG: stdout was piped above");
    let err = child.stderr.take().expect("BUG: stderr was piped above");
    let mut lines = std::thread::scope(|scope| {
        let other = scope.spawn(|| tee(err, &mut std::io::stderr()));
        let mut lines = tee(out, &mut std::io::stdout());
        lines.extend(other.join().expect("BUG: copying lines does not panic"));
        lines
    });
    lines.retain(|line| !line.is_empty());
    let status = child.wait().map_err(|error| format!("cannot wait for it: {error}"))?;
    Ok(Watched { lines, ok: status.success() })
}

fn tee(from: impl Read, to: &mut impl Write) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(from).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line).into_owned();
        // A closed terminal must not stop the count.
        let _ = writeln!(to, "{line}");
        lines.push(line);
    }
    lines
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir(root: &Path) -> Result<PathBuf, String> {
    let said = output(cargo(root).args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let meta: serde_json::Value = serde_json::from_slice(&said)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let dir = meta["target_directory"].as_str();
    dir.map(PathBuf::from).ok_or_else(|| "cargo metadata names no target_directory".to_owned())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", name(command))
}

fn name(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_watched_command_gives_back_both_streams_and_its_verdict() {
        let seen = watch(command("sh", Path::new("/")).args(["-c", "echo a; echo b >&2; exit 3"]));
        let mut seen = seen.unwrap();
        seen.lines.sort();
        assert_eq!(seen.lines, ["a", "b"]);
        assert!(!seen.ok);
    }

    #[test]
    fn a_failed_command_says_what_it_said() {
        let why =
            output(command("sh", Path::new("/")).args(["-c", "echo no such thing >&2; exit 1"]));
        assert!(why.unwrap_err().contains("no such thing"));
    }

    #[test]
    fn a_missing_program_is_named() {
        let why = succeeds(&mut command("no-such-program-here", Path::new("/"))).unwrap_err();
        assert!(why.contains("no-such-program-here"), "{why}");
    }
}
