//! `land`: brings a run's own branch over to the branch it is meant for.

use mainstem_api::actions::LandReport;
use mainstem_api::exit_code;
use mainstem_engine::branch_landing;
use mainstem_engine::instance::EngineError;

use crate::commands::history::journal_error;
use crate::commands::status::{collapse_to_line, short_oid};
use crate::context::{CliContext, own_executable, text_environment};
use crate::error::CommandResult;
use crate::output;

/// Brings the work over.
pub(crate) fn cmd_land(context: &CliContext) -> CommandResult {
    let (_, _, layout) = context.load_repo_context()?;
    if !layout.run_store().has_journal().map_err(journal_error)? {
        return Err(EngineError::NoRun.into());
    }
    let brought = branch_landing::land_run_branch(
        context.open_engine_instance()?,
        own_executable()?,
        text_environment(),
    )?;
    if context.global.json {
        output::write_json(&LandReport {
            from: brought.from,
            to: brought.to,
            commit: brought.commit.to_string(),
            merged: brought.merged,
            already_there: brought.known,
            checkout: brought.checkout,
        })?;
        return Ok(exit_code::OK);
    }
    let (from, to, commit) = (&brought.from, &brought.to, short_oid(brought.commit.as_str()));
    output::write_stderr(&match (brought.known, brought.merged) {
        (true, _) => format!("{to} already has everything on {from}"),
        (false, true) => format!("merged {from} into {to}, now at {commit}"),
        (false, false) => format!("moved {to} to {commit}, with everything that landed on {from}"),
    });
    if let Some(why) = &brought.checkout {
        output::write_stderr(&collapse_to_line(why));
    }
    Ok(exit_code::OK)
}
