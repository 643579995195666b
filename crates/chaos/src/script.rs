//! What a scripted agent does, attempt by attempt. Data only: the agent follows it, the oracle knows
//! from it what each finished step must have left.

use serde::{Deserialize, Serialize};

/// All attempts of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosScript {
    pub task: String,
    pub needs: Vec<String>,
    /// First, second, …; the last one stands for all that follow.
    pub attempts: Vec<ChaosAttempt>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosAttempt {
    pub steps: Vec<ChaosStep>,
    pub end: ChaosAttemptEnd,
}

/// One thing an agent does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosStep {
    /// Writes a file of its own.
    Write {
        path: String,
        /// How often the line that names task, attempt and step is repeated.
        lines: u32,
    },
    /// Adds a line to a file that others edit too.
    Line {
        path: String,
    },
    /// Deletes a file of its own written before.
    Remove {
        path: String,
    },
    Commit,
    /// Reports money spent, in millionths of a dollar.
    Usage {
        micros: u64,
    },
    Pause {
        ms: u64,
    },
    /// Waits until the first attempt of another task has begun, if it ever does.
    Await {
        task: String,
    },
    /// Asks a question that answers itself soon, and reads the answer.
    Ask,
    Trick(ChaosTrick),
}

/// What no agent should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosTrick {
    /// Survives SIGTERM from here on.
    IgnoreTerm,
    /// Leaves a process in a session of its own.
    Daemon,
    /// Leaves a process that keeps standard output open.
    HoldOutput,
    Flood,
    /// Prints invalid UTF-8, NUL bytes and terminal escapes.
    Garbage,
    DeleteWorkspace,
    /// Points the workspace's `.git` file at nothing.
    BreakGitFile,
    /// Points the workspace's `.git` file at the user's repository.
    StealGitFile,
    IndexLock,
    /// Overwrites the workspace's index with rubbish.
    CorruptIndex,
    /// Leaves its branch for a detached HEAD.
    Detach,
    /// Leaves its branch for another one.
    Switch,
    /// Tells the provider's limit and goes; costs no retry.
    RateLimit,
    /// Writes until the disk is full, and tidies up a moment later.
    FillDisk,
    /// Writes until the disk is full, and leaves it so.
    HoardDisk,
}

impl ChaosTrick {
    /// All that are harmless to other rounds on the same disk.
    pub const ALL: [Self; 13] = [
        Self::IgnoreTerm,
        Self::Daemon,
        Self::HoldOutput,
        Self::Flood,
        Self::Garbage,
        Self::DeleteWorkspace,
        Self::BreakGitFile,
        Self::StealGitFile,
        Self::IndexLock,
        Self::CorruptIndex,
        Self::Detach,
        Self::Switch,
        Self::RateLimit,
    ];

    /// Whether work that was not committed may be gone after it.
    pub fn destroys(self) -> bool {
        matches!(self, Self::DeleteWorkspace)
    }

    /// Whether the attempt can still succeed.
    pub fn spoils(self) -> bool {
        matches!(
            self,
            Self::DeleteWorkspace
                | Self::BreakGitFile
                | Self::StealGitFile
                | Self::RateLimit
                | Self::HoardDisk
        )
    }
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosAttemptEnd {
    /// With this exit code.
    Exit(u8),
    Hang,
    Crash,
}

/// The file that fills a disk.
pub const FILLER: &str = "filler";

/// A file whose name makes the gate red.
pub const RED: &str = "red";

impl ChaosScript {
    /// What the n-th attempt does, counted from 1.
    pub fn attempt(&self, n: u32) -> Option<&ChaosAttempt> {
        let index = usize::try_from(n).ok()?.checked_sub(1)?;
        self.attempts.get(index).or_else(|| self.attempts.last())
    }

    /// Whether every attempt works on files of its own, ends well and is not red.
    pub fn is_good(&self) -> bool {
        self.attempts.iter().all(|attempt| {
            attempt.end == ChaosAttemptEnd::Exit(0)
                && attempt.steps.iter().any(|step| matches!(step, ChaosStep::Write { .. }))
                && attempt.steps.iter().all(|step| match step {
                    ChaosStep::Write { path, .. } => !path.ends_with(RED),
                    ChaosStep::Line { .. } => false,
                    ChaosStep::Trick(trick) => !trick.spoils(),
                    ChaosStep::Remove { .. }
                    | ChaosStep::Commit
                    | ChaosStep::Usage { .. }
                    | ChaosStep::Pause { .. }
                    | ChaosStep::Await { .. }
                    | ChaosStep::Ask => true,
                })
        })
    }
}

/// What the n-th step of an attempt writes into a file.
pub fn content(task: &str, attempt: u32, step: usize, lines: u32) -> String {
    line(task, attempt, step).repeat(usize::try_from(lines).unwrap_or(1))
}

/// The line that nobody else writes.
pub fn line(task: &str, attempt: u32, step: usize) -> String {
    format!("{task} attempt {attempt} step {step}\n")
}
