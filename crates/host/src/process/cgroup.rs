//! A control group of its own for each job, where the system lets us make one: nothing in it can hide
//! from a kill, and with the memory controller the kernel enforces the limit.
//!
//! Only cgroup v2. A job's group, its leaf, is made beside or below the group of the process that starts
//! it; its path is recorded before it is made. Groups with controllers for their children hold no
//! processes themselves, so an engine that is alone in a delegated group moves one level down first
//! ([`delegate_memory_controller`]). Whatever fails here only means that the job runs without: the caller falls back to
//! walking the process tree. Knows nothing of jobs but a limit.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use super::process_tree;

/// How the names of our groups begin.
const PREFIX: &str = "mainstem-";
/// The group that an engine moves into.
const ENGINE: &str = "mainstem-engine";
/// A group is busy for a moment after its last process died.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// Groups below a leaf that an agent made; deeper ones are not ours to understand.
const DEPTH_MAX: usize = 32;

/// What holds the processes of a job together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobContainment {
    /// A cgroup of its own.
    Cgroup {
        at: PathBuf,
        /// Whether the kernel enforces `limits.memory_per_agent`; otherwise the supervisor does.
        memory: bool,
    },
    /// The process tree, walked by the supervisor.
    Tree {
        /// Why there is no cgroup.
        why: String,
    },
}

/// The cgroup v2 hierarchy as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupHierarchy {
    mount: PathBuf,
    /// The group that we are in.
    own_cgroup: PathBuf,
}

impl CgroupHierarchy {
    /// Finds the hierarchy and our own place in it.
    pub(super) fn discover() -> Result<Self, String> {
        if cfg!(not(all(target_os = "linux", not(mainstem_portable)))) {
            return Err("this system has no cgroups".to_owned());
        }
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        Self::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
    }

    fn parse(mounts: &str, groups: &str) -> Result<Self, String> {
        let own = groups
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .ok_or("this process is not in a cgroup (version 2)")?;
        let outside = || format!("the cgroup {own} of this process cannot be seen from here");
        let mut mounted = false;
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            if after.split(' ').next() != Some("cgroup2") {
                continue;
            }
            mounted = true;
            let mut fields = before.split(' ').skip(3);
            let (Some(root), Some(mount)) = (fields.next(), fields.next()) else { continue };
            let Ok(inside) = Path::new(own).strip_prefix(unescape_mount_path(root)) else {
                continue;
            };
            if inside.components().all(|c| matches!(c, Component::Normal(_))) {
                let mount = unescape_mount_path(mount);
                // Joining nothing would leave a slash at the end.
                let own =
                    if inside.as_os_str().is_empty() { mount.clone() } else { mount.join(inside) };
                return Ok(Self { mount, own_cgroup: own });
            }
        }
        Err(if mounted { outside() } else { "no cgroup v2 file system is mounted".to_owned() })
    }

    /// Where leaves are made: a group that has none of our processes if we have settled.
    fn job_cgroup_parent(&self) -> &Path {
        let settled = self.own_cgroup.file_name().is_some_and(|name| name == ENGINE);
        self.own_cgroup.parent().filter(|_| settled).unwrap_or(&self.own_cgroup)
    }

    /// A leaf with a fresh name; nothing is made yet.
    pub(super) fn plan_job_cgroup(&self) -> JobCgroup {
        let dir = self.job_cgroup_parent().join(format!("{PREFIX}{}", crate::files::unique_name()));
        JobCgroup { dir, home_cgroup: self.own_cgroup.clone() }
    }

    /// The leaf that a record names, if it is one of ours: below the hierarchy, with a name of ours, and
    /// not around ourselves.
    pub(super) fn find_recorded_cgroup(&self, dir: &Path) -> Option<JobCgroup> {
        let inside = dir.strip_prefix(&self.mount).ok()?;
        let plain = inside.components().all(|c| matches!(c, Component::Normal(_)));
        let id = dir.file_name()?.to_str()?.strip_prefix(PREFIX)?;
        let ours =
            id.contains('.') && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'.' || b == b'-');
        let around_us = self.own_cgroup.starts_with(dir);
        // A link would lead elsewhere; a cgroup file system has none.
        let real =
            dir.canonicalize().map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |d| d == dir);
        (plain && ours && !around_us && real)
            .then(|| JobCgroup { dir: dir.to_owned(), home_cgroup: self.own_cgroup.clone() })
    }

    /// Whether leaves can be made, as far as rights tell.
    fn check_delegation(&self) -> Result<(), String> {
        use rustix::fs::{Access, access};
        let base = self.job_cgroup_parent();
        access(base, Access::WRITE_OK)
            .and_then(|()| access(base.join("cgroup.procs"), Access::WRITE_OK))
            .map_err(|e| format!("no permission to create cgroups below {}: {e}", base.display()))
    }

    /// Whether leaves have, or would have once settled, the memory controller.
    fn has_memory_controller(&self) -> bool {
        let base = self.job_cgroup_parent();
        file_has_word(&base.join("cgroup.subtree_control"), "memory")
            || (file_has_word(&base.join("cgroup.controllers"), "memory")
                && self.is_alone_in_cgroup())
    }

    /// Whether nobody but this process is in its group, so that it may be made an inner one.
    fn is_alone_in_cgroup(&self) -> bool {
        // The root of all has no type, and is not ours to change.
        self.own_cgroup.join("cgroup.type").exists()
            && read_cgroup_pids(&self.own_cgroup).is_ok_and(|pids| pids == [std::process::id()])
    }

    /// Removes empty leaves whose supervisor is dead. One that is being made has a living one, and one
    /// with processes in it cannot be removed.
    fn remove_stale_cgroups(&self) {
        let Ok(entries) = fs::read_dir(self.job_cgroup_parent()) else { return };
        for entry in entries.flatten() {
            let Some(leaf) = self.find_recorded_cgroup(&entry.path()) else { continue };
            let name = entry.file_name();
            let pid =
                name.to_str().and_then(|n| n.strip_prefix(PREFIX)?.split('.').next()?.parse().ok());
            let dead = pid.is_some_and(|pid| matches!(process_tree::find_process(pid), Ok(None)));
            if dead && matches!(leaf.is_populated(), Ok(false)) {
                let _ = leaf.remove();
            }
        }
    }

    /// Moves this process one level down and has the memory controller given to the leaves.
    fn delegate_memory_controller(&self) -> io::Result<()> {
        let control = self.own_cgroup.join("cgroup.subtree_control");
        let given = file_has_word(&control, "memory");
        if self.job_cgroup_parent() != self.own_cgroup || given || !self.has_memory_controller() {
            return Ok(());
        }
        let engine = self.own_cgroup.join(ENGINE);
        create_cgroup_dir(&engine)?;
        fs::write(engine.join("cgroup.procs"), "0")?;
        if let Err(error) = fs::write(&control, "+memory") {
            // Back to where we were: the leaves go on without.
            let _ = fs::write(self.own_cgroup.join("cgroup.procs"), "0");
            let _ = fs::remove_dir(&engine);
            return Err(error);
        }
        Ok(())
    }
}

/// What a job started now would be held by.
pub fn current_containment() -> JobContainment {
    match CgroupHierarchy::discover().and_then(|found| found.check_delegation().map(|()| found)) {
        Ok(found) => JobContainment::Cgroup {
            at: found.job_cgroup_parent().to_owned(),
            memory: found.has_memory_controller(),
        },
        Err(why) => JobContainment::Tree { why },
    }
}

/// To be called once by an engine. Removes empty groups of supervisors that were killed; and if its jobs
/// have a memory limit, makes room for the memory controller if this process is alone in a group that it
/// may divide. Says what its jobs are held by from now on.
pub fn prepare_containment(memory: bool) -> JobContainment {
    if let Ok(found) = CgroupHierarchy::discover()
        && found.check_delegation().is_ok()
    {
        if memory {
            // Without it the supervisors watch the memory themselves.
            let _ = found.delegate_memory_controller();
        }
        found.remove_stale_cgroups();
    }
    current_containment()
}

/// The group of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobCgroup {
    dir: PathBuf,
    /// The group of the process that uses this value.
    home_cgroup: PathBuf,
}

impl JobCgroup {
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn create(&self) -> io::Result<()> {
        create_cgroup_dir(&self.dir)
    }

    /// Has the kernel enforce a limit; false if it does not.
    pub(super) fn limit_memory(&self, bytes: u64) -> bool {
        let max = self.dir.join("memory.max");
        if !max.exists() || fs::write(&max, bytes.to_string()).is_err() {
            return false;
        }
        // Without swap the limit means what it says; not every kernel has the file.
        for (file, value) in [("memory.swap.max", "0"), ("memory.oom.group", "1")] {
            let path = self.dir.join(file);
            if path.exists() {
                let _ = fs::write(path, value);
            }
        }
        true
    }

    /// How many processes the kernel has killed here for want of memory.
    pub(super) fn count_memory_kills(&self) -> u64 {
        read_keyed_number(&self.dir.join("memory.events"), "oom_kill").ok().flatten().unwrap_or(0)
    }

    /// Moves this process in, so that what it starts begins there.
    pub(super) fn enter(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), "0")
    }

    /// Moves this process back out.
    pub(super) fn leave(&self) -> io::Result<()> {
        fs::write(self.home_cgroup.join("cgroup.procs"), "0").or_else(|error| {
            // Where we were may have become an inner group in the meantime: an engine settled there.
            fs::write(self.home_cgroup.join(ENGINE).join("cgroup.procs"), "0").map_err(|_| error)
        })
    }

    /// Whether a living process is in it or below.
    pub(super) fn is_populated(&self) -> io::Result<bool> {
        Ok(read_keyed_number(&self.dir.join("cgroup.events"), "populated")? == Some(1))
    }

    /// The processes in it and below.
    pub(super) fn list_processes(&self) -> io::Result<Vec<u32>> {
        let mut all = Vec::new();
        for dir in self.list_subgroups()? {
            all.extend(read_cgroup_pids(&dir)?);
        }
        Ok(all)
    }

    /// Kills everything in it. Returns at once; the dead are gone a moment later.
    pub(super) fn kill(&self) -> io::Result<()> {
        match fs::write(self.dir.join("cgroup.kill"), "1") {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        // A kernel before 5.14: what is frozen cannot fork, and still dies of the signal.
        let _ = fs::write(self.dir.join("cgroup.freeze"), "1");
        for pid in self.list_processes()? {
            process_tree::signal_process(pid, Signal::KILL);
        }
        Ok(())
    }

    /// Removes the empty group and those that were made below it. One that is gone is fine.
    pub(super) fn remove(&self) -> io::Result<()> {
        let give_up = Instant::now() + REMOVE_PATIENCE;
        loop {
            let removed = self.list_subgroups().and_then(|groups| {
                groups.iter().rev().try_for_each(|dir| match fs::remove_dir(dir) {
                    Err(e) if !is_gone_error(&e) => Err(e),
                    _ => Ok(()),
                })
            });
            match removed {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return other,
            }
        }
    }

    /// This group and all below it, outer ones first; none if it is gone.
    fn list_subgroups(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut next = vec![(self.dir.clone(), 0)];
        while let Some((dir, depth)) = next.pop() {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(e) if is_gone_error(&e) => continue,
                Err(e) => return Err(e),
            };
            for entry in entries {
                let entry = match entry {
                    Err(e) if is_gone_error(&e) => break,
                    other => other?,
                };
                if depth < DEPTH_MAX && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    next.push((entry.path(), depth + 1));
                }
            }
            found.push(dir);
        }
        Ok(found)
    }
}

fn create_cgroup_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.ends_with(ENGINE) => Ok(()),
        other => other,
    }
}

/// A removed group answers with either.
fn is_gone_error(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// Processes of another pid namespace show as 0 and are left out.
fn read_cgroup_pids(dir: &Path) -> io::Result<Vec<u32>> {
    match fs::read_to_string(dir.join("cgroup.procs")) {
        Ok(text) => Ok(text.lines().filter_map(|l| l.parse().ok()).filter(|p| *p > 0).collect()),
        // A threaded group below has its processes listed at its outer one.
        Err(e) if is_gone_error(&e) || e.kind() == io::ErrorKind::Unsupported => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn file_has_word(path: &Path, word: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.split_ascii_whitespace().any(|w| w == word))
}

/// The number after `key`; `None` if the group is gone or has no such line.
fn read_keyed_number(path: &Path, key: &str) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if is_gone_error(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let value = |line: &str| line.strip_prefix(key)?.trim().parse().ok();
    Ok(text.lines().find_map(value))
}

/// Mount tables write blanks as octal numbers.
fn unescape_mount_path(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| byte == b'\\') {
            Some(meant) => {
                out.push(meant);
                at += 4;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";

    fn found(mounts: &str, groups: &str) -> Result<(String, String), String> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        CgroupHierarchy::parse(mounts, groups).map(|h| (text(h.mount), text(h.own_cgroup)))
    }

    #[test]
    fn the_hierarchy_is_found_in_every_kind_of_mount() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let bound = "30 23 0:26 /docker/abc /a\\040b rw - cgroup2 cgroup rw\n";
        let at = |mount: &str, own: &str| Ok((mount.to_owned(), own.to_owned()));
        let table = [
            (
                unified,
                "0::/user.slice/x.scope\n",
                at("/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/x.scope"),
            ),
            (HYBRID, "4:memory:/x\n0::/\n", at("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified")),
            (bound, "0::/docker/abc/in\n", at("/a b", "/a b/in")),
        ];
        for (mounts, groups, expected) in table {
            assert_eq!(found(mounts, groups), expected);
        }
        for (mounts, groups, word) in [
            (HYBRID, "4:memory:/x\n", "not in a cgroup"),
            ("", "0::/\n", "mounted"),
            (bound, "0::/elsewhere\n", "cannot be seen"),
            (unified, "0::/../above\n", "cannot be seen"),
        ] {
            let why = found(mounts, groups).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    /// Plain folders that look like a hierarchy in which we are in `own`.
    fn fake(own: &str, controllers: &str) -> (tempfile::TempDir, CgroupHierarchy) {
        let root = tempfile::tempdir().unwrap();
        let mount = root.path().canonicalize().unwrap();
        let own = mount.join(own);
        fs::create_dir_all(&own).unwrap();
        for (file, text) in [
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
            ("cgroup.type", "domain\n"),
            ("cgroup.procs", &format!("{}\n", std::process::id())),
        ] {
            fs::write(own.join(file), text).unwrap();
        }
        (root, CgroupHierarchy { mount, own_cgroup: own })
    }

    fn text(path: PathBuf) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_limit_is_written_where_the_group_has_the_memory_controller_only() {
        let (_root, found) = fake("scope", "cpu memory pids");
        let leaf = found.plan_job_cgroup();
        leaf.create().unwrap();
        assert!(!leaf.limit_memory(4 << 30), "the group has no memory.max");
        for (file, start) in
            [("memory.max", "max"), ("memory.swap.max", "max"), ("memory.oom.group", "0")]
        {
            fs::write(leaf.dir().join(file), start).unwrap();
        }
        assert!(leaf.limit_memory(4 << 30));
        assert_eq!(text(leaf.dir().join("memory.max")), (4u64 << 30).to_string());
        assert_eq!(text(leaf.dir().join("memory.swap.max")), "0");
        assert_eq!(text(leaf.dir().join("memory.oom.group")), "1");
    }

    #[test]
    fn kills_by_the_kernel_are_counted_and_not_confused_with_other_events() {
        let (_root, found) = fake("scope", "memory");
        let leaf = found.plan_job_cgroup();
        leaf.create().unwrap();
        assert_eq!(leaf.count_memory_kills(), 0);
        fs::write(
            leaf.dir().join("memory.events"),
            "low 1\nmax 9\noom 2\noom_kill 0\noom_group_kill 3\n",
        )
        .unwrap();
        assert_eq!(leaf.count_memory_kills(), 0);
        fs::write(leaf.dir().join("memory.events"), "oom 2\noom_kill 5\noom_group_kill 1\n")
            .unwrap();
        assert_eq!(leaf.count_memory_kills(), 5);
    }

    #[test]
    fn an_engine_that_is_alone_moves_down_and_leaves_get_the_memory_controller() {
        let (_root, found) = fake("scope", "cpu memory");
        assert!(found.has_memory_controller());
        fs::create_dir(found.own_cgroup.join(ENGINE)).unwrap();
        found.delegate_memory_controller().unwrap();
        assert_eq!(text(found.own_cgroup.join(ENGINE).join("cgroup.procs")), "0");
        assert_eq!(text(found.own_cgroup.join("cgroup.subtree_control")), "+memory");
        let settled =
            CgroupHierarchy { own_cgroup: found.own_cgroup.join(ENGINE), ..found.clone() };
        assert_eq!(settled.plan_job_cgroup().dir().parent(), Some(found.own_cgroup.as_path()));
    }

    #[test]
    fn an_engine_that_is_not_alone_or_has_no_controller_stays_where_it_is() {
        let (_root, found) = fake("scope", "cpu memory");
        fs::write(found.own_cgroup.join("cgroup.procs"), format!("1\n{}\n", std::process::id()))
            .unwrap();
        assert!(!found.has_memory_controller());
        let (_other, without) = fake("scope", "cpu");
        for found in [found, without] {
            found.delegate_memory_controller().unwrap();
            assert!(!found.own_cgroup.join(ENGINE).exists());
            assert_eq!(text(found.own_cgroup.join("cgroup.subtree_control")), "");
        }
    }

    #[test]
    fn a_recorded_leaf_that_leads_outside_or_around_us_is_refused() {
        let (root, found) = fake("scope", "");
        let leaf = found.plan_job_cgroup();
        assert!(found.find_recorded_cgroup(leaf.dir()).is_some(), "{leaf:?}");
        leaf.create().unwrap();
        assert!(found.find_recorded_cgroup(leaf.dir()).is_some());
        let name = leaf.dir().file_name().unwrap();
        let link = found.own_cgroup.join("mainstem-1.2-3");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        let inside = CgroupHierarchy { own_cgroup: leaf.dir().join("deeper"), ..found.clone() };
        assert!(inside.find_recorded_cgroup(leaf.dir()).is_none(), "it is around us");
        for bad in [
            Path::new("/elsewhere").join(name),
            found.own_cgroup.join("..").join(name),
            found.own_cgroup.join("user.slice"),
            found.own_cgroup.join(ENGINE),
            found.own_cgroup.join("mainstem-"),
            found.own_cgroup.clone(),
            found.mount.clone(),
            link,
            PathBuf::from(name),
        ] {
            assert!(found.find_recorded_cgroup(&bad).is_none(), "{}", bad.display());
        }
    }

    #[test]
    fn empty_leaves_of_dead_supervisors_are_swept_and_no_others() {
        let (_root, found) = fake("scope", "");
        let living = found.plan_job_cgroup();
        let dead = found.own_cgroup.join("mainstem-4194399.1a2b-0");
        let busy = found.own_cgroup.join("mainstem-4194398.1a2b-0");
        let theirs = found.own_cgroup.join("session.scope");
        for dir in [living.dir(), &dead, &busy, &theirs] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(busy.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        found.remove_stale_cgroups();
        assert!(living.dir().exists() && busy.exists() && theirs.exists());
        assert!(!dead.exists());
    }

    #[test]
    fn a_leaf_with_groups_below_is_removed_whole_and_twice() {
        let (_root, found) = fake("scope", "");
        let leaf = found.plan_job_cgroup();
        leaf.create().unwrap();
        fs::create_dir_all(leaf.dir().join("a/b")).unwrap();
        assert_eq!(leaf.list_processes().unwrap(), Vec::<u32>::new());
        leaf.remove().unwrap();
        assert!(!leaf.dir().exists());
        leaf.remove().unwrap();
        assert!(!leaf.is_populated().unwrap());
    }
}
