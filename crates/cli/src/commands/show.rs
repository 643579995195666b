//! `show` and `diff`: everything known about one task, and what it changed. Attempts are told from
//! the journal's facts; files and commits are only named, never judged.

mod review;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use mainstem_agents::SecretRedactor;
use mainstem_api::outlook::with_rounded_money;
use mainstem_api::{exit_code, time};
use mainstem_core::fact::{
    AgentEnding, BranchChoiceFact, Evidence, Fact, FailureClass, GateScope, GateVerdict,
};
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::id::{Oid, RunId, TaskId, TaskIx, Time};
use mainstem_core::machine::ReportedIssue;
use mainstem_core::plan::Task;
use mainstem_core::review as core_review;
use mainstem_engine::maintenance::{self, SnapshotRef};
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::run_status::{JournaledRun, build_task_status};
use mainstem_host::clock;
use mainstem_host::git::Repo;
use serde_json::{Value, json};

use review::ShowReview;

use crate::args::ShowArgs;
use crate::commands::history::{self, ending_text};
use crate::commands::logs;
use crate::commands::status::{collapse_to_line, short_oid};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::{events, output};

/// One attempt as its facts tell it.
#[derive(Default)]
pub(crate) struct ShowAttempt {
    pub(crate) n: u32,
    agent: String,
    provider: String,
    model: Option<String>,
    model_reason: String,
    /// The session that it took up, and the one that it named.
    resumed: Option<String>,
    continues: Option<u32>,
    started_over: bool,
    session: Option<String>,
    branch: String,
    intended_at: i64,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    pub(crate) workspace: Option<String>,
    pub(crate) base: Option<Oid>,
    pid: Option<u32>,
    ending: Option<AgentEnding>,
    evidence: Option<Evidence>,
    /// Gates in the order they ran.
    pub(crate) gates: Vec<ShowGate>,
    snapshots: Vec<(String, Oid, String, i64)>,
    questions: Vec<(String, String, Option<String>)>,
    reviews: Vec<ShowReview>,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: Option<f64>,
    failed: Option<(FailureClass, String)>,
    landed: Option<Oid>,
}

pub(crate) struct ShowGate {
    pub(crate) scope: GateScope,
    pub(crate) gate: String,
    pub(crate) verdict: GateVerdict,
    duration_ms: u64,
    /// Its job's folder, relative to the state folder.
    pub(crate) log: Option<String>,
    /// The end of its output, or why it could not run.
    pub(crate) detail: String,
    cached: bool,
    with: Vec<TaskId>,
    /// What is known of it if it did not pass.
    failed: Option<FailedGate>,
}

/// Where a gate looked, in a sentence; at whose work besides the task's own.
pub(crate) fn gate_scope_text(scope: GateScope, with: &[TaskId]) -> String {
    let place = match scope {
        GateScope::Task => "",
        GateScope::Train => " on the merged tree",
        GateScope::Base => " on the target branch itself",
    };
    if with.is_empty() {
        return place.to_owned();
    }
    let with: Vec<&str> = with.iter().map(TaskId::as_str).collect();
    format!("{place}, together with {}", with.join(", "))
}

/// All attempts of a task in the looked-at run, oldest first.
pub(crate) fn read_attempts(look: &JournaledRun, task: &str) -> Result<Vec<ShowAttempt>, CliError> {
    let mut known: BTreeMap<u32, ShowAttempt> = BTreeMap::new();
    for (record, fact) in history::read_facts(look, Some(task))? {
        let Some(n) = attempt_number(&fact) else { continue };
        let attempt = known.entry(n).or_insert_with(|| ShowAttempt { n, ..ShowAttempt::default() });
        attempt.apply_fact(fact, record.at_ms);
    }
    Ok(known.into_values().collect())
}

fn attempt_number(fact: &Fact) -> Option<u32> {
    use Fact as F;
    match fact {
        F::AttemptIntended { attempt, .. }
        | F::WorkspaceReady { attempt, .. }
        | F::BranchChosen(BranchChoiceFact { attempt, .. })
        | F::AgentStarted { attempt, .. }
        | F::UsageReported { attempt, .. }
        | F::SessionSeen { attempt, .. }
        | F::QuestionAsked { attempt, .. }
        | F::QuestionAnswered { attempt, .. }
        | F::AgentEnded { attempt, .. }
        | F::SnapshotTaken { attempt, .. }
        | F::EvidenceCollected { attempt, .. }
        | F::GateRan { attempt, .. }
        | F::ReviewStarted(core_review::ReviewStartFact { attempt, .. })
        | F::ReviewerEnded(core_review::ReviewReportFact { attempt, .. })
        | F::ReviewEnded(core_review::ReviewEndFact { attempt, .. })
        | F::AttemptFailed { attempt, .. }
        | F::TaskLanded { attempt, .. } => Some(*attempt),
        _ => None,
    }
}

impl ShowAttempt {
    /// Which one, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.n
    }

    fn apply_start(&mut self, fact: Fact, at: i64) {
        let Fact::AttemptIntended {
            agent,
            provider,
            model,
            branch,
            model_reason,
            session,
            continues,
            fresh,
            ..
        } = fact
        else {
            return;
        };
        (self.agent, self.provider, self.model, self.branch) = (agent, provider, model, branch);
        (self.model_reason, self.resumed) = (model_reason, session);
        (self.continues, self.started_over) = (continues.map(|work| work.attempt), fresh);
        self.intended_at = at;
    }

    fn apply_fact(&mut self, fact: Fact, at: i64) {
        match fact {
            intended @ Fact::AttemptIntended { .. } => self.apply_start(intended, at),
            Fact::SessionSeen { session, .. } => self.session = Some(session),
            Fact::BranchChosen(chosen) => self.branch = chosen.branch,
            Fact::WorkspaceReady { workspace, base, .. } => {
                (self.workspace, self.base) = (Some(workspace), Some(base));
            }
            Fact::AgentStarted { pid, .. } => {
                self.started_at.get_or_insert(at);
                self.pid = Some(pid).filter(|pid| *pid > 0);
            }
            Fact::UsageReported { usage, .. } => {
                self.input_tokens += usage.input_tokens;
                self.output_tokens += usage.output_tokens;
                if usage.cost_usd.is_some() {
                    *self.cost_usd.get_or_insert_default() += usage.paid_usd();
                }
            }
            Fact::QuestionAsked { question, text, .. } => {
                self.questions.push((question, text, None));
            }
            Fact::QuestionAnswered { question, text, .. } => {
                if let Some(asked) = self.questions.iter_mut().find(|q| q.0 == question) {
                    asked.2 = Some(text);
                }
            }
            Fact::AgentEnded { ending, .. } => {
                (self.ending, self.ended_at) = (Some(ending), Some(at));
            }
            Fact::SnapshotTaken { refname, commit, why, .. } => {
                self.snapshots.push((refname, commit, why, at));
            }
            Fact::EvidenceCollected { evidence, .. } => self.evidence = Some(evidence),
            fact @ Fact::GateRan { .. } => {
                let failed = FailedGate::from_fact(&fact);
                let Fact::GateRan {
                    scope,
                    gate,
                    verdict,
                    duration_ms,
                    log,
                    detail,
                    cached,
                    with,
                    ..
                } = fact
                else {
                    return;
                };
                let gate = ShowGate {
                    scope,
                    gate,
                    verdict,
                    duration_ms,
                    log,
                    detail,
                    cached,
                    with,
                    failed,
                };
                self.gates.push(gate);
            }
            Fact::AttemptFailed { class, reason, .. } => self.failed = Some((class, reason)),
            Fact::TaskLanded { commit, .. } => self.landed = Some(commit),
            other => ShowReview::apply_fact(&mut self.reviews, other),
        }
    }

    /// Where its work begins and ends, as far as it can still be read.
    pub(crate) fn work_range(&self, repo: &Repo) -> Result<Option<(Oid, Oid)>, CliError> {
        if let Some(evidence) = &self.evidence
            && evidence.tip != evidence.base
            && !evidence.base.as_str().is_empty()
            && repo.has_object(&evidence.tip)?
        {
            return Ok(Some((evidence.base.clone(), evidence.tip.clone())));
        }
        let Some(base) = self.base.clone() else { return Ok(None) };
        for (_, commit, _, _) in self.snapshots.iter().rev() {
            if *commit != base && repo.has_object(commit)? {
                return Ok(Some((base, commit.clone())));
            }
        }
        if self.ended_at.is_none() && !self.branch.is_empty() {
            // Still at work, and no snapshot yet: what it has committed is on its branch.
            let place = Path::new(self.workspace.as_deref().unwrap_or_default());
            let tip = repo.read_agent_tip(place, &self.branch)?;
            return Ok(tip.filter(|tip| *tip != base).map(|tip| (base, tip)));
        }
        Ok(None)
    }

    fn outcome_text(&self) -> String {
        match (&self.landed, &self.failed, &self.ending) {
            (Some(commit), _, _) => format!("landed as {}", short_oid(commit.as_str())),
            (None, Some((class, reason)), _) => {
                format!("{}: {}", class.as_str(), collapse_to_line(reason))
            }
            (None, None, Some(ending)) => ending_text(ending),
            (None, None, None) => "in progress".to_owned(),
        }
    }

    fn to_json(&self, layout: &RepoLayout, run: &RunId, task: &Task) -> Value {
        let when = |at: Option<i64>| at.map(time::to_rfc3339);
        let gates: Vec<Value> = self
            .gates
            .iter()
            .map(|gate| {
                json!({
                    "scope": gate.scope.as_str(), "gate": gate.gate,
                    "verdict": gate.verdict.as_str(), "duration_ms": gate.duration_ms,
                    "log": gate.log.as_ref().map(|log| layout.state_dir().join(log)),
                    "detail": gate.detail, "cached": gate.cached, "with": gate.with,
                    "exit_code": gate.failed.as_ref().and_then(|failed| failed.exit_code),
                    "cause": gate.failed.as_ref().map(|failed| &failed.cause),
                })
            })
            .collect();
        let questions: Vec<Value> = self
            .questions
            .iter()
            .map(|(id, text, answer)| json!({ "id": id, "question": text, "answer": answer }))
            .collect();
        json!({
            "attempt": self.n, "agent": self.agent, "provider": self.provider,
            "model": self.model, "model_reason": self.model_reason, "branch": self.branch,
            "session": self.session, "resumed_session": self.resumed,
            "continues": self.continues, "started_over": self.started_over,
            "intended_at": time::to_rfc3339(self.intended_at),
            "started_at": when(self.started_at), "ended_at": when(self.ended_at),
            "workspace": self.workspace, "base": self.base, "pid": self.pid,
            "tip": self.evidence.as_ref().map(|e| &e.tip), "evidence": self.evidence,
            "ending": self.ending, "gates": gates, "questions": questions,
            "reviews": self.reviews.iter().map(ShowReview::to_json).collect::<Vec<_>>(),
            "input_tokens": self.input_tokens, "output_tokens": self.output_tokens,
            "cost_usd": self.cost_usd,
            "class": self.failed.as_ref().map(|(class, _)| class.as_str()),
            "reason": self.failed.as_ref().map(|(_, reason)| reason),
            "outcome": self.outcome_text(), "commit": self.landed,
            "prompt": layout.attempt_dir(run, &task.id, self.n).join("prompt.md"),
            "output": layout.agent_job(run, &task.id, self.n),
        })
    }
}

/// Everything about one task.
pub(crate) fn cmd_show(context: &CliContext, args: &ShowArgs) -> CommandResult {
    let task = args.task.as_str();
    let (repo, layout, look) = context.open_existing_run(args.run.as_deref())?;
    let t = look.machine.find_task(task)?;
    let subject = ShowTask {
        attempts: read_attempts(&look, task)?,
        snapshots: maintenance::list_task_snapshots(&repo, task)?,
        run: look.run.clone().unwrap_or_else(|| RunId::new("")),
        redactor: logs::build_redactor(look.machine.settings(), &repo),
        look: &look,
        layout: &layout,
        t,
        verbose: context.global.verbose > 0,
        color: context.color_out,
    };
    if args.prompt {
        let newest = subject.attempts.last().map_or(0, |a| a.n);
        let n = args.attempt.unwrap_or(newest);
        let Some((path, text)) = subject.read_prompt(n) else {
            return Err(CliError::new(format!("no prompt for attempt {n} of {task}"))
                .with_hint(format!("list the attempts: mainstem show {task}")));
        };
        if context.global.json {
            let value = json!({"task": task, "attempt": n, "path": path, "text": text});
            output::write_json(&value)?;
        } else {
            output::write_stdout(&output::sanitize_text(&text))?;
        }
    } else if context.global.json {
        output::write_json(&with_rounded_money(subject.to_json()?))?;
    } else {
        output::write_stdout(&output::wrap_to_screen(&subject.to_text()))?;
    }
    Ok(exit_code::OK)
}

struct ShowTask<'a> {
    look: &'a JournaledRun,
    layout: &'a RepoLayout,
    run: RunId,
    t: TaskIx,
    attempts: Vec<ShowAttempt>,
    snapshots: Vec<SnapshotRef>,
    redactor: SecretRedactor,
    verbose: bool,
    color: bool,
}

impl ShowTask<'_> {
    fn task(&self) -> &Task {
        &self.look.machine.plan().tasks[self.t.index()]
    }

    /// The tasks on the other ends of its edges, with the kind of edge.
    fn list_edges(&self) -> Vec<(&'static str, TaskIx)> {
        let graph = self.look.machine.graph();
        let needs = graph.needs(self.t).map(|p| ("needs", p));
        let after = graph.soft_needs(self.t).map(|p| ("after", p));
        let needed = graph.dependents(self.t).map(|p| ("needed by", p));
        let before = graph.soft_dependents(self.t).map(|p| ("before", p));
        needs.chain(after).chain(needed).chain(before).collect()
    }

    /// What its agents wrote down.
    fn list_issues(&self) -> impl Iterator<Item = &ReportedIssue> {
        self.look.machine.reported_issues().iter().filter(|issue| issue.task == self.task().id)
    }

    /// An attempt's prompt, without secrets; none if there is no such file.
    fn read_prompt(&self, n: u32) -> Option<(std::path::PathBuf, String)> {
        let path = self.layout.attempt_dir(&self.run, &self.task().id, n).join("prompt.md");
        let bytes = std::fs::read(&path).ok()?;
        let text = String::from_utf8_lossy(&self.redactor.redact_bytes(&bytes)).into_owned();
        Some((path, text))
    }

    fn to_json(&self) -> Result<Value, CliError> {
        let machine = &self.look.machine;
        let task = self.task();
        let bug = |error| CliError::new(format!("BUG: a task is plain data: {error}"));
        let ahead = machine.expectations(Time(clock::now_ms()));
        let mut value =
            serde_json::to_value(build_task_status(machine, &ahead, self.t)).map_err(bug)?;
        value["run"] = self.run.as_str().into();
        value["description"] = task.description.clone().into();
        value["acceptance"] = task.acceptance.clone().into();
        value["writes"] = task.writes.clone().into();
        value["verify"] = task.verify.clone().into();
        value["role"] = task.role.clone().into();
        value["effort"] = serde_json::to_value(task.effort).map_err(bug)?;
        value["priority"] = task.priority.into();
        value["on_failure"] = serde_json::to_value(task.on_failure).map_err(bug)?;
        value["retries"] = task.retries.into();
        value["timeout_ms"] = task.timeout_ms.into();
        for (key, word) in [
            ("needs", "needs"),
            ("after", "after"),
            ("dependents", "needed by"),
            ("before", "before"),
        ] {
            let ends = self.list_edges().into_iter().filter(|(kind, _)| *kind == word);
            value[key] = ends
                .map(|(_, p)| {
                    json!({ "id": machine.graph().id(p), "phase": machine.tasks().phase(p).as_str() })
                })
                .collect();
        }
        value["attempts"] =
            self.attempts.iter().map(|a| a.to_json(self.layout, &self.run, task)).collect();
        let issues = self.list_issues().map(
            |issue| json!({ "title": issue.title, "text": issue.text, "severity": issue.severity }),
        );
        value["issues"] = issues.collect();
        value["snapshots"] = self.snapshots.iter().map(snapshot_json).collect();
        let unstored = self.layout.list_unstored_folders(task.id.as_str());
        value["unstored"] = unstored.iter().map(|folder| folder.display().to_string()).collect();
        let prompt = self.attempts.last().and_then(|a| self.read_prompt(a.n));
        value["prompt"] = prompt.as_ref().map(|(path, _)| path.display().to_string()).into();
        if self.verbose {
            value["prompt_text"] = prompt.map(|(_, text)| text).into();
        }
        Ok(value)
    }

    fn to_text(&self) -> String {
        let machine = &self.look.machine;
        let task = self.task();
        let view = machine.task_view(self.t);
        let sign = format!("{} {}", output::phase_sign(view.phase), view.phase.as_str());
        let sign = output::paint_text(&sign, output::phase_style(view.phase), self.color);
        let head = format!("{}  {sign}  {}", task.id, collapse_to_line(&task.title));
        let mut out = format!("{}\n", head.trim_end());
        let mut line = |name: &str, words: String| {
            if !words.is_empty() {
                let below = output::indent_block(&words, 14, output::stdout_columns());
                let _ = write!(out, "  {} {}", output::pad_to_width(name, 11), below.trim_start());
            }
        };
        line("why", collapse_to_line(&view.reason));
        line("waits for", view.waiting_for.join(", "));
        line("next", view.next_action.unwrap_or_default());
        line("epic", task.epic.as_ref().map(ToString::to_string).unwrap_or_default());
        line(
            "agent",
            [Some(view.agent), view.model].into_iter().flatten().collect::<Vec<_>>().join(" "),
        );
        line("commit", view.commit.map(|commit| commit.to_string()).unwrap_or_default());
        line("workspace", view.workspace.unwrap_or_default());
        line("branch", view.branch.unwrap_or_default());
        for folder in self.layout.list_unstored_folders(task.id.as_str()) {
            line("not stored", format!("files git could not store: {}", folder.display()));
        }
        for word in ["needs", "after", "needed by", "before"] {
            let ends = self.list_edges().into_iter().filter(|(kind, _)| *kind == word);
            let named = ends.map(|(_, p)| {
                let phase = machine.tasks().phase(p);
                format!(
                    "{} {} {}",
                    output::phase_sign(phase),
                    machine.graph().id(p),
                    phase.as_str()
                )
            });
            line(word, named.collect::<Vec<_>>().join(", "));
        }
        line("writes", collapse_to_line(&task.writes.join(", ")));
        line("verify", collapse_to_line(&task.verify.join("; ")));
        if !task.description.is_empty() {
            let text = output::sanitize_text(task.description.trim_end()).replace('\n', "\n  ");
            let _ = writeln!(out, "\n  {text}");
        }
        for (n, wish) in task.acceptance.iter().enumerate() {
            let head = if n == 0 { "\n  done when" } else { "           " };
            let _ = writeln!(out, "{head}  {}", collapse_to_line(wish));
        }
        for attempt in &self.attempts {
            out.push('\n');
            out.push_str(&self.attempt_text(attempt));
        }
        if !self.snapshots.is_empty() {
            let count = output::count_noun(self.snapshots.len() as u64, "snapshot");
            let _ = writeln!(out, "\n  {count}: mainstem restore {} --list", task.id);
        }
        for issue in self.list_issues() {
            let _ = writeln!(
                out,
                "  issue: {}",
                output::sanitize_text(&issue.title).replace('\n', " ")
            );
        }
        if let Some((path, text)) = self.attempts.last().and_then(|a| self.read_prompt(a.n)) {
            let _ = writeln!(out, "  prompt: {}", path.display());
            if self.verbose {
                let _ = writeln!(out, "\n{}", output::sanitize_text(text.trim_end()));
            }
        }
        out
    }

    fn attempt_text(&self, a: &ShowAttempt) -> String {
        let mut head = format!("attempt {}  {}", a.n, collapse_to_line(&a.agent));
        if let Some(model) = &a.model {
            let _ = write!(head, " {}", collapse_to_line(model));
        }
        if let (Some(from), Some(to)) = (a.started_at, a.ended_at) {
            let _ = write!(
                head,
                "  {}",
                output::format_duration(u64::try_from(to - from).unwrap_or(0))
            );
        }
        if let Some(usd) = a.cost_usd {
            let _ = write!(head, "  ${usd:.4}");
        }
        if a.input_tokens + a.output_tokens > 0 {
            let _ = write!(head, "  {} tokens in, {} out", a.input_tokens, a.output_tokens);
        }
        let _ = write!(head, "  {}", a.outcome_text());
        let folded = match output::stdout_columns() {
            Some(columns) => output::wrap_text(&head, columns.saturating_sub(6)).join("\n      "),
            None => head,
        };
        let mut out = format!("  {folded}\n");
        if let Some(model) = a.model.as_ref().filter(|_| !a.model_reason.is_empty()) {
            let _ = writeln!(
                out,
                "    {} chosen because: {}",
                collapse_to_line(model),
                collapse_to_line(&a.model_reason)
            );
        }
        out.push_str(&attempt_start_text(a));
        if let Some(ending) = a.ending.as_ref().filter(|_| a.landed.is_some() || a.failed.is_some())
        {
            let _ = writeln!(out, "    agent ended: {}", collapse_to_line(&ending_text(ending)));
        }
        if let Some(base) = &a.base {
            let _ = writeln!(out, "    base {}", short_oid(base.as_str()));
        }
        if let Some(e) = &a.evidence {
            let recovered = if e.recovered { " (uncommitted changes were committed)" } else { "" };
            let _ = writeln!(
                out,
                "    result {}: {}, {}, +{} −{}{recovered}",
                short_oid(e.tip.as_str()),
                output::count_noun(e.commits.into(), "commit"),
                output::count_noun(e.files.into(), "file"),
                e.insertions,
                e.deletions
            );
            for flaw in &e.flaws {
                let _ = writeln!(out, "    flaw: {}", collapse_to_line(flaw));
            }
        }
        for (id, text, answer) in &a.questions {
            let answer =
                answer.as_ref().map_or_else(|| "open".to_owned(), |text| collapse_to_line(text));
            let _ = writeln!(out, "    {id}: {} → {answer}", collapse_to_line(text));
        }
        for line in a.reviews.iter().flat_map(ShowReview::to_lines) {
            let _ = writeln!(out, "    {}", collapse_to_line(&line));
        }
        let shown = a.gates.iter().rposition(|gate| gate.failed.is_some());
        for (n, gate) in a.gates.iter().enumerate() {
            out.push_str(&self.check_text(gate, self.verbose || shown == Some(n)));
        }
        if shown.is_some() {
            let _ =
                writeln!(out, "    → mainstem logs {} --attempt {} --gates", self.task().id, a.n);
        }
        out
    }

    /// A check, with the end of its output and what helps if it did not pass.
    fn check_text(&self, gate: &ShowGate, with_output: bool) -> String {
        let place = match &gate.failed {
            Some(failed) => {
                format!(" {}", failed.describe_place(self.look.machine.target_branch()))
            }
            None => gate_scope_text(gate.scope, &gate.with),
        };
        let cached = if gate.cached { ", cached result" } else { "" };
        let code = gate.failed.as_ref().and_then(|failed| failed.exit_code);
        let code = code.map(|code| format!(", exit {code}")).unwrap_or_default();
        let mut out = format!(
            "    check {}  `{}`{place} ({}{code}{cached})\n",
            gate.verdict.as_str(),
            collapse_to_line(&gate.gate),
            output::format_duration(gate.duration_ms)
        );
        if let Some(log) = gate.log.as_ref().filter(|_| self.verbose) {
            let _ = writeln!(out, "      {}", self.layout.state_dir().join(log).display());
        }
        let Some(failed) = gate.failed.as_ref().filter(|_| with_output) else { return out };
        if let Some(sentence) = failed.cause.describe() {
            let _ = writeln!(out, "      {}", collapse_to_line(&sentence));
        }
        let columns = output::stdout_columns();
        for line in events::output_block(failed, events::OUTPUT_LINES) {
            let line = columns.map_or(line.clone(), |columns| {
                output::truncate_to_width(&line, columns.saturating_sub(8))
            });
            let _ = writeln!(out, "      │ {line}");
        }
        if let Some(hint) = failed.cause.fix_hint() {
            out.push_str(&output::indent_block(&hint, 6, columns));
        }
        out
    }
}

/// A snapshot for programs.
pub(crate) fn snapshot_json(kept: &SnapshotRef) -> Value {
    json!({
        "ref": kept.refname, "attempt": kept.attempt, "number": kept.number, "commit": kept.commit,
    })
}

/// Writes bytes to standard output as they are; a reader that has gone ends the command quietly.
pub(crate) fn write_stdout_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(CliError { code: exit_code::OK, ..CliError::new("") })
        }
        Err(error) => Err(CliError::io_error("cannot write to standard output", &error)),
        Ok(()) => Ok(()),
    }
}

/// What an attempt started from that is not the first.
fn attempt_start_text(a: &ShowAttempt) -> String {
    let mut out = String::new();
    if let Some(before) = a.continues {
        let _ = writeln!(out, "    started from where attempt {before} stopped");
    }
    if a.started_over {
        out.push_str("    started over, as requested\n");
    }
    if let Some(session) = &a.resumed {
        let _ = writeln!(out, "    resumed session {}", collapse_to_line(session));
    }
    out
}
