//! `mainstem __drive SPEC`: starts one coding agent's tool, speaks its protocol with it and prints what
//! the engine needs to know.
//!
//! Lives under the job's supervisor and so outlives the engine. All meaning is in
//! `mainstem_agents::drive`; this is the loop around it, the process and its files. It never waits for
//! the end of a pipe: what the tool leaves behind may hold it open.

#![expect(
    clippy::disallowed_methods,
    reason = "this is an agent's process: it starts the agent's tool as agents do, outside the engine"
)]

mod tool_process;
mod overlay;
mod program;
mod line_reader;
mod transcript;

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use mainstem_agents::DriveSpec;
use mainstem_agents::drive::{DriveCommand, DriveLine, ToolConversation, TurnEnd};
use mainstem_core::fact::AgentFault;

use self::tool_process::{DriveEvent, ToolProcess};
use self::transcript::DriveTranscript;

pub(crate) use self::program::find_program;

/// What a turn that did not end well ends with.
const EXIT_ILL: i32 = 1;
/// What a broken spec ends with.
const EXIT_BROKEN: i32 = 70;

/// Between two looks at the tool's process.
const LOOK: Duration = Duration::from_millis(50);
/// After its turn has ended and its input is closed, a tool may take this long to end by itself.
const FAREWELL: Duration = Duration::from_secs(3);
/// From the request to end to the kill.
const GRACE: Duration = Duration::from_secs(3);
/// After an interruption the tool may take this long to say how its turn ended.
const LAST_WORD: Duration = Duration::from_secs(4);
/// After a tool is gone its last lines may take this long to arrive.
const DRAIN: Duration = Duration::from_millis(500);

/// Why a tool could not be driven at all.
#[derive(Debug, thiserror::Error)]
enum DriveError {
    /// The spec is not there or not one.
    #[error("cannot read {path}: {cause}")]
    Spec { path: String, cause: String },
    #[error("{program} was not found; install it, or set agents.{agent}.binary to its path")]
    NotFound { program: String, agent: String },
    /// The program is there and does not start.
    #[error("cannot start {program}: {cause}")]
    Start { program: String, cause: io::Error },
    /// A folder for it could not be made.
    #[error("cannot prepare {path}: {cause}")]
    Prepare { path: String, cause: io::Error },
    /// Our own output is gone.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl DriveError {
    /// As the engine is told: what is set up wrong is not tried again.
    fn failure_line(&self) -> DriveLine {
        let class = match self {
            Self::Spec { .. } | Self::Prepare { .. } | Self::Print(_) => AgentFault::Other,
            Self::NotFound { .. } | Self::Start { .. } => AgentFault::Setup,
        };
        DriveLine::Failed { class, message: self.to_string(), help: String::new() }
    }
}

/// Drives the tool to the end of its turn; the exit code comes back.
pub(crate) fn run_drive(spec_file: &Path) -> i32 {
    match drive_tool(spec_file) {
        Ok(TurnEnd::Completed) => 0,
        Ok(TurnEnd::Failed | TurnEnd::SessionMissing) => EXIT_ILL,
        Err(error) => {
            // With standard output gone there is nobody left to tell.
            let _ = print_line(&error.failure_line().to_json());
            let _ = writeln!(io::stderr(), "{error}");
            EXIT_BROKEN
        }
    }
}

fn drive_tool(spec_file: &Path) -> Result<TurnEnd, DriveError> {
    let broken = |path: &str, cause: String| DriveError::Spec { path: path.to_owned(), cause };
    let shown = spec_file.display().to_string();
    let bytes = std::fs::read(spec_file).map_err(|error| broken(&shown, error.to_string()))?;
    let mut spec: DriveSpec =
        serde_json::from_slice(&bytes).map_err(|error| broken(&shown, error.to_string()))?;
    let prompt = std::fs::read(&spec.prompt_file)
        .map_err(|error| broken(&spec.prompt_file, error.to_string()))?;
    let prompt = String::from_utf8_lossy(&prompt).into_owned();
    let mut transcript = DriveTranscript::open(Path::new(&spec.transcript));
    loop {
        let turn = drive_once(&spec, &prompt, &mut transcript)?;
        if turn != TurnEnd::SessionMissing {
            return Ok(turn);
        }
        // Each way is tried once: the other arguments first, then the other protocol.
        if let Some(args) = spec.fresh_args.take() {
            spec.args = args;
            spec.resume = None;
        } else if let Some(fallback) = spec.fallback.take() {
            spec.args = fallback.args;
            spec.protocol = fallback.protocol;
            spec.resume = None;
        } else {
            return Ok(TurnEnd::Failed);
        }
        print_line("│ starting a new session")?;
    }
}

/// One life of the tool.
fn drive_once(
    spec: &DriveSpec,
    prompt: &str,
    kept: &mut DriveTranscript,
) -> Result<TurnEnd, DriveError> {
    let mut talk = ToolConversation::new(spec, prompt.to_owned()).ok_or_else(|| {
        DriveError::Spec { path: spec.protocol.clone(), cause: "unknown protocol".to_owned() }
    })?;
    let mut child = ToolProcess::start(spec)?;
    let clock = Instant::now();
    let now = || u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut turn = execute_commands(&mut child, talk.handle_start(now()), kept)?;
    let mut last_word: Option<Instant> = None;
    while turn.is_none() {
        let orders = match child.events.recv_timeout(LOOK) {
            Ok(DriveEvent::Line(line)) => {
                kept.append_line("out", &line);
                talk.handle_stdout(&line, now())
            }
            Ok(DriveEvent::Complaint(line)) => {
                kept.append_line("err", &line);
                talk.handle_stderr(&line, now())
            }
            Ok(DriveEvent::Stop) if last_word.is_none() => {
                last_word = Some(Instant::now() + LAST_WORD);
                let orders = talk.interrupt_turn(now());
                if orders.is_empty() {
                    child.request_termination();
                }
                orders
            }
            Ok(DriveEvent::Stop)
            | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                if last_word.is_some_and(|end| Instant::now() >= end) {
                    turn = Some(TurnEnd::Failed);
                    continue;
                }
                match child.exited_for(DRAIN) {
                    Some(code) => talk.handle_exit(code, now()),
                    None => talk.handle_tick(now()),
                }
            }
        };
        turn = execute_commands(&mut child, orders, kept)?;
    }
    child.terminate(FAREWELL, GRACE);
    Ok(turn.unwrap_or(TurnEnd::Failed))
}

/// Carries orders out; says how the turn ended if it did.
fn execute_commands(
    child: &mut ToolProcess,
    orders: Vec<DriveCommand>,
    kept: &mut DriveTranscript,
) -> io::Result<Option<TurnEnd>> {
    let mut turn = None;
    let mut text = String::new();
    for order in orders {
        match order {
            DriveCommand::Send(line) => {
                kept.append_line("in", line.as_bytes());
                child.send_line(line);
            }
            DriveCommand::CloseInput => child.close_input(),
            DriveCommand::Print(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            DriveCommand::End(how) => turn = Some(how),
        }
    }
    if !text.is_empty() {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    Ok(turn)
}

fn print_line(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
