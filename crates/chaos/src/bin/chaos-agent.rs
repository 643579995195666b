//! The agent and the gate of a chaos round. `chaos-agent OUTSIDE` follows its script and notes every
//! step in the ledger; `chaos-agent --gate OUTSIDE` judges the tree it stands in.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use mainstem_chaos::event_log::{self, ChaosEvent};
use mainstem_chaos::script::{
    ChaosAttemptEnd, ChaosScript, ChaosStep, ChaosTrick, FILLER, RED, content, line,
};

/// The most that a hostile agent writes, should there be room for it.
const FILL_MAX: usize = 64 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--gate", outside] => gate(Path::new(outside)),
        ["--linger"] => {
            std::thread::sleep(Duration::from_secs(3600));
            Ok(0)
        }
        [outside] => work(Path::new(outside)),
        _ => Err("chaos-agent [--gate] OUTSIDE".to_owned()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            // With standard error gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "chaos-agent: {message}");
            ExitCode::from(70)
        }
    }
}

/// The tree is fine if no file in it is named `red`, and if what we stand in is exactly that tree.
fn gate(outside: &Path) -> Result<u8, String> {
    let tree = git_says(&["rev-parse", "HEAD^{tree}"])?;
    let files = git_says(&["ls-tree", "-r", "--name-only", "HEAD"])?;
    let dirty = git_says(&["status", "--porcelain"])?;
    if !dirty.is_empty() {
        let _ = writeln!(io::stderr(), "the gate stands in a dirty tree:\n{dirty}");
    }
    let passed = dirty.is_empty() && !files.lines().any(|name| name.ends_with(RED));
    note(outside, &ChaosEvent::Gate { tree, passed })?;
    Ok(u8::from(!passed))
}

fn work(outside: &Path) -> Result<u8, String> {
    let task = variable("MAINSTEM_TASK")?;
    let attempt: u32 =
        variable("MAINSTEM_ATTEMPT")?.parse().map_err(|e| format!("attempt: {e}"))?;
    let base = variable("MAINSTEM_BASE")?;
    let text = fs::read_to_string(outside.join("scripts").join(format!("{task}.json")));
    let text = text.map_err(|error| format!("no script for {task}: {error}"))?;
    let script: ChaosScript = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let act = script.attempt(attempt).ok_or("no attempt in the script")?;
    note(outside, &ChaosEvent::Start { task: task.clone(), attempt, base })?;
    if attempt > 1 {
        mend()?;
    }
    for (n, step) in act.steps.iter().enumerate() {
        note(outside, &ChaosEvent::Doing { task: task.clone(), attempt, n })?;
        match step {
            ChaosStep::Write { path, lines } => write(path, &content(&task, attempt, n, *lines))?,
            ChaosStep::Line { path } => {
                let before = fs::read_to_string(path).unwrap_or_default();
                write(path, &format!("{}{}", resolved(&before), line(&task, attempt, n)))?;
            }
            ChaosStep::Remove { path } => match fs::remove_file(path) {
                // An earlier attempt did it, and this one began with its work.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt > 1 => {}
                done => done.map_err(|error| format!("{path}: {error}"))?,
            },
            ChaosStep::Commit => {
                git(&["add", "-A"])?;
                git(&["commit", "-q", "--allow-empty", "-m", &format!("{task} {attempt}.{n}")])?;
            }
            ChaosStep::Usage { micros } => say(&format!(
                "{{\"mainstem\":\"usage\",\"input_tokens\":1,\"output_tokens\":1,\"cost_usd\":{}}}\n",
                *micros as f64 / 1e6
            ))?,
            ChaosStep::Pause { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            ChaosStep::Await { task } => meet(outside, task),
            ChaosStep::Ask => ask()?,
            ChaosStep::Trick(trick) => play(*trick)?,
        }
        note(outside, &ChaosEvent::Did { task: task.clone(), attempt, n })?;
    }
    note(outside, &ChaosEvent::End { task, attempt })?;
    match act.end {
        ChaosAttemptEnd::Exit(code) => Ok(code),
        ChaosAttemptEnd::Hang => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        ChaosAttemptEnd::Crash => std::process::abort(),
    }
}

/// Both sides of a merge that was laid out with markers; any other text as it is.
fn resolved(text: &str) -> String {
    let is_marker = |line: &&str| {
        ["<<<<<<<", "|||||||", "=======", ">>>>>>>"].iter().any(|mark| line.starts_with(mark))
    };
    text.split_inclusive('\n').filter(|line| !is_marker(line)).collect()
}

/// Takes away what made the gates fail on the work of an earlier attempt.
fn mend() -> Result<(), String> {
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_name() != ".git") {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(RED) {
                fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// How long somebody is waited for who may never come.
const PATIENCE: Duration = Duration::from_secs(10);

fn meet(outside: &Path, other: &str) {
    let until = Instant::now() + PATIENCE;
    let began = |event: &ChaosEvent| matches!(event, ChaosEvent::Start { task, attempt: 1, .. } if task == other);
    while Instant::now() < until
        && !event_log::read(outside).is_ok_and(|events| events.iter().any(began))
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ask() -> Result<(), String> {
    say("{\"mainstem\":\"ask\",\"question\":\"Which?\",\"options\":[\"a\",\"b\"],\
         \"default\":\"a\",\"deadline\":0.1}\n")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| format!("no answer: {error}"))?;
    if answer.contains("\"a\"") { Ok(()) } else { Err(format!("odd answer: {answer:?}")) }
}

fn play(trick: ChaosTrick) -> Result<(), String> {
    let io = |error: io::Error| error.to_string();
    match trick {
        ChaosTrick::IgnoreTerm => {
            let never = Arc::new(AtomicBool::new(false));
            for signal in [15, 2, 1] {
                signal_hook::flag::register(signal, Arc::clone(&never)).map_err(io)?;
            }
            Ok(())
        }
        ChaosTrick::Daemon => linger("setsid", false),
        ChaosTrick::HoldOutput => linger("env", true),
        ChaosTrick::Flood => {
            let line = format!("{}\n", "flood ".repeat(40));
            let chunk = line.repeat(400);
            (0..200).try_for_each(|_| say(&chunk))
        }
        ChaosTrick::Garbage => {
            let bytes = b"\xff\xfe\0\x1b]0;title\x07\x1b[2J\x1b[31m\xc3\x28 {\"mainstem\":\xff}\n";
            io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()).map_err(io)
        }
        ChaosTrick::DeleteWorkspace => {
            let here = std::env::current_dir().map_err(io)?;
            fs::remove_dir_all(here).map_err(io)
        }
        ChaosTrick::BreakGitFile => fs::write(".git", "gitdir: /nowhere/at/all\n").map_err(io),
        ChaosTrick::StealGitFile => {
            let common = git_says(&["rev-parse", "--path-format=absolute", "--git-common-dir"])?;
            fs::write(".git", format!("gitdir: {common}\n")).map_err(io)
        }
        ChaosTrick::IndexLock => fs::write(git_path("index.lock")?, "").map_err(io),
        ChaosTrick::CorruptIndex => fs::write(git_path("index")?, "rubbish, no index").map_err(io),
        ChaosTrick::Detach => git(&["checkout", "-q", "--detach"]),
        ChaosTrick::Switch => {
            let name = format!("mine-{}", std::process::id());
            git(&["checkout", "-q", "-b", &name])
        }
        ChaosTrick::FillDisk => {
            fill()?;
            std::thread::sleep(Duration::from_millis(400));
            fs::remove_file(FILLER).map_err(io)
        }
        ChaosTrick::HoardDisk => fill(),
        ChaosTrick::RateLimit => say("{\"mainstem\":\"rate_limited\",\"retry_after\":1}\n"),
    }
}

/// Writes until nothing more fits; never more than a rig gives it.
fn fill() -> Result<(), String> {
    let mut file = fs::File::create(FILLER).map_err(|error| error.to_string())?;
    for piece in [1 << 16, 1 << 12, 1] {
        let bytes = vec![b'x'; piece];
        let pieces = FILL_MAX / piece;
        for _ in 0..pieces {
            if file.write_all(&bytes).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// A process that outlives its agent.
fn linger(through: &str, holds_output: bool) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(through);
    command.arg(me).arg("--linger").stdin(Stdio::null()).stderr(Stdio::null());
    if !holds_output {
        command.stdout(Stdio::null());
    }
    command.spawn().map(drop).map_err(|error| format!("{through}: {error}"))
}

fn note(outside: &Path, event: &ChaosEvent) -> Result<(), String> {
    event_log::note(outside, event).map_err(|error| format!("the ledger: {error}"))
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}

fn say(text: &str) -> Result<(), String> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

fn write(path: &str, text: &str) -> Result<(), String> {
    let path = Path::new(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn git_path(name: &str) -> Result<PathBuf, String> {
    git_says(&["rev-parse", "--git-path", name]).map(PathBuf::from)
}

fn git(args: &[&str]) -> Result<(), String> {
    git_says(args).map(drop)
}

fn git_says(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {said}", args.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
