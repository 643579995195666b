//! What decides about a run, taken from the user's checkout when it starts.

use mainstem_agents::PromptTemplate;

use super::{EngineError, EngineInstance};
use crate::accepted_files::{self, AcceptedFiles};
use crate::prompt_template;

impl EngineInstance {
    /// Takes down what decides about this run as the user has it, and returns the template of prompts and the
    /// lines of `.worktreeinclude`.
    pub(super) fn load_governing_files(
        &self,
    ) -> Result<(PromptTemplate, Vec<String>), EngineError> {
        let place = Some((&self.repo, self.layout.state_dir()));
        let template = prompt_template::load_prompt_template(place, &self.settings)?;
        let accepted = AcceptedFiles::new(&self.repo, self.layout.state_dir());
        let mut files = accepted_files::list_governing_files(&self.settings);
        files.push(accepted_files::CONFIG_FILE.to_owned());
        accepted.accept_checkout_versions(&files)?;
        let (repo, state) = (&self.repo, self.layout.state_dir());
        let text = accepted_files::read_file_in_force(repo, state, accepted_files::INCLUDE_FILE)?;
        Ok((template, text.unwrap_or_default().lines().map(str::to_owned).collect()))
    }
}
