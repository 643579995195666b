#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;

use crate::adapter::LaunchSpec;
use crate::adapter::tests::Case;
use crate::drive::{DriveSpec, McpServerEntry};

fn case(kind: &str) -> Case {
    let mut case = Case::new();
    case.agent.kind = kind.into();
    case.agent.command.clear();
    case
}

fn spec(launch: &LaunchSpec) -> DriveSpec {
    assert_eq!(launch.argv, ["/bin/mainstem", "__drive", "/s/drive.json"]);
    let (_, text) = launch.files.iter().find(|(path, _)| path == "/s/drive.json").unwrap();
    serde_json::from_str(text).unwrap()
}

fn mcp() -> McpServerEntry {
    McpServerEntry {
        command: "/bin/mainstem".into(),
        args: vec!["__mcp".into()],
        env: [("MAINSTEM_MCP_TOKEN".to_owned(), "a\"b".to_owned())].into(),
    }
}

/// Whether the words stand in this order, next to each other.
fn has(args: &[String], words: &[&str]) -> bool {
    args.windows(words.len()).any(|window| window == words)
}

#[test]
fn no_prompt_is_ever_an_argument() {
    for kind in ["claude", "codex", "gemini", "opencode"] {
        let launch = case(kind).launch(kind).unwrap();
        let spec = spec(&launch);
        assert_eq!(spec.prompt_file, "/s/prompt.md", "{kind}");
        assert!(!launch.stdin_prompt, "{kind}");
        assert!(!spec.args.iter().any(|arg| arg.contains("prompt.md")), "{kind}");
        assert!(launch.state.contains(&"/s/transcript.jsonl".to_owned()), "{kind}");
        assert_eq!(launch.env["MAINSTEM_TASK"], "T-1", "{kind}");
    }
}

#[test]
fn claude_gets_a_session_of_ours_and_an_earlier_one_back() {
    let first = spec(&case("claude").launch("claude").unwrap());
    let at = first.args.iter().position(|arg| arg == "--session-id").unwrap();
    let id = &first.args[at + 1];
    assert_eq!(id.len(), 36);
    assert!(id.split('-').map(str::len).eq([8, 4, 4, 4, 12]), "{id}");
    assert!(first.args.contains(&"--dangerously-skip-permissions".to_owned()));
    let mut case = case("claude");
    case.session = Some("s-1".into());
    let again = spec(&case.launch("claude").unwrap());
    assert!(has(&again.args, &["--resume", "s-1"]));
    let fresh = again.fresh_args.unwrap();
    assert!(!fresh.iter().any(|arg| arg == "--resume" || arg == "--session-id"));
}

#[test]
fn claude_takes_its_settings() {
    let mut case = case("claude");
    case.model = Some("opus".into());
    case.agent.effort = Some("high".into());
    case.agent.system_prompt = Some("Be brief.".into());
    case.agent.max_turns = 9;
    case.agent.args = vec!["--add-dir".into(), "/x".into()];
    case.agent.allowed_tools = vec!["Write".into(), "Bash(git *)".into()];
    case.agent.env.insert("CLAUDE_CODE_MAX_RETRIES".into(), "7".into());
    case.mcp = Some(mcp());
    let launch = case.launch("claude").unwrap();
    let spec = spec(&launch);
    for words in [
        ["--model", "opus"],
        ["--effort", "high"],
        ["--append-system-prompt", "Be brief."],
        ["--max-turns", "9"],
        ["--add-dir", "/x"],
        ["--permission-prompt-tool", "stdio"],
        ["--mcp-config", "/s/mcp.json"],
    ] {
        assert!(has(&spec.args, &words), "{words:?} in {:?}", spec.args);
    }
    assert!(!spec.args.contains(&"--dangerously-skip-permissions".to_owned()));
    assert_eq!(spec.allowed_tools.unwrap(), ["Write", "Bash(git *)"]);
    assert_eq!(launch.env["CLAUDE_CODE_MAX_RETRIES"], "7");
    let (_, text) = launch.files.iter().find(|(path, _)| path == "/s/mcp.json").unwrap();
    let config: Value = serde_json::from_str(text).unwrap();
    let server = &config["mcpServers"]["mainstem"];
    assert_eq!(server["alwaysLoad"], true, "deferred tools are never found");
    assert_eq!(server["env"]["MAINSTEM_MCP_TOKEN"], "a\"b");
}

#[test]
fn where_tools_keep_their_login_can_be_written() {
    let mut case = case("claude");
    let launch = case.launch("claude").unwrap();
    assert!(launch.state.contains(&"/home/me/.claude".to_owned()));
    assert!(launch.state.contains(&"/home/me/.claude.json".to_owned()));
    case.agent.env.insert("CLAUDE_CONFIG_DIR".into(), "/c".into());
    let launch = case.launch("claude").unwrap();
    assert_eq!(launch.state, ["/c", "/s/transcript.jsonl"]);
    assert_eq!(launch.folders, ["/c"], "Codex refuses to start in a home that is not there");
    let state = |kind: &str| self::case(kind).launch(kind).unwrap().state;
    assert!(state("codex").contains(&"/home/me/.codex".to_owned()));
    assert!(state("gemini").contains(&"/home/me/.gemini".to_owned()));
    assert!(state("opencode").contains(&"/home/me/.local/share/opencode".to_owned()));
}

#[test]
fn codex_runs_without_its_own_sandbox_and_waits_for_our_server() {
    let mut case = case("codex");
    case.mcp = Some(mcp());
    case.agent.effort = Some("high".into());
    let spec = spec(&case.launch("codex").unwrap());
    assert_eq!(spec.args[0], "app-server");
    assert!(has(&spec.args, &["-c", "model_reasoning_effort=\"high\""]));
    let server = spec.args.iter().find(|arg| arg.starts_with("mcp_servers.mainstem=")).unwrap();
    assert!(server.contains("required=true"), "{server}");
    assert!(server.contains(r#"env={"MAINSTEM_MCP_TOKEN"="a\"b"}"#), "{server}");
    let fallback = spec.fallback.unwrap();
    assert_eq!(fallback.protocol, "codex-exec");
    assert_eq!(fallback.args.last().unwrap(), "-", "the prompt comes on standard input");
    assert!(fallback.args.iter().any(|arg| arg == "--dangerously-bypass-approvals-and-sandbox"));
}

#[test]
fn codex_can_be_told_to_use_exec() {
    let mut case = case("codex");
    case.agent.args = vec!["--exec".into()];
    let spec = spec(&case.launch("codex").unwrap());
    assert_eq!((spec.protocol.as_str(), spec.args[0].as_str()), ("codex-exec", "exec"));
    assert!(!spec.args.iter().any(|arg| arg == "--exec"));
}

#[test]
fn gemini_hears_signals_and_gets_settings_through_a_home_of_its_own() {
    let mut case = case("gemini");
    case.mcp = Some(mcp());
    case.agent.secrets = vec!["GEMINI_API_KEY".into()];
    let launch = case.launch("gemini").unwrap();
    assert_eq!(launch.env["GEMINI_CLI_NO_RELAUNCH"], "true");
    let overlay = spec(&launch).overlay.unwrap();
    assert_eq!(overlay.source, "/home/me/.gemini");
    let settings: Value = serde_json::from_str(&overlay.settings).unwrap();
    assert_eq!(settings["security"]["auth"]["selectedType"], "gemini-api-key");
    assert_eq!(settings["mcpServers"]["mainstem"]["args"][0], "__mcp");
}

#[test]
fn opencode_is_told_where_it_is_and_keeps_the_settings_it_was_given() {
    let mut case = case("opencode");
    case.mcp = Some(mcp());
    case.agent.env.insert("OPENCODE_CONFIG_CONTENT".into(), r#"{"model":"a/b"}"#.into());
    let spec = spec(&case.launch("opencode").unwrap());
    let set: std::collections::BTreeMap<_, _> = spec.set.into_iter().collect();
    assert_eq!(set["PWD"], "/w/T-1");
    let settings: Value = serde_json::from_str(&set["OPENCODE_CONFIG_CONTENT"]).unwrap();
    assert_eq!(settings["model"], "a/b");
    assert_eq!(settings["permission"], "allow");
    assert_eq!(settings["mcp"]["mainstem"]["command"][1], "__mcp");
    case.agent.env.insert("OPENCODE_CONFIG_CONTENT".into(), "[".into());
    let error = case.launch("opencode").unwrap_err().to_string();
    assert!(error.contains("OPENCODE_CONFIG_CONTENT under [agents.mine] env"), "{error}");
}

#[test]
fn acp_starts_whatever_it_is_given() {
    let mut case = case("acp");
    assert!(case.launch("acp").is_err());
    case.agent.command = vec!["goose".into(), "acp".into()];
    case.agent.args = vec!["--x".into()];
    let spec = spec(&case.launch("acp").unwrap());
    assert_eq!(
        (spec.program.as_str(), spec.args.as_slice()),
        ("goose", &["acp".into(), "--x".into()][..])
    );
}

#[test]
fn aider_is_a_command_with_its_prompt_in_a_file() {
    let mut case = case("command");
    case.agent.preset = Some("aider".into());
    case.model = Some("openai/x".into());
    let argv = case.launch("command").unwrap().argv;
    assert_eq!(argv[0], "aider");
    assert!(has(&argv, &["--model", "openai/x"]));
    assert!(has(&argv, &["--message-file", "/s/prompt.md"]));
}
