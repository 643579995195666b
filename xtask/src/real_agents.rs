//! Installs the vendors' coding agents at the versions that the adapters were tried with, for the tests that
//! drive them against the stand-in. Knows npm; does not know any test.

use std::path::Path;

use crate::shell;

/// Packages and the versions that the adapters were tried with.
const PINNED: [(&str, &str); 4] = [
    ("@anthropic-ai/claude-code", "2.1.325"),
    ("@openai/codex", "0.166.0"),
    ("@google/gemini-cli", "0.61.0"),
    ("opencode-ai", "1.18.33"),
];

/// Makes sure that they are in `target/agents`. Without npm or its registry the tests that need them are
/// skipped; that is said, and is no failure.
pub(crate) fn install(root: &Path) -> Result<bool, String> {
    let folder = shell::target_dir(root)?.join("agents");
    let missing: Vec<String> = PINNED
        .iter()
        .filter(|(package, version)| installed(&folder, package).as_deref() != Some(*version))
        .map(|(package, version)| format!("{package}@{version}"))
        .collect();
    if missing.is_empty() {
        println!("all {} are in {}", PINNED.len(), folder.display());
        return Ok(true);
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let manifest = folder.join("package.json");
    if !manifest.exists() {
        std::fs::write(&manifest, "{\"private\":true}\n")
            .map_err(|error| format!("{}: {error}", manifest.display()))?;
    }
    println!("npm install {}", missing.join(" "));
    let mut npm = shell::command("npm", &folder);
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error"]).args(&missing);
    match shell::succeeds(&mut npm) {
        Ok(true) => {}
        Ok(false) => println!("npm failed"),
        Err(why) => println!("{why}"),
    }
    for (package, version) in PINNED {
        if installed(&folder, package).as_deref() != Some(version) {
            println!("SKIPPED: the tests with {package}, which could not be installed");
        }
    }
    Ok(true)
}

/// The version in the folder.
fn installed(folder: &Path, package: &str) -> Option<String> {
    let file = folder.join("node_modules").join(package).join("package.json");
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    manifest["version"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_installed_version_is_read_from_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(installed(folder.path(), "@a/b"), None);
        let package = folder.path().join("node_modules/@a/b");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("package.json"), r#"{"version":"1.2.3"}"#).unwrap();
        assert_eq!(installed(folder.path(), "@a/b").as_deref(), Some("1.2.3"));
    }
}
