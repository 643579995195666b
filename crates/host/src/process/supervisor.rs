//! The supervisor: a small process per job that runs the command, keeps its log within bounds, enforces
//! the time-outs, ends the whole process tree and writes down how it ended. It needs nobody: if its
//! starter dies it goes on. Knows nothing of what the command is for.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use super::cgroup::{CgroupHierarchy, JobCgroup};
use super::job_input::{JobInputPipe, PipePlug};
use super::job_log::JobLogWriter;
use super::json_file::{self, WriteDurability};
use super::tool_socket::ToolSocket;
use super::{
    EXIT, JOB_MARK, JobEnding, JobExit, JobPids, JobSpec, JobStopMode, LOCK, PIDS, SPEC, STOP,
    process_tree,
};
use crate::{clock, lock, sandbox};

mod event_loop;

use event_loop::SupervisedCommand;

/// Set for the process that stays; the one without it only gets the other one started.
const DETACHED: &str = "MAINSTEM_SUPERVISE_DETACHED";
/// A probe of the lock lasts microseconds; another supervisor of this job for its whole life.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a full disk may delay the record of the end.
const RECORD_PATIENCE: Duration = Duration::from_secs(600);

/// The main function of the hidden subcommand that supervises the job in `dir`; gives the exit code.
///
/// The program must have been started by [`super::start_job`], with the folder as its last argument.
pub fn supervise_job(dir: &Path) -> i32 {
    if env::var_os(DETACHED).is_none() {
        return respawn_detached();
    }
    match JobSupervisor::register_job(dir) {
        Ok(Some(supervisor)) => {
            supervisor.run();
            0
        }
        // The job has run or runs already: nothing to do.
        Ok(None) => {
            report_to_starter("ok");
            0
        }
        Err(why) => {
            report_to_starter(&format!("refused {why}"));
            1
        }
    }
}

/// Starts this program again and ends, so that the starter is never the parent of something long-lived.
fn respawn_detached() -> i32 {
    let spawned = current_program().and_then(|program| {
        let mut args = env::args_os();
        let mut command = Command::new(program);
        if let Some(name) = args.next() {
            command.arg0(name);
        }
        command.args(args).env(DETACHED, "1").spawn()
    });
    match spawned {
        Ok(_) => 0,
        Err(e) => {
            report_to_starter(&format!("refused the supervisor cannot start itself again: {e}"));
            1
        }
    }
}

fn current_program() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    // An upgrade may have replaced the file; the running one is still reachable.
    let running = Path::new("/proc/self/exe");
    Ok(if !program.exists() && running.exists() { running.to_owned() } else { program })
}

/// The file of this program, for namespaces in which the running one has no name. An upgrade may have
/// put another version there, which knows the step as well.
fn current_program_file() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let text = program.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| program.clone(), PathBuf::from))
}

/// Tells the starter, if it still listens, how far we got.
fn report_to_starter(text: &str) {
    let line = format!("{}\n", text.replace('\n', " "));
    let _ = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
}

/// What wakes the supervisor.
struct SupervisorSignals {
    /// Readable after any signal.
    wake: UnixStream,
    /// Somebody sent SIGTERM to the supervisor itself.
    term: Arc<AtomicBool>,
}

impl SupervisorSignals {
    fn register_signals() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        for signal in [SIGCHLD, SIGUSR1, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        let term = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, Arc::clone(&term))?;
        // Handled rather than ignored: the command must not inherit it.
        for signal in [SIGHUP, SIGINT] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
        Ok(Self { wake, term })
    }

    fn term_requested(&self) -> bool {
        self.term.load(Ordering::Relaxed)
    }
}

struct JobSupervisor {
    dir: PathBuf,
    spec: JobSpec,
    pids: JobPids,
    /// The command's cgroup; none if there is no way to make one.
    cgroup: Option<JobCgroup>,
    signals: SupervisorSignals,
    /// Held until the end of this process.
    _lock: File,
}

/// Both ends of the pipe through which the sandbox step reports: ours and the step's.
type SandboxReportPipe = (OwnedFd, OwnedFd);

/// The command's ends of its pipes, as we hold them.
struct SpawnedCommand {
    pid: u32,
    /// What the sandbox step reports about the command. There is no report without a sandbox.
    sandbox_report: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    input_pipe: Option<JobInputPipe>,
    plug: Option<PipePlug>,
    tool_socket: Option<ToolSocket>,
}

impl JobSupervisor {
    /// Becomes the one supervisor of the job; `None` if the job has one or had one.
    fn register_job(dir: &Path) -> Result<Option<Self>, String> {
        let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        let io = |what: &'static str| move |e: io::Error| format!("cannot {what}: {e}");
        // Fails only for the leader of a group, which a freshly started process is not.
        let _ = rustix::process::setsid();
        #[expect(
            clippy::disallowed_methods,
            reason = "this process has one thread, and must not keep its starter's folder busy"
        )]
        env::set_current_dir(&dir).map_err(io("enter the job's folder"))?;
        process_tree::become_reaper().map_err(io("become the reaper of orphans"))?;
        let Some(lock) = lock::lock_file_until(&dir.join(LOCK), Instant::now() + LOCK_PATIENCE)
            .map_err(io("lock the job"))?
        else {
            return Ok(None);
        };
        if dir.join(EXIT).exists() || dir.join(PIDS).exists() {
            return Ok(None);
        }
        let spec = json_file::read_json::<JobSpec>(&dir, SPEC)
            .map_err(io("read the job"))?
            .ok_or("spec.json does not exist")?;
        let signals = SupervisorSignals::register_signals().map_err(io("handle signals"))?;
        let leaf = CgroupHierarchy::discover().ok().map(|found| found.plan_job_cgroup());
        let pid = std::process::id();
        let pids = JobPids {
            pid,
            start_time: process_tree::process_start_time(pid),
            boot_id: process_tree::boot_id(),
            agent_pid: None,
            agent_start_time: None,
            started_at_ms: clock::now_ms(),
            cgroup: leaf.as_ref().map(|leaf| leaf.dir().to_owned()),
            dir: dir.to_str().map(Into::into),
        };
        // Durable, because without it the job counts as never run and would be run again.
        json_file::write_json(&dir, PIDS, &pids, WriteDurability::Synced)
            .map_err(io("write pid.json"))?;
        Ok(Some(Self { dir, spec, pids, cgroup: leaf, signals, _lock: lock }))
    }

    fn run(mut self) {
        let mut log =
            match JobLogWriter::create_log(&self.dir, self.spec.output_bytes, self.spec.line_bytes)
            {
                Ok(log) => log,
                Err(e) => {
                    let ending = not_started_ending(format!("cannot create the log: {e}"), false);
                    return self.record_exit(ending, 0, (0, 0));
                }
            };
        if read_stop_request(&self.dir).is_some() {
            return self.record_exit(JobEnding::Stopped, 0, (0, 0));
        }
        // Where the kernel does not, the loop watches the memory.
        let watched = !self.create_cgroup();
        let socket = self.open_tool_socket(&mut log);
        match self.spawn_command(socket) {
            Err(ending) => {
                self.remove_cgroup();
                self.record_exit(ending, 0, log.byte_totals());
            }
            Ok(spawned) => {
                self.pids.agent_pid = Some(spawned.pid);
                self.pids.agent_start_time = Some(process_tree::process_start_time(spawned.pid));
                self.pids.cgroup.take_if(|dir| !dir.exists());
                // Without it the tree is still found by its mark.
                let _ =
                    json_file::write_json(&self.dir, PIDS, &self.pids, WriteDurability::Unsynced);
                self.confirm_start();
                let memory = self.spec.memory_bytes.filter(|_| watched);
                let (ending, leftovers) =
                    SupervisedCommand::new(&self, spawned, memory, &mut log).run_until_dead();
                log.sync();
                self.remove_cgroup();
                self.record_exit(ending, leftovers, log.byte_totals());
            }
        }
    }

    /// Makes the command's cgroup; true if the kernel enforces the memory limit there.
    fn create_cgroup(&mut self) -> bool {
        if self.cgroup.as_ref().is_some_and(|leaf| leaf.create().is_err()) {
            self.cgroup = None;
        }
        match (&self.cgroup, self.spec.memory_bytes) {
            (Some(leaf), Some(bytes)) => leaf.limit_memory(bytes),
            _ => false,
        }
    }

    fn remove_cgroup(&self) {
        if let Some(leaf) = &self.cgroup {
            // An empty group that stays does no harm.
            let _ = leaf.remove();
        }
    }

    /// Starts the command inside its cgroup: we go in, so that it is born there, and out again.
    fn spawn_in_cgroup(&mut self, command: &mut Command) -> io::Result<std::process::Child> {
        let entered = self.cgroup.as_ref().is_some_and(|leaf| leaf.enter().is_ok());
        if !entered && let Some(leaf) = self.cgroup.take() {
            let _ = leaf.remove();
        }
        let spawned = spawn_with_retry(command);
        if entered && self.cgroup.as_ref().is_some_and(|leaf| leaf.leave().is_err()) {
            // Killing the group would kill us. Should we die, the record still leads there.
            self.cgroup = None;
        }
        spawned
    }

    /// Tells the starter that the job runs, and lets go of everything shared with it.
    fn confirm_start(&self) {
        report_to_starter("ok");
        let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
        // Standard input carried the starter's lock: closing it lets the next starter look.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }

    /// Opens the tool socket. The command can do its work without it, so a failure is written to the
    /// log and the command runs all the same.
    fn open_tool_socket(&self, log: &mut JobLogWriter) -> Option<ToolSocket> {
        let spec = self.spec.door.as_ref()?;
        let opened = ToolSocket::open_socket(&self.dir, spec);
        let tell = |error: io::Error| {
            let line = format!("mainstem: no socket at {}: {error}", spec.path.display());
            log.write_record(b"0 e ", line.replace('\n', " ").as_bytes());
        };
        opened.map_err(tell).ok()
    }

    fn spawn_command(&mut self, socket: Option<ToolSocket>) -> Result<SpawnedCommand, JobEnding> {
        let spec = self.spec.clone();
        let Some((program, args)) = spec.argv.split_first() else {
            return Err(not_started_ending("no command is given".into(), false));
        };
        if !spec.cwd.is_dir() {
            let why = format!("the working directory {} does not exist", spec.cwd.display());
            return Err(not_started_ending(why, false));
        }
        let (line, report) = self.build_sandboxed_command(program, args)?;
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .env_clear()
            .envs(&spec.env)
            .env(JOB_MARK, &self.dir)
            .current_dir(&spec.cwd)
            .process_group(0)
            .stderr(Stdio::piped());
        let no_pipe = |e: io::Error| {
            not_started_ending(format!("cannot create a pipe for the output: {e}"), false)
        };
        let (stdout, writer) = io::pipe().map_err(no_pipe)?;
        let (stdout, writer) = (OwnedFd::from(stdout), OwnedFd::from(writer));
        let plug = if spec.converse { PipePlug::new(&writer) } else { None };
        command.stdout(Stdio::from(writer));
        let conversation = self.set_up_stdin(&mut command).map_err(|e| {
            let file = spec.stdin.as_deref().unwrap_or(&self.dir);
            not_started_ending(
                format!("cannot feed {} to standard input: {e}", file.display()),
                false,
            )
        })?;
        let mut child = self
            .spawn_in_cgroup(&mut command)
            .map_err(|e| self.explain_spawn_error(&line[0].to_string_lossy(), &e))?;
        let stderr = child.stderr.take().expect("BUG: stderr was asked to be a pipe").into();
        let report = report.map(|(ours, _theirs)| ours);
        let mut conversation = conversation;
        if let (Some(conversation), true) = (&mut conversation, self.has_sandbox_process()) {
            conversation.ignore_process(child.id());
        }
        Ok(SpawnedCommand {
            pid: child.id(),
            sandbox_report: report,
            stdout,
            stderr,
            input_pipe: conversation,
            plug,
            tool_socket: socket,
        })
    }

    /// Whether the process we start is bubblewrap, so that the command is its grandchild.
    fn has_sandbox_process(&self) -> bool {
        self.spec.wall.as_ref().is_some_and(|wall| wall.kind == sandbox::SandboxBackend::Bwrap)
    }

    /// The command line inside the sandbox, and both ends of the pipe that the sandbox step reports
    /// through.
    fn build_sandboxed_command(
        &self,
        program: &str,
        args: &[String],
    ) -> Result<(Vec<OsString>, Option<SandboxReportPipe>), JobEnding> {
        let Some(wall) = &self.spec.wall else {
            let words = std::iter::once(program).chain(args.iter().map(String::as_str));
            return Ok((words.map(OsString::from).collect(), None));
        };
        let failed =
            |e: io::Error| not_started_ending(format!("cannot set up the sandbox: {e}"), false);
        let (ours, theirs) = io::pipe().map_err(failed)?;
        let (ours, theirs) = (OwnedFd::from(ours), OwnedFd::from(theirs));
        let kept_open = rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty());
        kept_open.map_err(|e| failed(e.into()))?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|e| failed(e.into()))?;
        let exe = current_program_file().map_err(failed)?;
        let report = Some(theirs.as_raw_fd());
        let mut wall = wall.clone();
        if let Some(folder) = self.spec.door.as_ref().and_then(|socket| socket.path.parent()) {
            wall.set_path_access(folder, sandbox::SandboxPathAccess::Write);
        }
        let line = sandbox::wrap_command(&wall, &exe, &self.spec.cwd, &self.spec.argv, report)
            .map_err(failed)?;
        Ok((line, Some((ours, theirs))))
    }

    fn set_up_stdin(&self, command: &mut Command) -> io::Result<Option<JobInputPipe>> {
        if self.spec.converse {
            let (conversation, theirs) =
                JobInputPipe::create_pipe(&self.dir, self.spec.stdin.as_deref())?;
            command.stdin(Stdio::from(theirs));
            return Ok(Some(conversation));
        }
        command.stdin(match &self.spec.stdin {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        });
        Ok(None)
    }

    fn explain_spawn_error(&self, program: &str, e: &io::Error) -> JobEnding {
        let not_found = e.kind() == io::ErrorKind::NotFound;
        let why = if not_found && program.contains('/') {
            format!("{program} does not exist (or the interpreter named in its first line)")
        } else if not_found {
            let path = self.spec.env.get("PATH").map_or("(not set)", String::as_str);
            format!("{program} not found in PATH {path}")
        } else {
            format!("cannot start {program}: {e}")
        };
        not_started_ending(why, not_found)
    }

    /// Records the end. A full disk is waited for: without the record the job counts as vanished.
    fn record_exit(
        &self,
        ending: JobEnding,
        leftovers_killed: u32,
        (output_bytes, output_dropped): (u64, u64),
    ) {
        let exit = JobExit {
            ending,
            started_at_ms: self.pids.started_at_ms,
            ended_at_ms: clock::now_ms(),
            leftovers_killed,
            output_bytes,
            output_dropped,
        };
        self.scrub_environment();
        if self.spec.keeps_work
            && let Err(e) = crate::files::sync_filesystem(&self.spec.cwd)
            && e.kind() != io::ErrorKind::NotFound
        {
            // A record that outlives a power cut must not vouch for files that do not: without one the
            // job counts as vanished, and what it left is looked at and done again.
            report_to_starter(&format!("refused cannot sync the work to disk: {e}"));
            return;
        }
        let give_up = Instant::now() + RECORD_PATIENCE;
        let mut pause = Duration::from_millis(50);
        while json_file::write_json(&self.dir, EXIT, &exit, WriteDurability::Synced).is_err()
            && Instant::now() < give_up
            && self.dir.exists()
        {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        report_to_starter("ok");
    }
}

impl JobSupervisor {
    /// The environment may hold secrets, and nobody needs it any more: the record keeps the names.
    fn scrub_environment(&self) {
        let mut spec = self.spec.clone();
        for (name, value) in &mut spec.env {
            if !name.starts_with("MAINSTEM_") {
                value.clear();
            }
        }
        // Best effort: the file is private, and the exit record must not fail for this.
        let _ = json_file::write_json(&self.dir, SPEC, &spec, WriteDurability::Unsynced);
    }
}

fn not_started_ending(why: String, not_found: bool) -> JobEnding {
    JobEnding::NotStarted { why, not_found }
}

/// What is asked for in the `stop` file. A job whose folder is gone can never be asked, nor heard of.
fn read_stop_request(dir: &Path) -> Option<JobStopMode> {
    let Ok(text) = std::fs::read_to_string(dir.join(STOP)) else {
        return matches!(dir.try_exists(), Ok(false)).then_some(JobStopMode::Term);
    };
    Some(if text.trim() == "kill" { JobStopMode::Kill } else { JobStopMode::Term })
}

/// Starts the command, trying again while the machine is only short of processes or memory.
fn spawn_with_retry(command: &mut Command) -> io::Result<std::process::Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(e)
                if tries < 20
                    && matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::OutOfMemory
                            | io::ErrorKind::ExecutableFileBusy
                    ) =>
            {
                tries += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            other => return other,
        }
    }
}
