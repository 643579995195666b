//! `init`: looks at a repository, writes a short, commented settings file and an example plan for it,
//! and tries the checks once.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_agents::known_agents::{KNOWN, KnownAgent};
use mainstem_api::exit_code;
use mainstem_core::config::layers::{SettingLayer, resolve_settings};
use mainstem_core::failure_cause::GateFailureCause;
use mainstem_engine::instance::{TargetCheck, TargetCheckOutcome};
use mainstem_host::files::write_atomic;
use mainstem_host::git::Repo;
use serde_json::{Value, json};

use super::agents::inspect_agent as look_at_agent;
use crate::args::InitArgs;
use crate::context::{CONFIG_FILE, CliContext};
use crate::ecosystem::{self, EcosystemProject, InstalledPrograms};
use crate::error::{CliError, CommandResult};
use crate::{output, preflight};

const PLAN_FILE: &str = "plan.toml";
/// Put before a check that writes to the home folder: in a sandbox the home folder is read-only.
const OWN_HOME: &str = "HOME=\"$TMPDIR\" ";

/// Files that hold a plan or could become one.
const SPECS: [&str; 12] = [
    "plan.toml",
    "plan.yaml",
    "plan.yml",
    "plan.json",
    "PRD.md",
    "prd.md",
    "docs/PRD.md",
    "docs/prd.md",
    "SPEC.md",
    "docs/spec.md",
    "tasks.md",
    ".taskmaster/tasks/tasks.json",
];

/// What a look at the repository found.
#[derive(Debug, Clone)]
struct InitFindings {
    branch: String,
    projects: Vec<EcosystemProject>,
    agents: Vec<InstalledAgent>,
    specs: Vec<String>,
    /// Checks that were found and do not pass, and why.
    set_aside: Vec<(String, String)>,
    /// The checks pass and say that they ran no test.
    without_tests: bool,
    /// Refs are in tables that all worktrees share: agents need clones.
    reftable: bool,
}

/// An agent that is installed.
#[derive(Debug, Clone)]
struct InstalledAgent {
    known: &'static KnownAgent,
    /// A key of it that is set here.
    secret: Option<&'static str>,
    ready: bool,
}

impl InitFindings {
    /// Projects whose commands can run here.
    fn usable_projects(&self) -> impl Iterator<Item = &EcosystemProject> {
        self.projects.iter().filter(|project| project.missing.is_empty())
    }

    fn verify_commands(&self) -> Vec<String> {
        let all = self.usable_projects().flat_map(|project| project.verify.clone());
        all.filter(|command| !self.set_aside.iter().any(|(other, _)| other == command)).collect()
    }

    fn give_own_home(&mut self, gate: &str) {
        let commands = self.projects.iter_mut().flat_map(|project| &mut project.verify);
        for command in commands.filter(|command| *command == gate) {
            *command = format!("{OWN_HOME}{command}");
        }
    }

    fn setup_commands(&self) -> Vec<String> {
        let wanted = self.verify_commands();
        let used =
            self.usable_projects().filter(|p| p.verify.iter().any(|gate| wanted.contains(gate)));
        used.flat_map(|project| project.setup.clone()).collect()
    }

    fn cache_paths(&self) -> Vec<String> {
        let wanted = self.verify_commands();
        let used =
            self.usable_projects().filter(|p| p.verify.iter().any(|gate| wanted.contains(gate)));
        let mut caches: Vec<String> = used.flat_map(|project| project.caches.clone()).collect();
        caches.sort();
        caches.dedup();
        caches
    }
}

/// Writes `mainstem.toml`, or says what it would hold.
pub(crate) fn cmd_init(context: &CliContext, args: &InitArgs) -> CommandResult {
    let repo = context.open_repo()?;
    let root = repo.checkout().ok_or_else(|| {
        CliError::new("cannot create mainstem.toml in a bare repository")
            .with_hint("run mainstem init in a checkout")
    })?;
    let mut found = InitFindings {
        branch: repo.default_branch()?,
        projects: ecosystem::find_projects(root, &InstalledPrograms::on_this_machine()),
        agents: find_installed_agents(),
        specs: find_spec_files(root),
        set_aside: Vec::new(),
        without_tests: false,
        reftable: repo.has_reftable(),
    };
    let file = root.join(CONFIG_FILE);
    let text = compose_checked(&found)?;
    if args.dry_run {
        return print_report(context, &found, &file, (&text, false), None);
    }
    if file.symlink_metadata().is_ok() && !args.force {
        return Err(CliError::new(format!(
            "{} already exists; nothing was changed",
            file.display()
        ))
        .with_hint("preview a new file: mainstem init --dry-run; replace the existing one: mainstem init --force")
        .with_hint("show every setting and where it is set: mainstem config"));
    }
    print_findings(context, &found);
    write_file(&file, &text)?;
    let tried = match args.no_try || found.verify_commands().is_empty() {
        true => None,
        false => Some(try_found_checks(context, &repo, &mut found, &file)?),
    };
    let text = compose_checked(&found)?;
    let plan = root.join(PLAN_FILE);
    if !found.specs.iter().any(|name| name.starts_with("plan.")) && plan.symlink_metadata().is_err()
    {
        write_file(&plan, &example_plan(&found))?;
        found.specs.insert(0, PLAN_FILE.to_owned());
        print_unless_quiet(context, &format!("wrote {}, an example plan", plan.display()));
    }
    print_report(context, &found, &file, (&text, true), tried)
}

fn write_file(file: &Path, text: &str) -> Result<(), CliError> {
    write_atomic(file, text.as_bytes())
        .map_err(|error| CliError::io_error(format!("cannot write {}", file.display()), &error))
}

/// The settings file, which passes its own check.
fn compose_checked(found: &InitFindings) -> Result<String, CliError> {
    let text = compose_settings(found);
    match resolve_settings(&[SettingLayer::from_project_file(CONFIG_FILE, text.as_str())]) {
        Ok(_) => Ok(text),
        Err(faults) => {
            let first = faults.first().map(|(_, fault)| fault.to_string()).unwrap_or_default();
            Err(CliError::new(format!("BUG: the file would not pass its own check: {first}")))
        }
    }
}

/// What came of trying the checks.
enum CheckTrial {
    Passed(TargetCheck),
    Red(preflight::TargetExplanation),
    Not(String),
}

/// Runs the checks once as a run would. Of several, those that do not pass are set aside.
fn try_found_checks(
    context: &CliContext,
    repo: &Repo,
    found: &mut InitFindings,
    file: &Path,
) -> Result<CheckTrial, CliError> {
    loop {
        let settings = context.load_settings(Some(repo))?;
        let check = match preflight::check_target(context, true) {
            Ok(Some(check)) => check,
            Ok(None) => {
                let head = repo.read_ref(&format!("refs/heads/{}", found.branch))?;
                let why = match head {
                    Some(_) => "a run is unfinished here; mainstem run continues it",
                    None => "the repository has no commits yet",
                };
                return Ok(CheckTrial::Not(why.to_owned()));
            }
            Err(failure) if failure.code == exit_code::INTERRUPTED => return Err(failure),
            Err(failure) => return Ok(CheckTrial::Not(failure.message)),
        };
        if check.has_passed() {
            return Ok(CheckTrial::Passed(check));
        }
        let explained = preflight::explain_target(repo, &settings, &check);
        let no_test = matches!(
            &check.outcome,
            TargetCheckOutcome::Failed(gate) if gate.cause == Some(GateFailureCause::NoTests {})
        );
        if no_test && !found.without_tests {
            found.without_tests = true;
        } else if let Some(gate) = gate_for_own_home(&check, found) {
            found.give_own_home(&gate);
        } else if let Some(gate) = gate_to_drop(&check, found) {
            let why = explained.lines.last().cloned().unwrap_or_default();
            print_unless_quiet(context, &format!("{}; left out", explained.message));
            found.set_aside.push((gate, why));
        } else {
            return Ok(CheckTrial::Red(explained));
        }
        write_file(file, &compose_checked(found)?)?;
    }
}

/// The check that writes to the home folder under names that no setting can allow.
fn gate_for_own_home(check: &TargetCheck, found: &InitFindings) -> Option<String> {
    let TargetCheckOutcome::Failed(failed) = &check.outcome else { return None };
    let cause = failed.cause.as_ref().filter(|cause| cause.needs_own_home());
    cause
        .and_then(|_| found.verify_commands().into_iter().find(|gate| *gate == failed.gate))
        .filter(|gate| !gate.starts_with(OWN_HOME))
}

/// The check to leave out, if others stay: its own command failed, or the setup that only it needs.
fn gate_to_drop(check: &TargetCheck, found: &InitFindings) -> Option<String> {
    let verify = found.verify_commands();
    if verify.len() < 2 {
        return None;
    }
    match &check.outcome {
        TargetCheckOutcome::Failed(gate) => {
            verify.into_iter().find(|command| *command == gate.gate)
        }
        TargetCheckOutcome::SetupFailed { command, .. } => {
            let of = found.usable_projects().find(|project| project.setup.contains(command))?;
            of.verify.iter().find(|gate| verify.contains(gate)).cloned()
        }
        _ => None,
    }
}

fn print_unless_quiet(context: &CliContext, text: &str) {
    if !(context.global.quiet || context.global.json) {
        output::write_stderr(&output::sanitize_text(text));
    }
}

fn print_findings(context: &CliContext, found: &InitFindings) {
    let or_none = |list: Vec<String>| {
        if list.is_empty() { "none found".to_owned() } else { list.join(" · ") }
    };
    let checks = found.usable_projects().flat_map(|project| {
        project.verify.iter().map(|command| format!("{command} ({})", project.because))
    });
    let mut rows = vec![
        ("branch", found.branch.clone()),
        ("checks", or_none(checks.collect())),
        ("agents", or_none(found.agents.iter().map(|agent| agent.known.kind.to_owned()).collect())),
        ("plans", or_none(found.specs.clone())),
    ];
    let setup = found.setup_commands();
    if !setup.is_empty() {
        rows.insert(1, ("setup", setup.join(" · ")));
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, text)| vec![name.to_owned(), output::sanitize_text(&text)])
        .collect();
    print_unless_quiet(context, output::format_table(&rows).trim_end());
    for project in &found.projects {
        let what = format!("{} ({})", project.verify.join(", "), project.because);
        if !project.missing.is_empty() {
            let text =
                format!("{what} needs {}, which is not installed", project.missing.join(" and "));
            print_unless_quiet(context, &text);
        }
        if let Some(note) = &project.note {
            print_unless_quiet(context, note);
        }
    }
}

fn print_report(
    context: &CliContext,
    found: &InitFindings,
    file: &Path,
    (text, written): (&str, bool),
    tried: Option<CheckTrial>,
) -> CommandResult {
    let red = matches!(tried, Some(CheckTrial::Red(_)));
    if context.global.json {
        output::write_json(&init_json(found, file, (text, written), tried.as_ref()))?;
        return Ok(exit_code::OK);
    }
    if !written {
        print_findings(context, found);
        output::write_stdout(text)?;
        return Ok(exit_code::OK);
    }
    match tried {
        Some(CheckTrial::Passed(check)) => print_unless_quiet(
            context,
            &format!(
                "checks: {} passed on {} in {}",
                found.verify_commands().join(", "),
                check.target,
                output::format_duration(check.duration_ms)
            ),
        ),
        Some(CheckTrial::Red(explained)) => {
            output::write_stderr(explained.into_advice().render(context.color_err).trim_end());
        }
        Some(CheckTrial::Not(why)) => {
            print_unless_quiet(context, &format!("the checks were not run: {why}"));
        }
        None => {}
    }
    print_unless_quiet(context, &format!("wrote {}", file.display()));
    let plan = found.specs.iter().find(|name| name.starts_with("plan."));
    let next = match plan {
        _ if red => {
            "next: fix the check (see above), then run it again: mainstem doctor".to_owned()
        }
        Some(plan) => {
            format!("next: edit {plan} · mainstem plan show {plan} · mainstem run {plan}")
        }
        None => "next: write plan.toml, then mainstem run plan.toml".to_owned(),
    };
    print_unless_quiet(context, &next);
    Ok(exit_code::OK)
}

fn init_json(
    found: &InitFindings,
    file: &Path,
    (text, written): (&str, bool),
    tried: Option<&CheckTrial>,
) -> Value {
    let usable = found.usable_projects();
    let tests: Vec<Value> = usable
        .flat_map(|project| {
            let because = &project.because;
            project
                .verify
                .iter()
                .map(move |command| json!({ "command": command, "because": because }))
        })
        .collect();
    let missing: Vec<Value> = found
        .projects
        .iter()
        .filter(|project| !project.missing.is_empty())
        .map(|project| json!({ "commands": project.verify, "programs": project.missing }))
        .collect();
    let agents: Vec<&str> = found.agents.iter().map(|agent| agent.known.kind).collect();
    let tried = tried.map(|tried| match tried {
        CheckTrial::Passed(check) => json!({
            "passed": true, "target": check.target, "duration_ms": check.duration_ms,
        }),
        CheckTrial::Red(red) => json!({
            "passed": false, "message": red.message, "lines": red.lines, "help": red.hints,
        }),
        CheckTrial::Not(why) => json!({ "passed": null, "message": why }),
    });
    json!({
        "written": written, "file": file, "branch": found.branch, "tests": tests,
        "setup": found.setup_commands(), "verify": found.verify_commands(), "missing": missing, "tried": tried,
        "agents": agents, "specs": found.specs, "text": text,
    })
}

/// A text as TOML.
fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn toml_list(commands: &[String]) -> String {
    match commands {
        [one] => format!("[{}]", toml_string(one)),
        many => {
            let lines: String =
                many.iter().map(|one| format!("\n    {},", toml_string(one))).collect();
            format!("[{lines}\n]")
        }
    }
}

fn compose_settings(found: &InitFindings) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: &str| lines.push(line.to_owned());
    add("# Mainstem settings for this repository. To list every setting: mainstem config");
    add("");
    add("[run]");
    add("jobs = 3                      # agents at once");
    let agent = found.agents.iter().find(|agent| agent.ready).or(found.agents.first());
    match agent {
        Some(agent) => add(&format!(
            "agent = {:<22} # agent for tasks that do not name one",
            toml_string(agent.known.kind)
        )),
        None => add(
            "# agent = \"mine\"              # agent for tasks that do not name one; defined below",
        ),
    }
    compose_gates(found, &mut add);
    add("");
    if found.agents.is_empty() {
        add(
            "# No known coding agent was found on the PATH. Any program can be an agent: it starts in the",
        );
        add("# task's workspace and gets the prompt on stdin and in the file $MAINSTEM_PROMPT.");
        add("# [agents.mine]");
        add("# kind = \"command\"");
        add("# command = [\"./agent.sh\"]");
    } else {
        add(
            "# Agents found on this machine (details: mainstem agents). `secrets` lists the environment",
        );
        add("# variables, such as API keys, that an agent may read.");
        for agent in &found.agents {
            add(&format!("[agents.{}]", agent.known.kind));
            match agent.secret {
                Some(secret) => add(&format!("secrets = [{}]", toml_string(secret))),
                None => {
                    let usual = agent.known.keys.first().unwrap_or(&"");
                    add(&format!("# secrets = [{}]", toml_string(usual)));
                }
            }
        }
    }
    lines.join("\n") + "\n"
}

fn compose_gates(found: &InitFindings, add: &mut dyn FnMut(&str)) {
    let (setup, verify) = (found.setup_commands(), found.verify_commands());
    if found.reftable || !setup.is_empty() {
        add("");
        add("[workspace]");
    }
    if found.reftable {
        add("# Worktrees cannot share a reftable with agents in a sandbox; clones can.");
        add("kind = \"clone\"");
    }
    if !setup.is_empty() {
        add("# Commands to run in each new workspace, before agents and before checks.");
        add(&format!("setup = {}", toml_list(&setup)));
    }
    add("");
    add("[gates]");
    add("# Checks to run on the merged result. Work that fails them does not land.");
    match verify.is_empty() {
        true => {
            add("# verify = [\"make test\"]      # no checks found: work lands unchecked");
        }
        false => add(&format!("verify = {}", toml_list(&verify))),
    }
    let caches = found.cache_paths();
    if !caches.is_empty() {
        add("# Build folders to keep between checks; everything else starts clean.");
        add(&format!("caches = {}", toml_list(&caches)));
    }
    if found.without_tests {
        add(
            "need_tests = false            # the checks pass without running a test; remove once there are tests",
        );
    }
    for (command, why) in &found.set_aside {
        let why: String =
            why.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect();
        add(&format!(
            "# left out because it fails here: {} ({})",
            toml_string(command),
            why.trim()
        ));
    }
    for project in found.projects.iter().filter(|project| !project.missing.is_empty()) {
        let missing = project.missing.join(" and ");
        for command in project.setup.iter().chain(&project.verify) {
            add(&format!("# needs {missing}, not installed here: {}", toml_string(command)));
        }
    }
}

/// A plan that runs as it is, and shows what tasks look like.
fn example_plan(found: &InitFindings) -> String {
    let agent = found.agents.iter().find(|agent| agent.ready).or(found.agents.first());
    let agent = agent.map_or("mine", |agent| agent.known.kind);
    format!(
        r##"# An example plan. Show it: mainstem plan show plan.toml. Run it: mainstem run plan.toml.
# Undo the last landing: mainstem undo. All keys: docs/guide/plans.md
version = 1
title = "First steps with Mainstem"

[[task]]
id = "hello"
title = "Add a file, to see work land"
run = "echo 'This file was landed by Mainstem.' > mainstem-hello.txt"

# A task for a coding agent says what to do and when the task is done:
#
# [[task]]
# id = "readme"
# title = "Explain how to run the tests"
# description = """Add a short section to the README that says how to run the tests."""
# acceptance = ["the README names the command"]
# needs = ["hello"]               # starts once hello has landed
# agent = "{agent}"
"##
    )
}

fn find_installed_agents() -> Vec<InstalledAgent> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    KNOWN
        .iter()
        .filter(|known| find_on_path(known.program).is_some())
        .map(|known| {
            let secret = known.keys.iter().copied().find(|key| set(key));
            InstalledAgent { known, secret, ready: look_at_agent(known, None).is_ready() }
        })
        .collect()
}

fn find_spec_files(root: &Path) -> Vec<String> {
    let names: Vec<String> = fs::read_dir(root)
        .map(|entries| {
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        })
        .unwrap_or_default();
    let there = |name: &&str| {
        let top = name.split('/').next().unwrap_or(name);
        names.iter().any(|found| found == top) && root.join(name).is_file()
    };
    let mut specs: Vec<String> =
        SPECS.iter().filter(|name| there(name)).map(ToString::to_string).collect();
    // docs/PRD.md and docs/prd.md may be one file.
    specs.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    for folder in ["specs", ".kiro/specs", "openspec/changes"] {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        let mut inside: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().join("tasks.md").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| format!("{folder}/{name}/tasks.md"))
            .collect();
        inside.sort();
        specs.extend(inside);
    }
    specs
}

/// Where a program of this name would be found.
pub(super) fn find_on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| is_runnable(path))
}

/// Whether a path is a file that we may run.
pub(super) fn is_runnable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn found(projects: Vec<EcosystemProject>, agents: Vec<InstalledAgent>) -> InitFindings {
        InitFindings {
            branch: "feature/x".into(),
            projects,
            agents,
            specs: vec![],
            set_aside: vec![],
            without_tests: true,
            reftable: true,
        }
    }

    fn agents(secret: bool) -> Vec<InstalledAgent> {
        let key = |known: &'static KnownAgent| known.keys.first().copied().filter(|_| secret);
        KNOWN
            .iter()
            .map(|known| InstalledAgent { known, secret: key(known), ready: true })
            .collect()
    }

    #[test]
    fn whatever_was_found_the_file_passes_the_settings_check() {
        let odd = EcosystemProject {
            verify: vec!["a \"b\" \\ 'c'".to_owned()],
            setup: vec!["y\"".to_owned(), "z".to_owned()],
            ..EcosystemProject::default()
        };
        let lacking = EcosystemProject { missing: vec!["uv".to_owned()], ..odd.clone() };
        for projects in [vec![], vec![odd.clone()], vec![odd.clone(), lacking.clone(), odd]] {
            for agents in [vec![], agents(false), agents(true)] {
                let mut found = found(projects.clone(), agents);
                found.set_aside = vec![("other \"x\"".to_owned(), "line\u{7} one".to_owned())];
                let text = compose_settings(&found);
                resolve_settings(&[SettingLayer::from_project_file("x", text.as_str())]).unwrap();
                let bare: String = text
                    .replace("# [agents", "[agents")
                    .replace("# kind", "kind")
                    .replace("# secrets", "secrets")
                    .replace("# command", "command");
                resolve_settings(&[SettingLayer::from_project_file("x", bare)]).unwrap();
            }
        }
    }

    #[test]
    fn a_key_that_is_set_is_named_and_no_branch_is_written() {
        let text = compose_settings(&found(vec![], agents(true)));
        assert!(text.contains("\nsecrets = [\"ANTHROPIC_API_KEY\"]"), "{text}");
        assert!(!text.contains("branch"), "{text}");
        let without = compose_settings(&found(vec![], agents(false)));
        assert!(without.contains("\n# secrets = [\"ANTHROPIC_API_KEY\"]"), "{without}");
    }

    #[test]
    fn a_check_that_needs_a_missing_program_is_named_and_not_used() {
        let lacking = EcosystemProject {
            verify: vec!["uv run pytest".to_owned()],
            setup: vec!["uv sync".to_owned()],
            missing: vec!["uv".to_owned()],
            ..EcosystemProject::default()
        };
        let text = compose_settings(&found(vec![lacking], vec![]));
        assert!(text.contains("# needs uv, not installed here: \"uv run pytest\""), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("verify")), "{text}");
    }

    #[test]
    fn build_folders_of_the_chosen_checks_are_named_as_caches() {
        let cargo = |missing: &[&str]| EcosystemProject {
            verify: vec!["cargo test".to_owned()],
            caches: vec!["target".to_owned()],
            missing: missing.iter().map(ToString::to_string).collect(),
            ..EcosystemProject::default()
        };
        let text = compose_settings(&found(vec![cargo(&[])], vec![]));
        let settings = resolve_settings(&[SettingLayer::from_project_file("x", text.as_str())])
            .unwrap()
            .settings;
        assert_eq!(settings.gates.caches, ["target"], "{text}");
        let without = compose_settings(&found(vec![cargo(&["cargo"])], vec![]));
        assert!(!without.contains("caches"), "{without}");
    }

    #[test]
    fn the_example_is_a_plan() {
        let text = example_plan(&found(vec![], agents(false)));
        let settings = resolve_settings(&[]).unwrap().settings;
        let known = mainstem_core::plan::check::PlanCheckContext {
            agents: &settings.agents,
            default_agent: None,
        };
        let format = mainstem_core::plan::document::DocumentFormat::Toml;
        mainstem_core::plan::check::load_plan(text.as_bytes(), format, &known).unwrap();
    }
}
