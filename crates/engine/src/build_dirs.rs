//! Build results that workspaces would share. A build tool that is set to one folder for all checkouts takes what
//! it made of one for what it would make of another, and a gate passes that never ran. Knows cargo's settings;
//! the variables that say the same never reach a gate.

use std::fs;
use std::path::{Component, Path, PathBuf};

use mainstem_host::git::{GitError, Repo};

/// Overrules every file that cargo reads.
pub const TARGET_DIR: &str = "CARGO_TARGET_DIR";

/// Where builds go that would go to a folder of all checkouts. It must be ignored, or it would be taken for work.
const OWN: &str = "target";

/// A folder for the results of all checkouts, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBuildDir {
    pub file: PathBuf,
    pub folder: PathBuf,
}

/// Why a gate cannot be believed here.
#[derive(Debug, thiserror::Error)]
pub enum BuildDirError {
    /// There is no folder that is ours.
    #[error(
        "{} makes cargo use the same target folder ({}) for every checkout, which mixes up their build results; add `{OWN}/` to .gitignore, or remove `build.target-dir`",
        .0.file.display(), .0.folder.display()
    )]
    NoOwn(SharedBuildDir),
    /// Git does not say.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// The folder that commands in this workspace must be told to build in; `None` if they do so by themselves.
pub fn choose_own_build_dir(
    repo: &Repo,
    workspace: &Path,
    env: &[(String, String)],
) -> Result<Option<PathBuf>, BuildDirError> {
    let Some(shared) = find_shared_build_dir(workspace, env) else { return Ok(None) };
    let own = workspace.join(OWN);
    if repo.is_ignored(workspace, &format!("{OWN}/"))? {
        return Ok(Some(own));
    }
    Err(BuildDirError::NoOwn(shared))
}

/// What cargo, started in this folder, reads from files about where to build, if that is outside of it.
pub fn find_shared_build_dir(workspace: &Path, env: &[(String, String)]) -> Option<SharedBuildDir> {
    let var = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let home = var("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| var("HOME").map(|home| Path::new(home).join(".cargo")));
    let folders = workspace.ancestors().map(|folder| folder.join(".cargo")).chain(home);
    // The nearest one counts; of two names of one file the older.
    let mut files =
        folders.flat_map(|folder| ["config", "config.toml"].map(|name| folder.join(name)));
    let (named, file) = files.find_map(|file| Some((read_target_dir(&file)?, file)))?;
    // Relative to the folder above the one that the file is in.
    let base = file.parent().and_then(Path::parent)?;
    let folder = base.join(named);
    (!resolve_path(&folder).starts_with(resolve_path(workspace)))
        .then_some(SharedBuildDir { file, folder })
}

/// Where a path leads, also one that nothing is at yet: `place/../out` is not inside `place`.
fn resolve_path(path: &Path) -> PathBuf {
    if let Ok(known) = fs::canonicalize(path) {
        return known;
    }
    let Some(parent) = path.parent().map(resolve_path) else { return path.to_path_buf() };
    match path.components().next_back() {
        Some(Component::ParentDir) => parent.parent().map_or(parent.clone(), Path::to_path_buf),
        Some(Component::Normal(name)) => parent.join(name),
        _ => parent,
    }
}

fn read_target_dir(file: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(file).ok()?;
    // One that cargo cannot read stops cargo.
    let settings: toml::Table = text.parse().ok()?;
    Some(PathBuf::from(settings.get("build")?.get("target-dir")?.as_str()?))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_folder_of_all_checkouts_is_seen_wherever_cargo_would_read_of_it() {
        let temp = tempfile::tempdir().unwrap();
        let place = temp.path().join("all/T-1");
        let home = temp.path().join("home");
        let env = [("HOME".to_owned(), home.display().to_string())];
        for dir in [place.join(".cargo"), home.join(".cargo")] {
            fs::create_dir_all(dir).unwrap();
        }
        assert_eq!(find_shared_build_dir(&place, &env), None);
        let of_home = home.join(".cargo/config.toml");
        fs::write(&of_home, "[build]\ntarget-dir = \"/builds\"\n").unwrap();
        let seen = find_shared_build_dir(&place, &env).unwrap();
        assert_eq!((seen.file, seen.folder), (of_home, PathBuf::from("/builds")));
        // The repository's own file comes first, and what is inside is nobody else's.
        let of_repo = place.join(".cargo/config.toml");
        fs::write(&of_repo, "[build]\ntarget-dir = \"out\"\n").unwrap();
        assert_eq!(find_shared_build_dir(&place, &env), None);
        fs::write(&of_repo, "[build]\ntarget-dir = \"../out\"\n").unwrap();
        assert_eq!(find_shared_build_dir(&place, &env).unwrap().file, of_repo);
        fs::write(&of_repo, "[net]\noffline = true\n").unwrap();
        assert!(
            find_shared_build_dir(&place, &env).is_some(),
            "a file that says nothing of it hides none"
        );
    }
}
