//! `proposals`, `accept`, `reject`: what agents would add to the plan, and what becomes of it.

use std::fmt::Write as _;

use mainstem_api::control::Request;
use mainstem_api::{exit_code, time};
use mainstem_core::machine::Decided;
use serde_json::{Value, json};

use crate::commands::steer;
use crate::context::Context;
use crate::failure::Outcome;
use crate::print;

/// `accept` and `reject`.
pub(crate) fn decide(context: &Context, proposals: Vec<String>, accept: bool) -> Outcome {
    let one = |proposal| match accept {
        true => Request::Accept { proposal },
        false => Request::Reject { proposal },
    };
    steer::steer(context, proposals.into_iter().map(one).collect())
}

/// Lists all proposals of the run, and the issues that agents wrote down.
pub(crate) fn proposals(context: &Context, run: Option<&str>) -> Outcome {
    let (_, _, look) = context.look_at_run(run)?;
    let machine = &look.machine;
    if context.global.json {
        let proposals = machine.proposals().iter().enumerate().map(|(at, p)| {
            let (state, becomes) = match &p.decided {
                None => ("open", None),
                Some(Decided::Rejected) => ("rejected", None),
                Some(Decided::Accepted(id)) => ("accepted", Some(id.to_string())),
            };
            json!({
                "id": format!("P{}", at + 1), "state": state, "becomes": becomes, "by": p.task,
                "attempt": p.attempt, "proposed_id": p.id, "title": p.title,
                "description": p.description, "needs": p.needs, "at": time::to_rfc3339(p.at.0),
            })
        });
        let issues = machine.issues().iter().map(|issue| {
            json!({
                "by": issue.task, "title": issue.title, "text": issue.text,
                "severity": issue.severity, "at": time::to_rfc3339(issue.at.0),
            })
        });
        let (proposals, issues): (Vec<Value>, Vec<Value>) = (proposals.collect(), issues.collect());
        print::out_json(&json!({ "proposals": proposals, "issues": issues }))?;
        return Ok(exit_code::OK);
    }
    let mut out = String::new();
    for (at, p) in machine.proposals().iter().enumerate() {
        let state = match &p.decided {
            None => format!("mainstem accept P{0}, mainstem reject P{0}", at + 1),
            Some(Decided::Rejected) => "rejected".to_owned(),
            Some(Decided::Accepted(id)) => format!("accepted as {id}"),
        };
        let title = print::harmless(&p.title).replace('\n', " ");
        let _ = writeln!(out, "P{}  {title}  (by {}; {state})", at + 1, p.task);
        for line in print::harmless(&p.description).lines().take(6) {
            let _ = writeln!(out, "    {line}");
        }
        if !p.needs.is_empty() {
            let _ = writeln!(out, "    needs {}", print::harmless(&p.needs.join(", ")));
        }
    }
    for issue in machine.issues() {
        let title = print::harmless(&issue.title).replace('\n', " ");
        let severity = print::harmless(&issue.severity);
        let _ = writeln!(
            out,
            "issue  {title}  (by {}{}{severity})",
            issue.task,
            if severity.is_empty() { "" } else { "; " }
        );
    }
    if out.is_empty() {
        print::err("no proposed tasks or reported issues");
    } else {
        print::out(&out)?;
    }
    Ok(exit_code::OK)
}
