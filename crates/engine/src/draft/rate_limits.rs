//! Limits of providers that a run met, for a draft; and those that a draft met, for runs.

use mainstem_api::control::ControlRequest;
use mainstem_core::config::Settings;
use mainstem_core::fact::{Fact, LimitKind};
use mainstem_core::id::Time;
use mainstem_core::machine::{Input as RunInput, Machine};
use mainstem_host::clock;
use mainstem_planner::draft::{DraftFact, DraftRateLimit};
use mainstem_store::{JournalReader, StoreError};

use super::DraftError;
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};
use crate::shared_limits::SharedLimits;

/// Facts read at once.
const BATCH: usize = 1_024;

/// The limits in the journal of runs.
pub(super) struct RunLimitReader {
    reader: Option<Box<dyn JournalReader>>,
    seq: u64,
    /// What was in force at first.
    first: Vec<DraftRateLimit>,
}

impl RunLimitReader {
    pub(super) fn open(layout: &RepoLayout, settings: &Settings) -> Result<Self, DraftError> {
        let Some(reader) = run_journal::open_journal_reader(&*layout.run_store())? else {
            return Ok(Self { reader: None, seq: 0, first: Vec::new() });
        };
        let seq = reader.last_seq().map_err(RunJournalError::from)?;
        let mut first = Vec::new();
        if let Some((_, machine)) = run_journal::load_newest_run(&*reader, settings)? {
            for (provider, known) in machine.providers() {
                let now = Time(clock::now_ms());
                if let Some(Some(until)) = known.rests_until(now, true) {
                    let (kind, message) = (known.kind(), known.message().to_owned());
                    first.push(DraftRateLimit { provider: provider.clone(), kind, until, message });
                }
            }
        }
        Ok(Self { reader: Some(reader), seq, first })
    }

    /// Limits that were met since this was last asked.
    pub(super) fn read_new_limits(&mut self) -> Result<Vec<DraftRateLimit>, DraftError> {
        let mut limits = std::mem::take(&mut self.first);
        let Some(reader) = &self.reader else { return Ok(limits) };
        loop {
            let records = reader.read_after(self.seq, BATCH).map_err(RunJournalError::from)?;
            let Some(last) = records.last() else { return Ok(limits) };
            self.seq = last.seq;
            let about_limits = ["provider_limited", "provider_parked"];
            for record in records.iter().filter(|r| about_limits.contains(&r.kind.as_str())) {
                match run_journal::decode_fact(record)? {
                    Fact::ProviderLimited { provider, until, message, kind, .. }
                    | Fact::ProviderParked { provider, until, message, kind } => {
                        limits.push(DraftRateLimit { provider, kind, until, message });
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Limits in force that other drafts of this repository met.
pub(super) fn read_draft_limits(
    reader: &dyn JournalReader,
    now: Time,
) -> Result<Vec<DraftRateLimit>, StoreError> {
    let mut limits = Vec::new();
    reader.for_each(0, &mut |record| {
        if record.kind == "provider_limited"
            && let Ok(fact) = serde_json::from_str::<DraftFact>(&record.body)
            && let Some((provider, kind, until, message)) = limit_of_fact(&fact)
            && until > now
        {
            let (provider, message) = (provider.to_owned(), message.to_owned());
            limits.push(DraftRateLimit { provider, kind, until, message });
        }
        Ok(())
    })?;
    Ok(limits)
}

/// A fact of a draft as a limit, if it is one.
fn limit_of_fact(fact: &DraftFact) -> Option<(&str, LimitKind, Time, &str)> {
    match fact {
        DraftFact::ProviderLimited { provider, kind, until, message, .. } => {
            Some((provider, *kind, *until, message))
        }
        _ => None,
    }
}

/// What other repositories should know: limits, and pauses after repeated failures of a provider.
fn shareable_limit(fact: &DraftFact) -> Option<(&str, LimitKind, Time, &str)> {
    match fact {
        DraftFact::ProviderParked { provider, kind: LimitKind::Breaker, until, message } => {
            Some((provider, LimitKind::Breaker, *until, message))
        }
        _ => limit_of_fact(fact),
    }
}

/// Tells the engine that works here, if one does, and the user's other repositories. One that starts
/// later reads it in the journal.
pub(super) fn publish_limit(
    layout: &RepoLayout,
    shared: Option<&mut SharedLimits>,
    fact: &DraftFact,
) {
    if let Some((provider, kind, until, message)) = shareable_limit(fact)
        && let Some(shared) = shared
    {
        let (provider, message) = (provider.to_owned(), message.to_owned());
        let limit = DraftRateLimit { provider, kind, until, message };
        shared.publish_limit(&limit, Time(clock::now_ms()));
    }
    let socket = layout.socket_path();
    if let Some((provider, kind, until, message)) = limit_of_fact(fact)
        && socket.exists()
    {
        let request = ControlRequest::Park {
            provider: provider.to_owned(),
            kind: kind.as_str().to_owned(),
            until: until.0,
            message: format!("a planner call was rate-limited: {message}"),
        };
        // It finds out by itself otherwise, at no cost but the time; a slow one must not hold us up.
        let ask = move || drop(crate::control_socket::send_request(&socket, &request));
        drop(std::thread::Builder::new().name("tell".to_owned()).spawn(ask));
    }
}

/// Limits that drafts met and a run does not know of yet.
pub fn list_limits_for_run(layout: &RepoLayout, machine: &Machine) -> Vec<RunInput> {
    // A journal of drafts that cannot be read is no reason not to run.
    let Ok(Some(reader)) = run_journal::open_journal_reader(&*layout.draft_store()) else {
        return Vec::new();
    };
    let now = Time(clock::now_ms());
    let mut inputs = Vec::new();
    let _ = reader.for_each(0, &mut |record| {
        if record.kind == "provider_limited"
            && let Ok(fact) = serde_json::from_str::<DraftFact>(&record.body)
            && let Some((provider, kind, until, message)) = limit_of_fact(&fact)
        {
            let known = machine.providers().get(provider).and_then(|known| known.wait_end());
            if until > now && known.is_none_or(|known| known < until) {
                let (provider, message) = (provider.to_owned(), message.to_owned());
                inputs.push(RunInput::ProviderParked { provider, kind, until, message });
            }
        }
        Ok(())
    });
    inputs
}
