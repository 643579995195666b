//! Asking a reviewer: a job of its own in a checkout of exactly the work, which it may read and not
//! change. Done twice it is asked once; the second time finds the first answer.

use std::path::{Path, PathBuf};

use mainstem_agents::{AgentEvent, Brief, Launch, adapter, allowed_env};
use mainstem_core::config::{self, Permission, Reviewer};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{LimitKind, Usage};
use mainstem_core::id::Oid;
use mainstem_core::machine::{Input, Reviewed};
use mainstem_core::plan::Task;
use mainstem_core::review::diff::{self, Change, Changed};
use mainstem_core::review::{Finding, Opinion, Outcome};
use mainstem_host::files::{self, Fate};
use mainstem_host::process::{self, Ending, Exit, JobSpec, JobState, Stream};
use mainstem_host::{clock, crash};
use mainstem_planner::extract::{SIZE_MAX, extract};
use mainstem_planner::schema::{Problem, WantReview};

use super::{Errand, gates};
use crate::draft::printed;
use crate::review_text::ReviewAsk;
use crate::walls::Behind;

/// A reviewer that gave no usable answer is asked once more, with what was wrong.
const TRIES: u32 = 2;
/// Read at once from a log.
const READ_BYTES: usize = 1 << 20;
/// Tells a reviewer who it is.
const REVIEWER: &str = "MAINSTEM_REVIEWER";
/// The file in its room in which the answer is expected.
const ANSWER: &str = "review.json";

/// What is asked of whom.
struct Call<'a> {
    errand: &'a Errand,
    name: &'a str,
    reviewer: Reviewer,
    agent: config::Agent,
    base: &'a Oid,
    tip: &'a Oid,
    tree: &'a Oid,
    cycle: u32,
    asked: u32,
    lane: u32,
}

/// Where a reviewer's things are.
struct Rooms {
    room: PathBuf,
    tmp: PathBuf,
    prompt: PathBuf,
    output: PathBuf,
    script: PathBuf,
}

/// What came of one job.
struct Heard {
    outcome: Result<(Opinion, Vec<Finding>), Trouble>,
    usage: Vec<Usage>,
}

/// Why there is no answer.
enum Trouble {
    /// It may do better when it is told what was wrong.
    Unfit(Vec<Problem>),
    /// It would not.
    Failed(String),
    Limited {
        kind: LimitKind,
        wait_ms: Option<u64>,
        message: String,
    },
    Stopped,
}

/// Asks, waits, and tells what came.
pub fn ask(errand: &Errand, effect: &Effect) {
    let Effect::Review { base, tip, tree, cycle, asked, reviewer: name, lane, .. } = effect else {
        return;
    };
    let settings = &errand.world.settings;
    let reviewer = settings.review.reviewer(name);
    // One that nobody configured is told of when it cannot be started.
    let unknown = || config::Agent { kind: reviewer.agent.clone(), ..config::Agent::default() };
    let agent = settings.agents.get(&reviewer.agent).cloned().unwrap_or_else(unknown);
    let (cycle, asked, lane) = (*cycle, *asked, *lane);
    let call = Call { errand, name, reviewer, agent, base, tip, tree, cycle, asked, lane };
    let began = clock::now_ms();
    let mut usage = Vec::new();
    let outcome = call.outcome(&mut usage);
    errand.tell(Input::Reviewed(Box::new(Reviewed {
        task: errand.ix,
        attempt: errand.attempt,
        tree: tree.clone(),
        cycle,
        asked,
        reviewer: name.clone(),
        outcome,
        usage,
        duration_ms: u64::try_from(clock::now_ms() - began).unwrap_or(0),
        log: Some(errand.world.layout.relative(&call.job(0))),
    })));
}

impl Call<'_> {
    fn outcome(&self, usage: &mut Vec<Usage>) -> Outcome {
        let (files, others) = match self.files() {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => return Outcome::Skipped { why },
            Err(why) => return Outcome::Failed { why },
        };
        let mut problems = Vec::new();
        for number in 0..TRIES {
            let heard = self.call(number, (&files, others), &problems);
            let heard = match heard {
                Ok(heard) => heard,
                Err(why) => return Outcome::Failed { why },
            };
            usage.extend(heard.usage);
            match heard.outcome {
                Ok((verdict, findings)) => return Outcome::Said { verdict, findings },
                Err(Trouble::Unfit(found)) => problems = found,
                Err(Trouble::Failed(why)) => return Outcome::Failed { why },
                Err(Trouble::Stopped) => return Outcome::Stopped {},
                Err(Trouble::Limited { kind, wait_ms, message }) => {
                    return Outcome::Limited { kind, wait_ms, message };
                }
            }
        }
        let words: Vec<String> = problems.iter().take(5).map(ToString::to_string).collect();
        Outcome::Failed { why: format!("unusable answer: {}", words.join("; ")) }
    }

    /// The files that this reviewer looks at, and how many it does not; or why there are none for it.
    fn files(&self) -> Result<Result<(Vec<Changed>, usize), String>, String> {
        let world = &self.errand.world;
        let settings = &world.settings.review;
        let changed = changed_files(self.errand, self.base, self.tip)?;
        let all = changed.len();
        let chosen = diff::chosen(changed, &settings.extensions, &settings.ignore);
        if let Some(why) = diff::excused(&self.reviewer, &chosen) {
            return Ok(Err(why));
        }
        let at = settings.agents.iter().position(|name| name == self.name).unwrap_or(0);
        let mine = diff::share(&chosen, settings.mode, settings.agents.len(), at);
        if mine.is_empty() {
            return Ok(Err("other reviewers cover all changed files".to_owned()));
        }
        let others = all - mine.len();
        Ok(Ok((mine, others)))
    }

    fn place(&self, number: u32) -> PathBuf {
        let world = &self.errand.world;
        let place = world.layout.attempt(&world.run, &self.errand.task.id, self.errand.attempt);
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = self.name.chars().map(safe).collect();
        place.join(format!("review-{}-{name}-{}-{number}", self.cycle, self.asked))
    }

    fn tmp(&self, number: u32) -> PathBuf {
        let (task, attempt) = (&self.errand.task.id, self.errand.attempt);
        let place = self.place(number);
        let call = place.file_name().unwrap_or_default().to_string_lossy();
        self.errand.world.layout.review_tmp(task, attempt, &call)
    }

    fn job(&self, number: u32) -> PathBuf {
        self.place(number).join("agent")
    }

    /// Asks once, or finds that it was asked.
    fn call(
        &self,
        number: u32,
        files: (&[Changed], usize),
        problems: &[Problem],
    ) -> Result<Heard, String> {
        let world = &self.errand.world;
        let dir = self.job(number);
        let unreadable = |error: std::io::Error| format!("{}: {error}", dir.display());
        let spec = match self.found(&dir).map_err(unreadable)? {
            Some(spec) => spec,
            None => {
                self.check_out(&dir)?;
                self.prepare(number, files, problems)?
            }
        };
        let exit = process::run_to_end(&dir, &spec, &world.supervisor(), &self.errand.cancel)
            .map_err(|error| format!("cannot start the reviewer: {error}"))?;
        crash::point("review.ran");
        // What stays goes with the workspaces.
        let _ = files::move_to_trash(&self.tmp(number), &world.layout.trash(), Fate::Gone);
        self.heard(&dir, &self.place(number).join("room").join(ANSWER), &exit)
    }

    /// The job of an earlier life that looks, or looked, at this very tree.
    fn found(&self, dir: &Path) -> std::io::Result<Option<JobSpec>> {
        match process::state(dir)? {
            JobState::Absent => return Ok(None),
            JobState::Ended(Exit { ending: Ending::Stopped, .. }) => {
                process::set_aside(dir)?;
                return Ok(None);
            }
            _ => {}
        }
        let same = |spec: &JobSpec| {
            spec.env.get(gates::TREE).map(String::as_str) == Some(self.tree.as_str())
                && spec.env.get(REVIEWER).map(String::as_str) == Some(self.name)
        };
        let spec = process::spec(dir)?.filter(same);
        if spec.is_none() {
            process::reset(dir)?;
        }
        Ok(spec)
    }

    /// Puts exactly the work into the lane. Whoever of an earlier life still looks around there is ended.
    fn check_out(&self, dir: &Path) -> Result<(), String> {
        let world = &self.errand.world;
        let (lane, note) = (world.layout.lane(self.lane), world.layout.lane_note(self.lane));
        let words = |error: std::io::Error| error.to_string();
        if let Ok(other) = std::fs::read_to_string(&note) {
            let other = world.layout.state().join(other.trim());
            if other != dir && other.starts_with(world.layout.state().join("runs")) {
                process::end(&other).map_err(words)?;
            }
        }
        files::write_atomic(&note, world.layout.relative(dir).as_bytes()).map_err(words)?;
        std::fs::create_dir_all(world.layout.root()).map_err(words)?;
        let git = |error: mainstem_host::git::GitError| error.to_string();
        let made = world.checkout_lane(&lane, self.tip).map_err(git)?;
        if made.unfilled {
            return Err(format!("cannot check out the work: {}", made.notes.join("; ")));
        }
        world.repo.restore_tracked(&lane, self.tip).map_err(git)?;
        crash::point("review.checked_out");
        Ok(())
    }

    /// Makes its room and writes its prompt.
    fn prepare(
        &self,
        number: u32,
        (files, others): (&[Changed], usize),
        problems: &[Problem],
    ) -> Result<JobSpec, String> {
        let world = &self.errand.world;
        let place = self.place(number);
        let rooms = Rooms {
            room: place.join("room"),
            tmp: self.tmp(number),
            prompt: place.join("prompt.md"),
            output: place.join("room").join(ANSWER),
            script: place.join("script.json"),
        };
        let text = |error: std::io::Error| format!("{}: {error}", place.display());
        // An answer of an earlier try must not be taken for this one's.
        files::remove_all(&rooms.room).map_err(text)?;
        for folder in [&rooms.room, &rooms.tmp, &place.join("agent")] {
            std::fs::create_dir_all(folder).map_err(text)?;
        }
        let paths: Vec<String> =
            files.iter().take(diff::FILES_MAX).map(|file| file.path.clone()).collect();
        let difference = world.repo.diff_of(self.base, self.tip, &paths);
        let difference = difference.map_err(|error| error.to_string())?;
        let ask = ReviewAsk {
            task: &self.errand.task,
            focus: self.reviewer.focus.as_deref(),
            files,
            others,
            diff: &String::from_utf8_lossy(&difference),
            problems,
            output: &rooms.output.to_string_lossy(),
        };
        files::write_private(&rooms.prompt, ask.text().as_bytes()).map_err(text)?;
        let reads = vec![format!("Write({})", rooms.output.display())];
        let tools = ["Read", "Grep", "Glob"].map(str::to_owned).into_iter().chain(reads);
        let agent = config::Agent {
            permission: Permission::List,
            allowed_tools: tools.collect(),
            ..self.agent.clone()
        };
        let launch = self.launch(&rooms, &agent)?;
        for folder in &launch.folders {
            std::fs::create_dir_all(folder).map_err(text)?;
        }
        for (path, content) in &launch.files {
            files::write_atomic(Path::new(path), content.as_bytes()).map_err(text)?;
        }
        self.walled(rooms, &agent, launch)
    }

    fn launch(&self, rooms: &Rooms, agent: &config::Agent) -> Result<Launch, String> {
        let world = &self.errand.world;
        // The task's own commands are not for whoever reviews it.
        let task = Task { run: None, script: Vec::new(), ..self.errand.task.clone() };
        let model = self.reviewer.model.as_ref().or(agent.model.as_ref());
        let adapter = adapter(&agent.kind).map_err(|error| error.to_string())?;
        let lane = world.layout.lane(self.lane);
        let brief = Brief {
            task: &task,
            epic: None,
            run: &world.run,
            attempt: self.errand.attempt,
            base: self.base,
            branch: &self.errand.branch,
            workspace: &lane.to_string_lossy(),
            port: 0,
            tmp: &rooms.tmp.to_string_lossy(),
            prompt_file: &rooms.prompt.to_string_lossy(),
            model: model.map(String::as_str),
            session: None,
            agent_name: &self.reviewer.agent,
            agent,
            script_file: &rooms.script.to_string_lossy(),
            own_exe: &world.exe.to_string_lossy(),
            effort: None,
            mcp: None,
            inherited: &world.env,
        };
        adapter.launch(&brief).map_err(|error| error.to_string())
    }

    /// In the checkout, which it may read, with a room of its own to write its answer in.
    fn walled(
        &self,
        rooms: Rooms,
        agent: &config::Agent,
        launch: Launch,
    ) -> Result<JobSpec, String> {
        let world = &self.errand.world;
        let lane = world.layout.lane(self.lane);
        let mut env = allowed_env(world.env.iter().cloned(), &agent.secrets, &launch.env).vars;
        env.extend([
            ("MAINSTEM_STAGE".to_owned(), "review".to_owned()),
            ("MAINSTEM_OUTPUT".to_owned(), rooms.output.to_string_lossy().into_owned()),
            (gates::TREE.to_owned(), self.tree.to_string()),
            (REVIEWER.to_owned(), self.name.to_owned()),
        ]);
        let mut spec = world.agent_spec(launch.argv, lane.clone(), env);
        let mut reads = world.programs(&spec, agent);
        let ours = [rooms.prompt.clone(), rooms.script, lane];
        reads.extend(ours.into_iter().filter(|path| path.exists()));
        reads.extend(launch.files.iter().map(|(path, _)| PathBuf::from(path)));
        spec.stdin = launch.stdin_prompt.then_some(rooms.prompt);
        spec.keeps_work = false;
        spec.wall_ms = Some(world.settings.review.timeout_ms).filter(|ms| *ms > 0);
        let behind = Behind {
            workspace: &rooms.room,
            caches: Some(rooms.tmp.join("caches")),
            tmp: Some(rooms.tmp),
            reads,
            writes: launch.state.iter().map(PathBuf::from).collect(),
            agent: Some(&agent.kind),
            ..Behind::default()
        };
        world.walled(spec, &behind).map_err(|error| error.to_string())
    }

    /// What a job that has ended left behind.
    fn heard(&self, dir: &Path, answer: &Path, exit: &Exit) -> Result<Heard, String> {
        let mut parser = adapter(&self.agent.kind).map_err(|error| error.to_string())?.parser();
        let mut usage: Vec<Usage> = Vec::new();
        let mut trouble = None;
        let mut from = 0;
        while let Ok(output) = process::read_output(dir, from, READ_BYTES)
            && output.next != from
        {
            from = output.next;
            for line in output.lines.iter().filter(|line| line.stream == Stream::Stdout) {
                for event in parser.line(&line.text) {
                    match event {
                        AgentEvent::Usage(more) => {
                            if !usage.last_mut().is_some_and(|last| last.join(&more)) {
                                usage.push(more);
                            }
                        }
                        event => trouble = trouble_in(event).or(trouble),
                    }
                }
            }
        }
        let ended_well = matches!(exit.ending, Ending::Exited { code: 0 });
        let outcome = match (&exit.ending, trouble) {
            (Ending::Stopped, _) => Err(Trouble::Stopped),
            (_, Some(trouble)) if !ended_well => Err(trouble),
            (Ending::Exited { code: 0 }, trouble) => match (said(dir, answer), trouble) {
                (Ok(said), _) => Ok(said),
                (Err(_), Some(trouble)) => Err(trouble),
                (Err(problems), None) => Err(Trouble::Unfit(problems)),
            },
            (Ending::Exited { code }, None) => {
                let what = format!("you exited with code {code}");
                Err(Trouble::Unfit(vec![Problem::new("answer", what)]))
            }
            (Ending::Signalled { signal }, None) => {
                let what = format!("you were killed by signal {signal}");
                Err(Trouble::Unfit(vec![Problem::new("answer", what)]))
            }
            (Ending::TimedOut { .. }, _) => {
                Err(Trouble::Failed("the reviewer timed out".to_owned()))
            }
            (Ending::OutOfMemory { limit }, _) => Err(Trouble::Failed(format!(
                "the reviewer used more than {} MiB of memory",
                limit >> 20
            ))),
            (Ending::NotStarted { why, .. }, _) => Err(Trouble::Failed(why.clone())),
            (Ending::Exited { .. } | Ending::Signalled { .. }, Some(trouble)) => Err(trouble),
        };
        Ok(Heard { outcome, usage })
    }
}

/// What its provider said instead of an answer.
fn trouble_in(event: AgentEvent) -> Option<Trouble> {
    let until = |at: Option<i64>| at.and_then(|at| u64::try_from(at - clock::now_ms()).ok());
    match event {
        AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying: false } => {
            let (kind, wait_ms) = (LimitKind::Rate, retry_after_ms.or_else(|| until(reset_at_ms)));
            Some(Trouble::Limited { kind, wait_ms, message })
        }
        AgentEvent::QuotaExhausted { reset_at_ms, message, .. } => {
            let (kind, wait_ms) = (LimitKind::Quota, until(reset_at_ms));
            Some(Trouble::Limited { kind, wait_ms, message })
        }
        AgentEvent::Failed { message, .. } => Some(Trouble::Failed(message)),
        _ => None,
    }
}

/// The answer: in the file where it was asked for, and if that holds none, in what was printed.
fn said(dir: &Path, answer: &Path) -> Result<(Opinion, Vec<Finding>), Vec<Problem>> {
    let file = files::read_plain(answer, SIZE_MAX as u64 + 1).ok();
    let file = file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let printed = printed(dir)
        .map_err(|error| vec![Problem::new("json", format!("cannot read the output: {error}"))])?;
    let mut first = None;
    for text in file.into_iter().filter(|text| !text.trim().is_empty()).chain([printed]) {
        match extract(&text, &WantReview) {
            Ok(found) => return Ok(found.found),
            Err(none) => {
                first.get_or_insert(none.problems());
            }
        }
    }
    Err(first.unwrap_or_default())
}

/// What a change touches, with how risky each file is.
fn changed_files(errand: &Errand, base: &Oid, tip: &Oid) -> Result<Vec<Changed>, String> {
    let (repo, settings) = (&errand.world.repo, &errand.world.settings.review);
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let counted = repo.changes(base, tip).map_err(words)?;
    let moves = repo.moves(base, tip).map_err(words)?;
    let changed = moves.into_iter().map(|moved| {
        let count = counted.files.iter().find(|file| file.path == moved.path);
        Changed {
            risk: diff::risk(&moved.path, &settings.risk_high, &settings.risk_low),
            change: match moved.letter {
                'A' | 'C' => Change::Added,
                'D' => Change::Deleted,
                'R' => Change::Renamed,
                _ => Change::Modified,
            },
            added: count.and_then(|file| file.added),
            removed: count.and_then(|file| file.removed),
            path: moved.path,
            old: moved.old,
        }
    });
    Ok(changed.collect())
}
