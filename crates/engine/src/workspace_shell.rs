//! Going into a task's workspace by hand: the command that opens a shell there, in the sandbox that its agent has.
//! Needs no engine and takes no lock; runs nothing itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mainstem_core::config::{SandboxKind, Settings, WorkspaceKind};
use mainstem_core::id::{RunId, TaskId};
use mainstem_host::git::{GitError, Repo};
use mainstem_host::sandbox;

use crate::engine_context::EngineContext;
use crate::instance::EngineError;
use crate::repo_layout::RepoLayout;
use crate::sandbox_policy::{self, EngineSandbox, SandboxScope};

/// The workspace to go into.
#[derive(Debug)]
pub struct WorkspaceShell<'a> {
    pub run: &'a RunId,
    pub task: &'a TaskId,
    pub attempt: u32,
    pub branch: &'a str,
    pub workspace: &'a Path,
}

/// A command ready to be started.
#[derive(Debug)]
pub struct WorkspaceShellCommand {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub env: BTreeMap<String, String>,
    /// The sandbox in words; none if the settings say that there is none.
    pub sandbox: Option<String>,
}

/// Lays the work of a task out in its workspace again, on its branch. Commits that are made there are part of the next
/// attempt. None if the branch is gone, or checked out somewhere else.
pub fn lay_out(
    repo: &Repo,
    layout: &RepoLayout,
    settings: &Settings,
    (unit, branch): (&str, &str),
) -> Result<Option<PathBuf>, GitError> {
    let (path, trash) = (layout.workspace_path(unit), layout.trash_dir());
    let made = |source| GitError::Files { what: "create", path: path.clone(), source };
    std::fs::create_dir_all(layout.workspace_root()).map_err(made)?;
    if !repo.checkout_branch(&path, branch, &trash)? {
        return Ok(None);
    }
    match settings.workspace.kind {
        WorkspaceKind::Clone => repo.create_agent_clone(&path, &trash)?,
        WorkspaceKind::Worktree if settings.sandbox.kind != SandboxKind::Off => {
            repo.create_agent_git_dir(&path)?;
        }
        WorkspaceKind::Worktree => {}
    }
    Ok(Some(path))
}

impl WorkspaceShell<'_> {
    /// The command behind the sandbox that an agent has in this workspace.
    pub fn prepare_command(
        &self,
        (repo, layout, settings): (Repo, RepoLayout, Settings),
        (exe, env): (&Path, Vec<(String, String)>),
        argv: Vec<String>,
    ) -> Result<WorkspaceShellCommand, EngineError> {
        let walls = sandbox_policy::choose_backend(&settings.sandbox, exe)?
            .map(|kind| EngineSandbox::new(kind, &settings, (&repo, &layout), (exe, &env)))
            .transpose()?;
        let sandbox = walls.as_ref().map(|walls| walls.backend_name().to_owned());
        let behind = SandboxScope {
            workspace: self.workspace,
            branch: Some(self.branch),
            tmp: Some(layout.attempt_tmp(self.task, self.attempt)),
            caches: Some(layout.attempt_caches(self.task, self.attempt)),
            ..SandboxScope::default()
        };
        let run = self.run.clone();
        let world =
            EngineContext::for_planning(repo, layout, settings, run, (exe.into(), env), walls);
        let env = world.command_env(&world.attempt_variables(self.task, self.attempt));
        let spec = world.agent_job(argv, self.workspace.to_path_buf(), env);
        let spec = world.sandboxed_job(spec, &behind)?;
        let argv = match &spec.wall {
            Some(wall) => {
                sandbox::wrap_command(wall, exe, &spec.cwd, &spec.argv, None).map_err(|source| {
                    let (what, path) = ("build the sandbox around", spec.cwd.clone());
                    GitError::Files { what, path, source }
                })?
            }
            None => spec.argv.iter().map(OsString::from).collect(),
        };
        Ok(WorkspaceShellCommand { argv, cwd: spec.cwd, env: spec.env, sandbox })
    }
}
