//! What a draft came to: for people, for programs, and as an exit code.

use std::fmt::Write as _;
use std::path::Path;

use mainstem_api::exit_code;
use mainstem_engine::draft::DraftRunner;
use mainstem_planner::draft::{Draft, DraftOutcome, DraftPart, DraftPartPhase, DraftPartState};
use mainstem_planner::plan_assembly::AssemblyReport;
use serde_json::{Value, json};

use super::{DraftFinish, call_folder, live_view};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// Entries of one kind that are shown.
const SHOWN: usize = 20;

/// What a draft came to.
pub(super) struct DraftReport {
    name: String,
    rest: DraftOutcome,
    began: i64,
    folder: String,
    /// Where to look, by part that failed.
    failed: Vec<(DraftPart, Option<String>)>,
    pub(super) end: DraftFinish,
}

impl DraftReport {
    pub(super) fn new(session: &DraftRunner, rest: DraftOutcome, began: i64) -> Self {
        let draft = session.draft();
        let failed = draft.parts().iter().filter(|(_, state)| state.phase != DraftPartPhase::Done);
        let place =
            |part: &DraftPart| call_folder(session, draft, part).map(|p| p.display().to_string());
        Self {
            name: session.run_id().to_string(),
            rest,
            began,
            folder: session.folder().display().to_string(),
            failed: failed.map(|(part, _)| (part.clone(), place(part))).collect(),
            end: DraftFinish::default(),
        }
    }

    /// Shows it and says how the command ends.
    pub(super) fn print_report(
        self,
        context: &CliContext,
        draft: &Draft,
        output: &Path,
    ) -> CommandResult {
        let code = self.exit_code(draft);
        if context.global.json {
            output::write_stdout(&format!("{}\n", self.to_json(draft, output, code)))?;
        } else if !context.global.quiet || code != exit_code::OK {
            output::write_stderr(self.to_text(draft, output).trim_end());
        }
        match self.end.refused {
            Some(failure) => Err(failure),
            None if code == exit_code::ERROR => Err(no_answer_error(draft, &self.failed)),
            None => Ok(code),
        }
    }

    fn exit_code(&self, draft: &Draft) -> u8 {
        match self.rest {
            DraftOutcome::Interrupted => exit_code::INTERRUPTED,
            _ if draft.breakdown().is_none() || !self.end.written => exit_code::ERROR,
            _ if draft.is_complete() => exit_code::OK,
            _ => exit_code::NOT_LANDED,
        }
    }

    fn to_text(&self, draft: &Draft, output: &Path) -> String {
        let mut out = String::new();
        if let Some(gathered) = &self.end.gathered {
            out.push_str(&assembly_report_text(&gathered.report));
            if !self.end.written
                && let Some(changes) = &self.end.changes
            {
                out.push_str(&live_view::changes_text(changes, Some(&gathered.plan)));
            }
        }
        self.write_missing_parts(&mut out, draft);
        out.push_str(&spent_text(draft, self.began));
        if let (true, Some(gathered)) = (self.end.written, &self.end.gathered) {
            let edges: usize = gathered.plan.tasks.iter().map(|task| task.needs.len()).sum();
            let _ = writeln!(
                out,
                "wrote {}: {}, {}, {}",
                output.display(),
                output::count_noun(gathered.plan.epics.len() as u64, "epic"),
                output::count_noun(gathered.plan.tasks.len() as u64, "task"),
                output::count_noun(edges as u64, "edge"),
            );
            let _ = writeln!(
                out,
                "next: mainstem plan show {0} · edit {0} · mainstem run {0}",
                output.display()
            );
        }
        if self.rest == DraftOutcome::Interrupted {
            out.push_str(
                "interrupted; answers are kept. To continue, run the same command again\n",
            );
        }
        out
    }

    /// Every part without an answer, and why.
    fn write_missing_parts(&self, out: &mut String, draft: &Draft) {
        for (part, folder) in &self.failed {
            let Some(state) = draft.parts().get(part) else { continue };
            let why = match &state.phase {
                DraftPartPhase::Failed(why) => why.clone(),
                _ if self.rest == DraftOutcome::Parked => {
                    let provider = draft.provider_wait(part).map(|(name, _)| name.to_owned());
                    format!(
                        "the quota of {} is used up (limits.auto_resume = false)",
                        provider.unwrap_or_default()
                    )
                }
                _ => "not finished".to_owned(),
            };
            let _ = writeln!(
                out,
                "missing: {part}: {}",
                output::sanitize_text(&why).replace('\n', " ")
            );
            for problem in state.problems.iter().take(SHOWN) {
                let _ = writeln!(out, "    {}", output::sanitize_text(&problem.to_string()));
            }
            if let Some(help) = &state.help {
                let _ = writeln!(out, "    help: {}", output::sanitize_text(help));
            }
            if let Some(folder) = folder {
                let _ = writeln!(out, "    prompt, log and answer: {folder}");
            }
        }
        if !self.failed.is_empty() && self.rest != DraftOutcome::Interrupted {
            out.push_str("to ask only for the missing parts, run the same command again\n");
        }
    }

    fn to_json(&self, draft: &Draft, output: &Path, code: u8) -> Value {
        let part = |(part, state): (&DraftPart, &DraftPartState)| {
            let (stand, why) = match &state.phase {
                DraftPartPhase::Done => ("done", None),
                DraftPartPhase::Failed(why) => ("failed", Some(why.clone())),
                DraftPartPhase::Calling | DraftPartPhase::Waiting(_) => ("waiting", None),
            };
            let sum = draft.account().sums.get(&format!("plan:{part}"));
            json!({
                "part": part, "epic": part.epic(), "state": stand, "reason": why, "calls": state.calls,
                "agent": state.agent, "problems": state.problems, "help": state.help,
                "ms": state.ended.map(|_| state.worked_ms),
                "input_tokens": sum.map(|sum| sum.input_tokens),
                "output_tokens": sum.map(|sum| sum.output_tokens),
                "cost_usd": sum.map(|sum| sum.paid_usd()),
            })
        };
        let total = &draft.account().total;
        let changes = self.end.changes.as_ref().map(|changes| {
            json!({
                "added": changes.added, "same": changes.same,
                "changed": changes.changed.iter().map(|(id, what)| json!({ "task": id, "what": what })).collect::<Vec<_>>(),
                "dropped": changes.dropped.iter().map(|(id, title)| json!({ "task": id, "title": title })).collect::<Vec<_>>(),
            })
        });
        let missing: Vec<String> = self.failed.iter().map(|(part, _)| part.to_string()).collect();
        json!({
            "type": "plan_result", "schema": "mainstem.plan/1", "plan": self.name, "exit_code": code,
            "written": self.end.written.then_some(output), "folder": self.folder,
            "missing": missing, "parts": draft.parts().iter().map(part).collect::<Vec<_>>(),
            "report": self.end.gathered.as_ref().map(|gathered| assembly_report_json(&gathered.report)),
            "tasks": self.end.gathered.as_ref().map(|gathered| gathered.plan.tasks.len()),
            "changes": changes,
            "totals": {
                "ms": draft.earlier_epochs_ms() + elapsed_ms(self.began), "calls": count_calls(draft),
                "input_tokens": total.input_tokens, "output_tokens": total.output_tokens,
                "cost_usd": total.paid_usd(), "included_usd": total.included_usd,
                "basis": total.basis(),
            },
        })
    }
}

fn elapsed_ms(began: i64) -> u64 {
    u64::try_from(mainstem_host::clock::now_ms() - began).unwrap_or(0)
}

fn count_calls(draft: &Draft) -> u32 {
    draft.parts().values().map(|state| state.calls).sum()
}

/// Time by stage, tokens, money.
fn spent_text(draft: &Draft, began: i64) -> String {
    let stages = [("shred", "shred"), ("scatter", "scatter"), ("whole", "one pass")];
    let stages = stages.into_iter().filter_map(|(stage, name)| {
        Some(format!("{name} {}", output::format_duration(draft.stage_ms(stage)?)))
    });
    let stages: Vec<String> = stages.collect();
    let total = &draft.account().total;
    let money = match total.basis() {
        "unknown" => "cost unknown".to_owned(),
        basis => format!("${:.2} ({basis})", total.paid_usd() + total.included_usd),
    };
    format!(
        "{}; {} in total, {}, {} tokens in, {} out, {money}\n",
        stages.join(", "),
        output::format_duration(draft.earlier_epochs_ms() + elapsed_ms(began)),
        output::count_noun(u64::from(count_calls(draft)), "call"),
        total.input_tokens + total.cache_read_tokens + total.cache_write_tokens,
        total.output_tokens,
    )
}

/// Nothing came of it.
fn no_answer_error(draft: &Draft, failed: &[(DraftPart, Option<String>)]) -> CliError {
    let what = match draft.breakdown() {
        None => "the document could not be split into epics",
        Some(_) => "no epic was planned",
    };
    let mut failure = CliError::new(what);
    for (part, _) in failed.iter().take(SHOWN) {
        if let Some(DraftPartPhase::Failed(why)) = draft.parts().get(part).map(|state| &state.phase)
        {
            failure.causes.push(format!("{part}: {}", output::sanitize_text(why)));
        }
        if let Some(help) = draft.parts().get(part).and_then(|state| state.help.clone()) {
            failure = failure.with_hint(output::sanitize_text(&help));
        }
    }
    failure
}

/// What was decided on the way, for people to review.
fn assembly_report_text(report: &AssemblyReport) -> String {
    let mut out = String::new();
    let mut list = |lines: Vec<String>, more: &str| {
        for line in lines.iter().take(SHOWN) {
            let _ = writeln!(out, "{}", output::sanitize_text(line));
        }
        if lines.len() > SHOWN {
            let _ = writeln!(
                out,
                "… and {} more {more}; report.json has them all",
                lines.len() - SHOWN
            );
        }
    };
    let merged = report.merged.iter();
    list(
        merged
            .map(|m| format!("merged: {} into {} ({})", m.gone.join(", "), m.into, m.kept))
            .collect(),
        "duplicates",
    );
    list(
        report
            .unresolved
            .iter()
            .map(|r| format!("unknown task: {} needs {}", r.from, r.label))
            .collect(),
        "references",
    );
    list(
        report
            .ambiguous
            .iter()
            .map(|r| format!("ambiguous: {} needs {}", r.from, r.label))
            .collect(),
        "references",
    );
    for circle in &report.circles {
        let drops: Vec<String> =
            circle.drop.iter().map(|(a, b, why)| format!("{a} needs {b} ({why})")).collect();
        list(
            vec![format!(
                "dependency cycle: {}; to drop: {}",
                circle.path.join(" → "),
                drops.join(", ")
            )],
            "",
        );
    }
    let uncovered = report.uncovered.iter();
    list(
        uncovered
            .map(|s| format!("not covered: line {}: {} {}", s.line, s.number, s.title))
            .collect(),
        "sections",
    );
    list(
        report
            .overlaps
            .iter()
            .map(|o| format!("overlap: {} and {} both write {}", o.a, o.b, o.path))
            .collect(),
        "overlaps",
    );
    list(report.empty_epics.iter().map(|id| format!("no tasks: {id}")).collect(), "epics");
    out
}

/// The same for programs.
pub(super) fn assembly_report_json(report: &AssemblyReport) -> Value {
    json!({
        "ids": report.ids, "resolved": report.resolved,
        "unresolved": report.unresolved.iter().map(|r| json!({ "from": r.from, "label": r.label })).collect::<Vec<_>>(),
        "ambiguous": report.ambiguous.iter().map(|r| json!({ "from": r.from, "label": r.label })).collect::<Vec<_>>(),
        "merged": report.merged.iter().map(|m| json!({ "into": m.into, "kept": m.kept, "gone": m.gone })).collect::<Vec<_>>(),
        "circles": report.circles.iter().map(|c| json!({ "path": c.path, "drop": c.drop })).collect::<Vec<_>>(),
        "uncovered": report.uncovered.iter().map(|s| json!({ "line": s.line, "number": s.number, "title": s.title })).collect::<Vec<_>>(),
        "overlaps": report.overlaps.iter().map(|o| json!({ "a": o.a, "b": o.b, "path": o.path })).collect::<Vec<_>>(),
        "empty_epics": report.empty_epics, "barriers": report.barriers,
    })
}
