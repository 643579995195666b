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

use super::answers::{Conversation, Plug};
use super::cgroup::{Hierarchy, Leaf};
use super::door::Door;
use super::log::Writer;
use super::record::{self, Durable};
use super::{EXIT, Ending, Exit, JOB_MARK, JobSpec, LOCK, PIDS, Pids, SPEC, STOP, Stop, tree};
use crate::{clock, lock, wall};

mod watchful;

use watchful::Running;

/// Set for the process that stays; the one without it only gets the other one started.
const DETACHED: &str = "MAINSTEM_SUPERVISE_DETACHED";
/// A probe of the lock lasts microseconds; another supervisor of this job for its whole life.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a full disk may delay the record of the end.
const RECORD_PATIENCE: Duration = Duration::from_secs(600);

/// The main function of the hidden subcommand that supervises the job in `dir`; gives the exit code.
///
/// The program must have been started by [`super::start`], with the folder as its last argument.
pub fn supervise(dir: &Path) -> i32 {
    if env::var_os(DETACHED).is_none() {
        return detach();
    }
    match Supervisor::register(dir) {
        Ok(Some(supervisor)) => {
            supervisor.run();
            0
        }
        // The job has run or runs already: nothing to do.
        Ok(None) => {
            report("ok");
            0
        }
        Err(why) => {
            report(&format!("refused {why}"));
            1
        }
    }
}

/// Starts this program again and ends, so that the starter is never the parent of something long-lived.
fn detach() -> i32 {
    let spawned = own_program().and_then(|program| {
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
            report(&format!("refused the supervisor cannot start itself again: {e}"));
            1
        }
    }
}

fn own_program() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    // An upgrade may have replaced the file; the running one is still reachable.
    let running = Path::new("/proc/self/exe");
    Ok(if !program.exists() && running.exists() { running.to_owned() } else { program })
}

/// The file of this program, for namespaces in which the running one has no name. An upgrade may have
/// put another version there, which knows the step as well.
fn own_file() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let text = program.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| program.clone(), PathBuf::from))
}

/// Tells the starter, if it still listens, how far we got.
fn report(text: &str) {
    let line = format!("{}\n", text.replace('\n', " "));
    let _ = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
}

/// What wakes the supervisor.
struct Signals {
    /// Readable after any signal.
    wake: UnixStream,
    /// Somebody sent SIGTERM to the supervisor itself.
    term: Arc<AtomicBool>,
}

impl Signals {
    fn register() -> io::Result<Self> {
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

struct Supervisor {
    dir: PathBuf,
    spec: JobSpec,
    pids: Pids,
    /// The command's cgroup; none if there is no way to make one.
    leaf: Option<Leaf>,
    signals: Signals,
    /// Held until the end of this process.
    _lock: File,
}

/// Our end and the wall's end of the pipe through which its step reports.
type ReportPipe = (OwnedFd, OwnedFd);

/// The command's ends of its pipes, as we hold them.
struct Spawned {
    pid: u32,
    /// What the wall's step says about the command; none without a wall.
    report: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    conversation: Option<Conversation>,
    plug: Option<Plug>,
    door: Option<Door>,
}

impl Supervisor {
    /// Becomes the one supervisor of the job; `None` if the job has one or had one.
    fn register(dir: &Path) -> Result<Option<Self>, String> {
        let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        let io = |what: &'static str| move |e: io::Error| format!("cannot {what}: {e}");
        // Fails only for the leader of a group, which a freshly started process is not.
        let _ = rustix::process::setsid();
        #[expect(
            clippy::disallowed_methods,
            reason = "this process has one thread, and must not keep its starter's folder busy"
        )]
        env::set_current_dir(&dir).map_err(io("enter the job's folder"))?;
        tree::become_reaper().map_err(io("become the reaper of orphans"))?;
        let Some(lock) = lock::take(&dir.join(LOCK), Instant::now() + LOCK_PATIENCE)
            .map_err(io("lock the job"))?
        else {
            return Ok(None);
        };
        if dir.join(EXIT).exists() || dir.join(PIDS).exists() {
            return Ok(None);
        }
        let spec = record::read::<JobSpec>(&dir, SPEC)
            .map_err(io("read the job"))?
            .ok_or("spec.json does not exist")?;
        let signals = Signals::register().map_err(io("handle signals"))?;
        let leaf = Hierarchy::find().ok().map(|found| found.plan());
        let pid = std::process::id();
        let pids = Pids {
            pid,
            start_time: tree::start_time(pid),
            boot_id: tree::boot_id(),
            agent_pid: None,
            agent_start_time: None,
            started_at_ms: clock::now_ms(),
            cgroup: leaf.as_ref().map(|leaf| leaf.dir().to_owned()),
            dir: dir.to_str().map(Into::into),
        };
        // Durable, because without it the job counts as never run and would be run again.
        record::write(&dir, PIDS, &pids, Durable::Yes).map_err(io("write pid.json"))?;
        Ok(Some(Self { dir, spec, pids, leaf, signals, _lock: lock }))
    }

    fn run(mut self) {
        let mut log = match Writer::create(&self.dir, self.spec.output_bytes, self.spec.line_bytes)
        {
            Ok(log) => log,
            Err(e) => {
                let ending = not_started(format!("cannot create the log: {e}"), false);
                return self.end(ending, 0, (0, 0));
            }
        };
        if requested(&self.dir).is_some() {
            return self.end(Ending::Stopped, 0, (0, 0));
        }
        // Where the kernel does not, the loop watches the memory.
        let watched = !self.make_leaf();
        let door = self.open_door(&mut log);
        match self.spawn(door) {
            Err(ending) => {
                self.remove_leaf();
                self.end(ending, 0, log.totals());
            }
            Ok(spawned) => {
                self.pids.agent_pid = Some(spawned.pid);
                self.pids.agent_start_time = Some(tree::start_time(spawned.pid));
                self.pids.cgroup.take_if(|dir| !dir.exists());
                // Without it the tree is still found by its mark.
                let _ = record::write(&self.dir, PIDS, &self.pids, Durable::No);
                self.hand_over();
                let memory = self.spec.memory_bytes.filter(|_| watched);
                let (ending, leftovers) =
                    Running::new(&self, spawned, memory, &mut log).until_dead();
                log.sync();
                self.remove_leaf();
                self.end(ending, leftovers, log.totals());
            }
        }
    }

    /// Makes the command's cgroup; true if the kernel enforces the memory limit there.
    fn make_leaf(&mut self) -> bool {
        if self.leaf.as_ref().is_some_and(|leaf| leaf.make().is_err()) {
            self.leaf = None;
        }
        match (&self.leaf, self.spec.memory_bytes) {
            (Some(leaf), Some(bytes)) => leaf.limit_memory(bytes),
            _ => false,
        }
    }

    fn remove_leaf(&self) {
        if let Some(leaf) = &self.leaf {
            // An empty group that stays does no harm.
            let _ = leaf.remove();
        }
    }

    /// Starts the command inside its cgroup: we go in, so that it is born there, and out again.
    fn spawn_inside(&mut self, command: &mut Command) -> io::Result<std::process::Child> {
        let entered = self.leaf.as_ref().is_some_and(|leaf| leaf.enter().is_ok());
        if !entered && let Some(leaf) = self.leaf.take() {
            let _ = leaf.remove();
        }
        let spawned = spawn_patiently(command);
        if entered && self.leaf.as_ref().is_some_and(|leaf| leaf.leave().is_err()) {
            // Killing the group would kill us. Should we die, the record still leads there.
            self.leaf = None;
        }
        spawned
    }

    /// Tells the starter that the job runs, and lets go of everything shared with it.
    fn hand_over(&self) {
        report("ok");
        let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
        // Standard input carried the starter's lock: closing it lets the next starter look.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }

    /// Opens the door. Without it the command can still do its work, so the log says why and it runs.
    fn open_door(&self, log: &mut Writer) -> Option<Door> {
        let spec = self.spec.door.as_ref()?;
        let opened = Door::open(&self.dir, spec);
        let tell = |error: io::Error| {
            let line = format!("mainstem: no socket at {}: {error}", spec.path.display());
            log.record(b"0 e ", line.replace('\n', " ").as_bytes());
        };
        opened.map_err(tell).ok()
    }

    fn spawn(&mut self, door: Option<Door>) -> Result<Spawned, Ending> {
        let spec = self.spec.clone();
        let Some((program, args)) = spec.argv.split_first() else {
            return Err(not_started("no command is given".into(), false));
        };
        if !spec.cwd.is_dir() {
            let why = format!("the working directory {} does not exist", spec.cwd.display());
            return Err(not_started(why, false));
        }
        let (line, report) = self.dressed(program, args)?;
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .env_clear()
            .envs(&spec.env)
            .env(JOB_MARK, &self.dir)
            .current_dir(&spec.cwd)
            .process_group(0)
            .stderr(Stdio::piped());
        let no_pipe =
            |e: io::Error| not_started(format!("cannot create a pipe for the output: {e}"), false);
        let (stdout, writer) = io::pipe().map_err(no_pipe)?;
        let (stdout, writer) = (OwnedFd::from(stdout), OwnedFd::from(writer));
        let plug = if spec.converse { Plug::new(&writer) } else { None };
        command.stdout(Stdio::from(writer));
        let conversation = self.stdin(&mut command).map_err(|e| {
            let file = spec.stdin.as_deref().unwrap_or(&self.dir);
            not_started(format!("cannot feed {} to standard input: {e}", file.display()), false)
        })?;
        let mut child = self
            .spawn_inside(&mut command)
            .map_err(|e| self.explain(&line[0].to_string_lossy(), &e))?;
        let stderr = child.stderr.take().expect("BUG: stderr was asked to be a pipe").into();
        let report = report.map(|(ours, _theirs)| ours);
        let mut conversation = conversation;
        if let (Some(conversation), true) = (&mut conversation, self.has_scaffold()) {
            conversation.disregard(child.id());
        }
        Ok(Spawned { pid: child.id(), report, stdout, stderr, conversation, plug, door })
    }

    /// Whether the process we start is the wall's, and the command a grandchild of it.
    fn has_scaffold(&self) -> bool {
        self.spec.wall.as_ref().is_some_and(|wall| wall.kind == wall::Kind::Bwrap)
    }

    /// The command line with the wall around it, and both ends of the pipe that the wall's step reports
    /// through.
    fn dressed(
        &self,
        program: &str,
        args: &[String],
    ) -> Result<(Vec<OsString>, Option<ReportPipe>), Ending> {
        let Some(wall) = &self.spec.wall else {
            let words = std::iter::once(program).chain(args.iter().map(String::as_str));
            return Ok((words.map(OsString::from).collect(), None));
        };
        let failed = |e: io::Error| not_started(format!("cannot set up the sandbox: {e}"), false);
        let (ours, theirs) = io::pipe().map_err(failed)?;
        let (ours, theirs) = (OwnedFd::from(ours), OwnedFd::from(theirs));
        let kept_open = rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty());
        kept_open.map_err(|e| failed(e.into()))?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|e| failed(e.into()))?;
        let exe = own_file().map_err(failed)?;
        let report = Some(theirs.as_raw_fd());
        let mut wall = wall.clone();
        if let Some(folder) = self.spec.door.as_ref().and_then(|door| door.path.parent()) {
            wall.allow(folder, wall::Access::Write);
        }
        let line =
            wall::dress(&wall, &exe, &self.spec.cwd, &self.spec.argv, report).map_err(failed)?;
        Ok((line, Some((ours, theirs))))
    }

    fn stdin(&self, command: &mut Command) -> io::Result<Option<Conversation>> {
        if self.spec.converse {
            let (conversation, theirs) =
                Conversation::create(&self.dir, self.spec.stdin.as_deref())?;
            command.stdin(Stdio::from(theirs));
            return Ok(Some(conversation));
        }
        command.stdin(match &self.spec.stdin {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        });
        Ok(None)
    }

    fn explain(&self, program: &str, e: &io::Error) -> Ending {
        let not_found = e.kind() == io::ErrorKind::NotFound;
        let why = if not_found && program.contains('/') {
            format!("{program} does not exist (or the interpreter named in its first line)")
        } else if not_found {
            let path = self.spec.env.get("PATH").map_or("(not set)", String::as_str);
            format!("{program} not found in PATH {path}")
        } else {
            format!("cannot start {program}: {e}")
        };
        not_started(why, not_found)
    }

    /// Records the end. A full disk is waited for: without the record the job counts as vanished.
    fn end(
        &self,
        ending: Ending,
        leftovers_killed: u32,
        (output_bytes, output_dropped): (u64, u64),
    ) {
        let exit = Exit {
            ending,
            started_at_ms: self.pids.started_at_ms,
            ended_at_ms: clock::now_ms(),
            leftovers_killed,
            output_bytes,
            output_dropped,
        };
        self.forget_environment();
        if self.spec.keeps_work
            && let Err(e) = crate::files::sync_filesystem(&self.spec.cwd)
            && e.kind() != io::ErrorKind::NotFound
        {
            // A record that outlives a power cut must not vouch for files that do not: without one the
            // job counts as vanished, and what it left is looked at and done again.
            report(&format!("refused cannot sync the work to disk: {e}"));
            return;
        }
        let give_up = Instant::now() + RECORD_PATIENCE;
        let mut pause = Duration::from_millis(50);
        while record::write(&self.dir, EXIT, &exit, Durable::Yes).is_err()
            && Instant::now() < give_up
            && self.dir.exists()
        {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        report("ok");
    }
}

impl Supervisor {
    /// The environment may hold secrets, and nobody needs it any more: the record keeps the names.
    fn forget_environment(&self) {
        let mut spec = self.spec.clone();
        for (name, value) in &mut spec.env {
            if !name.starts_with("MAINSTEM_") {
                value.clear();
            }
        }
        // Best effort: the file is private, and the exit record must not fail for this.
        let _ = record::write(&self.dir, SPEC, &spec, Durable::No);
    }
}

fn not_started(why: String, not_found: bool) -> Ending {
    Ending::NotStarted { why, not_found }
}

/// What is asked for in the `stop` file. A job whose folder is gone can never be asked, nor heard of.
fn requested(dir: &Path) -> Option<Stop> {
    let Ok(text) = std::fs::read_to_string(dir.join(STOP)) else {
        return matches!(dir.try_exists(), Ok(false)).then_some(Stop::Term);
    };
    Some(if text.trim() == "kill" { Stop::Kill } else { Stop::Term })
}

/// Starts the command, trying again while the machine is only short of processes or memory.
fn spawn_patiently(command: &mut Command) -> io::Result<std::process::Child> {
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
