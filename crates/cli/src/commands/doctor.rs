//! `doctor`: checks the machine, the repository and the settings, and says what helps.
//!
//! Removes no lock, cleans no workspace and starts no agent. The gates run once on the target branch, as
//! they would before a run; a verdict that is known is not asked for again.

mod checks;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use mainstem_agents::known_agents::find_known_agent;
use mainstem_api::actions::{DoctorCheckStatus, DoctorStatus};
use mainstem_api::exit_code;
use mainstem_core::config::Settings;
use mainstem_core::config::layers::resolve_settings;
use mainstem_core::plan::quantities::render_size;
use mainstem_engine::build_dirs;
use mainstem_engine::query::RunReader;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::sandbox_policy;
use mainstem_host::files::free_bytes;
use mainstem_host::git::{GitError, Repo};
use mainstem_host::process::{self, JobContainment};
use mainstem_host::sandbox::{self, SandboxBackend};
use mainstem_store::StoreError;

use super::init::{find_on_path, is_runnable};
use crate::args::DoctorArgs;
use crate::context::{CONFIG_FILE, CliContext, own_executable};
use crate::error::{CliError, CommandResult};
use crate::output;

/// A lock file younger than this may belong to a git that is at work right now.
const LOCK_YOUNG: Duration = Duration::from_secs(5);
/// Entries looked at when searching for lock files.
const REFS_MAX: usize = 100_000;
/// Left-over things named in one line.
const NAMED_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DoctorVerdict {
    Good,
    Doubtful,
    Bad,
}

struct DoctorCheck {
    name: &'static str,
    verdict: DoctorVerdict,
    text: String,
    help: Option<String>,
}

#[derive(Default)]
struct DoctorReport {
    checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    fn add_check(
        &mut self,
        name: &'static str,
        verdict: DoctorVerdict,
        text: String,
        help: Option<String>,
    ) {
        self.checks.push(DoctorCheck { name, verdict, text, help });
    }

    fn add_good(&mut self, name: &'static str, text: impl Into<String>) {
        self.add_check(name, DoctorVerdict::Good, text.into(), None);
    }

    fn add_doubt(&mut self, name: &'static str, text: impl Into<String>, help: impl Into<String>) {
        self.add_check(name, DoctorVerdict::Doubtful, text.into(), Some(help.into()));
    }

    fn add_bad(&mut self, name: &'static str, text: impl Into<String>, help: impl Into<String>) {
        self.add_check(name, DoctorVerdict::Bad, text.into(), Some(help.into()));
    }

    fn count_verdict(&self, verdict: DoctorVerdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }
}

/// Looks at everything a run depends on.
pub(crate) fn cmd_doctor(context: &CliContext, args: &DoctorArgs) -> CommandResult {
    let mut report = DoctorReport::default();
    let repo = check_repository(context, &mut report);
    let settings = check_settings(context, repo.as_ref(), &mut report);
    if let Some(repo) = &repo {
        let layout = RepoLayout::new(repo, settings.workspace.root.as_deref());
        checks::ref_format(repo, &settings, &mut report);
        check_branch(repo, &settings, &mut report);
        check_unfinished_git(repo, &mut report);
        check_shared_builds(repo, &mut report);
        checks::user_git_habits(repo, &settings, &mut report);
        check_disk(&layout, &settings, &mut report);
        check_state_folder(repo, &layout, &mut report);
        check_journal(&layout, &mut report);
        checks::check_landings(context, repo, &mut report);
        check_engine(&layout, &mut report);
        check_leftovers(repo, &layout, &settings, &mut report);
        check_git_locks(repo, &mut report);
    }
    checks::file_size(&mut report);
    check_agents(repo.as_ref(), &settings, &mut report);
    checks::check_setting_conflicts(&settings, &mut report);
    checks::check_programs(&settings, &mut report);
    check_containment(&settings, &mut report);
    check_sandbox(&settings, &mut report)?;
    // Whatever is wrong above would only be found once more, and slowly.
    if let (Some(repo), false, 0) = (&repo, args.no_try, report.count_verdict(DoctorVerdict::Bad)) {
        checks::check_target_gates(context, repo, &settings, &mut report);
    }
    finish_report(context, &report)
}

/// Tries every wall by running something behind it, and says which one would be used.
fn check_sandbox(settings: &Settings, report: &mut DoctorReport) -> Result<(), CliError> {
    let exe = own_executable()?;
    let words = |kind: SandboxBackend| match sandbox::probe_backend(kind, &exe) {
        Ok(()) => format!("{} available", kind.name()),
        Err(why) => format!("{} not available: {why}", kind.name()),
    };
    let found = format!("{}; {}", words(SandboxBackend::Bwrap), words(SandboxBackend::Landlock));
    match sandbox_policy::choose_backend(&settings.sandbox, &exe) {
        Ok(Some(kind)) => {
            report.add_good("sandbox", format!("sandbox: agents use {} ({found})", kind.name()));
        }
        Ok(None) => report.add_good(
            "sandbox",
            format!("sandbox: off (sandbox.kind); agents run with your permissions ({found})"),
        ),
        Err(error) => report.add_bad("sandbox", format!("sandbox: {error}"), error.help()),
    }
    Ok(())
}

fn finish_report(context: &CliContext, report: &DoctorReport) -> CommandResult {
    let bad = report.count_verdict(DoctorVerdict::Bad);
    if context.global.json {
        let checks: Vec<DoctorCheckStatus> = report
            .checks
            .iter()
            .map(|check| {
                let status = match check.verdict {
                    DoctorVerdict::Good => "ok",
                    DoctorVerdict::Doubtful => "warning",
                    DoctorVerdict::Bad => "error",
                };
                DoctorCheckStatus {
                    name: check.name.to_owned(),
                    status: status.to_owned(),
                    message: check.text.clone(),
                    help: check.help.clone(),
                }
            })
            .collect();
        output::write_json(&DoctorStatus { ok: bad == 0, checks })?;
    } else {
        let mut out = String::new();
        for check in &report.checks {
            let (sign, color) = match check.verdict {
                DoctorVerdict::Good => ("✓", AnsiColor::Green),
                DoctorVerdict::Doubtful => ("!", AnsiColor::Yellow),
                DoctorVerdict::Bad => ("✗", AnsiColor::Red),
            };
            let style = Style::new().fg_color(Some(color.into()));
            let sign = output::paint_text(sign, style, context.color_out);
            let columns = output::stdout_columns();
            let text = output::indent_block(&output::sanitize_text(&check.text), 2, columns);
            out.push_str(&format!("{sign} {}", text.trim_start()));
            if let Some(help) = &check.help {
                let help = format!("help: {}", output::sanitize_text(help));
                out.push_str(&output::indent_block(&help, 4, columns));
            }
        }
        let doubts = report.count_verdict(DoctorVerdict::Doubtful);
        let noun = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        out.push_str(&format!("{}, {}\n", noun(bad, "error"), noun(doubts, "warning")));
        output::write_stdout(&out)?;
    }
    Ok(if bad == 0 { exit_code::OK } else { exit_code::ERROR })
}

fn check_repository(context: &CliContext, report: &mut DoctorReport) -> Option<Repo> {
    match context.open_repo() {
        Ok(repo) => {
            let (major, minor) = repo.version();
            report.add_good("git", format!("git {major}.{minor}"));
            match repo.list_refs("refs/heads/") {
                Ok(refs) => {
                    let n = refs.len();
                    let noun = if n == 1 { "branch" } else { "branches" };
                    report.add_good(
                        "repository",
                        format!("repository {} with {n} {noun}", repo.dir().display()),
                    );
                }
                Err(error) => {
                    report.add_bad(
                        "repository",
                        format!("cannot read git refs: {error}"),
                        "git fsck",
                    );
                }
            }
            match repo.list_commit_hooks() {
                Ok(hooks) if hooks.is_empty() => {}
                Ok(hooks) => report.add_good(
                    "hooks",
                    format!(
                        "your git hooks ({}) run only when agents commit, inside the sandbox",
                        hooks.join(", ")
                    ),
                ),
                Err(error) => {
                    report.add_bad(
                        "hooks",
                        format!("cannot read git hooks: {error}"),
                        "git config -l",
                    );
                }
            }
            Some(repo)
        }
        Err(failure) => {
            let name = match Repo::discover(&context.dir) {
                Err(
                    GitError::GitMissing
                    | GitError::GitTooOld { .. }
                    | GitError::NewerRepository { .. },
                ) => "git",
                _ => "repository",
            };
            let help = failure.hints.first().cloned();
            report.add_bad(name, failure.message, help.unwrap_or_else(|| "git status".to_owned()));
            None
        }
    }
}

fn check_settings(
    context: &CliContext,
    repo: Option<&Repo>,
    report: &mut DoctorReport,
) -> Settings {
    match context.load_settings(repo) {
        Ok(settings) => {
            match context.find_config_file(repo.and_then(Repo::toplevel)) {
                Some(file) => report.add_good("settings", format!("settings {}", file.display())),
                None => report.add_doubt(
                    "settings",
                    "no mainstem.toml; using defaults",
                    "create one: mainstem init",
                ),
            }
            settings
        }
        Err(failure) => {
            let mut text = failure.message;
            for place in &failure.places {
                for fault in &place.diagnostics {
                    text.push_str(&format!("\n    {}:{fault}", place.file));
                }
            }
            report.add_bad("settings", text, "fix mainstem.toml; the other checks use defaults");
            resolve_settings(&[]).expect("BUG: the defaults resolve").settings
        }
    }
}

fn check_branch(repo: &Repo, settings: &Settings, report: &mut DoctorReport) {
    let target = match &settings.land.branch {
        Some(branch) => branch.clone(),
        None => match repo.current_branch() {
            Ok(Some(branch)) => branch,
            Ok(None) => {
                let help = "switch to a branch, or use mainstem run PLAN --branch NAME";
                return report.add_bad("branch", "HEAD is detached", help);
            }
            Err(error) => return report.add_bad("branch", error.to_string(), "git status"),
        },
    };
    // If refs cannot be read, that is reported with the repository already.
    let Ok(refs) = repo.list_refs("refs/heads/") else { return };
    let full = format!("refs/heads/{target}");
    if refs.iter().any(|(name, _)| *name == full) {
        report.add_good("branch", format!("work lands on {target}"));
    } else if refs.is_empty() {
        let text = format!("no commits yet; the first run creates an empty commit on {target}");
        report.add_doubt("branch", text, "commit your files first if agents should see them");
    } else {
        let help = format!("create it (git branch {target}), or set land.branch");
        report.add_bad("branch", format!("target branch {target} does not exist"), help);
    }
}

/// Commands of git that a person began and did not end.
fn check_unfinished_git(repo: &Repo, report: &mut DoctorReport) {
    if let Some(home) = repo.toplevel()
        && has_user_edits(repo, home)
    {
        let text = "your checkout has uncommitted changes; work on the same files waits to land";
        report.add_doubt("checkout", text, "git stash, or git commit");
    }
    let states = [
        ("MERGE_HEAD", "a merge", "git merge --continue or git merge --abort"),
        ("rebase-merge", "a rebase", "git rebase --continue or git rebase --abort"),
        ("rebase-apply", "a rebase", "git rebase --continue or git rebase --abort"),
        ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue or --abort"),
        ("REVERT_HEAD", "a revert", "git revert --continue or git revert --abort"),
        ("BISECT_START", "a bisect", "git bisect reset"),
    ];
    for (file, what, help) in states {
        if repo.common_dir().join(file).exists() {
            let text =
                format!("{what} is in progress in your checkout, so landings will not update it");
            report.add_doubt("checkout", text, help);
        }
    }
}

/// Whether there are edits that a landing could meet. What `mainstem init` wrote is not one.
fn has_user_edits(repo: &Repo, home: &Path) -> bool {
    let own = [CONFIG_FILE, "plan.toml", ".worktreeinclude"].map(Path::new);
    match repo.list_worktree_changes(home) {
        Ok(changed) => changed.iter().any(|path| !own.contains(&path.as_path())),
        Err(_) => false,
    }
}

/// Results of one checkout that pass for those of another are the quietest way to a red branch.
fn check_shared_builds(repo: &Repo, report: &mut DoctorReport) {
    let env: Vec<(String, String)> = std::env::vars().collect();
    let Some(shared) = build_dirs::find_shared_build_dir(repo.dir(), &env) else { return };
    let (file, folder) = (shared.file.display(), shared.folder.display());
    let text = format!("{file} makes cargo share {folder} between all checkouts");
    let own = repo.is_ignored(repo.dir(), "target/").unwrap_or(false);
    if own {
        report.add_good("builds", format!("{text}; checks build in their workspace's `target/`"));
    } else {
        let help = "add `target/` to .gitignore, or remove `build.target-dir`";
        report.add_bad(
            "builds",
            format!("{text}; results of checks are unreliable there, so none will run"),
            help,
        );
    }
}

/// The nearest folder that exists.
fn nearest_existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.is_dir()).unwrap_or(path)
}

fn check_disk(layout: &RepoLayout, settings: &Settings, report: &mut DoctorReport) {
    let floor = settings.limits.disk_floor;
    if let Ok(free) = free_bytes(nearest_existing(layout.state_dir()))
        && free < floor
    {
        let free = render_size(free >> 20 << 20);
        let text = format!("{free} free for the journal in {}", layout.state_dir().display());
        let help = format!("no agent starts below {} (limits.disk_floor)", render_size(floor));
        report.add_bad("disk", text, help);
    }
    let place = nearest_existing(layout.workspace_root());
    match free_bytes(place) {
        Ok(free) => {
            let rounded = render_size(free >> 20 << 20);
            let text =
                format!("{rounded} free for workspaces in {}", layout.workspace_root().display());
            if free < floor {
                let help =
                    format!("no agent starts below {} (limits.disk_floor)", render_size(floor));
                report.add_bad("disk", text, help);
            } else {
                report.add_good("disk", text);
            }
        }
        Err(error) => {
            let text = format!("cannot read the free space of {}: {error}", place.display());
            report.add_bad("disk", text, "set workspace.root to a folder you can write to");
        }
    }
}

fn check_state_folder(repo: &Repo, layout: &RepoLayout, report: &mut DoctorReport) {
    let place = nearest_existing(layout.state_dir());
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if let Err(error) = rustix::fs::access(place, access) {
        let text = format!("cannot write to {}: {error}", place.display());
        return report.add_bad("state", text, "give yourself write permission for this folder");
    }
    match network_file_system(repo.common_dir()) {
        Some(kind) => report.add_bad(
            "state",
            format!("{} is on a network file system ({kind})", layout.state_dir().display()),
            "locks and the journal need a local disk; clone the repository to one",
        ),
        None => report.add_good("state", format!("state in {}", layout.state_dir().display())),
    }
}

/// The name of a file system whose locks cannot be trusted.
fn network_file_system(path: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        const KINDS: [(u32, &str); 9] = [
            (0x6969, "NFS"),
            (0x517B, "SMB"),
            (0xFF53_4D42, "CIFS"),
            (0xFE53_4D42, "SMB2"),
            (0x0102_1997, "9P"),
            (0x5346_414F, "AFS"),
            (0x00C3_6400, "Ceph"),
            (0x0BD0_0BD0, "Lustre"),
            (0x7461_636F, "OCFS2"),
        ];
        let found = rustix::fs::statfs(path).ok()?.f_type as u32;
        KINDS.into_iter().find(|(magic, _)| *magic == found).map(|(_, name)| name)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

fn check_journal(layout: &RepoLayout, report: &mut DoctorReport) {
    let store = layout.run_store();
    let help = format!(
        "restore a backup of {}; mainstem history shows what is still readable",
        store.name()
    );
    let reader = match store.open_reader() {
        Ok(reader) => reader,
        Err(StoreError::Absent { .. }) => {
            return report.add_good("journal", "no journal yet (nothing has run here)");
        }
        Err(error) => return report.add_bad("journal", error.to_string(), &help),
    };
    match reader.find_damage() {
        Ok(faults) if faults.is_empty() => report.add_good("journal", "the journal is intact"),
        Ok(faults) => {
            let shown = faults.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
            report.add_bad("journal", format!("the journal is damaged: {shown}"), &help);
        }
        Err(error) => report.add_bad("journal", error.to_string(), &help),
    }
}

fn check_engine(layout: &RepoLayout, report: &mut DoctorReport) {
    match layout.run_store().owner() {
        Ok(None) => report.add_good("engine", "no run is active here"),
        Ok(Some(owner)) => {
            let holder: serde_json::Value = serde_json::from_str(&owner.note).unwrap_or_default();
            let pid = holder["pid"].as_u64().map_or_else(|| "?".to_owned(), |pid| pid.to_string());
            report.add_good("engine", format!("a run is active here (pid {pid})"));
        }
        Err(error) => {
            report.add_bad(
                "engine",
                error.to_string(),
                "check the permissions and the file system of .git/mainstem",
            );
        }
    }
}

/// Workspaces and branches of ours that the present run does not know.
fn check_leftovers(
    repo: &Repo,
    layout: &RepoLayout,
    settings: &Settings,
    report: &mut DoctorReport,
) {
    let machine = match RunReader::load(layout, settings, None) {
        Ok(look) => look.machine,
        Err(error) => {
            let help = "see the journal check above";
            return report.add_bad("run", format!("cannot read the run: {error}"), help);
        }
    };
    let plan = machine.plan();
    let known = |name: &str| {
        let unit = ["epic-", "phase-"].iter().any(|start| name.starts_with(start));
        let own = RepoLayout::is_lane_name(name) || name == "shared" || unit;
        own || plan.tasks.iter().any(|task| task.id.as_str() == name)
    };
    let root = layout
        .workspace_root()
        .canonicalize()
        .unwrap_or_else(|_| layout.workspace_root().to_path_buf());
    let mut stray = Vec::new();
    match repo.list_worktrees() {
        Ok(worktrees) => {
            for worktree in worktrees {
                let Ok(rest) = worktree.path.strip_prefix(&root) else { continue };
                if !known(&rest.to_string_lossy()) {
                    stray.push(worktree.path.display().to_string());
                }
            }
        }
        Err(error) => {
            report.add_bad(
                "leftovers",
                format!("cannot list worktrees: {error}"),
                "git worktree list",
            );
        }
    }
    // Unreadable refs are reported with the repository already.
    for (name, _) in repo.list_refs("refs/heads/mainstem/").unwrap_or_default() {
        if !known(name.trim_start_matches("refs/heads/mainstem/")) {
            stray.push(name.trim_start_matches("refs/heads/").to_owned());
        }
    }
    if stray.is_empty() {
        return report.add_good("leftovers", "no leftover workspaces or branches");
    }
    let text = format!("left over from other runs: {}", list_names(&stray));
    report.add_doubt("leftovers", text, "see what can be removed: mainstem clean --dry-run");
}

fn list_names(items: &[String]) -> String {
    let shown = items.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Lock files of git that nobody seems to hold.
fn check_git_locks(repo: &Repo, report: &mut DoctorReport) {
    let mut found = Vec::new();
    let mut todo = vec![(repo.common_dir().to_path_buf(), false)];
    let mut seen = 0;
    while let Some((dir, deep)) = todo.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            let name = entry.file_name();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let goes_in = deep || name == "refs" || name == "worktrees";
            if is_dir && goes_in && seen < REFS_MAX {
                todo.push((entry.path(), true));
            }
            let old = entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|at| {
                SystemTime::now().duration_since(at).is_ok_and(|age| age > LOCK_YOUNG)
            });
            if !is_dir && old && name.as_encoded_bytes().ends_with(b".lock") {
                found.push(entry.path());
            }
        }
    }
    if found.is_empty() {
        return report.add_good("git locks", "no stale git locks");
    }
    found.sort();
    let shown: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
    let help = "remove these files if no git command is running (mainstem run removes its own)";
    report.add_doubt("git locks", format!("leftover git lock files: {}", list_names(&shown)), help);
}

fn check_agents(repo: Option<&Repo>, settings: &Settings, report: &mut DoctorReport) {
    let default = settings.run.agent.as_deref();
    let mut tools = Vec::new();
    for (name, agent) in &settings.agents {
        let wanted = default == Some(name.as_str());
        let mut say = |ok: bool, text: String, help: String| match (ok, wanted) {
            (true, _) => report.add_good("agent", text),
            (false, true) => report.add_bad("agent", text, help),
            (false, false) => report.add_doubt("agent", text, help),
        };
        let builtin = ["command", "script"].contains(&name.as_str()) && agent.command.is_empty();
        if let Some(known) = find_known_agent(&agent.kind) {
            let seen = super::agents::inspect_agent(known, Some(agent));
            let (ok, help) = (seen.is_ready(), seen.advice_text(name));
            say(ok, format!("agent {name}: {}", seen.status_sentence()), help);
            tools.push((name.clone(), seen));
        } else if let Some(program) = agent.command.first() {
            match find_program(repo, program) {
                Some(path) => say(true, format!("agent {name}: {}", path.display()), String::new()),
                None => say(
                    false,
                    format!("agent {name}: {program} is not installed"),
                    format!("install {program}, or change agents.{name}.command"),
                ),
            }
        } else if !builtin && agent.kind == "command" && agent.preset.is_none() {
            let text = format!("agent {name} has no command");
            say(false, text, format!("set agents.{name}.command, or `run` in its tasks"));
        }
        for secret in &agent.secrets {
            let set = std::env::var_os(secret).is_some_and(|value| !value.is_empty());
            let text = format!("agent {name}: {secret} is {}", if set { "set" } else { "not set" });
            say(set, text, format!("export {secret} before mainstem run"));
        }
    }
    let (names, tools): (Vec<String>, Vec<super::agents::AgentReadiness>) =
        tools.into_iter().unzip();
    for ((name, tool), version) in
        names.iter().zip(&tools).zip(super::agents::agent_versions(&tools))
    {
        if let Some(text) = tool.untested_version_text(version.as_deref()) {
            report.add_doubt("agent", format!("agent {name}: {text}"), tool.update_hint());
        }
    }
}

/// A program by name, or by a path seen from the repository.
fn find_program(repo: Option<&Repo>, program: &str) -> Option<PathBuf> {
    if !program.contains('/') {
        return find_on_path(program);
    }
    let path = match repo.and_then(Repo::toplevel) {
        Some(root) => root.join(program),
        None => PathBuf::from(program),
    };
    is_runnable(&path).then_some(path)
}

/// What holds an agent and all it starts together, and who keeps its memory limit.
fn check_containment(settings: &Settings, report: &mut DoctorReport) {
    let limited = settings.limits.memory_per_agent > 0;
    let delegate = "to use cgroups: systemd-run --user --scope -p Delegate=yes mainstem run";
    match process::current_containment() {
        JobContainment::Cgroup { at, memory } => {
            let limit = match (limited, memory) {
                (false, _) => "",
                (true, true) => "; the kernel enforces limits.memory_per_agent",
                (true, false) => "; limits.memory_per_agent is checked once a second",
            };
            let text = format!("each agent gets its own cgroup in {}{limit}", at.display());
            report.add_good("containment", text);
        }
        JobContainment::Tree { why } => {
            let limit =
                if limited { " and check limits.memory_per_agent once a second" } else { "" };
            let text = format!(
                "no cgroups ({why}): supervisors track the process tree{limit}; a detached process may be missed if its supervisor dies"
            );
            let help = if cfg!(target_os = "linux") { delegate } else { "docs/guide/platforms.md" };
            report.add_check("containment", DoctorVerdict::Good, text, Some(help.to_owned()));
        }
    }
}
