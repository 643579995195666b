//! `shell` and `open`: a task's workspace for a person, in a shell or an editor.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstem_api::actions::OpenReport;
use mainstem_api::exit_code;
use mainstem_core::config::Settings;
use mainstem_core::id::{RunId, TaskIx};
use mainstem_core::phase::Phase;
use mainstem_engine::query::RunReader;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::workspace_shell::{self, WorkspaceShell};
use mainstem_host::git::Repo;

use crate::args::{OpenArgs, ShellArgs};
use crate::commands::status::short_oid;
use crate::context::{CliContext, own_executable, text_environment};
use crate::error::{CliError, CommandResult};
use crate::output;

/// A workspace that is there.
struct FoundWorkspace {
    repo: Repo,
    layout: RepoLayout,
    settings: Settings,
    look: RunReader,
    run: RunId,
    task: TaskIx,
    workspace: PathBuf,
}

fn find_workspace(context: &CliContext, name: &str) -> Result<FoundWorkspace, CliError> {
    let (repo, settings, layout) = context.load_repo_context()?;
    let (_, _, look) = context.open_existing_run(None)?;
    let task = look.machine.find_task(name)?;
    let run = look.run.clone().unwrap_or_else(|| RunId::new(""));
    let view = look.machine.task_view(task);
    let mut there = view.workspace.map(PathBuf::from).filter(|path| path.is_dir());
    if let (None, Phase::Conflicted, Some(branch)) = (&there, view.phase, &view.branch) {
        let unit = mainstem_engine::effects::workspace_key(&look.machine, task);
        let laid = layout.workspace_path(&unit);
        there = match laid.is_dir() {
            true => Some(laid),
            false => workspace_shell::lay_out(&repo, &layout, &settings, (&unit, branch))?,
        };
    }
    match there {
        Some(workspace) => {
            Ok(FoundWorkspace { repo, layout, settings, look, run, task, workspace })
        }
        None => Err(no_workspace_error(name, view.phase, view.commit.as_ref().map(|c| c.as_str()))),
    }
}

/// Why a task has no workspace, and where its work is instead.
fn no_workspace_error(task: &str, phase: Phase, commit: Option<&str>) -> CliError {
    let failure = CliError::new(format!("{task} has no workspace (state: {})", phase.as_str()));
    match (phase, commit) {
        (Phase::Landed, Some(commit)) => {
            failure.with_hint(format!("see the landed work: git show {}", short_oid(commit)))
        }
        (Phase::Waiting | Phase::Ready, _) => {
            failure.with_hint("the workspace is created when the task starts")
        }
        _ => failure.with_hint(format!("restore the work as a branch: mainstem restore {task}")),
    }
}

/// A shell, or a command, in a task's workspace.
pub(crate) fn cmd_shell(context: &CliContext, args: &ShellArgs) -> CommandResult {
    let found = find_workspace(context, &args.task)?;
    let view = found.look.machine.task_view(found.task);
    let interactive = args.command.is_empty();
    let argv = if interactive { vec![user_shell()] } else { args.command.clone() };
    let say = |line: &str| {
        if !context.global.quiet && interactive {
            output::write_stderr(line);
        }
    };
    if view.phase == Phase::Working {
        say(&format!("{} is working here right now", view.agent));
    }
    let mut command = if args.no_sandbox {
        say(&format!(
            "{}: not sandboxed, commands run with your permissions",
            found.workspace.display()
        ));
        let mut command = build_command(argv.iter().map(OsString::from).collect())?;
        command.current_dir(&found.workspace).env("MAINSTEM_TASK", &args.task);
        command
    } else {
        let id = &found.look.machine.plan().tasks[found.task.index()].id;
        let visit = WorkspaceShell {
            run: &found.run,
            task: id,
            attempt: view.attempt,
            branch: view.branch.as_deref().unwrap_or_default(),
            workspace: &found.workspace,
        };
        let place = (found.repo, found.layout, found.settings);
        let prepared =
            visit.prepare_command(place, (&own_executable()?, text_environment()), argv)?;
        say(&match &prepared.sandbox {
            Some(kind) => format!("{}: sandboxed ({kind})", prepared.cwd.display()),
            None => format!("{}: not sandboxed (sandbox.kind = \"off\")", prepared.cwd.display()),
        });
        let mut command = build_command(prepared.argv)?;
        command.current_dir(&prepared.cwd).env_clear().envs(&prepared.env);
        command
    };
    run_to_end(&mut command)
}

/// A task's workspace in an editor.
pub(crate) fn cmd_open(context: &CliContext, args: &OpenArgs) -> CommandResult {
    let found = find_workspace(context, &args.task)?;
    let words = editor_command(&found.settings).ok_or_else(|| {
        CliError::new("no editor is set")
            .with_hint(
                "set $VISUAL or $EDITOR, or run: mainstem config set workspace.editor '[\"code\"]'",
            )
            .with_hint(format!("the workspace is {}", found.workspace.display()))
    })?;
    if context.global.json {
        output::write_json(&OpenReport {
            task: args.task.clone(),
            workspace: found.workspace.display().to_string(),
            command: words.clone(),
        })?;
    } else if !context.global.quiet {
        output::write_stderr(&format!(
            "{}: files written by an agent; your editor runs unsandboxed, with your permissions",
            found.workspace.display()
        ));
    }
    let mut argv: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    argv.push(found.workspace.clone().into());
    run_to_end(build_command(argv)?.current_dir(&found.workspace))
}

/// The editor: as configured, else as the environment says, split like a shell would split it.
fn editor_command(settings: &Settings) -> Option<Vec<String>> {
    let configured = &settings.workspace.editor;
    if !configured.is_empty() {
        return Some(configured.clone());
    }
    let named = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))?;
    Some(named.split_whitespace().map(str::to_owned).collect())
}

fn user_shell() -> String {
    let named = std::env::var("SHELL").ok().filter(|shell| Path::new(shell).is_absolute());
    named.unwrap_or_else(|| "/bin/sh".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "the user's own shell or editor, on their terminal")]
fn build_command(argv: Vec<OsString>) -> Result<Command, CliError> {
    let mut words = argv.into_iter();
    let program = words.next().ok_or_else(|| CliError::usage_error("missing command"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// Runs a command with our terminal and ends as it ends.
fn run_to_end(command: &mut Command) -> CommandResult {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| CliError::io_error(format!("cannot start {program}"), &error))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit_code::ERROR))
}
