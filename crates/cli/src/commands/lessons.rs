//! `lessons`: what earlier attempts taught, to look at and to forget.

use std::fmt::Write as _;

use mainstem_api::actions::{ForgottenLessons, LessonCounts};
use mainstem_api::{exit_code, time};
use mainstem_core::lesson::{DomainLessons, LessonDomain, LessonSource};
use mainstem_engine::lessons::{LessonError, LessonStore};

use crate::args::LessonsCommand;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

impl From<LessonError> for CliError {
    fn from(error: LessonError) -> Self {
        Self::new(error.to_string())
    }
}

/// Lists, shows or forgets.
pub(crate) fn cmd_lessons(context: &CliContext, command: Option<&LessonsCommand>) -> CommandResult {
    let (repo, settings, layout) = context.load_repo_context()?;
    let shelf = LessonStore::new(&repo, &layout, &settings);
    match command.unwrap_or(&LessonsCommand::List) {
        LessonsCommand::List => list_lessons(context, &shelf),
        LessonsCommand::Show { domain } => show_lessons(context, &shelf, parse_domain(domain)?),
        LessonsCommand::Forget { domain, text, all } => {
            let domain = parse_domain(domain)?;
            let gone = shelf.update_lessons(domain, |lessons| match text {
                Some(text) => lessons.forget_matching(text),
                None if *all => {
                    let gone = lessons.len();
                    *lessons = DomainLessons::default();
                    gone
                }
                None => 0,
            })?;
            if context.global.json {
                let (domain, forgotten) = (domain.as_str().to_owned(), gone as u64);
                output::write_json(&ForgottenLessons { domain, forgotten })?;
            } else {
                let count = output::count_noun(gone as u64, "lesson");
                output::write_stderr(&format!("deleted {count} about {}", domain.as_str()));
            }
            Ok(exit_code::OK)
        }
    }
}

fn parse_domain(word: &str) -> Result<LessonDomain, CliError> {
    LessonDomain::from_word(word).ok_or_else(|| {
        let known: Vec<_> = LessonDomain::ALL.iter().map(|domain| domain.as_str()).collect();
        CliError::new(format!("unknown domain `{}`", output::sanitize_text(word)))
            .with_hint(format!("domains: {}", known.join(", ")))
    })
}

fn list_lessons(context: &CliContext, shelf: &LessonStore) -> CommandResult {
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for domain in LessonDomain::ALL {
        let lessons = shelf.read_lessons(domain)?;
        values.push(LessonCounts {
            domain: domain.as_str().to_owned(),
            file: shelf.domain_file(domain).display().to_string(),
            failures: lessons.failures.len() as u64,
            patterns: lessons.patterns.len() as u64,
            files: lessons.files.len() as u64,
            techniques: lessons.techniques.len() as u64,
        });
        if !lessons.is_empty() {
            let count = |n: usize, what| output::count_noun(n as u64, what);
            rows.push(vec![
                domain.as_str().to_owned(),
                count(lessons.failures.len(), "failure"),
                count(lessons.patterns.len(), "pattern"),
                count(lessons.files.len(), "file"),
                count(lessons.techniques.len(), "technique"),
            ]);
        }
    }
    if context.global.json {
        output::write_json(&values)?;
    } else if rows.is_empty() {
        output::write_stderr("no lessons yet");
    } else {
        output::write_stdout(&output::format_table(&rows))?;
    }
    Ok(exit_code::OK)
}

fn show_lessons(context: &CliContext, shelf: &LessonStore, domain: LessonDomain) -> CommandResult {
    let lessons = shelf.read_lessons(domain)?;
    if context.global.json {
        let bug = |error| CliError::new(format!("BUG: lessons are plain data: {error}"));
        let mut value = serde_json::to_value(&lessons).map_err(bug)?;
        value["domain"] = domain.as_str().into();
        value["told"] = lessons.prompt_lines().into();
        output::write_json(&value)?;
        return Ok(exit_code::OK);
    }
    let mut out = format!("{} ({})\n", domain.as_str(), shelf.domain_file(domain).display());
    if !lessons.failures.is_empty() {
        out.push_str("\nfailures\n");
    }
    for failure in lessons.failures.iter().rev() {
        let _ = writeln!(
            out,
            "  {}{}",
            output::sanitize_text(&failure.issue),
            origin_text(&failure.from)
        );
        for (word, text) in [("seen", &failure.error), ("fix", &failure.cure)] {
            if !text.is_empty() {
                let _ = writeln!(out, "    {word}: {}", output::sanitize_text(text));
            }
        }
    }
    for (title, notes) in [
        ("patterns", &lessons.patterns),
        ("worked", &lessons.techniques),
        ("files", &lessons.files),
    ] {
        if !notes.is_empty() {
            let _ = writeln!(out, "\n{title}");
        }
        for note in notes.iter().rev() {
            let _ =
                writeln!(out, "  {}{}", output::sanitize_text(&note.text), origin_text(&note.from));
        }
    }
    output::write_stdout(&out)?;
    Ok(exit_code::OK)
}

fn origin_text(from: &[LessonSource]) -> String {
    let Some(last) = from.last() else { return String::new() };
    let when = time::to_rfc3339(last.at_ms);
    let day = when.get(..10).unwrap_or(&when);
    let more = if from.len() > 1 { format!(", {} times", from.len()) } else { String::new() };
    format!("  [{} attempt {}, {day}{more}]", output::sanitize_text(&last.task), last.attempt)
}
