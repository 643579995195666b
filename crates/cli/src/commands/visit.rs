//! `shell` and `open`: a task's workspace for a person, in a shell or an editor.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstem_api::exit_code;
use mainstem_core::config::Settings;
use mainstem_core::id::{RunId, TaskIx};
use mainstem_core::phase::Phase;
use mainstem_engine::look::Look;
use mainstem_engine::paths::Layout;
use mainstem_engine::visit::{self, Visit};
use mainstem_host::git::Repo;
use serde_json::json;

use crate::args::{OpenArgs, ShellArgs};
use crate::commands::status::short;
use crate::context::{Context, environment, own_exe};
use crate::failure::{Failure, Outcome};
use crate::print;

/// A workspace that is there.
struct Found {
    repo: Repo,
    layout: Layout,
    settings: Settings,
    look: Look,
    run: RunId,
    task: TaskIx,
    workspace: PathBuf,
}

fn find(context: &Context, name: &str) -> Result<Found, Failure> {
    let (repo, settings, layout) = context.place()?;
    let (_, _, look) = context.look_at_run(None)?;
    let task = look.machine.find(name)?;
    let run = look.run.clone().unwrap_or_else(|| RunId::new(""));
    let view = look.machine.view(task);
    let mut there = view.workspace.map(PathBuf::from).filter(|path| path.is_dir());
    if let (None, Phase::Conflicted, Some(branch)) = (&there, view.phase, &view.branch) {
        let unit = mainstem_engine::perform::unit_name(&look.machine, task);
        let laid = layout.workspace(&unit);
        there = match laid.is_dir() {
            true => Some(laid),
            false => visit::lay_out(&repo, &layout, &settings, (&unit, branch))?,
        };
    }
    match there {
        Some(workspace) => Ok(Found { repo, layout, settings, look, run, task, workspace }),
        None => Err(no_workspace(name, view.phase, view.commit.as_ref().map(|c| c.as_str()))),
    }
}

/// Why a task has no workspace, and where its work is instead.
fn no_workspace(task: &str, phase: Phase, commit: Option<&str>) -> Failure {
    let failure = Failure::new(format!("{task} has no workspace (state: {})", phase.word()));
    match (phase, commit) {
        (Phase::Landed, Some(commit)) => {
            failure.hint(format!("see the landed work: git show {}", short(commit)))
        }
        (Phase::Waiting | Phase::Ready, _) => {
            failure.hint("the workspace is created when the task starts")
        }
        _ => failure.hint(format!("restore the work as a branch: mainstem restore {task}")),
    }
}

/// A shell, or a command, in a task's workspace.
pub(crate) fn shell(context: &Context, args: &ShellArgs) -> Outcome {
    let found = find(context, &args.task)?;
    let view = found.look.machine.view(found.task);
    let interactive = args.command.is_empty();
    let argv = if interactive { vec![own_shell()] } else { args.command.clone() };
    let say = |line: &str| {
        if !context.global.quiet && interactive {
            print::err(line);
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
        let mut command = command_of(argv.iter().map(OsString::from).collect())?;
        command.current_dir(&found.workspace).env("MAINSTEM_TASK", &args.task);
        command
    } else {
        let id = &found.look.machine.plan().tasks[found.task.ix()].id;
        let visit = Visit {
            run: &found.run,
            task: id,
            attempt: view.attempt,
            branch: view.branch.as_deref().unwrap_or_default(),
            workspace: &found.workspace,
        };
        let place = (found.repo, found.layout, found.settings);
        let prepared = visit.prepare(place, (&own_exe()?, environment()), argv)?;
        say(&match &prepared.sandbox {
            Some(kind) => format!("{}: sandboxed ({kind})", prepared.cwd.display()),
            None => format!("{}: not sandboxed (sandbox.kind = \"off\")", prepared.cwd.display()),
        });
        let mut command = command_of(prepared.argv)?;
        command.current_dir(&prepared.cwd).env_clear().envs(&prepared.env);
        command
    };
    ended(&mut command)
}

/// A task's workspace in an editor.
pub(crate) fn open(context: &Context, args: &OpenArgs) -> Outcome {
    let found = find(context, &args.task)?;
    let words = editor(&found.settings).ok_or_else(|| {
        Failure::new("no editor is set")
            .hint(
                "set $VISUAL or $EDITOR, or run: mainstem config set workspace.editor '[\"code\"]'",
            )
            .hint(format!("the workspace is {}", found.workspace.display()))
    })?;
    if context.global.json {
        print::out_json(&json!({
            "task": args.task, "workspace": found.workspace, "command": words,
        }))?;
    } else if !context.global.quiet {
        print::err(&format!(
            "{}: files written by an agent; your editor runs unsandboxed, with your permissions",
            found.workspace.display()
        ));
    }
    let mut argv: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    argv.push(found.workspace.clone().into());
    ended(command_of(argv)?.current_dir(&found.workspace))
}

/// The editor: as configured, else as the environment says, split like a shell would split it.
fn editor(settings: &Settings) -> Option<Vec<String>> {
    let configured = &settings.workspace.editor;
    if !configured.is_empty() {
        return Some(configured.clone());
    }
    let named = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))?;
    Some(named.split_whitespace().map(str::to_owned).collect())
}

fn own_shell() -> String {
    let named = std::env::var("SHELL").ok().filter(|shell| Path::new(shell).is_absolute());
    named.unwrap_or_else(|| "/bin/sh".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "the user's own shell or editor, on their terminal")]
fn command_of(argv: Vec<OsString>) -> Result<Command, Failure> {
    let mut words = argv.into_iter();
    let program = words.next().ok_or_else(|| Failure::usage("missing command"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// Runs a command with our terminal and ends as it ends.
fn ended(command: &mut Command) -> Outcome {
    let program = command.get_program().to_string_lossy().into_owned();
    let status =
        command.status().map_err(|error| Failure::io(format!("cannot start {program}"), &error))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit_code::ERROR))
}
