//! The merge train of a run: what is on it, what has left it and how, and what is likely to conflict.

use std::collections::BTreeMap;

use mainstem_api::status::{RunState, StatusCandidate, StatusCandidateState, StatusConflict};
use mainstem_api::train::{TrainDeparture, TrainReport};
use mainstem_core::config::LandMode;
use mainstem_core::fact::Fact;
use mainstem_core::id::TaskId;
use mainstem_host::git::Repo;

use crate::conflict_forecast::{self, ConflictForecaster};
use crate::control_socket;
use crate::forge_connection::forge_target_ref;
use crate::query::status::list_train_candidates;
use crate::query::{RunLookupError, RunReader};
use crate::repo_layout::RepoLayout;

impl RunReader {
    /// What is on its way to the target branch, in order.
    pub fn train_candidates(&self) -> Vec<StatusCandidate> {
        list_train_candidates(&self.machine, self.has_running_engine())
    }

    /// The whole merge train.
    pub fn train(&self, repo: &Repo, layout: &RepoLayout) -> Result<TrainReport, RunLookupError> {
        let (landed, evicted) = self.train_departures()?;
        Ok(TrainReport {
            run: self.run.as_ref().map(ToString::to_string),
            train: self.train_candidates(),
            clashes: self.likely_conflicts(repo, layout),
            landed,
            evicted,
        })
    }

    /// Work that is likely to conflict: as a running engine has seen it, or else as git sees it now.
    pub fn likely_conflicts(&self, repo: &Repo, layout: &RepoLayout) -> Vec<StatusConflict> {
        if matches!(self.state, RunState::Running | RunState::Paused)
            && let Some(seen) = control_socket::fetch_status_conflicts(&layout.socket_path())
        {
            return seen;
        }
        let works = conflict_forecast::list_forecast_work(&self.machine);
        if works.is_empty() {
            return Vec::new();
        }
        let target = match self.machine.settings().land.mode {
            LandMode::Pr => forge_target_ref(self.machine.target_branch()),
            _ => format!("refs/heads/{}", self.machine.target_branch()),
        };
        // This is only a view, so what git cannot read is not shown.
        let seen = ConflictForecaster::default().forecast_conflicts(repo, &target, &works);
        seen.map(|outlook| control_socket::status_conflicts(&outlook)).unwrap_or_default()
    }

    /// What has left the train: landings, and candidates that did not land; oldest first.
    pub fn train_departures(
        &self,
    ) -> Result<(Vec<TrainDeparture>, Vec<TrainDeparture>), RunLookupError> {
        let mut departures = TrainDepartures::default();
        for (record, fact) in self.facts(None)? {
            departures.apply_fact(fact, record.at_ms);
        }
        Ok((departures.landed, departures.evicted))
    }
}

/// Departures as the facts tell them.
#[derive(Default)]
struct TrainDepartures {
    landed: Vec<TrainDeparture>,
    evicted: Vec<TrainDeparture>,
    /// The tip with which each task joined the train, and when.
    queued: BTreeMap<TaskId, (String, i64)>,
}

impl TrainDepartures {
    fn apply_fact(&mut self, fact: Fact, at: i64) {
        match fact {
            Fact::TaskQueued { task, tip, .. } => {
                self.queued.insert(task, (tip.to_string(), at));
            }
            Fact::TaskLanded { task, attempt, commit, old, empty } => {
                let reason = empty.then(|| "nothing to do".to_owned());
                let mut left = self.departure(&task, attempt, ("landed", at), reason);
                left.candidate.state = StatusCandidateState::Landed;
                left.candidate.onto = Some(old.to_string());
                left.candidate.candidate = Some(commit.to_string());
                (left.commit, left.empty, left.files) =
                    (Some(commit.to_string()), Some(empty), None);
                self.landed.push(left);
            }
            Fact::LandingUndone { task, commit, .. } => {
                let undone = self.landed.iter_mut().rev().find(|left| {
                    left.candidate.task == task.as_str()
                        && left.candidate.candidate.as_deref() == Some(commit.as_str())
                });
                if let Some(undone) = undone {
                    undone.how = "undone".to_owned();
                }
            }
            Fact::CarConflicted { task, attempt, onto, files } => {
                let reason = format!("conflict in {}", files.join(", "));
                let mut left = self.departure(&task, attempt, ("conflict", at), Some(reason));
                left.candidate.onto = Some(onto.to_string());
                left.files = Some(files);
                self.evicted.push(left);
            }
            Fact::CarEvicted { task, attempt, reason } => {
                let left = self.departure(&task, attempt, ("evicted", at), Some(reason));
                self.evicted.push(left);
            }
            Fact::LandingRefused { task, attempt, expected, .. } => {
                let reason = "the target branch moved; merged again".to_owned();
                let mut left = self.departure(&task, attempt, ("refused", at), Some(reason));
                left.candidate.onto = Some(expected.to_string());
                self.evicted.push(left);
            }
            _ => {}
        }
    }

    /// A candidate that leaves without landing.
    fn departure(
        &self,
        task: &TaskId,
        attempt: u32,
        (how, at): (&str, i64),
        reason: Option<String>,
    ) -> TrainDeparture {
        let queued = self.queued.get(task);
        let candidate = StatusCandidate {
            task: task.to_string(),
            attempt,
            state: StatusCandidateState::Evicted,
            place: None,
            tip: queued.map(|(tip, _)| tip.clone()),
            onto: None,
            candidate: None,
            reason,
            since: queued.map(|(_, since)| *since),
            usually_ms: None,
        };
        let files = Some(Vec::new());
        TrainDeparture { candidate, at, how: how.to_owned(), commit: None, empty: None, files }
    }
}
