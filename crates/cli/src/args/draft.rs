//! `plan PRD.md`: a plan from a requirements document.

use std::path::PathBuf;

use clap::Args;

/// `plan PRD.md`
#[derive(Debug, Args)]
pub(crate) struct DraftArgs {
    /// The requirements document, a text inside the repository.
    #[arg(required = true, value_name = "PRD.md")]
    pub(crate) prd: Option<PathBuf>,
    /// Where to write the plan (.toml or .json).
    #[arg(short, long, value_name = "FILE", default_value = "plan.toml")]
    pub(crate) output: PathBuf,
    /// Agents asked at once; run.jobs if it is not said.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) jobs: Option<u32>,
    /// Who is asked; run.agent if it is not said. Several take epics in turn.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Vec<String>,
    /// The model.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// How hard the model should think, in its own words.
    #[arg(long)]
    pub(crate) effort: Option<String>,
    /// Further tries for an answer that does not fit.
    #[arg(long, value_name = "N", default_value_t = mainstem_planner::draft::RETRIES)]
    pub(crate) retries: u32,
    /// Ask once for everything, instead of once per epic: for small documents.
    #[arg(long)]
    pub(crate) single_pass: bool,
    /// Take nothing over from an earlier call for the same document.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Say who would be asked and how long the prompts are (with -v, the prompts); ask nobody, write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace a plan that was not written by this command, or was changed since.
    #[arg(long)]
    pub(crate) force: bool,
    /// Leave out the edges that are proposed for opening circles.
    #[arg(long)]
    pub(crate) drop_circles: bool,
    /// The number of the first task.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) start_id: usize,
}
