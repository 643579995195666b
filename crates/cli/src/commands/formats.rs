//! Plans from and for other tools: reads their files, prints what becomes what, writes ours or
//! theirs. What the files mean is the planner's business.

mod beads;
pub(crate) mod files;
mod live;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use mainstem_api::exit_code;
use mainstem_core::diag::nearest;
use mainstem_core::graph::{Graph, GraphError};
use mainstem_core::phase::Phase;
use mainstem_core::plan::Plan;
use mainstem_planner::export::{self, Exported, Target, to_toml};
use mainstem_planner::import::{self, Accept, FORMATS, Format, Imported, Order, Place, State};
use mainstem_planner::push as planner_push;
use mainstem_planner::source::{Source, apply};
use mainstem_planner::suggest::{Suggestion, accept, suggest as suggestions_for};
use serde_json::{Value, json};

use crate::args::{ExportArgs, ImportArgs, OrderArg, PushArgs, SuggestArgs};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

/// Rows of a report before the rest is only counted.
const ROWS_SHOWN: usize = 200;

/// `plan import`.
pub(crate) fn import(context: &Context, args: &ImportArgs) -> Outcome {
    let from_forge = args.format == "github" && live::is_repository(context, &args.path);
    let source = match from_forge {
        true => live::read(context, &args.path, args.all)?,
        false => files::read(context, &args.path)?,
    };
    let format = format_of(&args.format, &source)?;
    let (source, _) = asked(context, format, &args.path, source)?;
    let accepted = Accept {
        commands: args.accept_commands,
        all: args.all,
        order: match args.order {
            OrderArg::Needs => Order::Needs,
            OrderArg::After => Order::After,
            OrderArg::Free => Order::Free,
        },
    };
    let mut imported = import::read(&source, format, &accepted).map_err(refused)?;
    in_order(&imported, &source)?;
    let wanted = args.suggest || args.accept_suggestions;
    let suggestions = if wanted { suggestions_for(&imported.plan) } else { Vec::new() };
    if args.accept_suggestions {
        accept(&mut imported.plan, &suggestions);
    }
    if args.dry_run {
        if context.global.json {
            print::out_json(&report(&imported, &suggestions, None))?;
        } else {
            print::out(&mapping(&imported, &source, &suggestions))?;
        }
        return Ok(exit_code::OK);
    }
    if let Some(output) = &args.output {
        let text = plan_text(&imported.plan, output)?;
        files::write(&context.path(output), &text, args.force)?;
    }
    if context.global.json {
        print::out_json(&report(&imported, &suggestions, args.output.as_deref()))?;
    } else if args.output.is_none() {
        print::out(&to_toml(&imported.plan))?;
    }
    if !context.global.quiet && !context.global.json {
        print::err(tell(&imported, &source, &suggestions, args).trim_end());
    }
    Ok(exit_code::OK)
}

/// Beads' own program knows more than its files: it is asked where it is installed and a folder is named.
fn asked(
    context: &Context,
    format: Format,
    typed: &Path,
    source: Source,
) -> Result<(Source, Option<beads::Program>), Failure> {
    let folder = context.path(typed);
    let program = beads::Program::find(&folder).filter(|_| format == Format::Beads);
    match program {
        Some(program) => Ok((program.list()?, Some(program))),
        None => Ok((source, None)),
    }
}

/// By its name, or by looking at the files.
fn format_of(name: &str, source: &Source) -> Result<Format, Failure> {
    if name.eq_ignore_ascii_case("auto") {
        return match import::detect(source).as_slice() {
            [format] => Ok(*format),
            [] => Err(Failure::new(format!(
                "{}: cannot detect the format of these task files",
                source.name
            ))
            .hint(format!("set the format: mainstem plan import FORMAT PATH; {}", names()))),
            several => {
                let list: Vec<&str> = several.iter().map(|format| format.name()).collect();
                Err(Failure::new(format!("{}: ambiguous format, could be {}", source.name, list.join(" or ")))
                    .hint(
                        "set the format, or the folder of one of them: mainstem plan import FORMAT PATH",
                    ))
            }
        };
    }
    Format::from_name(name).ok_or_else(|| {
        let near = nearest(name, FORMATS.iter().map(|(_, known, _)| *known));
        let hint = near.map_or_else(names, |near| format!("did you mean {near}?"));
        Failure::usage(format!("unknown format {name}")).hint(hint)
    })
}

fn names() -> String {
    let list: Vec<&str> = FORMATS.iter().map(|(_, name, _)| *name).collect();
    format!("formats: {}", list.join(", "))
}

/// Files as they are on disk.
pub(crate) fn source(context: &Context, path: &Path) -> Result<Source, Failure> {
    files::read(context, path)
}

pub(crate) fn refused(refused: import::Refused) -> Failure {
    Failure::text(refused.file, refused.text, refused.diagnostics)
}

/// Edges that go round are said with the places of their tasks.
fn in_order(imported: &Imported, source: &Source) -> Result<(), Failure> {
    let Err(error) = Graph::new(&imported.plan) else { return Ok(()) };
    let mut failure = Failure::new(format!("{}: the tasks have a dependency cycle", source.name));
    if let GraphError::Cycle(path) = &error {
        let ids: Vec<&str> = path.iter().map(|t| imported.plan.tasks[t.ix()].id.as_str()).collect();
        let round: Vec<&str> = ids.iter().chain(ids.first()).copied().collect();
        failure.causes.push(format!("dependency cycle: {}", round.join(" → ")));
        let known: BTreeSet<&str> = ids.into_iter().collect();
        for row in imported.rows.iter().filter(|row| known.contains(row.ours.as_str())) {
            failure.causes.push(format!("{} is {}", row.ours, at(source, &row.place)));
        }
    } else {
        failure.causes.push(error.to_string());
    }
    Err(failure.hint("remove one of these dependencies, or use --order free if they come from the order of tasks"))
}

fn at(source: &Source, place: &Place) -> String {
    format!("{}:{}", source.full(&place.file), place.line)
}

/// A plan in the syntax that the file's name promises.
pub(crate) fn plan_text(plan: &Plan, path: &Path) -> Result<String, Failure> {
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
    match end.as_deref() {
        Some("toml") => Ok(to_toml(plan)),
        Some("json") => {
            let out =
                export::export(plan, &BTreeMap::new(), Target::Json, &export::Options::default());
            let out = out.map_err(|error| Failure::new(error.to_string()))?;
            Ok(out.files.into_iter().map(|(_, text)| text).collect())
        }
        _ => Err(Failure::usage(format!(
            "{}: plans can be written as .toml or .json only",
            path.display()
        ))
        .hint("for example -o plan.toml")),
    }
}

/// The mapping for people: what becomes what, what is left out, what would be lost.
fn mapping(imported: &Imported, source: &Source, suggestions: &[Suggestion]) -> String {
    let mut rows = vec![["THEIRS", "STATE", "OURS", "AT", "TITLE"].map(str::to_owned).to_vec()];
    for row in imported.rows.iter().take(ROWS_SHOWN) {
        rows.push(vec![
            print::harmless(&row.theirs),
            row.state.word().to_owned(),
            if row.kept { row.ours.clone() } else { "–".to_owned() },
            at(source, &row.place),
            print::clip(&print::harmless(&row.title), 60),
        ]);
    }
    let mut out = print::table(&rows);
    let more = imported.rows.len().saturating_sub(ROWS_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "… and {more} more; --json lists them all");
    }
    out.push('\n');
    out.push_str(&summary(imported));
    for (field, lost) in &imported.lost {
        let place = at(source, &lost.first);
        let field = print::harmless(field);
        let _ = writeln!(
            out,
            "dropped: {field} ({}, first {place}); kept in the source",
            print::count(lost.count as u64, "time")
        );
    }
    for command in &imported.commands {
        let text = print::harmless(&command.text).replace('\n', " ");
        let _ =
            writeln!(out, "command: {} in {} ({})", text, command.task, at(source, &command.place));
    }
    if !imported.commands.is_empty() {
        out.push_str("commands stay text; use --accept-commands to turn them into checks\n");
    }
    notices(&mut out, imported, source);
    suggested(&mut out, suggestions);
    out
}

fn summary(imported: &Imported) -> String {
    let kept = imported.plan.tasks.len();
    let edges: usize = imported.plan.tasks.iter().map(|t| t.needs.len() + t.after.len()).sum();
    format!(
        "{}: {kept} of {}, {}, {}\n",
        imported.format.name(),
        print::count(imported.rows.len() as u64, "task"),
        print::count(edges as u64, "edge"),
        print::count(imported.plan.epics.len() as u64, "epic"),
    )
}

fn notices(out: &mut String, imported: &Imported, source: &Source) {
    for notice in imported.notices.iter().take(ROWS_SHOWN) {
        let message = print::harmless(&notice.message);
        let _ = writeln!(out, "note: {}: {message}", at(source, &notice.place));
    }
}

fn suggested(out: &mut String, suggestions: &[Suggestion]) {
    for suggestion in suggestions {
        let Suggestion { task, needs, reason } = suggestion;
        let _ = writeln!(out, "suggestion: {task} needs {needs}: {}", print::harmless(reason));
    }
}

/// What a person should know after an import, for standard error.
fn tell(
    imported: &Imported,
    source: &Source,
    suggestions: &[Suggestion],
    args: &ImportArgs,
) -> String {
    let mut out = summary(imported);
    notices(&mut out, imported, source);
    suggested(&mut out, suggestions);
    let count = imported.commands.len();
    if count > 0 && !args.accept_commands {
        let _ = writeln!(
            out,
            "{} found; use --accept-commands to turn commands into checks",
            print::count(count as u64, "command")
        );
    }
    if !imported.lost.is_empty() {
        let fields: Vec<String> =
            imported.lost.keys().map(|field| print::harmless(field)).collect();
        let _ = writeln!(out, "not in the plan: {}", fields.join(", "));
    }
    if let Some(output) = &args.output {
        let _ = writeln!(out, "wrote {}; next: mainstem plan check {0}", output.display());
    }
    out
}

/// The same for programs.
fn report(imported: &Imported, suggestions: &[Suggestion], written: Option<&Path>) -> Value {
    let place = |place: &Place| json!({ "file": place.file, "line": place.line });
    json!({
        "format": imported.format.name(),
        "title": imported.plan.title,
        "tasks": imported.plan.tasks.len(),
        "rows": imported.rows.iter().map(|row| json!({
            "theirs": row.theirs, "ours": row.ours, "title": row.title,
            "state": row.state.word(), "kept": row.kept, "at": place(&row.place),
        })).collect::<Vec<_>>(),
        "lost": imported.lost.iter().map(|(field, lost)| json!({
            "field": field, "count": lost.count, "first": place(&lost.first),
        })).collect::<Vec<_>>(),
        "commands": imported.commands.iter().map(|command| json!({
            "task": command.task, "text": command.text, "at": place(&command.place),
        })).collect::<Vec<_>>(),
        "notices": imported.notices.iter().map(|notice| json!({
            "message": notice.message, "at": place(&notice.place),
        })).collect::<Vec<_>>(),
        "suggestions": suggestions.iter().map(suggestion_json).collect::<Vec<_>>(),
        "written": written,
        "plan": imported.plan,
    })
}

fn suggestion_json(suggestion: &Suggestion) -> Value {
    json!({ "task": suggestion.task, "needs": suggestion.needs, "reason": suggestion.reason })
}

/// `plan suggest`.
pub(crate) fn suggest(context: &Context, args: &SuggestArgs) -> Outcome {
    let settings = context.settings(context.repo().ok().as_ref())?;
    let mut plan = context.plan(&args.file, &settings)?;
    let found = suggestions_for(&plan);
    if let Some(output) = &args.output {
        accept(&mut plan, &found);
        let text = plan_text(&plan, output)?;
        files::write(&context.path(output), &text, args.force)?;
    }
    if context.global.json {
        print::out_json(&found.iter().map(suggestion_json).collect::<Vec<_>>())?;
    } else {
        let mut out = String::new();
        suggested(&mut out, &found);
        if found.is_empty() {
            out.push_str("no suggestions\n");
        }
        print::out(&out)?;
    }
    Ok(exit_code::OK)
}

/// Where a run's tasks stand, in the words that all formats share.
fn standing(phase: Phase) -> State {
    match phase {
        Phase::Landed => State::Done,
        Phase::Skipped => State::Dropped,
        Phase::Preparing | Phase::Working | Phase::Asking | Phase::Verifying | Phase::Merging => {
            State::Doing
        }
        Phase::Conflicted | Phase::Failed | Phase::Blocked => State::Blocked,
        Phase::Waiting | Phase::Ready | Phase::Cancelled => State::Open,
    }
}

/// The plan of a run and where its tasks stand.
fn of_run(
    context: &Context,
    run: Option<&str>,
) -> Result<(Plan, BTreeMap<String, State>), Failure> {
    let (_, _, look) = context.look_at_run(run)?;
    let machine = &look.machine;
    let states = machine.tasks().all().map(|t| {
        let id = machine.plan().tasks[t.ix()].id.to_string();
        (id, standing(machine.tasks().phase(t)))
    });
    Ok((machine.plan().clone(), states.collect()))
}

/// `plan export`.
pub(crate) fn export(context: &Context, args: &ExportArgs) -> Outcome {
    let target = Target::from_name(&args.format).ok_or_else(|| {
        let names = Target::names();
        let near = nearest(&args.format, names.iter().copied());
        let hint = near.map_or_else(
            || format!("formats: {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        Failure::usage(format!("unknown format {}", args.format)).hint(hint)
    })?;
    let (plan, states) = match &args.plan {
        Some(file) => {
            let settings = context.settings(context.repo().ok().as_ref())?;
            let plan = context.plan(file, &settings)?;
            let states = match &args.run {
                Some(run) => of_run(context, Some(run))?.1,
                None => BTreeMap::new(),
            };
            (plan, states)
        }
        None => of_run(context, args.run.as_deref())?,
    };
    let options = export::Options { start_id: args.start_id };
    let out = export::export(&plan, &states, target, &options)
        .map_err(|error| Failure::new(format!("cannot export the plan: {error}")))?;
    let written = write_export(context, args, &out)?;
    if context.global.json && args.output.is_some() {
        print::out_json(&json!({ "files": written, "ids": out.ids, "lost": out.lost }))?;
    } else if !context.global.quiet {
        for lost in &out.lost {
            print::err(&format!("not supported by this format: {lost}"));
        }
        let renamed: Vec<String> =
            out.ids.iter().map(|(ours, theirs)| format!("{ours} → {theirs}")).collect();
        if !renamed.is_empty() {
            print::err(&format!("ids that differ in this format: {}", renamed.join(", ")));
        }
        if !written.is_empty() {
            print::err(&format!("wrote {}", print::count(written.len() as u64, "file")));
        }
    }
    Ok(exit_code::OK)
}

fn write_export(
    context: &Context,
    args: &ExportArgs,
    out: &Exported,
) -> Result<Vec<PathBuf>, Failure> {
    let Some(typed) = &args.output else {
        let [(_, text)] = out.files.as_slice() else {
            return Err(Failure::usage(format!("format {} writes several files", args.format))
                .hint("set a folder: -o FOLDER"));
        };
        print::out(text)?;
        return Ok(Vec::new());
    };
    let output = context.path(typed);
    let folder = output.is_dir() || typed.to_string_lossy().ends_with('/');
    let places: Vec<(PathBuf, &String)> = match out.files.as_slice() {
        [(_, text)] if !folder => vec![(output, text)],
        files => files.iter().map(|(path, text)| (output.join(path), text)).collect(),
    };
    // All or none: the first file that is in the way stops it before anything is written.
    if !args.force
        && let Some((path, _)) = places.iter().find(|(path, _)| path.exists())
    {
        return Err(files::in_the_way(path));
    }
    for (path, text) in &places {
        files::write(path, text, args.force)?;
    }
    Ok(places.into_iter().map(|(path, _)| path).collect())
}

/// `plan push`.
pub(crate) fn push(context: &Context, args: &PushArgs) -> Outcome {
    if args.path == Path::new("-") {
        return Err(Failure::usage("cannot write back to standard input")
            .hint("pass a file or folder instead of -"));
    }
    let (plan, states) = of_run(context, args.run.as_deref())?;
    let source = files::read(context, &args.path)?;
    let format = format_of(&args.format, &source)?;
    let (source, program) = asked(context, format, &args.path, source)?;
    let everything = Accept { all: true, ..Accept::default() };
    let imported = import::read(&source, format, &everything).map_err(refused)?;
    let push = planner_push::push(&imported, &states);
    let known: BTreeSet<&str> = imported.rows.iter().map(|row| row.ours.as_str()).collect();
    let strangers: Vec<&str> =
        plan.tasks.iter().map(|task| task.id.as_str()).filter(|id| !known.contains(id)).collect();
    if strangers.len() == plan.tasks.len() {
        return Err(Failure::new(format!("none of the run's tasks are in {}", source.name))
            .hint("pass the files that the plan was imported from"));
    }
    if let (false, Some(program)) = (args.dry_run, &program) {
        program.set(&imported, &push.changes)?;
    } else if !args.dry_run {
        files::rewrite(context, &source, &args.path, &apply(&source, &push.edits))?;
    }
    if context.global.json {
        print::out_json(&json!({
            "format": format.name(), "dry_run": args.dry_run,
            "changes": push.changes.iter().map(|change| json!({
                "theirs": change.theirs, "from": change.from.word(), "to": change.to.word(),
                "at": { "file": change.place.file, "line": change.place.line },
            })).collect::<Vec<_>>(),
            "notices": push.notices.iter().map(|notice| &notice.message).collect::<Vec<_>>(),
            "not_in_source": strangers,
        }))?;
        return Ok(exit_code::OK);
    }
    let mut out = String::new();
    for change in &push.changes {
        let (from, to) = (change.from.word(), change.to.word());
        let _ = writeln!(
            out,
            "{}: {from} → {to} ({})",
            print::harmless(&change.theirs),
            at(&source, &change.place)
        );
    }
    if push.changes.is_empty() {
        out.push_str("nothing to change\n");
    }
    print::out(&out)?;
    for notice in &push.notices {
        print::err(&format!(
            "note: {}: {}",
            at(&source, &notice.place),
            print::harmless(&notice.message)
        ));
    }
    if !strangers.is_empty() && !context.global.quiet {
        print::err(&format!("not in {}: {}", source.name, strangers.join(" ")));
    }
    Ok(exit_code::OK)
}
