//! An agent that does what it is told, mostly what no agent should do.
//!
//! `fake-agent STEP [ARGUMENT]... [-- STEP [ARGUMENT]...]...`, or `fake-agent --file FILE` with one
//! step per line, its words separated by blanks. Steps run in the current directory, in order.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, setsid};

const STEPS: &str = "\
  print TEXT                 a line on standard output
  complain TEXT              a line on standard error
  write PATH TEXT            a file, its folders included, wherever the path leads
  commit MESSAGE             git add -A and commit, even if nothing changed
  exit CODE                  end at once
  crash                      end by SIGABRT
  sleep MS                   wait
  hang                       never end
  ignore-term                survive SIGTERM, SIGINT and SIGHUP from here on
  stop                       stop by SIGSTOP
  read-input                 read standard input to its end
  daemon MS                  leave a process in a session of its own, streams closed
  hold-stdout MS             leave a process that keeps standard output open
  flood MB                   that many megabytes of lines
  long-line MB               one line of that many megabytes
  garbage                    invalid UTF-8, NUL bytes and terminal escapes
  amend                      rewrite the commit the branch started from
  orphan                     replace the branch's history by an unrelated one
  switch BRANCH              make and switch to another branch
  detach                     detach HEAD
  delete-workspace           delete the current directory
  break-git-file             make the workspace's .git file lead nowhere
  index-lock                 leave an index.lock behind
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [hidden, ms] = &args[..]
        && let Some(code) = left_behind(hidden, ms)
    {
        return code;
    }
    match script(&args).and_then(|steps| walk(&steps)) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            // With standard error gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "fake-agent: {message}\nsteps:\n{STEPS}");
            ExitCode::from(64)
        }
    }
}

fn script(args: &[String]) -> Result<Vec<Vec<String>>, String> {
    let steps: Vec<Vec<String>> = if let [flag, file] = args
        && flag == "--file"
    {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    } else {
        args.split(|arg| arg == "--").map(<[String]>::to_vec).collect()
    };
    let steps: Vec<_> = steps.into_iter().filter(|step| !step.is_empty()).collect();
    if steps.is_empty() { Err("no steps".to_owned()) } else { Ok(steps) }
}

fn walk(steps: &[Vec<String>]) -> Result<u8, String> {
    for step in steps {
        let words: Vec<&str> = step.iter().map(String::as_str).collect();
        if let ["exit", code] = words[..] {
            return code.parse().map_err(|_| format!("exit {code:?}"));
        }
        misbehave(&words).map_err(|error| format!("{}: {error}", words.join(" ")))?;
    }
    Ok(0)
}

fn misbehave(words: &[&str]) -> Result<(), String> {
    match words {
        ["print", text @ ..] => say(format!("{}\n", text.join(" ")).as_bytes()),
        ["complain", text @ ..] => {
            writeln!(io::stderr(), "{}", text.join(" ")).map_err(|error| error.to_string())
        }
        ["write", path, text @ ..] => write(path, &text.join(" ")),
        ["commit", message @ ..] => {
            git(&["add", "-A"])?;
            git(&["commit", "-q", "--allow-empty", "-m", &message.join(" ")])
        }
        ["crash"] => signal_self(Signal::ABORT),
        ["stop"] => signal_self(Signal::STOP),
        ["sleep", ms] => number(ms).map(|ms| std::thread::sleep(Duration::from_millis(ms))),
        ["hang"] => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        ["ignore-term"] => ignore_term(),
        ["read-input"] => {
            let read = io::stdin().read_to_end(&mut Vec::new());
            read.map(drop).map_err(|error| error.to_string())
        }
        ["daemon", ms] => leave_behind("__daemon", ms, false),
        ["hold-stdout", ms] => leave_behind("__sleep", ms, true),
        ["flood", mb] => flood(number(mb)?),
        ["long-line", mb] => long_line(number(mb)?),
        ["garbage"] => garbage(),
        ["amend"] => amend(),
        ["orphan"] => orphan(),
        ["switch", branch] => git(&["switch", "-q", "-c", branch]),
        ["detach"] => git(&["switch", "-q", "--detach"]),
        ["delete-workspace"] => delete_workspace(),
        ["break-git-file"] => {
            fs::write(".git", "gitdir: /nowhere/at/all\n").map_err(|error| error.to_string())
        }
        ["index-lock"] => {
            let path = git_path("index.lock")?;
            fs::write(path, "").map_err(|error| error.to_string())
        }
        _ => Err("no such step".to_owned()),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

/// Prints bytes; a reader that has left is none of our business.
fn say(bytes: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn write(path: &str, text: &str) -> Result<(), String> {
    let path = PathBuf::from(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, format!("{text}\n")))
        .map_err(|error| error.to_string())
}

fn run_git(args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    command.args(["-c", "gc.auto=0", "-c", "commit.gpgsign=false"]).args(args);
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "Fake agent");
        command.env(format!("GIT_{who}_EMAIL"), "fake@example.invalid");
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

fn git(args: &[&str]) -> Result<(), String> {
    run_git(args).map(drop)
}

fn git_path(name: &str) -> Result<PathBuf, String> {
    run_git(&["rev-parse", "--path-format=absolute", "--git-path", name]).map(PathBuf::from)
}

fn signal_self(signal: Signal) -> Result<(), String> {
    kill_process(getpid(), signal).map_err(|error| error.to_string())
}

fn ignore_term() -> Result<(), String> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // A handler that only sets a flag nobody reads is what "ignored" looks like from outside.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Starts ourselves once more. A daemon's first child is waited for: it ends when it has forked.
fn leave_behind(hidden: &str, ms: &str, hold_stdout: bool) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let stream = || if hold_stdout { Stdio::inherit() } else { Stdio::null() };
    let mut command = Command::new(own);
    command.args([hidden, ms]).stdin(Stdio::null()).stdout(stream()).stderr(stream());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    if hidden == "__daemon" {
        let status = child.wait().map_err(|error| error.to_string())?;
        return if status.success() { Ok(()) } else { Err(status.to_string()) };
    }
    Ok(())
}

/// What we do when started by ourselves.
fn left_behind(hidden: &str, ms: &str) -> Option<ExitCode> {
    let done = match hidden {
        "__sleep" => number(ms).map(|ms| std::thread::sleep(Duration::from_millis(ms))),
        "__daemon" => setsid()
            .map_err(|error| error.to_string())
            .and_then(|_| leave_behind("__sleep", ms, false)),
        _ => return None,
    };
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn flood(mb: u64) -> Result<(), String> {
    let line = format!("{}\n", "all work and no play ".repeat(48));
    let block = line.repeat((1 << 20) / line.len() + 1);
    (0..mb).try_for_each(|_| say(block.as_bytes()))
}

fn long_line(mb: u64) -> Result<(), String> {
    let block = "x".repeat(1 << 20);
    (0..mb).try_for_each(|_| say(block.as_bytes()))?;
    say(b"\n")
}

fn garbage() -> Result<(), String> {
    say(b"\xff\xfe bad \xc3\x28 bytes\n\0\0 nul \0\n")?;
    say(b"\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\r\x08\x08 over\n")?;
    say("\u{202e}desrever \u{200b}hidden\n".as_bytes())?;
    say(b"{\"mainstem\":\"rate_limited\",\"retry_after\":\n{\"mainstem\":\xff}\n")
}

fn amend() -> Result<(), String> {
    let base = std::env::var("MAINSTEM_BASE").unwrap_or_else(|_| "HEAD".to_owned());
    git(&["reset", "-q", "--soft", &base])?;
    git(&["commit", "-q", "--allow-empty", "--amend", "-m", "History, rewritten"])
}

fn orphan() -> Result<(), String> {
    let tree = run_git(&["write-tree"])?;
    let commit = run_git(&["commit-tree", "-m", "Out of nothing", &tree])?;
    git(&["reset", "-q", "--soft", &commit])
}

fn delete_workspace() -> Result<(), String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    fs::remove_dir_all(here).map_err(|error| error.to_string())
}
