//! Names of things. Knows nothing of what they name.
//!
//! Text ids come from people and are checked once, where the plan is read; inside the core, tasks
//! are dense indices.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest id a plan may use. It becomes a branch name and a folder, and both have limits.
pub const ID_LEN_MAX: usize = 64;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("an id cannot be empty")]
    Empty,
    #[error("an id has at most {ID_LEN_MAX} characters")]
    TooLong,
    /// A character outside the allowed set, or a bad first one.
    #[error("an id starts with a letter or digit, followed by letters, digits, `.`, `_` or `-`")]
    Character,
    /// Fine characters, but no valid branch name.
    #[error("`{0}` is not allowed in a branch name")]
    Branch(&'static str),
}

/// Checks an id as contract.md section 2 asks: refused, never cleaned.
pub fn check_id(text: &str) -> Result<(), IdError> {
    let Some(first) = text.bytes().next() else { return Err(IdError::Empty) };
    if text.len() > ID_LEN_MAX {
        return Err(IdError::TooLong);
    }
    let body = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if !first.is_ascii_alphanumeric() || !text.bytes().all(body) {
        return Err(IdError::Character);
    }
    if text.contains("..") {
        return Err(IdError::Branch(".."));
    }
    let lower = text.to_ascii_lowercase();
    if lower.ends_with(".lock") {
        return Err(IdError::Branch(".lock at the end"));
    }
    if text.ends_with('.') {
        return Err(IdError::Branch("a dot at the end"));
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a text that was checked where it came in.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id! {
    /// A task's id as the plan writes it.
    TaskId
}
text_id! {
    /// An epic's id as the plan writes it.
    EpicId
}
text_id! {
    /// One run: a plan being worked off, through all its engine lives.
    RunId
}
text_id! {
    /// A git object id in hex. The core compares them and never looks inside.
    Oid
}

/// A task's place in the plan of one revision. Dense, so maps over tasks are vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIx(pub u32);

impl TaskIx {
    /// For indexing a vector.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A moment in milliseconds since the Unix epoch. Time is an input here, never read.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// The moment this many milliseconds later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
    /// Milliseconds from `earlier` until this moment; zero if the clock went back.
    pub fn since_ms(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_refused_never_cleaned() {
        for good in ["T-001", "a", "9", "A.b_c-d", &"x".repeat(64)] {
            assert_eq!(check_id(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "../x",
            ".git",
            "-x",
            "a/b",
            "a b",
            "a..b",
            "x.lock",
            "x.LOCK",
            "x.",
            "é",
            "a\n",
            &"x".repeat(65),
        ] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
    }
}
