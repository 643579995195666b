//! `land`: brings a run's own branch over to the branch it is meant for.

use mainstem_api::exit_code;
use mainstem_engine::bring_over;
use mainstem_engine::session::SessionError;
use serde_json::json;

use crate::commands::status::{one_line, short};
use crate::context::{Context, environment, own_exe};
use crate::failure::Outcome;
use crate::print;

/// Brings the work over.
pub(crate) fn land(context: &Context) -> Outcome {
    let (_, _, layout) = context.place()?;
    if !layout.journal().exists() {
        return Err(SessionError::NoRun.into());
    }
    let brought = bring_over::bring_over(context.session()?, own_exe()?, environment())?;
    if context.global.json {
        print::out_json(&json!({
            "from": brought.from, "to": brought.to, "commit": brought.commit,
            "merged": brought.merged, "already_there": brought.known,
            "checkout": brought.checkout,
        }))?;
        return Ok(exit_code::OK);
    }
    let (from, to, commit) = (&brought.from, &brought.to, short(brought.commit.as_str()));
    print::err(&match (brought.known, brought.merged) {
        (true, _) => format!("{to} already has everything on {from}"),
        (false, true) => format!("merged {from} into {to}, now at {commit}"),
        (false, false) => format!("moved {to} to {commit}, with everything that landed on {from}"),
    });
    if let Some(why) = &brought.checkout {
        print::err(&one_line(why));
    }
    Ok(exit_code::OK)
}
