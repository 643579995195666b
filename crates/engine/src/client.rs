//! The write side: commands to a run, whether an engine works on it or not.
//!
//! A running engine is reached through its control socket. If no engine runs, the command is carried out in this
//! process, which then owns the repository for that long. An engine that is starting or ending is waited for.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mainstem_api::control::{ControlError, ControlRequest};
use mainstem_core::id::{TaskId, TaskIx};
use mainstem_core::machine::{Machine, MachineCommand};
use mainstem_core::phase::Phase;
use mainstem_core::plan::{Plan, Task};

use crate::control_socket;
use crate::instance::{EngineError, EngineInstance, RunRequest};
use crate::maintenance::{self, CleanScope};
use crate::query::is_engine_running;
use crate::repo_layout::RepoLayout;
use crate::run_journal::RunJournalError;

/// How long a command waits for an engine that is just starting or just ending.
const HANDOVER_WAIT: Duration = Duration::from_secs(20);
const HANDOVER_POLL_MS: u64 = 50;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the running engine does not respond")]
    NoAnswer(#[source] io::Error),
    #[error(transparent)]
    Journal(#[from] RunJournalError),
    /// The run refused it.
    #[error("{message}")]
    Refused { error: Option<ControlError>, message: String, hint: Option<String> },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Takes the repository over. Called only if no engine runs, so that broken settings keep nobody from reaching one.
pub type OpenInstance<'a, E> = &'a dyn Fn() -> Result<EngineInstance, E>;

/// Who carries a command out.
pub enum ControlRecipient {
    /// An engine that runs.
    Engine,
    /// This process, which owns the repository now.
    Resting(Box<EngineInstance>),
}

/// What came of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutcome {
    /// What was said about it, for people.
    pub messages: Vec<String>,
    /// No engine runs: the command takes effect with the next one.
    pub offline: bool,
}

/// Finds out who carries commands out. An engine that is starting holds the repository before it listens, and one that
/// is ending stops listening first, so both are waited for.
pub fn find_recipient<E: From<ClientError>>(
    layout: &RepoLayout,
    open: OpenInstance<'_, E>,
) -> Result<ControlRecipient, E> {
    let deadline = Instant::now() + HANDOVER_WAIT;
    let mut wait = || {
        let in_time = Instant::now() <= deadline;
        if in_time {
            mainstem_host::process::sleep_ms(HANDOVER_POLL_MS);
        }
        in_time
    };
    find_recipient_with(layout, open, &mut wait)
}

/// The same; `wait` waits a moment and says whether to try again.
fn find_recipient_with<E: From<ClientError>>(
    layout: &RepoLayout,
    open: OpenInstance<'_, E>,
    wait: &mut dyn FnMut() -> bool,
) -> Result<ControlRecipient, E> {
    loop {
        let failure = if is_engine_running(layout).map_err(ClientError::from)? {
            match control_socket::send_request(&layout.socket_path(), &ControlRequest::Ping) {
                Ok(_) => return Ok(ControlRecipient::Engine),
                Err(error) if !is_nobody_listening(&error) => {
                    return Err(ClientError::NoAnswer(error).into());
                }
                Err(error) => ClientError::NoAnswer(error).into(),
            }
        } else {
            match open() {
                Ok(instance) => return Ok(ControlRecipient::Resting(Box::new(instance))),
                // Somebody else may have taken the repository over in between.
                Err(failure) if !is_engine_running(layout).unwrap_or(false) => return Err(failure),
                Err(failure) => failure,
            }
        };
        if !wait() {
            return Err(failure);
        }
    }
}

/// Whether the socket is not there or nobody listens, so that nothing was sent.
fn is_nobody_listening(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Sends one request to the engine that runs; returns what the engine said.
pub fn send_request(layout: &RepoLayout, request: &ControlRequest) -> Result<String, ClientError> {
    let response = control_socket::send_request(&layout.socket_path(), request)
        .map_err(ClientError::NoAnswer)?;
    if response.ok {
        return Ok(response.message);
    }
    let hint = response.data.as_ref().and_then(|data| data["hint"].as_str()).map(str::to_owned);
    Err(ClientError::Refused { error: response.error, message: response.message, hint })
}

/// Sends requests to the engine that runs, or carries them out on the run that rests.
pub fn send_requests<E: From<ClientError>>(
    layout: &RepoLayout,
    open: OpenInstance<'_, E>,
    requests: Vec<ControlRequest>,
) -> Result<CommandOutcome, E> {
    let has_journal = layout.run_store().has_journal().map_err(RunJournalError::from);
    if !has_journal.map_err(ClientError::from)? {
        return Err(ClientError::from(EngineError::NoRun).into());
    }
    match find_recipient(layout, open)? {
        ControlRecipient::Engine => {
            let sent = requests.iter().map(|request| send_request(layout, request));
            let messages = sent.collect::<Result<Vec<String>, ClientError>>()?;
            Ok(CommandOutcome { messages, offline: false })
        }
        ControlRecipient::Resting(mut instance) => {
            let messages = run_requests_offline(&mut instance, requests)?;
            Ok(CommandOutcome { messages, offline: true })
        }
    }
}

fn run_requests_offline(
    instance: &mut EngineInstance,
    requests: Vec<ControlRequest>,
) -> Result<Vec<String>, ClientError> {
    let (run, mut machine) = instance.load_newest_run()?.ok_or(EngineError::NoRun)?;
    let mut messages = Vec::new();
    for request in requests {
        if let ControlRequest::Retry { task, .. } = &request {
            instance.forget_lost_landing(&run, &mut machine, task)?;
        }
        let Some(command) = control_socket::command_for_request(request) else { continue };
        let reply = instance.run_command(&run, &mut machine, command)?;
        messages.push(reply.map_err(EngineError::Refused)?);
    }
    messages.extend(remove_abandoned_workspaces(instance, &machine)?);
    Ok(messages)
}

/// Removes the workspaces of tasks that were cancelled or skipped, as a running engine would. Their work stays on
/// snapshots.
fn remove_abandoned_workspaces(
    instance: &mut EngineInstance,
    machine: &Machine,
) -> Result<Vec<String>, ClientError> {
    let is_left = |t: &TaskIx| {
        let current = machine.tasks().get(*t).current.as_ref();
        matches!(machine.tasks().phase(*t), Phase::Cancelled | Phase::Skipped)
            && current.is_some_and(|attempt| !attempt.removed)
            && !machine.keeps_workspace(*t)
    };
    let left = machine.tasks().all_tasks().filter(is_left);
    let left: BTreeSet<TaskId> = left.map(|t| machine.graph().id(t).clone()).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let items = maintenance::clean_repository(instance, &CleanScope::Tasks(left), false)?;
    let gone = items.iter().filter(|item| item.what == "workspace" && item.kept_because.is_none());
    Ok(gone.map(|item| format!("removed the workspace {}", item.place)).collect())
}

/// Adds tasks to the run, or begins a run with them. An `offline` outcome means that an engine must be started.
pub fn add_tasks<E: From<ClientError>>(
    layout: &RepoLayout,
    open: OpenInstance<'_, E>,
    tasks: Vec<Task>,
) -> Result<CommandOutcome, E> {
    match find_recipient(layout, open)? {
        ControlRecipient::Engine => {
            let tasks = serde_json::to_value(&tasks).expect("BUG: tasks are plain data");
            let messages = vec![send_request(layout, &ControlRequest::Add { tasks })?];
            Ok(CommandOutcome { messages, offline: false })
        }
        ControlRecipient::Resting(mut instance) => {
            let messages = vec![add_tasks_offline(&mut instance, tasks)?];
            Ok(CommandOutcome { messages, offline: true })
        }
    }
}

fn add_tasks_offline(
    instance: &mut EngineInstance,
    tasks: Vec<Task>,
) -> Result<String, ClientError> {
    let (run, mut machine) = match instance.load_newest_run()? {
        Some(found) => found,
        None => {
            let plan = Some(Plan::default());
            instance.adopt_run(&RunRequest { plan, ..RunRequest::default() })?
        }
    };
    let reply = instance.run_command(&run, &mut machine, MachineCommand::Add(tasks))?;
    Ok(reply.map_err(EngineError::Refused)?)
}

/// The tasks that `retry --all` means: those that ended without landing and that nothing else blocks.
pub fn list_retryable_tasks(machine: &Machine) -> Vec<String> {
    let retryable = |t: &TaskIx| match machine.tasks().phase(*t) {
        Phase::Failed | Phase::Conflicted | Phase::Cancelled => true,
        Phase::Blocked => machine.tasks().get(*t).chain.is_empty(),
        _ => false,
    };
    let tasks = machine.tasks().all_tasks().filter(retryable);
    tasks.map(|t| machine.graph().id(t).to_string()).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use mainstem_host::git::Repo;
    use mainstem_store::{StoreClaim, StoreOwnership};
    use mainstem_testkit::TestRepo;

    use super::*;
    use crate::control_socket::ControlSocket;

    /// A repository whose engine holds the lock and does not listen.
    fn repository() -> (TestRepo, RepoLayout, StoreOwnership) {
        let scene = TestRepo::new();
        let layout = RepoLayout::new(&Repo::discover(scene.path()).unwrap(), None);
        std::fs::create_dir_all(layout.state_dir()).unwrap();
        let claim = layout.run_store().claim("").unwrap();
        let StoreClaim::Owned(lock) = claim else { panic!("a new repository has no engine") };
        (scene, layout, lock)
    }

    fn open() -> Result<EngineInstance, ClientError> {
        Err(EngineError::NoRun.into())
    }

    #[test]
    fn an_engine_that_does_not_listen_yet_is_waited_for() {
        let (_scene, layout, _lock) = repository();
        let (events, _received) = mpsc::channel();
        let mut socket = None;
        let mut wait = || {
            let socket = &mut socket;
            *socket = Some(ControlSocket::listen(&layout.socket_path(), events.clone(), None));
            true
        };
        let found = find_recipient_with(&layout, &open, &mut wait);
        assert!(matches!(found, Ok(ControlRecipient::Engine)));
        assert!(socket.is_some_and(|socket| socket.is_ok()), "the first try found no socket");
    }

    #[test]
    fn an_engine_that_is_ending_is_waited_for() {
        let (_scene, layout, lock) = repository();
        let mut lock = Some(lock);
        let mut wait = || lock.take().is_some();
        let found = find_recipient_with(&layout, &open, &mut wait);
        let offline = matches!(found, Err(ClientError::Engine(EngineError::NoRun)));
        assert!(offline && lock.is_none(), "the command is carried out here once the lock is free");
    }

    #[test]
    fn an_engine_that_never_listens_is_an_error_in_the_end() {
        let (_scene, layout, _lock) = repository();
        let found = find_recipient_with(&layout, &open, &mut || false);
        assert!(matches!(found, Err(ClientError::NoAnswer(_))));
    }
}
