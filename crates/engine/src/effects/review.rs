//! Asking a reviewer: a job of its own in a checkout of exactly the work, which it may read and not
//! change. Done twice it is asked once; the second time finds the first answer.

use std::path::{Path, PathBuf};

use mainstem_agents::{AgentEvent, LaunchBrief, LaunchSpec, allowed_environment, find_adapter};
use mainstem_core::config::{self, AgentPermission, ReviewerSettings};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{LimitKind, Usage};
use mainstem_core::id::Oid;
use mainstem_core::machine::{Input, ReviewerResult};
use mainstem_core::plan::Task;
use mainstem_core::review::review_files::{self, FileChangeKind, ReviewFile};
use mainstem_core::review::{ReviewFinding, ReviewOpinion, ReviewerOutcome};
use mainstem_host::files::{self, TrashRetention};
use mainstem_host::process::{self, JobEnding, JobExit, JobSpec, JobState, OutputStream};
use mainstem_host::{clock, crash};
use mainstem_planner::extract::{SIZE_MAX, extract_answer};
use mainstem_planner::schema::{AnswerProblem, ReviewAnswerSchema};

use super::{EffectContext, gates};
use crate::draft::read_printed_output;
use crate::reviewer_prompt::ReviewerPrompt;
use crate::sandbox_policy::SandboxScope;

/// A reviewer that gave no usable answer is asked once more, with what was wrong.
const TRIES: u32 = 2;
/// Read at once from a log.
const READ_BYTES: usize = 1 << 20;
/// Tells a reviewer who it is.
const REVIEWER: &str = "MAINSTEM_REVIEWER";
/// The file in its room in which the answer is expected.
const ANSWER: &str = "review.json";

/// What is asked of whom.
struct ReviewerCall<'a> {
    errand: &'a EffectContext,
    name: &'a str,
    reviewer: ReviewerSettings,
    agent: config::AgentSettings,
    base: &'a Oid,
    tip: &'a Oid,
    tree: &'a Oid,
    cycle: u32,
    asked: u32,
    lane: u32,
}

/// Where a reviewer's things are.
struct ReviewerPaths {
    work_dir: PathBuf,
    tmp: PathBuf,
    prompt: PathBuf,
    output: PathBuf,
    script: PathBuf,
}

/// What came of one job.
struct ReviewerOutput {
    outcome: Result<(ReviewOpinion, Vec<ReviewFinding>), ReviewerFailure>,
    usage: Vec<Usage>,
}

/// Why there is no answer.
enum ReviewerFailure {
    /// It may do better when it is told what was wrong.
    InvalidAnswer(Vec<AnswerProblem>),
    Failed(String),
    RateLimited {
        kind: LimitKind,
        wait_ms: Option<u64>,
        message: String,
    },
    Stopped,
}

/// Asks, waits, and tells what came.
pub fn ask_reviewer(errand: &EffectContext, effect: &Effect) {
    let Effect::Review { base, tip, tree, cycle, asked, reviewer: name, lane, .. } = effect else {
        return;
    };
    let settings = &errand.engine.settings;
    let reviewer = settings.review.reviewer_settings(name);
    // One that nobody configured is told of when it cannot be started.
    let unknown = || config::AgentSettings {
        kind: reviewer.agent.clone(),
        ..config::AgentSettings::default()
    };
    let agent = settings.agents.get(&reviewer.agent).cloned().unwrap_or_else(unknown);
    let (cycle, asked, lane) = (*cycle, *asked, *lane);
    let call = ReviewerCall { errand, name, reviewer, agent, base, tip, tree, cycle, asked, lane };
    let began = clock::now_ms();
    let mut usage = Vec::new();
    let outcome = call.run_review(&mut usage);
    errand.send_input(Input::ReviewerDone(Box::new(ReviewerResult {
        task: errand.ix,
        attempt: errand.attempt,
        tree: tree.clone(),
        cycle,
        asked,
        reviewer: name.clone(),
        outcome,
        usage,
        duration_ms: u64::try_from(clock::now_ms() - began).unwrap_or(0),
        log: Some(errand.engine.layout.relative_name(&call.job_dir(0))),
    })));
}

impl ReviewerCall<'_> {
    fn run_review(&self, usage: &mut Vec<Usage>) -> ReviewerOutcome {
        let (files, others) = match self.list_files_to_review() {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => return ReviewerOutcome::Skipped { why },
            Err(why) => return ReviewerOutcome::Failed { why },
        };
        let mut problems = Vec::new();
        for number in 0..TRIES {
            let heard = self.call_reviewer(number, (&files, others), &problems);
            let heard = match heard {
                Ok(heard) => heard,
                Err(why) => return ReviewerOutcome::Failed { why },
            };
            usage.extend(heard.usage);
            match heard.outcome {
                Ok((verdict, findings)) => return ReviewerOutcome::Said { verdict, findings },
                Err(ReviewerFailure::InvalidAnswer(found)) => problems = found,
                Err(ReviewerFailure::Failed(why)) => return ReviewerOutcome::Failed { why },
                Err(ReviewerFailure::Stopped) => return ReviewerOutcome::Stopped {},
                Err(ReviewerFailure::RateLimited { kind, wait_ms, message }) => {
                    return ReviewerOutcome::Limited { kind, wait_ms, message };
                }
            }
        }
        let words: Vec<String> = problems.iter().take(5).map(ToString::to_string).collect();
        ReviewerOutcome::Failed { why: format!("unusable answer: {}", words.join("; ")) }
    }

    /// The files that this reviewer looks at, and how many it does not; or why there are none for it.
    fn list_files_to_review(&self) -> Result<Result<(Vec<ReviewFile>, usize), String>, String> {
        let world = &self.errand.engine;
        let settings = &world.settings.review;
        let changed = list_changed_files(self.errand, self.base, self.tip)?;
        let all = changed.len();
        let chosen = review_files::select_files(changed, &settings.extensions, &settings.ignore);
        if let Some(why) = review_files::reason_to_skip(&self.reviewer, &chosen) {
            return Ok(Err(why));
        }
        let at = settings.agents.iter().position(|name| name == self.name).unwrap_or(0);
        let mine = review_files::reviewer_share(&chosen, settings.mode, settings.agents.len(), at);
        if mine.is_empty() {
            return Ok(Err("other reviewers cover all changed files".to_owned()));
        }
        let others = all - mine.len();
        Ok(Ok((mine, others)))
    }

    fn call_dir(&self, number: u32) -> PathBuf {
        let world = &self.errand.engine;
        let place = world.layout.attempt_dir(&world.run, &self.errand.task.id, self.errand.attempt);
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = self.name.chars().map(safe).collect();
        place.join(format!("review-{}-{name}-{}-{number}", self.cycle, self.asked))
    }

    fn temp_dir(&self, number: u32) -> PathBuf {
        let (task, attempt) = (&self.errand.task.id, self.errand.attempt);
        let place = self.call_dir(number);
        let call = place.file_name().unwrap_or_default().to_string_lossy();
        self.errand.engine.layout.review_tmp(task, attempt, &call)
    }

    fn job_dir(&self, number: u32) -> PathBuf {
        self.call_dir(number).join("agent")
    }

    /// Asks once, or finds that it was asked.
    fn call_reviewer(
        &self,
        number: u32,
        files: (&[ReviewFile], usize),
        problems: &[AnswerProblem],
    ) -> Result<ReviewerOutput, String> {
        let world = &self.errand.engine;
        let dir = self.job_dir(number);
        let unreadable = |error: std::io::Error| format!("{}: {error}", dir.display());
        let spec = match self.find_earlier_job(&dir).map_err(unreadable)? {
            Some(spec) => spec,
            None => {
                self.check_out_work(&dir)?;
                self.prepare_call(number, files, problems)?
            }
        };
        let exit =
            process::run_job_to_end(&dir, &spec, &world.supervisor_command(), &self.errand.cancel)
                .map_err(|error| format!("cannot start the reviewer: {error}"))?;
        crash::point("review.ran");
        // What stays goes with the workspaces.
        let _ = files::move_to_trash(
            &self.temp_dir(number),
            &world.layout.trash_dir(),
            TrashRetention::Deletable,
        );
        self.read_output(&dir, &self.call_dir(number).join("room").join(ANSWER), &exit)
    }

    /// The job of an earlier life that looks, or looked, at this very tree.
    fn find_earlier_job(&self, dir: &Path) -> std::io::Result<Option<JobSpec>> {
        match process::read_job_state(dir)? {
            JobState::Absent => return Ok(None),
            JobState::Ended(JobExit { ending: JobEnding::Stopped, .. }) => {
                process::set_job_files_aside(dir)?;
                return Ok(None);
            }
            _ => {}
        }
        let same = |spec: &JobSpec| {
            spec.env.get(gates::TREE).map(String::as_str) == Some(self.tree.as_str())
                && spec.env.get(REVIEWER).map(String::as_str) == Some(self.name)
        };
        let spec = process::read_job_spec(dir)?.filter(same);
        if spec.is_none() {
            process::reset_job(dir)?;
        }
        Ok(spec)
    }

    /// Puts exactly the work into the lane. Whoever of an earlier life still looks around there is ended.
    fn check_out_work(&self, dir: &Path) -> Result<(), String> {
        let world = &self.errand.engine;
        let (lane, note) =
            (world.layout.lane_workspace(self.lane), world.layout.lane_note_path(self.lane));
        let words = |error: std::io::Error| error.to_string();
        if let Ok(other) = std::fs::read_to_string(&note) {
            let other = world.layout.state_dir().join(other.trim());
            if other != dir && other.starts_with(world.layout.state_dir().join("runs")) {
                process::end_job(&other).map_err(words)?;
            }
        }
        files::write_atomic(&note, world.layout.relative_name(dir).as_bytes()).map_err(words)?;
        std::fs::create_dir_all(world.layout.workspace_root()).map_err(words)?;
        let git = |error: mainstem_host::git::GitError| error.to_string();
        let made = world.check_out_lane(&lane, self.tip).map_err(git)?;
        if made.submodule_incomplete {
            return Err(format!("cannot check out the work: {}", made.notes.join("; ")));
        }
        world.repo.restore_tracked_files(&lane, self.tip).map_err(git)?;
        crash::point("review.checked_out");
        Ok(())
    }

    /// Makes its room and writes its prompt.
    fn prepare_call(
        &self,
        number: u32,
        (files, others): (&[ReviewFile], usize),
        problems: &[AnswerProblem],
    ) -> Result<JobSpec, String> {
        let world = &self.errand.engine;
        let place = self.call_dir(number);
        let rooms = ReviewerPaths {
            work_dir: place.join("room"),
            tmp: self.temp_dir(number),
            prompt: place.join("prompt.md"),
            output: place.join("room").join(ANSWER),
            script: place.join("script.json"),
        };
        let text = |error: std::io::Error| format!("{}: {error}", place.display());
        // An answer of an earlier try must not be taken for this one's.
        files::remove_all(&rooms.work_dir).map_err(text)?;
        for folder in [&rooms.work_dir, &rooms.tmp, &place.join("agent")] {
            std::fs::create_dir_all(folder).map_err(text)?;
        }
        let paths: Vec<String> =
            files.iter().take(review_files::FILES_MAX).map(|file| file.path.clone()).collect();
        let difference = world.repo.diff_paths(self.base, self.tip, &paths);
        let difference = difference.map_err(|error| error.to_string())?;
        let ask = ReviewerPrompt {
            task: &self.errand.task,
            focus: self.reviewer.focus.as_deref(),
            files,
            others,
            diff: &String::from_utf8_lossy(&difference),
            problems,
            output: &rooms.output.to_string_lossy(),
        };
        files::write_private(&rooms.prompt, ask.render().as_bytes()).map_err(text)?;
        let reads = vec![format!("Write({})", rooms.output.display())];
        let tools = ["Read", "Grep", "Glob"].map(str::to_owned).into_iter().chain(reads);
        let agent = config::AgentSettings {
            permission: AgentPermission::List,
            allowed_tools: tools.collect(),
            ..self.agent.clone()
        };
        let launch = self.build_launch(&rooms, &agent)?;
        for folder in &launch.folders {
            std::fs::create_dir_all(folder).map_err(text)?;
        }
        for (path, content) in &launch.files {
            files::write_atomic(Path::new(path), content.as_bytes()).map_err(text)?;
        }
        self.sandbox_reviewer_job(rooms, &agent, launch)
    }

    fn build_launch(
        &self,
        rooms: &ReviewerPaths,
        agent: &config::AgentSettings,
    ) -> Result<LaunchSpec, String> {
        let world = &self.errand.engine;
        // The task's own commands are not for whoever reviews it.
        let task = Task { run: None, script: Vec::new(), ..self.errand.task.clone() };
        let model = self.reviewer.model.as_ref().or(agent.model.as_ref());
        let adapter = find_adapter(&agent.kind).map_err(|error| error.to_string())?;
        let lane = world.layout.lane_workspace(self.lane);
        let brief = LaunchBrief {
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
    fn sandbox_reviewer_job(
        &self,
        rooms: ReviewerPaths,
        agent: &config::AgentSettings,
        launch: LaunchSpec,
    ) -> Result<JobSpec, String> {
        let world = &self.errand.engine;
        let lane = world.layout.lane_workspace(self.lane);
        let mut env =
            allowed_environment(world.env.iter().cloned(), &agent.secrets, &launch.env).vars;
        env.extend([
            ("MAINSTEM_STAGE".to_owned(), "review".to_owned()),
            ("MAINSTEM_OUTPUT".to_owned(), rooms.output.to_string_lossy().into_owned()),
            (gates::TREE.to_owned(), self.tree.to_string()),
            (REVIEWER.to_owned(), self.name.to_owned()),
        ]);
        let mut spec = world.agent_job(launch.argv, lane.clone(), env);
        let mut reads = world.list_program_dirs(&spec, agent);
        let ours = [rooms.prompt.clone(), rooms.script, lane];
        reads.extend(ours.into_iter().filter(|path| path.exists()));
        reads.extend(launch.files.iter().map(|(path, _)| PathBuf::from(path)));
        spec.stdin = launch.stdin_prompt.then_some(rooms.prompt);
        spec.keeps_work = false;
        spec.wall_ms = Some(world.settings.review.timeout_ms).filter(|ms| *ms > 0);
        let behind = SandboxScope {
            workspace: &rooms.work_dir,
            caches: Some(rooms.tmp.join("caches")),
            tmp: Some(rooms.tmp),
            readable_paths: reads,
            writable_paths: launch.state.iter().map(PathBuf::from).collect(),
            agent: Some(&agent.kind),
            ..SandboxScope::default()
        };
        world.sandboxed_job(spec, &behind).map_err(|error| error.to_string())
    }

    /// What a job that has ended left behind.
    fn read_output(
        &self,
        dir: &Path,
        answer: &Path,
        exit: &JobExit,
    ) -> Result<ReviewerOutput, String> {
        let mut parser =
            find_adapter(&self.agent.kind).map_err(|error| error.to_string())?.output_parser();
        let mut usage: Vec<Usage> = Vec::new();
        let mut trouble = None;
        let mut from = 0;
        while let Ok(output) = process::read_job_output(dir, from, READ_BYTES)
            && output.next != from
        {
            from = output.next;
            for line in output.lines.iter().filter(|line| line.stream == OutputStream::Stdout) {
                for event in parser.parse_line(&line.text) {
                    match event {
                        AgentEvent::Usage(more) => {
                            if !usage.last_mut().is_some_and(|last| last.merge_report(&more)) {
                                usage.push(more);
                            }
                        }
                        event => trouble = failure_in_event(event).or(trouble),
                    }
                }
            }
        }
        let ended_well = matches!(exit.ending, JobEnding::Exited { code: 0 });
        let outcome = match (&exit.ending, trouble) {
            (JobEnding::Stopped, _) => Err(ReviewerFailure::Stopped),
            (_, Some(trouble)) if !ended_well => Err(trouble),
            (JobEnding::Exited { code: 0 }, trouble) => {
                match (read_review_answer(dir, answer), trouble) {
                    (Ok(said), _) => Ok(said),
                    (Err(_), Some(trouble)) => Err(trouble),
                    (Err(problems), None) => Err(ReviewerFailure::InvalidAnswer(problems)),
                }
            }
            (JobEnding::Exited { code }, None) => {
                let what = format!("you exited with code {code}");
                Err(ReviewerFailure::InvalidAnswer(vec![AnswerProblem::new("answer", what)]))
            }
            (JobEnding::Signalled { signal }, None) => {
                let what = format!("you were killed by signal {signal}");
                Err(ReviewerFailure::InvalidAnswer(vec![AnswerProblem::new("answer", what)]))
            }
            (JobEnding::TimedOut { .. }, _) => {
                Err(ReviewerFailure::Failed("the reviewer timed out".to_owned()))
            }
            (JobEnding::OutOfMemory { limit }, _) => Err(ReviewerFailure::Failed(format!(
                "the reviewer used more than {} MiB of memory",
                limit >> 20
            ))),
            (JobEnding::NotStarted { why, .. }, _) => Err(ReviewerFailure::Failed(why.clone())),
            (JobEnding::Exited { .. } | JobEnding::Signalled { .. }, Some(trouble)) => Err(trouble),
        };
        Ok(ReviewerOutput { outcome, usage })
    }
}

/// What its provider said instead of an answer.
fn failure_in_event(event: AgentEvent) -> Option<ReviewerFailure> {
    let until = |at: Option<i64>| at.and_then(|at| u64::try_from(at - clock::now_ms()).ok());
    match event {
        AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying: false } => {
            let (kind, wait_ms) = (LimitKind::Rate, retry_after_ms.or_else(|| until(reset_at_ms)));
            Some(ReviewerFailure::RateLimited { kind, wait_ms, message })
        }
        AgentEvent::QuotaExhausted { reset_at_ms, message, .. } => {
            let (kind, wait_ms) = (LimitKind::Quota, until(reset_at_ms));
            Some(ReviewerFailure::RateLimited { kind, wait_ms, message })
        }
        AgentEvent::Failed { message, .. } => Some(ReviewerFailure::Failed(message)),
        _ => None,
    }
}

/// The answer: in the file where it was asked for, and if that holds none, in what was printed.
fn read_review_answer(
    dir: &Path,
    answer: &Path,
) -> Result<(ReviewOpinion, Vec<ReviewFinding>), Vec<AnswerProblem>> {
    let file = files::read_regular_file(answer, SIZE_MAX as u64 + 1).ok();
    let file = file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let printed = read_printed_output(dir).map_err(|error| {
        vec![AnswerProblem::new("json", format!("cannot read the output: {error}"))]
    })?;
    let mut first = None;
    for text in file.into_iter().filter(|text| !text.trim().is_empty()).chain([printed]) {
        match extract_answer(&text, &ReviewAnswerSchema) {
            Ok(found) => return Ok(found.found),
            Err(none) => {
                first.get_or_insert(none.problems());
            }
        }
    }
    Err(first.unwrap_or_default())
}

/// What a change touches, with how risky each file is.
fn list_changed_files(
    errand: &EffectContext,
    base: &Oid,
    tip: &Oid,
) -> Result<Vec<ReviewFile>, String> {
    let (repo, settings) = (&errand.engine.repo, &errand.engine.settings.review);
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let counted = repo.diff_stats(base, tip).map_err(words)?;
    let moves = repo.list_file_status_changes(base, tip).map_err(words)?;
    let changed = moves.into_iter().map(|moved| {
        let count = counted.files.iter().find(|file| file.path == moved.path);
        ReviewFile {
            risk: review_files::classify_risk(&moved.path, &settings.risk_high, &settings.risk_low),
            change: match moved.status {
                'A' | 'C' => FileChangeKind::Added,
                'D' => FileChangeKind::Deleted,
                'R' => FileChangeKind::Renamed,
                _ => FileChangeKind::Modified,
            },
            added: count.and_then(|file| file.added),
            removed: count.and_then(|file| file.removed),
            path: moved.path,
            old: moved.old_path,
        }
    });
    Ok(changed.collect())
}
