//! The control socket: how commands reach a running engine. One JSON line in, one out.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use mainstem_api::control::{ControlError, ControlRequest, ControlResponse};
use mainstem_api::outlook::Progress;
use mainstem_api::status as wire;
use mainstem_core::conflict::{ConflictForecast, ConflictPair};
use mainstem_core::fact::{GateScope, LimitKind};
use mainstem_core::id::Time;
use mainstem_core::machine::{Input, MachineCommand, RetryRequest};
use mainstem_host::clock;

use crate::event::EngineEvent;
use crate::observer::{EngineActivity, GateActivity};

/// Longest request; far above any answer a person types.
const REQUEST_BYTES_MAX: u64 = 1024 * 1024;
/// In a request: until when it may be carried out, in milliseconds since 1970 (UTC).
const EXPIRES_AT: &str = "expires_at";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a face waits for what it can go without.
const QUERY_PATIENCE: Duration = Duration::from_millis(500);

/// A listening engine. The socket goes when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Listens; only the caller's user may connect. Nobody is heard who runs in a job below `deaf_to`:
    /// a wall may not be able to keep its agents from a socket.
    pub fn listen(
        path: &Path,
        events: Sender<EngineEvent>,
        deaf_to: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        if let Some(parent) = path.parent() {
            mainstem_host::user_folder::create_private_folder(parent)?;
        }
        // Whoever holds the engine's lock may take over a dead engine's socket.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let is_of_a_job = |jobs| mainstem_host::process::is_peer_in_job(&stream, jobs);
                if deaf_to.as_deref().is_some_and(is_of_a_job) {
                    continue;
                }
                let events = events.clone();
                let serve = move || serve_connection(&stream, &events);
                if let Err(error) = std::thread::Builder::new().spawn(serve) {
                    drop(error);
                }
            }
        })?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve_connection(stream: &UnixStream, events: &Sender<EngineEvent>) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut line = String::new();
    let read = BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line);
    let response = match read {
        Err(error) => ControlResponse::refused(ControlError::BadRequest, error.to_string()),
        Ok(_) if has_expired(&line) => ControlResponse::refused(
            ControlError::NotNow,
            "the request timed out and was not carried out",
        ),
        Ok(_) => match serde_json::from_str::<ControlRequest>(&line) {
            Err(error) => ControlResponse::refused(ControlError::BadRequest, error.to_string()),
            Ok(request) => handle_request(request, events),
        },
    };
    let mut answer = serde_json::to_string(&response).unwrap_or_default();
    answer.push('\n');
    // Whoever asked may have gone.
    let _ = (&mut &*stream).write_all(answer.as_bytes());
}

/// Whether whoever sent this has given up meanwhile: what is said to have failed must not happen later.
fn has_expired(line: &str) -> bool {
    let request: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let until = request.and_then(|request| request[EXPIRES_AT].as_i64());
    until.is_some_and(|until| until < clock::now_ms())
}

fn handle_request(request: ControlRequest, events: &Sender<EngineEvent>) -> ControlResponse {
    let command = match request {
        ControlRequest::Ping => {
            return ControlResponse::done("here")
                .with_data(serde_json::json!({"pid": std::process::id()}));
        }
        ControlRequest::Progress => {
            return query_activity(events, |seen| {
                let line = |(task, doing): (&String, &Progress)| (task.clone(), doing.line());
                let lines: BTreeMap<String, String> = seen.agents.iter().map(line).collect();
                serde_json::json!(lines)
            });
        }
        ControlRequest::Activity => {
            return query_activity(events, |seen| serde_json::json!(status_activity(&seen)));
        }
        ControlRequest::Clashes => return query_conflicts(events),
        ControlRequest::Stop { now } => {
            let event = if now { EngineEvent::StopNow } else { EngineEvent::Interrupt };
            return match events.send(event) {
                Ok(()) => ControlResponse::done("stopping"),
                Err(_) => ControlResponse::refused(ControlError::Stopping, "the run is ending"),
            };
        }
        ControlRequest::Park { provider, kind, until, message } => {
            return match events
                .send(EngineEvent::Input(rate_limit_input(provider, &kind, until, message)))
            {
                Ok(()) => ControlResponse::done("noted"),
                Err(_) => ControlResponse::refused(ControlError::Stopping, "the run is ending"),
            };
        }
        other => command_for_request(other),
    };
    let Some(command) = command else {
        return ControlResponse::refused(ControlError::BadRequest, "unknown command");
    };
    let (answer, answered) = mpsc::channel();
    if events.send(EngineEvent::Command(command, answer)).is_err() {
        return ControlResponse::refused(ControlError::Stopping, "the run is ending");
    }
    match answered.recv_timeout(PATIENCE) {
        Ok(Ok(message)) => ControlResponse::done(message),
        Ok(Err(refusal)) => {
            let hint = refusal.hint.map(|hint| serde_json::json!({ "hint": hint }));
            ControlResponse {
                data: hint,
                ..ControlResponse::refused(ControlError::NotNow, refusal.message)
            }
        }
        Err(_) => ControlResponse::refused(ControlError::Stopping, "the run is ending"),
    }
}

fn query_activity(
    events: &Sender<EngineEvent>,
    shape: impl Fn(EngineActivity) -> serde_json::Value,
) -> ControlResponse {
    let (answer, answered) = mpsc::channel();
    let told = events.send(EngineEvent::ActivityRequested(answer)).ok().and_then(|()| {
        // The loop answers between two rounds; a face would rather go without than wait.
        answered.recv_timeout(QUERY_PATIENCE).ok()
    });
    match told {
        Some(told) => ControlResponse::done("what is being done").with_data(shape(told)),
        None => ControlResponse::refused(ControlError::NotNow, "the run is busy"),
    }
}

fn status_activity(seen: &EngineActivity) -> wire::StatusActivity {
    let gate = |gate: &GateActivity| wire::StatusRunningGate {
        task: gate.task.clone(),
        attempt: gate.attempt,
        scope: gate.scope.as_str().to_owned(),
        gate: gate.gate.clone(),
        since: gate.since.0,
        usually_ms: gate.usually_ms,
        log: gate.log.clone(),
    };
    wire::StatusActivity {
        agents: seen.agents.clone(),
        gates: seen.gates.iter().map(gate).collect(),
    }
}

/// What is being done right now; nothing if no engine says so at once.
pub fn fetch_status_activity(path: &Path) -> wire::StatusActivity {
    let told = send_request_within(path, &ControlRequest::Activity, 2 * QUERY_PATIENCE)
        .ok()
        .and_then(|response| response.data);
    told.and_then(|told| serde_json::from_value(told).ok()).unwrap_or_default()
}

/// The same for a face that watches from another process.
pub fn fetch_activity(path: &Path) -> EngineActivity {
    let told = fetch_status_activity(path);
    let gate = |gate: wire::StatusRunningGate| GateActivity {
        task: gate.task,
        attempt: gate.attempt,
        scope: match gate.scope.as_str() {
            "task" => GateScope::Task,
            "base" => GateScope::Base,
            _ => GateScope::Train,
        },
        gate: gate.gate,
        since: Time(gate.since),
        usually_ms: gate.usually_ms,
        log: gate.log,
    };
    EngineActivity { agents: told.agents, gates: told.gates.into_iter().map(gate).collect() }
}

fn query_conflicts(events: &Sender<EngineEvent>) -> ControlResponse {
    let (answer, answered) = mpsc::channel();
    let told = events.send(EngineEvent::ForecastRequested(answer)).ok().and_then(|()| {
        // As above.
        answered.recv_timeout(QUERY_PATIENCE).ok()
    });
    match told {
        Some(seen) => ControlResponse::done("who clashes with whom")
            .with_data(serde_json::json!(status_conflicts(&seen))),
        None => ControlResponse::refused(ControlError::NotNow, "the run is busy"),
    }
}

/// Who clashes with whom, as other programs get it.
pub fn status_conflicts(outlook: &ConflictForecast) -> Vec<wire::StatusConflict> {
    let clash = |pair: &ConflictPair| wire::StatusConflict {
        a: pair.a.to_string(),
        b: pair.b.as_ref().map(ToString::to_string),
        paths: pair.paths.clone(),
    };
    outlook.pairs.iter().map(clash).collect()
}

/// Who clashes with whom, as a running engine has seen it; none if no engine says so at once.
pub fn fetch_status_conflicts(path: &Path) -> Option<Vec<wire::StatusConflict>> {
    let told = send_request_within(path, &ControlRequest::Clashes, 2 * QUERY_PATIENCE).ok()?.data?;
    serde_json::from_value(told).ok()
}

/// A limit that somebody else met.
fn rate_limit_input(provider: String, kind: &str, until: i64, message: String) -> Input {
    let kind = match kind {
        "quota" => LimitKind::Quota,
        "breaker" => LimitKind::Breaker,
        _ => LimitKind::Rate,
    };
    Input::ProviderParked { provider, kind, until: Time(until), message }
}

/// A request as the machine knows it.
pub fn command_for_request(request: ControlRequest) -> Option<MachineCommand> {
    Some(match request {
        ControlRequest::Pause => MachineCommand::Pause,
        ControlRequest::Resume => MachineCommand::Resume,
        ControlRequest::Cancel { task } => MachineCommand::Cancel(task),
        ControlRequest::Retry { task, also, hint, agent, fresh } => {
            let tasks = std::iter::once(task).chain(also).collect();
            MachineCommand::Retry(RetryRequest { tasks, hint, agent, fresh })
        }
        ControlRequest::Skip { task } => MachineCommand::Skip(task),
        ControlRequest::Jobs { n } => MachineCommand::Jobs(n),
        ControlRequest::Accept { proposal } => MachineCommand::Accept(proposal),
        ControlRequest::Reject { proposal } => MachineCommand::Reject(proposal),
        ControlRequest::Add { tasks } => MachineCommand::Add(serde_json::from_value(tasks).ok()?),
        ControlRequest::Answer { question, text, free } => {
            MachineCommand::Answer { question, text, free }
        }
        ControlRequest::Ping
        | ControlRequest::Progress
        | ControlRequest::Activity
        | ControlRequest::Clashes
        | ControlRequest::Stop { .. }
        | ControlRequest::Park { .. } => {
            return None;
        }
    })
}

/// Sends one request to a listening engine.
pub fn send_request(path: &Path, request: &ControlRequest) -> std::io::Result<ControlResponse> {
    send_request_within(path, request, PATIENCE)
}

fn send_request_within(
    path: &Path,
    request: &ControlRequest,
    patience: Duration,
) -> std::io::Result<ControlResponse> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut request = serde_json::to_value(request)?;
    // Before we give up, so that what is carried out is answered as well.
    let within = i64::try_from(patience.as_millis() / 2).unwrap_or(i64::MAX);
    request[EXPIRES_AT] = clock::now_ms().saturating_add(within).into();
    let line = format!("{request}\n");
    let mut answer = String::new();
    let sent = (&stream).write_all(line.as_bytes());
    sent.and_then(|()| BufReader::new(&stream).read_line(&mut answer)).map_err(|error| {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let why = format!(
                    "no answer within {}s; the process may be suspended (kill -CONT resumes the process). The request will not be carried out later",
                    patience.as_secs()
                );
                io::Error::new(io::ErrorKind::TimedOut, why)
            }
            _ => error,
        }
    })?;
    serde_json::from_str(&answer)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_whose_sender_gave_up_is_not_carried_out() {
        let now = clock::now_ms();
        let until = |at: i64| format!("{{\"cmd\":\"pause\",\"{EXPIRES_AT}\":{at}}}\n");
        assert!(has_expired(&until(now - 1_000)));
        assert!(!has_expired(&until(now + 60_000)));
        assert!(!has_expired("{\"cmd\":\"pause\"}"), "an older sender names no time");
        let read = serde_json::from_str::<ControlRequest>(&until(now));
        assert_eq!(read.ok(), Some(ControlRequest::Pause));
    }
}
