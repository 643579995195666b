//! Facts as lines for people: one line per event that matters, with the evidence below it where something failed.
//! Shared by `run`, `watch` and `history`; prints nothing itself.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use mainstem_api::time;
use mainstem_core::fact::{Class, Evidence, Fact, GateScope, LimitKind, Verdict};
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::hold::HoldKind;
use mainstem_core::id::{Oid, TaskId, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::review::{Opinion, Outcome};

use crate::print;

/// Lines of a failed check's output that are shown at once.
pub(crate) const OUTPUT_LINES: usize = 12;
/// Tasks named in a list before the rest is counted.
const NAMES_MAX: usize = 6;

/// One event as people read it.
#[derive(Debug, Clone)]
pub(crate) struct EventLine {
    /// Its sign.
    pub(crate) sign: &'static str,
    /// How the sign is painted.
    pub(crate) style: Style,
    /// What it is about, if that is not the fact's task.
    pub(crate) subject: Option<String>,
    /// What happened, in a word or two.
    pub(crate) what: String,
    /// The rest of the sentence.
    pub(crate) detail: String,
    /// The evidence, to be drawn below.
    pub(crate) block: Vec<String>,
    /// What helps, below the evidence.
    pub(crate) help: Option<String>,
}

impl EventLine {
    fn new(
        sign: &'static str,
        style: Style,
        what: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let (what, detail) = (what.into(), detail.into());
        Self { sign, style, subject: None, what, detail, block: Vec::new(), help: None }
    }

    fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// Where an attempt starts that is not the first.
fn start_of_attempt(fact: &Fact) -> String {
    let Fact::AttemptIntended { task, attempt, continues, fresh, .. } = fact else {
        return String::new();
    };
    match continues {
        Some(work) => format!(", continuing from attempt {}", work.attempt),
        None if *fresh => {
            let before = attempt.saturating_sub(1);
            format!(
                ", starting over (earlier work is kept in refs/mainstem/snapshots/{task}/{before})"
            )
        }
        None => String::new(),
    }
}

fn in_phase(phase: Phase, what: impl Into<String>, detail: impl Into<String>) -> Option<EventLine> {
    Some(EventLine::new(print::sign(phase), print::style(phase), what, detail))
}

fn plain(
    sign: &'static str,
    what: impl Into<String>,
    detail: impl Into<String>,
) -> Option<EventLine> {
    Some(EventLine::new(sign, Style::new(), what, detail))
}

fn warning(
    sign: &'static str,
    what: impl Into<String>,
    detail: impl Into<String>,
) -> Option<EventLine> {
    let style = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
    Some(EventLine::new(sign, style, what, detail))
}

/// The first letters of a commit, as git shows them.
pub(crate) fn short(oid: &Oid) -> &str {
    oid.as_str().get(..7).unwrap_or(oid.as_str())
}

/// Names, the first few of them.
pub(crate) fn names(ids: &[String]) -> String {
    match ids.len().checked_sub(NAMES_MAX) {
        None | Some(0) => ids.join(", "),
        Some(more) => format!("{} and {more} more", ids[..NAMES_MAX].join(", ")),
    }
}

/// What was changed: `1 file, +1`, `3 files, +10 −2`.
pub(crate) fn change_in_words(evidence: &Evidence) -> String {
    let files = print::count(u64::from(evidence.files), "file");
    let minus = match evidence.deletions {
        0 => String::new(),
        n => format!(" −{n}"),
    };
    format!("{files}, +{}{minus}", evidence.insertions)
}

/// The clock of a moment, if that is not far away; else its date as well.
pub(crate) fn clock(at: Time, now: i64) -> String {
    let text = time::to_rfc3339(at.0);
    let far = (at.0 - now).abs() > 20 * 3_600_000;
    let part = if far {
        text.get(..16).map(|text| text.replace('T', " "))
    } else {
        text.get(11..19).map(str::to_owned)
    };
    part.unwrap_or(text)
}

/// Turns facts into lines, and remembers what was told already.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    verbose: bool,
    /// Attempts whose failed check was shown.
    told: BTreeSet<(TaskId, u32)>,
    /// The failed check of the target branch that was shown last.
    base: Option<(String, String)>,
}

impl Teller {
    /// One that tells everything, or only what matters.
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// A fact as a line; none if only the curious want it.
    pub(crate) fn line(&mut self, fact: &Fact, machine: &Machine) -> Option<EventLine> {
        let verbose = self.verbose;
        of_run(fact, machine, verbose)
            .or_else(|| self.of_attempt(fact, machine))
            .or_else(|| of_question(fact))
            .or_else(|| of_provider(fact, machine))
            .or_else(|| of_remark(fact, verbose))
            .or_else(|| self.of_check(fact, machine))
            .or_else(|| of_review(fact, verbose))
            .or_else(|| of_train(fact, machine, verbose))
            .or_else(|| of_pull(fact, verbose))
            .or_else(|| of_task(fact, machine, verbose))
    }

    fn of_attempt(&mut self, fact: &Fact, machine: &Machine) -> Option<EventLine> {
        match fact {
            Fact::AttemptIntended { task, attempt, agent, model, session, .. }
                if *attempt > 1 || self.verbose =>
            {
                let model = model.as_ref().map(|model| format!(" {model}")).unwrap_or_default();
                let same = if session.is_some() { ", resuming its session" } else { "" };
                if *attempt == 1 {
                    let words = format!("attempt 1 with {agent}{model}");
                    return in_phase(Phase::Preparing, "preparing", words);
                }
                let with_output = self.told.contains(&(task.clone(), attempt - 1));
                let told =
                    if with_output { ", with the failed check's output in the prompt" } else { "" };
                let start = start_of_attempt(fact);
                let words = format!("attempt {attempt} with {agent}{model}{same}{start}{told}");
                plain("↻", "retrying", words)
            }
            Fact::WorkspaceReady { base, .. } if self.verbose => {
                in_phase(Phase::Preparing, "workspace", format!("at {}", short(base)))
            }
            Fact::BranchChosen(chosen) => {
                let branch = &chosen.branch;
                let why =
                    format!("{} is checked out or was not created by Mainstem", chosen.instead_of);
                warning("!", "branch", format!("using {branch} because {why}"))
            }
            Fact::AgentStarted { attempt, pid, .. } if *attempt == 1 || self.verbose => {
                let pid = if self.verbose { format!(" (pid {pid})") } else { String::new() };
                in_phase(Phase::Working, agent_of(machine, fact), format!("started{pid}"))
            }
            Fact::SnapshotTaken { refname, .. } if self.verbose => plain("·", "snapshot", refname),
            Fact::StopRequested { reason, .. } => plain("⊘", "stopping", reason),
            Fact::AttemptFailed { task, attempt, class, reason, help, .. } => {
                self.attempt_failed((task, *attempt), *class, reason, help.as_deref())
            }
            _ => None,
        }
    }

    fn attempt_failed(
        &self,
        who: (&TaskId, u32),
        class: Class,
        reason: &str,
        help: Option<&str>,
    ) -> Option<EventLine> {
        let told = self.told.contains(&(who.0.clone(), who.1));
        let what = match class {
            // Said by the check, the provider, the merge or the person already.
            Class::GateFailed if told && !self.verbose => return None,
            Class::RateLimited | Class::QuotaExhausted | Class::Conflicted if !self.verbose => {
                return None;
            }
            Class::GateFailed => "check failed",
            Class::AgentFailed => "agent failed",
            Class::InvalidOutput => "work rejected",
            Class::Refused => "agent refused",
            Class::TimedOut => "timed out",
            Class::Killed => "killed",
            Class::Interrupted => "stopped",
            Class::Blocked => "gave up",
            Class::NeedsInput => "needs you",
            Class::ChangesNeeded | Class::Rejected => "needs changes",
            Class::Transient => "attempt failed",
            Class::RateLimited => "rate-limited",
            Class::QuotaExhausted => "quota used up",
            Class::Conflicted => "conflict",
        };
        let line = warning("✗", what, reason)?;
        Some(match help {
            Some(help) => line.with_help(help),
            None => line,
        })
    }

    fn of_check(&mut self, fact: &Fact, machine: &Machine) -> Option<EventLine> {
        match fact {
            Fact::EvidenceCollected { evidence, .. } if self.verbose => {
                let commits = print::count(u64::from(evidence.commits), "commit");
                let left =
                    if evidence.recovered { " (uncommitted changes were committed)" } else { "" };
                let words = format!("{commits}, {}{left}", change_in_words(evidence));
                in_phase(Phase::Verifying, "finished", words)
            }
            Fact::GateRan {
                verdict: Verdict::Passed,
                gate,
                scope,
                duration_ms,
                task,
                with,
                ..
            } => {
                let place = passed_where(*scope, task, with, machine.target());
                let words = format!("{gate}, {place} ({})", print::duration(*duration_ms));
                in_phase(Phase::Verifying, "check passed", words).filter(|_| self.verbose)
            }
            Fact::GateRan { .. } => self.failed_check(&FailedGate::of(fact)?, machine),
            _ => None,
        }
    }

    fn failed_check(&mut self, failed: &FailedGate, machine: &Machine) -> Option<EventLine> {
        let what = if failed.verdict == Verdict::Failed { "check failed" } else { "check error" };
        let code = failed.exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
        let mut detail = format!("{}{code}, {}", failed.gate, failed.place(machine.target()));
        if !failed.with.is_empty() {
            // Nobody is blamed for what fails together with others.
            detail.push_str("; checking each task separately next");
            return warning("✗", what, detail);
        }
        if let Some(sentence) = failed.cause.sentence() {
            detail = format!("{detail}: {sentence}");
        }
        let mut line = in_phase(Phase::Failed, what, detail)?;
        if failed.scope == GateScope::Base {
            line.subject = Some(machine.target().to_owned());
            let this = (failed.gate.clone(), failed.output.clone());
            if self.base.replace(this.clone()) == Some(this) && !self.verbose {
                return None;
            }
        } else {
            self.told.insert((failed.task.clone(), failed.attempt));
        }
        line.block = output_block(failed, OUTPUT_LINES);
        line.help = Some(help_for(failed));
        Some(line)
    }
}

/// The last lines of a failed check's output, harmless for a terminal.
pub(crate) fn output_block(failed: &FailedGate, most: usize) -> Vec<String> {
    let lines = failed.last_lines(most).into_iter();
    lines.map(|line| print::harmless(line).replace('\t', "    ")).collect()
}

/// What helps with a failed check: what its cause asks for, or where all of its output is.
pub(crate) fn help_for(failed: &FailedGate) -> String {
    failed
        .cause
        .hint()
        .unwrap_or_else(|| format!("full output: mainstem logs {} --gates", failed.task))
}

fn passed_where(scope: GateScope, task: &TaskId, with: &[TaskId], target: &str) -> String {
    let with: Vec<&str> = with.iter().chain([task]).map(TaskId::as_str).collect();
    match scope {
        GateScope::Task => "in the workspace".to_owned(),
        GateScope::Base => format!("on {target} itself"),
        GateScope::Train => format!("on {target} + {}", with.join(" + ")),
    }
}

fn agent_of(machine: &Machine, fact: &Fact) -> String {
    let current = fact
        .task()
        .and_then(|id| machine.graph().ix(id.as_str()))
        .and_then(|t| machine.tasks().get(t).current.as_ref());
    current.map(|attempt| attempt.agent.clone()).unwrap_or_default()
}

fn of_run(fact: &Fact, machine: &Machine, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::RunStarted { target, base, .. } if verbose => {
            plain("▶", "run started", format!("on {target} at {}", short(base)))
        }
        Fact::PlanAdopted { revision, plan, dropped, .. } if *revision > 1 || verbose => {
            let dropped = match dropped.len() {
                0 => String::new(),
                n => format!(", {n} dropped"),
            };
            let tasks = print::count(plan.tasks.len() as u64, "task");
            plain("▶", "plan", format!("revision {revision}: {tasks}{dropped}"))
        }
        Fact::EngineStarted { epoch, .. } if *epoch > 1 && verbose => {
            plain("▶", "engine", format!("started ({epoch})"))
        }
        Fact::RunPaused {} => {
            Some(plain("‖", "paused", "no new agents start")?.with_help("mainstem resume"))
        }
        Fact::RunResumed {} => plain("▶", "resumed", ""),
        Fact::RunCancelled {} => plain("⊘", "cancelled", "the whole run"),
        Fact::RunDraining { task, abort } => {
            let setting = if *abort { "abort" } else { "drain" };
            let rest = if *abort { "; running agents are stopped" } else { "" };
            let words = format!(
                "no new agents start: {task} failed and run.on_failure = \"{setting}\"{rest}"
            );
            plain("‖", "draining", words)
        }
        Fact::JobsChanged { jobs } => {
            plain("▶", "jobs", format!("{} at a time", print::count(u64::from(*jobs), "agent")))
        }
        Fact::Noticed { message, .. } => {
            // The output below says it better than the sentence that it ends with.
            let frozen =
                machine.base_failure().is_some() && message.starts_with("merging is paused");
            let message = match message.split_once("; ").filter(|_| frozen && !verbose) {
                Some((what, help)) => {
                    let mut line = warning("!", "", what)?.with_help(help);
                    line.subject = Some(machine.target().to_owned());
                    return Some(line);
                }
                None => message,
            };
            warning("!", "", message)
        }
        Fact::TargetVerified { gates, duration_ms, cached: false, .. } if verbose => {
            let words = format!("{} in {}", gates.join(", "), print::duration(*duration_ms));
            plain("✓", "checks passed", words)
        }
        Fact::TargetRechecked(seen) => {
            let short = seen.commit.as_str().get(..9).unwrap_or(seen.commit.as_str());
            match &seen.failure {
                None if verbose => plain("✓", "rechecked", format!("{short}, without caches")),
                None => None,
                Some(failure) => {
                    let target = machine.target();
                    let words =
                        format!("{target} at {short}, without caches: {}", failure.headline);
                    warning("✗", "recheck failed", words)
                }
            }
        }
        Fact::RefsRemoved { refs, why } if verbose => {
            plain("·", "removed", format!("{}: {why}", print::count(refs.len() as u64, "ref")))
        }
        _ => None,
    }
}

fn of_question(fact: &Fact) -> Option<EventLine> {
    match fact {
        Fact::QuestionAsked { question, text, options, reference, .. } => {
            let options = match options.as_slice() {
                [] => String::new(),
                options => format!(" [{}]", options.join(" | ")),
            };
            let about_work = mainstem_core::machine::about_work(reference.as_deref());
            let word = if about_work { "approve" } else { "TEXT" };
            let answer = format!("mainstem answer {question} {word}");
            Some(in_phase(Phase::Asking, "asks", format!("{text}{options}"))?.with_help(answer))
        }
        Fact::QuestionAnswered { question, text, by, .. } => {
            let by = if by == "person" { "you" } else { by.as_str() };
            in_phase(Phase::Working, "answered", format!("{question} by {by}: {text}"))
        }
        _ => None,
    }
}

fn of_provider(fact: &Fact, machine: &Machine) -> Option<EventLine> {
    let now = machine.now().0;
    let wait = |until: &Time| {
        let left = print::duration(u64::try_from(until.0 - now).unwrap_or(0));
        format!("{left} ({})", clock(*until, now))
    };
    match fact {
        Fact::ProviderLimited { kind: LimitKind::Quota, provider, .. }
            if !machine.settings().limits.auto_resume =>
        {
            let line = warning("‖", "quota used up", format!("{provider} is paused"))?;
            Some(line.with_help("mainstem resume"))
        }
        Fact::ProviderLimited { kind: LimitKind::Quota, provider, until, .. } => {
            warning("‖", "quota used up", format!("{provider}: retrying in {}", wait(until)))
        }
        Fact::ProviderLimited { provider, until, retrying: true, .. } => warning(
            "‖",
            "rate-limited",
            format!("{provider}: the agent retries in {}", wait(until)),
        ),
        Fact::ProviderLimited { provider, until, .. } => {
            warning("‖", "rate-limited", format!("{provider}: retrying in {}", wait(until)))
        }
        Fact::ProviderParked { provider, until, message, .. } => {
            warning("‖", "waiting", format!("{provider}, for {}: {message}", wait(until)))
        }
        Fact::ProviderFreed { provider } => plain("▶", "resumed", provider),
        _ => None,
    }
}

fn of_remark(fact: &Fact, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::BudgetReached { per_task, percent, spent_usd, limit_usd, .. } => {
            let whose = if *per_task { "the task's budget" } else { "the run's budget" };
            let words = format!("{percent}% of {whose}: ${spent_usd:.2} of ${limit_usd:.2}");
            warning("!", "budget", words)
        }
        Fact::IssueLogged { title, .. } => plain("·", "issue reported", title),
        Fact::TaskProposed { title, .. } => plain("·", "proposes", title),
        Fact::ProposalDecided { proposal, becomes: Some(id), .. } => {
            plain("▶", "accepted", format!("{proposal} is now task {id}"))
        }
        Fact::ProposalDecided { proposal, .. } => plain("·", "rejected", proposal),
        Fact::SessionSeen { session, .. } if verbose => plain("·", "session", session),
        _ => None,
    }
}

fn of_review(fact: &Fact, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::ReviewStarted(started) => {
            let (cycle, who) = (started.cycle, started.reviewers.join(", "));
            in_phase(Phase::Verifying, format!("review {cycle}"), format!("by {who}"))
        }
        Fact::ReviewerEnded(report) => {
            let who = &report.reviewer;
            match &report.outcome {
                Outcome::Failed { why } => {
                    warning("!", "reviewer", format!("{who} gave no verdict: {why}"))
                }
                Outcome::Said { verdict, findings } if verbose => {
                    let found = print::count(findings.len() as u64, "finding");
                    in_phase(
                        Phase::Verifying,
                        "reviewer",
                        format!("{who}: {}, {found}", verdict.word()),
                    )
                }
                Outcome::Skipped { why } if verbose => {
                    in_phase(Phase::Verifying, "reviewer", format!("{who} skipped: {why}"))
                }
                _ => None,
            }
        }
        Fact::ReviewEnded(end) => {
            let phase =
                if end.verdict == Opinion::Approved { Phase::Verifying } else { Phase::Failed };
            let found = print::count(end.findings.len() as u64, "finding");
            in_phase(phase, "reviewed", format!("{}, {found}", end.verdict.word()))
        }
        _ => None,
    }
}

fn of_pull(fact: &Fact, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::PushIntended(push) if verbose => {
            plain("⇡", "pushing", format!("{} at {}", push.branch, short(&push.tip)))
        }
        Fact::PullOpened(opened) => {
            let what = if opened.created { "opened" } else { "found" };
            let words = format!("pull request #{} {}", opened.number, opened.url);
            in_phase(Phase::Merging, what, words)
        }
        Fact::PullSeen(seen) => {
            let what = format!("#{}", seen.number);
            in_phase(Phase::Merging, what, format!("waiting for {}", seen.waits_for))
        }
        Fact::PullStacked(stacked) => {
            let lower = stacked.on.as_ref()?;
            let words = format!("on {} at {}", lower.task, short(&lower.tip));
            in_phase(Phase::Preparing, "stacked", words)
        }
        Fact::MergeIntended(wish) if verbose => {
            in_phase(Phase::Merging, "merging", format!("pull request #{}", wish.number))
        }
        Fact::PushFailed(trouble) if trouble.last => {
            Some(warning("!", "push failed", &trouble.reason)?.with_help(&trouble.help))
        }
        Fact::PushFailed(trouble) => {
            warning("!", "push failed", format!("{}; trying again", trouble.reason))
        }
        Fact::PullClosed(closed) => warning(
            "!",
            "closed",
            format!("pull request #{} was closed without merging", closed.number),
        ),
        _ => None,
    }
}

fn of_train(fact: &Fact, machine: &Machine, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::TaskQueued { .. } if verbose => {
            in_phase(Phase::Merging, "queued", "waiting to be merged")
        }
        Fact::CarConflicted { files, .. } => {
            let words = format!("with {} in {}", machine.target(), names(files));
            in_phase(Phase::Conflicted, "conflict", words)
        }
        Fact::CarEvicted { reason, .. } if verbose => in_phase(Phase::Failed, "evicted", reason),
        // The question says it.
        Fact::CandidateHeld(held) if held.reason.kind() == HoldKind::Approval => None,
        Fact::CandidateHeld(held) => warning("!", "held", held.reason.describe()),
        Fact::CandidateReleased(_) if verbose => in_phase(Phase::Merging, "released", ""),
        Fact::LandingRefused { .. } if verbose => {
            plain("↻", "re-merging", format!("{} has moved", machine.target()))
        }
        Fact::TaskLanded { task, commit, empty: false, .. } => {
            let evidence = machine
                .graph()
                .ix(task.as_str())
                .and_then(|t| machine.tasks().get(t).current.as_ref())
                .and_then(|attempt| attempt.evidence.as_ref());
            let change = evidence.map(change_in_words).unwrap_or_default();
            in_phase(Phase::Landed, format!("landed {}", short(commit)), change)
        }
        Fact::TaskLanded { empty: true, .. } => in_phase(Phase::Landed, "landed", "nothing to do"),
        Fact::CheckoutFollowed { moved: true, why, .. } if !why.is_empty() => {
            warning("!", "your checkout", why)
        }
        Fact::CheckoutFollowed { moved: false, why, .. } => {
            warning("!", "your checkout", format!("not updated: {why}"))
        }
        Fact::LandingUndone { commit, .. } => warning("↶", "undone", short(commit)),
        _ => None,
    }
}

fn of_task(fact: &Fact, machine: &Machine, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::TaskFailed { task, reason, .. } => {
            let t = machine.graph().ix(task.as_str())?;
            let attempts = machine.tasks().get(t).attempts;
            let after =
                if attempts > 1 { format!("after {attempts} attempts: ") } else { String::new() };
            let mut line = in_phase(Phase::Failed, "failed", format!("{after}{reason}"))?;
            let blocked = machine.tasks_blocked_by(t);
            if !blocked.is_empty() {
                line.help = Some(format!("blocks {}", names(&blocked)));
            }
            Some(line)
        }
        Fact::TaskConflicted { task, files } => {
            let line = in_phase(
                Phase::Conflicted,
                "conflicted",
                format!("in {}; needs a decision", names(files)),
            )?;
            Some(line.with_help(format!("mainstem diff {task}, then mainstem retry {task}")))
        }
        Fact::TaskBlocked { reason, chain, .. } if verbose || chain.is_empty() => {
            in_phase(Phase::Blocked, "blocked", reason)
        }
        Fact::TaskUnblocked { .. } if verbose => in_phase(Phase::Waiting, "unblocked", ""),
        Fact::TaskCancelled { reason, .. } => in_phase(Phase::Cancelled, "cancelled", reason),
        Fact::TaskSkipped { reason, .. } => in_phase(Phase::Skipped, "skipped", reason),
        Fact::TaskRetried { hint, .. } => {
            let hint = hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default();
            in_phase(Phase::Ready, "ready", format!("for a retry{hint}"))
        }
        _ => None,
    }
}
