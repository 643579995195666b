//! Asking a reviewer: a job of its own in a checkout of exactly the work, which it may read and not
//! change. Done twice it is asked once; the second time finds the first answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mainstem_core::config::{self, ReviewerSettings};
use mainstem_core::effect::Effect;
use mainstem_core::fact::Usage;
use mainstem_core::id::Oid;
use mainstem_core::machine::{Input, ReviewerResult};
use mainstem_core::review::ReviewerOutcome;
use mainstem_core::review::review_files::{self, FileChangeKind, ReviewFile};
use mainstem_host::files::{self, TrashRetention};
use mainstem_host::process::{self, JobEnding, JobExit, JobSpec, JobState};
use mainstem_host::{clock, crash};
use mainstem_planner::extract::{extract_answer, search_answer};
use mainstem_planner::schema::{AnswerProblem, ReviewAnswerSchema};

use super::{EffectContext, gates};
use crate::agent_call::{
    AgentCall, AgentCallFailure, AgentPurpose, AgentReply, create_empty_folder, restrict_tools,
    unreadable_output,
};
use crate::reviewer_prompt::ReviewerPrompt;

/// A reviewer that gave no usable answer is asked once more, with what was wrong.
const TRIES: u32 = 2;
/// Tells a reviewer who it is.
const REVIEWER: &str = "MAINSTEM_REVIEWER";

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
            match self.call_reviewer(number, (&files, others), &problems, usage) {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(found)) => problems = found,
                Err(why) => return ReviewerOutcome::Failed { why },
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

    /// The file in which the answer is expected, alone in a folder that the reviewer may write.
    fn answer_file(&self, number: u32) -> PathBuf {
        self.call_dir(number).join("room").join("review.json")
    }

    /// Asks once, or finds that it was asked. A reviewer whose answer has problems may do better when it is told.
    fn call_reviewer(
        &self,
        number: u32,
        files: (&[ReviewFile], usize),
        problems: &[AnswerProblem],
        usage: &mut Vec<Usage>,
    ) -> Result<Result<ReviewerOutcome, Vec<AnswerProblem>>, String> {
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
        let mut reply = AgentReply::read(&dir, &self.answer_file(number), &self.agent.kind)?;
        usage.append(&mut reply.usage);
        Ok(review_outcome(reply, exit.ending))
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

    /// Writes the prompt and says how the reviewer is run: in the checkout, which it may read.
    fn prepare_call(
        &self,
        number: u32,
        (files, others): (&[ReviewFile], usize),
        problems: &[AnswerProblem],
    ) -> Result<JobSpec, String> {
        let engine = &self.errand.engine;
        let output = self.answer_file(number);
        create_empty_folder(output.parent().unwrap_or(&output))?;
        let paths: Vec<String> =
            files.iter().take(review_files::FILES_MAX).map(|file| file.path.clone()).collect();
        let diff = engine.repo.diff_paths(self.base, self.tip, &paths);
        let diff = diff.map_err(|error| error.to_string())?;
        let prompt = ReviewerPrompt {
            task: &self.errand.task,
            focus: self.reviewer.focus.as_deref(),
            files,
            others,
            diff: &String::from_utf8_lossy(&diff),
            problems,
            output: &output.to_string_lossy(),
        };
        let agent = restrict_tools(&self.agent, &["Read", "Grep", "Glob"], &output);
        let call = AgentCall {
            engine,
            agent_name: &self.reviewer.agent,
            model: self.reviewer.model.as_deref().or(agent.model.as_deref()),
            agent: &agent,
            effort: None,
            task: &self.errand.task,
            attempt: self.errand.attempt,
            base: self.base,
            prompt: &prompt.render(),
            folder: &self.call_dir(number),
            workspace: &engine.layout.lane_workspace(self.lane),
            tmp: &self.temp_dir(number),
            variables: BTreeMap::from([
                (gates::TREE.to_owned(), self.tree.to_string()),
                (REVIEWER.to_owned(), self.name.to_owned()),
            ]),
            timeout_ms: engine.settings.review.timeout_ms,
            keeps_work: false,
            purpose: AgentPurpose::Answer { stage: "review", output: &output },
        };
        Ok(call.prepare().map_err(|failure| failure.why)?.spec)
    }
}

/// What a reviewer came to, or what is wrong with its answer.
fn review_outcome(
    reply: AgentReply,
    ending: JobEnding,
) -> Result<ReviewerOutcome, Vec<AnswerProblem>> {
    let failed = |why: String| Ok(ReviewerOutcome::Failed { why });
    let invalid = |what: String| Err(vec![AnswerProblem::new("answer", what)]);
    let answer = match &ending {
        JobEnding::Stopped => return Ok(ReviewerOutcome::Stopped {}),
        JobEnding::Exited { code: 0 } => read_review_answer(&reply),
        JobEnding::Exited { code } => invalid(format!("you exited with code {code}")),
        JobEnding::Signalled { signal } => invalid(format!("you were killed by signal {signal}")),
        JobEnding::TimedOut { .. } => failed("the reviewer timed out".to_owned()),
        JobEnding::OutOfMemory { limit } => {
            failed(format!("the reviewer used more than {} MiB of memory", limit >> 20))
        }
        JobEnding::NotStarted { why, .. } => failed(why.clone()),
    };
    match (answer, reply.failure) {
        (Ok(said @ ReviewerOutcome::Said { .. }), _) => Ok(said),
        (_, Some(AgentCallFailure::Failed { message })) => failed(message),
        (_, Some(AgentCallFailure::Limited { kind, wait_ms, message })) => {
            Ok(ReviewerOutcome::Limited { kind, wait_ms, message })
        }
        (answer, None) => answer,
    }
}

fn read_review_answer(reply: &AgentReply) -> Result<ReviewerOutcome, Vec<AnswerProblem>> {
    let printed = reply.printed.as_deref().map_err(unreadable_output)?;
    let (verdict, findings) = search_answer(reply.written.as_deref(), printed, |text| {
        extract_answer(text, &ReviewAnswerSchema)
            .map(|answer| answer.found)
            .map_err(|none| none.problems())
    })?;
    Ok(ReviewerOutcome::Said { verdict, findings })
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
