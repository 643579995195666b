//! The line stream: one line per thing that happened, a footer that moves on a terminal, and the
//! same summary at the end of every way out.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use mainstem_api::{fact_line, time};
use mainstem_core::fact::{Fact, LimitKind, Verdict};
use mainstem_core::id::{Oid, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::review::{Opinion, Outcome};
use mainstem_engine::face::{Face, Shown};

use crate::commands::show;
use crate::pen::{Pen, Sheet};
use crate::print;

/// How often the footer is redrawn.
const FOOTER_EVERY_MS: i64 = 200;

/// Shows a run as lines.
pub(crate) struct Stream {
    json: bool,
    quiet: bool,
    verbose: bool,
    color: bool,
    footer: bool,
    drawn: bool,
    drawn_at: i64,
    began: i64,
    pen: Pen,
}

impl Stream {
    /// For this output.
    pub(crate) fn new(json: bool, quiet: bool, verbose: bool, color: bool) -> Self {
        let footer = !json && !quiet && std::io::stderr().is_terminal();
        let began = mainstem_host::clock::now_ms();
        let pen = Pen::new();
        Self { json, quiet, verbose, color, footer, drawn: false, drawn_at: 0, began, pen }
    }

    fn line(&mut self, at: Time, sign: &str, style: Style, task: &str, words: &str) {
        self.wipe();
        let clock = time::to_rfc3339(at.0);
        let clock = clock.get(11..19).unwrap_or_default();
        let sign = print::paint(sign, style, self.color);
        let task = print::pad(task, 10);
        self.pen.write(Sheet::Err, format!("{clock}  {sign} {task} {}\n", print::harmless(words)));
    }

    /// Takes the footer away before a line is printed.
    pub(crate) fn wipe(&mut self) {
        if self.drawn {
            self.pen.write(Sheet::Err, "\r\x1b[2K".to_owned());
            self.drawn = false;
        }
    }
}

impl Face for Stream {
    fn fact(&mut self, shown: &Shown<'_>, machine: &Machine) {
        if self.json {
            if let Ok(line) = fact_line(shown.seq, shown.at.0, shown.run.as_str(), shown.body) {
                self.pen.write(Sheet::Out, format!("{line}\n"));
            }
            return;
        }
        if self.quiet {
            return;
        }
        if let Some((sign, style, words)) = words_of(shown.fact, machine, self.verbose) {
            let task = shown.fact.task().map(ToString::to_string).unwrap_or_default();
            self.line(shown.at, sign, style, &task, &words);
        }
    }

    fn tick(&mut self, machine: &Machine) {
        let now = mainstem_host::clock::now_ms();
        if !self.footer || now - self.drawn_at < FOOTER_EVERY_MS {
            return;
        }
        self.drawn_at = now;
        let text = footer(machine, self.began, now);
        let text = print::clip(&text, print::width().saturating_sub(1));
        let text = print::paint(&text, Style::new().bold(), self.color);
        self.pen.write(Sheet::Err, format!("\r\x1b[2K{text}"));
        self.drawn = true;
    }
}

/// The footer: how far, who works, what waits, money, and when it may be over.
fn footer(machine: &Machine, began: i64, now: i64) -> String {
    let tasks = machine.tasks();
    let count = |phase| tasks.count(phase);
    let total = machine.plan().tasks.len();
    let over = count(Phase::Landed) + count(Phase::Skipped);
    let working = count(Phase::Preparing) + count(Phase::Working);
    let mut parts = vec![
        format!("[{over}/{total}]"),
        format!("running {working}/{}", machine.jobs()),
        format!("ready {}", count(Phase::Ready)),
        format!("waiting {}", count(Phase::Waiting)),
    ];
    let checking = count(Phase::Verifying) + count(Phase::Boarding);
    if checking > 0 {
        parts.push(format!("train {checking}"));
    }
    if count(Phase::Asking) > 0 {
        parts.push(format!("asking {}", count(Phase::Asking)));
    }
    let bad = count(Phase::Failed) + count(Phase::Conflicted) + count(Phase::Blocked);
    if bad > 0 {
        parts.push(format!("failed {bad}"));
    }
    if machine.spent_usd() > 0.0 {
        parts.push(format!("${:.2}", machine.spent_usd()));
    }
    if machine.is_paused() {
        parts.push("paused".to_owned());
    }
    parts.extend(waits(machine, now));
    let elapsed = u64::try_from(now - began).unwrap_or(0);
    parts.push(print::duration(elapsed));
    if over > 0 && usize::try_from(over).is_ok_and(|over| over < total) {
        let left = elapsed / u64::from(over) * (total as u64 - u64::from(over));
        parts.push(format!("about {} left", print::duration(left)));
    }
    parts.join(" · ")
}

/// What is waited for, each with a countdown.
fn waits(machine: &Machine, now: i64) -> Vec<String> {
    let left = |until: Time| print::duration(u64::try_from(until.0 - now).unwrap_or(0));
    let auto_resume = machine.settings().limits.auto_resume;
    let mut waits = Vec::new();
    for (provider, known) in machine.providers() {
        match known.rests_until(Time(now), auto_resume) {
            Some(Some(until)) => waits.push(format!("{provider} waits {}", left(until))),
            Some(None) => waits.push(format!("{provider} waits for mainstem resume")),
            None => {}
        }
    }
    waits.extend(machine.quiet_until().map(|until| format!("quiet for {}", left(until))));
    waits
}

type Words = (&'static str, Style, String);

fn in_phase(phase: Phase, words: String) -> Option<Words> {
    Some((print::sign(phase), print::style(phase), words))
}

fn plain(sign: &'static str, words: String) -> Option<Words> {
    Some((sign, Style::new(), words))
}

fn warning(sign: &'static str, words: String) -> Option<Words> {
    Some((sign, Style::new().fg_color(Some(AnsiColor::Yellow.into())), words))
}

fn short(oid: &Oid) -> &str {
    oid.as_str().get(..9).unwrap_or(oid.as_str())
}

/// A fact as one line; none if only the curious want it.
pub(crate) fn words_of(fact: &Fact, machine: &Machine, verbose: bool) -> Option<Words> {
    of_run(fact, verbose)
        .or_else(|| of_attempt(fact, machine, verbose))
        .or_else(|| of_provider(fact, machine))
        .or_else(|| of_remark(fact, verbose))
        .or_else(|| of_gates(fact, verbose))
        .or_else(|| of_review(fact, verbose))
        .or_else(|| of_train(fact, verbose))
        .or_else(|| of_pull(fact, verbose))
        .or_else(|| of_task(fact))
}

fn of_run(fact: &Fact, verbose: bool) -> Option<Words> {
    match fact {
        Fact::RunStarted { target, base } => {
            plain("▶", format!("run started on {target} at {}", short(base)))
        }
        Fact::PlanAdopted { revision, plan, dropped, .. } => {
            let dropped = match dropped.len() {
                0 => String::new(),
                n => format!(", {n} dropped"),
            };
            let tasks = print::count(plan.tasks.len() as u64, "task");
            plain("▶", format!("plan adopted, revision {revision}: {tasks}{dropped}"))
        }
        Fact::EngineStarted { epoch, .. } if *epoch > 1 && verbose => {
            plain("▶", format!("engine started ({epoch})"))
        }
        Fact::RunPaused {} => plain("⏸", "paused: no new agent starts".to_owned()),
        Fact::RunResumed {} => plain("▶", "resumed".to_owned()),
        Fact::RunCancelled {} => plain("⊘", "the run was cancelled".to_owned()),
        Fact::RunDraining { abort: true, .. } => {
            plain("⏸", "it failed: running agents are stopped".to_owned())
        }
        Fact::RunDraining { abort: false, .. } => {
            plain("⏸", "it failed: no new agent starts".to_owned())
        }
        Fact::JobsChanged { jobs } => plain("▶", format!("{jobs} agents at once")),
        Fact::Noticed { message, .. } => warning("!", message.clone()),
        Fact::RefsRemoved { refs, why } if verbose => {
            plain("·", format!("removed    {} refs: {why}", refs.len()))
        }
        _ => None,
    }
}

fn of_attempt(fact: &Fact, machine: &Machine, verbose: bool) -> Option<Words> {
    match fact {
        Fact::AttemptIntended { attempt, agent, model, session, .. } if *attempt > 1 || verbose => {
            let model = model.as_ref().map(|model| format!(" {model}")).unwrap_or_default();
            let again = if session.is_some() { ", in its session" } else { "" };
            in_phase(Phase::Preparing, format!("attempt {attempt} with {agent}{model}{again}"))
        }
        Fact::WorkspaceReady { base, .. } if verbose => {
            in_phase(Phase::Preparing, format!("workspace  at {}", short(base)))
        }
        Fact::AgentStarted { attempt, pid, .. } => {
            let agent = machine_agent(machine, fact);
            let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            in_phase(Phase::Working, format!("working    {agent} (pid {pid}{again})"))
        }
        Fact::QuestionAsked { question, text, options, reference, .. } => {
            let options = match options.as_slice() {
                [] => String::new(),
                options => format!(" [{}]", options.join(" | ")),
            };
            let about_work = mainstem_core::machine::about_work(reference.as_deref());
            let word = if about_work { "approve" } else { "TEXT" };
            let answer = format!("mainstem answer {question} {word}");
            in_phase(Phase::Asking, format!("asks       {text}{options}  → {answer}"))
        }
        Fact::QuestionAnswered { question, text, by, .. } => {
            in_phase(Phase::Working, format!("answered   {question} by {by}: {text}"))
        }
        Fact::SnapshotTaken { refname, .. } if verbose => {
            plain("·", format!("snapshot   {refname}"))
        }
        Fact::StopRequested { reason, .. } => plain("⊘", format!("stopping   {reason}")),
        Fact::AttemptFailed { attempt, class, reason, help, .. } => {
            let help = help.as_ref().map(|help| format!("  → {help}")).unwrap_or_default();
            warning("↻", format!("attempt {attempt} {}: {reason}{help}", class.word()))
        }
        _ => None,
    }
}

fn of_provider(fact: &Fact, machine: &Machine) -> Option<Words> {
    let clock = |until: &Time| {
        let until = time::to_rfc3339(until.0);
        until.get(11..19).unwrap_or_default().to_owned()
    };
    match fact {
        Fact::ProviderLimited { kind: LimitKind::Quota, provider, .. }
            if !machine.settings().limits.auto_resume =>
        {
            let words = format!("quota      of {provider} is used up  → mainstem resume");
            warning("⏸", words)
        }
        Fact::ProviderLimited { kind: LimitKind::Quota, provider, until, .. } => warning(
            "⏸",
            format!("quota      of {provider} is used up, it rests until {}", clock(until)),
        ),
        Fact::ProviderLimited { provider, until, .. } => {
            warning("⏸", format!("limited    provider {provider} rests until {}", clock(until)))
        }
        Fact::ProviderParked { provider, until, message, .. } => warning(
            "⏸",
            format!("provider {provider} is left alone until {}: {message}", clock(until)),
        ),
        Fact::ProviderFreed { provider } => {
            plain("▶", format!("provider {provider} is tried again"))
        }
        _ => None,
    }
}

fn of_remark(fact: &Fact, verbose: bool) -> Option<Words> {
    match fact {
        Fact::BudgetReached { per_task, percent, spent_usd, limit_usd, .. } => {
            let whose = if *per_task { "its budget" } else { "the run's budget" };
            let words =
                format!("budget     {percent} % of {whose}: ${spent_usd:.2} of ${limit_usd:.2}");
            warning("!", words)
        }
        Fact::IssueLogged { title, .. } => plain("·", format!("issue      {title}")),
        Fact::TaskProposed { title, .. } => plain("·", format!("proposes   {title}")),
        Fact::ProposalDecided { proposal, becomes: Some(id), .. } => {
            plain("▶", format!("{proposal} is accepted: it is task {id} now"))
        }
        Fact::ProposalDecided { proposal, .. } => plain("·", format!("{proposal} is rejected")),
        Fact::SessionSeen { session, .. } if verbose => plain("·", format!("session    {session}")),
        _ => None,
    }
}

fn of_gates(fact: &Fact, verbose: bool) -> Option<Words> {
    match fact {
        Fact::EvidenceCollected { evidence, .. } if verbose || evidence.recovered => {
            let recovered = if evidence.recovered { ", leftovers committed" } else { "" };
            let commits = print::count(u64::from(evidence.commits), "commit");
            let files = print::count(u64::from(evidence.files), "file");
            let (plus, minus) = (evidence.insertions, evidence.deletions);
            let words = format!("evidence   {commits}, {files}, +{plus} −{minus}{recovered}");
            in_phase(Phase::Verifying, words)
        }
        Fact::GateRan { gate, verdict, scope, duration_ms, with, .. } => {
            let place = show::gate_place(*scope, with);
            let took = print::duration(*duration_ms);
            match verdict {
                Verdict::Passed if verbose => {
                    in_phase(Phase::Verifying, format!("gate ok    `{gate}`{place} ({took})"))
                }
                Verdict::Passed => None,
                Verdict::Failed => {
                    in_phase(Phase::Failed, format!("gate red   `{gate}`{place} ({took})"))
                }
                Verdict::Error => {
                    in_phase(Phase::Failed, format!("gate error `{gate}`{place} gave no verdict"))
                }
            }
        }
        _ => None,
    }
}

fn of_review(fact: &Fact, verbose: bool) -> Option<Words> {
    match fact {
        Fact::ReviewStarted(started) => {
            let (cycle, who) = (started.cycle, started.reviewers.join(", "));
            in_phase(Phase::Verifying, format!("review {cycle}   by {who}"))
        }
        Fact::ReviewerEnded(report) => {
            let who = &report.reviewer;
            match &report.outcome {
                Outcome::Failed { why } => {
                    warning("!", format!("reviewer   {who} gave no verdict: {why}"))
                }
                Outcome::Said { verdict, findings } if verbose => {
                    let found = print::count(findings.len() as u64, "finding");
                    in_phase(
                        Phase::Verifying,
                        format!("reviewer   {who} {}, {found}", verdict.word()),
                    )
                }
                Outcome::Skipped { why } if verbose => {
                    in_phase(Phase::Verifying, format!("reviewer   {who} skipped: {why}"))
                }
                _ => None,
            }
        }
        Fact::ReviewEnded(end) => {
            let phase =
                if end.verdict == Opinion::Approved { Phase::Verifying } else { Phase::Failed };
            let found = print::count(end.findings.len() as u64, "finding");
            in_phase(phase, format!("reviewed   {}, {found}", end.verdict.word()))
        }
        _ => None,
    }
}

fn of_pull(fact: &Fact, verbose: bool) -> Option<Words> {
    match fact {
        Fact::PushIntended(push) if verbose => {
            plain("⇡", format!("pushing    {} at {}", push.branch, short(&push.tip)))
        }
        Fact::PullOpened(opened) => {
            let what = if opened.created { "opened" } else { "found" };
            let words = format!("{what:<10} pull request #{} {}", opened.number, opened.url);
            in_phase(Phase::Boarding, words)
        }
        Fact::PullSeen(seen) => {
            in_phase(Phase::Boarding, format!("#{:<9} waits for {}", seen.number, seen.waits_for))
        }
        Fact::PullStacked(stacked) => {
            let lower = stacked.on.as_ref()?;
            let words = format!("stacked    on {} at {}", lower.task, short(&lower.tip));
            in_phase(Phase::Preparing, words)
        }
        Fact::MergeIntended(wish) if verbose => {
            in_phase(Phase::Boarding, format!("merging    pull request #{}", wish.number))
        }
        Fact::PushFailed(trouble) => {
            let then = if trouble.last { trouble.help.as_str() } else { "it is tried again" };
            warning("!", format!("unpushed   {}; {then}", trouble.reason))
        }
        Fact::PullClosed(closed) => {
            warning("!", format!("closed     pull request #{} was not merged", closed.number))
        }
        _ => None,
    }
}

fn of_train(fact: &Fact, verbose: bool) -> Option<Words> {
    match fact {
        Fact::TaskBoarded { .. } if verbose => in_phase(Phase::Boarding, "boarding".to_owned()),
        Fact::CarConflicted { files, .. } => {
            in_phase(Phase::Conflicted, format!("conflict   in {}", files.join(", ")))
        }
        Fact::CarEvicted { reason, .. } => in_phase(Phase::Failed, format!("evicted    {reason}")),
        Fact::LandingRefused { .. } => {
            plain("↻", "the branch moved meanwhile: merged again".to_owned())
        }
        Fact::TaskLanded { commit, empty: false, .. } => {
            in_phase(Phase::Landed, format!("landed     {}", short(commit)))
        }
        Fact::TaskLanded { empty: true, .. } => {
            in_phase(Phase::Landed, "landed     there was nothing to do".to_owned())
        }
        Fact::CheckoutFollowed { moved: false, why, .. } => {
            warning("!", format!("your checkout was left alone: {why}"))
        }
        Fact::LandingUndone { commit, .. } => warning("↶", format!("undone     {}", short(commit))),
        _ => None,
    }
}

fn of_task(fact: &Fact) -> Option<Words> {
    match fact {
        Fact::TaskFailed { reason, .. } => in_phase(Phase::Failed, format!("failed     {reason}")),
        Fact::TaskConflicted { files, .. } => {
            let files = files.join(", ");
            in_phase(Phase::Conflicted, format!("conflicted in {files}; a person decides"))
        }
        Fact::TaskBlocked { reason, .. } => {
            in_phase(Phase::Blocked, format!("blocked    {reason}"))
        }
        Fact::TaskUnblocked { .. } => in_phase(Phase::Waiting, "unblocked".to_owned()),
        Fact::TaskCancelled { reason, .. } => {
            in_phase(Phase::Cancelled, format!("cancelled  {reason}"))
        }
        Fact::TaskSkipped { reason, .. } => {
            in_phase(Phase::Skipped, format!("skipped    {reason}"))
        }
        Fact::TaskRetried { .. } => in_phase(Phase::Ready, "to be tried again".to_owned()),
        _ => None,
    }
}

fn machine_agent(machine: &Machine, fact: &Fact) -> String {
    let current = fact
        .task()
        .and_then(|id| machine.graph().ix(id.as_str()))
        .and_then(|t| machine.tasks().get(t).current.as_ref());
    current.map(|attempt| attempt.agent.clone()).unwrap_or_default()
}

/// The same block at the end of every way out.
pub(crate) fn summary(machine: &Machine, run: &str, began: i64, color: bool) -> String {
    let tasks = machine.tasks();
    let mut parts = Vec::new();
    for phase in mainstem_core::phase::PHASES {
        let count = tasks.count(phase);
        if count > 0 {
            parts.push(print::paint(
                &format!("{count} {}", phase.word()),
                print::style(phase),
                color,
            ));
        }
    }
    let now = mainstem_host::clock::now_ms();
    let elapsed = u64::try_from(now - began).unwrap_or(0);
    let agents: u64 = tasks.all().map(|t| tasks.get(t).agent_ms).sum();
    let mut out = format!("{}\n", "─".repeat(60));
    out.push_str(&format!(
        " {run}  {}   {} (agents {})\n",
        parts.join(" · "),
        print::duration(elapsed),
        print::duration(agents)
    ));
    let troubled = tasks.all().filter(|t| {
        !matches!(tasks.phase(*t), Phase::Landed | Phase::Skipped | Phase::Waiting | Phase::Ready)
    });
    for t in troubled.take(20) {
        let view = machine.view(t);
        let id = machine.plan().tasks[t.ix()].id.to_string();
        let sign = print::paint(print::sign(view.phase), print::style(view.phase), color);
        let reason = match view.reason.is_empty() && !view.waiting_for.is_empty() {
            true => format!("waits for {}", view.waiting_for.join(", ")),
            false => view.reason,
        };
        let reason = print::harmless(&reason).replace('\n', " ");
        out.push_str(&format!("   {sign} {} {}\n", print::pad(&id, 10), print::clip(&reason, 100)));
        if let Some(action) = view.next_action {
            out.push_str(&format!("     {} → {action}\n", " ".repeat(8)));
        }
    }
    if machine.spent_usd() > 0.0 {
        out.push_str(&format!(" cost ${:.2}\n", machine.spent_usd()));
    }
    out
}
