//! The tools of an attempt: the door they speak through, the files they read, and how its agent starts
//! the server that offers them.

use std::collections::BTreeMap;
use std::path::Path;

use mainstem_agents::McpServerEntry;
use mainstem_host::files;
use mainstem_host::process::ToolSocketSpec;

use super::EffectContext;
use super::agent::AttemptLaunch;
use crate::attempt_prompt;

/// What may be said through the door. Tokens, money and limits are not for the agent to tell.
const KINDS: [&str; 7] =
    ["ask", "progress", "claimed_done", "issue", "propose_task", "nothing_to_do", "blocked"];

/// Makes everything ready; gives the door and the server's entry.
pub fn prepare_tool_server(
    errand: &EffectContext,
    assignment: &AttemptLaunch,
    tmp: &Path,
) -> Result<(ToolSocketSpec, McpServerEntry), String> {
    let world = &errand.engine;
    let door = ToolSocketSpec::new(tmp.join("mcp.sock"), &KINDS)
        .map_err(|error| format!("cannot create a token: {error}"))?;
    let gates = &world.settings.gates.verify;
    let (epic, told) = (assignment.epic.as_ref(), &assignment.prompt_context);
    let task = attempt_prompt::render_task_json(&errand.task, epic, errand.attempt, told, gates);
    for (name, value) in [("task.json", &task), ("peers.json", &told.peers)] {
        let path = tmp.join(name);
        files::write_atomic(&path, format!("{value:#}\n").as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let env = BTreeMap::from([
        ("MAINSTEM_MCP_SOCKET".to_owned(), door.path.to_string_lossy().into_owned()),
        ("MAINSTEM_MCP_TOKEN".to_owned(), door.token.clone()),
        ("MAINSTEM_TMP".to_owned(), tmp.to_string_lossy().into_owned()),
    ]);
    let command = world.exe.to_string_lossy().into_owned();
    Ok((door, McpServerEntry { command, args: vec!["__mcp".to_owned()], env }))
}
