//! `demo`: a tour in a throw-away repository, offline, with the built-in agents. Everything is the
//! real thing: a real engine process that is really killed, real worktrees, real landings. It ends
//! by checking its own claims with git, and fails if one does not hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;

use anstyle::{AnsiColor, Style};
use mainstem_api::actions::{DemoClaim, DemoReport};
use mainstem_api::control::ControlRequest;
use mainstem_api::exit_code;
use mainstem_api::status::RunState;
use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::Time;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::query::RunReader;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::{control_socket, run_journal};
use mainstem_host::git::{GitIdentity, Repo, WorktreeEntry};
use mainstem_host::{clock, process};

use crate::args::{DemoArgs, GlobalArgs};
use crate::context::{CliContext, own_executable, text_environment};
use crate::error::{CliError, CommandResult};
use crate::events::EventFormatter;
use crate::{output, stream};

/// The plan of the tour.
const PLAN: &str = include_str!("demo_plan.toml");
/// The agent that works while the engine is killed does so for three seconds.
const KILL_AFTER_MS: u64 = 1_500;
const CONFIG: &str = "[run]\njobs = 4\nretries = 1\n\n[gates]\nverify = [\"sh check.sh\"]\n\n[land]\nbranch = \"main\"\non_conflict = \"rework\"\n";
const CHECK: &str = "# The check: no file in src may be empty.\nfor file in src/*.txt; do\n  [ -e \"$file\" ] || continue\n  [ -s \"$file\" ] || { echo \"$file is empty\"; exit 1; }\ndone\n";
/// Longest the whole tour may take before it gives up on itself.
const TOUR_MS: i64 = 300_000;

/// The tour on its way.
struct DemoTour {
    repo: Repo,
    layout: RepoLayout,
    settings: Settings,
    exe: PathBuf,
    dir: PathBuf,
    color: bool,
    json: bool,
    seq: u64,
    machine: Machine,
    teller: EventFormatter,
    deadline: i64,
    killed: BTreeMap<String, u32>,
    answered: bool,
    saw_limit: bool,
    saw_conflict: bool,
    saw_retry: bool,
    engines: u32,
}

pub(crate) fn cmd_demo(context: &CliContext, args: &DemoArgs) -> CommandResult {
    let scratch = tempfile::Builder::new()
        .prefix("mainstem-demo-")
        .tempdir()
        .map_err(|error| CliError::io_error("cannot create a temporary folder", &error))?;
    let dir = scratch.path().join("shop");
    let began = clock::now_ms();
    let mut tour = prepare_tour(context, &dir)?;
    let result = tour.run_chapters();
    let checks = match &result {
        Ok(()) => tour.check_claims()?,
        Err(_) => Vec::new(),
    };
    let failed = checks.iter().filter(|(_, holds)| !holds).count();
    let took = output::format_duration(u64::try_from(clock::now_ms() - began).unwrap_or(0));
    if tour.json {
        let claims: Vec<_> = checks
            .iter()
            .map(|(claim, holds)| DemoClaim { claim: claim.to_string(), holds: *holds })
            .collect();
        let kept = args.keep.then(|| dir.display().to_string());
        output::write_json(&DemoReport { claims, failed: failed as u64, repository: kept })?;
    }
    if args.keep || result.is_err() || failed > 0 {
        let path = scratch.keep();
        tour.print_text(&format!("the demo repository is kept in {}", path.join("shop").display()));
    }
    result?;
    if failed > 0 {
        return Err(CliError::new(format!("{failed} of {} claims failed", checks.len())));
    }
    tour.print_text(&format!("All {} claims are true. The tour took {took}.", checks.len()));
    tour.print_text("Next, in your own repository: mainstem init, then mainstem run plan.toml");
    Ok(exit_code::OK)
}

fn prepare_tour(context: &CliContext, dir: &Path) -> Result<DemoTour, CliError> {
    let repo = Repo::init(dir, "main")?;
    let who = GitIdentity { name: "A Developer".to_owned(), email: "dev@example.com".to_owned() };
    repo.set_identity(&who)?;
    let files = [
        ("plan.toml", PLAN),
        ("mainstem.toml", CONFIG),
        ("check.sh", CHECK),
        ("CHANGES.md", "# Changes\n"),
        ("README.md", "# Shop\n"),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text)
            .map_err(|error| CliError::io_error(format!("cannot write {name}"), &error))?;
    }
    repo.commit_all("An empty shop", &who)?;
    // The tour's own settings, whatever the user's are.
    let global =
        GlobalArgs { dir: Some(dir.to_path_buf()), config: Vec::new(), ..context.global.clone() };
    let inner = CliContext::new(global)?;
    let settings = inner.load_settings(Some(&repo))?;
    let layout = RepoLayout::new(&repo, settings.workspace.root.as_deref());
    Ok(DemoTour {
        machine: Machine::new(settings.clone()),
        teller: EventFormatter::new(false),
        repo,
        layout,
        settings,
        exe: own_executable()?,
        dir: dir.to_path_buf(),
        color: context.color_err,
        json: context.global.json,
        seq: 0,
        deadline: clock::now_ms() + TOUR_MS,
        killed: BTreeMap::new(),
        answered: false,
        saw_limit: false,
        saw_conflict: false,
        saw_retry: false,
        engines: 0,
    })
}

impl DemoTour {
    fn print_text(&self, text: &str) {
        output::write_stderr(text);
    }

    /// A heading of the tour.
    fn print_heading(&self, text: &str) {
        let style = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
        output::write_stderr(&format!(
            "\n{}",
            output::paint_text(&format!("── {text}"), style, self.color)
        ));
    }

    fn run_chapters(&mut self) -> Result<(), CliError> {
        self.print_heading("A repository, a plan of 8 tasks, 4 agents at once");
        self.print_text(&format!("git repository: {}", self.dir.display()));
        let known = mainstem_core::plan::check::PlanCheckContext {
            agents: &self.settings.agents,
            default_agent: None,
        };
        let plan = mainstem_core::plan::check::load_plan(
            PLAN.as_bytes(),
            mainstem_core::plan::document::DocumentFormat::Toml,
            &known,
        )
        .map_err(|errors| CliError::source_error("plan.toml", PLAN.to_owned(), errors))?;
        let graph = mainstem_core::graph::Graph::new(&plan)
            .map_err(|error| CliError::new(error.to_string()))?;
        self.print_text(&crate::graph::render_picture(
            crate::graph::GraphSubject::without_run(&plan, &graph),
            output::picture_width().min(100),
            self.color,
        ));
        self.print_text(
            "the agents in this tour are built-in scripts; any coding agent CLI can replace them",
        );

        self.print_heading("$ mainstem run plan.toml");
        let mut engine = self.start_engine(&["run", "plan.toml"])?;
        self.show_until(&mut engine, |tour| tour.is_api_task_working())?;
        self.kill_engine(&mut engine)?;

        self.print_heading("$ mainstem run        (continues where the run was killed)");
        let mut engine = self.start_engine(&["run"])?;
        self.show_until(&mut engine, |_| false)?;
        let status = engine
            .wait()
            .map_err(|error| CliError::io_error("lost contact with the engine", &error))?;
        if !status.success() {
            return Err(CliError::new(format!("the engine exited with {status}"))
                .with_hint("see .git/mainstem/engine.log in the demo repository"));
        }
        self.show_result();
        Ok(())
    }

    fn start_engine(&mut self, words: &[&str]) -> Result<Child, CliError> {
        self.engines += 1;
        let mut argv = vec![self.exe.to_string_lossy().into_owned()];
        argv.extend(["-C".to_owned(), self.dir.to_string_lossy().into_owned()]);
        argv.extend(words.iter().map(ToString::to_string));
        std::fs::create_dir_all(self.layout.state_dir())
            .map_err(|error| CliError::io_error("cannot create the state folder", &error))?;
        process::spawn_detached(
            &argv,
            &self.dir,
            &text_environment(),
            &self.layout.engine_log_path(),
        )
        .map_err(|error| CliError::io_error("cannot start the engine", &error))
    }

    /// Shows what happens until `enough`, or until the engine has ended.
    fn show_until(
        &mut self,
        engine: &mut Child,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<(), CliError> {
        loop {
            let ended = engine
                .try_wait()
                .map_err(|error| CliError::io_error("lost contact with the engine", &error))?
                .is_some();
            self.read_new_facts()?;
            self.answer_if_asked()?;
            if ended || enough(self) {
                return Ok(());
            }
            if clock::now_ms() > self.deadline {
                let _ = engine.kill();
                return Err(CliError::new("the tour took too long; the machine may be overloaded"));
            }
            process::sleep_ms(40);
        }
    }

    fn read_new_facts(&mut self) -> Result<(), CliError> {
        let reader = run_journal::open_journal_reader(&*self.layout.run_store())
            .map_err(|error| CliError::new(error.to_string()))?;
        let Some(reader) = reader else { return Ok(()) };
        let records = reader
            .read_after(self.seq, 10_000)
            .map_err(|error| CliError::new(error.to_string()))?;
        for record in records {
            self.seq = record.seq;
            let fact = run_journal::decode_fact(&record)
                .map_err(|error| CliError::new(error.to_string()))?;
            self.machine
                .apply(&fact, Time(record.at_ms))
                .map_err(|error| CliError::new(error.to_string()))?;
            self.observe_fact(&fact);
            if let Some(line) = self.teller.format_fact(&fact, &self.machine) {
                let task = fact.task().map(ToString::to_string).unwrap_or_default();
                let columns = Some(output::live_columns());
                let text = stream::render_event(&line, &task, 9, self.color, columns);
                output::write_stderr(text.trim_end());
            }
        }
        Ok(())
    }

    fn observe_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::ProviderLimited { .. } => self.saw_limit = true,
            Fact::CarConflicted { .. } => self.saw_conflict = true,
            Fact::TaskLanded { task, attempt: 2.., .. } if task.as_str() == "emails" => {
                self.saw_retry = true;
            }
            _ => {}
        }
    }

    fn answer_if_asked(&mut self) -> Result<(), CliError> {
        let Some(open) = self.machine.open_questions().first() else { return Ok(()) };
        if self.answered {
            return Ok(());
        }
        self.answered = true;
        let question = open.name.clone();
        self.print_text(&format!("  $ mainstem answer {question} EUR"));
        let request = ControlRequest::Answer { question, text: "EUR".to_owned(), free: false };
        let response = control_socket::send_request(&self.layout.socket_path(), &request)
            .map_err(|error| CliError::io_error("the engine does not respond", &error))?;
        if response.ok { Ok(()) } else { Err(CliError::new(response.message)) }
    }

    /// The moment for the kill: the long agent works, and the question is answered if it came in time.
    fn is_api_task_working(&self) -> bool {
        let Some(t) = self.machine.graph().index_of("api") else { return false };
        let started = self.machine.tasks().get(t).current.as_ref().and_then(|a| a.started_at);
        let since = started.map_or(0, |at| Time(clock::now_ms()).since_ms(at));
        self.machine.tasks().phase(t) == Phase::Working && (self.answered || since > KILL_AFTER_MS)
    }

    fn kill_engine(&mut self, engine: &mut Child) -> Result<(), CliError> {
        self.print_heading("kill -9 of the engine while agents are working");
        engine.kill().map_err(|error| CliError::io_error("cannot kill the engine", &error))?;
        engine
            .wait()
            .map_err(|error| CliError::io_error("lost contact with the engine", &error))?;
        self.read_new_facts()?;
        let mut look = RunReader::load(&self.layout, &self.settings, None)?;
        // What it was about to start holds its lock for a moment longer.
        for _ in 0..100 {
            if look.state != RunState::Running {
                break;
            }
            process::sleep_ms(50);
            look = RunReader::load(&self.layout, &self.settings, None)?;
        }
        if look.state != RunState::Crashed {
            return Err(CliError::new("the engine exited before it could be killed"));
        }
        for t in look.machine.tasks().active_tasks() {
            let view = look.machine.task_view(t);
            if let (Phase::Working, Some(pid)) = (view.phase, view.pid) {
                let id = look.machine.plan().tasks[t.index()].id.to_string();
                self.print_text(&format!(
                    "  {id}: the agent keeps running without the engine (pid {pid})"
                ));
                self.killed.insert(id, pid);
            }
        }
        Ok(())
    }

    fn show_result(&self) {
        self.print_heading("$ git log --first-parent main");
        let landings = self
            .repo
            .read_ref("refs/heads/main")
            .ok()
            .flatten()
            .and_then(|tip| self.repo.list_landings(&tip, None).ok())
            .unwrap_or_default();
        for landing in landings {
            let short = landing.commit.as_str().get(..9).unwrap_or_default().to_owned();
            output::write_stderr(&format!("  {short} {}", output::sanitize_text(&landing.subject)));
        }
    }

    /// The claims of the tour, each looked up in git or on the machine, not in our own memory.
    fn check_claims(&self) -> Result<Vec<(String, bool)>, CliError> {
        self.print_heading("Checking the claims with git");
        let tip = self.repo.read_ref("refs/heads/main")?;
        let tip = tip.ok_or_else(|| CliError::new("branch main is missing"))?;
        let landings = self.repo.list_landings(&tip, None)?;
        let attempts = landed_attempts_by_task(&landings);
        let ids: Vec<&str> = self.machine.plan().tasks.iter().map(|t| t.id.as_str()).collect();
        let once = ids.iter().all(|id| attempts.get(*id).is_some_and(|a| a.len() == 1))
            && attempts.len() == ids.len();
        let not_restarted = !self.killed.is_empty()
            && self
                .killed
                .keys()
                .filter(|id| *id == "api")
                .all(|id| attempts.get(id).is_some_and(|a| *a == ["1"]));
        let changes = std::fs::read_to_string(self.dir.join("CHANGES.md")).unwrap_or_default();
        let both = changes.contains("whole cents") && changes.contains("added at checkout");
        let currency =
            std::fs::read_to_string(self.dir.join("src/currency.txt")).unwrap_or_default();
        // The train keeps its own worktree, with what was built there, for the next run.
        let is_workspace = |worktree: &WorktreeEntry| {
            worktree.path.starts_with(self.layout.workspace_root())
                && self.layout.lane_of_workspace(&worktree.path).is_none()
        };
        let workspaces = self.repo.list_worktrees()?.iter().filter(|one| is_workspace(one)).count();
        let branches = self.repo.list_refs("refs/heads/mainstem/")?.len();
        let order = |a: &str, b: &str| {
            let at =
                |id: &str| landings.iter().position(|l| l.trailers.iter().any(|(_, v)| v == id));
            // Newest first.
            matches!((at(a), at(b)), (Some(a), Some(b)) if a > b)
        };
        let alive = self
            .killed
            .values()
            .filter(|pid| process::is_process_alive(**pid).unwrap_or(true))
            .count();
        let gapless = self.history_is_gapless()?;
        let clean = !self.repo.is_worktree_dirty(&self.dir)?;
        let checks = vec![
            ("every task landed exactly once (by the trailers on main)".to_owned(), once),
            (
                "the agent that was working during kill -9 was not restarted".to_owned(),
                not_restarted,
            ),
            (
                "the conflict was resolved: both changes are in CHANGES.md".to_owned(),
                both && self.saw_conflict,
            ),
            ("the rate limit caused a wait, not a failure".to_owned(), self.saw_limit),
            ("the task that failed was retried and landed".to_owned(), self.saw_retry),
            ("the answer reached the agent that asked".to_owned(), currency.trim() == "EUR"),
            (
                "api landed before docs, schema before api".to_owned(),
                order("api", "docs") && order("schema", "api"),
            ),
            (
                "no task's workspace or branch is left behind".to_owned(),
                workspaces == 0 && branches == 0,
            ),
            ("no agent is left running".to_owned(), alive == 0),
            ("the checkout is up to date with main and clean".to_owned(), clean),
            ("the journal has no gaps across two engines".to_owned(), gapless && self.engines == 2),
            ("git fsck finds no errors".to_owned(), self.repo.passes_fsck()?),
        ];
        self.print_claims(&checks);
        Ok(checks)
    }

    fn print_claims(&self, claims: &[(String, bool)]) {
        for (claim, holds) in claims {
            let phase = if *holds { Phase::Landed } else { Phase::Failed };
            let sign = output::paint_text(
                output::phase_sign(phase),
                output::phase_style(phase),
                self.color,
            );
            output::write_stderr(&format!("  {sign} {claim}"));
        }
    }

    fn history_is_gapless(&self) -> Result<bool, CliError> {
        let reader = run_journal::open_journal_reader(&*self.layout.run_store())
            .map_err(|error| CliError::new(error.to_string()))?;
        let Some(reader) = reader else { return Ok(false) };
        let mut expected = 0;
        let mut gapless = true;
        reader
            .for_each(0, &mut |record| {
                expected += 1;
                gapless &= record.seq == expected;
                Ok(())
            })
            .map_err(|error| CliError::new(error.to_string()))?;
        Ok(gapless && expected > 0)
    }
}

/// The attempts that landed for each task, as the trailers on the branch name them.
fn landed_attempts_by_task(
    landings: &[mainstem_host::git::GitLanding],
) -> BTreeMap<String, Vec<String>> {
    let mut attempts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for landing in landings {
        let value =
            |key: &str| landing.trailers.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
        if let Some(task) = value("Mainstem-Task") {
            attempts.entry(task).or_default().push(value("Mainstem-Attempt").unwrap_or_default());
        }
    }
    attempts
}
