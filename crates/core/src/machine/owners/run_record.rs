//! The run as the journal knows it: its branch, its start, its newest engine, how long its checks take.

use std::collections::{BTreeMap, VecDeque};

use crate::fact::{Fact, StopReason};
use crate::id::{Oid, Time};
use crate::limits;

#[derive(Debug, Clone, Default)]
pub(crate) struct RunRecord {
    target: String,
    base: Option<Oid>,
    bring_to: Option<String>,
    started_at: Option<Time>,
    /// The epoch of the engine that works on the run and has not ended in good order.
    engine_epoch: Option<u64>,
    /// The newest engine: its machine, and its epoch.
    last_engine: Option<(String, u64)>,
    /// How the newest engine ended, if it ended in good order.
    stopped: Option<StopReason>,
    /// How long checks took, by command; the last ones.
    gate_times: BTreeMap<String, VecDeque<u64>>,
}

impl RunRecord {
    /// The branch that work lands on.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }
    /// Where the target branch stood when the run began.
    pub(crate) fn base(&self) -> Option<&Oid> {
        self.base.as_ref()
    }
    pub(crate) fn bring_to(&self) -> Option<&str> {
        self.bring_to.as_deref()
    }
    pub(crate) fn started_at(&self) -> Option<Time> {
        self.started_at
    }
    pub(crate) fn is_engine_alive(&self) -> bool {
        self.engine_epoch.is_some()
    }
    pub(crate) fn last_engine(&self) -> Option<(&str, u64)> {
        self.last_engine.as_ref().map(|(host, epoch)| (host.as_str(), *epoch))
    }
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        self.stopped
    }
    /// How long this check usually takes: the median of its last runs.
    pub(crate) fn usual_gate_ms(&self, gate: &str) -> Option<u64> {
        let mut times: Vec<u64> = self.gate_times.get(gate)?.iter().copied().collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    pub(crate) fn apply(&mut self, fact: &Fact, at: Time) {
        match fact {
            Fact::RunStarted { target, base, bring_to } => {
                target.clone_into(&mut self.target);
                self.base = Some(base.clone());
                self.bring_to.clone_from(bring_to);
                self.started_at = Some(at);
            }
            Fact::EngineStarted { epoch, host, .. } => {
                self.engine_epoch = Some(*epoch);
                self.last_engine = Some((host.clone(), *epoch));
                self.stopped = None;
            }
            Fact::EngineStopped { why } => {
                self.engine_epoch = None;
                self.stopped = Some(*why);
            }
            Fact::GateRan { gate, duration_ms, cached: false, exit_code: Some(_), .. } => {
                let times = self.gate_times.entry(gate.clone()).or_default();
                times.push_back(*duration_ms);
                let over = times.len().saturating_sub(limits::GATE_TIMES_KEPT);
                times.drain(..over);
            }
            _ => {}
        }
    }
}
