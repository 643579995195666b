//! Why a check did not pass: read from how its process ended and from the end of its output. Told apart are
//! things that the work did wrong and things that are wrong with the place in which the check ran. Knows how
//! common shells, package managers and languages put it; knows nothing of tasks and facts.

mod gate_output;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::fact::AgentEnding;
use crate::plan::quantities::{render_duration_ms, render_size};

pub use gate_output::{
    most_telling_line, node_setup_command, output_in_detail, python_setup_command,
};

/// Why a check did not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GateFailureCause {
    /// The shell, or a program it started, did not find a command (usually exit code 127).
    CommandNotFound { program: String },
    /// A command is there and may not be executed (exit code 126).
    NotExecutable { program: String },
    /// A library or tool that a package manager installs is not installed where the check ran.
    MissingDependency {
        name: String,
        /// The command that installs such things here.
        setup: String,
    },
    /// The sandbox did not let the check write somewhere.
    SandboxDenied {
        /// The path that the output names.
        path: String,
        /// The folder to allow.
        allow: String,
    },
    /// A name or host on the network is unreachable.
    NoNetwork {
        /// The sandbox keeps the network away.
        sandboxed: bool,
    },
    /// By its own word it tested nothing.
    NoTests {},
    /// It ran for longer than it may.
    TimedOut {
        /// How long that is; 0 if not known.
        #[serde(default)]
        limit_ms: u64,
    },
    /// A signal ended it.
    Killed { signal: i32 },
    /// There was too little memory for it.
    OutOfMemory {
        /// What it may use, if that is why.
        #[serde(default)]
        limit: Option<u64>,
    },
    /// It passes in the user's checkout and fails in a clean one.
    CleanCheckoutOnly {
        /// What only the user's checkout has, if that was found out.
        #[serde(default)]
        present: Option<String>,
        /// The command that makes it, if known.
        #[serde(default)]
        setup: Option<String>,
    },
    /// It never ran, or nobody saw its end.
    CouldNotRun {},
    /// It ran and said no.
    Failed {},
}

/// What is known of the place in which a check ran.
pub struct GateEnvironment<'a> {
    /// Does the sandbox keep the check from writing there, although the user could?
    pub denies_write: &'a dyn Fn(&str) -> bool,
    /// Is there such a file or folder in the checkout?
    pub has: &'a dyn Fn(&str) -> bool,
    /// The sandbox keeps the network away.
    pub no_network: bool,
    pub home: Option<&'a str>,
    /// How long a check may run.
    pub limit_ms: u64,
}

impl std::fmt::Debug for GateEnvironment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("home", &self.home).finish_non_exhaustive()
    }
}

/// Says why a check did not pass. `output` is the end of what it printed.
pub fn classify_failure(
    gate: &str,
    ending: &AgentEnding,
    output: &str,
    around: &GateEnvironment<'_>,
) -> GateFailureCause {
    let code = match ending {
        AgentEnding::TimedOut { .. } => {
            return GateFailureCause::TimedOut { limit_ms: around.limit_ms };
        }
        AgentEnding::OutOfMemory { limit } => {
            return GateFailureCause::OutOfMemory { limit: Some(*limit) };
        }
        AgentEnding::Signalled { signal } => return GateFailureCause::Killed { signal: *signal },
        AgentEnding::Stopped {} | AgentEnding::NotStarted { .. } | AgentEnding::Vanished {} => {
            return GateFailureCause::CouldNotRun {};
        }
        AgentEnding::Exited { code } => *code,
    };
    let lines: Vec<&str> = output.lines().collect();
    if let Some(path) = gate_output::find_denied_path(&lines, around) {
        let allow = gate_output::folder_to_allow(&path, around.home);
        return GateFailureCause::SandboxDenied {
            path: gate_output::shorten_path(&path, around.home),
            allow,
        };
    }
    if gate_output::is_out_of_memory(&lines) {
        return GateFailureCause::OutOfMemory { limit: None };
    }
    if code == 137 {
        return GateFailureCause::Killed { signal: 9 };
    }
    if let Some((name, setup)) = gate_output::find_missing_dependency(gate, &lines, around) {
        return GateFailureCause::MissingDependency { name, setup };
    }
    if let Some(program) = gate_output::find_missing_program(gate, code, &lines) {
        return GateFailureCause::CommandNotFound { program };
    }
    if code == 126 {
        return GateFailureCause::NotExecutable {
            program: gate_output::find_refused_program(gate, &lines),
        };
    }
    if gate_output::is_network_missing(&lines) {
        return GateFailureCause::NoNetwork { sandboxed: around.no_network };
    }
    if gate_output::ran_no_tests(&lines) {
        return GateFailureCause::NoTests {};
    }
    GateFailureCause::Failed {}
}

impl GateFailureCause {
    /// The word in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::CommandNotFound { .. } => "command_not_found",
            Self::NotExecutable { .. } => "not_executable",
            Self::MissingDependency { .. } => "missing_dependency",
            Self::SandboxDenied { .. } => "sandbox_denied",
            Self::NoNetwork { .. } => "no_network",
            Self::NoTests {} => "no_tests",
            Self::TimedOut { .. } => "timed_out",
            Self::Killed { .. } => "killed",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::CleanCheckoutOnly { .. } => "clean_checkout_only",
            Self::CouldNotRun {} => "could_not_run",
            Self::Failed {} => "failed",
        }
    }

    /// In a few words; none where the output itself says it best.
    pub fn describe(&self) -> Option<String> {
        Some(match self {
            Self::CommandNotFound { program } => format!("command not found: {program}"),
            Self::NotExecutable { program } => format!("not executable: {program}"),
            Self::MissingDependency { name, .. } => format!("missing dependency: {name}"),
            Self::SandboxDenied { path, .. } => format!("blocked by the sandbox: write to {path}"),
            Self::NoNetwork { sandboxed: true } => "no network inside the sandbox".to_owned(),
            Self::NoNetwork { sandboxed: false } => "the network is unreachable".to_owned(),
            Self::NoTests {} => "ran no tests".to_owned(),
            Self::TimedOut { limit_ms: 0 } => "timed out".to_owned(),
            Self::TimedOut { limit_ms } => {
                format!("timed out after {}", render_duration_ms(*limit_ms))
            }
            Self::Killed { signal } => format!("killed by signal {signal}"),
            Self::OutOfMemory { limit: Some(limit) } => {
                format!("out of memory (limit {})", render_size(*limit))
            }
            Self::OutOfMemory { limit: None } => "out of memory".to_owned(),
            Self::CleanCheckoutOnly { present: Some(present), .. } => {
                format!("passes in your checkout because {present} is there, fails in a clean one")
            }
            Self::CleanCheckoutOnly { .. } => {
                "passes in your checkout, fails in a clean one".to_owned()
            }
            Self::CouldNotRun {} | Self::Failed {} => return None,
        })
    }

    /// What helps: a setting or a command; none where only the work can be mended.
    pub fn fix_hint(&self) -> Option<String> {
        let setup_step = |setup: &str| {
            format!("fresh workspaces need a setup step: [workspace] setup = [\"{setup}\"]")
        };
        Some(match self {
            Self::CommandNotFound { program } if program.contains('/') => {
                format!("commit {program}, or change the command in [gates] verify")
            }
            Self::CommandNotFound { program } => {
                format!("install {program}, or change the command in [gates] verify")
            }
            Self::NotExecutable { program } => {
                let file = program.strip_prefix("./").unwrap_or(program);
                format!("make the file executable: git update-index --chmod=+x {file}, then commit")
            }
            Self::MissingDependency { setup, .. } => setup_step(setup),
            Self::SandboxDenied { .. } if self.needs_own_home() => {
                "give the check a home folder of its own: write HOME=\"$TMPDIR\" before the command in [gates] verify".to_owned()
            }
            Self::SandboxDenied { allow, .. } => {
                format!("allow this path: [sandbox] write = [\"{allow}\"]")
            }
            Self::NoNetwork { sandboxed: true } => {
                "allow network access: [sandbox] network = \"open\"".to_owned()
            }
            Self::NoTests {} => "if that is intended: [gates] need_tests = false".to_owned(),
            Self::TimedOut { .. } => "raise [gates] timeout if the check needs longer".to_owned(),
            Self::OutOfMemory { limit: Some(_) } => {
                "raise [limits] memory_per_agent if the check needs more".to_owned()
            }
            Self::CleanCheckoutOnly { setup: Some(setup), .. } => setup_step(setup),
            Self::CleanCheckoutOnly { present: Some(present), .. } => {
                format!("create {present} in a setup step ([workspace] setup), or commit {present}")
            }
            Self::CleanCheckoutOnly { .. } => {
                "the check may need uncommitted files, or a setup step ([workspace] setup)"
                    .to_owned()
            }
            Self::NoNetwork { sandboxed: false }
            | Self::Killed { .. }
            | Self::OutOfMemory { limit: None }
            | Self::CouldNotRun {}
            | Self::Failed {} => return None,
        })
    }

    /// Whether the check writes to the home folder under a name that changes with every run: no setting can
    /// allow that path.
    pub fn needs_own_home(&self) -> bool {
        let Self::SandboxDenied { allow, .. } = self else { return false };
        let name = allow.strip_prefix("~/").filter(|name| !name.contains('/'));
        let is_process_id =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        name.is_some_and(|name| name.split(['-', '.', '_']).any(is_process_id))
    }

    /// The place is to blame, not the work: another attempt of an agent cannot help, and there is nothing for
    /// later agents to learn from it.
    pub fn is_environment_fault(&self) -> bool {
        match self {
            Self::CommandNotFound { .. }
            | Self::NotExecutable { .. }
            | Self::MissingDependency { .. }
            | Self::SandboxDenied { .. }
            | Self::NoNetwork { .. }
            | Self::Killed { .. }
            | Self::OutOfMemory { .. }
            | Self::CleanCheckoutOnly { .. }
            | Self::CouldNotRun {} => true,
            Self::NoTests {} | Self::TimedOut { .. } | Self::Failed {} => false,
        }
    }
}
