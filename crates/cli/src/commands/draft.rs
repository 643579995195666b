//! `plan PRD.md`: has agents split a document into epics and plan each, then writes one plan. What to ask and
//! what answers are worth is the planner's business; asking is the engine's.

mod report;
mod live_view;

use std::path::{Path, PathBuf};

use mainstem_api::exit_code;
use mainstem_core::config::Settings;
use mainstem_core::plan::Plan;
use mainstem_core::plan::check::{PlanCheckContext, load_plan};
use mainstem_core::plan::document::DocumentFormat;
use mainstem_engine::draft::{DraftError, DraftRequest, DraftRunner, answer_file_name};
use mainstem_engine::prompt_template;
use mainstem_host::files::write_atomic;
use mainstem_host::git::Repo;
use mainstem_planner::draft::{
    Draft, DraftAgent, DraftOutcome, DraftPart, DraftPartPhase, DraftPartState, DraftPromptInput,
    DraftRules, PRD_BYTES_MAX, PrdExtent,
};
use mainstem_planner::plan_assembly::{AssembledPlan, AssemblyOptions, assemble_plan};
use mainstem_planner::revise::{PlanChanges, revise_assembled_plan};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::live_view::DraftLiveView;
use self::report::DraftReport;
use crate::args::DraftArgs;
use crate::commands::plan_formats::{self, files};
use crate::context::{CliContext, own_executable, text_environment};
use crate::error::{CliError, CommandResult};
use crate::output;

/// Makes a plan from a PRD.
pub(crate) fn cmd_draft(context: &CliContext, args: &DraftArgs) -> CommandResult {
    let repo = context.open_repo()?;
    let settings = context.load_settings(Some(&repo))?;
    let typed = args.prd.as_deref().unwrap_or(Path::new(""));
    let prd = read_prd(context, &repo, typed)?;
    plan_formats::plan_text(&empty_plan(), &args.output)?;
    let rules = draft_rules(args, &settings)?;
    if args.dry_run {
        return dry_run(context, args, &prd, &rules);
    }
    let (effort, fresh) = (args.effort.clone(), args.fresh);
    let request = DraftRequest { prd: prd.clone(), rules, effort, fresh };
    let surroundings = (own_executable()?, text_environment());
    let mut session = DraftRunner::open(repo, settings.clone(), surroundings, request)?;
    let kept = foreign_answers_text(args, session.draft());
    if session.draft().is_complete()
        && let Some(kept) = &kept
    {
        return Err(CliError::new(format!("{} is already planned: {kept}", typed.display()))
            .with_hint("use --fresh to plan everything again with these options"));
    }
    let handle = session.handle();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| CliError::io_error("cannot install signal handlers", &error))?;
    std::thread::spawn(move || {
        while signals.forever().next().is_some() {
            handle.interrupt();
        }
    });
    let mut view = DraftLiveView::new(context, session.run_id().as_str());
    view.print_greeting(session.draft(), typed);
    if let Some(kept) = kept {
        view.print_warning(&format!("{kept} will be reused; use --fresh to plan everything again"));
    }
    let before = mainstem_host::clock::now_ms();
    let rest = session.run(&mut view)?;
    view.clear_table();
    let mut result = DraftReport::new(&session, rest, before);
    if matches!(rest, DraftOutcome::Done | DraftOutcome::Partial | DraftOutcome::Parked) {
        result.end =
            finish_draft(context, args, &settings, (&mut session, &mut view), (&prd, typed))?;
    }
    // Everything that happened is written before the last word.
    drop(view);
    result.print_report(context, session.draft(), &args.output)
}

/// How far the end of a draft got.
#[derive(Debug, Default)]
pub(super) struct DraftFinish {
    gathered: Option<AssembledPlan>,
    changes: Option<PlanChanges>,
    written: bool,
    /// Why nothing was written.
    refused: Option<CliError>,
}

impl From<DraftError> for CliError {
    fn from(error: DraftError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            DraftError::Owned { .. } => {
                failure.with_hint("wait for that command, or interrupt it (its answers are kept)")
            }
            DraftError::Wall(error) => failure.with_hint(error.help()),
            _ => failure,
        }
    }
}

fn empty_plan() -> Plan {
    Plan { title: String::new(), epics: Vec::new(), tasks: Vec::new() }
}

/// The document: inside the repository, text, not empty, not endless.
fn read_prd(context: &CliContext, repo: &Repo, typed: &Path) -> Result<String, CliError> {
    let name = typed.display().to_string();
    let path = context.resolve_path(typed);
    let unreadable =
        |error: std::io::Error| CliError::io_error(format!("cannot read {name}"), &error);
    let real = path.canonicalize().map_err(unreadable)?;
    let top = repo.toplevel().unwrap_or_else(|| repo.dir());
    let inside = top.canonicalize().is_ok_and(|top| real.starts_with(top));
    if !inside {
        return Err(CliError::new(format!("{name} is outside the repository")).with_hint(
            "agents will see this file; copy it into the repository if that is intended",
        ));
    }
    let size = std::fs::metadata(&real).map_err(unreadable)?.len();
    if size > PRD_BYTES_MAX as u64 {
        return Err(CliError::new(format!("{name} is larger than 1 MiB"))
            .with_hint("split the document and plan the parts one by one"));
    }
    let bytes = std::fs::read(&real).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::new(format!("{name}: byte {at} is not UTF-8")).with_hint("save the file as UTF-8")
    })?;
    if text.trim().is_empty() {
        return Err(CliError::new(format!("{name} is empty"))
            .with_hint("describe what to build, then run mainstem plan again"));
    }
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

fn draft_rules(args: &DraftArgs, settings: &Settings) -> Result<DraftRules, CliError> {
    let names = match (args.agent.as_slice(), &settings.run.agent) {
        ([], Some(name)) => vec![name.clone()],
        ([], None) => {
            return Err(CliError::new("no agent to ask")
                .with_hint("use --agent NAME, or set run.agent; list agents: mainstem agents"));
        }
        (names, _) => names.to_vec(),
    };
    let mut hands = Vec::new();
    for name in names {
        let agent = settings.agents.get(&name).ok_or_else(|| {
            CliError::new(format!("unknown agent {name}")).with_hint(format!(
                "add [agents.{name}] to mainstem.toml; list agents: mainstem agents"
            ))
        })?;
        if let Err(error) = mainstem_agents::find_adapter(&agent.kind) {
            return Err(CliError::new(format!("agent {name}: {error}")));
        }
        let idle = agent.kind == "script"
            || (agent.kind == "command" && agent.command.is_empty() && agent.preset.is_none());
        if idle {
            return Err(CliError::new(format!("agent {name} cannot plan: no command is set"))
                .with_hint(format!(
                    "set agents.{name}.command, or use another agent with --agent"
                )));
        }
        let model = args.model.clone().or_else(|| agent.model.clone());
        let (provider, effort) = (agent.provider_name(&name), args.effort.clone());
        hands.push(DraftAgent { provider, agent: name, model, effort });
    }
    Ok(DraftRules {
        hands,
        jobs: args.jobs.unwrap_or(settings.run.jobs),
        retries: args.retries,
        single_pass: args.single_pass,
        settings: settings.clone(),
    })
}

/// Answers that a draft has from others than those who were named for it now, in words; none if nobody was named.
fn foreign_answers_text(args: &DraftArgs, draft: &Draft) -> Option<String> {
    if args.agent.is_empty() && args.model.is_none() && args.effort.is_none() {
        return None;
    }
    let other = |(part, state): &(&DraftPart, &DraftPartState)| {
        let hand = draft.agent_for(part);
        let effort = args.effort.is_some() && state.effort != hand.effort;
        state.phase == DraftPartPhase::Done
            && (state.agent != hand.agent || state.model != hand.model || effort)
    };
    let others: Vec<&DraftPartState> =
        draft.parts().iter().filter(other).map(|(_, state)| state).collect();
    let first = others.first()?;
    let chosen = [("model", &first.model), ("effort", &first.effort)];
    let chosen =
        chosen.iter().filter_map(|(what, name)| Some(format!(" with {what} {}", name.as_ref()?)));
    let answers = output::count_noun(others.len() as u64, "answer");
    Some(format!("{answers} by {}{}", first.agent, chosen.collect::<String>()))
}

/// Who would be asked for what, with which prompts.
fn dry_run(context: &CliContext, args: &DraftArgs, prd: &str, rules: &DraftRules) -> CommandResult {
    let part = if args.single_pass { DraftPart::Whole } else { DraftPart::Shred };
    let output = answer_file_name(&part);
    let ask = DraftPromptInput {
        part: &part,
        prd,
        breakdown: None,
        problems: &[],
        previous: None,
        output: &output,
        bytes_max: prompt_template::max_prompt_bytes(&rules.settings),
    };
    let prompt = ask.build_prompt();
    let tokens = |bytes: usize| bytes.div_ceil(4);
    let agents: Vec<&str> = rules.hands.iter().map(|hand| hand.agent.as_str()).collect();
    let whole = prompt.brought == PrdExtent::Whole;
    if context.global.json {
        output::write_json(&json!({
            "dry_run": true, "prd_tokens": tokens(prd.len()), "prompt_tokens": tokens(prompt.text.len()),
            "budget_tokens": rules.settings.prompt.tokens, "whole_document": whole,
            "agents": agents, "jobs": rules.jobs, "retries": rules.retries,
            "stages": if args.single_pass { json!(["whole"]) } else { json!(["shred", "scatter", "gather"]) },
            "output": args.output, "prompt": prompt.text,
        }))?;
        return Ok(exit_code::OK);
    }
    let mut out = format!(
        "document: about {} tokens; prompt limit {} (prompt.tokens)\n",
        tokens(prd.len()),
        rules.settings.prompt.tokens
    );
    out.push_str(&format!(
        "would ask {}: {}, about {} tokens{}\n",
        agents[0],
        if args.single_pass { "epics and tasks, one prompt" } else { "1. epics, one prompt" },
        tokens(prompt.text.len()),
        if whole { "" } else { ", the document shortened" }
    ));
    if !args.single_pass {
        out.push_str(&format!(
            "would ask {}: 2. tasks of each epic, about {} tokens each, {} at a time\n",
            agents.join(", "),
            tokens(prompt.text.len()),
            rules.jobs
        ));
    }
    out.push_str(&format!(
        "an invalid answer is retried at most {}\nwould write {}\n",
        output::count_noun(u64::from(rules.retries), "time"),
        args.output.display()
    ));
    if context.global.verbose > 0 {
        out.push_str(&format!("\n{}", output::sanitize_text(&prompt.text)));
    }
    output::write_stdout(&out)?;
    Ok(exit_code::OK)
}

/// Makes one plan of the answers and writes it, unless somebody else's work would be lost by it.
fn finish_draft(
    context: &CliContext,
    args: &DraftArgs,
    settings: &Settings,
    (session, view): (&mut DraftRunner, &mut DraftLiveView),
    (prd, typed): (&str, &Path),
) -> Result<DraftFinish, CliError> {
    let mut end = DraftFinish::default();
    let draft = session.draft();
    let answers = draft.answers();
    let Some(breakdown) = draft.breakdown().filter(|_| !answers.is_empty()) else { return Ok(end) };
    let (start_id, drop_circles) = (args.start_id, args.drop_circles);
    let options = AssemblyOptions { start_id, prd: Some(prd), drop_circles };
    let mut gathered = assemble_plan(breakdown, &answers, &options)
        .map_err(|error| CliError::new(format!("the answers do not form a valid plan: {error}")))?;
    gathered.plan.title = prd_title(prd, typed);
    let path = context.resolve_path(&args.output);
    let there = std::fs::read(&path).ok();
    let old = there.as_ref().and_then(|_| context.read_plan(&args.output, settings).ok());
    if let Some(old) = &old {
        let (revised, changes) = revise_assembled_plan(old, gathered);
        gathered = revised;
        end.changes = Some(changes);
    }
    let text = plan_formats::plan_text(&gathered.plan, &args.output)?;
    let circles = !gathered.report.circles.is_empty() && !args.drop_circles;
    let kept = report::assembly_report_json(&gathered.report).to_string();
    end.gathered = Some(gathered);
    // What was decided on the way stays beside the answers; a plan is no worse without it.
    let _ = write_atomic(&session.folder().join("report.json"), kept.as_bytes());
    if circles {
        let failure = CliError::new("the plan has dependency cycles").with_hint(
            "drop the proposed edges: run again with --drop-circles (no agent is asked again)",
        );
        end.refused = Some(failure);
        return Ok(end);
    }
    check_plan_text(&text, &args.output, settings)?;
    let name = path.display().to_string();
    if let Some(bytes) = &there
        && !args.force
        && bytes != text.as_bytes()
        && !session.has_written_plan(&name, bytes)?
    {
        let failure = files::file_exists_error(&args.output)
            .with_hint("the file was edited or not written by this command; use -o FILE to write elsewhere")
            .with_hint("answers are kept: no agent is asked again");
        end.refused = Some(failure);
        return Ok(end);
    }
    if let Some(changes) = &end.changes {
        view.print_changes(changes, end.gathered.as_ref().map(|gathered| &gathered.plan));
    }
    let tasks = end.gathered.as_ref().map_or(0, |gathered| gathered.plan.tasks.len());
    session.record_written_plan(&name, &text, tasks, view)?;
    files::write_new_file(&path, &text, true)?;
    end.written = true;
    Ok(end)
}

/// What we write must be what we read.
fn check_plan_text(text: &str, path: &Path, settings: &Settings) -> Result<(), CliError> {
    let name = path.display().to_string();
    let Some(format) = DocumentFormat::from_path(&name) else { return Ok(()) };
    let known =
        PlanCheckContext { agents: &settings.agents, default_agent: settings.run.agent.as_deref() };
    match load_plan(text.as_bytes(), format, &known) {
        Ok(_) => Ok(()),
        Err(diagnostics) => Err(CliError::source_error(name, text.to_owned(), diagnostics)),
    }
}

/// The document's first heading, or its name.
fn prd_title(prd: &str, typed: &Path) -> String {
    let heading = prd.lines().find_map(|line| line.strip_prefix("# "));
    let heading = heading.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    heading.unwrap_or_else(|| {
        typed.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    })
}

/// Where a call's prompt, log and answer are.
fn call_folder(session: &DraftRunner, draft: &Draft, part: &DraftPart) -> Option<PathBuf> {
    let calls = draft.parts().get(part)?.calls;
    (calls > 0).then(|| session.folder().join(part.to_string()).join(calls.to_string()))
}
