//! What really happened, written down by those who did it, outside the product's reach.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "kebab-case")]
pub enum ChaosEvent {
    Start {
        task: String,
        attempt: u32,
        /// The commit it was told it starts from.
        base: String,
    },
    /// An agent is about to do a step.
    Doing {
        task: String,
        attempt: u32,
        /// The step, from 0.
        n: usize,
    },
    /// An agent has done a step.
    Did {
        task: String,
        attempt: u32,
        /// The step, from 0.
        n: usize,
    },
    /// An agent is about to end as its script says.
    End { task: String, attempt: u32 },
    /// A gate judged a tree.
    Gate { tree: String, passed: bool },
    /// Somebody else committed to the target branch.
    Others { commit: String },
    /// Somebody else moved the target branch elsewhere: what was only there is theirs to miss.
    Withdrawn { from: String },
    /// Somebody destroyed a task's workspace: what was not kept by then is gone.
    Destroyed { task: String },
    /// The user wrote a file of the checkout and did not commit it.
    Edited {
        path: String,
        /// What is in it.
        text: String,
    },
    /// The user put changes on the stash.
    Stashed { commit: String },
    /// The attacker did something.
    Fault { what: String },
}

/// Name of the file in the ledger's folder.
const FILE: &str = "events";

/// Writes one line, in one piece.
pub fn note(folder: &Path, event: &ChaosEvent) -> io::Result<()> {
    let mut line = serde_json::to_string(event).map_err(io::Error::other)?;
    line.push('\n');
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(FILE))?;
    file.write_all(line.as_bytes())
}

/// Begins it. Behind Landlock an agent can write to what was there when it started, and make nothing new
/// in a folder that holds something hidden, such as a home.
pub fn begin(folder: &Path) -> io::Result<()> {
    fs::write(folder.join(FILE), "")
}

/// All lines so far.
pub fn read(folder: &Path) -> io::Result<Vec<ChaosEvent>> {
    let text = match fs::read_to_string(folder.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

/// How many lines there are, for those who wait for the next one.
pub fn length(folder: &Path) -> usize {
    fs::read(folder.join(FILE)).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

/// Forgets all lines but the first so many, as if the rest had not happened yet. Gives back how it was.
pub fn cut(folder: &Path, lines: usize) -> io::Result<String> {
    let path = folder.join(FILE);
    let whole = fs::read_to_string(&path)?;
    let kept: String = whole.split_inclusive('\n').take(lines).collect();
    fs::write(&path, kept)?;
    Ok(whole)
}

/// Makes the ledger what it was.
pub fn restore(folder: &Path, whole: &str) -> io::Result<()> {
    fs::write(folder.join(FILE), whole)
}
