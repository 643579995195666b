//! What was typed. The doc comments are the help texts.

mod draft;
mod formats;
mod gates;
mod verbs;
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use draft::DraftArgs;
pub(crate) use formats::{ExportArgs, ImportArgs, ImportOrderArg, PushArgs, SuggestArgs};
pub(crate) use gates::{GatesArgs, GatesCommand, GatesImportArgs};
pub(crate) use verbs::{ConfigArgs, ConfigCommand, OpenArgs, SetArgs, ShellArgs, StopArgs};
pub(crate) use worker::{MergeArgs, WorkerArgs, WorkerCommand};

/// Many agents, one green main.
///
/// Mainstem runs a plan of tasks with many coding agents at once, each in its own git worktree. The
/// merge train (a merge queue) runs your checks on each result merged with the target branch, and
/// what passes lands there. Kill Mainstem at any moment: `mainstem run` continues, and no work is
/// lost.
#[derive(Debug, Parser)]
#[command(name = "mainstem", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 all requested tasks landed · 1 error · 2 ended with tasks that did \
    not land · 3 cancelled or interrupted (can be resumed) · 64 usage error.\n\
    New here? Try `mainstem demo`."
)]
pub(crate) struct CliArgs {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    /// The command to run and its arguments.
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct GlobalArgs {
    /// Run as if started in DIR.
    #[arg(short = 'C', id = "work_dir", value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Print the output as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print less output than usual.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Use verbose output (-vv for everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Disable colored output (as does NO_COLOR).
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Override a setting, for example run.jobs=4.
    #[arg(long = "config", value_name = "K=V", global = true)]
    pub(crate) config: Vec<String>,
}

/// The command to run and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Take a tour in a throwaway repository
    Demo(DemoArgs),
    /// Create mainstem.toml for this repository
    Init(InitArgs),
    /// Create a plan from a PRD; check, show, import, export
    Plan(PlanArgs),
    /// Import checks from another tool's gate file
    Gates(GatesArgs),
    /// Run a plan, or resume the current run
    Run(RunArgs),
    /// Show where every task stands
    #[command(aliases = ["ls", "ps", "list", "st"])]
    Status(RunQueryArgs),
    /// Show everything about one task
    Show(ShowArgs),
    /// Show the output of a task's agent or checks
    #[command(alias = "log")]
    Logs(LogsArgs),
    /// Show what a task changed
    Diff(DiffArgs),
    /// Draw the task graph
    Graph(GraphArgs),
    /// Show everything that happened, oldest first
    History(HistoryArgs),
    /// Show lessons learned from earlier attempts
    Lessons(LessonsArgs),
    /// List all runs of this repository
    Runs,
    /// Show the live view of a background run
    Watch,
    /// Stop the run, as Ctrl-C does
    Stop(StopArgs),
    /// Stop starting agents; running agents continue
    Pause,
    /// Start agents again after a pause or a used-up quota
    Resume,
    /// Cancel a task or the whole run
    Cancel(CancelArgs),
    /// Retry failed or cancelled tasks
    Retry(RetryArgs),
    /// Skip one or more tasks
    Skip(TaskListArgs),
    /// Change how many agents run at once
    Jobs(JobsArgs),
    /// List questions waiting for an answer
    #[command(alias = "inbox")]
    Questions(RunQueryArgs),
    /// Answer a question from an agent
    Answer(AnswerArgs),
    /// List tasks proposed by agents
    Proposals(RunQueryArgs),
    /// Accept proposed tasks into the run
    Accept(ProposalArgs),
    /// Reject tasks proposed by agents
    Reject(ProposalArgs),
    /// Open a sandboxed shell in a task's workspace
    Shell(ShellArgs),
    /// Open a task's workspace in your editor
    Open(OpenArgs),
    /// Show the merge train (the merge queue)
    Train(RunQueryArgs),
    /// Push, check and merge pull requests that are ready
    Merge(MergeArgs),
    /// Manage tasks as workers, with JSON output
    Worker(WorkerArgs),
    /// Show token use and cost, with a forecast
    Cost(CostArgs),
    /// Restore a snapshot of a task's work as a branch
    Restore(RestoreArgs),
    /// Undo the last landing
    Undo(UndoArgs),
    /// Merge a run's own branch into the target branch
    Land,
    /// Remove unused workspaces and branches
    Clean(CleanArgs),
    /// Check this machine, repository and configuration
    Doctor(DoctorArgs),
    /// List installed coding agents, versions and logins
    Agents,
    /// Show or change settings
    Config(ConfigArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
    /// Supervise one job (used by the engine).
    #[command(name = "__supervise", hide = true)]
    Supervise {
        /// The folder of the job.
        dir: PathBuf,
        /// Whatever the supervisor passes to itself.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Walk the steps of a script agent (used by the engine).
    #[command(name = "__script", hide = true)]
    Script {
        /// The file with the steps.
        file: PathBuf,
    },
    /// Speak with an agent over the Model Context Protocol (started by the agent).
    #[command(name = "__mcp", hide = true)]
    Mcp,
    /// Drive a coding agent's tool (used by the engine).
    #[command(name = "__drive", hide = true)]
    Drive {
        /// What to start and how.
        spec: PathBuf,
    },
    /// Sleep (used by the script agent).
    #[command(name = "__sleep", hide = true)]
    Sleep {
        /// How long to sleep, in milliseconds.
        ms: u64,
    },
    /// Empty a trash folder (started when a run is over).
    #[command(name = "__empty-trash", hide = true)]
    EmptyTrash {
        /// The trash folder to empty.
        trash: PathBuf,
    },
    /// Write the reference pages (used by the build).
    #[command(name = "__reference", hide = true)]
    Reference {
        /// The folder to write to.
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the repository and print its path.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Print mainstem.toml without writing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace an existing mainstem.toml.
    #[arg(long)]
    pub(crate) force: bool,
    /// Skip the trial run of the checks.
    #[arg(long)]
    pub(crate) no_try: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Skip running the checks on the target branch.
    #[arg(long)]
    pub(crate) no_try: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PlanArgs {
    /// A plan from a PRD.
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// What else to do with plans.
    #[command(subcommand)]
    pub(crate) command: Option<PlanCommand>,
}

/// What to do with plans.
#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Check a plan and report every error
    Check {
        /// Plan file (.toml, .yaml or .json).
        file: PathBuf,
    },
    /// Show a plan as a tree, list or graph
    Show {
        /// Plan file (.toml, .yaml or .json).
        file: PathBuf,
        /// Format of the output.
        #[arg(long, value_enum, default_value_t = PlanFormat::Tree)]
        format: PlanFormat,
    },
    /// Create a plan from another tool's task files
    Import(ImportArgs),
    /// Write a plan in another format
    Export(ExportArgs),
    /// Write task status back to the imported files
    Push(PushArgs),
    /// Suggest dependencies based on task texts
    Suggest(SuggestArgs),
}

/// How to show a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    /// Epics, tasks and dependencies, with the graph.
    Tree,
    /// A flowchart in Mermaid syntax.
    Mermaid,
    /// JSON, with levels and critical path.
    Json,
    /// Tasks that can run together.
    Batches,
    /// The graph without the list.
    Graph,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    /// Plan file; resumes the current run if omitted.
    pub(crate) plan: Option<PathBuf>,
    /// Number of agents to run at once.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) jobs: Option<u32>,
    /// Run only the tasks of this epic and their dependencies.
    #[arg(long, value_name = "E")]
    pub(crate) epic: Vec<String>,
    /// Run only this task and its dependencies.
    #[arg(long, value_name = "T")]
    pub(crate) task: Vec<String>,
    /// Show what would start without starting it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run in the background.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Start a new run instead of resuming the current one.
    #[arg(long)]
    pub(crate) new: bool,
    /// Start even if the checks fail on the target branch.
    #[arg(long)]
    pub(crate) allow_red: bool,
    /// Skip the checks before the run (target branch, agents, disk space).
    #[arg(long)]
    pub(crate) no_preflight: bool,
    /// Land on this branch instead, leaving all checkouts untouched.
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
}

/// Commands that look at a run.
#[derive(Debug, Args)]
pub(crate) struct RunQueryArgs {
    /// Show an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// ID of the task.
    pub(crate) task: String,
    /// Show only the prompt of the latest attempt.
    #[arg(long)]
    pub(crate) prompt: bool,
    /// Show the prompt of an earlier attempt.
    #[arg(long, value_name = "N", requires = "prompt")]
    pub(crate) attempt: Option<u32>,
    /// Show an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// Commands about several tasks.
#[derive(Debug, Args)]
pub(crate) struct TaskListArgs {
    /// IDs of the tasks.
    #[arg(required = true, value_name = "T")]
    pub(crate) tasks: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// IDs of the tasks.
    #[arg(required_unless_present = "all", value_name = "T")]
    pub(crate) tasks: Vec<String>,
    /// Retry every failed, conflicted, blocked or cancelled task
    #[arg(long)]
    pub(crate) all: bool,
    /// Add a message for the agent to the prompt
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Retry with another agent instead
    #[arg(long, value_name = "A")]
    pub(crate) agent: Option<String>,
    /// Start over instead of continuing from the work so far
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Task ID; shows all tasks, interleaved, if omitted.
    pub(crate) task: Option<String>,
    /// Keep printing new output.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show an earlier attempt.
    #[arg(long, value_name = "N", requires = "task")]
    pub(crate) attempt: Option<u32>,
    /// Show the output of checks instead of the agent.
    #[arg(long)]
    pub(crate) gates: bool,
    /// Show raw output, with escape sequences and protocol messages.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Show an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// ID of the task.
    pub(crate) task: String,
    /// Show only file names and line counts.
    #[arg(long)]
    pub(crate) stat: bool,
    /// Show the last snapshot of an earlier attempt.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Show an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Format of the output.
    #[arg(long, value_enum, default_value_t = GraphFormat::Picture)]
    pub(crate) format: GraphFormat,
    /// Show an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// How to show a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Boxes connected by lines.
    Picture,
    /// A flowchart in Mermaid syntax.
    Mermaid,
    /// Nodes and edges as JSON.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Show only events of this task.
    pub(crate) task: Option<String>,
    /// Show only events after this sequence number.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) after: u64,
    /// Keep printing new events.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show only this run instead of all runs.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LessonsArgs {
    /// What to do with lessons; lists them if omitted.
    #[command(subcommand)]
    pub(crate) command: Option<LessonsCommand>,
}

/// What to do with lessons.
#[derive(Debug, Subcommand)]
pub(crate) enum LessonsCommand {
    /// List domains with the number of lessons
    List,
    /// Show the lessons of a domain
    Show {
        /// Domain: database, api, frontend, testing, security, deployment or general.
        domain: String,
    },
    /// Delete lessons of a domain
    Forget {
        /// Domain whose lessons are deleted.
        domain: String,
        /// Delete lessons that contain this text.
        #[arg(required_unless_present = "all")]
        text: Option<String>,
        /// Delete all lessons of the domain.
        #[arg(long, conflicts_with = "text")]
        all: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Task IDs; cancels the whole run if omitted.
    #[arg(value_name = "T")]
    pub(crate) tasks: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Number of agents to run at once.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) n: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Question ID, for example Q1.
    pub(crate) question: String,
    /// Answer, or the number of an option.
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    /// Accept an answer that is not one of the options.
    #[arg(long)]
    pub(crate) free: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Group costs by this field.
    #[arg(long, value_enum, default_value_t = CostBy::Task)]
    pub(crate) by: CostBy,
    /// Print the output as comma-separated values.
    #[arg(long)]
    pub(crate) csv: bool,
    /// Show an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// What to sum by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostBy {
    /// One line for each attempt.
    Attempt,
    /// One line for each task.
    Task,
    /// One line for each epic.
    Epic,
    /// One line for each model.
    Model,
    /// One line for each agent.
    Agent,
    /// One line for each day (UTC).
    Day,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalArgs {
    /// Proposal IDs, as listed by `mainstem proposals`.
    #[arg(required = true, value_name = "P")]
    pub(crate) proposals: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Task ID; optional with --list.
    #[arg(required_unless_present = "list")]
    pub(crate) task: Option<String>,
    /// Attempt to restore [default: the last one].
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Snapshot of that attempt to restore [default: the last one].
    #[arg(long, value_name = "N", visible_alias = "number")]
    pub(crate) snapshot: Option<u32>,
    /// List snapshots without restoring any.
    #[arg(long, conflicts_with_all = ["snapshot", "branch"])]
    pub(crate) list: bool,
    /// Branch to create [default: restore/T]; an existing branch is never moved.
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Show what would be undone without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// List what would be removed without removing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove all workspaces, branches, refs, history and logs of Mainstem.
    #[arg(long)]
    pub(crate) everything: bool,
    /// With --everything: also remove work that has not landed.
    #[arg(long, requires = "everything")]
    pub(crate) discard_unlanded: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to write the script for.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page per command to DIR instead.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
