//! Tokens and money of a run, grouped, with its budget and forecast.

use std::collections::BTreeMap;

use mainstem_api::cost::{COST_SCHEMA, CostBudget, CostOutlook, CostReport, CostRow, CostTotals};
use mainstem_core::id::Time;
use mainstem_core::money::{CostAccount, CostGrouping, CostSum};
use mainstem_core::phase::Phase;

use crate::query::{RunLookupError, RunReader};
use crate::repo_layout::RepoLayout;

/// The word of a grouping, which is also the key of the names of its rows.
pub fn grouping_word(by: CostGrouping) -> &'static str {
    match by {
        CostGrouping::Attempt => "attempt",
        CostGrouping::Task => "task",
        CostGrouping::Epic => "epic",
        CostGrouping::Model => "model",
        CostGrouping::Agent => "agent",
        CostGrouping::Day => "day",
    }
}

impl RunReader {
    /// What the run has cost so far, what it may still cost, and what drafts of plans cost.
    pub fn cost(
        &self,
        layout: &RepoLayout,
        by: CostGrouping,
    ) -> Result<CostReport, RunLookupError> {
        let mut account = CostAccount::new(by);
        for (record, fact) in self.facts(None)? {
            account.apply_fact(&fact, Time(record.at_ms));
        }
        let mut planning = CostAccount::new(by);
        for (fact, at) in crate::draft::read_all_draft_facts(layout)? {
            planning.apply_fact(&fact, at);
        }
        let budget = &self.machine.settings().budget;
        Ok(CostReport {
            schema: COST_SCHEMA.to_owned(),
            by: grouping_word(by).to_owned(),
            rows: account.sums.iter().map(|(name, sum)| cost_row(by, name, sum)).collect(),
            total: cost_totals(&account.total),
            budget: CostBudget {
                usd: budget.usd,
                hard: budget.hard,
                per_task_usd: budget.per_task_usd,
                spent_usd: self.machine.spent_usd(),
                reserved_usd: self.machine.reserved_usd(),
            },
            forecast: self.cost_outlook(),
            planning: cost_totals(&planning.total),
        })
    }

    fn cost_outlook(&self) -> CostOutlook {
        let forecast = self.machine.cost_forecast();
        CostOutlook {
            completed: forecast.completed,
            ended: forecast.completed,
            landed: self.machine.tasks().count_in_phase(Phase::Landed),
            remaining: forecast.remaining,
            average_usd: forecast.average_usd,
            estimated_remaining_usd: forecast.estimated_remaining_usd,
            total_usd: forecast.total_usd,
        }
    }
}

fn cost_row(by: CostGrouping, name: &str, sum: &CostSum) -> CostRow {
    let group = BTreeMap::from([(grouping_word(by).to_owned(), name.to_owned())]);
    CostRow { group, totals: cost_totals(sum) }
}

fn cost_totals(sum: &CostSum) -> CostTotals {
    CostTotals {
        attempts: sum.attempts.len() as u64,
        input_tokens: sum.input_tokens,
        output_tokens: sum.output_tokens,
        cache_read_tokens: sum.cache_read_tokens,
        cache_write_tokens: sum.cache_write_tokens,
        cost_usd: sum.paid_usd(),
        reported_usd: sum.reported_usd,
        estimated_usd: sum.estimated_usd,
        included_usd: sum.included_usd,
        unpriced_tokens: sum.unpriced_tokens,
        basis: sum.basis().to_owned(),
    }
}
