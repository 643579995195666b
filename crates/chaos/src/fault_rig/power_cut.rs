//! The power goes: while a round runs, atomic copies are taken of the disk image it lives on. Each copy
//! is what the disk would have had if the machine had lost power at that moment; it is mounted where the
//! original was, with every process dead, and the round is played to its end on it.
//!
//! A round is one copy. The image lies on a file system that shares blocks between copies (xfs with
//! reflink), so that a copy takes milliseconds and is a single point in time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use mainstem_testkit::SeededRng;

use super::mounts::{self, RigFolder, RigMount, sh};
use super::{RigOptions, RigTotals};
use crate::fixture::{ChaosFixture, ChaosPrograms, PowerCut};
use crate::run_round::{at_rest, end_all, play};
use crate::scenario::ChaosScenario;
use crate::{event_log, process_table};

/// The file systems under test.
const SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// The smallest size that all of them accept, and some room.
const DISK_MIB: u64 = 400;
/// Copies share blocks, so this many disks fit many times over.
const OUTER_MIB: u64 = 6_000;
/// Copies of one run; more of them are more of the same moment.
const COPIES: usize = 8;
/// A run that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(90);
const TOOLS: [(&str, &str); 6] = [
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("losetup", "mount"),
    ("cp", "coreutils"),
    ("truncate", "coreutils"),
];

/// What the disk had at one moment.
struct DiskCopy {
    image: PathBuf,
    cut: PowerCut,
    after: Duration,
}

/// Plays `options.rounds` copies per file system; `options.only` names file systems.
pub fn run(tools: &ChaosPrograms, options: &RigOptions) -> Result<RigTotals, String> {
    if let Err(why) = mounts::need(&TOOLS) {
        return Ok(RigTotals::skip(why));
    }
    let mut sum = RigTotals::default();
    for system in SYSTEMS.iter().filter(|system| options.wants(system)) {
        let room = RigFolder::new(4_000)?;
        let outer = room.path().join("outer.img");
        make_image(&outer, OUTER_MIB, "xfs")?;
        let outer = match RigMount::new(&["-o", "loop"], &text(&outer), &room.path().join("outer"))
        {
            Ok(mount) => mount,
            Err(why) => {
                return Ok(RigTotals::skip(format!("no loop device can be mounted: {why}")));
            }
        };
        let mut seed = options.seed;
        let mut played = 0;
        while played < options.rounds && !options.over() {
            let wanted = (options.rounds - played).min(COPIES as u64) as usize;
            let rig =
                PowerCutRig { tools, options, room: &room, outer: outer.at(), system, wanted };
            played += rig.one_run(seed, &mut sum)?;
            seed += 1;
        }
        outer.end()?;
    }
    Ok(sum)
}

struct PowerCutRig<'a> {
    tools: &'a ChaosPrograms,
    options: &'a RigOptions,
    room: &'a RigFolder,
    outer: &'a Path,
    system: &'a str,
    wanted: usize,
}

impl PowerCutRig<'_> {
    /// One run with copies of its disk, then each of the copies. Gives how many there were.
    fn one_run(&self, seed: u64, sum: &mut RigTotals) -> Result<u64, String> {
        let mut show = mounts::tame(seed);
        slow_down(&mut show);
        // A remote does not lose power with this disk: a copy of an earlier moment would find later pushes there.
        show.settings.push = false;
        let disk = self.outer.join("disk.img");
        make_image(&disk, DISK_MIB, self.system)?;
        let mount = self.mount(&disk)?;
        let place = mount.at().join("stage");
        let outside = self.room.folder("outside")?;
        fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let mut stage = ChaosFixture::set(&place, &outside, self.tools, &show)?;
        mounts::no_floor(&stage)?;
        // What was there before is not under test: the user's own git does not ask for durability.
        sh("sync", &["-f", &text(mount.at())])?;
        let copies = self.watch(&mut stage, seed)?;
        let started = Instant::now();
        let verdict = at_rest(&stage);
        let name = format!("{} seed {seed} uncut", self.system);
        let failed = verdict.as_ref().map_or(true, |wrong| !wrong.is_empty());
        let line = sum.round(&name, started.elapsed(), verdict, None);
        if failed {
            (self.options.say)(&line);
        } else {
            sum.rounds -= 1;
        }
        end_all(&stage);
        mount.end()?;
        fs::remove_file(&disk).map_err(|error| error.to_string())?;
        let number = copies.len() as u64;
        for (n, copy) in copies.into_iter().enumerate() {
            if self.options.over() {
                break;
            }
            self.restart(&mut stage, &show, seed, n, &copy, sum)?;
        }
        fs::remove_dir_all(&outside).map_err(|error| error.to_string())?;
        sum.count(format!("{}: runs", self.system));
        Ok(number.max(1))
    }

    fn mount(&self, image: &Path) -> Result<RigMount, String> {
        if self.system == "btrfs" {
            // It remembers every device it has seen, and our copies all claim to be the same one.
            let _ = sh("btrfs", &["device", "scan", "--forget"]);
        }
        RigMount::new(
            &["-t", self.system, "-o", "loop"],
            &text(image),
            &self.room.path().join("place"),
        )
    }

    /// Runs the round and copies the disk meanwhile.
    fn watch(&self, stage: &mut ChaosFixture, seed: u64) -> Result<Vec<DiskCopy>, String> {
        let mut rng = SeededRng::new(seed ^ 0x706f_7765);
        let mut child = stage.spawn(&["run", "plan.toml", "--json"], 0, &[])?;
        let started = Instant::now();
        let mut copies = Vec::new();
        while ended(&mut child)?.is_none() {
            if started.elapsed() > PATIENCE
                || self.options.stop.load(std::sync::atomic::Ordering::Relaxed)
            {
                // It is our own child.
                let _ = child.kill();
                let _ = child.wait();
                return Err("the run did not end".to_owned());
            }
            if copies.len() < self.wanted {
                std::thread::sleep(Duration::from_millis(rng.below(700)));
                let told = told(stage);
                let image = self.outer.join(format!("copy-{}.img", copies.len()));
                let disk = text(&self.outer.join("disk.img"));
                sh("cp", &["--reflink=always", &disk, &text(&image)])?;
                let cut = PowerCut { lines: event_log::length(&stage.outside), told };
                copies.push(DiskCopy { image, cut, after: started.elapsed() });
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(copies)
    }

    /// The machine comes back with what the disk had.
    fn restart(
        &self,
        stage: &mut ChaosFixture,
        show: &ChaosScenario,
        seed: u64,
        n: usize,
        copy: &DiskCopy,
        sum: &mut RigTotals,
    ) -> Result<(), String> {
        let started = Instant::now();
        let name = format!(
            "{} seed {seed} cut {n} after {} ms, {} facts told",
            self.system,
            copy.after.as_millis(),
            copy.cut.told.len()
        );
        let whole = event_log::cut(&stage.outside, copy.cut.lines).map_err(|e| e.to_string())?;
        let mount = self.mount(&copy.image)?;
        // As a real machine would, it comes back with another boot id.
        let boot = self.other_boot(n)?;
        stage.power_cut = Some(copy.cut.clone());
        stage.output_lost = true;
        let outcome = play(stage, show);
        if let Ok(played) = &outcome {
            *sum.counts.entry(format!("{}: tasks landed", self.system)).or_default() +=
                played.landed as u64;
        }
        sum.count(format!("{}: power cuts", self.system));
        let failed = outcome.as_ref().map_or(true, |played| !played.violations.is_empty());
        let kept =
            (failed && self.options.keep).then(|| self.keep(&name, copy, stage)).transpose()?;
        (self.options.say)(&sum.round(
            &name,
            started.elapsed(),
            outcome.map(|played| played.violations),
            kept,
        ));
        end_all(stage);
        drop(boot);
        while !process_table::of(stage).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        mount.end()?;
        stage.power_cut = None;
        event_log::restore(&stage.outside, &whole).map_err(|error| error.to_string())?;
        fs::remove_file(&copy.image).map_err(|error| error.to_string())
    }

    fn other_boot(&self, n: usize) -> Result<RigMount, String> {
        let file = self.room.path().join("boot_id");
        fs::write(&file, format!("00000000-0000-4000-8000-{n:012}\n"))
            .map_err(|e| e.to_string())?;
        let at = "/proc/sys/kernel/random/boot_id";
        sh("mount", &["--bind", &text(&file), at])?;
        Ok(RigMount::there(Path::new(at)))
    }

    /// A copy of the disk at the cut and of the ledger, for whoever looks into it.
    fn keep(&self, name: &str, copy: &DiskCopy, stage: &ChaosFixture) -> Result<PathBuf, String> {
        let folder = std::env::temp_dir().join(format!("power-{}", name.replace(' ', "-")));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        sh("cp", &["--sparse=always", &text(&copy.image), &text(&folder.join("cut.img"))])?;
        sh("cp", &["-a", &text(&stage.outside), &text(stage.place()), &text(&folder)])?;
        Ok(folder)
    }
}

/// Agents take a little longer, so that more moments fall into their work.
fn slow_down(show: &mut ChaosScenario) {
    for attempt in show.scripts.iter_mut().flat_map(|script| &mut script.attempts) {
        attempt.steps.insert(0, crate::script::ChaosStep::Pause { ms: 40 });
    }
}

/// The whole lines that the run has printed.
fn told(stage: &ChaosFixture) -> Vec<String> {
    let text = fs::read_to_string(stage.outside.join("out/0.stdout")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

fn ended(child: &mut Child) -> Result<Option<std::process::ExitStatus>, String> {
    child.try_wait().map_err(|error| error.to_string())
}

fn make_image(path: &Path, mib: u64, system: &str) -> Result<(), String> {
    let _ = fs::remove_file(path);
    sh("truncate", &["-s", &format!("{mib}M"), &text(path)])?;
    let path = text(path);
    match system {
        "xfs" => sh("mkfs.xfs", &["-q", "-f", "-m", "reflink=1", &path]),
        "btrfs" => sh("mkfs.btrfs", &["-q", "-f", &path]),
        _ => sh("mkfs.ext4", &["-q", "-F", &path]),
    }
    .map(drop)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
