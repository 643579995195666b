//! The control socket: how commands reach a running engine. One JSON line in, one out.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use mainstem_api::control::{ControlError, Request, Response};
use mainstem_api::status as wire;
use mainstem_core::clash::{Outlook, Pair};
use mainstem_core::fact::LimitKind;
use mainstem_core::id::Time;
use mainstem_core::machine::{Command, Input};

use crate::event::Event;

/// Longest request; far above any answer a person types.
const REQUEST_BYTES_MAX: u64 = 1024 * 1024;
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
            std::fs::create_dir_all(parent)?;
            std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o700))?;
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

fn obey(request: Request, events: &Sender<Event>) -> Response {
    let command = match request {
        Request::Ping => {
            return Response::done("here")
                .with_data(serde_json::json!({"pid": std::process::id()}));
        }
        Request::Progress => return progress(events),
        Request::Clashes => return clashes(events),
        Request::Stop { now } => {
            let event = if now { Event::StopNow } else { Event::Interrupt };
            return match events.send(event) {
                Ok(()) => Response::done("stopping"),
                Err(_) => Response::refused(ControlError::Stopping, "the engine is ending"),
            };
        }
        Request::Park { provider, kind, until, message } => {
            return match events.send(Event::Input(parked(provider, &kind, until, message))) {
                Ok(()) => Response::done("noted"),
                Err(_) => Response::refused(ControlError::Stopping, "the engine is ending"),
            };
        }
        other => command_of(other),
    };
    let Some(command) = command else {
        return Response::refused(ControlError::BadRequest, "not a command");
    };
    let (answer, answered) = mpsc::channel();
    if events.send(Event::Command(command, answer)).is_err() {
        return Response::refused(ControlError::Stopping, "the engine is ending");
    }
    match answered.recv_timeout(PATIENCE) {
        Ok(Ok(message)) => Response::done(message),
        Ok(Err(refusal)) => {
            let hint = refusal.hint.map(|hint| serde_json::json!({ "hint": hint }));
            Response { data: hint, ..Response::refused(ControlError::NotNow, refusal.message) }
        }
        Err(_) => Response::refused(ControlError::Stopping, "the engine is ending"),
    }
}

fn progress(events: &Sender<Event>) -> Response {
    let (answer, answered) = mpsc::channel();
    let told = events.send(Event::Progress(answer)).ok().and_then(|()| {
        // The loop answers between two rounds; a face would rather go without than wait.
        answered.recv_timeout(GLANCE).ok()
    });
    match told {
        Some(told) => Response::done("what agents do").with_data(serde_json::json!(told)),
        None => Response::refused(ControlError::NotNow, "the engine is busy"),
    }
}

/// What each agent was last seen doing, by task; nothing if no engine says so at once.
pub fn seen_doing(path: &Path) -> BTreeMap<String, String> {
    let told =
        ask_within(path, &Request::Progress, 2 * GLANCE).ok().and_then(|response| response.data);
    told.and_then(|told| serde_json::from_value(told).ok()).unwrap_or_default()
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
        None => Response::refused(ControlError::NotNow, "the engine is busy"),
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
        Request::Retry { task } => Command::Retry(task),
        Request::Skip { task } => Command::Skip(task),
        Request::Jobs { n } => Command::Jobs(n),
        Request::Accept { proposal } => Command::Accept(proposal),
        Request::Reject { proposal } => Command::Reject(proposal),
        Request::Add { tasks } => Command::Add(serde_json::from_value(tasks).ok()?),
        Request::Answer { question, text } => Command::Answer { question, text },
        Request::Ping
        | Request::Progress
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
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    (&stream).write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    serde_json::from_str(&answer)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}
