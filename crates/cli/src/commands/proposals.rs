//! `proposals`, `accept`, `reject`: what agents would add to the plan, and what becomes of it.

use std::fmt::Write as _;

use mainstem_api::control::ControlRequest;
use mainstem_api::{exit_code, time};
use mainstem_core::machine::ProposalDecision;
use serde_json::{Value, json};

use crate::commands::control_client;
use crate::context::CliContext;
use crate::error::CommandResult;
use crate::output;

pub(crate) fn decide_proposals(
    context: &CliContext,
    proposals: Vec<String>,
    accept: bool,
) -> CommandResult {
    let one = |proposal| match accept {
        true => ControlRequest::Accept { proposal },
        false => ControlRequest::Reject { proposal },
    };
    control_client::run_requests(context, proposals.into_iter().map(one).collect())
}

/// Lists all proposals of the run, and the issues that agents wrote down.
pub(crate) fn cmd_proposals(context: &CliContext, run: Option<&str>) -> CommandResult {
    let (_, _, look) = context.open_existing_run(run)?;
    let machine = &look.machine;
    if context.global.json {
        let proposals = machine.proposals().iter().enumerate().map(|(at, p)| {
            let (state, becomes) = match &p.decided {
                None => ("open", None),
                Some(ProposalDecision::Rejected) => ("rejected", None),
                Some(ProposalDecision::Accepted(id)) => ("accepted", Some(id.to_string())),
            };
            json!({
                "id": format!("P{}", at + 1), "state": state, "becomes": becomes, "by": p.task,
                "attempt": p.attempt, "proposed_id": p.id, "title": p.title,
                "description": p.description, "needs": p.needs, "at": time::to_rfc3339(p.at.0),
            })
        });
        let issues = machine.reported_issues().iter().map(|issue| {
            json!({
                "by": issue.task, "title": issue.title, "text": issue.text,
                "severity": issue.severity, "at": time::to_rfc3339(issue.at.0),
            })
        });
        let (proposals, issues): (Vec<Value>, Vec<Value>) = (proposals.collect(), issues.collect());
        output::write_json(&json!({ "proposals": proposals, "issues": issues }))?;
        return Ok(exit_code::OK);
    }
    let mut out = String::new();
    for (at, p) in machine.proposals().iter().enumerate() {
        let state = match &p.decided {
            None => format!("mainstem accept P{0}, mainstem reject P{0}", at + 1),
            Some(ProposalDecision::Rejected) => "rejected".to_owned(),
            Some(ProposalDecision::Accepted(id)) => format!("accepted as {id}"),
        };
        let title = output::sanitize_text(&p.title).replace('\n', " ");
        let _ = writeln!(out, "P{}  {title}  (by {}; {state})", at + 1, p.task);
        for line in output::sanitize_text(&p.description).lines().take(6) {
            let _ = writeln!(out, "    {line}");
        }
        if !p.needs.is_empty() {
            let _ = writeln!(out, "    needs {}", output::sanitize_text(&p.needs.join(", ")));
        }
    }
    for issue in machine.reported_issues() {
        let title = output::sanitize_text(&issue.title).replace('\n', " ");
        let severity = output::sanitize_text(&issue.severity);
        let _ = writeln!(
            out,
            "issue  {title}  (by {}{}{severity})",
            issue.task,
            if severity.is_empty() { "" } else { "; " }
        );
    }
    if out.is_empty() {
        output::write_stderr("no proposed tasks or reported issues");
    } else {
        output::write_stdout(&out)?;
    }
    Ok(exit_code::OK)
}
