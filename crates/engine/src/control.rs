//! The control socket: how commands reach a running engine. One JSON line in, one out.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use mainstem_api::control::{ControlError, Request, Response};
use mainstem_api::outlook::Progress;
use mainstem_api::status as wire;
use mainstem_core::clash::{Outlook, Pair};
use mainstem_core::fact::{GateScope, LimitKind};
use mainstem_core::id::Time;
use mainstem_core::machine::{Command, Input, Retry};
use mainstem_host::clock;

use crate::event::Event;
use crate::face::{Activity, RunningGate};

/// Longest request; far above any answer a person types.
const REQUEST_BYTES_MAX: u64 = 1024 * 1024;
/// In a request: until when it may be carried out, in milliseconds since 1970 (UTC).
const EXPIRES_AT: &str = "expires_at";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a face waits for what it can go without.
const GLANCE: Duration = Duration::from_millis(500);

/// A listening engine. The socket goes when this is dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens; only the caller's user may connect. Nobody is heard who runs in a job below `deaf_to`:
    /// a wall may not be able to keep its agents from a socket.
    pub fn listen(
        path: &Path,
        events: Sender<Event>,
        deaf_to: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        if let Some(parent) = path.parent() {
            mainstem_host::private::make(parent)?;
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
                let is_of_a_job = |jobs| mainstem_host::process::is_of_a_job(&stream, jobs);
                if deaf_to.as_deref().is_some_and(is_of_a_job) {
                    continue;
                }
                let events = events.clone();
                let serve = move || serve(&stream, &events);
                if let Err(error) = std::thread::Builder::new().spawn(serve) {
                    drop(error);
                }
            }
        })?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: &UnixStream, events: &Sender<Event>) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut line = String::new();
    let read = BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line);
    let response = match read {
        Err(error) => Response::refused(ControlError::BadRequest, error.to_string()),
        Ok(_) if is_late(&line) => {
            Response::refused(ControlError::NotNow, "the request timed out and was not carried out")
        }
        Ok(_) => match serde_json::from_str::<Request>(&line) {
            Err(error) => Response::refused(ControlError::BadRequest, error.to_string()),
            Ok(request) => obey(request, events),
        },
    };
    let mut answer = serde_json::to_string(&response).unwrap_or_default();
    answer.push('\n');
    // Whoever asked may have gone.
    let _ = (&mut &*stream).write_all(answer.as_bytes());
}

/// Whether whoever sent this has given up meanwhile: what is said to have failed must not happen later.
fn is_late(line: &str) -> bool {
    let request: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let until = request.and_then(|request| request[EXPIRES_AT].as_i64());
    until.is_some_and(|until| until < clock::now_ms())
}

fn obey(request: Request, events: &Sender<Event>) -> Response {
    let command = match request {
        Request::Ping => {
            return Response::done("here")
                .with_data(serde_json::json!({"pid": std::process::id()}));
        }
        Request::Progress => {
            return progress(events, |seen| {
                let line = |(task, doing): (&String, &Progress)| (task.clone(), doing.line());
                let lines: BTreeMap<String, String> = seen.agents.iter().map(line).collect();
                serde_json::json!(lines)
            });
        }
        Request::Activity => return progress(events, |seen| serde_json::json!(seen_of(&seen))),
        Request::Clashes => return clashes(events),
        Request::Stop { now } => {
            let event = if now { Event::StopNow } else { Event::Interrupt };
            return match events.send(event) {
                Ok(()) => Response::done("stopping"),
                Err(_) => Response::refused(ControlError::Stopping, "the run is ending"),
            };
        }
        Request::Park { provider, kind, until, message } => {
            return match events.send(Event::Input(parked(provider, &kind, until, message))) {
                Ok(()) => Response::done("noted"),
                Err(_) => Response::refused(ControlError::Stopping, "the run is ending"),
            };
        }
        other => command_of(other),
    };
    let Some(command) = command else {
        return Response::refused(ControlError::BadRequest, "unknown command");
    };
    let (answer, answered) = mpsc::channel();
    if events.send(Event::Command(command, answer)).is_err() {
        return Response::refused(ControlError::Stopping, "the run is ending");
    }
    match answered.recv_timeout(PATIENCE) {
        Ok(Ok(message)) => Response::done(message),
        Ok(Err(refusal)) => {
            let hint = refusal.hint.map(|hint| serde_json::json!({ "hint": hint }));
            Response { data: hint, ..Response::refused(ControlError::NotNow, refusal.message) }
        }
        Err(_) => Response::refused(ControlError::Stopping, "the run is ending"),
    }
}

fn progress(events: &Sender<Event>, shape: impl Fn(Activity) -> serde_json::Value) -> Response {
    let (answer, answered) = mpsc::channel();
    let told = events.send(Event::Activity(answer)).ok().and_then(|()| {
        // The loop answers between two rounds; a face would rather go without than wait.
        answered.recv_timeout(GLANCE).ok()
    });
    match told {
        Some(told) => Response::done("what is being done").with_data(shape(told)),
        None => Response::refused(ControlError::NotNow, "the run is busy"),
    }
}

fn seen_of(seen: &Activity) -> wire::Activity {
    let gate = |gate: &RunningGate| wire::RunningGate {
        task: gate.task.clone(),
        attempt: gate.attempt,
        scope: gate.scope.word().to_owned(),
        gate: gate.gate.clone(),
        since: gate.since.0,
        usually_ms: gate.usually_ms,
        log: gate.log.clone(),
    };
    wire::Activity { agents: seen.agents.clone(), gates: seen.gates.iter().map(gate).collect() }
}

/// What is being done right now; nothing if no engine says so at once.
pub fn activity(path: &Path) -> wire::Activity {
    let told =
        ask_within(path, &Request::Activity, 2 * GLANCE).ok().and_then(|response| response.data);
    told.and_then(|told| serde_json::from_value(told).ok()).unwrap_or_default()
}

/// The same for a face that watches from another process.
pub fn seen(path: &Path) -> Activity {
    let told = activity(path);
    let gate = |gate: wire::RunningGate| RunningGate {
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
    Activity { agents: told.agents, gates: told.gates.into_iter().map(gate).collect() }
}

fn clashes(events: &Sender<Event>) -> Response {
    let (answer, answered) = mpsc::channel();
    let told = events.send(Event::Outlook(answer)).ok().and_then(|()| {
        // As above.
        answered.recv_timeout(GLANCE).ok()
    });
    match told {
        Some(seen) => {
            Response::done("who clashes with whom").with_data(serde_json::json!(clashes_of(&seen)))
        }
        None => Response::refused(ControlError::NotNow, "the run is busy"),
    }
}

/// Who clashes with whom, as other programs get it.
pub fn clashes_of(outlook: &Outlook) -> Vec<wire::Clash> {
    let clash = |pair: &Pair| wire::Clash {
        a: pair.a.to_string(),
        b: pair.b.as_ref().map(ToString::to_string),
        paths: pair.paths.clone(),
    };
    outlook.pairs.iter().map(clash).collect()
}

/// Who clashes with whom, as a running engine has seen it; none if no engine says so at once.
pub fn seen_clashes(path: &Path) -> Option<Vec<wire::Clash>> {
    let told = ask_within(path, &Request::Clashes, 2 * GLANCE).ok()?.data?;
    serde_json::from_value(told).ok()
}

/// A limit that somebody else met.
fn parked(provider: String, kind: &str, until: i64, message: String) -> Input {
    let kind = match kind {
        "quota" => LimitKind::Quota,
        "breaker" => LimitKind::Breaker,
        _ => LimitKind::Rate,
    };
    Input::Park { provider, kind, until: Time(until), message }
}

/// A request as the machine knows it.
pub fn command_of(request: Request) -> Option<Command> {
    Some(match request {
        Request::Pause => Command::Pause,
        Request::Resume => Command::Resume,
        Request::Cancel { task } => Command::Cancel(task),
        Request::Retry { task, also, hint, agent, fresh } => {
            let tasks = std::iter::once(task).chain(also).collect();
            Command::Retry(Retry { tasks, hint, agent, fresh })
        }
        Request::Skip { task } => Command::Skip(task),
        Request::Jobs { n } => Command::Jobs(n),
        Request::Accept { proposal } => Command::Accept(proposal),
        Request::Reject { proposal } => Command::Reject(proposal),
        Request::Add { tasks } => Command::Add(serde_json::from_value(tasks).ok()?),
        Request::Answer { question, text, free } => Command::Answer { question, text, free },
        Request::Ping
        | Request::Progress
        | Request::Activity
        | Request::Clashes
        | Request::Stop { .. }
        | Request::Park { .. } => {
            return None;
        }
    })
}

/// Sends one request to a listening engine.
pub fn ask(path: &Path, request: &Request) -> std::io::Result<Response> {
    ask_within(path, request, PATIENCE)
}

fn ask_within(path: &Path, request: &Request, patience: Duration) -> std::io::Result<Response> {
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
        assert!(is_late(&until(now - 1_000)));
        assert!(!is_late(&until(now + 60_000)));
        assert!(!is_late("{\"cmd\":\"pause\"}"), "an older sender names no time");
        let read = serde_json::from_str::<Request>(&until(now));
        assert_eq!(read.ok(), Some(Request::Pause));
    }
}
