//! What the rigs share: tame rounds, a mount namespace of their own, mounts and loop devices that go
//! with their owner, tools that may be missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstem_testkit::SeededRng;

use crate::fixture::ChaosFixture;
use crate::scenario::ChaosScenario;
use crate::script::{ChaosAttemptEnd, ChaosStep, ChaosTrick};

/// Set for the process that lives in the namespace.
const INSIDE: &str = "CHAOS_RIG_INSIDE";
/// Folders of rigs are named after it and their process.
const PREFIX: &str = "mainstem-rig-";

/// A drawn round in which nobody means harm: no faults, no tricks, nobody hangs. Agents may still fail,
/// conflict with each other and leave red trees.
pub fn tame(seed: u64) -> ChaosScenario {
    let mut show = ChaosScenario::draw(seed);
    let mut rng = SeededRng::new(seed ^ 0x7461_6d65);
    show.faults.clear();
    show.settings.jobs = 2 + rng.below(2) as u32;
    show.settings.snapshots = "1s".to_owned();
    for attempt in show.scripts.iter_mut().flat_map(|script| &mut script.attempts) {
        attempt.steps.retain(|step| !matches!(step, ChaosStep::Trick(_)));
        if attempt.end == ChaosAttemptEnd::Hang {
            attempt.end = ChaosAttemptEnd::Exit(1);
        }
    }
    show
}

/// A round in which every task must land.
pub fn good(seed: u64) -> ChaosScenario {
    let mut show = tame(seed);
    show.settings.retries = 2;
    for script in &mut show.scripts {
        for (n, attempt) in script.attempts.iter_mut().enumerate() {
            attempt.end = ChaosAttemptEnd::Exit(0);
            attempt.steps.retain(|step| match step {
                ChaosStep::Line { .. } => false,
                ChaosStep::Write { path, .. } => !path.ends_with(crate::script::RED),
                _ => true,
            });
            let path = format!("{}/sure.{n}", script.task);
            attempt.steps.push(ChaosStep::Write { path, lines: 1 });
        }
    }
    show
}

/// Puts a trick into the first attempt of a round's first task.
pub fn with_trick(show: &mut ChaosScenario, trick: ChaosTrick) {
    if let Some(attempt) = show.scripts.first_mut().and_then(|script| script.attempts.first_mut()) {
        attempt.steps.push(ChaosStep::Trick(trick));
    }
}

/// Changes the settings of a stage before its first life: `from` is text of the settings file.
pub fn set(stage: &ChaosFixture, from: &str, to: &str) -> Result<(), String> {
    let path = stage.repo.join("mainstem.toml");
    let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    if !text.contains(from) {
        return Err(format!("the settings do not say {from:?}"));
    }
    fs::write(&path, text.replace(from, to)).map_err(|error| error.to_string())?;
    stage.git(&["commit", "-q", "-a", "-m", "other settings"]).map(drop)
}

/// Switches off the reserve that the product keeps: rigs have small disks.
pub fn no_floor(stage: &ChaosFixture) -> Result<(), String> {
    set(stage, "[limits]\n", "[limits]\ndisk_floor = \"0\"\n")
}

/// Sees to it that mounts are this process's own: they and their loop devices end with it and its
/// children, however they end. `None`: go on; otherwise the exit code of the one that went on.
pub fn own_namespace() -> Result<Option<u8>, String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(None);
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount file systems".to_owned());
    }
    need(&[("unshare", "util-linux"), ("mount", "mount")])?;
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(me)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
        .map_err(|error| format!("unshare: {error}"))?;
    Ok(Some(u8::try_from(crate::fixture::code(status).clamp(0, 255)).unwrap_or(2)))
}

/// Tools that must be there, with the packages that bring them; missing ones are installed where that
/// is possible.
pub fn need(tools: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<&(&str, &str)> = tools.iter().filter(|(tool, _)| !is_there(tool)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    let words = format!("missing: {}", packages.join(", "));
    if !rustix::process::geteuid().is_root() || !is_there("apt-get") {
        return Err(words);
    }
    let output = Command::new("apt-get")
        .args(["install", "-y", "--no-install-recommends"])
        .args(&packages)
        .output()
        .map_err(|error| format!("{words}; apt-get: {error}"))?;
    if missing.iter().all(|(tool, _)| is_there(tool)) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{words}; apt-get could not bring it: {}", said.trim()))
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(tool).exists())
}

/// Runs a tool of the machine.
pub fn sh(program: &str, args: &[&str]) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {}: {}", args.join(" "), said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A folder for a rig, in memory if there is room: the images are large and short-lived.
#[derive(Debug)]
pub struct RigFolder(PathBuf);

impl RigFolder {
    /// Makes one, after those of dead processes were swept away.
    pub fn new(wanted_mib: u64) -> Result<Self, String> {
        let memory = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
        let large = free >> 20 > wanted_mib && memory_mib() > wanted_mib;
        let parent = if large { memory.to_owned() } else { std::env::temp_dir() };
        sweep(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a folder in it.
    pub fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for RigFolder {
    fn drop(&mut self) {
        // What resists is swept by the next one.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Memory that can be used without pushing others out.
fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX) else { continue };
        let alive = pid.parse::<u32>().is_ok_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
        if !alive {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Something mounted; unmounted when dropped.
#[derive(Debug)]
pub struct RigMount(PathBuf);

impl RigMount {
    /// Mounts `what` with these words of `mount`.
    pub fn new(words: &[&str], what: &str, at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).map_err(|error| format!("{}: {error}", at.display()))?;
        let at_text = at.display().to_string();
        let mut args = words.to_vec();
        args.extend([what, &at_text]);
        sh("mount", &args)?;
        Ok(Self(at.to_owned()))
    }

    /// Something that was mounted by other means.
    pub fn there(at: &Path) -> Self {
        Self(at.to_owned())
    }

    /// An empty file system in memory of so many KiB.
    pub fn memory(at: &Path, kib: u64) -> Result<Self, String> {
        Self::new(&["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0755")], "tmpfs", at)
    }

    /// Puts a folder with all that is in it on a file system in memory of its own.
    pub fn over(folder: &Path, kib: u64) -> Result<Self, String> {
        let aside = folder.with_extension("aside");
        fs::rename(folder, &aside).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mount = Self::memory(folder, kib)?;
        sh("cp", &["-a", &format!("{}/.", aside.display()), &folder.display().to_string()])?;
        fs::remove_dir_all(&aside).map_err(|error| format!("{}: {error}", aside.display()))?;
        Ok(mount)
    }

    /// Gives such a file system another size.
    pub fn resize(&self, kib: u64) -> Result<(), String> {
        let at = self.0.display().to_string();
        sh("mount", &["-o", &format!("remount,size={kib}k"), &at]).map(drop)
    }

    pub fn at(&self) -> &Path {
        &self.0
    }

    /// KiB in use on it.
    pub fn used_kib(&self) -> u64 {
        rustix::fs::statvfs(&self.0)
            .map_or(0, |stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize / 1024)
    }

    /// Unmounts it now and says if that failed.
    pub fn end(self) -> Result<(), String> {
        let at = self.0.display().to_string();
        let mut last = String::new();
        for _ in 0..200 {
            match sh("umount", &[&at]) {
                Ok(_) => {
                    std::mem::forget(self);
                    return Ok(());
                }
                Err(why) => last = why,
            }
            // A process that was just killed lets go of its folder a moment later.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Err(last)
    }
}

impl Drop for RigMount {
    fn drop(&mut self) {
        let at = self.0.display().to_string();
        // The namespace takes it with it if this fails.
        let _ = sh("umount", &["-l", &at]);
    }
}
