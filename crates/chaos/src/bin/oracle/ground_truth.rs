//! What really happened, from the scripts and the ledger alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use mainstem_chaos::ChaosFixture;
use mainstem_chaos::event_log::{self, ChaosEvent};
use mainstem_chaos::fixture::PowerCut;
use mainstem_chaos::script::{ChaosScript, ChaosStep, ChaosTrick, FILLER, content, line};
use serde_json::Value;

/// One attempt as its agent told it.
#[derive(Debug, Default, Clone)]
pub(crate) struct AgentAttemptRecord {
    pub(crate) starts: usize,
    pub(crate) base: String,
    /// Steps begun and steps done, by number.
    pub(crate) begun: BTreeSet<usize>,
    pub(crate) done: BTreeSet<usize>,
    /// The script's end was reached.
    pub(crate) ended: bool,
    /// Somebody destroyed the workspace while it was this attempt's.
    pub(crate) destroyed: bool,
    /// A step was done after a later attempt had begun.
    pub(crate) outlived: bool,
    /// The power went before the product had told that this attempt's work is safe.
    pub(crate) torn: bool,
}

pub(crate) struct GroundTruth {
    pub(crate) scripts: Vec<ChaosScript>,
    pub(crate) told: BTreeMap<(String, u32), AgentAttemptRecord>,
    pub(crate) passed: BTreeSet<String>,
    pub(crate) others: Vec<String>,
    pub(crate) withdrawn: Vec<String>,
    pub(crate) edited: BTreeMap<String, String>,
    pub(crate) stashed: Vec<String>,
    /// Tasks whose workspace was destroyed and that have not begun another attempt since.
    hit: BTreeSet<String>,
    /// Commits go where the workspace goes.
    clones: bool,
    lines: usize,
}

impl GroundTruth {
    pub(crate) fn read(stage: &ChaosFixture) -> Result<Self, String> {
        let mut truth = Self {
            scripts: scripts(stage)?,
            told: BTreeMap::new(),
            passed: BTreeSet::new(),
            others: Vec::new(),
            withdrawn: Vec::new(),
            edited: BTreeMap::new(),
            stashed: Vec::new(),
            hit: BTreeSet::new(),
            clones: stage.clones,
            lines: 0,
        };
        let events =
            event_log::read(&stage.outside).map_err(|error| format!("the ledger: {error}"))?;
        let cut = stage.power_cut.as_ref();
        for (n, event) in events.into_iter().enumerate() {
            if let Some(cut) = cut.filter(|cut| cut.lines == n) {
                truth.tear(&safe_attempts(cut)?);
            }
            truth.take(event);
        }
        if let Some(cut) = cut.filter(|cut| cut.lines >= truth.lines) {
            truth.tear(&safe_attempts(cut)?);
        }
        Ok(truth)
    }

    /// The power went: of attempts that were not known to be safe, nothing is promised.
    fn tear(&mut self, safe: &BTreeSet<(String, u32)>) {
        for (key, told) in &mut self.told {
            told.torn = !safe.contains(key);
        }
    }

    fn take(&mut self, event: ChaosEvent) {
        self.lines += 1;
        match event {
            ChaosEvent::Start { task, attempt, base } => {
                let hit = self.hit.remove(&task);
                let told = self.told.entry((task, attempt)).or_default();
                told.starts += 1;
                told.base = base;
                told.destroyed |= hit;
            }
            ChaosEvent::Doing { task, attempt, n } => {
                self.told.entry((task, attempt)).or_default().begun.insert(n);
            }
            ChaosEvent::Did { task, attempt, n } => {
                let later = (task.clone(), attempt + 1);
                let outlived = self.told.contains_key(&later);
                let told = self.told.entry((task, attempt)).or_default();
                told.done.insert(n);
                told.outlived |= outlived;
            }
            ChaosEvent::End { task, attempt } => {
                self.told.entry((task, attempt)).or_default().ended = true;
            }
            ChaosEvent::Gate { tree, passed } => {
                if passed {
                    self.passed.insert(tree);
                }
            }
            ChaosEvent::Others { commit } => self.others.push(commit),
            ChaosEvent::Withdrawn { from } => self.withdrawn.push(from),
            ChaosEvent::Destroyed { task } => {
                // Whichever attempt stood there: the latest that began, or one about to begin.
                self.hit.insert(task.clone());
                let latest = self.told.iter_mut().rfind(|((id, _), _)| *id == task);
                if let Some((_, told)) = latest {
                    told.destroyed = true;
                }
            }
            ChaosEvent::Edited { path, text } => {
                self.edited.insert(path, text);
            }
            ChaosEvent::Stashed { commit } => {
                // What went on the stash is no longer in the checkout.
                self.edited.remove("plan.toml");
                self.stashed.push(commit);
            }
            ChaosEvent::Fault { .. } => {}
        }
    }

    /// Whether somebody ever damaged this task's workspace.
    pub(crate) fn was_damaged(&self, task: &str) -> bool {
        self.hit.contains(task)
            || self.told.iter().any(|((id, _), told)| id == task && told.destroyed)
    }

    pub(crate) fn script(&self, task: &str) -> Option<&ChaosScript> {
        self.scripts.iter().find(|script| script.task == task)
    }

    /// Least and most that a task may have cost, in millionths.
    pub(crate) fn spent(&self, task: &str) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        let Some(script) = self.script(task) else { return (0, 0) };
        for ((_, attempt), told) in self.told.iter().filter(|((id, _), _)| id == task) {
            let Some(act) = script.attempt(*attempt) else { continue };
            for (n, step) in act.steps.iter().enumerate() {
                let ChaosStep::Usage { micros } = step else { continue };
                least += if told.done.contains(&n) { *micros } else { 0 };
                most += if told.begun.contains(&n) { *micros } else { 0 };
            }
        }
        (least, most)
    }

    /// What an attempt must have left: whole files, lines in shared files, and all paths that it may
    /// have touched. A step that was begun and not done may have happened or not, so its path is
    /// only among the last. Of a destroyed workspace only what was committed before must be there,
    /// and of a clone not even that: its commits went with it.
    pub(crate) fn left(&self, task: &str, attempt: u32) -> CertainWork {
        self.left_if(task, attempt, |_| true)
    }

    /// The same of work that did not land: nothing is certain of an attempt that the power tore.
    pub(crate) fn kept(&self, task: &str, attempt: u32) -> CertainWork {
        self.left_if(task, attempt, |told| !told.torn)
    }

    fn left_if(
        &self,
        task: &str,
        attempt: u32,
        promised: impl Fn(&AgentAttemptRecord) -> bool,
    ) -> CertainWork {
        let mut left = CertainWork::default();
        let (Some(script), Some(told)) =
            (self.script(task), self.told.get(&(task.to_owned(), attempt)))
        else {
            return left;
        };
        let Some(act) = script.attempt(attempt) else { return left };
        let destroys = |n: &usize| matches!(act.steps.get(*n), Some(ChaosStep::Trick(trick)) if trick.destroys());
        let destroyed = told.destroyed || told.begun.iter().any(destroys);
        left.destroyed = destroyed;
        let committed = |n: &&usize| matches!(act.steps.get(**n), Some(ChaosStep::Commit));
        let last_commit = told.done.iter().filter(committed).max().copied();
        let outlives = |n| !self.clones && last_commit.is_some_and(|commit| n < commit);
        let certain =
            |n: usize| promised(told) && told.done.contains(&n) && (!destroyed || outlives(n));
        for (n, step) in act.steps.iter().enumerate().filter(|(n, _)| told.begun.contains(n)) {
            match step {
                ChaosStep::Write { path, lines } => {
                    left.touched.insert(path.clone());
                    left.files.remove(path);
                    if certain(n) {
                        left.files.insert(path.clone(), Some(content(task, attempt, n, *lines)));
                    }
                }
                ChaosStep::Line { path } => {
                    left.touched.insert(path.clone());
                    if certain(n) {
                        left.lines.push((path.clone(), line(task, attempt, n)));
                    }
                }
                ChaosStep::Remove { path } => {
                    left.files.remove(path);
                    if certain(n) && !destroyed {
                        left.files.insert(path.clone(), None);
                    }
                }
                ChaosStep::Trick(ChaosTrick::FillDisk | ChaosTrick::HoardDisk) => {
                    left.touched.insert(FILLER.to_owned());
                }
                ChaosStep::Commit
                | ChaosStep::Usage { .. }
                | ChaosStep::Pause { .. }
                | ChaosStep::Await { .. }
                | ChaosStep::Ask
                | ChaosStep::Trick(_) => {}
            }
        }
        left
    }
}

/// What an attempt left, as far as it is certain.
#[derive(Debug, Default)]
pub(crate) struct CertainWork {
    /// It deleted its workspace, or tried to.
    pub(crate) destroyed: bool,
    /// Files by path; `None` for one that must not be there.
    pub(crate) files: BTreeMap<String, Option<String>>,
    /// Lines that must be in a file that others edit too.
    pub(crate) lines: Vec<(String, String)>,
    /// Every path that it may have touched.
    pub(crate) touched: BTreeSet<String>,
}

impl CertainWork {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.values().all(Option::is_none) && self.lines.is_empty()
    }
}

/// Attempts of which the product had told that it looked at their work: that work is on a ref.
fn safe_attempts(cut: &PowerCut) -> Result<BTreeSet<(String, u32)>, String> {
    let mut safe = BTreeSet::new();
    for line in &cut.told {
        let fact: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        if fact["type"] == "evidence_collected"
            && let (Some(task), Some(attempt)) = (fact["task"].as_str(), fact["attempt"].as_u64())
        {
            safe.insert((task.to_owned(), u32::try_from(attempt).unwrap_or(u32::MAX)));
        }
    }
    Ok(safe)
}

fn scripts(stage: &ChaosFixture) -> Result<Vec<ChaosScript>, String> {
    let folder = stage.outside.join("scripts");
    let mut scripts: Vec<ChaosScript> = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        scripts.push(serde_json::from_str(&text).map_err(|error| error.to_string())?);
    }
    scripts.sort_by(|a, b| a.task.cmp(&b.task));
    Ok(scripts)
}
