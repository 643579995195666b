//! What was spent, on what, and how that is known; and what the rest may cost. Pure sums over facts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::config::ModelPrice;
use crate::fact::Fact;
use crate::id::{TaskId, Time};
use crate::limits::REPORT_USD_MAX;

/// Tokens and money, always what was used since the last report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, without those from a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Tokens read from a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// Tokens written to a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Money, if it is known.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How the money is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<CostBasis>,
    /// Whose, if not the attempt's own agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answering: Option<AnsweringAgent>,
}

/// The agent that was asked in a person's place, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweringAgent {
    /// Its name under `[agents.*]`.
    pub agent: String,
    pub question: String,
}

impl Usage {
    /// Money that is really paid for: what a subscription includes is not.
    pub fn paid_usd(&self) -> f64 {
        match self.basis {
            Some(CostBasis::Included) => 0.0,
            Some(CostBasis::Reported | CostBasis::Estimated) | None => self.cost_usd.unwrap_or(0.0),
        }
    }

    /// Adds another report of the same kind; false if the two must be told apart (another model,
    /// another basis, or one with a price and one without), and nothing is changed.
    pub fn merge_report(&mut self, other: &Self) -> bool {
        let alike = self.model == other.model
            && self.basis == other.basis
            && self.answering == other.answering
            && self.cost_usd.is_some() == other.cost_usd.is_some()
            && [&*self, other].iter().all(|usage| usage.cost_usd.is_none_or(is_plausible_cost))
            // The sum is one report to whoever reads it, and is judged like one.
            && self.cost_usd.zip(other.cost_usd).is_none_or(|(a, b)| is_plausible_cost(a + b));
        if alike {
            self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
            self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
            self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
            self.cache_write_tokens =
                self.cache_write_tokens.saturating_add(other.cache_write_tokens);
            self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|(a, b)| a + b);
        }
        alike
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How an amount of money is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostBasis {
    /// The agent named it.
    Reported,
    /// Tokens times the price list.
    Estimated,
    /// Part of a subscription: worth this much, paid for already.
    Included,
}

impl CostBasis {
    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
            Self::Included => "included",
        }
    }
}

/// Percent of a budget at which people are told.
pub const WARN_PERCENT: u32 = 80;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Can one report of an agent have cost this much?
pub fn is_plausible_cost(usd: f64) -> bool {
    (0.0..=REPORT_USD_MAX).contains(&usd)
}

/// What tokens cost by a price list: the model's own price, or that of the longest name it starts with
/// (providers add dates to names). None if the list does not know it.
pub fn estimate_cost(
    prices: &BTreeMap<String, ModelPrice>,
    model: &str,
    usage: &Usage,
) -> Option<f64> {
    let of_family = || {
        let names = prices.iter().filter(|(name, _)| model.starts_with(name.as_str()));
        names.max_by_key(|(name, _)| name.len()).map(|(_, price)| price)
    };
    let price = prices.get(model).or_else(of_family)?;
    let part = |tokens: u64, usd: f64| tokens as f64 * usd / 1e6;
    Some(
        part(usage.input_tokens, price.input)
            + part(usage.output_tokens, price.output)
            + part(usage.cache_read_tokens, price.cache_read)
            + part(usage.cache_write_tokens, price.cache_write),
    )
}

/// A report of an agent with what it cost: as the agent names it, or by the price list; a subscription pays
/// for all. An amount that cannot be true is none. `chosen` is the model of a report that names none.
pub fn price_usage(
    mut usage: Usage,
    included: bool,
    chosen: Option<&str>,
    prices: &BTreeMap<String, ModelPrice>,
) -> Usage {
    usage.cost_usd = usage.cost_usd.filter(|usd| is_plausible_cost(*usd));
    if usage.cost_usd.is_some() {
        usage.basis.get_or_insert(CostBasis::Reported);
    } else if let Some(model) = usage.model.as_deref().or(chosen)
        && let Some(usd) =
            estimate_cost(prices, model, &usage).filter(|usd| is_plausible_cost(*usd))
    {
        usage.cost_usd = Some(usd);
        usage.basis.get_or_insert(CostBasis::Estimated);
    }
    if included {
        usage.basis = Some(CostBasis::Included);
    }
    usage
}

/// What sums are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostGrouping {
    Attempt,
    Task,
    /// Epic; tasks without one are together.
    Epic,
    /// Model, as reported or else as chosen.
    Model,
    Agent,
    Day,
}

/// A sum of tokens and money.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostSum {
    /// Attempts that used something.
    pub attempts: BTreeSet<(TaskId, u32)>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Tokens read from a cache.
    pub cache_read_tokens: u64,
    /// Tokens written to a cache.
    pub cache_write_tokens: u64,
    /// Money that agents named.
    pub reported_usd: f64,
    /// Money by the price list.
    pub estimated_usd: f64,
    /// What a subscription paid for, at its worth.
    pub included_usd: f64,
    /// Tokens whose price nobody knows.
    pub unpriced_tokens: u64,
    bases: BTreeSet<CostBasis>,
}

impl CostSum {
    pub fn paid_usd(&self) -> f64 {
        self.reported_usd + self.estimated_usd
    }

    /// How it is known: one word, `mixed`, or `unknown`.
    pub fn basis(&self) -> &'static str {
        let mut bases = self.bases.iter();
        match (bases.next(), bases.next()) {
            (None, _) => "unknown",
            (Some(basis), None) => basis.as_str(),
            (Some(_), Some(_)) => "mixed",
        }
    }

    fn add_usage(&mut self, attempt: (TaskId, u32), usage: &Usage) {
        self.attempts.insert(attempt);
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(usage.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(usage.cache_write_tokens);
        let Some(usd) = usage.cost_usd else {
            if usage.basis == Some(CostBasis::Included) {
                self.bases.insert(CostBasis::Included);
            } else {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                self.unpriced_tokens = self.unpriced_tokens.saturating_add(tokens);
            }
            return;
        };
        let basis = usage.basis.unwrap_or(CostBasis::Reported);
        self.bases.insert(basis);
        match basis {
            CostBasis::Reported => self.reported_usd += usd,
            CostBasis::Estimated => self.estimated_usd += usd,
            CostBasis::Included => self.included_usd += usd,
        }
    }
}

/// Sums over a run's facts.
#[derive(Debug, Clone)]
pub struct CostAccount {
    by: CostGrouping,
    epics: BTreeMap<TaskId, String>,
    /// Agent and model of each attempt.
    attempts: BTreeMap<(TaskId, u32), (String, Option<String>)>,
    pub sums: BTreeMap<String, CostSum>,
    pub total: CostSum,
}

impl CostAccount {
    pub fn new(by: CostGrouping) -> Self {
        let (epics, attempts) = (BTreeMap::new(), BTreeMap::new());
        Self { by, epics, attempts, sums: BTreeMap::new(), total: CostSum::default() }
    }

    /// Takes one fact in that happened at `at`.
    pub fn apply_fact(&mut self, fact: &Fact, at: Time) {
        match fact {
            Fact::PlanAdopted { plan, .. } => {
                let with_epic = plan.tasks.iter().filter_map(|t| Some((&t.id, t.epic.as_ref()?)));
                self.epics.extend(with_epic.map(|(id, epic)| (id.clone(), epic.to_string())));
            }
            Fact::AttemptIntended { task, attempt, agent, model, .. } => {
                let who = (agent.clone(), model.clone());
                self.attempts.insert((task.clone(), *attempt), who);
            }
            Fact::UsageReported { task, attempt, usage, .. } => {
                let key = (task.clone(), *attempt);
                let name = self.group_name(&key, usage, at);
                self.sums.entry(name).or_default().add_usage(key.clone(), usage);
                self.total.add_usage(key, usage);
            }
            _ => {}
        }
    }

    fn group_name(&self, key: &(TaskId, u32), usage: &Usage, at: Time) -> String {
        let who = self.attempts.get(key);
        match self.by {
            CostGrouping::Attempt => format!("{}/{}", key.0, key.1),
            CostGrouping::Task => key.0.to_string(),
            CostGrouping::Epic => {
                self.epics.get(&key.0).cloned().unwrap_or_else(|| "(no epic)".to_owned())
            }
            CostGrouping::Model => {
                let own = || who.filter(|_| usage.answering.is_none());
                let chosen = || own().and_then(|(_, model)| model.clone());
                usage.model.clone().or_else(chosen).unwrap_or_else(|| "(unknown)".to_owned())
            }
            CostGrouping::Agent => {
                let answering = usage.answering.as_ref().map(|a| a.agent.clone());
                let own = || who.map(|(agent, _)| agent.clone());
                answering.or_else(own).unwrap_or_else(|| "(unknown)".to_owned())
            }
            CostGrouping::Day => utc_day(at),
        }
    }
}

/// The day of a moment, `2026-01-31`, in UTC.
fn utc_day(at: Time) -> String {
    // Days to a civil date, counting years from March so that the leap day comes last.
    let days = at.0.div_euclid(DAY_MS) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// What the rest of a run may cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CostForecast {
    /// Tasks that are over and had an attempt.
    pub completed: u32,
    /// Tasks that are not over.
    pub remaining: u32,
    /// Money per completed task; none before the first.
    pub average_usd: Option<f64>,
    /// What the remaining ones may still cost.
    pub estimated_remaining_usd: Option<f64>,
    /// With what was spent.
    pub total_usd: Option<f64>,
}

/// From what each task cost so far, and whether it is over.
pub fn forecast_cost(
    tasks: impl Iterator<Item = (f64, bool, bool)>,
    spent_usd: f64,
) -> CostForecast {
    let mut forecast = CostForecast::default();
    let (mut completed_usd, mut begun) = (0.0, Vec::new());
    for (usd, over, tried) in tasks {
        match (over, tried) {
            (true, true) => {
                forecast.completed += 1;
                completed_usd += usd;
            }
            (true, false) => {}
            (false, _) => {
                forecast.remaining += 1;
                begun.push(usd);
            }
        }
    }
    if forecast.completed > 0 {
        let average = completed_usd / f64::from(forecast.completed);
        // What a task has cost beyond the average says nothing good of the rest, but it is spent.
        let left = begun.iter().fold(0.0, |left, usd| left + (average - usd).max(0.0));
        forecast.average_usd = Some(average);
        forecast.estimated_remaining_usd = Some(left);
        forecast.total_usd = Some(spent_usd + left);
    }
    forecast
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn usage(tokens: u64, cost_usd: Option<f64>, basis: Option<CostBasis>) -> Usage {
        Usage { input_tokens: tokens, cost_usd, basis, ..Usage::default() }
    }

    #[test]
    fn reports_of_the_same_kind_are_joined_and_others_are_left_alone() {
        let mut sum = usage(3, Some(0.5), Some(CostBasis::Reported));
        assert!(sum.merge_report(&usage(4, Some(0.25), Some(CostBasis::Reported))));
        assert_eq!(sum, usage(7, Some(0.75), Some(CostBasis::Reported)));
        let other_model = Usage { model: Some("m".to_owned()), ..sum.clone() };
        let others =
            [usage(1, None, Some(CostBasis::Reported)), usage(1, Some(1.0), None), other_model];
        for other in others {
            assert!(!sum.merge_report(&other), "{other:?}");
            assert_eq!(sum, usage(7, Some(0.75), Some(CostBasis::Reported)));
        }
        assert!(sum.merge_report(&usage(u64::MAX, Some(0.0), Some(CostBasis::Reported))));
        assert_eq!(sum.input_tokens, u64::MAX);
    }

    #[test]
    fn a_price_is_found_by_name_or_by_the_longest_beginning_of_it() {
        let price = |input| ModelPrice { input, output: 10.0, cache_read: 0.5, cache_write: 4.0 };
        let prices = BTreeMap::from([
            ("m".to_owned(), price(1.0)),
            ("m-big".to_owned(), price(2.0)),
            ("m-big-2".to_owned(), price(3.0)),
        ]);
        let million = usage(1_000_000, None, None);
        assert_eq!(estimate_cost(&prices, "m-big", &million), Some(2.0));
        assert_eq!(estimate_cost(&prices, "m-big-20260101", &million), Some(3.0));
        assert_eq!(estimate_cost(&prices, "m-small", &million), Some(1.0));
        assert_eq!(estimate_cost(&prices, "other", &million), None);
        let all = Usage {
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cache_read_tokens: 2_000_000,
            cache_write_tokens: 500_000,
            ..Usage::default()
        };
        assert_eq!(estimate_cost(&prices, "m", &all), Some(1.0 + 1.0 + 1.0 + 2.0));
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(utc_day(Time(0)), "1970-01-01");
        assert_eq!(utc_day(Time(951_782_400_000)), "2000-02-29");
        assert_eq!(utc_day(Time(1_799_999_999_999)), "2027-01-15");
        assert_eq!(utc_day(Time(-1)), "1969-12-31");
    }

    #[test]
    fn sums_tell_how_they_are_known_and_what_a_subscription_paid_is_not_spent() {
        let mut account = CostAccount::new(CostGrouping::Agent);
        let task = TaskId::new("T");
        account.apply_fact(
            &Fact::AttemptIntended {
                task: task.clone(),
                attempt: 1,
                agent: "a".to_owned(),
                provider: "p".to_owned(),
                model: None,
                branch: String::new(),
                reserved_usd: 0.0,
                model_reason: String::new(),
                session: None,
                continues: None,
                fresh: false,
            },
            Time(0),
        );
        let mut spend = |mark, usage: Usage| {
            let task = task.clone();
            account.apply_fact(&Fact::UsageReported { task, attempt: 1, mark, usage }, Time(0));
            account.total.clone()
        };
        assert_eq!(spend(1, usage(5, None, None)).basis(), "unknown");
        assert_eq!(spend(2, usage(5, Some(1.0), None)).basis(), "reported");
        let all = spend(3, usage(5, Some(2.0), Some(CostBasis::Included)));
        assert_eq!((all.basis(), all.paid_usd(), all.included_usd), ("mixed", 1.0, 2.0));
        assert_eq!((all.input_tokens, all.unpriced_tokens, all.attempts.len()), (15, 5, 1));
        assert_eq!(account.sums.keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn reports_whose_sum_would_not_be_believed_stay_apart() {
        let half = Usage { cost_usd: Some(REPORT_USD_MAX * 0.6), ..Usage::default() };
        let mut sum = half.clone();
        assert!(!sum.merge_report(&half));
        assert_eq!(sum, half);
    }

    #[test]
    fn a_forecast_goes_by_the_average_and_counts_what_is_spent_already() {
        let none = forecast_cost([(1.0, false, true)].into_iter(), 1.0);
        assert_eq!((none.remaining, none.total_usd), (1, None));
        let tasks = [
            (2.0, true, true),
            (4.0, true, true),
            (0.0, true, false),
            (1.0, false, true),
            (0.0, false, false),
            (9.0, false, true),
        ];
        let some = forecast_cost(tasks.into_iter(), 16.0);
        assert_eq!((some.completed, some.remaining), (2, 3));
        assert_eq!(some.average_usd, Some(3.0));
        assert_eq!(some.estimated_remaining_usd.unwrap(), 5.0);
        assert_eq!(some.total_usd, Some(21.0));
    }
}
