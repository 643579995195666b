//! Money: what is spent, what is set aside, and what attempts cost.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::TaskIx;
use crate::model_choice::ModelRecord;

/// Who costs what: an agent, and the model chosen for it.
pub(crate) type SpenderKey = (String, Option<String>);

/// Attempts of one spender that ended and cost something.
#[derive(Debug, Clone, Copy, Default)]
struct AttemptCosts {
    ended: u32,
    usd: f64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Spending {
    spent_usd: f64,
    reserved_usd: f64,
    attempt_costs: BTreeMap<SpenderKey, AttemptCosts>,
    /// The percentage of the run's budget that people were told of.
    percent_told: u32,
    /// What models have achieved for their money.
    model_records: BTreeMap<String, ModelRecord>,
    /// Not journaled: the attempts whose agent reported an impossible cost.
    implausible_costs: BTreeSet<(TaskIx, u32)>,
}

impl Spending {
    pub(crate) fn spent_usd(&self) -> f64 {
        self.spent_usd
    }
    /// Money set aside for attempts under way.
    pub(crate) fn reserved_usd(&self) -> f64 {
        self.reserved_usd
    }
    /// What is left of a budget when the reserved money is counted as spent.
    pub(crate) fn left_of(&self, budget_usd: f64) -> f64 {
        budget_usd - self.spent_usd - self.reserved_usd
    }
    pub(crate) fn percent_told(&self) -> u32 {
        self.percent_told
    }
    pub(crate) fn model_record(&self, model: &str) -> ModelRecord {
        self.model_records.get(model).copied().unwrap_or_default()
    }
    /// What the ended attempts of this spender cost on average.
    pub(crate) fn average_attempt_usd(&self, spender: &SpenderKey) -> Option<f64> {
        self.attempt_costs.get(spender).map(|costs| costs.usd / f64::from(costs.ended))
    }

    pub(crate) fn begin_epoch(&mut self) {
        self.implausible_costs.clear();
    }
    /// Whether this is the first impossible cost of the attempt in this epoch.
    pub(crate) fn note_implausible_cost(&mut self, task: TaskIx, attempt: u32) -> bool {
        self.implausible_costs.insert((task, attempt))
    }

    pub(crate) fn apply_reservation(&mut self, usd: f64) {
        self.reserved_usd += usd;
    }
    pub(crate) fn apply_reservation_end(&mut self, usd: f64) {
        self.reserved_usd -= usd;
    }
    pub(crate) fn apply_payment(&mut self, usd: f64) {
        self.spent_usd += usd;
    }
    pub(crate) fn apply_budget_notice(&mut self, percent: u32) {
        self.percent_told = percent;
    }
    /// An attempt ended that cost this much.
    pub(crate) fn apply_attempt_cost(&mut self, spender: SpenderKey, usd: f64) {
        if usd > 0.0 {
            let costs = self.attempt_costs.entry(spender).or_default();
            costs.ended += 1;
            costs.usd += usd;
        }
    }
    /// An attempt with this model led to good work, or did not.
    pub(crate) fn apply_model_result(&mut self, model: String, good: bool, usd: f64) {
        let record = self.model_records.entry(model).or_default();
        record.ended += 1;
        record.good += u32::from(good);
        record.usd += usd;
    }
}
