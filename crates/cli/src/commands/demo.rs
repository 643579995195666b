//! `demo`: a tour in a throw-away repository, offline, with the built-in agents. Everything is the
//! real thing: a real engine process that is really killed, real worktrees, real landings. It ends
//! by checking its own claims with git, and fails if one does not hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;

use anstyle::{AnsiColor, Style};
use mainstem_api::control::Request;
use mainstem_api::exit_code;
use mainstem_api::status::RunState;
use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::Time;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::look::Look;
use mainstem_engine::paths::Layout;
use mainstem_engine::{control, ledger};
use mainstem_host::git::{Identity, Repo, Worktree};
use mainstem_host::{clock, process};
use mainstem_store::Reader;

use crate::args::{DemoArgs, Global};
use crate::context::{Context, environment, own_exe};
use crate::events::Teller;
use crate::failure::{Failure, Outcome};
use crate::{print, stream};

/// The plan of the tour.
const PLAN: &str = include_str!("demo_plan.toml");
/// The agent that works while the engine is killed does so for three seconds.
const KILL_AFTER_MS: u64 = 1_500;
const CONFIG: &str = "[run]\njobs = 4\nretries = 1\n\n[gates]\nverify = [\"sh check.sh\"]\n\n[land]\nbranch = \"main\"\non_conflict = \"rework\"\n";
const CHECK: &str = "# The check: no file in src may be empty.\nfor file in src/*.txt; do\n  [ -e \"$file\" ] || continue\n  [ -s \"$file\" ] || { echo \"$file is empty\"; exit 1; }\ndone\n";
/// Longest the whole tour may take before it gives up on itself.
const TOUR_MS: i64 = 300_000;

/// The tour on its way.
struct Tour {
    repo: Repo,
    layout: Layout,
    settings: Settings,
    exe: PathBuf,
    dir: PathBuf,
    color: bool,
    json: bool,
    seq: u64,
    machine: Machine,
    teller: Teller,
    deadline: i64,
    killed: BTreeMap<String, u32>,
    answered: bool,
    saw_limit: bool,
    saw_conflict: bool,
    saw_retry: bool,
    engines: u32,
}

/// Runs the tour.
pub(crate) fn demo(context: &Context, args: &DemoArgs) -> Outcome {
    let scratch = tempfile::Builder::new()
        .prefix("mainstem-demo-")
        .tempdir()
        .map_err(|error| Failure::io("cannot create a temporary folder", &error))?;
    let dir = scratch.path().join("shop");
    let began = clock::now_ms();
    let mut tour = prepare(context, &dir)?;
    let result = tour.walk();
    let checks = match &result {
        Ok(()) => tour.check()?,
        Err(_) => Vec::new(),
    };
    let failed = checks.iter().filter(|(_, holds)| !holds).count();
    let took = print::duration(u64::try_from(clock::now_ms() - began).unwrap_or(0));
    if tour.json {
        let claims: Vec<_> = checks
            .iter()
            .map(|(claim, holds)| serde_json::json!({ "claim": claim, "holds": holds }))
            .collect();
        let kept = args.keep.then(|| dir.display().to_string());
        print::out_json(
            &serde_json::json!({ "claims": claims, "failed": failed, "repository": kept }),
        )?;
    }
    if args.keep || result.is_err() || failed > 0 {
        let path = scratch.keep();
        tour.say(&format!("the demo repository is kept in {}", path.join("shop").display()));
    }
    result?;
    if failed > 0 {
        return Err(Failure::new(format!("{failed} of {} claims failed", checks.len())));
    }
    tour.say(&format!("All {} claims are true. The tour took {took}.", checks.len()));
    tour.say("Next, in your own repository: mainstem init, then mainstem run plan.toml");
    Ok(exit_code::OK)
}

fn prepare(context: &Context, dir: &Path) -> Result<Tour, Failure> {
    let repo = Repo::init(dir, "main")?;
    let who = Identity { name: "A Developer".to_owned(), email: "dev@example.com".to_owned() };
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
            .map_err(|error| Failure::io(format!("cannot write {name}"), &error))?;
    }
    repo.commit_all("An empty shop", &who)?;
    // The tour's own settings, whatever the user's are.
    let global =
        Global { dir: Some(dir.to_path_buf()), config: Vec::new(), ..context.global.clone() };
    let inner = Context::new(global)?;
    let settings = inner.settings(Some(&repo))?;
    let layout = Layout::new(&repo, settings.workspace.root.as_deref());
    Ok(Tour {
        machine: Machine::new(settings.clone()),
        teller: Teller::new(false),
        repo,
        layout,
        settings,
        exe: own_exe()?,
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

impl Tour {
    fn say(&self, text: &str) {
        print::err(text);
    }

    /// A heading of the tour.
    fn chapter(&self, text: &str) {
        let style = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
        print::err(&format!("\n{}", print::paint(&format!("── {text}"), style, self.color)));
    }

    fn walk(&mut self) -> Result<(), Failure> {
        self.chapter("A repository, a plan of 8 tasks, 4 agents at once");
        self.say(&format!("git repository: {}", self.dir.display()));
        let known = mainstem_core::plan::check::Known {
            agents: &self.settings.agents,
            default_agent: None,
        };
        let plan = mainstem_core::plan::check::load_plan(
            PLAN.as_bytes(),
            mainstem_core::plan::doc::Format::Toml,
            &known,
        )
        .map_err(|errors| Failure::text("plan.toml", PLAN.to_owned(), errors))?;
        let graph = mainstem_core::graph::Graph::new(&plan)
            .map_err(|error| Failure::new(error.to_string()))?;
        self.say(&crate::graph::picture(
            crate::graph::Subject::plain(&plan, &graph),
            print::width().min(100),
            self.color,
        ));
        self.say(
            "the agents in this tour are built-in scripts; any coding agent CLI can replace them",
        );

        self.chapter("$ mainstem run plan.toml");
        let mut engine = self.start(&["run", "plan.toml"])?;
        self.follow(&mut engine, |tour| tour.api_works())?;
        self.kill(&mut engine)?;

        self.chapter("$ mainstem run        (continues where the run was killed)");
        let mut engine = self.start(&["run"])?;
        self.follow(&mut engine, |_| false)?;
        let status =
            engine.wait().map_err(|error| Failure::io("lost contact with the engine", &error))?;
        if !status.success() {
            return Err(Failure::new(format!("the engine exited with {status}"))
                .hint("see .git/mainstem/engine.log in the demo repository"));
        }
        self.look_at_the_end();
        Ok(())
    }

    fn start(&mut self, words: &[&str]) -> Result<Child, Failure> {
        self.engines += 1;
        let mut argv = vec![self.exe.to_string_lossy().into_owned()];
        argv.extend(["-C".to_owned(), self.dir.to_string_lossy().into_owned()]);
        argv.extend(words.iter().map(ToString::to_string));
        std::fs::create_dir_all(self.layout.state())
            .map_err(|error| Failure::io("cannot create the state folder", &error))?;
        process::spawn_detached(&argv, &self.dir, &environment(), &self.layout.engine_log())
            .map_err(|error| Failure::io("cannot start the engine", &error))
    }

    /// Shows what happens until `enough`, or until the engine has ended.
    fn follow(
        &mut self,
        engine: &mut Child,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        loop {
            let ended = engine
                .try_wait()
                .map_err(|error| Failure::io("lost contact with the engine", &error))?
                .is_some();
            self.read_on()?;
            self.answer_if_asked()?;
            if ended || enough(self) {
                return Ok(());
            }
            if clock::now_ms() > self.deadline {
                let _ = engine.kill();
                return Err(Failure::new("the tour took too long; the machine may be overloaded"));
            }
            process::pause_ms(40);
        }
    }

    fn read_on(&mut self) -> Result<(), Failure> {
        let reader = ledger::open_reader(&self.layout.journal())
            .map_err(|error| Failure::new(error.to_string()))?;
        let Some(reader) = reader else { return Ok(()) };
        let records =
            reader.read_after(self.seq, 10_000).map_err(|error| Failure::new(error.to_string()))?;
        for record in records {
            self.seq = record.seq;
            let fact = ledger::decode(&record).map_err(|error| Failure::new(error.to_string()))?;
            self.machine
                .apply(&fact, Time(record.at_ms))
                .map_err(|error| Failure::new(error.to_string()))?;
            self.notice(&fact);
            if let Some(line) = self.teller.line(&fact, &self.machine) {
                let task = fact.task().map(ToString::to_string).unwrap_or_default();
                let columns = Some(print::live_columns());
                let text = stream::render(&line, &task, 9, self.color, columns);
                print::err(text.trim_end());
            }
        }
        Ok(())
    }

    fn notice(&mut self, fact: &Fact) {
        match fact {
            Fact::ProviderLimited { .. } => self.saw_limit = true,
            Fact::CarConflicted { .. } => self.saw_conflict = true,
            Fact::TaskLanded { task, attempt: 2.., .. } if task.as_str() == "emails" => {
                self.saw_retry = true;
            }
            _ => {}
        }
    }

    fn answer_if_asked(&mut self) -> Result<(), Failure> {
        let Some(open) = self.machine.questions().first() else { return Ok(()) };
        if self.answered {
            return Ok(());
        }
        self.answered = true;
        let question = open.name.clone();
        self.say(&format!("  $ mainstem answer {question} EUR"));
        let request = Request::Answer { question, text: "EUR".to_owned(), free: false };
        let response = control::ask(&self.layout.socket(), &request)
            .map_err(|error| Failure::io("the engine does not respond", &error))?;
        if response.ok { Ok(()) } else { Err(Failure::new(response.message)) }
    }

    /// The moment for the kill: the long agent works, and the question is answered if it came in time.
    fn api_works(&self) -> bool {
        let Some(t) = self.machine.graph().ix("api") else { return false };
        let started = self.machine.tasks().get(t).current.as_ref().and_then(|a| a.started_at);
        let since = started.map_or(0, |at| Time(clock::now_ms()).since_ms(at));
        self.machine.tasks().phase(t) == Phase::Working && (self.answered || since > KILL_AFTER_MS)
    }

    fn kill(&mut self, engine: &mut Child) -> Result<(), Failure> {
        self.chapter("kill -9 of the engine while agents are working");
        engine.kill().map_err(|error| Failure::io("cannot kill the engine", &error))?;
        engine.wait().map_err(|error| Failure::io("lost contact with the engine", &error))?;
        self.read_on()?;
        let mut look = Look::at(&self.layout, &self.settings, None)?;
        // What it was about to start holds its lock for a moment longer.
        for _ in 0..100 {
            if look.state != RunState::Running {
                break;
            }
            process::pause_ms(50);
            look = Look::at(&self.layout, &self.settings, None)?;
        }
        if look.state != RunState::Crashed {
            return Err(Failure::new("the engine exited before it could be killed"));
        }
        for t in look.machine.tasks().active() {
            let view = look.machine.view(t);
            if let (Phase::Working, Some(pid)) = (view.phase, view.pid) {
                let id = look.machine.plan().tasks[t.ix()].id.to_string();
                self.say(&format!(
                    "  {id}: the agent keeps running without the engine (pid {pid})"
                ));
                self.killed.insert(id, pid);
            }
        }
        Ok(())
    }

    fn look_at_the_end(&self) {
        self.chapter("$ git log --first-parent main");
        let landings = self
            .repo
            .read_ref("refs/heads/main")
            .ok()
            .flatten()
            .and_then(|tip| self.repo.landings(&tip, None).ok())
            .unwrap_or_default();
        for landing in landings {
            let short = landing.commit.as_str().get(..9).unwrap_or_default().to_owned();
            print::err(&format!("  {short} {}", print::harmless(&landing.subject)));
        }
    }

    /// The claims of the tour, each looked up in git or on the machine, not in our own memory.
    fn check(&self) -> Result<Vec<(String, bool)>, Failure> {
        self.chapter("Checking the claims with git");
        let tip = self.repo.read_ref("refs/heads/main")?;
        let tip = tip.ok_or_else(|| Failure::new("branch main is missing"))?;
        let landings = self.repo.landings(&tip, None)?;
        let attempts = attempts_by_task(&landings);
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
        let is_workspace = |worktree: &Worktree| {
            worktree.path.starts_with(self.layout.root())
                && self.layout.lane_at(&worktree.path).is_none()
        };
        let workspaces = self.repo.worktrees()?.iter().filter(|one| is_workspace(one)).count();
        let branches = self.repo.list_refs("refs/heads/mainstem/")?.len();
        let order = |a: &str, b: &str| {
            let at =
                |id: &str| landings.iter().position(|l| l.trailers.iter().any(|(_, v)| v == id));
            // Newest first.
            matches!((at(a), at(b)), (Some(a), Some(b)) if a > b)
        };
        let alive =
            self.killed.values().filter(|pid| process::is_alive(**pid).unwrap_or(true)).count();
        let gapless = self.history_is_gapless()?;
        let clean = !self.repo.worktree_dirty(&self.dir)?;
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
            ("git fsck finds no errors".to_owned(), self.repo.is_sound()?),
        ];
        for (claim, holds) in &checks {
            let phase = if *holds { Phase::Landed } else { Phase::Failed };
            let sign = print::paint(print::sign(phase), print::style(phase), self.color);
            print::err(&format!("  {sign} {claim}"));
        }
        Ok(checks)
    }

    fn history_is_gapless(&self) -> Result<bool, Failure> {
        let reader = ledger::open_reader(&self.layout.journal())
            .map_err(|error| Failure::new(error.to_string()))?;
        let Some(reader) = reader else { return Ok(false) };
        let mut expected = 0;
        let mut gapless = true;
        reader
            .for_each(0, &mut |record| {
                expected += 1;
                gapless &= record.seq == expected;
                Ok(())
            })
            .map_err(|error| Failure::new(error.to_string()))?;
        Ok(gapless && expected > 0)
    }
}

/// The attempts that landed for each task, as the trailers on the branch name them.
fn attempts_by_task(landings: &[mainstem_host::git::Landing]) -> BTreeMap<String, Vec<String>> {
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
