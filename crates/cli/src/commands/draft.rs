//! `plan PRD.md`: has agents split a document into epics and plan each, then writes one plan. What to ask and
//! what answers are worth is the planner's business; asking is the engine's.

mod report;
mod view;

use std::path::{Path, PathBuf};

use mainstem_api::exit_code;
use mainstem_core::config::Settings;
use mainstem_core::plan::Plan;
use mainstem_core::plan::check::{Known, load_plan};
use mainstem_core::plan::doc::Format;
use mainstem_engine::draft::{DraftError, DraftRequest, DraftSession, output_name};
use mainstem_engine::prompts;
use mainstem_host::files::write_atomic;
use mainstem_host::git::Repo;
use mainstem_planner::draft::{
    Ask, Brought, Draft, Hand, PRD_BYTES_MAX, Part, PartState, Rest, Rules, Stand,
};
use mainstem_planner::gather::{Gathered, Options, gather};
use mainstem_planner::revise::{Changes, revise_gathered};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::report::Verdict;
use self::view::View;
use crate::args::DraftArgs;
use crate::commands::formats::{self, files};
use crate::context::{Context, environment, own_exe};
use crate::failure::{Failure, Outcome};
use crate::print;

/// Makes a plan from a PRD.
pub(crate) fn draft(context: &Context, args: &DraftArgs) -> Outcome {
    let repo = context.repo()?;
    let settings = context.settings(Some(&repo))?;
    let typed = args.prd.as_deref().unwrap_or(Path::new(""));
    let prd = read_prd(context, &repo, typed)?;
    formats::plan_text(&empty_plan(), &args.output)?;
    let rules = rules(args, &settings)?;
    if args.dry_run {
        return dry_run(context, args, &prd, &rules);
    }
    let (effort, fresh) = (args.effort.clone(), args.fresh);
    let request = DraftRequest { prd: prd.clone(), rules, effort, fresh };
    let surroundings = (own_exe()?, environment());
    let mut session = DraftSession::open(repo, settings.clone(), surroundings, request)?;
    let kept = answers_of_others(args, session.draft());
    if session.draft().is_complete()
        && let Some(kept) = &kept
    {
        return Err(Failure::new(format!("{} is already planned: {kept}", typed.display()))
            .hint("use --fresh to plan everything again with these options"));
    }
    let handle = session.handle();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::io("cannot install signal handlers", &error))?;
    std::thread::spawn(move || {
        while signals.forever().next().is_some() {
            handle.interrupt();
        }
    });
    let mut view = View::new(context, session.name().as_str());
    view.greet(session.draft(), typed);
    if let Some(kept) = kept {
        view.warn(&format!("{kept} will be reused; use --fresh to plan everything again"));
    }
    let before = mainstem_host::clock::now_ms();
    let rest = session.run(&mut view)?;
    view.wipe();
    let mut result = Verdict::new(&session, rest, before);
    if matches!(rest, Rest::Done | Rest::Partial | Rest::Parked) {
        result.end = finish(context, args, &settings, (&mut session, &mut view), (&prd, typed))?;
    }
    // Everything that happened is written before the last word.
    drop(view);
    result.show(context, session.draft(), &args.output)
}

/// How far the end of a draft got.
#[derive(Debug, Default)]
pub(super) struct End {
    gathered: Option<Gathered>,
    changes: Option<Changes>,
    written: bool,
    /// Why nothing was written.
    refused: Option<Failure>,
}

impl From<DraftError> for Failure {
    fn from(error: DraftError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            DraftError::Owned { .. } => {
                failure.hint("wait for that command, or interrupt it (its answers are kept)")
            }
            DraftError::Wall(error) => failure.hint(error.help()),
            _ => failure,
        }
    }
}

fn empty_plan() -> Plan {
    Plan { title: String::new(), epics: Vec::new(), tasks: Vec::new() }
}

/// The document: inside the repository, text, not empty, not endless.
fn read_prd(context: &Context, repo: &Repo, typed: &Path) -> Result<String, Failure> {
    let name = typed.display().to_string();
    let path = context.path(typed);
    let unreadable = |error: std::io::Error| Failure::io(format!("cannot read {name}"), &error);
    let real = path.canonicalize().map_err(unreadable)?;
    let top = repo.toplevel().unwrap_or_else(|| repo.dir());
    let inside = top.canonicalize().is_ok_and(|top| real.starts_with(top));
    if !inside {
        return Err(Failure::new(format!("{name} is outside the repository"))
            .hint("agents will see this file; copy it into the repository if that is intended"));
    }
    let size = std::fs::metadata(&real).map_err(unreadable)?.len();
    if size > PRD_BYTES_MAX as u64 {
        return Err(Failure::new(format!("{name} is larger than 1 MiB"))
            .hint("split the document and plan the parts one by one"));
    }
    let bytes = std::fs::read(&real).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{name}: byte {at} is not UTF-8")).hint("save the file as UTF-8")
    })?;
    if text.trim().is_empty() {
        return Err(Failure::new(format!("{name} is empty"))
            .hint("describe what to build, then run mainstem plan again"));
    }
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

fn rules(args: &DraftArgs, settings: &Settings) -> Result<Rules, Failure> {
    let names = match (args.agent.as_slice(), &settings.run.agent) {
        ([], Some(name)) => vec![name.clone()],
        ([], None) => {
            return Err(Failure::new("no agent to ask")
                .hint("use --agent NAME, or set run.agent; list agents: mainstem agents"));
        }
        (names, _) => names.to_vec(),
    };
    let mut hands = Vec::new();
    for name in names {
        let agent = settings.agents.get(&name).ok_or_else(|| {
            Failure::new(format!("unknown agent {name}"))
                .hint(format!("add [agents.{name}] to mainstem.toml; list agents: mainstem agents"))
        })?;
        if let Err(error) = mainstem_agents::adapter(&agent.kind) {
            return Err(Failure::new(format!("agent {name}: {error}")));
        }
        let idle = agent.kind == "script"
            || (agent.kind == "command" && agent.command.is_empty() && agent.preset.is_none());
        if idle {
            return Err(Failure::new(format!("agent {name} cannot plan: no command is set"))
                .hint(format!("set agents.{name}.command, or use another agent with --agent")));
        }
        let model = args.model.clone().or_else(|| agent.model.clone());
        let (provider, effort) = (agent.provider_of(&name), args.effort.clone());
        hands.push(Hand { provider, agent: name, model, effort });
    }
    Ok(Rules {
        hands,
        jobs: args.jobs.unwrap_or(settings.run.jobs),
        retries: args.retries,
        single_pass: args.single_pass,
        settings: settings.clone(),
    })
}

/// Answers that a draft has from others than those who were named for it now, in words; none if nobody was named.
fn answers_of_others(args: &DraftArgs, draft: &Draft) -> Option<String> {
    if args.agent.is_empty() && args.model.is_none() && args.effort.is_none() {
        return None;
    }
    let other = |(part, state): &(&Part, &PartState)| {
        let hand = draft.hand(part);
        let effort = args.effort.is_some() && state.effort != hand.effort;
        state.stand == Stand::Done
            && (state.agent != hand.agent || state.model != hand.model || effort)
    };
    let others: Vec<&PartState> =
        draft.parts().iter().filter(other).map(|(_, state)| state).collect();
    let first = others.first()?;
    let chosen = [("model", &first.model), ("effort", &first.effort)];
    let chosen =
        chosen.iter().filter_map(|(what, name)| Some(format!(" with {what} {}", name.as_ref()?)));
    let answers = print::count(others.len() as u64, "answer");
    Some(format!("{answers} by {}{}", first.agent, chosen.collect::<String>()))
}

/// Who would be asked for what, with which prompts.
fn dry_run(context: &Context, args: &DraftArgs, prd: &str, rules: &Rules) -> Outcome {
    let part = if args.single_pass { Part::Whole } else { Part::Shred };
    let output = output_name(&part);
    let ask = Ask {
        part: &part,
        prd,
        breakdown: None,
        problems: &[],
        previous: None,
        output: &output,
        bytes_max: prompts::bytes_max(&rules.settings),
    };
    let prompt = ask.prompt();
    let tokens = |bytes: usize| bytes.div_ceil(4);
    let agents: Vec<&str> = rules.hands.iter().map(|hand| hand.agent.as_str()).collect();
    let whole = prompt.brought == Brought::Whole;
    if context.global.json {
        print::out_json(&json!({
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
        print::count(u64::from(rules.retries), "time"),
        args.output.display()
    ));
    if context.global.verbose > 0 {
        out.push_str(&format!("\n{}", print::harmless(&prompt.text)));
    }
    print::out(&out)?;
    Ok(exit_code::OK)
}

/// Makes one plan of the answers and writes it, unless somebody else's work would be lost by it.
fn finish(
    context: &Context,
    args: &DraftArgs,
    settings: &Settings,
    (session, view): (&mut DraftSession, &mut View),
    (prd, typed): (&str, &Path),
) -> Result<End, Failure> {
    let mut end = End::default();
    let draft = session.draft();
    let answers = draft.answers();
    let Some(breakdown) = draft.breakdown().filter(|_| !answers.is_empty()) else { return Ok(end) };
    let (start_id, drop_circles) = (args.start_id, args.drop_circles);
    let options = Options { start_id, prd: Some(prd), drop_circles };
    let mut gathered = gather(breakdown, &answers, &options)
        .map_err(|error| Failure::new(format!("the answers do not form a valid plan: {error}")))?;
    gathered.plan.title = title(prd, typed);
    let path = context.path(&args.output);
    let there = std::fs::read(&path).ok();
    let old = there.as_ref().and_then(|_| context.plan(&args.output, settings).ok());
    if let Some(old) = &old {
        let (revised, changes) = revise_gathered(old, gathered);
        gathered = revised;
        end.changes = Some(changes);
    }
    let text = formats::plan_text(&gathered.plan, &args.output)?;
    let circles = !gathered.report.circles.is_empty() && !args.drop_circles;
    let kept = report::as_json(&gathered.report).to_string();
    end.gathered = Some(gathered);
    // What was decided on the way stays beside the answers; a plan is no worse without it.
    let _ = write_atomic(&session.folder().join("report.json"), kept.as_bytes());
    if circles {
        let failure = Failure::new("the plan has dependency cycles").hint(
            "drop the proposed edges: run again with --drop-circles (no agent is asked again)",
        );
        end.refused = Some(failure);
        return Ok(end);
    }
    check(&text, &args.output, settings)?;
    let name = path.display().to_string();
    if let Some(bytes) = &there
        && !args.force
        && bytes != text.as_bytes()
        && !session.has_written(&name, bytes)?
    {
        let failure = files::in_the_way(&args.output)
            .hint("the file was edited or not written by this command; use -o FILE to write elsewhere")
            .hint("answers are kept: no agent is asked again");
        end.refused = Some(failure);
        return Ok(end);
    }
    if let Some(changes) = &end.changes {
        view.changes(changes, end.gathered.as_ref().map(|gathered| &gathered.plan));
    }
    let tasks = end.gathered.as_ref().map_or(0, |gathered| gathered.plan.tasks.len());
    session.note_written(&name, &text, tasks, view)?;
    files::write(&path, &text, true)?;
    end.written = true;
    Ok(end)
}

/// What we write must be what we read.
fn check(text: &str, path: &Path, settings: &Settings) -> Result<(), Failure> {
    let name = path.display().to_string();
    let Some(format) = Format::from_path(&name) else { return Ok(()) };
    let known = Known { agents: &settings.agents, default_agent: settings.run.agent.as_deref() };
    match load_plan(text.as_bytes(), format, &known) {
        Ok(_) => Ok(()),
        Err(diagnostics) => Err(Failure::text(name, text.to_owned(), diagnostics)),
    }
}

/// The document's first heading, or its name.
fn title(prd: &str, typed: &Path) -> String {
    let heading = prd.lines().find_map(|line| line.strip_prefix("# "));
    let heading = heading.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    heading.unwrap_or_else(|| {
        typed.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    })
}

/// Where a call's prompt, log and answer are.
fn folder_of(session: &DraftSession, draft: &Draft, part: &Part) -> Option<PathBuf> {
    let calls = draft.parts().get(part)?.calls;
    (calls > 0).then(|| session.folder().join(part.to_string()).join(calls.to_string()))
}
