//! Gets a project's released files from its registry, with the registry's own tool.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Project, Registry};
use crate::shell;

/// The unpacked files of a project, in a folder of their own below `home`.
pub(super) fn unpack(project: &Project, home: &Path) -> Result<PathBuf, String> {
    let archive = home.join("archive");
    fs::create_dir_all(&archive).map_err(|error| error.to_string())?;
    let files = home.join(project.name);
    match project.registry {
        Registry::Crates => from_cargo(project, &archive, &files)?,
        Registry::Python => from_pip(project, &archive, &files)?,
        Registry::Npm => from_npm(project, &archive, &files)?,
    }
    Ok(files)
}

fn io<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// `cargo vendor` of a project that depends on exactly this.
fn from_cargo(project: &Project, archive: &Path, files: &Path) -> Result<(), String> {
    io(fs::create_dir_all(archive.join("src")))?;
    io(fs::write(archive.join("src/lib.rs"), ""))?;
    let manifest = format!(
        "[package]\nname = \"holder\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[dependencies]\n{} = \"={}\"\n[workspace]\n",
        project.name, project.version
    );
    io(fs::write(archive.join("Cargo.toml"), manifest))?;
    let mut cargo = shell::cargo(archive);
    shell::output(cargo.args(["vendor", "--quiet", "vendor"]))?;
    io(fs::rename(archive.join("vendor").join(project.name), files))?;
    // Written by cargo; the project itself has none of it.
    for name in [".cargo-checksum.json", ".cargo_vcs_info.json", "Cargo.toml.orig", ".cargo-ok"] {
        let _ = fs::remove_file(files.join(name));
    }
    Ok(())
}

fn from_pip(project: &Project, archive: &Path, files: &Path) -> Result<(), String> {
    let wanted = format!("{}=={}", project.name, project.version);
    let mut pip = shell::command("python3", archive);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]);
    pip.args(["--dest", ".", &wanted]);
    shell::output(&mut pip)?;
    untar(archive, ".tar.gz", files)
}

fn from_npm(project: &Project, archive: &Path, files: &Path) -> Result<(), String> {
    let wanted = format!("{}@{}", project.name, project.version);
    shell::output(shell::command("npm", archive).args(["pack", "--silent", &wanted]))?;
    untar(archive, ".tgz", files)
}

/// Unpacks the only archive of a folder; its files are in one folder.
fn untar(archive: &Path, ending: &str, files: &Path) -> Result<(), String> {
    let found = io(fs::read_dir(archive))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(ending))
        .ok_or("the registry's tool left no archive")?;
    io(fs::create_dir_all(files))?;
    let mut tar = shell::command("tar", archive);
    tar.arg("-xzf").arg(found).arg("--strip-components=1").arg("-C").arg(files);
    shell::output(&mut tar).map(drop)
}
