//! Ranges of the logs of agents, without secrets.

use std::collections::BTreeSet;
use std::io;

use mainstem_agents::SecretRedactor;
use mainstem_agents::environment::is_denied_variable;
use mainstem_api::log::{LogLine, LogPage};
use mainstem_core::config::Settings;
use mainstem_core::id::TaskId;
use mainstem_host::git::Repo;
use mainstem_host::process::{self, JobState, OutputStream, read_job_output};

use crate::query::RunReader;
use crate::repo_layout::RepoLayout;

/// Removes the values of all secrets that the settings name and the environment has, and of credentials in git's own
/// settings.
pub fn build_redactor(
    settings: &Settings,
    repo: &Repo,
    environment: Vec<(String, String)>,
) -> SecretRedactor {
    let named: BTreeSet<&str> =
        settings.agents.values().flat_map(|agent| &agent.secrets).map(String::as_str).collect();
    let given = environment.into_iter().filter(|(name, _)| named.contains(name.as_str()));
    let set = settings.agents.values().flat_map(|agent| agent.env.clone());
    let of_git = repo.cached_credentials().iter();
    let of_git = of_git.map(|found| (format!("git config {}", found.key), found.value.clone()));
    SecretRedactor::new(given.chain(set.filter(|(name, _)| is_denied_variable(name))).chain(of_git))
}

impl RunReader {
    /// About `max` bytes of the output of an attempt's agent, from the place `from` on.
    pub fn log_page(
        &self,
        layout: &RepoLayout,
        redactor: &SecretRedactor,
        (task, attempt): (&TaskId, u32),
        (from, max): (u64, usize),
    ) -> io::Result<LogPage> {
        let mut page = LogPage {
            task: task.to_string(),
            attempt,
            from,
            next: from,
            dropped: 0,
            ended: false,
            lines: Vec::new(),
        };
        let Some(run) = &self.run else { return Ok(page) };
        let dir = layout.agent_job(run, task, attempt);
        // The state is read first: what was printed before the end is then surely in the range.
        let state = process::read_job_state(&dir)?;
        page.ended = matches!(state, JobState::Ended(_) | JobState::Vanished);
        let output = read_job_output(&dir, from, max)?;
        (page.next, page.dropped) = (output.next, output.dropped);
        let line = |line: process::OutputLine| LogLine {
            at: line.at_ms,
            stream: stream_word(line.stream).to_owned(),
            text: String::from_utf8_lossy(&redactor.redact_bytes(&line.text)).into_owned(),
            task: None,
            check: None,
            gate: None,
            scope: None,
            verdict: None,
        };
        page.lines = output.lines.into_iter().map(line).collect();
        Ok(page)
    }
}

/// The word of a stream in JSON.
pub fn stream_word(stream: OutputStream) -> &'static str {
    if stream == OutputStream::Stderr { "stderr" } else { "stdout" }
}
