//! The read side: a run as it stands at any place of the journal, for every face.
//!
//! Everything is folded from the journal, in any process, at any time; answers are types of `mainstem_api`. A reader
//! goes on from where it was instead of folding the run again. Nothing here changes a run.

pub mod attempts;
pub mod cost;
pub mod diff;
pub mod follower;
pub mod graph;
pub mod history;
pub mod log;
pub mod runs;
pub mod status;
pub mod task;
pub mod timeline;
pub mod train;

use mainstem_api::status::RunState;
use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::inbox::PendingFile;
use mainstem_core::machine::{Input, Machine};
use mainstem_host::clock;
use mainstem_host::git::{GitError, Repo};
use mainstem_store::{JournalReader, JournalRecord, Store};

use crate::accepted_files::{AcceptedFiles, AcceptedFilesError, PendingFileVersion};
use crate::draft::DraftError;
use crate::query::follower::{FactVisitor, JournalFollower, read_run_facts};
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};

/// Why a run cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum RunLookupError {
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] RunJournalError),
    #[error(transparent)]
    Git(#[from] GitError),
    /// The journal of drafts cannot be read.
    #[error(transparent)]
    Draft(#[from] DraftError),
    #[error(transparent)]
    AcceptedFiles(#[from] AcceptedFilesError),
    /// There is no such run.
    #[error("unknown run {0}")]
    NoSuchRun(String),
    /// The beginning of a name that several runs have.
    #[error("`{0}` is ambiguous: {list}", list = .1.join(", "))]
    AmbiguousRun(String, Vec<String>),
}

/// The one run that a name, or the beginning of one, means.
pub fn find_run(reader: &dyn JournalReader, name: &str) -> Result<RunId, RunLookupError> {
    let mut found = run_journal::find_runs_by_name(reader, name)?;
    match (found.pop(), found.is_empty()) {
        (Some(run), true) => Ok(run),
        (None, _) => Err(RunLookupError::NoSuchRun(name.to_owned())),
        (Some(last), false) => {
            let all = found.iter().chain([&last]).map(ToString::to_string).collect();
            Err(RunLookupError::AmbiguousRun(name.to_owned(), all))
        }
    }
}

/// Whether an engine holds the repository now.
pub fn is_engine_running(layout: &RepoLayout) -> Result<bool, RunJournalError> {
    Ok(layout.run_store().owner()?.is_some())
}

/// Landed versions of files that decide about runs and that no person has accepted yet.
pub fn list_pending_files(
    repo: &Repo,
    target: Option<&str>,
) -> Result<Vec<PendingFileVersion>, RunLookupError> {
    let head = match target.filter(|target| !target.is_empty()) {
        Some(target) => repo.read_ref(&format!("refs/heads/{target}"))?,
        None => None,
    };
    let accepted = AcceptedFiles::new(repo, RepoLayout::new(repo, None).state_dir());
    Ok(accepted.list_pending(head.as_ref())?)
}

/// A run as it stands at one place of the journal.
pub struct RunReader {
    /// The run; none if nothing has run here yet.
    pub run: Option<RunId>,
    pub machine: Machine,
    /// The place of the last fact that was folded.
    pub seq: u64,
    /// What the engine is doing.
    pub state: RunState,
    /// The journal; none if there is no journal yet.
    pub reader: Option<Box<dyn JournalReader>>,
    /// It is the newest run, which is the one that an engine works on.
    newest: bool,
    /// It shows an earlier moment, not the present.
    past: bool,
    store: Box<dyn Store>,
}

impl RunReader {
    /// Looks at the newest run, or at the named one, as it stands now.
    pub fn load(
        layout: &RepoLayout,
        settings: &Settings,
        run: Option<&str>,
    ) -> Result<Self, RunLookupError> {
        Self::load_up_to(layout, settings, run, None)
    }

    /// The same as it was when the fact `seq` had been written.
    pub fn load_at(
        layout: &RepoLayout,
        settings: &Settings,
        run: Option<&str>,
        seq: u64,
    ) -> Result<Self, RunLookupError> {
        Self::load_up_to(layout, settings, run, Some(seq))
    }

    /// The present, with what git knows of files that wait to be accepted.
    pub fn load_with_pending_files(
        repo: &Repo,
        layout: &RepoLayout,
        settings: &Settings,
        run: Option<&str>,
    ) -> Result<Self, RunLookupError> {
        let mut reader = Self::load(layout, settings, run)?;
        let pending = list_pending_files(repo, Some(reader.machine.target_branch()))?;
        let pending = pending.into_iter().map(|file| PendingFile {
            path: file.path,
            tasks: file.tasks,
            since: Time(file.at_ms),
        });
        let found = Input::PendingFilesFound(pending.collect());
        reader.machine.step(found, reader.machine.now());
        Ok(reader)
    }

    fn load_up_to(
        layout: &RepoLayout,
        settings: &Settings,
        run: Option<&str>,
        last_seq: Option<u64>,
    ) -> Result<Self, RunLookupError> {
        let nothing = |reader| Self {
            run: None,
            machine: Machine::new(settings.clone()),
            seq: 0,
            state: RunState::Resting,
            reader,
            newest: true,
            past: last_seq.is_some(),
            store: layout.run_store(),
        };
        let Some(reader) = run_journal::open_journal_reader(&*layout.run_store())? else {
            return match run {
                Some(run) => Err(RunLookupError::NoSuchRun(run.to_owned())),
                None => Ok(nothing(None)),
            };
        };
        let newest = run_journal::find_newest_run(&*reader)?;
        let chosen = match run {
            None => newest.clone(),
            Some(name) => Some(find_run(&*reader, name)?),
        };
        let Some(run) = chosen else { return Ok(nothing(Some(reader))) };
        let mut follower = JournalFollower::new(run.clone(), settings);
        follower.advance_to(&*reader, last_seq.unwrap_or(u64::MAX))?;
        let mut found = Self {
            newest: newest.as_ref() == Some(&run),
            run: Some(run),
            seq: follower.seq(),
            machine: follower.into_machine(),
            ..nothing(Some(reader))
        };
        found.update_state()?;
        Ok(found)
    }

    /// Folds what was written since; returns how many facts that were. An earlier moment stays as it is.
    pub fn advance(&mut self) -> Result<u64, RunLookupError> {
        let mut folded = 0;
        self.advance_with(&mut |_, _, _| folded += 1)?;
        Ok(folded)
    }

    /// The same; `see` gets every fact after it was folded, with the machine as it was then.
    pub fn advance_with(&mut self, see: FactVisitor<'_>) -> Result<(), RunLookupError> {
        let (Some(reader), Some(run), false) = (&self.reader, &self.run, self.past) else {
            return Ok(());
        };
        let places = (self.seq, u64::MAX);
        self.seq = follower::fold_facts(&**reader, run, places, &mut self.machine, see)?;
        self.update_state()?;
        Ok(())
    }

    /// The moment that is shown: now, or the time of the last fact for an earlier place of the journal.
    pub fn now(&self) -> Time {
        if self.past { self.machine.now() } else { Time(clock::now_ms()) }
    }

    fn update_state(&mut self) -> Result<(), RunJournalError> {
        // At an earlier moment the engine that the facts name was there.
        let owned = self.past || self.newest && self.store.owner()?.is_some();
        self.state = match (self.machine.is_engine_alive(), owned) {
            (true, true) if self.machine.is_paused() => RunState::Paused,
            (true, true) => RunState::Running,
            (true, false) => RunState::Crashed,
            (false, _) if self.machine.is_paused() => RunState::Paused,
            (false, _) => RunState::Resting,
        };
        Ok(())
    }

    /// Whether an engine works on this run, as far as the journal and the lock tell.
    fn has_running_engine(&self) -> bool {
        match self.state {
            RunState::Running => true,
            // A pause stops attempts, not the train.
            RunState::Paused => self.machine.is_engine_alive(),
            RunState::Crashed | RunState::Resting => false,
        }
    }

    /// The facts of the run, or of one task, in order, up to the place that is shown.
    pub fn facts(&self, task: Option<&str>) -> Result<Vec<(JournalRecord, Fact)>, RunLookupError> {
        let (Some(reader), Some(run)) = (&self.reader, &self.run) else { return Ok(Vec::new()) };
        Ok(read_run_facts(&**reader, run, task, self.seq)?)
    }
}
