//! Rigs: attacks that need ground of their own: disks that lose power or fill up, system calls that are
//! answered with errors. Each is a campaign, one file with a function `run`.

pub mod full_disk;
pub mod power_cut;
pub mod mounts;
pub mod failing_syscalls;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::oracle_call::OracleViolation;

/// How a campaign is played.
#[derive(Debug, Clone)]
pub struct RigOptions {
    /// Everything drawn comes from here.
    pub seed: u64,
    /// How many rounds; what a round is, the campaign says.
    pub rounds: u64,
    /// When to stop, however many rounds were played.
    pub until: Option<Instant>,
    /// What the campaign is narrowed to; all of it if empty.
    pub only: Vec<String>,
    /// Leave what failed on disk.
    pub keep: bool,
    /// Set when somebody wants it to end: what is mounted or running is cleared away first.
    pub stop: Arc<AtomicBool>,
    /// Where a line goes as soon as it is known.
    pub say: fn(&str),
}

impl RigOptions {
    /// Whether to leave off now.
    pub fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether a part of a campaign is wanted.
    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// What a campaign came to.
#[derive(Debug, Default)]
pub struct RigTotals {
    pub rounds: u64,
    /// What happened how often.
    pub counts: BTreeMap<String, u64>,
    /// One entry per round in which a promise was broken.
    pub failed: Vec<String>,
    /// One entry per round that the rig itself could not play.
    pub broken: Vec<String>,
    /// Why nothing was played, where that is no failure: no root, no tool.
    pub skipped: Option<String>,
}

impl RigTotals {
    /// A campaign that this machine cannot play.
    pub fn skip(why: String) -> Self {
        Self { skipped: Some(why), ..Self::default() }
    }

    pub fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Takes in how a round went, and says it in a line.
    pub fn round(
        &mut self,
        name: &str,
        took: Duration,
        outcome: Result<Vec<OracleViolation>, String>,
        kept: Option<PathBuf>,
    ) -> String {
        self.rounds += 1;
        let head = format!("{:>5.1} s  {name}", took.as_secs_f64());
        let kept =
            kept.map_or_else(String::new, |path| format!("\n    left in {}", path.display()));
        match outcome {
            Err(why) => {
                self.broken.push(format!("{name}: {why}"));
                format!("BROKEN {head}: {why}{kept}")
            }
            Ok(violations) if violations.is_empty() => format!("ok     {head}"),
            Ok(violations) => {
                let first = violations[0].0.lines().next().unwrap_or_default();
                self.failed.push(format!("{name}: {first}"));
                let lines: Vec<String> =
                    violations.iter().map(|one| one.0.replace('\n', "\n    ")).collect();
                format!("FAILED {head}\n    {}{kept}", lines.join("\n    "))
            }
        }
    }

    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty() && self.broken.is_empty()
    }

    /// For people, at the end.
    pub fn tell(&self, took: Duration) -> String {
        if let Some(why) = &self.skipped {
            return format!("skipped: {why}");
        }
        let mut text = format!(
            "{} rounds in {:.0} s, {} with a broken promise, {} not playable\n",
            self.rounds,
            took.as_secs_f64(),
            self.failed.len(),
            self.broken.len()
        );
        for (what, times) in &self.counts {
            text.push_str(&format!("{times:>7}  {what}\n"));
        }
        for line in self.failed.iter().chain(&self.broken) {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}
