//! How pull requests are worded: a template of ours, or the user's own, with the marks of prompts
//! (`⟦ … ⟧`). Texts of the plan are values: they are put in as they are and never read as a template.

use mainstem_agents::prompt::PromptTemplateError;
use mainstem_agents::prompt::template::compile_with_marks;
use mainstem_core::id::RunId;
use mainstem_core::plan::Task;
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde_json::json;

pub const DEFAULT: &str = "\
⟦% if task.description %⟧
## Summary

⟦ task.description ⟧

⟦% endif %⟧
⟦% if task.acceptance %⟧
## Test plan

⟦% for line in task.acceptance %⟧
- [ ] ⟦ line ⟧
⟦% endfor %⟧
⟦% for line in gates %⟧
- [x] `⟦ line ⟧` passed
⟦% endfor %⟧

⟦% endif %⟧
## Task

⟦ task.id ⟧⟦% if task.epic %⟧ of ⟦ task.epic ⟧⟦% endif %⟧, attempt ⟦ attempt ⟧ of run ⟦ run ⟧.
";
/// A forge takes no longer text.
const BODY_BYTES_MAX: usize = 60_000;
const TITLE_CHARS_MAX: usize = 200;
const NAME: &str = "pull request";

/// A template that can be rendered.
#[derive(Debug, Clone)]
pub struct PullRequestTemplate {
    environment: Environment<'static>,
}

impl Default for PullRequestTemplate {
    fn default() -> Self {
        Self::new(DEFAULT).expect("BUG: the built-in template is tested")
    }
}

impl PullRequestTemplate {
    /// Reads a template and tries it on a task with nothing and on one with everything.
    pub fn new(text: &str) -> Result<Self, PromptTemplateError> {
        let made = Self { environment: compile_with_marks(NAME, text)? };
        let full = Task {
            epic: Some("E".into()),
            description: "words".to_owned(),
            acceptance: vec!["it works".to_owned()],
            ..Task::empty()
        };
        for task in [Task::empty(), full] {
            made.render_body(&task, 1, &RunId::new("r"), &["gate".to_owned()])?;
        }
        Ok(made)
    }

    /// The text of a pull request.
    pub fn render_body(
        &self,
        task: &Task,
        attempt: u32,
        run: &RunId,
        gates: &[String],
    ) -> Result<String, PromptTemplateError> {
        let template = self.environment.get_template(NAME)?;
        let values = Value::from(Serde(json!({
            "task": {
                "id": task.id, "title": task.title, "description": task.description,
                "acceptance": task.acceptance, "writes": task.writes, "needs": task.needs,
                "epic": task.epic.as_ref().map(ToString::to_string).unwrap_or_default(),
                "phase": task.phase.as_ref().map(ToString::to_string).unwrap_or_default(),
            },
            "attempt": attempt, "run": run.as_str(), "gates": gates,
        })));
        let mut body = template.render(values)?;
        if body.len() > BODY_BYTES_MAX {
            let mut end = BODY_BYTES_MAX;
            while !body.is_char_boundary(end) {
                end -= 1;
            }
            body.truncate(end);
            body.push('…');
        }
        Ok(body)
    }
}

/// The title of a pull request: one line, whatever the task's is.
pub fn pull_request_title(task: &Task) -> String {
    let words: String = task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let title =
        if words.is_empty() { task.id.to_string() } else { format!("{}: {words}", task.id) };
    title.chars().take(TITLE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn task() -> Task {
        Task {
            id: "T-1".into(),
            title: "Make\n it".to_owned(),
            description: "Do ⟦ this ⟧.".to_owned(),
            acceptance: vec!["it works".to_owned()],
            ..Task::empty()
        }
    }

    #[test]
    fn the_built_in_text_says_what_for_and_whose_and_reads_nothing_as_a_template() {
        let gates = ["cargo test".to_owned()];
        let body = PullRequestTemplate::default()
            .render_body(&task(), 2, &RunId::new("r-1"), &gates)
            .unwrap();
        for part in [
            "Do ⟦ this ⟧.",
            "- [ ] it works",
            "- [x] `cargo test` passed",
            "T-1, attempt 2 of run r-1",
        ] {
            assert!(body.contains(part), "{part} in {body}");
        }
        assert_eq!(pull_request_title(&task()), "T-1: Make it");
        assert_eq!(pull_request_title(&Task { id: "T-2".into(), ..Task::empty() }), "T-2");
    }

    #[test]
    fn a_template_with_a_mistake_is_refused_with_its_line() {
        let error = PullRequestTemplate::new("fine\n⟦ task.colour ⟧\n").unwrap_err();
        assert_eq!(error.line, 2, "{error}");
        assert!(PullRequestTemplate::new("⟦% if %⟧").is_err());
    }
}
