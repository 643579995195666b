//! A home folder for cargo that shows what the user's has: settings, programs, the index, crates, unpacked sources
//! and repositories. Cargo checks a crate against its checksum when it downloads it and never again, so what an
//! agent downloaded must not be found by anybody else.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::link_mirror::{link_entries, list_folder, mirror_folder};

/// Fills `own` with what the cargo home `theirs` has for a workspace.
pub(super) fn fill_cargo_home(theirs: &Path, own: &Path, workspace: &Path) -> io::Result<()> {
    fs::create_dir_all(own)?;
    // No credentials: whoever publishes does that outside.
    link_entries(theirs, own, &|name| ["config.toml", "config", "bin"].contains(&name))?;
    let locked = list_locked_crates(workspace);
    let wanted = |name: &str| locked.as_ref().is_none_or(|all| all.contains(name));
    for registry in list_folder(&theirs.join("registry/index"))? {
        link_registry_index(&registry?.path(), &own.join("registry/index"))?;
    }
    for kind in ["cache", "src"] {
        for registry in list_folder(&theirs.join("registry").join(kind))? {
            let registry = registry?;
            let place = own.join("registry").join(kind).join(registry.file_name());
            fs::create_dir_all(&place)?;
            let crate_name = |name: &str| wanted(name.strip_suffix(".crate").unwrap_or(name));
            link_entries(&registry.path(), &place, &crate_name)?;
        }
    }
    for database in list_folder(&theirs.join("git/db"))? {
        let database = database?;
        borrow_git_repo(&database.path(), &own.join("git/db").join(database.file_name()))?;
    }
    let checkouts = theirs.join("git/checkouts");
    mirror_folder(&checkouts, &own.join("git/checkouts"), &|path| {
        // `checkouts/NAME/REVISION`
        path.strip_prefix(&checkouts).is_ok_and(|rest| rest.components().count() > 1)
    })
}

/// The index of one registry: its settings as a copy, because cargo writes them anew, the rest as links.
fn link_registry_index(theirs: &Path, folder: &Path) -> io::Result<()> {
    let own = folder.join(theirs.file_name().unwrap_or_default());
    fs::create_dir_all(&own)?;
    for entry in list_folder(theirs)? {
        let entry = entry?;
        let (from, to) = (entry.path(), own.join(entry.file_name()));
        match (entry.file_type()?.is_dir(), entry.file_name() == ".git") {
            (true, true) => borrow_git_repo(&from, &to)?,
            (true, false) => mirror_folder(&from, &to, &|_| false)?,
            (false, _) => drop(fs::copy(from, to)?),
        }
    }
    Ok(())
}

/// A git repository that has its own refs and reads the objects of another one.
fn borrow_git_repo(theirs: &Path, own: &Path) -> io::Result<()> {
    let objects = own.join("objects/info");
    fs::create_dir_all(&objects)?;
    fs::write(objects.join("alternates"), format!("{}\n", theirs.join("objects").display()))?;
    for name in ["HEAD", "config", "packed-refs", "FETCH_HEAD"] {
        match fs::copy(theirs.join(name), own.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    copy_tree(&theirs.join("refs"), &own.join("refs"))
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in list_folder(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The crates that the workspace's lock file names, as cargo names their files; `None` if there is no such file and
/// cargo is free to choose.
fn list_locked_crates(workspace: &Path) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(workspace.join("Cargo.lock")).ok()?;
    let lock: toml::Table = text.parse().ok()?;
    let packages = lock.get("package")?.as_array()?;
    let name = |package: &toml::Value| {
        let (name, version) = (package.get("name")?.as_str()?, package.get("version")?.as_str()?);
        Some(format!("{name}-{version}"))
    };
    Some(packages.iter().filter_map(name).collect())
}
