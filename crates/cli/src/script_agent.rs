//! The built-in `script` agent: walks the steps of a script file in the current directory.
//!
//! An agent process like any other. It knows its workspace, its attempt and its standard streams,
//! and nothing of the engine that started it.

#![expect(
    clippy::disallowed_methods,
    reason = "this is an agent: it sleeps and starts programs as agents do, outside the engine's process"
)]

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mainstem_core::plan::ScriptStep;
use serde_json::{Value, json};

/// What a rate-limited agent ends with: "try again later", as sysexits has it.
const EXIT_RATE_LIMITED: i32 = 75;
/// What an agent ends with whose script cannot be walked.
const EXIT_BROKEN: i32 = 70;
/// Tells a sleeping grandchild to leave our session.
const DETACH_VARIABLE: &str = "MAINSTEM_SCRIPT_DETACH";

/// Why a script cannot go on.
#[derive(Debug, thiserror::Error)]
enum ScriptAgentError {
    /// The script file cannot be read.
    #[error("cannot read the script {path}: {cause}", path = .path.display())]
    Script { path: PathBuf, cause: String },
    /// A path that leads out of the workspace.
    #[error("`{0}` is not a path inside the workspace")]
    Outside(String),
    /// A file that cannot be written.
    #[error("cannot write {path}: {cause}", path = .path.display())]
    File { path: PathBuf, cause: io::Error },
    /// Git did not do what it was asked.
    #[error("git {command} failed: {said}")]
    Git { command: String, said: String },
    /// A stream of ours broke.
    #[error("cannot use {stream}: {cause}")]
    Stream { stream: &'static str, cause: io::Error },
    #[error("standard input ended before the question was answered: {0}")]
    Unanswered(String),
    /// The grandchild did not start.
    #[error("cannot start another process: {0}")]
    Spawn(io::Error),
}

/// Walks the script in the current directory; the agent's exit code comes back.
pub(crate) fn run_script_file(script_file: &Path) -> i32 {
    let attempt = std::env::var("MAINSTEM_ATTEMPT").ok().and_then(|text| text.parse().ok());
    let walked = load_script(script_file).and_then(|steps| {
        let here = PathBuf::from(".");
        let root =
            here.canonicalize().map_err(|cause| ScriptAgentError::File { path: here, cause })?;
        let stdin = BufReader::new(io::stdin());
        ScriptRunner { root, attempt: attempt.unwrap_or(1), input: stdin, output: io::stdout() }
            .run_steps(&steps)
    });
    walked.unwrap_or_else(|error| {
        // With standard error gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "script agent: {error}");
        EXIT_BROKEN
    })
}

/// The grandchild of a `spawn` step: lives this long and ends well.
pub(crate) fn run_sleeper(ms: u64) -> i32 {
    if std::env::var_os(DETACH_VARIABLE).is_some() && rustix::process::setsid().is_err() {
        return EXIT_BROKEN;
    }
    std::thread::sleep(Duration::from_millis(ms));
    0
}

fn load_script(path: &Path) -> Result<Vec<ScriptStep>, ScriptAgentError> {
    let broken = |cause: String| ScriptAgentError::Script { path: path.to_owned(), cause };
    let bytes = fs::read(path).map_err(|error| broken(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))
}

/// What a step leads to.
enum ScriptFlow {
    Step,
    Exit(i32),
}

/// One walk through a script.
struct ScriptRunner<I, O> {
    /// The workspace, without symbolic links in it.
    root: PathBuf,
    attempt: u32,
    input: I,
    output: O,
}

impl<I: BufRead, O: Write> ScriptRunner<I, O> {
    fn run_steps(&mut self, steps: &[ScriptStep]) -> Result<i32, ScriptAgentError> {
        for step in steps {
            if let ScriptFlow::Exit(code) = self.run_step(step)? {
                return Ok(code);
            }
        }
        Ok(0)
    }

    fn run_step(&mut self, step: &ScriptStep) -> Result<ScriptFlow, ScriptAgentError> {
        match step {
            ScriptStep::Write { path, text } => self.write_file(path, text, false)?,
            ScriptStep::Append { path, text } => self.write_file(path, text, true)?,
            ScriptStep::Commit { message } => self.commit_changes(message)?,
            ScriptStep::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            ScriptStep::Print { text } => self.print_line(text)?,
            ScriptStep::Ask { question, options, into } => {
                self.ask_question(question, options, into.as_deref())?;
            }
            ScriptStep::Fail { code, times } => {
                if self.applies_to_attempt(*times) {
                    return Ok(ScriptFlow::Exit(*code));
                }
            }
            ScriptStep::RateLimit { retry_after, times } => {
                if self.applies_to_attempt(*times) {
                    self.send_message(
                        &json!({"mainstem": "rate_limited", "retry_after": retry_after}),
                    )?;
                    return Ok(ScriptFlow::Exit(EXIT_RATE_LIMITED));
                }
            }
            ScriptStep::Hang { ignore_term } => return hang_forever(*ignore_term),
            ScriptStep::Spawn { ms, detach } => spawn_sleeper(&self.root, *ms, *detach)?,
            ScriptStep::Usage { input_tokens, output_tokens, cost_usd } => {
                self.send_message(&json!({
                    "mainstem": "usage",
                    "input_tokens": input_tokens,
                    "output_tokens": output_tokens,
                    "cost_usd": cost_usd,
                }))?;
            }
            ScriptStep::NothingToDo { reason } => {
                self.send_message(&json!({"mainstem": "nothing_to_do", "reason": reason}))?;
                return Ok(ScriptFlow::Exit(0));
            }
            ScriptStep::Blocked { reason } => {
                self.send_message(&json!({"mainstem": "blocked", "reason": reason}))?;
                return Ok(ScriptFlow::Exit(0));
            }
        }
        Ok(ScriptFlow::Step)
    }

    /// Whether a step that holds for the first `times` attempts holds for this one.
    fn applies_to_attempt(&self, times: Option<u32>) -> bool {
        times.is_none_or(|times| self.attempt <= times)
    }

    fn send_message(&mut self, message: &Value) -> Result<(), ScriptAgentError> {
        self.print_line(&message.to_string())
    }

    fn print_line(&mut self, line: &str) -> Result<(), ScriptAgentError> {
        let written = writeln!(self.output, "{line}").and_then(|()| self.output.flush());
        match written {
            // The reader is gone, the work is not: an agent goes on without its audience.
            Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => {
                other.map_err(|cause| ScriptAgentError::Stream { stream: "standard output", cause })
            }
        }
    }

    fn ask_question(
        &mut self,
        question: &str,
        options: &[String],
        into: Option<&str>,
    ) -> Result<(), ScriptAgentError> {
        self.send_message(&json!({"mainstem": "ask", "question": question, "options": options}))?;
        let answer = self.read_answer(question)?;
        match into {
            Some(path) => self.write_file(path, &answer, false),
            None => Ok(()),
        }
    }

    /// The next answer on standard input. The prompt came in on the same stream, so what is no
    /// answer is passed over.
    fn read_answer(&mut self, question: &str) -> Result<String, ScriptAgentError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = self.input.read_until(b'\n', &mut line);
            let read =
                read.map_err(|cause| ScriptAgentError::Stream { stream: "standard input", cause })?;
            if read == 0 {
                return Err(ScriptAgentError::Unanswered(question.to_owned()));
            }
            if let Some(text) = parse_answer(&line) {
                return Ok(text);
            }
        }
    }

    fn write_file(&self, path: &str, text: &str, append: bool) -> Result<(), ScriptAgentError> {
        let full = resolve_inside(&self.root, path)?;
        let broken = |cause| ScriptAgentError::File { path: full.clone(), cause };
        if let Some(folder) = full.parent() {
            fs::create_dir_all(folder).map_err(broken)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(append).truncate(!append);
        let mut file = options.open(&full).map_err(broken)?;
        file.write_all(text.as_bytes()).map_err(broken)
    }

    fn commit_changes(&self, message: &str) -> Result<(), ScriptAgentError> {
        run_git(&self.root, &["add", "-A"], &[0])?;
        if run_git(&self.root, &["diff", "--cached", "--quiet"], &[0, 1])? == 0 {
            return Ok(());
        }
        run_git(&self.root, &["commit", "-q", "-m", message], &[0])?;
        Ok(())
    }
}

/// The text of an answer line, or nothing if the line is something else.
fn parse_answer(line: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let fields = value.as_object()?;
    if fields.get("mainstem").is_some_and(|kind| kind != "answer") {
        return None;
    }
    let text = fields.get("text").or_else(|| fields.get("answer"))?;
    text.as_str().map(str::to_owned)
}

/// Where a path of the script lies, if that is inside the workspace and not git's own.
fn resolve_inside(root: &Path, path: &str) -> Result<PathBuf, ScriptAgentError> {
    let outside = || ScriptAgentError::Outside(path.to_owned());
    let mut full = root.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) if !name.eq_ignore_ascii_case(".git") => full.push(name),
            _ => return Err(outside()),
        }
    }
    if full == root {
        return Err(outside());
    }
    // What exists of the path decides where a symbolic link in it leads.
    let mut there = full.as_path();
    loop {
        match there.symlink_metadata() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(ScriptAgentError::File { path: full, cause }),
        }
        there = there.parent().ok_or_else(outside)?;
    }
    match there.canonicalize() {
        Ok(real) if real.starts_with(root) => Ok(full),
        _ => Err(outside()),
    }
}

/// Runs git in the workspace and returns its exit code, which must be one of those expected.
fn run_git(root: &Path, args: &[&str], expected: &[i32]) -> Result<i32, ScriptAgentError> {
    let failed = |said: String| ScriptAgentError::Git { command: args[0].to_owned(), said };
    let mut command = Command::new("git");
    command.current_dir(root).stdin(Stdio::null());
    // Housekeeping and signing belong to people, not to a script in a workspace.
    command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "commit.gpgsign=false"]);
    if args[0] == "commit" && !has_identity(root) {
        for who in ["AUTHOR", "COMMITTER"] {
            let fallback =
                [("NAME", "Mainstem script agent"), ("EMAIL", "script@mainstem.invalid")];
            for (what, value) in fallback {
                let name = format!("GIT_{who}_{what}");
                if std::env::var_os(&name).is_none() {
                    command.env(name, value);
                }
            }
        }
    }
    let output = command.args(args).output().map_err(|error| failed(error.to_string()))?;
    match output.status.code() {
        Some(code) if expected.contains(&code) => Ok(code),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(format!("{}: {}", output.status, said.trim())))
        }
    }
}

/// Whether somebody has told git who commits here.
fn has_identity(root: &Path) -> bool {
    ["user.name", "user.email"].iter().all(|key| {
        let mut command = Command::new("git");
        command.current_dir(root).args(["config", "--get", key]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn hang_forever(ignore_term: bool) -> Result<ScriptFlow, ScriptAgentError> {
    if ignore_term {
        // A handler that only sets a flag nobody reads is what "ignored" looks like from outside.
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGTERM, flag)
            .map_err(ScriptAgentError::Spawn)?;
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn spawn_sleeper(root: &Path, ms: u64, detach: bool) -> Result<(), ScriptAgentError> {
    let own = std::env::current_exe().map_err(ScriptAgentError::Spawn)?;
    let mut command = Command::new(own);
    command.args(["__sleep", &ms.to_string()]).current_dir(root).stdin(Stdio::null());
    if detach {
        command.env(DETACH_VARIABLE, "1");
    }
    command.spawn().map_err(ScriptAgentError::Spawn)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::Cursor;

    use super::*;

    /// A workspace with one walk through it.
    struct Stage {
        dir: tempfile::TempDir,
    }

    impl Stage {
        fn new() -> Self {
            let stage = Self { dir: tempfile::tempdir().unwrap() };
            stage.git(&["init", "-q", "-b", "main"]);
            stage
        }

        fn root(&self) -> PathBuf {
            self.dir.path().canonicalize().unwrap()
        }

        fn git(&self, args: &[&str]) -> String {
            let output = Command::new("git").current_dir(self.root()).args(args).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        }

        fn walk(
            &self,
            attempt: u32,
            input: &str,
            steps: &str,
        ) -> (Result<i32, ScriptAgentError>, String) {
            let steps: Vec<ScriptStep> = serde_json::from_str(steps).unwrap();
            let input = Cursor::new(input.to_owned());
            let mut walk = ScriptRunner { root: self.root(), attempt, input, output: Vec::new() };
            let code = walk.run_steps(&steps);
            (code, String::from_utf8(walk.output).unwrap())
        }

        fn code(&self, attempt: u32, steps: &str) -> i32 {
            self.walk(attempt, "", steps).0.unwrap()
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.root().join(path)).unwrap()
        }
    }

    #[test]
    fn files_are_written_and_committed_and_nothing_to_commit_is_fine() {
        let stage = Stage::new();
        let code = stage.code(
            1,
            r#"[{"step":"write","path":"a/b.txt","text":"one\n"},
                {"step":"append","path":"a/b.txt","text":"two\n"},
                {"step":"commit","message":"first"},
                {"step":"commit","message":"nothing"},
                {"step":"sleep","ms":1}]"#,
        );
        assert_eq!(code, 0);
        assert_eq!(stage.read("a/b.txt"), "one\ntwo\n");
        assert_eq!(stage.git(&["log", "--format=%s"]), "first\n");
        assert_eq!(stage.git(&["status", "--porcelain"]), "");
    }

    #[test]
    fn paths_out_of_the_workspace_are_refused() {
        let stage = Stage::new();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), stage.root().join("link")).unwrap();
        let file = elsewhere.path().join("x");
        std::os::unix::fs::symlink(&file, stage.root().join("dangling")).unwrap();
        for path in
            ["../x", "/tmp/x", "a/../../x", "link/x", "dangling", "", ".", ".git/config", ".GIT/x"]
        {
            let step = json!([{"step": "write", "path": path, "text": "x"}]).to_string();
            let (result, _) = stage.walk(1, "", &step);
            assert!(matches!(result, Err(ScriptAgentError::Outside(_))), "{path}: {result:?}");
        }
        assert!(!file.exists());
    }

    #[test]
    fn failures_and_rate_limits_stop_after_their_times() {
        let stage = Stage::new();
        let fail = r#"[{"step":"fail","code":7,"times":2}]"#;
        assert_eq!([1, 2, 3].map(|attempt| stage.code(attempt, fail)), [7, 7, 0]);
        assert_eq!(stage.code(99, r#"[{"step":"fail","code":7}]"#), 7);
        let limit = r#"[{"step":"rate_limit","retry_after":0.5,"times":1}]"#;
        let (code, out) = stage.walk(1, "", limit);
        assert_eq!(code.unwrap(), 75);
        assert_eq!(out, "{\"mainstem\":\"rate_limited\",\"retry_after\":0.5}\n");
        assert_eq!(stage.walk(2, "", limit).1, "");
    }

    #[test]
    fn a_question_waits_for_its_answer_and_passes_over_the_prompt() {
        let stage = Stage::new();
        let input = concat!(
            "# T-1: a prompt\n\n{\"mainstem\":\"usage\",\"text\":\"no\"}\n[1]\n",
            "{\"mainstem\":\"answer\",\"question\":\"Q1\",\"text\":\"blue\\ngreen\"}\n",
            "{\"answer\":\"second\"}\n",
        );
        let (code, out) = stage.walk(
            1,
            input,
            r#"[{"step":"ask","question":"Which?","options":["blue"],"into":"first.txt"},
                {"step":"ask","question":"And?","into":"second.txt"},
                {"step":"print","text":"done"}]"#,
        );
        assert_eq!(code.unwrap(), 0);
        assert_eq!(stage.read("first.txt"), "blue\ngreen");
        assert_eq!(stage.read("second.txt"), "second");
        let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
        assert_eq!(first, json!({"mainstem":"ask","question":"Which?","options":["blue"]}));
        assert!(out.ends_with("done\n"));
    }

    #[test]
    fn a_question_nobody_answers_is_an_error_not_an_empty_answer() {
        let (result, _) = Stage::new().walk(
            1,
            "only a prompt",
            r#"[{"step":"ask","question":"Which?","into":"x.txt"}]"#,
        );
        assert!(matches!(result, Err(ScriptAgentError::Unanswered(_))), "{result:?}");
    }

    #[test]
    fn reports_end_the_script_where_they_should() {
        let stage = Stage::new();
        let (code, out) = stage.walk(
            1,
            "",
            r#"[{"step":"usage","input_tokens":1,"output_tokens":2,"cost_usd":0.5},
                {"step":"nothing_to_do","reason":"there"},{"step":"fail","code":1}]"#,
        );
        assert_eq!(code.unwrap(), 0);
        let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0]["cost_usd"], 0.5);
        assert_eq!(lines[1], json!({"mainstem":"nothing_to_do","reason":"there"}));
        let (code, out) = stage.walk(1, "", r#"[{"step":"blocked","reason":"no"}]"#);
        assert_eq!(code.unwrap(), 0);
        assert!(out.contains("\"mainstem\":\"blocked\""), "{out}");
    }

    #[test]
    fn a_reader_that_left_does_not_stop_the_work() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let stage = Stage::new();
        let mut walk =
            ScriptRunner { root: stage.root(), attempt: 1, input: Cursor::new(""), output: Gone };
        let steps = [
            ScriptStep::Print { text: "x".into() },
            ScriptStep::Write { path: "after.txt".into(), text: "x".into() },
        ];
        assert_eq!(walk.run_steps(&steps).unwrap(), 0);
        assert_eq!(stage.read("after.txt"), "x");
    }

    #[test]
    fn a_script_that_cannot_be_read_is_a_broken_agent() {
        let stage = Stage::new();
        let path = stage.root().join("script.json");
        assert_eq!(run_script_file(&path), EXIT_BROKEN);
        fs::write(&path, "[{\"step\":\"dance\"}]").unwrap();
        assert_eq!(run_script_file(&path), EXIT_BROKEN);
    }
}
