//! The vendors' own coding agents, driven against a stand-in of their models on loopback.
//!
//! `cargo xtask test` installs them; where that was not possible these tests say so and pass.

mod again;
mod asks;
mod crowd;
mod drafts;
mod ends;
mod limits;
mod lands;
mod reviews;

use std::path::Path;
use std::time::Duration;

use mainstem_testkit::llm::LlmStandIn;
use mainstem_testkit::{TestCommandOutput, TestScene, TestSceneProcess, real_agent};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// A run of several real agents on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A scene with a stand-in and every agent pointed at it.
struct Stage {
    scene: TestScene,
    llm: LlmStandIn,
}

/// A task: its id, its agent, its script.
type Job<'a> = (&'a str, &'a str, Value);

impl Stage {
    /// None, with a line that says so, if one of the agents is not installed.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    fn with(agents: &[&str], run: &str, jobs: &[Job<'_>]) -> Option<Self> {
        let llm = LlmStandIn::start();
        let scene = TestScene::new(BIN).walled("auto");
        let root = scene.repo().root().to_owned();
        // `$HOME/../shared` for gates: behind a wall they write nowhere else outside their checkout.
        let shared = root.join("shared");
        std::fs::create_dir(&shared).expect("a folder in a temporary folder");
        let mut config = format!("[run]\n{run}\n[sandbox]\nwrite = [{shared:?}]\n");
        for agent in agents {
            let Some(program) = real_agent(agent) else {
                println!("skipped: {agent} is not installed; cargo xtask test installs it");
                return None;
            };
            config.push_str(&settings(agent, &program, &root, &llm.url()));
        }
        let scene = scene.config(&config).plan(&plan(jobs));
        Some(Self { scene, llm })
    }

    fn start(&self, jobs: &str) -> TestSceneProcess {
        self.scene.spawn(&["run", "plan.toml", "-j", jobs])
    }

    #[track_caller]
    fn run(&self, code: i32, jobs: &str) -> TestCommandOutput {
        let output = self.start(jobs).wait_for(PATIENCE);
        assert_eq!(output.code, code, "{}\n{}\n{}", output.stdout, output.stderr, self.logs());
        output
    }

    /// What every agent printed, for a failed test's story.
    fn logs(&self) -> String {
        let status = self.scene.status();
        let tasks = status["tasks"].as_array().cloned().unwrap_or_default();
        let log = |task: &Value| {
            let id = task["id"].as_str().unwrap_or_default();
            format!("── {id}\n{}", self.scene.mainstem(&["logs", id]).stdout)
        };
        tasks.iter().map(log).collect()
    }

    /// Tokens in the journal.
    fn recorded(&self, task: &str) -> (u64, u64) {
        let facts = self.scene.facts_of("usage_reported");
        let mine = facts.iter().filter(|fact| fact["task"] == task);
        mine.fold((0, 0), |(input, output), fact| {
            let count = |key: &str| fact[key].as_u64().unwrap_or(0);
            let cached = count("cache_read_tokens") + count("cache_write_tokens");
            (input + count("input_tokens") + cached, output + count("output_tokens"))
        })
    }

    /// The task costs this much. Money is shown with four places; only the sum is rounded.
    #[track_caller]
    fn assert_cost(&self, task: &str, expected: f64) {
        let cost = self.scene.task(task)["cost_usd"].as_f64().unwrap_or(0.0);
        let rounded = (expected * 1e4).round() / 1e4;
        assert!((cost - rounded).abs() < 1e-9, "{cost} instead of {rounded}");
    }
}

/// Writes a file, commits it, says so.
fn work(task: &str) -> Value {
    work_with(task, json!({}))
}

/// The same with something more in its first step.
fn work_with(task: &str, more: Value) -> Value {
    let mut first = json!({"write": {"path": format!("{task}.txt"), "content": "hi\n"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        first[key] = value.clone();
    }
    let commit = json!({"run": format!("git add -A && git commit -qm {task}")});
    json!({"id": task, "steps": [first, commit, {"say": "All done."}]})
}

fn plan(jobs: &[Job<'_>]) -> String {
    let mut text = "version = 1\n".to_owned();
    for (id, agent, script) in jobs {
        let prompt = toml::Value::String(format!("Do it. <<STUB {script} STUB>>"));
        text.push_str(&format!(
            "[[task]]\nid = \"{id}\"\nagent = \"{agent}\"\ndescription = {prompt}\n"
        ));
    }
    text
}

/// An agent's table: its program, its model and its provider, all of them the stand-in.
fn settings(agent: &str, program: &Path, root: &Path, url: &str) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let home = |name: &str| quoted(&root.join(name).display().to_string());
    let program = quoted(&program.display().to_string());
    let head = format!("[agents.{agent}]\nkind = \"{agent}\"\nbinary = {program}\n");
    match agent {
        "claude" => format!(
            "{head}[agents.claude.env]\nANTHROPIC_BASE_URL = \"{url}\"\n\
             ANTHROPIC_API_KEY = \"dummy\"\nCLAUDE_CONFIG_DIR = {}\n",
            home("claude-home")
        ),
        "codex" => {
            let provider = format!(
                "model_providers.stub={{name=\"stub\",base_url=\"{url}/v1\",env_key=\"STUB_KEY\",\
                 wire_api=\"responses\",request_max_retries=1,stream_max_retries=1}}"
            );
            format!(
                "{head}model = \"gpt-5.5\"\nargs = [\"-c\", {}, \"-c\", {}]\n\
                 [agents.codex.env]\nSTUB_KEY = \"dummy\"\nCODEX_HOME = {}\n",
                quoted("model_provider=\"stub\""),
                quoted(&provider),
                home("codex-home")
            )
        }
        "gemini" => format!(
            "{head}model = \"gemini-2.5-flash\"\n[agents.gemini.env]\nGEMINI_API_KEY = \"dummy\"\n\
             GOOGLE_GEMINI_BASE_URL = \"{url}\"\nGEMINI_CLI_HOME = {}\n",
            home("gemini-home")
        ),
        _ => {
            let model = json!({"tool_call": true, "limit": {"context": 200_000, "output": 32_000},
                "cost": {"input": 3, "output": 15}});
            let provider = json!({"npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": format!("{url}/v1"), "apiKey": "dummy"},
                "models": {"stub-model": model}});
            let content = json!({"small_model": "stub/stub-model", "provider": {"stub": provider}});
            let mut text = format!("{head}model = \"stub/stub-model\"\n[agents.opencode.env]\n");
            for name in ["DATA", "CONFIG", "STATE", "CACHE"] {
                text.push_str(&format!("XDG_{name}_HOME = {}\n", home(&format!("oc-{name}"))));
            }
            format!("{text}OPENCODE_CONFIG_CONTENT = {}\n", quoted(&content.to_string()))
        }
    }
}
