//! Any agent that speaks the Agent Client Protocol on its standard streams.

use super::{LaunchPlan, drive_spec, visible_variable};
use crate::adapter::{LaunchBrief, LaunchError};

pub(crate) struct AcpAdapter;

pub(super) fn plan_launch(brief: &LaunchBrief<'_>) -> Result<LaunchPlan, LaunchError> {
    let mut spec = drive_spec(brief, "acp");
    let agent = brief.agent;
    let (program, args) = match agent.command.split_first() {
        Some((program, args)) if !program.trim().is_empty() => (program, args),
        _ => return Err(LaunchError::EmptyCommand { agent: brief.agent_name.to_owned() }),
    };
    spec.program = agent.binary.clone().unwrap_or_else(|| program.clone());
    spec.args = args.iter().chain(&agent.args).cloned().collect();
    spec.fresh_args = Some(spec.args.clone());
    spec.set = vec![("PWD".to_owned(), brief.workspace.to_owned())];
    let env = vec![
        ("GEMINI_CLI_NO_RELAUNCH", "true".to_owned()),
        ("QWEN_CODE_NO_RELAUNCH", "true".to_owned()),
    ];
    // Where it keeps its login is known only to itself; these are where the known ones do.
    let home = visible_variable(brief, "HOME");
    let below = |folder: &str| home.map(|home| format!("{home}/{folder}"));
    let name = program.rsplit('/').next().unwrap_or(program);
    let state = match name {
        "gemini" => below(".gemini"),
        "goose" => below(".config/goose"),
        "copilot" => below(".copilot"),
        "qwen" => below(".qwen"),
        _ => None,
    };
    let state = state.into_iter().collect();
    Ok(LaunchPlan { spec, env, files: Vec::new(), state, state_files: Vec::new() })
}
