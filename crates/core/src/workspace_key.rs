//! Which tasks share a workspace, by its name. One name serves both as the folder and as what only one
//! task at a time may hold, so two agents cannot meet in a folder.

use crate::config::WorkspaceSharing;
use crate::plan::Task;

/// The name of a task's workspace: its own id, or that of what it shares it with. A task may be
/// named like what others share: then it shares it too, and waits its turn.
pub fn workspace_name(task: &Task, unit: WorkspaceSharing) -> String {
    match unit {
        WorkspaceSharing::Task => task.id.to_string(),
        WorkspaceSharing::Epic => match &task.epic {
            Some(epic) => format!("epic-{epic}"),
            None => task.id.to_string(),
        },
        WorkspaceSharing::Phase => match &task.phase {
            Some(phase) => format!("phase-{}", safe_name(phase)),
            None => task.id.to_string(),
        },
        WorkspaceSharing::None => "shared".to_owned(),
    }
}

/// A phase is free text; a folder is not.
fn safe_name(text: &str) -> String {
    let clean: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let sum = text.bytes().fold(0u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(b)));
    format!("{clean}-{sum:08x}")
}
