//! `lessons`: what earlier attempts taught, to look at and to forget.

use std::fmt::Write as _;

use mainstem_api::{exit_code, time};
use mainstem_core::lesson::{Domain, Lessons, Source};
use mainstem_engine::lessons::{LessonError, Shelf};
use serde_json::json;

use crate::args::LessonsCommand;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

impl From<LessonError> for Failure {
    fn from(error: LessonError) -> Self {
        Self::new(error.to_string())
    }
}

/// Lists, shows or forgets.
pub(crate) fn lessons(context: &Context, command: Option<&LessonsCommand>) -> Outcome {
    let (repo, settings, layout) = context.place()?;
    let shelf = Shelf::new(&repo, &layout, &settings);
    match command.unwrap_or(&LessonsCommand::List) {
        LessonsCommand::List => list(context, &shelf),
        LessonsCommand::Show { domain } => show(context, &shelf, named(domain)?),
        LessonsCommand::Forget { domain, text, all } => {
            let domain = named(domain)?;
            let gone = shelf.change(domain, |lessons| match text {
                Some(text) => lessons.forget(text),
                None if *all => {
                    let gone = lessons.len();
                    *lessons = Lessons::default();
                    gone
                }
                None => 0,
            })?;
            if context.global.json {
                print::out_json(&json!({ "domain": domain.word(), "forgotten": gone }))?;
            } else {
                let count = print::count(gone as u64, "lesson");
                print::err(&format!("deleted {count} about {}", domain.word()));
            }
            Ok(exit_code::OK)
        }
    }
}

fn named(word: &str) -> Result<Domain, Failure> {
    Domain::from_word(word).ok_or_else(|| {
        let known: Vec<_> = Domain::ALL.iter().map(|domain| domain.word()).collect();
        Failure::new(format!("unknown domain `{}`", print::harmless(word)))
            .hint(format!("domains: {}", known.join(", ")))
    })
}

fn list(context: &Context, shelf: &Shelf) -> Outcome {
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for domain in Domain::ALL {
        let lessons = shelf.read(domain)?;
        values.push(json!({
            "domain": domain.word(), "file": shelf.file(domain),
            "failures": lessons.failures.len(), "patterns": lessons.patterns.len(),
            "files": lessons.files.len(), "techniques": lessons.techniques.len(),
        }));
        if !lessons.is_empty() {
            let count = |n: usize, what| print::count(n as u64, what);
            rows.push(vec![
                domain.word().to_owned(),
                count(lessons.failures.len(), "failure"),
                count(lessons.patterns.len(), "pattern"),
                count(lessons.files.len(), "file"),
                count(lessons.techniques.len(), "technique"),
            ]);
        }
    }
    if context.global.json {
        print::out_json(&values)?;
    } else if rows.is_empty() {
        print::err("no lessons yet");
    } else {
        print::out(&print::table(&rows))?;
    }
    Ok(exit_code::OK)
}

fn show(context: &Context, shelf: &Shelf, domain: Domain) -> Outcome {
    let lessons = shelf.read(domain)?;
    if context.global.json {
        let bug = |error| Failure::new(format!("BUG: lessons are plain data: {error}"));
        let mut value = serde_json::to_value(&lessons).map_err(bug)?;
        value["domain"] = domain.word().into();
        value["told"] = lessons.told().into();
        print::out_json(&value)?;
        return Ok(exit_code::OK);
    }
    let mut out = format!("{} ({})\n", domain.word(), shelf.file(domain).display());
    if !lessons.failures.is_empty() {
        out.push_str("\nfailures\n");
    }
    for failure in lessons.failures.iter().rev() {
        let _ = writeln!(out, "  {}{}", print::harmless(&failure.issue), origin(&failure.from));
        for (word, text) in [("seen", &failure.error), ("fix", &failure.cure)] {
            if !text.is_empty() {
                let _ = writeln!(out, "    {word}: {}", print::harmless(text));
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
            let _ = writeln!(out, "  {}{}", print::harmless(&note.text), origin(&note.from));
        }
    }
    print::out(&out)?;
    Ok(exit_code::OK)
}

fn origin(from: &[Source]) -> String {
    let Some(last) = from.last() else { return String::new() };
    let when = time::to_rfc3339(last.at_ms);
    let day = when.get(..10).unwrap_or(&when);
    let more = if from.len() > 1 { format!(", {} times", from.len()) } else { String::new() };
    format!("  [{} attempt {}, {day}{more}]", print::harmless(&last.task), last.attempt)
}
