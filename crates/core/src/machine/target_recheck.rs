//! The target branch is verified again in the background, in a clean checkout without build caches. Where that
//! fails, no verdict that was made with the caches counts any longer, so that nothing lands on what is broken, and
//! people are told with which landing it began.

use crate::config::LandMode;
use crate::effect::Effect;
use crate::fact::{Fact, GateVerdict};
use crate::failed_gate::gate_headline;
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::{GateResult, Machine};
use crate::recheck::{RecheckFailure, TargetBranchMove, TargetRecheckFact};
use crate::train::CandidateStage;

/// Where the target branch is verified again: apart from the lanes of the train and of reviewers.
pub(super) const RECHECK_LANE: u32 = 900;

/// One life's part in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecheckProgress {
    /// Being verified, and in whose name.
    under_way: Option<(Oid, TaskIx, u32)>,
    /// It could not be verified: no further try in this life.
    unable: bool,
}

impl Machine {
    /// What is to be verified next. Without caches every candidate is verified in a clean checkout anyway.
    fn recheck_due(&self) -> Option<(&TargetBranchMove, TaskIx)> {
        let (gates, land) = (&self.settings.gates, &self.settings.land);
        let pointless = gates.verify.is_empty() || gates.caches.is_empty();
        if pointless || land.mode == LandMode::Pr || self.target.recheck().unable {
            return None;
        }
        let next = self.target.rechecks().next_due(gates.recheck)?;
        let task = next
            .tasks
            .iter()
            .rev()
            .find_map(|task| self.adopted.graph().index_of(task.as_str()))?;
        Some((next, task))
    }

    /// Is the target branch being verified again, or about to be?
    pub(super) fn is_rechecking(&self) -> bool {
        self.target.recheck().under_way.is_some() || self.recheck_due().is_some()
    }

    pub(super) fn issue_recheck(&mut self, effects: &mut Vec<Effect>) {
        if self.engine.is_interrupting() {
            if let Some((_, task, attempt)) = self.target.recheck_mut().under_way.take() {
                effects.push(Effect::StopLane { task, attempt, lane: RECHECK_LANE });
            }
            return;
        }
        if self.target.recheck().under_way.is_some() {
            return;
        }
        let Some((next, task)) = self.recheck_due() else { return };
        let (attempt, commit, tree) = (next.attempt, next.commit.clone(), next.tree.clone());
        self.target.recheck_mut().under_way = Some((commit.clone(), task, attempt));
        let lane = RECHECK_LANE;
        effects.push(Effect::RecheckTarget { task, attempt, commit, tree, lane });
    }

    pub(super) fn handle_recheck(&mut self, commit: &Oid, gates: Result<Vec<GateResult>, String>) {
        let asked = self.target.recheck().under_way.as_ref().is_some_and(|(at, ..)| at == commit);
        if !asked {
            return;
        }
        self.target.recheck_mut().under_way = None;
        let Some(landing) = self.target.rechecks().landing_at(commit).cloned() else { return };
        let wanted = self.settings.gates.verify.len();
        let bad = gates
            .as_ref()
            .ok()
            .and_then(|all| all.iter().find(|g| g.verdict != GateVerdict::Passed));
        let failure = match (&gates, bad) {
            (Err(why), _) => return self.record_recheck_error(why),
            (Ok(_), Some(gate)) if gate.verdict == GateVerdict::Error => {
                return self.record_recheck_error(&gate_headline(gate));
            }
            (Ok(all), None) if all.len() < wanted => {
                return self.record_recheck_error("a check gave no result");
            }
            (Ok(_), None) => None,
            (Ok(_), Some(gate)) => Some(RecheckFailure {
                gate: gate.gate.clone(),
                headline: gate_headline(gate),
                output: gate.detail.clone(),
                log: gate.log.clone(),
            }),
        };
        let TargetBranchMove { tasks, commit, tree, .. } = landing;
        let headline = failure.as_ref().map(|failure| failure.headline.clone());
        let known = self.target.rechecks().is_target_failing();
        self.emit_fact(Fact::TargetRechecked(TargetRecheckFact { commit, tree, tasks, failure }));
        if headline.is_some() && !known {
            // Nothing that is under way was judged in a clean checkout.
            self.train.forget_all_verdicts(self.now);
        }
        if let Some(message) = self.describe_first_bad_landing(headline.as_deref()) {
            self.emit_fact(Fact::Noticed {
                task: None,
                message: limits::clip_for_fact(&message),
                lasts: true,
            });
        }
    }

    fn record_recheck_error(&mut self, why: &str) {
        self.target.recheck_mut().unable = true;
        let target = self.run.target();
        let message = format!("cannot check {target} again in a clean checkout: {why}");
        self.emit_fact(Fact::Noticed {
            task: None,
            message: limits::clip_for_fact(&message),
            lasts: false,
        });
    }

    /// With which landing it began, once that is known.
    fn describe_first_bad_landing(&self, headline: Option<&str>) -> Option<String> {
        let first = self.target.rechecks().first_bad_landing()?;
        let target = self.run.target();
        let who = first.tasks.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" and ");
        let short = first.commit.as_str().get(..9).unwrap_or(first.commit.as_str());
        let what = headline.map_or_else(|| "the checks fail".to_owned(), str::to_owned);
        let help = match self.target.rechecks().is_last_landing(&first.commit) {
            true => format!("run `mainstem undo`, or fix {target}, then `mainstem run`"),
            false => format!("fix {target}, then `mainstem run`"),
        };
        Some(format!(
            "{target} fails in a clean checkout since {who} landed ({short}), although the checks passed with the kept build caches: {what}; {help}"
        ))
    }

    /// The fold of what landed and was verified again.
    pub(super) fn apply_landing_to_recheck(&mut self, t: TaskIx, fact: &Fact) {
        match fact {
            Fact::LandingIntended { new, .. } => self.target.rechecks_mut().record_intent(new),
            Fact::TaskLanded { task, attempt, empty: false, .. } => {
                let stage = self.train.queue().candidate_of(t).map(|car| &car.stage);
                if let Some(CandidateStage::Landing { new, tree, .. }) = stage {
                    self.target.rechecks_mut().record_landing(task, *attempt, new, tree);
                }
            }
            _ => {}
        }
    }

    pub(super) fn apply_recheck(&mut self, rechecked: &TargetRecheckFact) {
        if rechecked.failure.is_some() {
            self.train.queue_mut().forget_verdicts();
        }
    }
}
