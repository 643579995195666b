//! Lessons on disk: one plain file per domain, brought up to date from the journal.
//!
//! The journal is read from where it was left, attempt by attempt; a second reading changes nothing, so a
//! crash at any place costs nothing. What a lesson is and what is kept of it, `core::lesson` says.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mainstem_core::config::Settings;
use mainstem_core::fact::{
    AgentClaim, Fact, FailureClass, GateFailureCause, GateScope, GateVerdict,
};
use mainstem_core::id::{Oid, Time};
use mainstem_core::lesson::{AttemptLesson, DomainLessons, LessonDomain, LessonSource};
use mainstem_core::plan::{Plan, Task};
use mainstem_host::git::Repo;
use mainstem_host::{clock, files, lock};
use mainstem_store::{JournalReader, JournalRecord};

use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};

/// Another engine's or person's write takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Facts read at once.
const BATCH: usize = 1_024;
/// Facts of one task that are looked at.
const TASK_FACTS_MAX: usize = 10_000;
/// Changed files of an attempt that are looked at; more is no pattern but a sweep.
const FILES_MAX: usize = 40;

/// Lessons cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LessonError {
    /// A file of them.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// A file that is not ours any more.
    #[error("cannot read the lessons in {path}: {why}; fix or remove the file")]
    Damaged { path: PathBuf, why: String },
    /// Somebody else writes for too long.
    #[error("{0} is in use")]
    Busy(PathBuf),
    /// The journal they come from.
    #[error(transparent)]
    Ledger(#[from] RunJournalError),
}

/// Where the lessons are.
#[derive(Debug)]
pub struct LessonStore {
    folder: PathBuf,
    /// Which domain each task of a run belongs to, by the newest plan read.
    domains: Mutex<Option<(String, BTreeMap<String, LessonDomain>)>>,
}

impl LessonStore {
    /// The shelf that the settings name.
    pub fn new(repo: &Repo, layout: &RepoLayout, settings: &Settings) -> Self {
        let home = repo.toplevel().unwrap_or_else(|| repo.common_dir());
        let folder = match &settings.lessons.folder {
            Some(folder) => home.join(folder),
            None => layout.state_dir().join("lessons"),
        };
        Self { folder, domains: Mutex::new(None) }
    }

    /// The file of a domain.
    pub fn domain_file(&self, domain: LessonDomain) -> PathBuf {
        self.folder.join(format!("{}.toml", domain.as_str()))
    }

    /// What is known in a domain.
    pub fn read_lessons(&self, domain: LessonDomain) -> Result<DomainLessons, LessonError> {
        let path = self.domain_file(domain);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                DomainLessons::from_toml(&text).map_err(|why| LessonError::Damaged { path, why })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DomainLessons::default()),
            Err(source) => Err(LessonError::Io { path, source }),
        }
    }

    /// Changes what is known in a domain; the file is written only if something changed.
    pub fn update_lessons<T>(
        &self,
        domain: LessonDomain,
        change: impl FnOnce(&mut DomainLessons) -> T,
    ) -> Result<T, LessonError> {
        let _held = self.lock_folder()?;
        self.update_lessons_locked(domain, change)
    }

    fn update_lessons_locked<T>(
        &self,
        domain: LessonDomain,
        change: impl FnOnce(&mut DomainLessons) -> T,
    ) -> Result<T, LessonError> {
        let before = self.read_lessons(domain)?;
        let mut after = before.clone();
        let out = change(&mut after);
        if after != before {
            let path = self.domain_file(domain);
            files::write_atomic(&path, after.to_toml().as_bytes())
                .map_err(|source| LessonError::Io { path, source })?;
        }
        Ok(out)
    }

    fn lock_folder(&self) -> Result<std::fs::File, LessonError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| LessonError::Io { path, source }
        };
        std::fs::create_dir_all(&self.folder).map_err(io(&self.folder))?;
        let path = self.folder.join(".lock");
        lock::lock_file_until(&path, Instant::now() + PATIENCE)
            .map_err(io(&path))?
            .ok_or(LessonError::Busy(path))
    }

    /// Learns from every attempt that has ended since the last time.
    pub fn learn_from_journal(
        &self,
        reader: &dyn JournalReader,
        repo: &Repo,
        target: &str,
    ) -> Result<(), LessonError> {
        let mark = self.folder.join(".learned");
        let _held = self.lock_folder()?;
        let read = std::fs::read_to_string(&mark).ok().and_then(|text| text.trim().parse().ok());
        let begin: u64 = read.unwrap_or(0);
        let mut at = begin;
        loop {
            let records = reader.read_after(at, BATCH).map_err(RunJournalError::from)?;
            let Some(last) = records.last() else { break };
            at = last.seq;
            for record in &records {
                self.learn_from_record(reader, record, repo, target)?;
            }
        }
        if at != begin {
            files::write_atomic(&mark, format!("{at}\n").as_bytes())
                .map_err(|source| LessonError::Io { path: mark, source })?;
        }
        Ok(())
    }

    fn learn_from_record(
        &self,
        reader: &dyn JournalReader,
        record: &JournalRecord,
        repo: &Repo,
        target: &str,
    ) -> Result<(), LessonError> {
        let (task, attempt) = match record.kind.as_str() {
            "plan_adopted" => {
                if let Fact::PlanAdopted { plan, .. } = run_journal::decode_fact(record)? {
                    self.remember_plan_domains(&record.run, &plan);
                }
                return Ok(());
            }
            "attempt_failed" | "task_landed" => match run_journal::decode_fact(record)? {
                Fact::AttemptFailed { task, attempt, .. }
                | Fact::TaskLanded { task, attempt, .. } => (task, attempt),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let Some(domain) = self.find_task_domain(reader, &record.run, task.as_str())? else {
            return Ok(());
        };
        let facts = reader
            .read_task(&record.run, task.as_str(), 0, TASK_FACTS_MAX)
            .map_err(RunJournalError::from)?;
        let source = LessonSource {
            run: record.run.clone(),
            task: task.to_string(),
            attempt,
            at_ms: record.at_ms,
        };
        let mut told = AttemptLessons::new(source);
        for fact in facts.iter().take_while(|fact| fact.seq <= record.seq) {
            told.add_fact(&run_journal::decode_fact(fact)?);
        }
        let learned = told.into_learned(repo);
        self.update_lessons_locked(domain, |lessons| {
            lessons.add_attempt(&learned);
            drop_outdated_lessons(lessons, repo, target);
        })
    }

    fn remember_plan_domains(&self, run: &str, plan: &Plan) {
        let domains =
            plan.tasks.iter().map(|task| (task.id.to_string(), task_domain(task))).collect();
        if let Ok(mut known) = self.domains.lock() {
            *known = Some((run.to_owned(), domains));
        }
    }

    /// The domain of a task by the run's newest plan; none if no plan has it any more.
    fn find_task_domain(
        &self,
        reader: &dyn JournalReader,
        run: &str,
        task: &str,
    ) -> Result<Option<LessonDomain>, LessonError> {
        let known = self.domains.lock().is_ok_and(|d| d.as_ref().is_some_and(|(r, _)| r == run));
        if !known {
            let mut at = 0;
            loop {
                let records = reader.read_run(run, at, BATCH).map_err(RunJournalError::from)?;
                let Some(last) = records.last() else { break };
                at = last.seq;
                for record in records.iter().filter(|r| r.kind == "plan_adopted") {
                    if let Fact::PlanAdopted { plan, .. } = run_journal::decode_fact(record)? {
                        self.remember_plan_domains(run, &plan);
                    }
                }
            }
        }
        let domains = self.domains.lock();
        Ok(domains.ok().and_then(|d| d.as_ref()?.1.get(task).copied()))
    }
}

/// What a task is about. By its text and what it declares only, so that all its attempts agree.
pub fn task_domain(task: &Task) -> LessonDomain {
    let text = format!("{} {}", task.title, task.description);
    LessonDomain::classify_task(&text, task.writes.iter().map(String::as_str))
}

/// Drops what no longer holds; what git does not tell now is left as it is.
fn drop_outdated_lessons(lessons: &mut DomainLessons, repo: &Repo, target: &str) {
    let files = lessons.files.iter().map(|note| note.text.clone());
    let together =
        lessons.patterns.iter().filter_map(|note| note.text.strip_prefix("changed together: "));
    let together = together.flat_map(|files| files.split(", ")).map(str::to_owned);
    let asked: Vec<String> = files.chain(together).collect();
    let present: Option<HashSet<String>> = if asked.is_empty() {
        Some(HashSet::new())
    } else {
        repo.existing_paths(target, &asked).ok()
    };
    let now = Time(clock::now_ms());
    lessons.drop_outdated(now, &|path| present.as_ref().is_none_or(|known| known.contains(path)));
}

/// One attempt, as its facts tell it.
struct AttemptLessons {
    learned: AttemptLesson,
    range: Option<(Oid, Oid)>,
}

impl AttemptLessons {
    fn new(source: LessonSource) -> Self {
        let learned = AttemptLesson {
            source,
            failures: Vec::new(),
            landed: false,
            files: Vec::new(),
            evidence: Vec::new(),
        };
        Self { learned, range: None }
    }

    fn add_fact(&mut self, fact: &Fact) {
        let n = self.learned.source.attempt;
        match fact {
            Fact::EvidenceCollected { attempt, evidence, .. } if *attempt == n => {
                self.range = Some((evidence.base.clone(), evidence.tip.clone()));
            }
            // A missing tool, a sandbox, or a target branch that fails by itself teaches agents nothing.
            Fact::GateRan { attempt, gate, verdict, detail, cause, scope, .. }
                if *attempt == n
                    && *verdict == GateVerdict::Failed
                    && *scope != GateScope::Base
                    && !cause.as_ref().is_some_and(GateFailureCause::is_environment_fault) =>
            {
                self.learned.failures.push((format!("gate `{gate}` failed"), last_lines(detail)));
            }
            Fact::AttemptFailed { attempt, class: FailureClass::InvalidOutput, reason, .. }
                if *attempt == n =>
            {
                self.learned.failures.push(("work was refused".to_owned(), reason.clone()));
            }
            Fact::IssueLogged { attempt, title, text, .. } if *attempt == n => {
                self.learned.failures.push((title.clone(), text.clone()));
            }
            Fact::AgentEnded { attempt, claim: AgentClaim::Done { evidence, .. }, .. }
                if *attempt == n =>
            {
                self.learned.evidence.clone_from(evidence);
            }
            Fact::TaskLanded { attempt, empty: false, .. } if *attempt == n => {
                self.learned.landed = true;
            }
            _ => {}
        }
    }

    fn into_learned(mut self, repo: &Repo) -> AttemptLesson {
        if let Some((base, tip)) = &self.range
            && self.learned.landed
            // What is gone by now teaches no files.
            && let Ok(changes) = repo.diff_stats(base, tip)
            && changes.files.len() <= FILES_MAX
        {
            self.learned.files = changes.files.into_iter().map(|file| file.path).collect();
        }
        self.learned
    }
}

/// The last lines of a gate's output, where the failure usually is.
fn last_lines(detail: &str) -> String {
    let lines: Vec<&str> = detail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut taken = 0;
    let kept = lines.iter().rev().take_while(|line| {
        taken += line.len() + 1;
        taken <= 200
    });
    let mut kept: Vec<&str> = kept.copied().collect();
    if kept.is_empty() {
        kept.extend(lines.last());
    }
    kept.reverse();
    kept.join(" | ")
}
