#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::config::{
    ConflictAction, RunFailureAction, SandboxKind, ScheduleBarrier, WorkspaceRetention,
    WorkspaceSharing,
};
use proptest::prelude::*;

fn project(text: &str) -> SettingLayer {
    SettingLayer::from_project_file("mainstem.toml", text)
}

fn env(name: &str, value: &str) -> SettingLayer {
    SettingLayer::from_environment([(name.to_owned(), value.to_owned())]).remove(0)
}

fn settings(layers: &[SettingLayer]) -> Settings {
    resolve_settings(layers).unwrap().settings
}

/// Exactly one fault, with this code and these words in its text.
fn refused(layer: SettingLayer, code: &str, words: &[&str]) {
    let got = resolve_settings(std::slice::from_ref(&layer)).unwrap_err();
    let all: Vec<_> = got.iter().map(|(_, fault)| fault.to_string()).collect();
    assert_eq!(got.len(), 1, "{layer:?}\n{all:#?}");
    assert_eq!(got[0].1.code, code, "{all:#?}");
    assert_eq!(got[0].0, layer.origin);
    assert!(got[0].1.help.is_some(), "{all:#?}");
    for word in words {
        assert!(all[0].contains(word), "{word}: {all:#?}");
    }
}

fn shown(layers: &[SettingLayer], key: &str) -> SettingListing {
    let resolved = resolve_settings(layers).unwrap();
    resolved.values.into_iter().find(|shown| shown.key == key).unwrap()
}

#[test]
fn defaults_are_as_documented() {
    let s = settings(&[]);
    assert_eq!((s.run.jobs, s.run.retries, s.run.agent.as_deref()), (3, 1, None));
    assert_eq!(s.run.on_failure, RunFailureAction::Continue);
    assert_eq!((s.run.timeout_ms, s.run.idle_timeout_ms, s.run.grace_ms), (3_600_000, 0, 10_000));
    assert_eq!((s.limits.disk_floor, s.limits.output_bytes), (500 << 20, 64 << 20));
    assert_eq!((s.limits.file_bytes, s.limits.memory_per_agent), (10 << 20, 0));
    assert_eq!((s.limits.memory_floor, s.limits.pressure_ceiling), (256 << 20, 20.0));
    assert_eq!((s.limits.rate_limit_waits, s.limits.rate_limit_wait_ms), (5, 60_000));
    assert_eq!(
        (s.workspace.unit, s.workspace.keep),
        (WorkspaceSharing::Task, WorkspaceRetention::UntilLanded)
    );
    assert_eq!(s.schedule.barrier, ScheduleBarrier::None);
    assert_eq!(s.gates.timeout_ms, 1_200_000);
    assert_eq!((s.land.lanes, s.land.on_conflict), (1, ConflictAction::Rework));
    assert_eq!((s.budget.usd, s.budget.hard, s.budget.per_attempt_usd), (None, true, 0.0));
    assert_eq!((s.sandbox.kind, s.snapshot_every_ms), (SandboxKind::Auto, 60_000));
    assert_eq!(s.snapshot_keep_ms, 14 * 86_400_000);
    let agents: Vec<_> = s.agents.iter().map(|(n, a)| (n.as_str(), a.kind.as_str())).collect();
    assert_eq!(agents, [("command", "command"), ("script", "script")]);
    assert!(s.agents["command"].command.is_empty());
}

const CONTRACT: &str = r#"
[run]
agent = "claude"
jobs = 4
on_failure = "drain"
[limits]
per_provider = { anthropic = 3 }
memory_per_agent = "4G"
disk_floor = "2G"
load_ceiling = 0.0
[workspace]
root = "../w"
unit = "epic"
kind = "clone"
setup = ["npm ci"]
include = [".env.local"]
keep = "until-landed"
[schedule]
barrier = "level"
satisfied_by = "verified"
[gates]
verify = ["cargo test"]
timeout = "20m"
[land]
mode = "phase-pr"
branch = "main"
strategy = "squash"
lanes = 2
on_conflict = "manual"
[budget]
usd = 25
hard = false
[agents.claude]
kind = "claude"
model = "m"
secrets = ["ANTHROPIC_API_KEY"]
env = { A = "1", "B.C" = "2" }
[agents.mine]
kind = "command"
command = ["./agent.sh", "-x"]
[agents.shell]
kind = "command"
command = "./agent.sh | tee log"
[sandbox]
kind = "off"
[store]
kind = "embedded"
"#;

#[test]
fn the_contract_example_is_understood() {
    let s = settings(&[project(CONTRACT)]);
    assert_eq!(s.run.agent.as_deref(), Some("claude"));
    assert_eq!(s.run.on_failure, RunFailureAction::Drain);
    assert_eq!(s.limits.per_provider["anthropic"], 3);
    assert_eq!((s.limits.memory_per_agent, s.limits.disk_floor), (4 << 30, 2 << 30));
    assert_eq!(s.workspace.setup, ["npm ci"]);
    assert_eq!(s.land.branch.as_deref(), Some("main"));
    assert_eq!((s.budget.usd, s.budget.hard), (Some(25.0), false));
    assert_eq!(s.agents["mine"].command, ["./agent.sh", "-x"]);
    assert_eq!(s.agents["shell"].command, ["sh", "-c", "./agent.sh | tee log"]);
    assert_eq!(s.agents["claude"].secrets, ["ANTHROPIC_API_KEY"]);
    assert_eq!(s.agents["claude"].env["A"], "1");
    assert_eq!(s.agents["claude"].env["B.C"], "2");
    assert_eq!(s.sandbox.kind, SandboxKind::Off);
}

#[test]
fn flag_beats_environment_beats_project_beats_user_beats_default() {
    let user =
        SettingLayer::from_user_file("/u.toml", "[run]\njobs = 11\nretries = 7\ngrace = '1s'\n");
    let file = project("[run]\njobs = 12\nretries = 8\n");
    let env = env("MAINSTEM_RUN_JOBS", "13");
    let flag = SettingLayer::from_flag_pair("run.jobs=14").unwrap();
    // The order of the layers does not matter.
    let all = [flag.clone(), user.clone(), env.clone(), file.clone()];
    let s = settings(&all);
    assert_eq!((s.run.jobs, s.run.retries, s.run.grace_ms), (14, 8, 1_000));
    assert_eq!(settings(&[env.clone(), user.clone(), file.clone()]).run.jobs, 13);
    let jobs = shown(&all, "run.jobs");
    assert_eq!((jobs.value.as_str(), jobs.origin, jobs.line), ("14", SettingOrigin::Flag, None));
    let retries = shown(&all, "run.retries");
    assert_eq!((retries.origin, retries.line), (file.origin, Some(3)));
    let grace = shown(&all, "run.grace");
    assert_eq!((grace.value.as_str(), grace.origin, grace.line), ("\"1s\"", user.origin, Some(4)));
    assert_eq!(shown(&all, "run.timeout").origin, SettingOrigin::Default);
    let later =
        [SettingLayer::from_flag("run.jobs", "5"), SettingLayer::from_flag("run.jobs", "6")];
    assert_eq!(settings(&later).run.jobs, 6);
}

#[test]
fn tables_are_layered_entry_by_entry() {
    let layers = [
        SettingLayer::from_user_file(
            "u",
            "[limits.per_provider]\na = 1\nb = 2\n[agents.x]\nkind = 'codex'\nmodel = 'old'\n",
        ),
        project("[limits]\nper_provider = { b = 3 }\n[agents.x]\nmodel = 'new'\n"),
        env("MAINSTEM_LIMITS_PER_PROVIDER_C", "4"),
        SettingLayer::from_flag("limits.per_agent", "x=1, y=2"),
        SettingLayer::from_flag("agents.x.env.TOKEN", "t"),
    ];
    let s = settings(&layers);
    let per: Vec<_> = s.limits.per_provider.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    assert_eq!(per, [("a", 1), ("b", 3), ("c", 4)]);
    assert_eq!(s.limits.per_agent.len(), 2);
    assert_eq!(s.agents["x"].model.as_deref(), Some("new"));
    assert_eq!(s.agents["x"].kind, "codex");
    assert_eq!(s.agents["x"].env["TOKEN"], "t");
    assert_eq!(shown(&layers, "limits.per_provider.b").line, Some(2));
    assert_eq!(shown(&layers, "limits.per_role").value, "{}");
}

#[test]
fn texts_from_flags_and_variables_are_read_by_the_keys_kind() {
    for (layer, key, value) in [
        (
            env("MAINSTEM_GATES_VERIFY", "cargo test, cargo clippy"),
            "gates.verify",
            r#"["cargo test", "cargo clippy"]"#,
        ),
        (env("MAINSTEM_GATES_VERIFY", r#"["a, b"]"#), "gates.verify", r#"["a, b"]"#),
        (env("MAINSTEM_GATES_VERIFY", ""), "gates.verify", "[]"),
        (env("MAINSTEM_BUDGET_USD", "2"), "budget.usd", "2.0"),
        (env("MAINSTEM_BUDGET_HARD", "false"), "budget.hard", "false"),
        (env("MAINSTEM_RUN_TIMEOUT", "90m"), "run.timeout", "\"1h30m\""),
        (env("MAINSTEM_LIMITS_OUTPUT", "1024K"), "limits.output", "\"1M\""),
        (env("MAINSTEM_RUN_AGENT", "\"mine\""), "run.agent", "\"mine\""),
        (SettingLayer::from_flag("limits.per_role", "{ coder = 2 }"), "limits.per_role.coder", "2"),
        (
            SettingLayer::from_flag("agents.command.command", "a b"),
            "agents.command.command",
            r#"["sh", "-c", "a b"]"#,
        ),
        (
            SettingLayer::from_flag("agents.command.command", "[\"a\"]"),
            "agents.command.command",
            r#"["a"]"#,
        ),
        (env("MAINSTEM_AGENTS_COMMAND_MODEL", "m"), "agents.command.model", "\"m\""),
    ] {
        assert_eq!(shown(std::slice::from_ref(&layer), key).value, value, "{layer:?}");
    }
    let dashed = project("[agents.my-agent]\nkind = 'command'\n");
    let s = settings(&[dashed, env("MAINSTEM_AGENTS_MY_AGENT_MODEL", "m")]);
    assert_eq!(s.agents["my-agent"].model.as_deref(), Some("m"));
}

#[test]
fn an_empty_text_takes_back_what_a_lower_layer_set() {
    let s = settings(&[project("[run]\nagent = 'script'\n"), env("MAINSTEM_RUN_AGENT", "")]);
    assert_eq!(s.run.agent, None);
}

#[test]
fn unknown_keys_name_the_nearest() {
    refused(project("[run]\njbos = 1\n"), "config::unknown_key", &["2:1", "run.jbos", "`jobs`"]);
    refused(project("[rnu]\njobs = 1\n"), "config::unknown_key", &["`run`"]);
    refused(project("jobs = 1\n"), "config::unknown_key", &["jobs"]);
    refused(project("[agents.x]\nkidn = 'codex'\n"), "config::unknown_key", &["`kind`"]);
    refused(SettingLayer::from_flag("run.jbos", "1"), "config::unknown_key", &["`run.jobs`"]);
    refused(env("MAINSTEM_RUN_JOB", "1"), "config::unknown_key", &["MAINSTEM_RUN_JOBS"]);
    refused(SettingLayer::from_flag("", ""), "config::unknown_key", &[]);
    assert!(SettingLayer::from_flag_pair("run.jobs").is_none());
}

#[test]
fn wrong_values_are_refused_with_a_cure() {
    refused(project("[run]\njobs = 0\n"), "config::range", &["1 to 10000"]);
    refused(project("[run]\njobs = 10001\n"), "config::range", &["1 to 10000"]);
    refused(project("[run]\njobs = '3'\n"), "config::type", &["without quotes"]);
    refused(project("[run]\ntimeout = 45\n"), "config::value", &["\"45m\""]);
    refused(project("[run]\ntimeout = '45'\n"), "config::value", &["unit"]);
    refused(project("[run]\non_failure = 'abrt'\n"), "config::choice", &["`abort`"]);
    refused(project("[limits]\noutput = 'much'\n"), "config::value", &["500M"]);
    refused(project("[limits]\noutput = -1\n"), "config::type", &["size"]);
    refused(project("[limits]\nper_agent = 3\n"), "config::type", &["table"]);
    refused(project("[limits]\nper_agent = { a = -1 }\n"), "config::range", &["per_agent.a"]);
    refused(project("[budget]\nusd = -1.0\n"), "config::range", &["0 or a positive number"]);
    refused(project("[budget]\nusd = nan\n"), "config::range", &["0 or a positive number"]);
    refused(project("[gates]\nverify = 'x'\n"), "config::type", &["[\"x\"]"]);
    refused(project("[gates]\nverify = ['']\n"), "config::value", &["entry"]);
    refused(project("[gates]\nverify = [1]\n"), "config::type", &["quotes"]);
    refused(project("[workspace]\ninclude = ['../x']\n"), "config::glob", &[".."]);
    refused(project("[land]\nbranch = '--upload-pack=x'\n"), "config::value", &["branch"]);
    refused(project("[land]\nbranch = 'a..b'\n"), "config::value", &["branch"]);
    refused(project("[store]\nkind = 'beads'\n"), "config::choice", &["embedded"]);
    refused(project("[agents.x]\nmodel = 'm'\n"), "config::agent", &["missing `kind`", "1:1"]);
    refused(project("[agents.x]\nkind = 'clade'\n"), "config::choice", &["`claude`"]);
    refused(project("[agents.command]\nkind = 'script'\n"), "config::agent", &["built-in"]);
    refused(
        project("[agents.x]\nkind = 'codex'\nsecrets = ['A=b']\n"),
        "config::value",
        &["variable"],
    );
    refused(project("[agents.'a b']\nkind = 'codex'\n"), "config::agent", &["a b"]);
    refused(project("agents = 3\n"), "config::type", &["section"]);
    refused(project("[agents]\nx = 3\n"), "config::type", &["agents.x"]);
    refused(project("[run]\njobs = 1\njobs = 2\n"), "syntax::duplicate_key", &["3:1"]);
    refused(SettingLayer::from_flag("run.jobs", "many"), "config::type", &["run.jobs"]);
    refused(SettingLayer::from_flag("gates.verify", "[1"), "config::value", &["TOML"]);
    refused(env("MAINSTEM_LIMITS_PER_AGENT", "a"), "config::type", &["per_agent.a"]);
}

fn without_help(fault: &Diagnostic) -> (&'static str, usize) {
    (fault.code, fault.line)
}

#[test]
fn all_faults_of_all_layers_come_together() {
    let got = resolve_settings(&[
        project("[run]\njobs = 0\nx = 1\n"),
        env("MAINSTEM_NO_SUCH", "1"),
        SettingLayer::from_user_file("u", "x = "),
    ])
    .unwrap_err();
    let got: Vec<_> =
        got.iter().map(|(origin, fault)| (origin.precedence(), without_help(fault))).collect();
    assert_eq!(got.len(), 4, "{got:?}");
    assert_eq!(got[0].0, 1);
    assert_eq!(got[1], (2, ("config::range", 2)));
    assert_eq!(got[2], (2, ("config::unknown_key", 3)));
    assert_eq!(got[3].0, 3);
}

#[test]
fn what_agents_are_given_is_no_setting() {
    let ours = ["MAINSTEM_RUN", "MAINSTEM_TASK", "MAINSTEM_TMP", "PATH", "mainstem_run_jobs"];
    let layers = SettingLayer::from_environment(ours.map(|name| (name.to_owned(), "x".to_owned())));
    assert_eq!(layers, []);
}

#[test]
fn every_shown_value_reads_back_to_the_same_settings() {
    let resolved = resolve_settings(&[project(CONTRACT)]).unwrap();
    let flags: Vec<_> = resolved
        .values
        .iter()
        .filter(|shown| !shown.value.is_empty() && !shown.key.contains("B.C"))
        .map(|shown| SettingLayer::from_flag(&shown.key, &shown.value))
        .chain([SettingLayer::from_flag("agents.claude.env", "{ \"B.C\" = \"2\" }")])
        .collect();
    assert_eq!(settings(&flags), resolved.settings);
}

#[test]
fn every_key_is_shown_once_and_in_order() {
    let resolved = resolve_settings(&[]).unwrap();
    let sections: Vec<_> = resolved.values.iter().filter_map(|s| s.key.split('.').next()).collect();
    let mut once = sections.clone();
    once.dedup();
    let mut sections = known_sections();
    sections.retain(|section| !["prices", "reviewers"].contains(section));
    assert_eq!(once, sections, "prices are shown where there are some");
}

#[test]
fn prices_models_and_fallbacks_are_read() {
    let text = "[agents.claude]\nfallback = ['codex']\nmodels = { cheap = 'h', top = 'o' }\nbilling = 'included'\n\
        [agents.codex]\n[models]\nby_role = { coder = 'top' }\nby_priority = { '5' = 'top' }\n\
        [prices]\n'gpt-5.1' = { input = 1.25, output = 10 }\n[limits]\nquiet_hours = '22:00-07:00'\n";
    let resolved = resolve_settings(&[project(text)]).unwrap();
    let s = &resolved.settings;
    let claude = &s.agents["claude"];
    assert_eq!(
        (claude.fallback.as_slice(), claude.included),
        (["codex".to_owned()].as_slice(), true)
    );
    assert_eq!(
        (claude.models.cheap.as_deref(), claude.models.middle.as_deref()),
        (Some("h"), None)
    );
    assert_eq!(claude.provider_name("claude"), "anthropic");
    assert_eq!(s.agents["codex"].provider_name("codex"), "openai");
    assert_eq!(s.agents["command"].provider_name("command"), "command");
    assert_eq!(s.models.by_role["coder"], "top");
    assert_eq!(s.models.by_priority[&5], "top");
    let price = s.prices["gpt-5.1"];
    assert_eq!((price.input, price.output, price.cache_read), (1.25, 10.0, 0.0));
    assert!(s.limits.quiet_hours.is_some() && s.limits.auto_resume);
    let shown = |key: &str| resolved.values.iter().any(|shown| shown.key == key);
    assert!(shown("prices.gpt-5.1.input") && shown("agents.claude.models.top"));
    let flag = settings(&[SettingLayer::from_flag("prices.m.input", "3")]);
    assert_eq!(flag.prices["m"].input, 3.0);
}

#[test]
fn what_prices_models_and_hours_cannot_be_is_refused() {
    for (text, word) in [
        ("[agents.claude]\nfallback = ['codxe']\n", "codxe"),
        ("[agents.claude]\nmodels = { huge = 'x' }\n", "huge"),
        ("[models]\nby_priority = { high = 'top' }\n", "high"),
        ("[prices]\nm = 3\n", "prices.m"),
        ("[prices]\nm = { inptu = 3 }\n", "input"),
        ("[limits]\nquiet_hours = 'at night'\n", "22:00"),
    ] {
        let wrong = resolve_settings(&[project(text)]).unwrap_err();
        let said = format!("{} {:?}", wrong[0].1.message, wrong[0].1.help);
        assert!(said.contains(word), "{text}: {said}");
    }
}

#[test]
fn kinds_named_like_agents_need_not_be_said() {
    let s = settings(&[project("[agents.codex]\nmodel = 'm'\n")]);
    assert_eq!(s.agents["codex"].kind, "codex");
}

proptest! {
    #[test]
    fn random_settings_never_panic(
        text in "(\\[(run|agents\\.a|limits)\\]\n|(jobs|kind|per_agent|timeout) = (1|'x'|\\{a=1\\}|\\['\\w'\\])\n|[a=\\[\\]'\n]){0,8}",
        key in "[a-z.*]{0,20}",
        value in "[\\[\\]{}\"a1=,. ]{0,12}",
    ) {
        let _ = resolve_settings(&[project(&text), SettingLayer::from_flag(&key, &value)]);
        for doc in all_keys() {
            let path = doc.key.replace('*', "command");
            let _ = resolve_settings(&[SettingLayer::from_flag(&path, &value), env(&env_var_name(&path), &value)]);
        }
    }
}

#[test]
fn lanes_and_groups_may_be_left_to_mainstem() {
    let of = |text: &str| {
        let resolved =
            resolve_settings(&[SettingLayer::from_project_file("mainstem.toml", text)]).unwrap();
        (resolved.settings.land.lanes, resolved.settings.land.groups)
    };
    assert_eq!(of(""), (1, false));
    assert_eq!(of("[land]\nlanes = \"auto\"\ngroups = \"auto\""), (1, false));
    assert_eq!(of("[land]\nlanes = 4\ngroups = \"off\""), (4, false));
    assert_eq!(of("[land]\nlanes = 4\ngroups = true"), (4, true));
    let flags = [
        SettingLayer::from_flag("land.lanes", "auto"),
        SettingLayer::from_flag("land.groups", "auto"),
    ];
    assert!(resolve_settings(&flags).is_ok());
    for text in ["[land]\nlanes = \"many\"", "[land]\nlanes = 0", "[land]\ngroups = \"some\""] {
        assert!(
            resolve_settings(&[SettingLayer::from_project_file("mainstem.toml", text)]).is_err(),
            "{text}"
        );
    }
}

#[test]
fn settings_of_later_versions_are_refused_as_such() {
    for text in [
        "[serve]\nlisten = \"127.0.0.1:7717\"",
        "[notify]\ndesktop = true",
        "[store]\nurl = \"postgres://x\"",
        "[store]\nkind = \"postgres\"",
        "[store]\nkind = \"beads\"",
    ] {
        let wrong = resolve_settings(&[SettingLayer::from_project_file("mainstem.toml", text)])
            .unwrap_err();
        let message = &wrong[0].1.message;
        assert!(message.contains("not available in this version"), "{text}: {message}");
    }
}
