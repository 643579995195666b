//! What may go wrong with a journal, and what to do about it.
//!
//! An error names the place of the journal in words (a path, or a URL without a password), because not every store
//! is a file. Errors are values that can be cloned, because one failed commit is the answer to several waiting callers.

use thiserror::Error;

/// Why the journal could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The store holds no journal yet.
    #[error("no journal at {place}: nothing has run in this repository yet")]
    Absent {
        /// Where it was looked for.
        place: String,
    },
    /// The file is not a journal, or a damaged one. It was left as it is.
    #[error(
        "cannot read the journal {place}: {detail}; the file was not changed. Restore a backup, or move the file away to start with an empty journal"
    )]
    Corrupt {
        /// The journal in question.
        place: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A newer program has upgraded the file.
    #[error(
        "the journal {place} has schema {found}, but this version supports schemas up to {known}: upgrade mainstem"
    )]
    Newer {
        /// The journal in question.
        place: String,
        found: u32,
        /// The newest schema this program knows.
        known: u32,
    },
    /// The file has not been upgraded yet, and a reader may not do it.
    #[error(
        "the journal {place} still has schema {found}, but this version reads schema {known}: `mainstem run` upgrades the journal (and keeps a backup)"
    )]
    Older {
        /// The journal in question.
        place: String,
        found: u32,
        /// The schema this program reads.
        known: u32,
    },
    /// Somebody else has taken over writing.
    #[error(
        "another run has taken over the journal (epoch {current}, ours is {ours}): this run stops"
    )]
    Fenced {
        /// The epoch the caller writes under.
        ours: u64,
        current: u64,
    },
    /// No space is left. Nothing of the batch was kept, and nothing older is lost.
    #[error(
        "no disk space left for the journal {place}: free some disk space and run again; no recorded fact is lost"
    )]
    Full {
        /// The journal in question.
        place: String,
    },
    /// The operating system refused or failed.
    #[error("the journal {place} could not be {doing}: {detail}")]
    Io {
        /// The journal in question.
        place: String,
        /// What was being done to it, as a participle.
        doing: &'static str,
        /// What the system said.
        detail: String,
    },
    /// Ownership of the store could not be examined or taken; this says nothing about who the owner is.
    #[error(
        "cannot {doing} the lock file {place}: {detail}; check that the folder exists and is writable, on a file system with locks"
    )]
    Ownership {
        /// The lock file in question.
        place: String,
        /// What was being done to the lock file, as an infinitive.
        doing: &'static str,
        /// What the system said.
        detail: String,
    },
    /// Somebody held the lock for longer than the busy timeout.
    #[error(
        "the journal {place} is locked by another process: find the process with `fuser -v` on the file and try again"
    )]
    Busy {
        /// The journal in question.
        place: String,
    },
    /// The database library in this build can damage a journal.
    #[error(
        "this build has {library} {found}, which is not safe to use: build with {needed} or newer"
    )]
    OldLibrary {
        library: &'static str,
        found: String,
        /// The oldest version that is safe.
        needed: &'static str,
    },
    /// An earlier append failed in a way that leaves the outcome open.
    #[error("an earlier write to the journal {place} failed: reopen the journal before writing")]
    Halted {
        /// The journal in question.
        place: String,
    },
    /// The writer thread is gone.
    #[error("the journal's writer has ended, this fact was not recorded")]
    Closed,
    /// A fact is larger than any fact may be.
    #[error("a fact of type {kind} has {bytes} bytes, at most {bytes_max} are allowed")]
    TooBig {
        kind: String,
        bytes: usize,
        /// The largest size allowed.
        bytes_max: usize,
    },
}
