//! `proposals`, `accept`, `reject`: what agents would add to the plan, and what becomes of it.

use std::fmt::Write as _;

use mainstem_api::control::ControlRequest;
use mainstem_api::exit_code;
use mainstem_api::run::ProposalReport;

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
    let ProposalReport { proposals, issues } = look.proposals();
    if context.global.json {
        output::write_json(&ProposalReport { proposals, issues })?;
        return Ok(exit_code::OK);
    }
    let mut out = String::new();
    for p in &proposals {
        let id = &p.id;
        let state = match &p.becomes {
            Some(task) => format!("accepted as {task}"),
            None if p.state == "open" => format!("mainstem accept {id}, mainstem reject {id}"),
            None => p.state.clone(),
        };
        let title = output::sanitize_text(&p.title).replace('\n', " ");
        let _ = writeln!(out, "{id}  {title}  (by {}; {state})", p.by);
        for line in output::sanitize_text(&p.description).lines().take(6) {
            let _ = writeln!(out, "    {line}");
        }
        if !p.needs.is_empty() {
            let _ = writeln!(out, "    needs {}", output::sanitize_text(&p.needs.join(", ")));
        }
    }
    for issue in &issues {
        let title = output::sanitize_text(&issue.title).replace('\n', " ");
        let severity = output::sanitize_text(&issue.severity);
        let _ = writeln!(
            out,
            "issue  {title}  (by {}{}{severity})",
            issue.by,
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
