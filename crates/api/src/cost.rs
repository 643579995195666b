//! What `cost --json` prints: tokens and money of a run, its budget and its forecast.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::outlook::{money, money_option};

/// The name of this shape.
pub const COST_SCHEMA: &str = "mainstem.cost/1";

/// Tokens and money of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    pub schema: String,
    /// What the rows are grouped by: `task`, `attempt`, `epic`, `model`, `agent` or `day`.
    pub by: String,
    pub rows: Vec<CostRow>,
    pub total: CostTotals,
    pub budget: CostBudget,
    pub forecast: CostOutlook,
    /// What drafts of plans cost, which belong to no run.
    pub planning: CostTotals,
}

/// The sums of one group. The key of the group's name is the word of the grouping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostRow {
    #[serde(flatten)]
    pub group: BTreeMap<String, String>,
    #[serde(flatten)]
    pub totals: CostTotals,
}

/// Sums of tokens and money.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostTotals {
    /// How many attempts reported usage.
    pub attempts: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// Money to pay: reported and estimated.
    #[serde(serialize_with = "money")]
    pub cost_usd: f64,
    #[serde(serialize_with = "money")]
    pub reported_usd: f64,
    #[serde(serialize_with = "money")]
    pub estimated_usd: f64,
    /// What a subscription covered.
    #[serde(serialize_with = "money")]
    pub included_usd: f64,
    /// Tokens of models that have no price.
    pub unpriced_tokens: u64,
    /// How the cost is known: `reported`, `estimated`, `included`, `mixed` or `unknown`.
    pub basis: String,
}

/// The budget of a run and what is used of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostBudget {
    #[serde(serialize_with = "money_option")]
    pub usd: Option<f64>,
    pub hard: bool,
    #[serde(serialize_with = "money_option")]
    pub per_task_usd: Option<f64>,
    #[serde(serialize_with = "money")]
    pub spent_usd: f64,
    #[serde(serialize_with = "money")]
    pub reserved_usd: f64,
}

/// What the rest of a run may cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostOutlook {
    /// The same as `ended`.
    pub completed: u32,
    /// Tasks that had an attempt and are over, whether they landed or not.
    #[serde(default)]
    pub ended: u32,
    #[serde(default)]
    pub landed: u32,
    /// Tasks that are not over.
    pub remaining: u32,
    #[serde(serialize_with = "money_option")]
    pub average_usd: Option<f64>,
    #[serde(serialize_with = "money_option")]
    pub estimated_remaining_usd: Option<f64>,
    #[serde(serialize_with = "money_option")]
    pub total_usd: Option<f64>,
}
