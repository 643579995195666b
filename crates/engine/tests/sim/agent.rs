//! Agents as processes: they outlive engines, edit, commit, speak, wait, end, or lose their supervisor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use mainstem_core::id::TaskId;
use mainstem_host::process::{JobEnding, JobExit, OutputLine, OutputStream};

use crate::git::{Edit, Git};
use crate::rng::Rng;

/// An attempt, by its task's id.
pub type Key = (TaskId, u32);

/// An agent that is silent for so long is ended.
pub const IDLE_MS: u64 = 600_000;

/// One thing that an agent does.
#[derive(Debug, Clone)]
enum Act {
    Edit,
    Commit,
    Say(String),
    Ask(String),
    /// Removes its own workspace; what it committed is on the branch.
    Destroy,
}

/// What is true of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// A supervisor looks after it.
    Alive,
    /// Its supervisor is gone; whether the agent itself lives.
    Vanished { orphan: bool },
    /// All of it is gone, and that is on record.
    Ended(JobExit),
}

#[derive(Debug, Clone)]
pub struct Agent {
    acts: VecDeque<Act>,
    fate: JobEnding,
    pub job: Job,
    pub workspace: PathBuf,
    pub branch: String,
    pub log: Vec<OutputLine>,
    /// Money it told of, by the place of the word.
    pub costs: BTreeMap<u64, f64>,
    asked: u32,
    /// How long it waits for an answer; its question may have been in output that was dropped.
    patience: u64,
    /// Answers that reached it.
    pub answers: BTreeSet<u32>,
    /// It was asked to end.
    pub stopping: bool,
    /// What was there when it began, and when it was gone.
    pub began_with: BTreeSet<Edit>,
    /// What it left; none while it lives.
    pub left: Option<BTreeSet<Edit>>,
}

impl Agent {
    /// One with a random life before it; a good one works and ends well.
    pub fn random(rng: &mut Rng, bad: bool, workspace: PathBuf, branch: String) -> Self {
        let mut acts: VecDeque<Act> = (0..1 + rng.below(2)).map(|_| Act::Edit).collect();
        if rng.in_thousand(500) {
            acts.push_back(Act::Commit);
        }
        for _ in 0..rng.below(3) {
            let at = rng.below(acts.len() + 1);
            acts.insert(at, Act::Say(usage(rng)));
        }
        if rng.in_thousand(500) {
            let session = format!("{{\"mainstem\":\"session\",\"id\":\"s{}\"}}", rng.below(3));
            acts.push_front(Act::Say(session));
        }
        let mut fate = JobEnding::Exited { code: 0 };
        if bad {
            fate = misbehave(rng, &mut acts);
        }
        Self {
            acts,
            fate,
            job: Job::Alive,
            workspace,
            branch,
            log: Vec::new(),
            costs: BTreeMap::new(),
            asked: 0,
            patience: 0,
            answers: BTreeSet::new(),
            stopping: false,
            began_with: BTreeSet::new(),
            left: None,
        }
    }

    /// Does any process of it live?
    pub fn lives(&self) -> bool {
        matches!(self.job, Job::Alive | Job::Vanished { orphan: true })
    }

    /// It does nothing before it is answered.
    pub fn waits(&self) -> bool {
        (1..=self.asked).any(|n| !self.answers.contains(&n))
    }

    /// One more moment of its life.
    pub fn live(&mut self, git: &mut Git, at: u64, now: i64) {
        if !self.lives() {
            return;
        }
        if self.stopping && self.job == Job::Alive {
            return self.end(git, JobEnding::Stopped, now);
        }
        if self.waits() && at < self.patience {
            return;
        }
        if self.waits() && self.job == Job::Alive {
            return self.end(git, JobEnding::TimedOut { idle: true }, now);
        }
        match self.acts.pop_front() {
            None if self.job == Job::Alive => self.end(git, self.fate.clone(), now),
            None => self.die(git),
            Some(Act::Edit) => {
                let edit = git.edit();
                if let Some(workspace) = git.workspaces.get_mut(&self.workspace) {
                    workspace.files.insert(edit);
                }
            }
            Some(Act::Commit) => {
                if let Some(workspace) = git.workspaces.get(&self.workspace).cloned() {
                    let head =
                        git.commit(vec![workspace.head], workspace.files.clone(), Vec::new());
                    git.branches.insert(self.branch.clone(), head);
                    git.workspaces.get_mut(&self.workspace).unwrap().head = head;
                }
            }
            Some(Act::Destroy) => drop(git.workspaces.remove(&self.workspace)),
            Some(Act::Say(text)) => self.print(text, now),
            Some(Act::Ask(text)) => {
                self.asked += 1;
                self.patience = at + IDLE_MS;
                self.print(text, now);
            }
        }
    }

    fn print(&mut self, text: String, now: i64) {
        // Nobody writes down what an agent says once its supervisor is gone.
        if self.job != Job::Alive {
            return;
        }
        let text = text.replace("@SOON", &(now.max(0) / 1_000 + 4).to_string());
        let offset = self.log.last().map_or(0, |line| line.offset) + 9 + text.len() as u64;
        if let Some((_, cost)) = text.split_once("\"cost_usd\":") {
            let cost = cost.trim_end_matches('}').parse().unwrap();
            self.costs.insert(offset << 4, cost);
        }
        let text = text.into_bytes();
        self.log.push(OutputLine {
            offset,
            at_ms: now,
            stream: OutputStream::Stdout,
            text,
            continues: false,
        });
    }

    /// Its supervisor sees its end and writes it down.
    pub fn end(&mut self, git: &Git, ending: JobEnding, now: i64) {
        self.leave(git);
        self.job = Job::Ended(exit(ending, now));
    }

    /// The last of it dies without anybody writing it down.
    pub fn die(&mut self, git: &Git) {
        self.leave(git);
        self.job = Job::Vanished { orphan: false };
    }

    /// Whoever ends jobs ends this one, whatever it is.
    pub fn kill(&mut self, git: &Git, now: i64) {
        match self.job {
            Job::Alive => self.end(git, JobEnding::Stopped, now),
            Job::Vanished { orphan: true } => self.die(git),
            Job::Vanished { orphan: false } | Job::Ended(_) => {}
        }
    }

    /// Notes what it left; once only, for its folder may be gone when somebody looks again.
    fn leave(&mut self, git: &Git) {
        if self.left.is_some() {
            return;
        }
        let files = git.workspaces.get(&self.workspace).map(|workspace| workspace.files.clone());
        let branch = || git.branches.get(&self.branch).map(|at| git.files(*at).clone());
        self.left = Some(files.or_else(branch).unwrap_or_default());
    }
}

/// A record of an end.
pub fn exit(ending: JobEnding, now: i64) -> JobExit {
    JobExit {
        ending,
        started_at_ms: now,
        ended_at_ms: now,
        leftovers_killed: 0,
        output_bytes: 0,
        output_dropped: 0,
    }
}

fn usage(rng: &mut Rng) -> String {
    // Exact in binary, so that sums can be compared.
    let cost = f64::from(u32::try_from(rng.below(8)).unwrap()) * 0.25;
    format!("{{\"mainstem\":\"usage\",\"input_tokens\":{},\"cost_usd\":{cost}}}", rng.below(100))
}

fn misbehave(rng: &mut Rng, acts: &mut VecDeque<Act>) -> JobEnding {
    let say = |text: &str| Act::Say(text.to_owned());
    for _ in 0..rng.below(3) {
        let act = match rng.below(20) {
            0..5 => {
                let rest =
                    *rng.pick(&["", ",\"default\":\"a\",\"deadline\":2", ",\"default\":\"b\""]);
                let text = format!(
                    "{{\"mainstem\":\"ask\",\"question\":\"which?\",\"options\":[\"a\",\"b\"]{rest}}}"
                );
                Act::Ask(text)
            }
            5..7 => say("{\"mainstem\":\"rate_limited\",\"retry_after\":3}"),
            7 => say("{\"mainstem\":\"blocked\",\"reason\":\"no\"}"),
            8 => say("{\"mainstem\":\"nothing_to_do\"}"),
            9 => Act::Destroy,
            10 => say("{\"mainstem\":\"rate_limited\"}"),
            11 => say("{\"mainstem\":\"rate_limited\",\"retrying\":true,\"reset_at\":@SOON}"),
            12 => say(
                "{\"mainstem\":\"quota_exhausted\",\"reset_at\":@SOON,\"window\":\"five_hour\"}",
            ),
            13 => say("{\"mainstem\":\"propose_task\",\"title\":\"more\",\"needs\":[\"T0\"]}"),
            14 => say("{\"mainstem\":\"issue\",\"title\":\"odd\"}"),
            15 => say("{\"mainstem\":\"progress\",\"text\":\"reads\"}"),
            16 => say("{\"mainstem\":\"claimed_done\",\"summary\":\"did it\"}"),
            _ => say("just a line"),
        };
        let at = rng.below(acts.len() + 1);
        acts.insert(at, act);
    }
    if rng.in_thousand(150) {
        acts.retain(|act| !matches!(act, Act::Edit));
    }
    if rng.in_thousand(250) {
        let class = *rng.pick(&["transient", "transient", "auth", "looping", "stalled", "request"]);
        acts.push_back(Act::Say(format!("{{\"mainstem\":\"failed\",\"class\":\"{class}\"}}")));
        return JobEnding::Exited { code: 1 };
    }
    match rng.below(10) {
        0..6 => JobEnding::Exited { code: 0 },
        6 => JobEnding::Exited { code: 3 },
        7 => JobEnding::Signalled { signal: 9 },
        8 => JobEnding::TimedOut { idle: rng.in_thousand(500) },
        _ => {
            acts.clear();
            JobEnding::NotStarted { why: "no such program".to_owned(), not_found: true }
        }
    }
}
