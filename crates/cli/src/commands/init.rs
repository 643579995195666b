//! `init`: looks at a repository, writes a short, commented settings file and an example plan for it,
//! and tries the checks once.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_agents::known::{KNOWN, Known};
use mainstem_api::exit_code;
use mainstem_core::cause::Cause;
use mainstem_core::config::layers::{Layer, resolve};
use mainstem_engine::session::{TargetCheck, TargetOutcome};
use mainstem_host::files::write_atomic;
use mainstem_host::git::Repo;
use serde_json::{Value, json};

use super::agents::look as look_at_agent;
use crate::args::InitArgs;
use crate::context::{CONFIG_FILE, Context};
use crate::ecosystem::{self, Machine, Project};
use crate::failure::{Failure, Outcome};
use crate::{preflight, print};

/// The example.
const PLAN_FILE: &str = "plan.toml";

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
struct Found {
    branch: String,
    projects: Vec<Project>,
    agents: Vec<AgentFound>,
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
struct AgentFound {
    known: &'static Known,
    /// A key of it that is set here.
    secret: Option<&'static str>,
    ready: bool,
}

impl Found {
    /// Projects whose commands can run here.
    fn usable(&self) -> impl Iterator<Item = &Project> {
        self.projects.iter().filter(|project| project.missing.is_empty())
    }

    fn verify(&self) -> Vec<String> {
        let all = self.usable().flat_map(|project| project.verify.clone());
        all.filter(|command| !self.set_aside.iter().any(|(other, _)| other == command)).collect()
    }

    fn setup(&self) -> Vec<String> {
        let wanted = self.verify();
        let used = self.usable().filter(|p| p.verify.iter().any(|gate| wanted.contains(gate)));
        used.flat_map(|project| project.setup.clone()).collect()
    }

    fn caches(&self) -> Vec<String> {
        let wanted = self.verify();
        let used = self.usable().filter(|p| p.verify.iter().any(|gate| wanted.contains(gate)));
        let mut caches: Vec<String> = used.flat_map(|project| project.caches.clone()).collect();
        caches.sort();
        caches.dedup();
        caches
    }
}

/// Writes `mainstem.toml`, or says what it would hold.
pub(crate) fn init(context: &Context, args: &InitArgs) -> Outcome {
    let repo = context.repo()?;
    let root = repo.checkout().ok_or_else(|| {
        Failure::new("cannot create mainstem.toml in a bare repository")
            .hint("run mainstem init in a checkout")
    })?;
    let mut found = Found {
        branch: repo.default_branch()?,
        projects: ecosystem::look(root, &Machine::this()),
        agents: find_agents(),
        specs: find_specs(root),
        set_aside: Vec::new(),
        without_tests: false,
        reftable: repo.has_reftable(),
    };
    let file = root.join(CONFIG_FILE);
    let text = checked(&found)?;
    if args.dry_run {
        return report(context, &found, &file, (&text, false), None);
    }
    if file.symlink_metadata().is_ok() && !args.force {
        return Err(Failure::new(format!(
            "{} already exists; nothing was changed",
            file.display()
        ))
        .hint("preview a new file: mainstem init --dry-run; replace the existing one: mainstem init --force")
        .hint("show every setting and where it is set: mainstem config"));
    }
    say_found(context, &found);
    write(&file, &text)?;
    let tried = match args.no_try || found.verify().is_empty() {
        true => None,
        false => Some(try_checks(context, &repo, &mut found, &file)?),
    };
    let text = checked(&found)?;
    let plan = root.join(PLAN_FILE);
    if !found.specs.iter().any(|name| name.starts_with("plan.")) && plan.symlink_metadata().is_err()
    {
        write(&plan, &example(&found))?;
        found.specs.insert(0, PLAN_FILE.to_owned());
        print_unless_quiet(context, &format!("wrote {}, an example plan", plan.display()));
    }
    report(context, &found, &file, (&text, true), tried)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    write_atomic(file, text.as_bytes())
        .map_err(|error| Failure::io(format!("cannot write {}", file.display()), &error))
}

/// The settings file, which passes its own check.
fn checked(found: &Found) -> Result<String, Failure> {
    let text = compose(found);
    match resolve(&[Layer::project(CONFIG_FILE, text.as_str())]) {
        Ok(_) => Ok(text),
        Err(faults) => {
            let first = faults.first().map(|(_, fault)| fault.to_string()).unwrap_or_default();
            Err(Failure::new(format!("BUG: the file would not pass its own check: {first}")))
        }
    }
}

/// What came of trying the checks.
enum Tried {
    Passed(TargetCheck),
    Red(preflight::Explained),
    Not(String),
}

/// Runs the checks once as a run would. Of several, those that do not pass are set aside.
fn try_checks(
    context: &Context,
    repo: &Repo,
    found: &mut Found,
    file: &Path,
) -> Result<Tried, Failure> {
    loop {
        let settings = context.settings(Some(repo))?;
        let check = match preflight::try_target(context, true) {
            Ok(Some(check)) => check,
            Ok(None) => {
                let head = repo.read_ref(&format!("refs/heads/{}", found.branch))?;
                let why = match head {
                    Some(_) => "a run is unfinished here; mainstem run continues it",
                    None => "the repository has no commits yet",
                };
                return Ok(Tried::Not(why.to_owned()));
            }
            Err(failure) if failure.code == exit_code::INTERRUPTED => return Err(failure),
            Err(failure) => return Ok(Tried::Not(failure.message)),
        };
        if check.passed() {
            return Ok(Tried::Passed(check));
        }
        let explained = preflight::explain(repo, &settings, &check);
        let no_test = matches!(
            &check.outcome,
            TargetOutcome::Failed(gate) if gate.cause == Some(Cause::NoTests {})
        );
        if no_test && !found.without_tests {
            found.without_tests = true;
        } else if let Some(gate) = failed_gate(&check, found) {
            let why = explained.lines.last().cloned().unwrap_or_default();
            print_unless_quiet(context, &format!("{}; left out", explained.message));
            found.set_aside.push((gate, why));
        } else {
            return Ok(Tried::Red(explained));
        }
        write(file, &checked(found)?)?;
    }
}

/// The check to leave out, if others stay: its own command failed, or the setup that only it needs.
fn failed_gate(check: &TargetCheck, found: &Found) -> Option<String> {
    let verify = found.verify();
    if verify.len() < 2 {
        return None;
    }
    match &check.outcome {
        TargetOutcome::Failed(gate) => verify.into_iter().find(|command| *command == gate.gate),
        TargetOutcome::SetupFailed { command, .. } => {
            let of = found.usable().find(|project| project.setup.contains(command))?;
            of.verify.iter().find(|gate| verify.contains(gate)).cloned()
        }
        _ => None,
    }
}

fn print_unless_quiet(context: &Context, text: &str) {
    if !(context.global.quiet || context.global.json) {
        print::err(&print::harmless(text));
    }
}

fn say_found(context: &Context, found: &Found) {
    let or_none = |list: Vec<String>| {
        if list.is_empty() { "none found".to_owned() } else { list.join(" · ") }
    };
    let checks = found.usable().flat_map(|project| {
        project.verify.iter().map(|command| format!("{command} ({})", project.because))
    });
    let mut rows = vec![
        ("branch", found.branch.clone()),
        ("checks", or_none(checks.collect())),
        ("agents", or_none(found.agents.iter().map(|agent| agent.known.kind.to_owned()).collect())),
        ("plans", or_none(found.specs.clone())),
    ];
    let setup = found.setup();
    if !setup.is_empty() {
        rows.insert(1, ("setup", setup.join(" · ")));
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, text)| vec![name.to_owned(), print::harmless(&text)])
        .collect();
    print_unless_quiet(context, print::table(&rows).trim_end());
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

fn report(
    context: &Context,
    found: &Found,
    file: &Path,
    (text, written): (&str, bool),
    tried: Option<Tried>,
) -> Outcome {
    let red = matches!(tried, Some(Tried::Red(_)));
    if context.global.json {
        print::out_json(&as_json(found, file, (text, written), tried.as_ref()))?;
        return Ok(exit_code::OK);
    }
    if !written {
        say_found(context, found);
        print::out(text)?;
        return Ok(exit_code::OK);
    }
    match tried {
        Some(Tried::Passed(check)) => print_unless_quiet(
            context,
            &format!(
                "checks: {} passed on {} in {}",
                found.verify().join(", "),
                check.target,
                print::duration(check.duration_ms)
            ),
        ),
        Some(Tried::Red(explained)) => {
            print::err(explained.advice().render(context.color_err).trim_end());
        }
        Some(Tried::Not(why)) => {
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

fn as_json(
    found: &Found,
    file: &Path,
    (text, written): (&str, bool),
    tried: Option<&Tried>,
) -> Value {
    let usable = found.usable();
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
        Tried::Passed(check) => json!({
            "passed": true, "target": check.target, "duration_ms": check.duration_ms,
        }),
        Tried::Red(red) => json!({
            "passed": false, "message": red.message, "lines": red.lines, "help": red.hints,
        }),
        Tried::Not(why) => json!({ "passed": null, "message": why }),
    });
    json!({
        "written": written, "file": file, "branch": found.branch, "tests": tests,
        "setup": found.setup(), "verify": found.verify(), "missing": missing, "tried": tried,
        "agents": agents, "specs": found.specs, "text": text,
    })
}

/// A text as TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(commands: &[String]) -> String {
    match commands {
        [one] => format!("[{}]", quoted(one)),
        many => {
            let lines: String = many.iter().map(|one| format!("\n    {},", quoted(one))).collect();
            format!("[{lines}\n]")
        }
    }
}

fn compose(found: &Found) -> String {
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
            quoted(agent.known.kind)
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
                Some(secret) => add(&format!("secrets = [{}]", quoted(secret))),
                None => {
                    let usual = agent.known.keys.first().unwrap_or(&"");
                    add(&format!("# secrets = [{}]", quoted(usual)));
                }
            }
        }
    }
    lines.join("\n") + "\n"
}

fn compose_gates(found: &Found, add: &mut dyn FnMut(&str)) {
    let (setup, verify) = (found.setup(), found.verify());
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
        add(&format!("setup = {}", list(&setup)));
    }
    add("");
    add("[gates]");
    add("# Checks to run on the merged result. Work that fails them does not land.");
    match verify.is_empty() {
        true => {
            add("# verify = [\"make test\"]      # no checks found: work lands unchecked");
        }
        false => add(&format!("verify = {}", list(&verify))),
    }
    let caches = found.caches();
    if !caches.is_empty() {
        add("# Build folders to keep between checks; everything else starts clean.");
        add(&format!("caches = {}", list(&caches)));
    }
    if found.without_tests {
        add(
            "need_tests = false            # the checks pass without running a test; remove once there are tests",
        );
    }
    for (command, why) in &found.set_aside {
        let why: String =
            why.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect();
        add(&format!("# left out because it fails here: {} ({})", quoted(command), why.trim()));
    }
    for project in found.projects.iter().filter(|project| !project.missing.is_empty()) {
        let missing = project.missing.join(" and ");
        for command in project.setup.iter().chain(&project.verify) {
            add(&format!("# needs {missing}, not installed here: {}", quoted(command)));
        }
    }
}

/// A plan that runs as it is, and shows what tasks look like.
fn example(found: &Found) -> String {
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

fn find_agents() -> Vec<AgentFound> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    KNOWN
        .iter()
        .filter(|known| on_path(known.program).is_some())
        .map(|known| {
            let secret = known.keys.iter().copied().find(|key| set(key));
            AgentFound { known, secret, ready: look_at_agent(known, None).is_ready() }
        })
        .collect()
}

fn find_specs(root: &Path) -> Vec<String> {
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
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| runnable(path))
}

/// Whether a path is a file that we may run.
pub(super) fn runnable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn found(projects: Vec<Project>, agents: Vec<AgentFound>) -> Found {
        Found {
            branch: "feature/x".into(),
            projects,
            agents,
            specs: vec![],
            set_aside: vec![],
            without_tests: true,
            reftable: true,
        }
    }

    fn agents(secret: bool) -> Vec<AgentFound> {
        let key = |known: &'static Known| known.keys.first().copied().filter(|_| secret);
        KNOWN.iter().map(|known| AgentFound { known, secret: key(known), ready: true }).collect()
    }

    #[test]
    fn whatever_was_found_the_file_passes_the_settings_check() {
        let odd = Project {
            verify: vec!["a \"b\" \\ 'c'".to_owned()],
            setup: vec!["y\"".to_owned(), "z".to_owned()],
            ..Project::default()
        };
        let lacking = Project { missing: vec!["uv".to_owned()], ..odd.clone() };
        for projects in [vec![], vec![odd.clone()], vec![odd.clone(), lacking.clone(), odd]] {
            for agents in [vec![], agents(false), agents(true)] {
                let mut found = found(projects.clone(), agents);
                found.set_aside = vec![("other \"x\"".to_owned(), "line\u{7} one".to_owned())];
                let text = compose(&found);
                resolve(&[Layer::project("x", text.as_str())]).unwrap();
                let bare: String = text
                    .replace("# [agents", "[agents")
                    .replace("# kind", "kind")
                    .replace("# secrets", "secrets")
                    .replace("# command", "command");
                resolve(&[Layer::project("x", bare)]).unwrap();
            }
        }
    }

    #[test]
    fn a_key_that_is_set_is_named_and_no_branch_is_written() {
        let text = compose(&found(vec![], agents(true)));
        assert!(text.contains("\nsecrets = [\"ANTHROPIC_API_KEY\"]"), "{text}");
        assert!(!text.contains("branch"), "{text}");
        let without = compose(&found(vec![], agents(false)));
        assert!(without.contains("\n# secrets = [\"ANTHROPIC_API_KEY\"]"), "{without}");
    }

    #[test]
    fn a_check_that_needs_a_missing_program_is_named_and_not_used() {
        let lacking = Project {
            verify: vec!["uv run pytest".to_owned()],
            setup: vec!["uv sync".to_owned()],
            missing: vec!["uv".to_owned()],
            ..Project::default()
        };
        let text = compose(&found(vec![lacking], vec![]));
        assert!(text.contains("# needs uv, not installed here: \"uv run pytest\""), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("verify")), "{text}");
    }

    #[test]
    fn build_folders_of_the_chosen_checks_are_named_as_caches() {
        let cargo = |missing: &[&str]| Project {
            verify: vec!["cargo test".to_owned()],
            caches: vec!["target".to_owned()],
            missing: missing.iter().map(ToString::to_string).collect(),
            ..Project::default()
        };
        let text = compose(&found(vec![cargo(&[])], vec![]));
        let settings = resolve(&[Layer::project("x", text.as_str())]).unwrap().settings;
        assert_eq!(settings.gates.caches, ["target"], "{text}");
        let without = compose(&found(vec![cargo(&["cargo"])], vec![]));
        assert!(!without.contains("caches"), "{without}");
    }

    #[test]
    fn the_example_is_a_plan() {
        let text = example(&found(vec![], agents(false)));
        let settings = resolve(&[]).unwrap().settings;
        let known =
            mainstem_core::plan::check::Known { agents: &settings.agents, default_agent: None };
        let format = mainstem_core::plan::doc::Format::Toml;
        mainstem_core::plan::check::load_plan(text.as_bytes(), format, &known).unwrap();
    }
}
