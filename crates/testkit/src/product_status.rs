//! What the product says about itself, read as a program would: `status --json`, `history --json`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::oracle::assert_history_gapless;
use crate::repo::TestCommandOutput;
use crate::scene::TestScene;
use crate::wait::holds_within;

/// How long a run may take to get somewhere on a loaded machine.
const SOMEWHERE_WITHIN: Duration = Duration::from_secs(60);

impl TestScene {
    /// Runs a command and panics with its whole story unless it ends with this exit code.
    #[track_caller]
    pub fn expect(&self, code: i32, args: &[&str]) -> TestCommandOutput {
        self.mainstem(args).expect_code(code)
    }

    #[track_caller]
    pub fn status(&self) -> Value {
        let output = self.expect(0, &["status", "--json"]);
        serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("status is not JSON: {error}\n{}", output.stdout))
    }

    /// One task of `status --json`.
    #[track_caller]
    pub fn task(&self, id: &str) -> Value {
        let status = self.status();
        let tasks = status["tasks"].as_array().expect("status has tasks");
        let found = tasks.iter().find(|task| task["id"] == id);
        found.unwrap_or_else(|| panic!("no task {id} in {status:#}")).clone()
    }

    /// The phase of a task.
    #[track_caller]
    pub fn phase(&self, id: &str) -> String {
        self.task(id)["phase"].as_str().expect("a phase is a word").to_owned()
    }

    /// These tasks are in these phases.
    #[track_caller]
    pub fn assert_phases(&self, expected: &[(&str, &str)]) {
        let status = self.status();
        for (id, phase) in expected {
            let tasks = status["tasks"].as_array().expect("status has tasks");
            let task = tasks.iter().find(|task| task["id"] == *id);
            let found = task.map(|task| task["phase"].as_str().unwrap_or_default());
            assert_eq!(found, Some(*phase), "{id} in {status:#}");
        }
    }

    /// Waits until a task is in a phase.
    #[track_caller]
    pub fn wait_for_phase(&self, id: &str, phase: &str) {
        let mut found = String::new();
        let there = holds_within(SOMEWHERE_WITHIN, || {
            let output = self.mainstem(&["status", "--json"]);
            // Before the first fact there is no run, and that is an answer too.
            let status: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
            let tasks = status["tasks"].as_array().cloned().unwrap_or_default();
            let task = tasks.iter().find(|task| task["id"] == id);
            found = task.map(ToString::to_string).unwrap_or_default();
            task.is_some_and(|task| task["phase"] == phase)
        });
        assert!(there, "{id} did not become {phase}: {found}");
    }

    /// Everything that happened, without a gap.
    #[track_caller]
    pub fn facts(&self) -> Vec<Value> {
        assert_history_gapless(&self.expect(0, &["history", "--json"]).stdout)
    }

    /// All facts of one kind.
    #[track_caller]
    pub fn facts_of(&self, kind: &str) -> Vec<Value> {
        self.facts().into_iter().filter(|fact| fact["type"] == kind).collect()
    }

    /// A place outside repository and workspaces, for what agents tell a test.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.repo().root().join(name)
    }

    /// The folder of an attempt: prompt, logs, records.
    #[track_caller]
    pub fn attempt_dir(&self, task: &str, attempt: u32) -> PathBuf {
        let run = self.status()["run"].as_str().expect("there is a run").to_owned();
        let runs = self.repo().git_dir().join("mainstem/runs");
        runs.join(run).join(task).join(attempt.to_string())
    }
}
