//! Facts as lines for people: one line per event that matters, with the evidence below it where something failed.
//! Shared by `run`, `watch` and `history`; prints nothing itself.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use mainstem_api::time;
use mainstem_core::fact::{Evidence, Fact, FailureClass, GateScope, GateVerdict, LimitKind};
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::hold::HoldKind;
use mainstem_core::id::{Oid, TaskId, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::review::{ReviewOpinion, ReviewerOutcome};

use crate::output;

/// Lines of a failed check's output that are shown at once.
pub(crate) const OUTPUT_LINES: usize = 12;
/// Tasks named in a list before the rest is counted.
const NAMES_MAX: usize = 6;

/// One event as people read it.
#[derive(Debug, Clone)]
pub(crate) struct EventLine {
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
fn attempt_start_text(fact: &Fact) -> String {
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

fn phase_line(
    phase: Phase,
    what: impl Into<String>,
    detail: impl Into<String>,
) -> Option<EventLine> {
    Some(EventLine::new(output::phase_sign(phase), output::phase_style(phase), what, detail))
}

fn plain_line(
    sign: &'static str,
    what: impl Into<String>,
    detail: impl Into<String>,
) -> Option<EventLine> {
    Some(EventLine::new(sign, Style::new(), what, detail))
}

fn warning_line(
    sign: &'static str,
    what: impl Into<String>,
    detail: impl Into<String>,
) -> Option<EventLine> {
    let style = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
    Some(EventLine::new(sign, style, what, detail))
}

/// The first letters of a commit, as git shows them.
pub(crate) fn short_oid(oid: &Oid) -> &str {
    oid.as_str().get(..7).unwrap_or(oid.as_str())
}

/// Names, the first few of them.
pub(crate) fn join_names(ids: &[String]) -> String {
    match ids.len().checked_sub(NAMES_MAX) {
        None | Some(0) => ids.join(", "),
        Some(more) => format!("{} and {more} more", ids[..NAMES_MAX].join(", ")),
    }
}

/// What was changed: `1 file, +1`, `3 files, +10 −2`.
pub(crate) fn change_summary(evidence: &Evidence) -> String {
    let files = output::count_noun(u64::from(evidence.files), "file");
    let minus = match evidence.deletions {
        0 => String::new(),
        n => format!(" −{n}"),
    };
    format!("{files}, +{}{minus}", evidence.insertions)
}

/// The clock of a moment, if that is not far away; else its date as well.
pub(crate) fn clock_text(at: Time, now: i64) -> String {
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
pub(crate) struct EventFormatter {
    verbose: bool,
    /// Attempts whose failed check was shown.
    told: BTreeSet<(TaskId, u32)>,
    /// The failed check of the target branch that was shown last.
    base: Option<(String, String)>,
}

impl EventFormatter {
    /// One that tells everything, or only what matters.
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// A fact as a line; none if only the curious want it.
    pub(crate) fn format_fact(&mut self, fact: &Fact, machine: &Machine) -> Option<EventLine> {
        let verbose = self.verbose;
        run_event(fact, machine, verbose)
            .or_else(|| self.attempt_event(fact, machine))
            .or_else(|| question_event(fact))
            .or_else(|| provider_event(fact, machine))
            .or_else(|| remark_event(fact, verbose))
            .or_else(|| self.check_event(fact, machine))
            .or_else(|| review_event(fact, verbose))
            .or_else(|| train_event(fact, machine, verbose))
            .or_else(|| pull_request_event(fact, verbose))
            .or_else(|| task_event(fact, machine, verbose))
    }

    fn attempt_event(&mut self, fact: &Fact, machine: &Machine) -> Option<EventLine> {
        match fact {
            Fact::AttemptIntended { task, attempt, agent, model, session, .. }
                if *attempt > 1 || self.verbose =>
            {
                let model = model.as_ref().map(|model| format!(" {model}")).unwrap_or_default();
                let same = if session.is_some() { ", resuming its session" } else { "" };
                if *attempt == 1 {
                    let words = format!("attempt 1 with {agent}{model}");
                    return phase_line(Phase::Preparing, "preparing", words);
                }
                let with_output = self.told.contains(&(task.clone(), attempt - 1));
                let told =
                    if with_output { ", with the failed check's output in the prompt" } else { "" };
                let start = attempt_start_text(fact);
                let words = format!("attempt {attempt} with {agent}{model}{same}{start}{told}");
                plain_line("↻", "retrying", words)
            }
            Fact::WorkspaceReady { base, .. } if self.verbose => {
                phase_line(Phase::Preparing, "workspace", format!("at {}", short_oid(base)))
            }
            Fact::BranchChosen(chosen) => {
                let branch = &chosen.branch;
                let why =
                    format!("{} is checked out or was not created by Mainstem", chosen.instead_of);
                warning_line("!", "branch", format!("using {branch} because {why}"))
            }
            Fact::AgentStarted { attempt, pid, .. } if *attempt == 1 || self.verbose => {
                let pid = if self.verbose { format!(" (pid {pid})") } else { String::new() };
                phase_line(Phase::Working, agent_name(machine, fact), format!("started{pid}"))
            }
            Fact::SnapshotTaken { refname, .. } if self.verbose => {
                plain_line("·", "snapshot", refname)
            }
            Fact::StopRequested { reason, .. } => plain_line("⊘", "stopping", reason),
            Fact::AttemptFailed { task, attempt, class, reason, help, .. } => {
                self.attempt_failed_event((task, *attempt), *class, reason, help.as_deref())
            }
            _ => None,
        }
    }

    fn attempt_failed_event(
        &self,
        who: (&TaskId, u32),
        class: FailureClass,
        reason: &str,
        help: Option<&str>,
    ) -> Option<EventLine> {
        let told = self.told.contains(&(who.0.clone(), who.1));
        let what = match class {
            // Said by the check, the provider, the merge or the person already.
            FailureClass::GateFailed if told && !self.verbose => return None,
            FailureClass::RateLimited | FailureClass::QuotaExhausted | FailureClass::Conflicted
                if !self.verbose =>
            {
                return None;
            }
            FailureClass::GateFailed => "check failed",
            FailureClass::AgentFailed => "agent failed",
            FailureClass::InvalidOutput => "work rejected",
            FailureClass::Refused => "agent refused",
            FailureClass::TimedOut => "timed out",
            FailureClass::Killed => "killed",
            FailureClass::Interrupted => "stopped",
            FailureClass::Blocked => "gave up",
            FailureClass::NeedsInput => "needs you",
            FailureClass::ChangesNeeded | FailureClass::Rejected => "needs changes",
            FailureClass::Transient => "attempt failed",
            FailureClass::RateLimited => "rate-limited",
            FailureClass::QuotaExhausted => "quota used up",
            FailureClass::Conflicted => "conflict",
        };
        let line = warning_line("✗", what, reason)?;
        Some(match help {
            Some(help) => line.with_help(help),
            None => line,
        })
    }

    fn check_event(&mut self, fact: &Fact, machine: &Machine) -> Option<EventLine> {
        match fact {
            Fact::EvidenceCollected { evidence, .. } if self.verbose => {
                let commits = output::count_noun(u64::from(evidence.commits), "commit");
                let left =
                    if evidence.recovered { " (uncommitted changes were committed)" } else { "" };
                let words = format!("{commits}, {}{left}", change_summary(evidence));
                phase_line(Phase::Verifying, "finished", words)
            }
            Fact::GateRan {
                verdict: GateVerdict::Passed,
                gate,
                scope,
                duration_ms,
                task,
                with,
                ..
            } => {
                let place = passed_scope_text(*scope, task, with, machine.target_branch());
                let words = format!("{gate}, {place} ({})", output::format_duration(*duration_ms));
                phase_line(Phase::Verifying, "check passed", words).filter(|_| self.verbose)
            }
            Fact::GateRan { .. } => self.failed_check_event(&FailedGate::from_fact(fact)?, machine),
            _ => None,
        }
    }

    fn failed_check_event(&mut self, failed: &FailedGate, machine: &Machine) -> Option<EventLine> {
        let what =
            if failed.verdict == GateVerdict::Failed { "check failed" } else { "check error" };
        let code = failed.exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
        let mut detail =
            format!("{}{code}, {}", failed.gate, failed.describe_place(machine.target_branch()));
        if !failed.with.is_empty() {
            // Nobody is blamed for what fails together with others.
            detail.push_str("; checking each task separately next");
            return warning_line("✗", what, detail);
        }
        if let Some(sentence) = failed.cause.describe() {
            detail = format!("{detail}: {sentence}");
        }
        let mut line = phase_line(Phase::Failed, what, detail)?;
        if failed.scope == GateScope::Base {
            line.subject = Some(machine.target_branch().to_owned());
            let this = (failed.gate.clone(), failed.output.clone());
            if self.base.replace(this.clone()) == Some(this) && !self.verbose {
                return None;
            }
        } else {
            self.told.insert((failed.task.clone(), failed.attempt));
        }
        line.block = output_block(failed, OUTPUT_LINES);
        line.help = Some(failed_check_help(failed));
        Some(line)
    }
}

/// The last lines of a failed check's output, harmless for a terminal.
pub(crate) fn output_block(failed: &FailedGate, most: usize) -> Vec<String> {
    let lines = failed.last_output_lines(most).into_iter();
    lines.map(|line| output::sanitize_text(line).replace('\t', "    ")).collect()
}

/// What helps with a failed check: what its cause asks for, or where all of its output is.
pub(crate) fn failed_check_help(failed: &FailedGate) -> String {
    failed
        .cause
        .fix_hint()
        .unwrap_or_else(|| format!("full output: mainstem logs {} --gates", failed.task))
}

fn passed_scope_text(scope: GateScope, task: &TaskId, with: &[TaskId], target: &str) -> String {
    let with: Vec<&str> = with.iter().chain([task]).map(TaskId::as_str).collect();
    match scope {
        GateScope::Task => "in the workspace".to_owned(),
        GateScope::Base => format!("on {target} itself"),
        GateScope::Train => format!("on {target} + {}", with.join(" + ")),
    }
}

fn agent_name(machine: &Machine, fact: &Fact) -> String {
    let current = fact
        .task()
        .and_then(|id| machine.graph().index_of(id.as_str()))
        .and_then(|t| machine.tasks().get(t).current.as_ref());
    current.map(|attempt| attempt.agent.clone()).unwrap_or_default()
}

fn run_event(fact: &Fact, machine: &Machine, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::RunStarted { target, base, .. } if verbose => {
            plain_line("▶", "run started", format!("on {target} at {}", short_oid(base)))
        }
        Fact::PlanAdopted { revision, plan, dropped, .. } if *revision > 1 || verbose => {
            let dropped = match dropped.len() {
                0 => String::new(),
                n => format!(", {n} dropped"),
            };
            let tasks = output::count_noun(plan.tasks.len() as u64, "task");
            plain_line("▶", "plan", format!("revision {revision}: {tasks}{dropped}"))
        }
        Fact::EngineStarted { epoch, .. } if *epoch > 1 && verbose => {
            plain_line("▶", "engine", format!("started ({epoch})"))
        }
        Fact::RunPaused {} => {
            Some(plain_line("‖", "paused", "no new agents start")?.with_help("mainstem resume"))
        }
        Fact::RunResumed {} => plain_line("▶", "resumed", ""),
        Fact::RunCancelled {} => plain_line("⊘", "cancelled", "the whole run"),
        Fact::RunDraining { task, abort } => {
            let setting = if *abort { "abort" } else { "drain" };
            let rest = if *abort { "; running agents are stopped" } else { "" };
            let words = format!(
                "no new agents start: {task} failed and run.on_failure = \"{setting}\"{rest}"
            );
            plain_line("‖", "draining", words)
        }
        Fact::JobsChanged { jobs } => plain_line(
            "▶",
            "jobs",
            format!("{} at a time", output::count_noun(u64::from(*jobs), "agent")),
        ),
        Fact::Noticed { message, .. } => notice_event(message, machine, verbose),
        Fact::TargetVerified { gates, duration_ms, cached: false, .. } if verbose => {
            let words =
                format!("{} in {}", gates.join(", "), output::format_duration(*duration_ms));
            plain_line("✓", "checks passed", words)
        }
        Fact::TargetRechecked(seen) => {
            let short = seen.commit.as_str().get(..9).unwrap_or(seen.commit.as_str());
            match &seen.failure {
                None if verbose => plain_line("✓", "rechecked", format!("{short}, without caches")),
                None => None,
                Some(failure) => {
                    let target = machine.target_branch();
                    let words =
                        format!("{target} at {short}, without caches: {}", failure.headline);
                    warning_line("✗", "recheck failed", words)
                }
            }
        }
        Fact::RefsRemoved { refs, why } if verbose => plain_line(
            "·",
            "removed",
            format!("{}: {why}", output::count_noun(refs.len() as u64, "ref")),
        ),
        _ => None,
    }
}

fn notice_event(message: &str, machine: &Machine, verbose: bool) -> Option<EventLine> {
    let frozen = machine.target_failure().is_some() && message.starts_with("merging is paused");
    match message.split_once("; ").filter(|_| frozen && !verbose) {
        // The failed check's output follows and says more than the second half of the sentence,
        // which is shown as help.
        Some((what, help)) => {
            let mut line = warning_line("!", "", what)?.with_help(help);
            line.subject = Some(machine.target_branch().to_owned());
            Some(line)
        }
        None => warning_line("!", "", message),
    }
}

fn question_event(fact: &Fact) -> Option<EventLine> {
    match fact {
        Fact::QuestionAsked { question, text, options, reference, .. } => {
            let options = match options.as_slice() {
                [] => String::new(),
                options => format!(" [{}]", options.join(" | ")),
            };
            let about_work = mainstem_core::machine::is_work_reference(reference.as_deref());
            let word = if about_work { "approve" } else { "TEXT" };
            let answer = format!("mainstem answer {question} {word}");
            Some(phase_line(Phase::Asking, "asks", format!("{text}{options}"))?.with_help(answer))
        }
        Fact::QuestionAnswered { question, text, by, .. } => {
            let by = if by == "person" { "you" } else { by.as_str() };
            phase_line(Phase::Working, "answered", format!("{question} by {by}: {text}"))
        }
        _ => None,
    }
}

fn provider_event(fact: &Fact, machine: &Machine) -> Option<EventLine> {
    let now = machine.now().0;
    let wait = |until: &Time| {
        let left = output::format_duration(u64::try_from(until.0 - now).unwrap_or(0));
        format!("{left} ({})", clock_text(*until, now))
    };
    match fact {
        Fact::ProviderLimited { kind: LimitKind::Quota, provider, .. }
            if !machine.settings().limits.auto_resume =>
        {
            let line = warning_line("‖", "quota used up", format!("{provider} is paused"))?;
            Some(line.with_help("mainstem resume"))
        }
        Fact::ProviderLimited { kind: LimitKind::Quota, provider, until, .. } => {
            warning_line("‖", "quota used up", format!("{provider}: retrying in {}", wait(until)))
        }
        Fact::ProviderLimited { provider, until, retrying: true, .. } => warning_line(
            "‖",
            "rate-limited",
            format!("{provider}: the agent retries in {}", wait(until)),
        ),
        Fact::ProviderLimited { provider, until, .. } => {
            warning_line("‖", "rate-limited", format!("{provider}: retrying in {}", wait(until)))
        }
        Fact::ProviderParked { provider, until, message, .. } => {
            warning_line("‖", "waiting", format!("{provider}, for {}: {message}", wait(until)))
        }
        Fact::ProviderFreed { provider } => plain_line("▶", "resumed", provider),
        _ => None,
    }
}

fn remark_event(fact: &Fact, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::BudgetReached { per_task, percent, spent_usd, limit_usd, .. } => {
            let whose = if *per_task { "the task's budget" } else { "the run's budget" };
            let words = format!("{percent}% of {whose}: ${spent_usd:.2} of ${limit_usd:.2}");
            warning_line("!", "budget", words)
        }
        Fact::IssueLogged { title, .. } => plain_line("·", "issue reported", title),
        Fact::TaskProposed { title, .. } => plain_line("·", "proposes", title),
        Fact::ProposalDecided { proposal, becomes: Some(id), .. } => {
            plain_line("▶", "accepted", format!("{proposal} is now task {id}"))
        }
        Fact::ProposalDecided { proposal, .. } => plain_line("·", "rejected", proposal),
        Fact::SessionSeen { session, .. } if verbose => plain_line("·", "session", session),
        _ => None,
    }
}

fn review_event(fact: &Fact, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::ReviewStarted(started) => {
            let (cycle, who) = (started.cycle, started.reviewers.join(", "));
            phase_line(Phase::Verifying, format!("review {cycle}"), format!("by {who}"))
        }
        Fact::ReviewerEnded(report) => {
            let who = &report.reviewer;
            match &report.outcome {
                ReviewerOutcome::Failed { why } => {
                    warning_line("!", "reviewer", format!("{who} gave no verdict: {why}"))
                }
                ReviewerOutcome::Said { verdict, findings } if verbose => {
                    let found = output::count_noun(findings.len() as u64, "finding");
                    phase_line(
                        Phase::Verifying,
                        "reviewer",
                        format!("{who}: {}, {found}", verdict.as_str()),
                    )
                }
                ReviewerOutcome::Skipped { why } if verbose => {
                    phase_line(Phase::Verifying, "reviewer", format!("{who} skipped: {why}"))
                }
                _ => None,
            }
        }
        Fact::ReviewEnded(end) => {
            let phase = if end.verdict == ReviewOpinion::Approved {
                Phase::Verifying
            } else {
                Phase::Failed
            };
            let found = output::count_noun(end.findings.len() as u64, "finding");
            phase_line(phase, "reviewed", format!("{}, {found}", end.verdict.as_str()))
        }
        _ => None,
    }
}

fn pull_request_event(fact: &Fact, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::PushIntended(push) if verbose => {
            plain_line("⇡", "pushing", format!("{} at {}", push.branch, short_oid(&push.tip)))
        }
        Fact::PullOpened(opened) => {
            let what = if opened.created { "opened" } else { "found" };
            let words = format!("pull request #{} {}", opened.number, opened.url);
            phase_line(Phase::Merging, what, words)
        }
        Fact::PullSeen(seen) => {
            let what = format!("#{}", seen.number);
            phase_line(Phase::Merging, what, format!("waiting for {}", seen.waits_for))
        }
        Fact::PullStacked(stacked) => {
            let lower = stacked.on.as_ref()?;
            let words = format!("on {} at {}", lower.task, short_oid(&lower.tip));
            phase_line(Phase::Preparing, "stacked", words)
        }
        Fact::MergeIntended(wish) if verbose => {
            phase_line(Phase::Merging, "merging", format!("pull request #{}", wish.number))
        }
        Fact::PushFailed(trouble) if trouble.last => {
            Some(warning_line("!", "push failed", &trouble.reason)?.with_help(&trouble.help))
        }
        Fact::PushFailed(trouble) => {
            warning_line("!", "push failed", format!("{}; trying again", trouble.reason))
        }
        Fact::PullClosed(closed) => warning_line(
            "!",
            "closed",
            format!("pull request #{} was closed without merging", closed.number),
        ),
        _ => None,
    }
}

fn train_event(fact: &Fact, machine: &Machine, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::TaskQueued { .. } if verbose => {
            phase_line(Phase::Merging, "queued", "waiting to be merged")
        }
        Fact::CarConflicted { files, .. } => {
            let words = format!("with {} in {}", machine.target_branch(), join_names(files));
            phase_line(Phase::Conflicted, "conflict", words)
        }
        Fact::CarEvicted { reason, .. } if verbose => phase_line(Phase::Failed, "evicted", reason),
        // The question says it.
        Fact::CandidateHeld(held) if held.reason.kind() == HoldKind::Approval => None,
        Fact::CandidateHeld(held) => warning_line("!", "held", held.reason.describe()),
        Fact::CandidateReleased(_) if verbose => phase_line(Phase::Merging, "released", ""),
        Fact::LandingRefused { .. } if verbose => {
            plain_line("↻", "re-merging", format!("{} has moved", machine.target_branch()))
        }
        Fact::TaskLanded { task, commit, empty: false, .. } => {
            let evidence = machine
                .graph()
                .index_of(task.as_str())
                .and_then(|t| machine.tasks().get(t).current.as_ref())
                .and_then(|attempt| attempt.evidence.as_ref());
            let change = evidence.map(change_summary).unwrap_or_default();
            phase_line(Phase::Landed, format!("landed {}", short_oid(commit)), change)
        }
        Fact::TaskLanded { empty: true, .. } => {
            phase_line(Phase::Landed, "landed", "nothing to do")
        }
        Fact::CheckoutFollowed { moved: true, why, .. } if !why.is_empty() => {
            warning_line("!", "your checkout", why)
        }
        Fact::CheckoutFollowed { moved: false, why, .. } => {
            warning_line("!", "your checkout", format!("not updated: {why}"))
        }
        Fact::LandingUndone { commit, .. } => warning_line("↶", "undone", short_oid(commit)),
        _ => None,
    }
}

fn task_event(fact: &Fact, machine: &Machine, verbose: bool) -> Option<EventLine> {
    match fact {
        Fact::TaskFailed { task, reason, .. } => {
            let t = machine.graph().index_of(task.as_str())?;
            let attempts = machine.tasks().get(t).attempts;
            let after =
                if attempts > 1 { format!("after {attempts} attempts: ") } else { String::new() };
            let mut line = phase_line(Phase::Failed, "failed", format!("{after}{reason}"))?;
            let blocked = machine.tasks_blocked_by(t);
            if !blocked.is_empty() {
                line.help = Some(format!("blocks {}", join_names(&blocked)));
            }
            Some(line)
        }
        Fact::TaskConflicted { task, files } => {
            let line = phase_line(
                Phase::Conflicted,
                "conflicted",
                format!("in {}; needs a decision", join_names(files)),
            )?;
            Some(line.with_help(format!("mainstem diff {task}, then mainstem retry {task}")))
        }
        Fact::TaskBlocked { reason, chain, .. } if verbose || chain.is_empty() => {
            phase_line(Phase::Blocked, "blocked", reason)
        }
        Fact::TaskUnblocked { .. } if verbose => phase_line(Phase::Waiting, "unblocked", ""),
        Fact::TaskCancelled { reason, .. } => phase_line(Phase::Cancelled, "cancelled", reason),
        Fact::TaskSkipped { reason, .. } => phase_line(Phase::Skipped, "skipped", reason),
        Fact::TaskRetried { hint, .. } => {
            let hint = hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default();
            phase_line(Phase::Ready, "ready", format!("for a retry{hint}"))
        }
        _ => None,
    }
}
