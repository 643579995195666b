//! The template of prompts: found and tried before anything starts.

use std::io;
use std::path::{Path, PathBuf};

use mainstem_agents::{PromptTemplate, PromptTemplateError};
use mainstem_core::config::Settings;
use mainstem_host::git::Repo;

use crate::accepted_files;

/// A template that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromptTemplateLoadError {
    /// There is no such file, or it cannot be read.
    #[error("cannot read the template {path} (prompt.template): {source}")]
    Unread {
        /// Where it should be.
        path: PathBuf,
        source: std::io::Error,
    },
    /// It has a mistake.
    #[error("error in the template {path} (prompt.template): {source}")]
    Wrong {
        path: PathBuf,
        /// Which line, and what.
        source: PromptTemplateError,
    },
}

/// The template in force, of a repository with this state folder. Without one the path is taken as it is.
pub fn load_prompt_template(
    place: Option<(&Repo, &Path)>,
    settings: &Settings,
) -> Result<PromptTemplate, PromptTemplateLoadError> {
    let Some(named) = &settings.prompt.template else { return Ok(PromptTemplate::default()) };
    let path = PathBuf::from(named);
    let text = match place {
        Some((repo, state)) if path.is_relative() => {
            let plain = named.trim_start_matches("./");
            let text =
                accepted_files::read_file_in_force(repo, state, plain).map_err(io::Error::other);
            text.and_then(|text| text.ok_or_else(|| io::ErrorKind::NotFound.into()))
        }
        _ => std::fs::read_to_string(&path),
    };
    match text {
        Ok(text) => PromptTemplate::new(&text)
            .map_err(|source| PromptTemplateLoadError::Wrong { path, source }),
        Err(source) => Err(PromptTemplateLoadError::Unread { path, source }),
    }
}

/// How long a prompt may be, in bytes.
pub fn max_prompt_bytes(settings: &Settings) -> usize {
    usize::try_from(settings.prompt.tokens).unwrap_or(usize::MAX).saturating_mul(4)
}
