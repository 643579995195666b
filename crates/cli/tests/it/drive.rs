//! `mainstem __drive` with programs that behave as the vendors' tools do at their worst.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mainstem_testkit::{TestCommandOutput, TestScene, wait_until};
use rustix::process::Signal;
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const DONE: &str =
    r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","usage":{}}"#;

/// A shell script in the place of a tool that speaks stream-json.
struct Stage {
    scene: TestScene,
    spec: PathBuf,
}

impl Stage {
    fn new(script: &str) -> Self {
        Self::speaking("claude", script)
    }

    fn speaking(protocol: &str, script: &str) -> Self {
        let scene = TestScene::new(BIN);
        let tool = scene.outside("tool");
        std::fs::write(&tool, format!("#!/bin/sh\n{script}\n")).expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let prompt = scene.outside("prompt.md");
        std::fs::write(&prompt, "Do \"it\"\nnow").expect("a file");
        let spec = json!({
            "protocol": protocol, "program": tool, "args": ["first"], "fresh_args": ["second"],
            "fallback": null, "set": [["COLOUR", "blue"]], "overlay": null,
            "as_root": {"AS_ROOT": "1"}, "prompt_file": prompt, "workspace": scene.repo().path(),
            "transcript": scene.outside("transcript.jsonl"), "resume": null, "model": null,
            "effort": null, "system_prompt": null, "allowed_tools": null, "mcp": null,
            "agent": "mine",
        });
        let file = scene.outside("drive.json");
        std::fs::write(&file, spec.to_string()).expect("a file");
        Self { scene, spec: file }
    }

    fn args(&self) -> [String; 2] {
        ["__drive".to_owned(), self.spec.display().to_string()]
    }

    fn run(&self) -> TestCommandOutput {
        let args = self.args();
        self.scene.mainstem(&args.each_ref().map(String::as_str))
    }

    fn told(&self) -> String {
        std::fs::read_to_string(self.scene.outside("told")).unwrap_or_default()
    }
}

#[test]
fn the_prompt_goes_in_as_a_message_and_the_surroundings_are_right() {
    let stage = Stage::new(&format!(
        "IFS= read -r line; root=$(dirname \"$0\")\n\
         printf '%s\\n' \"$line\" > \"$root/told\"; echo \"$PWD $COLOUR $1\" >> \"$root/told\"\necho '{DONE}'"
    ));
    let output = stage.run();
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let told = stage.told();
    assert!(told.contains(r#""text":"Do \"it\"\nnow""#), "{told}");
    let here = stage.scene.repo().path().display().to_string();
    assert!(told.ends_with(&format!("{here} blue first\n")), "{told}");
    let kept = std::fs::read_to_string(stage.scene.outside("transcript.jsonl")).expect("kept");
    assert!(kept.starts_with("in {") && kept.contains("\nout {\"type\":\"result\""), "{kept}");
}

#[test]
fn the_exit_code_of_a_tool_is_no_verdict() {
    assert_eq!(Stage::new(&format!("read x; echo '{DONE}'; exit 7")).run().code, 0);
    let error = r#"{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":500,"result":"API Error"}"#;
    let output = Stage::new(&format!("read x; echo '{error}'; exit 0")).run();
    assert_eq!(output.code, 1);
    assert!(output.stdout.contains(r#""class":"transient""#), "{}", output.stdout);
    let output = Stage::new("read x; exit 0").run();
    assert_eq!(output.code, 1, "a tool that says nothing has done nothing");
    assert!(output.stdout.contains(r#""class":"other""#), "{}", output.stdout);
}

#[test]
fn what_a_tool_leaves_behind_does_not_keep_its_driver() {
    let stage = Stage::new(&format!("read x; sleep 1000 & echo '{DONE}'; wait"));
    let begun = Instant::now();
    assert_eq!(stage.run().code, 0);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_tool_that_hears_no_signal_is_killed_after_its_result() {
    let stage =
        Stage::new(&format!("trap '' TERM; read x; echo '{DONE}'; while :; do sleep 0.1; done"));
    let begun = Instant::now();
    assert_eq!(stage.run().code, 0);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn long_and_broken_lines_are_passed_over() {
    let stage = Stage::new(&format!(
        "read x; head -c 20000000 /dev/zero | tr '\\0' x; echo\n\
         printf '{{\"type\":\"unknown\",\"text\":\"'; head -c 3000000 /dev/zero | tr '\\0' y; echo '\"}}'\n\
         printf '\\377\\376{{broken\\n'; echo '{DONE}'"
    ));
    let output = stage.run();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stdout.len() < 100_000, "{} bytes", output.stdout.len());
}

#[test]
fn a_tool_that_never_reads_does_not_block_its_driver() {
    let stage = Stage::new(&format!("echo '{DONE}'; sleep 0.2"));
    let prompt = stage.scene.outside("prompt.md");
    std::fs::write(prompt, "x".repeat(4 << 20)).expect("a file");
    assert_eq!(stage.run().code, 0);
}

#[test]
fn a_session_that_is_not_there_is_started_afresh() {
    let stage = Stage::new(&format!(
        "read x; echo $1 >> \"$(dirname \"$0\")/told\"\n\
         if [ $1 = first ]; then echo 'Error: Session ID x is already in use.' >&2; exit 1; fi\n\
         echo '{DONE}'"
    ));
    assert_eq!(stage.run().code, 0);
    assert_eq!(stage.told(), "first\nsecond\n");
}

#[test]
fn a_missing_program_is_named_with_a_way_out() {
    let stage = Stage::new("true");
    std::fs::remove_file(stage.scene.outside("tool")).expect("it was there");
    let output = stage.run();
    assert_eq!(output.code, 70);
    assert!(output.stderr.contains("set agents.mine.binary"), "{}", output.stderr);
}

#[test]
fn asked_to_end_it_interrupts_the_tool_and_ends_with_it() {
    let aborted = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","errors":[]}"#;
    let stage = Stage::new(&format!(
        "root=$(dirname \"$0\"); read x; echo up > \"$root/told\"\n\
         read y; echo \"$y\" >> \"$root/told\"; echo '{aborted}'; read z"
    ));
    let args = stage.args();
    let mut running = stage.scene.spawn(&args.each_ref().map(String::as_str));
    wait_until(Duration::from_secs(60), "the tool is up", || stage.told().contains("up"));
    running.signal(Signal::TERM);
    let output = running.wait();
    assert_eq!(output.code, 1);
    assert!(stage.told().contains(r#""subtype":"interrupt""#), "{}", stage.told());
    assert!(!output.stdout.contains("failed"), "being stopped is no failure: {}", output.stdout);
}

#[test]
fn a_tool_that_cannot_be_interrupted_is_asked_by_a_signal() {
    let stage =
        Stage::speaking("opencode", "echo up > \"$(dirname \"$0\")/told\"; exec sleep 1000");
    let args = stage.args();
    let mut running = stage.scene.spawn(&args.each_ref().map(String::as_str));
    wait_until(Duration::from_secs(60), "the tool is up", || stage.told().contains("up"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code, 1);
}

#[test]
fn a_codex_without_an_app_server_is_driven_by_exec() {
    let stage = Stage::speaking(
        "codex",
        "root=$(dirname \"$0\")\n\
         if [ \"$1\" = second ]; then cat > \"$root/told\"\n\
         echo '{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}'; exit 0; fi\n\
         echo 'error: unrecognized subcommand' >&2; exit 2",
    );
    let text = std::fs::read_to_string(&stage.spec).expect("it was written");
    let mut spec: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    spec["fresh_args"] = json!(null);
    spec["fallback"] = json!({"protocol": "codex-exec", "args": ["second"]});
    std::fs::write(&stage.spec, spec.to_string()).expect("a file");
    let output = stage.run();
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains(r#""input_tokens":7"#), "{}", output.stdout);
    assert_eq!(stage.told(), "Do \"it\"\nnow\n");
}

#[test]
fn where_no_wall_works_a_run_is_refused_unless_the_user_says_that_there_is_none() {
    let plan = "version = 1\n[[task]]\nid = \"T\"\nagent = \"claude\"\ndescription = \"x\"\n";
    let config = "[agents.claude]\nkind = \"claude\"\nbinary = \"/bin/false\"\n";
    // A search path without bubblewrap, and a wall that only it can be.
    let folder = mainstem_testkit::TestRepo::new();
    let tools = folder.root().join("tools");
    std::fs::create_dir_all(&tools).expect("a folder in a temporary folder");
    for tool in ["git", "sh"] {
        let found = ["/usr/bin", "/bin", "/usr/local/bin"].map(|place| format!("{place}/{tool}"));
        let found = found.iter().find(|file| std::path::Path::new(file).exists());
        std::os::unix::fs::symlink(found.expect("it is installed"), tools.join(tool))
            .expect("a link in a temporary folder");
    }
    let scene = TestScene::new(BIN).config(config).plan(plan).env("PATH", &tools).walled("bwrap");
    let said = scene.expect(1, &["run", "plan.toml"]);
    assert!(said.stderr.contains("bwrap is not installed"), "{}", said.stderr);
    assert!(said.stderr.contains("sandbox.kind = \"off\""), "{}", said.stderr);
    assert_eq!(scene.mainstem(&["history", "--json"]).stdout, "");
    let off = ["run", "plan.toml", "--config", "sandbox.kind=off", "--config", "run.retries=0"];
    let scene = scene.walled("auto");
    let report = scene.mainstem(&["doctor"]).stdout;
    let second = report.contains("agents use Landlock and seccomp (bubblewrap not available");
    assert!(second || report.contains("no sandbox works here"), "{report}");
    scene.expect(2, &off);
}

/// The file with the system prompt is in a folder that nobody has made before the first start.
#[test]
fn a_gemini_agent_with_a_system_prompt_starts_and_finds_the_prompt() {
    let scene = TestScene::new(BIN);
    let (tool, copy) = (scene.outside("gemini"), scene.outside("copy.md"));
    let script =
        format!("#!/bin/sh\ncp \"$GEMINI_CLI_HOME/.gemini/MAINSTEM.md\" {}\n", copy.display());
    std::fs::write(&tool, script).expect("a file");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let config = format!(
        "[run]\nretries = 0\n[agents.brief]\nkind = \"gemini\"\nbinary = \"{}\"\n\
         system_prompt = \"Be brief.\"\n",
        tool.display()
    );
    let plan =
        "version = 1\ntitle = \"t\"\n[[task]]\nid = \"T-1\"\ntitle = \"t\"\nagent = \"brief\"\n";
    let scene = scene.config(&config).plan(plan);
    // The script says nothing that the driver understands, so the task fails; what counts is that it ran.
    let out = scene.mainstem(&["run", "plan.toml"]);
    let copied = std::fs::read_to_string(&copy);
    assert_eq!(copied.ok().as_deref(), Some("Be brief."), "{out:?}");
}
