//! Plans from and for other tools: reads their files, prints what becomes what, writes ours or
//! theirs. What the files mean is the planner's business.

mod beads;
pub(crate) mod files;
mod forge_issues;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use mainstem_api::exit_code;
use mainstem_core::diagnostic::nearest_word;
use mainstem_core::graph::{Graph, GraphError};
use mainstem_core::phase::Phase;
use mainstem_core::plan::Plan;
use mainstem_planner::export::{self, ExportTarget, ExportedFiles, plan_to_toml};
use mainstem_planner::import::{
    self, FORMATS, ImportOptions, ImportOrder, ImportedPlan, SourceLocation, SourceTaskState,
    ToolFormat,
};
use mainstem_planner::import_source::{ImportSource, apply_edits};
use mainstem_planner::status_push as planner_push;
use mainstem_planner::suggest::{
    EdgeSuggestion, accept_suggestions, suggest_edges as suggestions_for,
};
use serde_json::{Value, json};

use crate::args::{ExportArgs, ImportArgs, ImportOrderArg, PushArgs, SuggestArgs};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// Rows of a report before the rest is only counted.
const ROWS_SHOWN: usize = 200;

pub(crate) fn cmd_import(context: &CliContext, args: &ImportArgs) -> CommandResult {
    let from_forge = args.format == "github" && forge_issues::is_repository(context, &args.path);
    let source = match from_forge {
        true => forge_issues::fetch_issues(context, &args.path, args.all)?,
        false => files::read_source(context, &args.path)?,
    };
    let format = choose_format(&args.format, &source)?;
    let (source, _) = read_beads_program(context, format, &args.path, source)?;
    let accepted = ImportOptions {
        commands: args.accept_commands,
        all: args.all,
        order: match args.order {
            ImportOrderArg::Needs => ImportOrder::Needs,
            ImportOrderArg::After => ImportOrder::After,
            ImportOrderArg::Free => ImportOrder::Free,
        },
    };
    let mut imported = import::import_plan(&source, format, &accepted).map_err(import_error)?;
    check_order(&imported, &source)?;
    let wanted = args.suggest || args.accept_suggestions;
    let suggestions = if wanted { suggestions_for(&imported.plan) } else { Vec::new() };
    if args.accept_suggestions {
        accept_suggestions(&mut imported.plan, &suggestions);
    }
    if args.dry_run {
        if context.global.json {
            output::write_json(&import_json(&imported, &suggestions, None))?;
        } else {
            output::write_stdout(&mapping_text(&imported, &source, &suggestions))?;
        }
        return Ok(exit_code::OK);
    }
    if let Some(output) = &args.output {
        let text = plan_text(&imported.plan, output)?;
        files::write_new_file(&context.resolve_path(output), &text, args.force)?;
    }
    if context.global.json {
        output::write_json(&import_json(&imported, &suggestions, args.output.as_deref()))?;
    } else if args.output.is_none() {
        output::write_stdout(&plan_to_toml(&imported.plan))?;
    }
    if !context.global.quiet && !context.global.json {
        output::write_stderr(print_import_notes(&imported, &source, &suggestions, args).trim_end());
    }
    Ok(exit_code::OK)
}

/// Beads' own program knows more than its files: it is asked where it is installed and a folder is named.
fn read_beads_program(
    context: &CliContext,
    format: ToolFormat,
    typed: &Path,
    source: ImportSource,
) -> Result<(ImportSource, Option<beads::BeadsProgram>), CliError> {
    let folder = context.resolve_path(typed);
    let program = beads::BeadsProgram::find(&folder).filter(|_| format == ToolFormat::Beads);
    match program {
        Some(program) => Ok((program.list_issues()?, Some(program))),
        None => Ok((source, None)),
    }
}

/// By its name, or by looking at the files.
fn choose_format(name: &str, source: &ImportSource) -> Result<ToolFormat, CliError> {
    if name.eq_ignore_ascii_case("auto") {
        return match import::detect_formats(source).as_slice() {
            [format] => Ok(*format),
            [] => Err(CliError::new(format!(
                "{}: cannot detect the format of these task files",
                source.name
            ))
            .with_hint(format!(
                "set the format: mainstem plan import FORMAT PATH; {}",
                format_names()
            ))),
            several => {
                let list: Vec<&str> = several.iter().map(|format| format.name()).collect();
                Err(CliError::new(format!("{}: ambiguous format, could be {}", source.name, list.join(" or ")))
                    .with_hint(
                        "set the format, or the folder of one of them: mainstem plan import FORMAT PATH",
                    ))
            }
        };
    }
    ToolFormat::from_name(name).ok_or_else(|| {
        let near = nearest_word(name, FORMATS.iter().map(|(_, known, _)| *known));
        let hint = near.map_or_else(format_names, |near| format!("did you mean {near}?"));
        CliError::usage_error(format!("unknown format {name}")).with_hint(hint)
    })
}

fn format_names() -> String {
    let list: Vec<&str> = FORMATS.iter().map(|(_, name, _)| *name).collect();
    format!("formats: {}", list.join(", "))
}

/// Files as they are on disk.
pub(crate) fn read_source(context: &CliContext, path: &Path) -> Result<ImportSource, CliError> {
    files::read_source(context, path)
}

pub(crate) fn import_error(refused: import::PlanImportError) -> CliError {
    CliError::source_error(refused.file, refused.text, refused.diagnostics)
}

/// Edges that go round are said with the places of their tasks.
fn check_order(imported: &ImportedPlan, source: &ImportSource) -> Result<(), CliError> {
    let Err(error) = Graph::new(&imported.plan) else { return Ok(()) };
    let mut failure = CliError::new(format!("{}: the tasks have a dependency cycle", source.name));
    if let GraphError::Cycle(path) = &error {
        let ids: Vec<&str> =
            path.iter().map(|t| imported.plan.tasks[t.index()].id.as_str()).collect();
        let round: Vec<&str> = ids.iter().chain(ids.first()).copied().collect();
        failure.causes.push(format!("dependency cycle: {}", round.join(" → ")));
        let known: BTreeSet<&str> = ids.into_iter().collect();
        for row in imported.rows.iter().filter(|row| known.contains(row.ours.as_str())) {
            failure.causes.push(format!("{} is {}", row.ours, location_text(source, &row.place)));
        }
    } else {
        failure.causes.push(error.to_string());
    }
    Err(failure.with_hint("remove one of these dependencies, or use --order free if they come from the order of tasks"))
}

fn location_text(source: &ImportSource, place: &SourceLocation) -> String {
    format!("{}:{}", source.full_path(&place.file), place.line)
}

/// A plan in the syntax that the file's name promises.
pub(crate) fn plan_text(plan: &Plan, path: &Path) -> Result<String, CliError> {
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
    match end.as_deref() {
        Some("toml") => Ok(plan_to_toml(plan)),
        Some("json") => {
            let out = export::export_plan(
                plan,
                &BTreeMap::new(),
                ExportTarget::Json,
                &export::ExportOptions::default(),
            );
            let out = out.map_err(|error| CliError::new(error.to_string()))?;
            Ok(out.files.into_iter().map(|(_, text)| text).collect())
        }
        _ => Err(CliError::usage_error(format!(
            "{}: plans can be written as .toml or .json only",
            path.display()
        ))
        .with_hint("for example -o plan.toml")),
    }
}

/// The mapping for people: what becomes what, what is left out, what would be lost.
fn mapping_text(
    imported: &ImportedPlan,
    source: &ImportSource,
    suggestions: &[EdgeSuggestion],
) -> String {
    let mut rows = vec![["THEIRS", "STATE", "OURS", "AT", "TITLE"].map(str::to_owned).to_vec()];
    for row in imported.rows.iter().take(ROWS_SHOWN) {
        rows.push(vec![
            output::sanitize_text(&row.theirs),
            row.state.as_str().to_owned(),
            if row.kept { row.ours.clone() } else { "–".to_owned() },
            location_text(source, &row.place),
            output::truncate_to_width(&output::sanitize_text(&row.title), 60),
        ]);
    }
    let mut out = output::format_table(&rows);
    let more = imported.rows.len().saturating_sub(ROWS_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "… and {more} more; --json lists them all");
    }
    out.push('\n');
    out.push_str(&import_summary(imported));
    for (field, lost) in &imported.lost {
        let place = location_text(source, &lost.first);
        let field = output::sanitize_text(field);
        let _ = writeln!(
            out,
            "dropped: {field} ({}, first {place}); kept in the source",
            output::count_noun(lost.count as u64, "time")
        );
    }
    for command in &imported.commands {
        let text = output::sanitize_text(&command.text).replace('\n', " ");
        let _ = writeln!(
            out,
            "command: {} in {} ({})",
            text,
            command.task,
            location_text(source, &command.place)
        );
    }
    if !imported.commands.is_empty() {
        out.push_str("commands stay text; use --accept-commands to turn them into checks\n");
    }
    write_notices(&mut out, imported, source);
    write_suggestions(&mut out, suggestions);
    out
}

fn import_summary(imported: &ImportedPlan) -> String {
    let kept = imported.plan.tasks.len();
    let edges: usize = imported.plan.tasks.iter().map(|t| t.needs.len() + t.after.len()).sum();
    format!(
        "{}: {kept} of {}, {}, {}\n",
        imported.format.name(),
        output::count_noun(imported.rows.len() as u64, "task"),
        output::count_noun(edges as u64, "edge"),
        output::count_noun(imported.plan.epics.len() as u64, "epic"),
    )
}

fn write_notices(out: &mut String, imported: &ImportedPlan, source: &ImportSource) {
    for notice in imported.notices.iter().take(ROWS_SHOWN) {
        let message = output::sanitize_text(&notice.message);
        let _ = writeln!(out, "note: {}: {message}", location_text(source, &notice.place));
    }
}

fn write_suggestions(out: &mut String, suggestions: &[EdgeSuggestion]) {
    for suggestion in suggestions {
        let EdgeSuggestion { task, needs, reason } = suggestion;
        let _ =
            writeln!(out, "suggestion: {task} needs {needs}: {}", output::sanitize_text(reason));
    }
}

/// What a person should know after an import, for standard error.
fn print_import_notes(
    imported: &ImportedPlan,
    source: &ImportSource,
    suggestions: &[EdgeSuggestion],
    args: &ImportArgs,
) -> String {
    let mut out = import_summary(imported);
    write_notices(&mut out, imported, source);
    write_suggestions(&mut out, suggestions);
    let count = imported.commands.len();
    if count > 0 && !args.accept_commands {
        let _ = writeln!(
            out,
            "{} found; use --accept-commands to turn commands into checks",
            output::count_noun(count as u64, "command")
        );
    }
    if !imported.lost.is_empty() {
        let fields: Vec<String> =
            imported.lost.keys().map(|field| output::sanitize_text(field)).collect();
        let _ = writeln!(out, "not in the plan: {}", fields.join(", "));
    }
    if let Some(output) = &args.output {
        let _ = writeln!(out, "wrote {}; next: mainstem plan check {0}", output.display());
    }
    out
}

/// The same for programs.
fn import_json(
    imported: &ImportedPlan,
    suggestions: &[EdgeSuggestion],
    written: Option<&Path>,
) -> Value {
    let place = |place: &SourceLocation| json!({ "file": place.file, "line": place.line });
    json!({
        "format": imported.format.name(),
        "title": imported.plan.title,
        "tasks": imported.plan.tasks.len(),
        "rows": imported.rows.iter().map(|row| json!({
            "theirs": row.theirs, "ours": row.ours, "title": row.title,
            "state": row.state.as_str(), "kept": row.kept, "at": place(&row.place),
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

fn suggestion_json(suggestion: &EdgeSuggestion) -> Value {
    json!({ "task": suggestion.task, "needs": suggestion.needs, "reason": suggestion.reason })
}

pub(crate) fn cmd_suggest(context: &CliContext, args: &SuggestArgs) -> CommandResult {
    let settings = context.load_settings(context.open_repo().ok().as_ref())?;
    let mut plan = context.read_plan(&args.file, &settings)?;
    let found = suggestions_for(&plan);
    if let Some(output) = &args.output {
        accept_suggestions(&mut plan, &found);
        let text = plan_text(&plan, output)?;
        files::write_new_file(&context.resolve_path(output), &text, args.force)?;
    }
    if context.global.json {
        output::write_json(&found.iter().map(suggestion_json).collect::<Vec<_>>())?;
    } else {
        let mut out = String::new();
        write_suggestions(&mut out, &found);
        if found.is_empty() {
            out.push_str("no suggestions\n");
        }
        output::write_stdout(&out)?;
    }
    Ok(exit_code::OK)
}

/// Where a run's tasks stand, in the words that all formats share.
fn source_state(phase: Phase) -> SourceTaskState {
    match phase {
        Phase::Landed => SourceTaskState::Done,
        Phase::Skipped => SourceTaskState::Dropped,
        Phase::Preparing | Phase::Working | Phase::Asking | Phase::Verifying | Phase::Merging => {
            SourceTaskState::Doing
        }
        Phase::Conflicted | Phase::Failed | Phase::Blocked => SourceTaskState::Blocked,
        Phase::Waiting | Phase::Ready | Phase::Cancelled => SourceTaskState::Open,
    }
}

/// The plan of a run and where its tasks stand.
fn plan_of_run(
    context: &CliContext,
    run: Option<&str>,
) -> Result<(Plan, BTreeMap<String, SourceTaskState>), CliError> {
    let (_, _, look) = context.open_existing_run(run)?;
    let machine = &look.machine;
    let states = machine.tasks().all_tasks().map(|t| {
        let id = machine.plan().tasks[t.index()].id.to_string();
        (id, source_state(machine.tasks().phase(t)))
    });
    Ok((machine.plan().clone(), states.collect()))
}

pub(crate) fn cmd_export(context: &CliContext, args: &ExportArgs) -> CommandResult {
    let target = ExportTarget::from_name(&args.format).ok_or_else(|| {
        let names = ExportTarget::names();
        let near = nearest_word(&args.format, names.iter().copied());
        let hint = near.map_or_else(
            || format!("formats: {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        CliError::usage_error(format!("unknown format {}", args.format)).with_hint(hint)
    })?;
    let (plan, states) = match &args.plan {
        Some(file) => {
            let settings = context.load_settings(context.open_repo().ok().as_ref())?;
            let plan = context.read_plan(file, &settings)?;
            let states = match &args.run {
                Some(run) => plan_of_run(context, Some(run))?.1,
                None => BTreeMap::new(),
            };
            (plan, states)
        }
        None => plan_of_run(context, args.run.as_deref())?,
    };
    let options = export::ExportOptions { start_id: args.start_id };
    let out = export::export_plan(&plan, &states, target, &options)
        .map_err(|error| CliError::new(format!("cannot export the plan: {error}")))?;
    let written = write_export(context, args, &out)?;
    if context.global.json && args.output.is_some() {
        output::write_json(&json!({ "files": written, "ids": out.ids, "lost": out.lost }))?;
    } else if !context.global.quiet {
        for lost in &out.lost {
            output::write_stderr(&format!("not supported by this format: {lost}"));
        }
        let renamed: Vec<String> =
            out.ids.iter().map(|(ours, theirs)| format!("{ours} → {theirs}")).collect();
        if !renamed.is_empty() {
            output::write_stderr(&format!(
                "ids that differ in this format: {}",
                renamed.join(", ")
            ));
        }
        if !written.is_empty() {
            output::write_stderr(&format!(
                "wrote {}",
                output::count_noun(written.len() as u64, "file")
            ));
        }
    }
    Ok(exit_code::OK)
}

fn write_export(
    context: &CliContext,
    args: &ExportArgs,
    out: &ExportedFiles,
) -> Result<Vec<PathBuf>, CliError> {
    let Some(typed) = &args.output else {
        let [(_, text)] = out.files.as_slice() else {
            return Err(CliError::usage_error(format!(
                "format {} writes several files",
                args.format
            ))
            .with_hint("set a folder: -o FOLDER"));
        };
        output::write_stdout(text)?;
        return Ok(Vec::new());
    };
    let output = context.resolve_path(typed);
    let folder = output.is_dir() || typed.to_string_lossy().ends_with('/');
    let places: Vec<(PathBuf, &String)> = match out.files.as_slice() {
        [(_, text)] if !folder => vec![(output, text)],
        files => files.iter().map(|(path, text)| (output.join(path), text)).collect(),
    };
    // All or none: the first file that is in the way stops it before anything is written.
    if !args.force
        && let Some((path, _)) = places.iter().find(|(path, _)| path.exists())
    {
        return Err(files::file_exists_error(path));
    }
    for (path, text) in &places {
        files::write_new_file(path, text, args.force)?;
    }
    Ok(places.into_iter().map(|(path, _)| path).collect())
}

pub(crate) fn cmd_push(context: &CliContext, args: &PushArgs) -> CommandResult {
    if args.path == Path::new("-") {
        return Err(CliError::usage_error("cannot write back to standard input")
            .with_hint("pass a file or folder instead of -"));
    }
    let (plan, states) = plan_of_run(context, args.run.as_deref())?;
    let source = files::read_source(context, &args.path)?;
    let format = choose_format(&args.format, &source)?;
    let (source, program) = read_beads_program(context, format, &args.path, source)?;
    let everything = ImportOptions { all: true, ..ImportOptions::default() };
    let imported = import::import_plan(&source, format, &everything).map_err(import_error)?;
    let push = planner_push::plan_status_push(&imported, &states);
    let known: BTreeSet<&str> = imported.rows.iter().map(|row| row.ours.as_str()).collect();
    let strangers: Vec<&str> =
        plan.tasks.iter().map(|task| task.id.as_str()).filter(|id| !known.contains(id)).collect();
    if strangers.len() == plan.tasks.len() {
        return Err(CliError::new(format!("none of the run's tasks are in {}", source.name))
            .with_hint("pass the files that the plan was imported from"));
    }
    if let (false, Some(program)) = (args.dry_run, &program) {
        program.set_states(&imported, &push.changes)?;
    } else if !args.dry_run {
        files::rewrite_files(context, &source, &args.path, &apply_edits(&source, &push.edits))?;
    }
    if context.global.json {
        output::write_json(&json!({
            "format": format.name(), "dry_run": args.dry_run,
            "changes": push.changes.iter().map(|change| json!({
                "theirs": change.theirs, "from": change.from.as_str(), "to": change.to.as_str(),
                "at": { "file": change.place.file, "line": change.place.line },
            })).collect::<Vec<_>>(),
            "notices": push.notices.iter().map(|notice| &notice.message).collect::<Vec<_>>(),
            "not_in_source": strangers,
        }))?;
        return Ok(exit_code::OK);
    }
    let mut out = String::new();
    for change in &push.changes {
        let (from, to) = (change.from.as_str(), change.to.as_str());
        let _ = writeln!(
            out,
            "{}: {from} → {to} ({})",
            output::sanitize_text(&change.theirs),
            location_text(&source, &change.place)
        );
    }
    if push.changes.is_empty() {
        out.push_str("nothing to change\n");
    }
    output::write_stdout(&out)?;
    for notice in &push.notices {
        output::write_stderr(&format!(
            "note: {}: {}",
            location_text(&source, &notice.place),
            output::sanitize_text(&notice.message)
        ));
    }
    if !strangers.is_empty() && !context.global.quiet {
        output::write_stderr(&format!("not in {}: {}", source.name, strangers.join(" ")));
    }
    Ok(exit_code::OK)
}
