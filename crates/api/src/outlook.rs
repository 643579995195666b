//! The parts of `status --json` that are about the run as a whole: its epics, money, expected end and machines.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::time;

/// An epic of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpicStatus {
    /// Its id in the plan.
    pub id: String,
    pub title: String,
    /// The epics whose tasks all its tasks need.
    pub needs: Vec<String>,
    /// How many tasks it has.
    pub tasks: u64,
    /// How many of them have landed.
    pub landed: u64,
}

/// What may be spent, and what is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// The budget of the run; null without one.
    #[serde(serialize_with = "money_option")]
    pub usd: Option<f64>,
    /// No attempt starts that the budget does not cover.
    pub hard: bool,
    /// What agents have cost.
    #[serde(serialize_with = "money")]
    pub spent_usd: f64,
    /// What is set aside for attempts that run.
    #[serde(serialize_with = "money")]
    pub reserved_usd: f64,
    /// What the whole run is expected to cost; null before the first task has ended.
    #[serde(serialize_with = "money_option")]
    pub forecast_usd: Option<f64>,
}

/// When the run is expected to end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eta {
    /// The moment; null while no task has landed, and while no engine works.
    #[serde(with = "time::wire_option")]
    pub at: Option<i64>,
    /// The tasks that decide it: the longest chain of dependencies still to come, in order.
    pub critical_path: Vec<String>,
    /// What the estimate goes by: `effort`, the time that landed tasks took per unit of effort; null without an
    /// estimate.
    pub basis: Option<String>,
}

/// A machine that runs agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    pub host: String,
    /// `ok`, `draining` or `lost`.
    pub state: String,
    /// How many agents may work there at once.
    pub slots: u32,
    pub used: u32,
    /// How many merged candidates are verified there at once.
    pub lanes: u32,
    /// Labels that tasks can ask for.
    pub labels: Vec<String>,
    /// The agents that are configured for it.
    pub agents: Vec<String>,
    /// When it was last known to be there; null if no engine has run there yet.
    #[serde(with = "time::wire_option")]
    pub seen_at: Option<i64>,
    /// Counts the engines that ran there; 0 before the first.
    pub incarnation: u64,
}

/// What an agent was last seen doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The tool it uses; null if it only says something.
    pub tool: Option<String>,
    pub text: String,
}

impl Progress {
    /// Both in one line.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.tool {
            Some(tool) => format!("{tool} {}", self.text).trim_end().to_owned(),
            None => self.text.clone(),
        }
    }
}

/// Money as other programs get it: dollars, rounded to 4 places.
#[must_use]
pub fn rounded_usd(usd: f64) -> f64 {
    let rounded = (usd * 10_000.0).round() / 10_000.0;
    // The sum of nothing may be a negative zero, which would be printed as such.
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// The same value with all money in it rounded: numbers under keys that end in `usd`.
#[must_use]
pub fn with_rounded_money(value: Value) -> Value {
    let under = |(key, value): (String, Value)| {
        let value = match value.as_f64() {
            Some(usd) if key.ends_with("usd") => rounded_usd(usd).into(),
            _ => with_rounded_money(value),
        };
        (key, value)
    };
    match value {
        Value::Object(fields) => fields.into_iter().map(under).collect(),
        Value::Array(items) => items.into_iter().map(with_rounded_money).collect(),
        other => other,
    }
}

/// Writes money rounded: `#[serde(serialize_with = "money")]`.
pub(crate) fn money<S: Serializer>(usd: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded_usd(*usd))
}

/// Like [`money`], for what may be unknown (`null`).
pub(crate) fn money_option<S: Serializer>(
    usd: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match usd {
        Some(usd) => money(usd, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn money_is_rounded_to_four_places() {
        for (usd, text) in [(0.1 + 0.2, "0.3"), (1.234_56, "1.2346"), (-0.0, "0.0"), (2.0, "2.0")] {
            assert_eq!(serde_json::to_string(&rounded_usd(usd)).unwrap(), text);
        }
        let sums = serde_json::json!({"usd": 0.1 + 0.2, "of": [{"cost_usd": 0.123_456, "n": 3}]});
        let rounded = serde_json::json!({"usd": 0.3, "of": [{"cost_usd": 0.1235, "n": 3}]});
        assert_eq!(with_rounded_money(sums), rounded);
        let budget =
            BudgetStatus { usd: Some(25.0), spent_usd: 0.1 + 0.2, ..BudgetStatus::default() };
        assert_eq!(
            serde_json::to_string(&budget).unwrap(),
            r#"{"usd":25.0,"hard":false,"spent_usd":0.3,"reserved_usd":0.0,"forecast_usd":null}"#
        );
    }

    #[test]
    fn progress_reads_as_one_line() {
        let says = Progress { tool: None, text: "thinking".into() };
        let uses = Progress { tool: Some("Read".into()), text: "src/main.rs".into() };
        assert_eq!((says.line(), uses.line()), ("thinking".into(), "Read src/main.rs".into()));
    }
}
