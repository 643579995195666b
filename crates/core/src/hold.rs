//! Finished work that is held before it lands while other work passes: for which reason, and who ends the
//! wait. Which work has such a reason is found out elsewhere.

use serde::{Deserialize, Serialize};

use crate::id::{Oid, TaskId};

/// A change to a file that only a person may let pass.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GuardedChange {
    /// The file, from the root of the repository.
    pub path: String,
    /// Its new content; none if the work removes it.
    #[serde(default)]
    pub blob: Option<Oid>,
    /// What makes it guarded, such as the gate that runs it.
    pub because: String,
}

/// Why work is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum HoldReason {
    /// It changes files that decide about runs: a person accepts or rejects that.
    GuardedFiles { changes: Vec<GuardedChange> },
    /// The user's own edits in a checkout of the target branch are in its way: it lands once they are gone.
    CheckoutInTheWay {
        checkout: String,
        /// The user's files that are in the way.
        paths: Vec<String>,
        /// What it is, if it is not about files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trouble: Option<CheckoutProblem>,
    },
    /// Its gates ask for a person's approval, and all others have passed on the merged tree.
    Approval { merged: Oid },
}

/// Why a checkout cannot follow, other than by the user's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutProblem {
    /// What is wrong there.
    pub what: String,
    /// What a person does about it.
    pub fix: String,
}

/// The kinds of [`HoldReason`]. Work has at most one hold of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    GuardedFiles,
    CheckoutInTheWay,
    Approval,
}

impl HoldReason {
    pub fn kind(&self) -> HoldKind {
        match self {
            Self::GuardedFiles { .. } => HoldKind::GuardedFiles,
            Self::CheckoutInTheWay { .. } => HoldKind::CheckoutInTheWay,
            Self::Approval { .. } => HoldKind::Approval,
        }
    }

    /// What a person does about a checkout in the way; none if it is something else.
    pub fn checkout_fix(&self) -> Option<&str> {
        match self {
            Self::GuardedFiles { .. } | Self::Approval { .. } => None,
            Self::CheckoutInTheWay { trouble: Some(trouble), .. } => Some(&trouble.fix),
            Self::CheckoutInTheWay { trouble: None, .. } => {
                Some("git stash -u or git commit there")
            }
        }
    }

    /// For people, without the task.
    pub fn describe(&self) -> String {
        match self {
            Self::GuardedFiles { changes } => {
                let one = |change: &GuardedChange| {
                    let verb = if change.blob.is_some() { "changes" } else { "removes" };
                    format!("{verb} {} ({})", change.path, change.because)
                };
                let all: Vec<String> = changes.iter().map(one).collect();
                format!("waiting for your decision: the work {}", all.join(", "))
            }
            Self::CheckoutInTheWay { checkout, trouble: Some(trouble), .. } => {
                format!("the checkout {checkout} cannot be updated: {}", trouble.what)
            }
            Self::CheckoutInTheWay { checkout, paths, trouble: None } => {
                let (noun, verb) =
                    if paths.len() == 1 { ("change", "is") } else { ("changes", "are") };
                let paths = paths.join(", ");
                format!("your uncommitted {noun} in {checkout} {verb} in the way: {paths}")
            }
            Self::Approval { .. } => "waiting for your approval".to_owned(),
        }
    }
}

/// Work is held from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldFact {
    pub task: TaskId,
    pub attempt: u32,
    #[serde(flatten)]
    pub reason: HoldReason,
}

/// That reason no longer holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldReleaseFact {
    pub task: TaskId,
    pub attempt: u32,
    /// Which kind of reason.
    pub kind: HoldKind,
    /// `person`, or `engine` where the reason went away by itself.
    pub by: String,
}
