//! What happened to a draft, as the journal keeps it, and the same as the cost ledger reads it.

use std::fmt;

use mainstem_core::fact::{AgentFault, Fact, FailureClass, LimitKind, Usage};
use mainstem_core::id::{TaskId, Time};
use serde::{Deserialize, Serialize};

use crate::schema::{AnswerProblem, EpicBreakdown, EpicTasks};

/// What a call is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DraftPart {
    /// To split the PRD into epics.
    Shred,
    /// To write the tasks of this epic.
    Epic(String),
    Whole,
}

impl DraftPart {
    /// `MAINSTEM_STAGE` of its agents.
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Shred => "shred",
            Self::Epic(_) => "scatter",
            Self::Whole => "whole",
        }
    }

    /// The epic, if it is one's.
    pub fn epic(&self) -> Option<&str> {
        match self {
            Self::Epic(id) => Some(id),
            Self::Shred | Self::Whole => None,
        }
    }
}

impl fmt::Display for DraftPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.epic().unwrap_or_else(|| self.stage()))
    }
}

impl From<String> for DraftPart {
    fn from(text: String) -> Self {
        match text.as_str() {
            "shred" => Self::Shred,
            "whole" => Self::Whole,
            _ => Self::Epic(text),
        }
    }
}

impl From<DraftPart> for String {
    fn from(part: DraftPart) -> Self {
        part.to_string()
    }
}

/// Something that happened to a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DraftFact {
    DraftStarted {
        /// Everything in one call.
        single_pass: bool,
    },
    /// It goes on in another life of the program.
    DraftResumed {},
    /// An agent is about to be asked.
    CallIntended {
        part: DraftPart,
        /// Which call of this part, from 1.
        call: u32,
        agent: String,
        /// Whose quota it uses.
        provider: String,
        /// The model, if one was chosen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The effort, if one was chosen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<String>,
    },
    /// Tokens and money since the last such fact of the call.
    UsageReported {
        part: DraftPart,
        call: u32,
        /// Place in its output.
        mark: u64,
        #[serde(flatten)]
        usage: Usage,
    },
    /// A call ran into a limit.
    ProviderLimited {
        provider: String,
        part: DraftPart,
        call: u32,
        /// Place in its output.
        mark: u64,
        /// It is left alone until then.
        until: Time,
        message: String,
        /// What kind of limit.
        kind: LimitKind,
        /// The agent waits by itself.
        #[serde(default)]
        retrying: bool,
    },
    /// A provider is left alone for another reason than a call's word.
    ProviderParked {
        provider: String,
        /// What kind of wait.
        kind: LimitKind,
        until: Time,
        message: String,
    },
    /// An answer fits and is taken.
    AnswerTaken {
        part: DraftPart,
        call: u32,
        /// The epics, if they were asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        breakdown: Option<EpicBreakdown>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<EpicTasks>,
        /// What had to be mended in the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<String>,
    },
    /// A call ended without an answer that fits.
    CallFailed {
        part: DraftPart,
        call: u32,
        /// What kind of end.
        class: FailureClass,
        /// In which way the provider or the program gave up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<AgentFault>,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        help: Option<String>,
        /// All that is wrong with the answer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        problems: Vec<AnswerProblem>,
        /// When it is tried again; the part is given up if never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        again_at: Option<Time>,
    },
    /// A part is given up without another call.
    PartFailed {
        part: DraftPart,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        help: Option<String>,
    },
    /// A part that was given up is tried again.
    PartReopened { part: DraftPart },
    /// A plan was written.
    PlanWritten {
        path: String,
        /// Hash of its bytes.
        hash: String,
        tasks: usize,
    },
}

impl DraftFact {
    /// The part and the call that it is about, for facts about a call under way.
    pub(super) fn call(&self) -> Option<(&DraftPart, u32)> {
        match self {
            Self::UsageReported { part, call, .. }
            | Self::ProviderLimited { part, call, .. }
            | Self::AnswerTaken { part, call, .. }
            | Self::CallFailed { part, call, .. } => Some((part, *call)),
            _ => None,
        }
    }

    /// The part that it is about.
    pub fn part(&self) -> Option<&DraftPart> {
        match self {
            Self::CallIntended { part, .. }
            | Self::PartFailed { part, .. }
            | Self::PartReopened { part } => Some(part),
            other => other.call().map(|(part, _)| part),
        }
    }
}

/// The fact as the cost ledger knows it, where it is about money: a part counts as a task of its name.
pub fn to_cost_fact(fact: &DraftFact) -> Option<Fact> {
    let task = |part: &DraftPart| TaskId::new(format!("plan:{part}"));
    match fact {
        DraftFact::CallIntended { part, call, agent, provider, model, .. } => {
            Some(Fact::AttemptIntended {
                task: task(part),
                attempt: *call,
                agent: agent.clone(),
                provider: provider.clone(),
                model: model.clone(),
                branch: String::new(),
                reserved_usd: 0.0,
                model_reason: String::new(),
                session: None,
                continues: None,
                fresh: false,
            })
        }
        DraftFact::UsageReported { part, call, mark, usage } => Some(Fact::UsageReported {
            task: task(part),
            attempt: *call,
            mark: *mark,
            usage: usage.clone(),
        }),
        _ => None,
    }
}
