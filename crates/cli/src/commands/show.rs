//! `show` and `diff`: everything known about one task, and what it changed. Attempts are told from
//! the journal's facts; files and commits are only named, never judged.

mod review;

use std::fmt::Write as _;
use std::io::Write;

use mainstem_agents::SecretRedactor;
use mainstem_api::exit_code;
use mainstem_api::task::{PromptReport, TaskDetail};
use mainstem_core::fact::Evidence;
use mainstem_core::fact::GateScope;
use mainstem_core::id::{RunId, TaskId, TaskIx};
use mainstem_core::machine::ReportedIssue;
use mainstem_core::plan::Task;
use mainstem_engine::maintenance::{self, SnapshotRef};
use mainstem_engine::query::RunReader;
use mainstem_engine::query::attempts::{AttemptHistory, GateRunHistory, describe_ending};
use mainstem_engine::query::task::{TaskSources, read_prompt};
use mainstem_engine::repo_layout::RepoLayout;

use crate::args::ShowArgs;
use crate::commands::logs;
use crate::commands::status::{collapse_to_line, short_oid};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::{events, output};

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

/// Everything about one task.
pub(crate) fn cmd_show(context: &CliContext, args: &ShowArgs) -> CommandResult {
    let task = args.task.as_str();
    let (repo, layout, look) = context.open_existing_run(args.run.as_deref())?;
    let t = look.machine.find_task(task)?;
    let subject = ShowTask {
        attempts: look.attempts(task)?,
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
        let newest = subject.attempts.last().map_or(0, |a| a.number);
        let n = args.attempt.unwrap_or(newest);
        let Some((path, text)) = subject.read_prompt(n) else {
            return Err(CliError::new(format!("no prompt for attempt {n} of {task}"))
                .with_hint(format!("list the attempts: mainstem show {task}")));
        };
        if context.global.json {
            let (task, path) = (task.to_owned(), path.display().to_string());
            output::write_json(&PromptReport { task, attempt: n, path, text })?;
        } else {
            output::write_stdout(&output::sanitize_text(&text))?;
        }
    } else if context.global.json {
        output::write_json(&subject.detail())?;
    } else {
        output::write_stdout(&output::wrap_to_screen(&subject.to_text()))?;
    }
    Ok(exit_code::OK)
}

struct ShowTask<'a> {
    look: &'a RunReader,
    layout: &'a RepoLayout,
    run: RunId,
    t: TaskIx,
    attempts: Vec<AttemptHistory>,
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
        read_prompt(self.layout, &self.redactor, &self.run, &self.task().id, n)
    }

    fn detail(&self) -> TaskDetail {
        let sources = TaskSources {
            layout: self.layout,
            attempts: &self.attempts,
            snapshots: &self.snapshots,
            redactor: &self.redactor,
            with_prompt: self.verbose,
        };
        self.look.task(self.t, &sources)
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
            line(word, self.edge_text(word));
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
        if let Some((path, text)) = self.attempts.last().and_then(|a| self.read_prompt(a.number)) {
            let _ = writeln!(out, "  prompt: {}", path.display());
            if self.verbose {
                let _ = writeln!(out, "\n{}", output::sanitize_text(text.trim_end()));
            }
        }
        out
    }

    /// The tasks at the other end of one kind of edge, each with its phase.
    fn edge_text(&self, kind: &str) -> String {
        let machine = &self.look.machine;
        let ends = self.list_edges().into_iter().filter(|(word, _)| *word == kind);
        let named = ends.map(|(_, task)| {
            let phase = machine.tasks().phase(task);
            let (sign, id) = (output::phase_sign(phase), machine.graph().id(task));
            format!("{sign} {id} {}", phase.as_str())
        });
        named.collect::<Vec<_>>().join(", ")
    }

    fn attempt_text(&self, a: &AttemptHistory) -> String {
        let mut head = format!("attempt {}  {}", a.number, collapse_to_line(&a.agent));
        if let Some(model) = &a.model {
            let _ = write!(head, " {}", collapse_to_line(model));
        }
        if let (Some(from), Some(to)) = (a.started_at, a.agent_ended_at) {
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
        let _ = write!(head, "  {}", collapse_to_line(&a.outcome()));
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
            let _ =
                writeln!(out, "    agent ended: {}", collapse_to_line(&describe_ending(ending)));
        }
        if let Some(base) = &a.base {
            let _ = writeln!(out, "    base {}", short_oid(base.as_str()));
        }
        if let Some(evidence) = &a.evidence {
            out.push_str(&evidence_text(evidence));
        }
        for asked in &a.questions {
            let answer =
                asked.answer.as_deref().map_or_else(|| "open".to_owned(), collapse_to_line);
            let question = collapse_to_line(&asked.question);
            let _ = writeln!(out, "    {}: {question} → {answer}", asked.id);
        }
        for line in a.reviews.iter().flat_map(review::review_lines) {
            let _ = writeln!(out, "    {}", collapse_to_line(&line));
        }
        let shown = a.gates.iter().rposition(|gate| gate.failed.is_some());
        for (n, gate) in a.gates.iter().enumerate() {
            out.push_str(&self.check_text(gate, self.verbose || shown == Some(n)));
        }
        if shown.is_some() {
            let _ = writeln!(
                out,
                "    → mainstem logs {} --attempt {} --gates",
                self.task().id,
                a.number
            );
        }
        out
    }

    /// A check, with the end of its output and what helps if it did not pass.
    fn check_text(&self, gate: &GateRunHistory, with_output: bool) -> String {
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

fn evidence_text(evidence: &Evidence) -> String {
    let recovered = if evidence.recovered { " (uncommitted changes were committed)" } else { "" };
    let mut out = format!(
        "    result {}: {}, {}, +{} −{}{recovered}\n",
        short_oid(evidence.tip.as_str()),
        output::count_noun(evidence.commits.into(), "commit"),
        output::count_noun(evidence.files.into(), "file"),
        evidence.insertions,
        evidence.deletions
    );
    for flaw in &evidence.flaws {
        let _ = writeln!(out, "    flaw: {}", collapse_to_line(flaw));
    }
    out
}

/// What an attempt started from that is not the first.
fn attempt_start_text(a: &AttemptHistory) -> String {
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
