//! Files with credentials in git's settings: hidden from agents, who get copies without them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mainstem_host::git::{GitError, Repo};
use mainstem_host::sandbox::{SandboxPathAccess, SandboxPolicy};

/// The folder with the copies, in our state.
const COPIES: &str = "settings";

/// What is hidden, and what is shown instead.
#[derive(Debug, Clone, Default)]
pub(crate) struct HiddenGitSettings {
    /// Each file with credentials, and the copy without them.
    hidden: Vec<(PathBuf, PathBuf)>,
    /// The user's own settings without credentials, if they had some.
    global: Option<PathBuf>,
    /// The system's settings have some.
    system: bool,
}

impl HiddenGitSettings {
    /// Looks through all settings that git reads here and writes the copies.
    pub(crate) fn find(
        repo: &Repo,
        state: &Path,
        home: Option<&Path>,
        xdg: Option<&Path>,
    ) -> Result<Self, GitError> {
        let found = repo.find_credentials()?;
        let folder = state.join(COPIES);
        if found.files.is_empty() {
            return Ok(Self::default());
        }
        let mut guarded = Self::default();
        for (n, (file, scope)) in found.files.iter().enumerate() {
            let copy = folder.join(format!("{n}"));
            repo.write_settings_without_credentials(&[file], &copy)?;
            guarded.hidden.push((file.clone(), copy));
            guarded.system |= scope == "system";
            if scope == "global" && guarded.global.is_none() {
                let base = xdg.map(Path::to_path_buf).or_else(|| home.map(|h| h.join(".config")));
                let files = base.map(|base| base.join("git/config")).into_iter();
                let files: Vec<PathBuf> =
                    files.chain(home.map(|home| home.join(".gitconfig"))).collect();
                let copy = folder.join("global");
                repo.write_settings_without_credentials(&files.iter().collect::<Vec<_>>(), &copy)?;
                guarded.global = Some(copy);
            }
        }
        Ok(guarded)
    }

    /// Whether the settings of a repository with this git folder are hidden.
    pub(crate) fn hides_settings_of(&self, common: &Path) -> bool {
        self.hidden.iter().any(|(file, _)| file.parent() == Some(common))
    }

    /// Hides the files behind a wall. What shows no copy in a file's place is told where the copy is.
    pub(crate) fn apply(&self, wall: &mut SandboxPolicy, env: &mut BTreeMap<String, String>) {
        for (file, copy) in &self.hidden {
            wall.set_path_access(file, SandboxPathAccess::Hidden);
            wall.set_path_access(copy, SandboxPathAccess::Read);
            wall.replaced.push((file.clone(), copy.clone()));
        }
        if let Some(copy) = &self.global {
            wall.set_path_access(copy, SandboxPathAccess::Read);
            env.insert("GIT_CONFIG_GLOBAL".to_owned(), copy.display().to_string());
        }
        if self.system {
            env.insert("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned());
        }
    }
}
