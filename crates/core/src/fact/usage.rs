//! How much of what an agent used, and how the money is known.

use serde::{Deserialize, Serialize};

/// Tokens and money, always what was used since the last report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, without those from a cache.
    pub input_tokens: u64,
    /// Tokens written.
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
    /// By which model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How the money is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl Usage {
    /// Money that is really paid for: what a subscription includes is not.
    pub fn paid_usd(&self) -> f64 {
        match self.basis {
            Some(Basis::Included) => 0.0,
            Some(Basis::Reported | Basis::Estimated) | None => self.cost_usd.unwrap_or(0.0),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How an amount of money is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The agent named it.
    Reported,
    /// Tokens times the price list.
    Estimated,
    /// Part of a subscription: worth this much, paid for already.
    Included,
}

impl Basis {
    /// The word in JSON and on screens.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
            Self::Included => "included",
        }
    }
}
