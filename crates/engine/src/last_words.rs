//! What an agent printed last: the reason it failed, where it gave none by its protocol.

use mainstem_core::fact::{AgentClaim, AgentEnding, AgentFault};
use mainstem_core::failure_cause;

/// Older output does not say why a program ended.
const KEPT_BYTES: usize = 4 * 1024;

/// The end of an agent's plain output.
#[derive(Debug, Default)]
pub(crate) struct LastWords {
    text: String,
}

impl LastWords {
    /// Adds a line that is no part of the protocol.
    pub(crate) fn add(&mut self, line: &[u8]) {
        let from = line.len().saturating_sub(KEPT_BYTES);
        let line = String::from_utf8_lossy(&line[from..]);
        if line.trim().is_empty() || line.trim_start().starts_with("{\"mainstem\"") {
            return;
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
        if self.text.len() > 2 * KEPT_BYTES {
            let cut = self.text.len() - KEPT_BYTES;
            let cut = (cut..self.text.len()).find(|at| self.text.is_char_boundary(*at));
            self.text.drain(..cut.unwrap_or(0));
        }
    }

    /// What the agent claims in the end: an exit code that comes without a reason gets the line that says most.
    pub(crate) fn explain(&self, ending: &AgentEnding, claim: AgentClaim) -> AgentClaim {
        match (ending, &claim, failure_cause::most_telling_line(&self.text)) {
            (AgentEnding::Exited { code }, AgentClaim::None, Some(line)) if *code != 0 => {
                let message = format!("exit code {code}: {line}");
                AgentClaim::Failed { fault: AgentFault::Other, message, help: None }
            }
            _ => claim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> LastWords {
        let mut words = LastWords::default();
        lines.iter().for_each(|line| words.add(line.as_bytes()));
        words
    }

    #[test]
    fn an_exit_code_without_a_reason_gets_the_telling_line() {
        let words = said(&["building", "sh: 1: npm: not found", "{\"mainstem\":\"usage\"}", "  "]);
        let claim = words.explain(&AgentEnding::Exited { code: 127 }, AgentClaim::None);
        let AgentClaim::Failed { message, .. } = claim else { panic!("{claim:?}") };
        assert_eq!(message, "exit code 127: sh: 1: npm: not found");
    }

    #[test]
    fn success_silence_and_what_the_agent_says_itself_stay_as_they_are() {
        let words = said(&["all good"]);
        assert_eq!(
            words.explain(&AgentEnding::Exited { code: 0 }, AgentClaim::None),
            AgentClaim::None
        );
        assert_eq!(
            said(&[]).explain(&AgentEnding::Exited { code: 1 }, AgentClaim::None),
            AgentClaim::None
        );
        let blocked = AgentClaim::Blocked { reason: "no key".to_owned() };
        assert_eq!(words.explain(&AgentEnding::Exited { code: 1 }, blocked.clone()), blocked);
    }

    #[test]
    fn only_the_end_of_long_output_is_kept() {
        let mut words = LastWords::default();
        for _ in 0..10_000 {
            words.add("é".repeat(100).as_bytes());
        }
        words.add(b"last");
        assert!(words.text.len() <= 2 * KEPT_BYTES + 5);
        assert!(words.text.ends_with("last\n"));
    }
}
