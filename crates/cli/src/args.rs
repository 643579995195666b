//! What was typed. The doc comments are the help texts.

mod draft;
mod formats;
mod gates;
mod verbs;
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use draft::DraftArgs;
pub(crate) use formats::{ExportArgs, ImportArgs, OrderArg, PushArgs, SuggestArgs};
pub(crate) use gates::{GatesArgs, GatesCommand, GatesImportArgs};
pub(crate) use verbs::{ConfigArgs, ConfigCommand, OpenArgs, SetArgs, ShellArgs, StopArgs};
pub(crate) use worker::{MergeArgs, WorkerArgs, WorkerCommand};

/// Many agents, one green main.
///
/// Mainstem runs a graph of tasks with many coding agents at once, each in its own git worktree,
/// and lands their verified work on one branch. Kill it at any instant and nothing is lost.
#[derive(Debug, Parser)]
#[command(name = "mainstem", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 everything asked for landed · 1 could not run · 2 came to rest \
    with tasks not landed · 3 cancelled or interrupted (resumable) · 64 wrong usage.\n\
    Start here: mainstem demo"
)]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Work as if started in DIR.
    #[arg(short = 'C', id = "work_dir", value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Print data as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say less.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// No colours (also with NO_COLOR set).
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Set a configuration key for this call, for example run.jobs=4.
    #[arg(long = "config", value_name = "K=V", global = true)]
    pub(crate) config: Vec<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take a tour in a throw-away repository
    Demo(DemoArgs),
    /// Look at this repository and write mainstem.toml
    Init(InitArgs),
    /// Make a plan from a PRD; check, show, import, export
    Plan(PlanArgs),
    /// Import gates from other tools' files
    Gates(GatesArgs),
    /// Run a plan until nothing is left to do, or resume
    Run(RunArgs),
    /// Show where every task stands
    #[command(aliases = ["ls", "ps", "list", "st"])]
    Status(LookArgs),
    /// Show everything about one task
    Show(ShowArgs),
    /// Show what a task's agent or gates printed
    #[command(alias = "log")]
    Logs(LogsArgs),
    /// Show what a task changed
    Diff(DiffArgs),
    /// Draw the task graph
    Graph(GraphArgs),
    /// Show everything that happened, in order
    History(HistoryArgs),
    /// Show what earlier attempts taught later ones
    Lessons(LessonsArgs),
    /// List all runs of this repository
    Runs,
    /// Follow a run in the background
    Watch,
    /// Stop a running run, as Ctrl-C does
    Stop(StopArgs),
    /// Start no new agents; running ones continue
    Pause,
    /// Let agents start again
    Resume,
    /// Cancel a task, or the whole run
    Cancel(CancelArgs),
    /// Try tasks again
    Retry(RetryArgs),
    /// Skip a task
    Skip(TasksArgs),
    /// Change how many agents work at once
    Jobs(JobsArgs),
    /// List questions that wait for an answer
    #[command(alias = "inbox")]
    Questions(LookArgs),
    /// Answer a question
    Answer(AnswerArgs),
    /// List tasks that agents proposed
    Proposals(LookArgs),
    /// Make proposed tasks part of the run
    Accept(ProposalArgs),
    /// Decline proposed tasks
    Reject(ProposalArgs),
    /// Open a shell in a task's workspace, in its sandbox
    Shell(ShellArgs),
    /// Open a task's workspace in your editor
    Open(OpenArgs),
    /// Show the merge train: queued, verified, landed
    Train(LookArgs),
    /// Push, check and merge pull requests that are ready
    Merge(MergeArgs),
    /// Drive the run as workers with states, in JSON
    Worker(WorkerArgs),
    /// Show tokens and money, and what the rest may cost
    Cost(CostArgs),
    /// Bring a snapshot of a task's work back as a branch
    Restore(RestoreArgs),
    /// Undo the last landing
    Undo(UndoArgs),
    /// Bring a run's own branch over to the target branch
    Land,
    /// Remove workspaces and branches that are not needed
    Clean(CleanArgs),
    /// Check this machine, repository and configuration
    Doctor(DoctorArgs),
    /// List installed coding agents, versions and logins
    Agents,
    /// Show or write settings
    Config(ConfigArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
    /// Supervise one job (used by the engine).
    #[command(name = "__supervise", hide = true)]
    Supervise {
        /// The job's folder.
        dir: PathBuf,
        /// Whatever the supervisor passes to itself.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Walk the steps of a script agent (used by the engine).
    #[command(name = "__script", hide = true)]
    Script {
        /// The steps.
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
        /// How long.
        ms: u64,
    },
    /// Empty a trash folder (started when a run is over).
    #[command(name = "__empty-trash", hide = true)]
    EmptyTrash {
        /// The folder.
        trash: PathBuf,
    },
    /// Write the reference pages (used by the build).
    #[command(name = "__reference", hide = true)]
    Reference {
        /// Where to.
        dir: PathBuf,
    },
}

/// `demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the repository and say where it is.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// `init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Print what would be written, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace an existing mainstem.toml.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not try the checks.
    #[arg(long)]
    pub(crate) no_try: bool,
}

/// `doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Do not run the checks on the target branch.
    #[arg(long)]
    pub(crate) no_try: bool,
}

/// `plan`
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
    /// Check a plan whole: every error in one report, with place and cure.
    Check {
        /// The plan (.toml, .yaml or .json).
        file: PathBuf,
    },
    /// Show a plan.
    Show {
        /// The plan (.toml, .yaml or .json).
        file: PathBuf,
        /// How.
        #[arg(long, value_enum, default_value_t = PlanFormat::Tree)]
        format: PlanFormat,
    },
    /// Make a plan of another tool's task files.
    Import(ImportArgs),
    /// Write a plan, or the present run's, in another tool's format or as a picture.
    Export(ExportArgs),
    /// Write where the run's tasks stand into the files the plan was imported from.
    Push(PushArgs),
    /// Name edges that the texts of a plan hint at.
    Suggest(SuggestArgs),
}

/// How to show a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    /// Epics, tasks and their edges, with a picture of the graph.
    Tree,
    /// A Mermaid flowchart.
    Mermaid,
    /// The plan as JSON, with levels and critical path.
    Json,
    /// Which tasks could run together.
    Batches,
    /// Only the picture of the graph.
    Graph,
}

/// `run`
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    /// The plan; without one the present run goes on.
    pub(crate) plan: Option<PathBuf>,
    /// Agents at once.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) jobs: Option<u32>,
    /// Only tasks of this epic, and what they need.
    #[arg(long, value_name = "E")]
    pub(crate) epic: Vec<String>,
    /// Only this task, and what it needs.
    #[arg(long, value_name = "T")]
    pub(crate) task: Vec<String>,
    /// Say what would start, and start nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on in the background.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Start another run even if one exists.
    #[arg(long)]
    pub(crate) new: bool,
    /// Start although the checks fail on the target branch: the plan is to make them pass.
    #[arg(long)]
    pub(crate) allow_red: bool,
    /// Start without looking at checks, agents and disk first.
    #[arg(long)]
    pub(crate) no_preflight: bool,
    /// Land on this branch and leave every checkout alone.
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
}

/// Commands that look at a run.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// `show`
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The task.
    pub(crate) task: String,
    /// Only the prompt of its newest attempt.
    #[arg(long)]
    pub(crate) prompt: bool,
    /// The prompt of an earlier attempt.
    #[arg(long, value_name = "N", requires = "prompt")]
    pub(crate) attempt: Option<u32>,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// Commands about several tasks.
#[derive(Debug, Args)]
pub(crate) struct TasksArgs {
    /// The tasks.
    #[arg(required = true, value_name = "T")]
    pub(crate) tasks: Vec<String>,
}

/// `retry`
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The tasks.
    #[arg(required_unless_present = "all", value_name = "T")]
    pub(crate) tasks: Vec<String>,
    /// Every task that failed, conflicted, is blocked by its agent, or was cancelled
    #[arg(long)]
    pub(crate) all: bool,
    /// Tell the agent something; it stands in the prompt
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Let another agent work on it
    #[arg(long, value_name = "A")]
    pub(crate) agent: Option<String>,
    /// Start over instead of going on with the work so far
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// `logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The task; without one all tasks, interleaved.
    pub(crate) task: Option<String>,
    /// Follow the output.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// An earlier attempt.
    #[arg(long, value_name = "N", requires = "task")]
    pub(crate) attempt: Option<u32>,
    /// The output of checks instead of the agent's.
    #[arg(long)]
    pub(crate) gates: bool,
    /// Raw output: escape sequences and the lines of the agent protocol included.
    #[arg(long)]
    pub(crate) raw: bool,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// `diff`
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The task.
    pub(crate) task: String,
    /// Only the files and their counts.
    #[arg(long)]
    pub(crate) stat: bool,
    /// An earlier attempt's newest snapshot.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// `graph`
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// How.
    #[arg(long, value_enum, default_value_t = GraphFormat::Picture)]
    pub(crate) format: GraphFormat,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// How to show a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Boxes and lines.
    Picture,
    /// A Mermaid flowchart.
    Mermaid,
    /// Nodes and edges.
    Json,
}

/// `history`
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Only this task.
    pub(crate) task: Option<String>,
    /// Only after this place.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) after: u64,
    /// Go on as things happen.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this run; otherwise all runs of the repository.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// `lessons`
#[derive(Debug, Args)]
pub(crate) struct LessonsArgs {
    /// What to do with lessons; list if not said.
    #[command(subcommand)]
    pub(crate) command: Option<LessonsCommand>,
}

/// What to do with lessons.
#[derive(Debug, Subcommand)]
pub(crate) enum LessonsCommand {
    /// How much is known in each domain.
    List,
    /// All that is known in a domain.
    Show {
        /// database, api, frontend, testing, security, deployment or general.
        domain: String,
    },
    /// Forget lessons of a domain.
    Forget {
        /// The domain.
        domain: String,
        /// Those that hold this text.
        #[arg(required_unless_present = "all")]
        text: Option<String>,
        /// All of them.
        #[arg(long, conflicts_with = "text")]
        all: bool,
    },
}

/// `cancel`
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The tasks; without one the whole run.
    #[arg(value_name = "T")]
    pub(crate) tasks: Vec<String>,
}

/// `jobs`
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Agents at once.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) n: u32,
}

/// `answer`
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The question.
    pub(crate) question: String,
    /// The answer, or the number of an option.
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    /// Answer in your own words although the question offers options.
    #[arg(long)]
    pub(crate) free: bool,
}

/// `cost`
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// What to sum by.
    #[arg(long, value_enum, default_value_t = CostBy::Task)]
    pub(crate) by: CostBy,
    /// As comma-separated values.
    #[arg(long)]
    pub(crate) csv: bool,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// What to sum by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostBy {
    /// Task and attempt.
    Attempt,
    /// Task.
    Task,
    /// Epic.
    Epic,
    /// Model.
    Model,
    /// Agent.
    Agent,
    /// Day, in UTC.
    Day,
}

/// `accept` and `reject`
#[derive(Debug, Args)]
pub(crate) struct ProposalArgs {
    /// The proposals, as `mainstem proposals` names them.
    #[arg(required = true, value_name = "P")]
    pub(crate) proposals: Vec<String>,
}

/// `restore`
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The task; with --list, none is all of them.
    #[arg(required_unless_present = "list")]
    pub(crate) task: Option<String>,
    /// The attempt whose newest snapshot to bring back; the last one if not said.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Exactly this snapshot of that attempt.
    #[arg(long, value_name = "N", visible_alias = "number")]
    pub(crate) snapshot: Option<u32>,
    /// List the snapshots, bring back nothing.
    #[arg(long, conflicts_with_all = ["snapshot", "branch"])]
    pub(crate) list: bool,
    /// The branch to make, restore/T if not said; one that holds something else is never moved.
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
}

/// `undo`
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Say what would be taken back, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `clean`
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// List what would go, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove Mainstem from this repository: workspaces, branches, refs, history, logs.
    #[arg(long)]
    pub(crate) everything: bool,
    /// With --everything: remove work that has not landed, too.
    #[arg(long, requires = "everything")]
    pub(crate) discard_unlanded: bool,
}

/// `completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `man`
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page per command into DIR instead of printing one.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
