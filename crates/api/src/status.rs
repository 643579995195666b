//! What `status --json` prints: where a run stands, whole, at one place of the journal.
//!
//! Missing knowledge is `null`, never left out and never invented.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::outlook::{BudgetStatus, EpicStatus, Eta, HostStatus, Progress, money_option};
use crate::time;

/// The name of this shape.
pub const SCHEMA: &str = "mainstem.status/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    pub schema: String,
    /// The place of the last fact that is in it: the number of that fact in `history --json`.
    #[serde(default)]
    pub seq: u64,
    /// When it was put together.
    #[serde(with = "time::wire", default)]
    pub at: i64,
    /// The run; null when nothing has run here yet.
    pub run: Option<String>,
    /// The plan's title; empty if it has none.
    #[serde(default)]
    pub title: String,
    /// The branch on which work lands; null when nothing has run here yet.
    #[serde(default)]
    pub target: Option<String>,
    /// What the engine is doing.
    pub state: RunState,
    /// How many agents may work at once.
    pub jobs: u32,
    /// The plan's epics, in its order.
    #[serde(default)]
    pub epics: Vec<EpicStatus>,
    /// Every task, in the plan's order.
    pub tasks: Vec<TaskStatus>,
    /// What is on its way to the target branch, first car first.
    pub train: Vec<StatusCandidate>,
    /// What waits for an answer, oldest first.
    pub questions: Vec<StatusQuestion>,
    /// Everything that needs a person, most urgent first.
    #[serde(default)]
    pub inbox: Vec<StatusInboxItem>,
    /// Which providers are being waited for.
    pub limits: Vec<StatusRateLimit>,
    /// Sums over all tasks.
    pub totals: StatusTotals,
    /// What may be spent, and what is.
    #[serde(default)]
    pub budget: BudgetStatus,
    /// When the run is expected to end.
    #[serde(default)]
    pub eta: Eta,
    /// The machines that run agents.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
    /// Folders that stood in a workspace's place and were moved aside because they may be somebody's;
    /// they stay until a person removes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<String>,
    /// Tasks that landed and are no longer in the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedTask>,
    /// Checks that run now, if a running engine says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<StatusRunningGate>,
    /// The check that fails on the target branch itself, which holds up all landings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red_target: Option<StatusFailedCheck>,
}

/// A task that landed and is no longer in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedTask {
    pub id: String,
    pub commit: String,
}

/// What is being done right now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusActivity {
    /// What each agent was last seen doing, by task.
    pub agents: BTreeMap<String, Progress>,
    /// Checks that run, the oldest first.
    pub gates: Vec<StatusRunningGate>,
}

/// A check that runs now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRunningGate {
    pub task: String,
    pub attempt: u32,
    /// `task` in its workspace, `train` on the merged tree, `base` on the target branch itself.
    pub scope: String,
    pub gate: String,
    #[serde(with = "time::wire")]
    pub since: i64,
    /// How long it usually takes; null if it never ran in this run.
    pub usually_ms: Option<u64>,
    /// The folder of its output, relative to the state folder.
    pub log: String,
}

/// A check that did not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusFailedCheck {
    pub gate: String,
    /// Where it ran, in words.
    pub place: String,
    /// Its exit code; null if it did not end by itself.
    pub exit_code: Option<i32>,
    /// Why it did not pass: `command_not_found`, `missing_dependency`, `sandbox_denied`, `failed`, …
    pub cause: String,
    /// The last lines of its output.
    pub output: Vec<String>,
    /// The setting or command that helps, if one is known.
    pub hint: Option<String>,
}

/// What the engine of a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// An engine is at work.
    Running,
    /// An engine is there and starts nothing new.
    Paused,
    /// No engine, and none is missing.
    Resting,
    /// The engine went away without coming to rest; `mainstem run` goes on.
    Crashed,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusPhase {
    /// Something it needs has not landed.
    Waiting,
    /// It may start as soon as there is room.
    Ready,
    /// Its workspace is being made.
    Preparing,
    /// Its agent is at work.
    Working,
    /// Its agent waits for an answer.
    Asking,
    Verifying,
    /// It is on the train.
    Merging,
    /// Its work is on the target branch.
    Landed,
    /// Its work does not fit with what landed before it.
    Conflicted,
    /// Its attempts are used up.
    Failed,
    /// Something it needs will not land.
    Blocked,
    Cancelled,
    /// It counts as done without having been done.
    Skipped,
}

impl StatusPhase {
    /// Every phase, in the order a task meets them.
    pub const ALL: [Self; 13] = [
        Self::Waiting,
        Self::Ready,
        Self::Preparing,
        Self::Working,
        Self::Asking,
        Self::Verifying,
        Self::Merging,
        Self::Landed,
        Self::Conflicted,
        Self::Failed,
        Self::Blocked,
        Self::Cancelled,
        Self::Skipped,
    ];

    /// The word used everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Preparing => "preparing",
            Self::Working => "working",
            Self::Asking => "asking",
            Self::Verifying => "verifying",
            Self::Merging => "merging",
            Self::Landed => "landed",
            Self::Conflicted => "conflicted",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    /// The phase a word names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }
}

/// Where a task stands. An edge names a task that it needs or comes after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus<Edge = String> {
    /// Its id in the plan.
    pub id: String,
    pub title: String,
    /// The epic it belongs to.
    pub epic: Option<String>,
    pub phase: StatusPhase,
    /// Its newest attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// Who works on it, a name under `[agents.*]`.
    pub agent: Option<String>,
    pub model: Option<String>,
    /// The branch its work is on.
    pub branch: Option<String>,
    /// Where its workspace is, while there is one.
    pub workspace: Option<String>,
    /// The agent's process, while there is one.
    pub pid: Option<u32>,
    /// When the newest attempt started.
    #[serde(with = "time::wire_option")]
    pub started_at: Option<i64>,
    /// When the task was over; null while it can still change.
    #[serde(with = "time::wire_option")]
    pub ended_at: Option<i64>,
    /// When the agent of the newest attempt ended; null while the agent works.
    #[serde(with = "time::wire_option", default)]
    pub agent_ended_at: Option<i64>,
    /// The tasks it waits for.
    pub waiting_for: Vec<String>,
    /// What its attempts have cost together; null if no agent said.
    #[serde(serialize_with = "money_option")]
    pub cost_usd: Option<f64>,
    /// The commit it landed as.
    pub commit: Option<String>,
    /// Why it is where it is, if that needs saying.
    pub reason: Option<String>,
    /// What happens next, or what a person can do.
    pub next_action: Option<String>,
    /// What its agent was last seen doing, if a running engine says so.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// The tasks that the plan says it needs.
    #[serde(default)]
    pub needs: Vec<Edge>,
    /// The tasks that the plan says it comes after.
    #[serde(default)]
    pub after: Vec<Edge>,
    /// Since when it is in its phase; null when the run has not begun.
    #[serde(with = "time::wire_option", default)]
    pub since: Option<i64>,
    /// Why it waits, in a word: `needs`, `after`, `slot`, `provider`, `backoff`, `budget`, `memory`, `person`,
    /// `writes`, `workspace`, `barrier`, `paused`, `quiet_hours`, `train`, `pull_request` or `target`; null if it does
    /// not wait.
    #[serde(default)]
    pub waiting_why: Option<String>,
    /// It is on the longest chain of dependencies still to come.
    #[serde(default)]
    pub critical: bool,
    /// When it is expected to land; null if nothing is known, or if it is over.
    #[serde(with = "time::wire_option", default)]
    pub expected_end: Option<i64>,
    /// Lines that its newest work adds; null before its agent has ended.
    #[serde(default)]
    pub insertions: Option<u64>,
    /// Lines that it removes.
    #[serde(default)]
    pub deletions: Option<u64>,
    /// Files that it changes.
    #[serde(default)]
    pub files: Option<u64>,
    /// The machine on which its newest attempt runs or ran.
    #[serde(default)]
    pub host: Option<String>,
    /// Its pull request, where work lands by such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<StatusPullRequest>,
    /// The check that its newest attempt did not pass, if that is why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_check: Option<StatusFailedCheck>,
    /// The task whose pull request its work builds on, until that is merged and taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacked_on: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPullRequest {
    pub number: u64,
    pub url: String,
    /// What it waits for, in words.
    pub waits_for: String,
}

/// A task's work on its way to the target branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCandidate {
    pub task: String,
    /// The attempt whose work it is.
    pub attempt: u32,
    /// How far it is.
    pub state: StatusCandidateState,
    /// Its place, the front being 1; null once it has left the train.
    pub place: Option<u32>,
    /// The commit that joined the train.
    pub tip: Option<String>,
    /// The commit it is to land on.
    pub onto: Option<String>,
    /// The merged commit under test.
    pub candidate: Option<String>,
    /// Why it was evicted, or what it waits for.
    pub reason: Option<String>,
    /// When it joined the train; null if the journal does not say.
    #[serde(with = "time::wire_option", default)]
    pub since: Option<i64>,
    /// How long the gates of the train usually take together; null if one of them never ran in this run.
    #[serde(default)]
    pub usually_ms: Option<u64>,
}

/// Two pieces of work that would not merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusConflict {
    /// A task at work or in the train.
    pub a: String,
    /// Another one; absent means the target branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
    /// The files in which they clash.
    pub paths: Vec<String>,
}

/// How far a car is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusCandidateState {
    /// It waits for a lane.
    Queued,
    /// Its merged tree is being verified.
    Verifying,
    /// Its merged tree passed; it waits for those before it.
    Verified,
    /// It is on the target branch.
    Landed,
    /// It left the train without landing.
    Evicted,
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusQuestion {
    /// Its id, for `mainstem answer`.
    pub id: String,
    /// The task that asks; null if the run itself does.
    pub task: Option<String>,
    /// The attempt that asks.
    pub attempt: Option<u32>,
    pub question: String,
    /// The answers it offers; empty means any text.
    pub options: Vec<String>,
    /// When it was asked.
    #[serde(with = "time::wire")]
    pub asked_at: i64,
    /// The answer it takes when the deadline passes.
    pub default: Option<String>,
    /// Until when it waits.
    #[serde(with = "time::wire_option")]
    pub deadline: Option<i64>,
}

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusInboxItem {
    /// Its name, for `mainstem answer` where that takes it.
    pub id: String,
    /// `question`, `approval`, `conflict`, `failure`, `checkout`, `guarded`, `config`, `budget`, `provider` or
    /// `target`.
    pub kind: String,
    /// The task it is about; null if it is about the run.
    pub task: Option<String>,
    pub text: String,
    /// Answers that are offered; empty means any text, or that a command helps instead.
    pub options: Vec<String>,
    /// Tasks that cannot go on before it is settled, besides its own.
    pub holds_up: Vec<String>,
    /// It, or what it holds up, is on the longest way to the end of the run.
    pub critical: bool,
    /// Since when it waits.
    #[serde(with = "time::wire")]
    pub since: i64,
    /// Until when it waits.
    #[serde(with = "time::wire_option")]
    pub deadline: Option<i64>,
    /// The answer that is taken then.
    pub default: Option<String>,
    /// The command that helps.
    pub help: String,
}

/// A provider that must be waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRateLimit {
    pub provider: String,
    /// Until when; null if only a person ends it.
    #[serde(with = "time::wire_option")]
    pub until: Option<i64>,
    pub reason: String,
    /// `rate`, `quota`, `breaker`, or `quiet_hours` for all providers.
    #[serde(default)]
    pub kind: String,
    /// The tasks that wait for it.
    pub waiting: Vec<String>,
}

/// Sums over a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusTotals {
    /// How many tasks there are.
    pub tasks: u64,
    /// How many are in each phase; every phase is there.
    pub by_phase: BTreeMap<StatusPhase, u64>,
    /// How many have landed.
    pub landed: u64,
    /// What everything has cost together; null if no agent said.
    #[serde(serialize_with = "money_option")]
    pub cost_usd: Option<f64>,
    /// Tokens read by models.
    pub input_tokens: u64,
    /// Tokens written by models.
    pub output_tokens: u64,
    /// Time from the run's start until now or its rest.
    pub elapsed_ms: u64,
    /// Time agents have worked, summed: divided by `elapsed_ms` it is the speed-up.
    pub agent_ms: u64,
    /// How many questions wait.
    pub questions: u64,
}

impl Default for StatusTotals {
    /// Nothing at all, with every phase at 0.
    fn default() -> Self {
        Self {
            tasks: 0,
            by_phase: StatusPhase::ALL.into_iter().map(|phase| (phase, 0)).collect(),
            landed: 0,
            cost_usd: None,
            input_tokens: 0,
            output_tokens: 0,
            elapsed_ms: 0,
            agent_ms: 0,
            questions: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn status() -> RunStatus {
        let mut totals = StatusTotals {
            tasks: 1,
            cost_usd: Some(0.25),
            input_tokens: 10,
            ..StatusTotals::default()
        };
        totals.by_phase.insert(StatusPhase::Working, 1);
        RunStatus {
            schema: SCHEMA.into(),
            seq: 7,
            at: 3000,
            run: Some("r-1".into()),
            title: "Todo".into(),
            target: Some("main".into()),
            state: RunState::Running,
            jobs: 3,
            epics: vec![EpicStatus {
                id: "E-001".into(),
                title: "Storage".into(),
                needs: vec![],
                tasks: 1,
                landed: 0,
            }],
            tasks: vec![TaskStatus {
                id: "T-001".into(),
                title: "Schema".into(),
                epic: Some("E-001".into()),
                phase: StatusPhase::Working,
                attempt: 1,
                agent: Some("claude".into()),
                model: None,
                branch: Some("mainstem/T-001".into()),
                workspace: Some("/w/T-001".into()),
                pid: Some(42),
                started_at: Some(250),
                ended_at: None,
                agent_ended_at: None,
                waiting_for: vec![],
                cost_usd: Some(0.25),
                commit: None,
                reason: None,
                next_action: None,
                progress: Some(Progress { tool: Some("Read".into()), text: "a.rs".into() }),
                needs: vec!["T-000".into()],
                after: vec![],
                since: Some(250),
                waiting_why: None,
                critical: true,
                expected_end: Some(4000),
                insertions: Some(1),
                deletions: Some(0),
                files: Some(1),
                host: Some("vm".into()),
                pull: None,
                failed_check: None,
                stacked_on: None,
            }],
            train: vec![StatusCandidate {
                task: "T-000".into(),
                attempt: 2,
                state: StatusCandidateState::Verifying,
                place: Some(1),
                tip: Some("aaa".into()),
                onto: Some("bbb".into()),
                candidate: None,
                reason: None,
                since: Some(500),
                usually_ms: Some(3245),
            }],
            questions: vec![StatusQuestion {
                id: "Q-1".into(),
                task: Some("T-001".into()),
                attempt: Some(1),
                question: "Which?".into(),
                options: vec!["a".into(), "b".into()],
                asked_at: 1000,
                default: Some("a".into()),
                deadline: Some(2000),
            }],
            inbox: vec![StatusInboxItem {
                id: "Q-1".into(),
                kind: "question".into(),
                task: Some("T-001".into()),
                text: "Which?".into(),
                options: vec!["a".into(), "b".into()],
                holds_up: vec!["T-002".into()],
                critical: true,
                since: 1000,
                deadline: Some(2000),
                default: Some("a".into()),
                help: "mainstem answer Q-1 NUMBER".into(),
            }],
            limits: vec![StatusRateLimit {
                provider: "anthropic".into(),
                until: None,
                reason: "429".into(),
                kind: "rate".into(),
                waiting: vec!["T-002".into()],
            }],
            totals,
            budget: BudgetStatus { usd: Some(25.0), ..BudgetStatus::default() },
            eta: Eta {
                at: Some(5000),
                critical_path: vec!["T-001".into()],
                basis: Some("effort".into()),
            },
            hosts: vec![HostStatus {
                host: "vm".into(),
                state: "ok".into(),
                slots: 3,
                used: 1,
                lanes: 1,
                labels: vec![],
                agents: vec!["claude".into()],
                seen_at: Some(3000),
                incarnation: 1,
            }],
            aside: Vec::new(),
            dropped: Vec::new(),
            gates: Vec::new(),
            red_target: None,
        }
    }

    #[test]
    fn a_status_has_this_shape() {
        let expected = concat!(
            r#"{"schema":"mainstem.status/1","seq":7,"at":"1970-01-01T00:00:03.000Z","run":"r-1","title":"Todo","#,
            r#""target":"main","state":"running","jobs":3,"#,
            r#""epics":[{"id":"E-001","title":"Storage","needs":[],"tasks":1,"landed":0}],"#,
            r#""tasks":[{"id":"T-001","title":"Schema","epic":"E-001","phase":"working","attempt":1,"#,
            r#""agent":"claude","model":null,"branch":"mainstem/T-001","workspace":"/w/T-001","pid":42,"#,
            r#""started_at":"1970-01-01T00:00:00.250Z","ended_at":null,"agent_ended_at":null,"waiting_for":[],"cost_usd":0.25,"#,
            r#""commit":null,"reason":null,"next_action":null,"progress":{"tool":"Read","text":"a.rs"},"#,
            r#""needs":["T-000"],"after":[],"since":"1970-01-01T00:00:00.250Z","waiting_why":null,"critical":true,"#,
            r#""expected_end":"1970-01-01T00:00:04.000Z","insertions":1,"deletions":0,"files":1,"host":"vm"}],"#,
            r#""train":[{"task":"T-000","attempt":2,"state":"verifying","place":1,"tip":"aaa","onto":"bbb","#,
            r#""candidate":null,"reason":null,"since":"1970-01-01T00:00:00.500Z","usually_ms":3245}],"#,
            r#""questions":[{"id":"Q-1","task":"T-001","attempt":1,"question":"Which?","options":["a","b"],"#,
            r#""asked_at":"1970-01-01T00:00:01.000Z","default":"a","deadline":"1970-01-01T00:00:02.000Z"}],"#,
            r#""inbox":[{"id":"Q-1","kind":"question","task":"T-001","text":"Which?","options":["a","b"],"#,
            r#""holds_up":["T-002"],"critical":true,"since":"1970-01-01T00:00:01.000Z","#,
            r#""deadline":"1970-01-01T00:00:02.000Z","default":"a","help":"mainstem answer Q-1 NUMBER"}],"#,
            r#""limits":[{"provider":"anthropic","until":null,"reason":"429","kind":"rate","waiting":["T-002"]}],"#,
            r#""totals":{"tasks":1,"by_phase":{"waiting":0,"ready":0,"preparing":0,"working":1,"asking":0,"#,
            r#""verifying":0,"merging":0,"landed":0,"conflicted":0,"failed":0,"blocked":0,"cancelled":0,"#,
            r#""skipped":0},"landed":0,"cost_usd":0.25,"input_tokens":10,"output_tokens":0,"elapsed_ms":0,"#,
            r#""agent_ms":0,"questions":0},"#,
            r#""budget":{"usd":25.0,"hard":false,"spent_usd":0.0,"reserved_usd":0.0,"forecast_usd":null},"#,
            r#""eta":{"at":"1970-01-01T00:00:05.000Z","critical_path":["T-001"],"basis":"effort"},"#,
            r#""hosts":[{"host":"vm","state":"ok","slots":3,"used":1,"lanes":1,"labels":[],"agents":["claude"],"#,
            r#""seen_at":"1970-01-01T00:00:03.000Z","incarnation":1}]}"#,
        );
        assert_eq!(serde_json::to_string(&status()).unwrap(), expected);
        assert_eq!(serde_json::from_str::<RunStatus>(expected).unwrap(), status());
    }

    #[test]
    fn the_states_are_the_promised_words() {
        let words = |states: &[RunState]| serde_json::to_string(states).unwrap();
        assert_eq!(
            words(&[RunState::Running, RunState::Paused, RunState::Resting, RunState::Crashed]),
            r#"["running","paused","resting","crashed"]"#
        );
    }

    #[test]
    fn the_phases_are_the_promised_words_on_the_wire_and_off_it() {
        let promised = "waiting ready preparing working asking verifying merging landed conflicted \
                        failed blocked cancelled skipped";
        assert_eq!(StatusPhase::ALL.map(StatusPhase::as_str).join(" "), promised);
        for phase in StatusPhase::ALL {
            assert_eq!(serde_json::to_string(&phase).unwrap(), format!("\"{}\"", phase.as_str()));
            assert_eq!(StatusPhase::parse(phase.as_str()), Some(phase));
        }
        assert_eq!(StatusPhase::parse("done"), None);
    }

    #[test]
    fn a_reader_of_today_understands_a_status_that_has_gained_fields() {
        let mut value = serde_json::to_value(status()).unwrap();
        value["new"] = 1.into();
        value["tasks"][0]["new"] = 1.into();
        assert_eq!(serde_json::from_value::<RunStatus>(value).unwrap(), status());
    }
}
