//! A fact as an event of the decomposition, in the words that other tools listen for.

use mainstem_core::fact::FailureClass;
use mainstem_core::id::Time;
use serde::Serialize;

use super::fact::{DraftFact, DraftPart};

/// Something a listener wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DraftNotification {
    /// `shred_` or `worker_` with `started`, `retry`, `completed`, `failed`; or `rate_limited`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The epic; none for the split and for the single pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epic: Option<String>,
    /// Which call, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub message: String,
    /// Until when the provider is left alone; faces write it as they write times.
    #[serde(skip)]
    pub until: Option<Time>,
}

/// The event that a fact is; none if nobody listens for it.
pub fn notification_for(fact: &DraftFact) -> Option<DraftNotification> {
    let named = |part: &DraftPart, what: &str, attempt: Option<u32>, message: String| {
        let who = if part.epic().is_some() { "worker" } else { "shred" };
        let epic = part.epic().map(str::to_owned);
        Some(DraftNotification {
            kind: format!("{who}_{what}"),
            epic,
            attempt,
            message,
            until: None,
        })
    };
    match fact {
        DraftFact::CallIntended { part, call, agent, .. } => {
            named(part, "started", Some(*call), format!("asks {agent}"))
        }
        DraftFact::ProviderLimited { part, call, provider, message, until, .. } => {
            Some(DraftNotification {
                kind: "rate_limited".to_owned(),
                epic: part.epic().map(str::to_owned),
                attempt: Some(*call),
                message: rate_limit_text(provider, message),
                until: Some(*until),
            })
        }
        DraftFact::ProviderParked { provider, message, until, .. } => Some(DraftNotification {
            kind: "rate_limited".to_owned(),
            epic: None,
            attempt: None,
            message: rate_limit_text(provider, message),
            until: Some(*until),
        }),
        DraftFact::AnswerTaken { part, call, breakdown, tasks, .. } => {
            let count: usize = tasks.iter().map(|answer| answer.tasks.len()).sum();
            let of = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
            let message = match breakdown {
                Some(found) if tasks.is_empty() => of(found.epics.len(), "epic"),
                Some(found) => {
                    format!("{}, {}", of(found.epics.len(), "epic"), of(count, "task"))
                }
                None => of(count, "task"),
            };
            named(part, "completed", Some(*call), message)
        }
        DraftFact::CallFailed { part, call, reason, again_at: None, .. } => {
            named(part, "failed", Some(*call), reason.clone())
        }
        // The limit itself was told of, and it costs no try; one that was stopped is asked again only by the
        // next life.
        DraftFact::CallFailed {
            class:
                FailureClass::RateLimited | FailureClass::QuotaExhausted | FailureClass::Interrupted,
            ..
        } => None,
        DraftFact::CallFailed { part, call, reason, problems, .. } => {
            let message = match problems.len() {
                0 => reason.clone(),
                1 => format!("{reason}: {}", problems[0]),
                more => format!("{reason}: {more} problems, first {}", problems[0]),
            };
            named(part, "retry", Some(*call), message)
        }
        DraftFact::PartFailed { part, reason, .. } => named(part, "failed", None, reason.clone()),
        DraftFact::DraftStarted { .. }
        | DraftFact::DraftResumed {}
        | DraftFact::UsageReported { .. }
        | DraftFact::PartReopened { .. }
        | DraftFact::PlanWritten { .. } => None,
    }
}

/// A limit in words; many are told without any.
fn rate_limit_text(provider: &str, message: &str) -> String {
    match message.trim() {
        "" => format!("{provider} is rate-limited"),
        said => format!("{provider} is rate-limited: {said}"),
    }
}
