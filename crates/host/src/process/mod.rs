//! Supervised jobs: one command each, run under a small process that outlives its starter.
//!
//! Everything known about a job is in its folder: `spec.json` (what to run), `lock` (held by the
//! supervisor for its whole life: the proof of life), `pid.json` (who runs), `output` and
//! `output.<offset>` (the bounded log), `exit.json` (how it ended; written only once its whole process
//! tree is dead), `stop` (a request), `answers/<n>.json` (answers to the n-th ask).
//! A job runs at most once per folder. Knows nothing of agents, gates, tasks or what the output means,
//! except that a line asking a question makes the job wait for an answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sandbox::SandboxPolicy;

mod job_input;
mod cgroup;
mod detached;
mod program_query;
mod tool_socket;
mod job;
mod job_log;
mod json_file;
mod supervisor;
pub(crate) mod process_tree;
mod job_watch;

pub use cgroup::{JobContainment, current_containment, prepare_containment};
pub use detached::{lower_thread_priority, sleep_ms, spawn_detached};
pub use job::{
    answer_question, end_job, is_peer_in_job, is_process_alive, kill_job_leftovers, read_job_pids,
    read_job_spec, read_job_state, reset_job, run_job_to_end, set_job_files_aside, start_job,
    stop_job,
};
pub use job_input::is_question_line;
pub use job_log::{OutputLine, OutputPage, OutputStream, read_job_output};
pub use job_watch::{JobWatch, OutputBatch, WatchEvent};
pub(crate) use process_tree::boot_id;
pub use program_query::query_program;
pub use supervisor::supervise_job;
pub use tool_socket::{TOOL_LINE_BYTES_MAX, ToolSocketSpec};

/// The variable that marks every process of a job; its value is the job's folder.
pub const JOB_MARK: &str = "MAINSTEM_JOB";

const SPEC: &str = "spec.json";
const LOCK: &str = "lock";
const STARTING: &str = "starting";
const PIDS: &str = "pid.json";
const EXIT: &str = "exit.json";
const STOP: &str = "stop";
const ANSWERS: &str = "answers";

/// What to run and within which limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// The whole environment; nothing else is inherited (only [`JOB_MARK`] is added).
    pub env: BTreeMap<String, String>,
    /// A file fed to standard input; nothing if absent.
    pub stdin: Option<PathBuf>,
    /// Whether lines on stdout may ask, the answers coming back on stdin.
    pub converse: bool,
    /// How long the command may run; the time spent waiting for an answer does not count.
    pub wall_ms: Option<u64>,
    /// Longest silence; the time spent waiting for an answer does not count.
    pub idle_ms: Option<u64>,
    /// From the request to end to the kill.
    pub grace_ms: u64,
    /// How much log is kept: an eighth as head, the rest as tail.
    pub output_bytes: u64,
    /// Longest line kept in one piece.
    pub line_bytes: usize,
    /// Whether what it leaves in its folder is wanted: then it is on disk before the end is recorded.
    #[serde(default)]
    pub keeps_work: bool,
    /// The most memory that all its processes together may use; none is no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// A socket for what the command starts to speak through; none is none.
    #[serde(default)]
    pub door: Option<ToolSocketSpec>,
    /// The sandbox that the command runs in, if any.
    #[serde(default)]
    pub wall: Option<SandboxPolicy>,
}

/// How a job's command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnding {
    /// It ended by itself.
    Exited { code: i32 },
    /// A signal that was not ours ended it.
    Signalled { signal: i32 },
    /// It was ended because it took too long.
    TimedOut {
        /// True if it was silent for too long, false if it lived for too long.
        idle: bool,
    },
    /// It was ended because it used more memory than it may.
    OutOfMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// It was ended because somebody asked for it.
    Stopped,
    NotStarted {
        /// What was missing or wrong.
        why: String,
        /// Whether the program (or its interpreter) does not exist.
        not_found: bool,
    },
}

/// The end of a job: no process of it is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExit {
    /// How the command ended.
    pub ending: JobEnding,
    /// When the supervisor began.
    pub started_at_ms: i64,
    /// When the last process was gone.
    pub ended_at_ms: i64,
    /// How many processes outlived the command and were ended.
    pub leftovers_killed: u32,
    /// Length of the log, kept or not: the offset after its last record.
    pub output_bytes: u64,
    /// How much of the log was not kept, for the cap or for a full disk.
    pub output_dropped: u64,
}

/// Who runs a job, precise enough to survive the reuse of process ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPids {
    pub pid: u32,
    /// Its start time, in ticks of the system's own.
    pub start_time: u64,
    /// The boot during which it ran.
    pub boot_id: String,
    /// The command, once started.
    pub agent_pid: Option<u32>,
    /// The command's start time.
    pub agent_start_time: Option<u64>,
    /// When the supervisor began.
    pub started_at_ms: i64,
    /// The cgroup that holds the command and all it starts, if it has one.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// The job's folder: in a copy of it these processes are not the copy's.
    #[serde(default)]
    pub dir: Option<PathBuf>,
}

/// What is true of a job now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// Nothing ever ran in this folder; [`start_job`] may.
    Absent,
    /// A supervisor is on its way.
    Starting,
    /// A supervisor holds the lock.
    Alive(JobPids),
    /// The whole tree is dead and the ending is known.
    Ended(JobExit),
    /// It ran, its supervisor is gone, and nobody saw the end (killed, or the machine rebooted).
    Vanished,
}

/// The answer to [`start_job`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobStart {
    /// This call started the job.
    Started,
    /// It was running already.
    AlreadyAlive,
    /// It had ended already.
    AlreadyEnded(JobExit),
}

/// How to stop a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStopMode {
    /// Ask it to end, kill it after its grace.
    Term,
    Kill,
}

/// A job could not be started or followed.
#[derive(Debug, Error)]
pub enum JobSpawnError {
    /// A file of the job could not be read or written.
    #[error("cannot {what} {path}: {source}; check the folder's permissions and free space")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// The supervisor's program did not start.
    #[error(
        "cannot start the supervisor {program}: {source}; check that this program still exists and that processes can be started"
    )]
    Supervisor { program: String, source: io::Error },
    /// The supervisor started and declined.
    #[error("the supervisor of {dir} refused: {why}")]
    Refused { dir: PathBuf, why: String },
    /// The supervisor, or another starter, did not answer in time.
    #[error(
        "the supervisor of {dir} did not report within {seconds} s; see supervisor.log there, and try again when the machine is less busy"
    )]
    NoAnswer {
        dir: PathBuf,
        /// How long we waited.
        seconds: u64,
    },
    /// The job ran before and nobody saw its end.
    #[error(
        "the supervisor of an earlier job in {dir} disappeared; stop the processes of that job and move the files away before starting again"
    )]
    Vanished { dir: PathBuf },
}

impl JobSpawnError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
