//! Why a wish was not granted, in words that say what helps.

/// What went wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// Nobody said who we are.
    #[error("no token for {host}: set GH_TOKEN, or log in with `gh auth login`")]
    NoToken { host: String },
    /// The token is not good.
    #[error("{host} rejected the token ({why}): set a new GH_TOKEN, or run `gh auth login`")]
    NotLoggedIn { host: String, why: String },
    /// The token may not do this.
    #[error(
        "{what} is not allowed ({why}): the token needs write access to contents and pull requests of the repository"
    )]
    Forbidden {
        /// What was asked for.
        what: String,
        /// In the forge's words.
        why: String,
    },
    /// It is not there, or not for us.
    #[error("{what}: not found, or not visible with this token")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// The forge refuses the wish as it is.
    #[error("{what} was refused ({status}): {why}")]
    Refused {
        /// What was asked for.
        what: String,
        /// The status of the answer.
        status: u16,
        /// In the forge's words.
        why: String,
    },
    /// Too many requests: nothing more may be asked before.
    #[error("rate-limited by {host}; retrying in {}s", after_ms.div_ceil(1000))]
    Limited { host: String, after_ms: u64 },
    /// The forge could not be reached, and the wish surely did not get there.
    #[error("cannot reach {host}: {why}")]
    Unreached {
        host: String,
        /// In the system's words.
        why: String,
    },
    /// It is not known whether the wish was granted: the connection broke, or the forge stumbled.
    #[error("{what}: unknown whether the request succeeded ({why})")]
    Unsure {
        /// What was asked for.
        what: String,
        why: String,
    },
    /// An answer that makes no sense.
    #[error("{what}: unexpected response ({why}); is the URL a GitHub API?")]
    Odd {
        /// What was asked for.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ForgeError {
    /// Trying again later may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Limited { .. } | Self::Unreached { .. } | Self::Unsure { .. } => true,
            Self::NoToken { .. }
            | Self::NotLoggedIn { .. }
            | Self::Forbidden { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::Odd { .. } => false,
        }
    }

    /// How long to leave the forge alone, if it said so.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Limited { after_ms, .. } => Some(*after_ms),
            _ => None,
        }
    }
}
