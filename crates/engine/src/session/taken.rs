//! What decides about a run, taken from the user's checkout when it starts.

use mainstem_agents::Template;

use super::{Session, SessionError};
use crate::accepted::{self, Accepted};
use crate::prompts;

impl Session {
    /// Takes down what decides about this run as the user has it, and returns the template of prompts and the
    /// lines of `.worktreeinclude`.
    pub(super) fn take_settings(&self) -> Result<(Template, Vec<String>), SessionError> {
        let place = Some((&self.repo, self.layout.state()));
        let template = prompts::template(place, &self.settings)?;
        let accepted = Accepted::new(&self.repo, self.layout.state());
        let mut files = accepted::named_files(&self.settings);
        files.push(accepted::CONFIG_FILE.to_owned());
        accepted.take(&files)?;
        let (repo, state) = (&self.repo, self.layout.state());
        let text = accepted::read_in_force(repo, state, accepted::INCLUDE_FILE)?;
        Ok((template, text.unwrap_or_default().lines().map(str::to_owned).collect()))
    }
}
