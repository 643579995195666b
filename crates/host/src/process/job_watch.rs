//! Follows the output and the end of many jobs with one thread.
//!
//! On Linux the job folders are watched with one inotify instance; where there is none, or no room for
//! another watch, they are looked at every 50 ms. Once a second every job is looked at anyway, to find
//! the ones whose supervisor vanished. Keeps no file open and nothing of what it delivered. Knows
//! nothing of who listens. A slow listener slows this thread and nobody else: reading stops while
//! enough delivered lines are still held, and the log's cap turns what is missed into a gap.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::job_log::{JobLogReader, OutputLine};
use super::{JobExit, JobState, job};

/// Read from one job before the next one gets its turn.
const TURN_BYTES: usize = 256 * 1024;
/// Changes within this time are read together.
const COALESCE: Duration = Duration::from_millis(10);
const FAST_SCAN: Duration = Duration::from_millis(50);
const SLOW_SCAN: Duration = Duration::from_secs(1);
/// After so many failures to read the log of an ended job its end is delivered without the rest.
const READ_TRIES: u32 = 3;

/// Delivered lines that nobody has dropped yet may take up about this much memory.
const BACKLOG_BYTES: usize = 16 * 1024 * 1024;
/// What a line takes besides its text.
const LINE_COST: usize = 96;

/// Lines delivered together. While they are held they count as backlog, and too much of that makes the
/// watching wait: take them apart or drop them soon.
#[derive(Debug, Default)]
pub struct OutputBatch {
    lines: Vec<OutputLine>,
    _weight: Option<BacklogWeight>,
}

/// What a batch adds to the backlog until it is dropped.
#[derive(Debug)]
struct BacklogWeight {
    backlog: Arc<OutputBacklog>,
    bytes: usize,
}

#[derive(Debug)]
struct OutputBacklog {
    bytes: AtomicUsize,
    wake: UnixStream,
}

impl OutputBacklog {
    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Acquire) >= BACKLOG_BYTES
    }

    fn weigh_lines(self: &Arc<Self>, lines: Vec<OutputLine>) -> OutputBatch {
        let bytes = lines.iter().map(|line| line.text.len() + LINE_COST).sum();
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        OutputBatch { lines, _weight: Some(BacklogWeight { backlog: Arc::clone(self), bytes }) }
    }
}

impl Drop for BacklogWeight {
    fn drop(&mut self) {
        let before = self.backlog.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if before >= BACKLOG_BYTES {
            // A full wake pipe wakes just as well.
            let _ = (&self.backlog.wake).write(&[1]);
        }
    }
}

impl From<Vec<OutputLine>> for OutputBatch {
    fn from(lines: Vec<OutputLine>) -> Self {
        Self { lines, _weight: None }
    }
}

impl std::ops::Deref for OutputBatch {
    type Target = [OutputLine];

    fn deref(&self) -> &[OutputLine] {
        &self.lines
    }
}

impl std::ops::DerefMut for OutputBatch {
    fn deref_mut(&mut self) -> &mut [OutputLine] {
        &mut self.lines
    }
}

impl IntoIterator for OutputBatch {
    type Item = OutputLine;
    type IntoIter = std::vec::IntoIter<OutputLine>;

    fn into_iter(self) -> Self::IntoIter {
        self.lines.into_iter()
    }
}

impl Clone for OutputBatch {
    fn clone(&self) -> Self {
        self.lines.clone().into()
    }
}

impl PartialEq for OutputBatch {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl Eq for OutputBatch {}

/// Something that happened to a watched job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// New records, in order.
    Lines { key: u64, lines: OutputBatch },
    /// Records that were dropped before they were read.
    Gap {
        key: u64,
        /// How many bytes of log.
        bytes: u64,
    },
    /// The job ended and all its lines were delivered; it is watched no more.
    Ended { key: u64, exit: JobExit },
    /// The job's supervisor is gone without a word; all lines were delivered, it is watched no more.
    Vanished { key: u64 },
}

enum WatchRequest {
    Watch { key: u64, dir: PathBuf, from: u64 },
    Unwatch(u64),
    Shutdown,
}

/// The thread that watches. Dropping it ends the thread.
#[derive(Debug)]
pub struct JobWatch {
    requests: Sender<WatchRequest>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl JobWatch {
    /// Starts the thread; `sink` is called on it with every event.
    pub fn start(sink: impl Fn(WatchEvent) + Send + 'static) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (orders, inbox) = mpsc::channel();
        let backlog =
            Arc::new(OutputBacklog { bytes: AtomicUsize::new(0), wake: wake.try_clone()? });
        let watcher = JobWatchThread {
            backlog,
            inbox,
            woken,
            folder_changes: FolderChanges::open_notifier(),
            jobs: HashMap::new(),
            queue: VecDeque::new(),
            sink: Box::new(sink),
        };
        let thread =
            std::thread::Builder::new().name("watch".into()).spawn(move || watcher.run())?;
        Ok(Self { requests: orders, wake, thread: Some(thread) })
    }

    /// Watches the job in `dir` from the offset on; replaces what was watched under this key.
    pub fn watch_job(&self, key: u64, dir: PathBuf, from_offset: u64) {
        self.send_request(WatchRequest::Watch { key, dir, from: from_offset });
    }

    /// Watches the job no more. Events already on their way may still arrive.
    pub fn unwatch_job(&self, key: u64) {
        self.send_request(WatchRequest::Unwatch(key));
    }

    fn send_request(&self, order: WatchRequest) {
        // The thread ends only with this value; a full wake pipe wakes it just as well.
        let _ = self.requests.send(order);
        let _ = (&self.wake).write(&[1]);
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        self.send_request(WatchRequest::Shutdown);
        if let Some(thread) = self.thread.take() {
            // A panic of the sink was reported by that thread.
            let _ = thread.join();
        }
    }
}

enum WatchedJobEnd {
    Exit(JobExit),
    Vanished,
}

struct WatchedJob {
    reader: JobLogReader,
    dir: PathBuf,
    /// Its inotify watch, if it has one.
    descriptor: Option<i32>,
    queued: bool,
    look_for_end: bool,
    end: Option<WatchedJobEnd>,
    failures: u32,
}

struct JobWatchThread {
    backlog: Arc<OutputBacklog>,
    inbox: Receiver<WatchRequest>,
    woken: UnixStream,
    folder_changes: FolderChanges,
    jobs: HashMap<u64, WatchedJob>,
    queue: VecDeque<u64>,
    sink: Box<dyn Fn(WatchEvent) + Send>,
}

impl JobWatchThread {
    fn run(mut self) {
        let mut slow_at = Instant::now() + SLOW_SCAN;
        let mut fast_at = Instant::now() + FAST_SCAN;
        loop {
            if !self.take_requests() {
                return;
            }
            self.queue_changed_jobs();
            let now = Instant::now();
            if now >= slow_at {
                self.scan_jobs(true);
                slow_at = now + SLOW_SCAN;
            }
            if now >= fast_at {
                self.scan_jobs(false);
                fast_at = now + FAST_SCAN;
            }
            let worked = !self.queue.is_empty();
            for _ in 0..self.queue.len() {
                if self.backlog.is_full() {
                    break;
                }
                self.read_next_job();
            }
            if !self.queue.is_empty() {
                if self.backlog.is_full() {
                    self.wait_for_work(slow_at, false);
                }
                continue;
            }
            if worked {
                std::thread::sleep(COALESCE);
            }
            let polled = self.jobs.values().any(|job| job.descriptor.is_none());
            self.wait_for_work(if polled { fast_at.min(slow_at) } else { slow_at }, true);
        }
    }

    /// Waits for orders, for a shorter backlog and, if wanted, for changes.
    fn wait_for_work(&mut self, until: Instant, for_changes: bool) {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        if for_changes {
            self.folder_changes.add_poll_fd(&mut fds);
        }
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// False when the thread is to end.
    fn take_requests(&mut self) -> bool {
        let mut bytes = [0; 256];
        while matches!((&self.woken).read(&mut bytes), Ok(n) if n > 0) {}
        while let Ok(order) = self.inbox.try_recv() {
            match order {
                WatchRequest::Shutdown => return false,
                WatchRequest::Unwatch(key) => self.forget_job(key),
                WatchRequest::Watch { key, dir, from } => {
                    self.forget_job(key);
                    let job = WatchedJob {
                        reader: JobLogReader::new(dir.clone(), from),
                        descriptor: self.folder_changes.watch_folder(&dir, key),
                        dir,
                        queued: false,
                        look_for_end: false,
                        end: None,
                        failures: 0,
                    };
                    self.jobs.insert(key, job);
                    self.queue_job(key, true);
                }
            }
        }
        true
    }

    fn forget_job(&mut self, key: u64) {
        if let Some(WatchedJob { descriptor: Some(descriptor), .. }) = self.jobs.remove(&key) {
            self.folder_changes.unwatch_folder(descriptor, key);
        }
    }

    fn queue_job(&mut self, key: u64, look_for_end: bool) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.look_for_end |= look_for_end;
        if !std::mem::replace(&mut job.queued, true) {
            self.queue.push_back(key);
        }
    }

    fn queue_changed_jobs(&mut self) {
        let mut changed = Vec::new();
        if self.folder_changes.drain_changes(&mut changed) {
            for (key, look_for_end) in changed {
                self.queue_job(key, look_for_end);
            }
        } else {
            self.scan_jobs(true);
        }
    }

    /// Looks at all jobs, or at those that no notification tells about.
    fn scan_jobs(&mut self, all: bool) {
        let keys: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| all || job.descriptor.is_none())
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if all
                && let Some(job) = self.jobs.get_mut(&key)
                && job.descriptor.is_none()
            {
                job.descriptor = self.folder_changes.watch_folder(&job.dir, key);
            }
            self.queue_job(key, true);
        }
    }

    /// Reads one piece of the next job in the queue.
    fn read_next_job(&mut self) {
        let Some(key) = self.queue.pop_front() else { return };
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.queued = false;
        if job.end.is_none() && std::mem::take(&mut job.look_for_end) {
            // The end is looked for before the log is read, so that nothing printed before it is missed.
            job.end = match job::read_job_state(&job.dir) {
                Ok(JobState::Ended(exit)) => Some(WatchedJobEnd::Exit(exit)),
                Ok(JobState::Vanished) => Some(WatchedJobEnd::Vanished),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => Some(WatchedJobEnd::Vanished),
                _ => None,
            };
        }
        let mut more = false;
        match job.reader.read(TURN_BYTES, job.end.is_some()) {
            Ok(batch) => {
                job.failures = 0;
                more = batch.more;
                if batch.dropped > 0 {
                    (self.sink)(WatchEvent::Gap { key, bytes: batch.dropped });
                }
                if !batch.lines.is_empty() {
                    let lines = self.backlog.weigh_lines(batch.lines);
                    (self.sink)(WatchEvent::Lines { key, lines });
                }
            }
            // The next scan tries again.
            Err(_) => job.failures += 1,
        }
        let give_up = job.failures == 0 || job.failures >= READ_TRIES;
        if more {
            self.queue_job(key, false);
        } else if give_up && let Some(end) = job.end.take() {
            self.forget_job(key);
            (self.sink)(match end {
                WatchedJobEnd::Exit(exit) => WatchEvent::Ended { key, exit },
                WatchedJobEnd::Vanished => WatchEvent::Vanished { key },
            });
        }
    }
}

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
use linux::FolderChanges;

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod linux {
    //! Folder changes by inotify.

    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;

    use rustix::fs::inotify::{
        CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
    };

    use super::{HashMap, Path, PollFd, PollFlags};
    use crate::process::EXIT;

    pub(super) struct FolderChanges {
        inotify: Option<OwnedFd>,
        keys: HashMap<i32, Vec<u64>>,
    }

    impl FolderChanges {
        pub(super) fn open_notifier() -> Self {
            // Instances are limited per user; without one we look at the folders instead.
            let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
            Self { inotify, keys: HashMap::new() }
        }

        pub(super) fn add_poll_fd<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
            fds.extend(self.inotify.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        }

        pub(super) fn watch_folder(&mut self, dir: &Path, key: u64) -> Option<i32> {
            let flags = WatchFlags::MODIFY | WatchFlags::MOVED_TO | WatchFlags::CREATE;
            let descriptor =
                add_watch(self.inotify.as_ref()?, dir, flags | WatchFlags::ONLYDIR).ok()?;
            self.keys.entry(descriptor).or_default().push(key);
            Some(descriptor)
        }

        pub(super) fn unwatch_folder(&mut self, descriptor: i32, key: u64) {
            let Some(keys) = self.keys.get_mut(&descriptor) else { return };
            keys.retain(|k| *k != key);
            if keys.is_empty() {
                self.keys.remove(&descriptor);
                if let Some(inotify) = &self.inotify {
                    // Fails if the folder is gone, and the watch with it.
                    let _ = remove_watch(inotify, descriptor);
                }
            }
        }

        /// Adds the jobs whose folder changed, and whether they may have ended; false if changes were lost.
        pub(super) fn drain_changes(&mut self, changed: &mut Vec<(u64, bool)>) -> bool {
            let Some(inotify) = &self.inotify else { return true };
            let mut buffer = [const { MaybeUninit::uninit() }; 16 * 1024];
            let mut events = Reader::new(inotify, &mut buffer);
            let mut complete = true;
            while let Ok(event) = events.next() {
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    complete = false;
                }
                let ended =
                    event.file_name().is_some_and(|name| name.to_bytes() == EXIT.as_bytes());
                for &key in self.keys.get(&event.wd()).into_iter().flatten() {
                    if changed.last() != Some(&(key, ended)) {
                        changed.push((key, ended));
                    }
                }
            }
            complete
        }
    }
}

#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
struct FolderChanges;

#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
impl FolderChanges {
    fn open_notifier() -> Self {
        Self
    }

    fn add_poll_fd<'a>(&'a self, _fds: &mut Vec<PollFd<'a>>) {}

    fn watch_folder(&mut self, _dir: &Path, _key: u64) -> Option<i32> {
        None
    }

    fn unwatch_folder(&mut self, _descriptor: i32, _key: u64) {}

    fn drain_changes(&mut self, _changed: &mut Vec<(u64, bool)>) -> bool {
        true
    }
}
