//! How the parts of a prompt are put together: a template of ours, or the user's own.
//!
//! The marks are `⟦ … ⟧`, `⟦% … %⟧` and `⟦# … #⟧`: no language, format or shell uses them, so a template
//! can quote any of those. Texts of the plan, of agents and of gates are values: they are put in as they
//! are and never read as a template. Everything that can be wrong with a template is found when it is
//! read, by trying it on prompts with everything and with nothing in them.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde_json::json;

use super::{EarlierWork, PromptConflictSides, PromptInput, PromptPart, PromptParts, RetryContext};

pub const DEFAULT: &str = "⟦ sections.task ⟧⟦ sections.acceptance ⟧⟦ sections.retry ⟧⟦ sections.answers ⟧\
⟦ sections.landed ⟧⟦ sections.lessons ⟧⟦ sections.guidelines ⟧⟦ sections.verification ⟧";
/// A template longer than this is none.
const TEMPLATE_BYTES_MAX: usize = 256 * 1024;
/// Steps that rendering may take: far above what a prompt needs, far below what one would notice.
const FUEL: u64 = 500_000;
const NAME: &str = "prompt";

/// A template that can be rendered.
#[derive(Debug, Clone)]
pub struct PromptTemplate {
    environment: Environment<'static>,
}

/// What is wrong with a template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct PromptTemplateError {
    /// The line, from 1.
    pub line: usize,
    pub message: String,
}

impl From<minijinja::Error> for PromptTemplateError {
    fn from(error: minijinja::Error) -> Self {
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        let message = format!("{}{detail}", error.kind());
        Self { line: error.line().unwrap_or(1), message }
    }
}

/// A template with our marks under `name`: bounded in size and steps, and a value that is not there is an
/// error, not nothing.
pub fn compile_with_marks(
    name: &'static str,
    text: &str,
) -> Result<Environment<'static>, PromptTemplateError> {
    if text.len() > TEMPLATE_BYTES_MAX {
        let message = format!("a template has at most {TEMPLATE_BYTES_MAX} bytes");
        return Err(PromptTemplateError { line: 1, message });
    }
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .variable_delimiters("⟦", "⟧")
        .block_delimiters("⟦%", "%⟧")
        .comment_delimiters("⟦#", "#⟧")
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.add_template_owned(name, text.to_owned())?;
    Ok(environment)
}

impl Default for PromptTemplate {
    fn default() -> Self {
        Self::new(DEFAULT).expect("BUG: the built-in template is tested")
    }
}

impl PromptTemplate {
    /// Reads a template and tries it.
    pub fn new(text: &str) -> Result<Self, PromptTemplateError> {
        let template = Self { environment: compile_with_marks(NAME, text)? };
        for full in [false, true] {
            let rendered = template.try_on_sample(full)?;
            if full && !rendered.contains(super::sample::DESCRIPTION) {
                let message = "the task's description does not appear; use ⟦ sections.task ⟧ or \
                    ⟦ task.description ⟧"
                    .to_owned();
                return Err(PromptTemplateError { line: 1, message });
            }
        }
        Ok(template)
    }

    fn try_on_sample(&self, full: bool) -> Result<String, PromptTemplateError> {
        super::sample::with_sample(full, |input| {
            self.render_prompt(input, &super::build_parts(input))
        })
    }

    /// Puts a prompt together.
    pub(super) fn render_prompt(
        &self,
        input: &PromptInput<'_>,
        parts: &PromptParts,
    ) -> Result<String, PromptTemplateError> {
        let template = self.environment.get_template(NAME)?;
        Ok(template.render(template_values(input, parts))?)
    }
}

/// All that a template can use.
fn template_values(input: &PromptInput<'_>, parts: &PromptParts) -> Value {
    let task = input.task;
    let text = |part: PromptPart| parts.text(part);
    let landed = input.landed_before.iter().map(|(id, title)| json!({"id": id, "title": title}));
    let answers = input.answers.iter().map(|(q, a)| json!({"question": q, "answer": a}));
    Value::from(Serde(json!({
        "sections": {
            "task": text(PromptPart::Task), "acceptance": text(PromptPart::Acceptance),
            "retry": text(PromptPart::Retry), "answers": text(PromptPart::Answers),
            "landed": text(PromptPart::Landed), "lessons": text(PromptPart::Lessons),
            "guidelines": text(PromptPart::Guidelines), "verification": text(PromptPart::Verification),
        },
        "task": {
            "id": task.id, "title": task.title, "description": super::bounded_description(task),
            "acceptance": task.acceptance, "writes": task.writes, "verify": task.verify,
            "role": task.role.as_deref().unwrap_or_default(),
        },
        "epic": input.epic_title.unwrap_or_default(),
        "attempt": input.retry.map_or(1, |retry| retry.attempt),
        "gates": input.gates,
        "landed": landed.collect::<Vec<_>>(),
        "answers": answers.collect::<Vec<_>>(),
        "lessons": input.lessons,
        "retry": input.retry.map(retry_value),
        "hint": input.hint.unwrap_or_default(),
    })))
}

fn retry_value(retry: &RetryContext) -> serde_json::Value {
    let others = retry.other_tasks.iter().map(|(id, text)| json!({"id": id, "text": text}));
    json!({
        "attempt": retry.attempt, "class": retry.class, "reason": retry.reason,
        "gate_output": retry.gate_output.as_deref().map(super::bounded_gate_output).unwrap_or_default(),
        "conflict_files": retry.conflict_files, "findings": retry.findings,
        "other_tasks": others.collect::<Vec<_>>(), "sides": retry.sides.as_ref().map(conflict_sides_value),
        "kept": retry.kept.as_ref().map(earlier_work_value), "started_over": retry.started_over,
    })
}

fn earlier_work_value(kept: &EarlierWork) -> serde_json::Value {
    json!({
        "attempt": kept.attempt, "commits": kept.commits, "files": kept.files,
        "insertions": kept.insertions, "deletions": kept.deletions,
        "uncommitted": kept.uncommitted, "moved": kept.moved,
        "conflicts": kept.conflicts, "set_back": kept.set_back,
    })
}

fn conflict_sides_value(sides: &PromptConflictSides) -> serde_json::Value {
    json!({
        "base": sides.base, "landed": sides.landed, "work": sides.work,
        "landed_diff": super::bounded_conflict_side(&sides.landed_diff), "work_diff": super::bounded_conflict_side(&sides.work_diff),
        "commits": sides.commits, "laid_out": sides.laid_out,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::adapter::tests::task;
    use crate::prompt::{build_prompt, plain};

    #[test]
    fn a_users_template_decides_the_shape() {
        let text = "⟦# ours #⟧\nDo ⟦ task.id ⟧ {{ not ours }} ⟦% for c in task.acceptance %⟧[⟦ c ⟧]⟦% endfor %⟧\n\
            ⟦% if retry %⟧Again: ⟦ retry.reason ⟧⟦% else %⟧First.⟦% endif %⟧\n⟦ sections.task ⟧";
        let template = PromptTemplate::new(text).unwrap();
        let mut task = task("T-1");
        task.acceptance = vec!["a".into(), "b".into()];
        let text = build_prompt(&plain(&task), &template);
        assert!(text.contains("Do T-1 {{ not ours }} [a][b]First.# T-1: Schema\n"), "{text}");
    }

    #[test]
    fn texts_are_never_read_as_a_template() {
        let mut task = task("T-1");
        task.title = "⟦ task.id ⟧".into();
        task.description = "⟦% for x in range(1000000) %⟧boom⟦% endfor %⟧ {{ 7*7 }}".into();
        let text = build_prompt(&plain(&task), &PromptTemplate::default());
        assert!(text.contains("# T-1: ⟦ task.id ⟧"), "{text}");
        assert!(text.contains("⟦% for x in range(1000000) %⟧boom"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_before_anything_runs() {
        let wrong = |text: &str| PromptTemplate::new(text).unwrap_err();
        assert_eq!(wrong("⟦ sections.task ⟧\n\n⟦ nonsense ⟧").line, 3);
        assert_eq!(wrong("one\n⟦% if %⟧").line, 2);
        assert_eq!(wrong("⟦ sections.task ⟧\n⟦ retry.reason ⟧").line, 2, "not on a first attempt");
        assert!(wrong("no text at all").message.contains("description"));
        let endless = "⟦ sections.task ⟧⟦% for a in range(9999) %⟧⟦% for b in range(9999) %⟧x⟦% endfor %⟧⟦% endfor %⟧";
        assert!(wrong(endless).message.contains("fuel"), "{:?}", wrong(endless));
        assert!(wrong("⟦ sections.task ⟧\n⟦% include 'other' %⟧").line == 2);
    }
}
