//! From resolved values to [`Settings`], and the agents that are always there.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::AGENT_KINDS;
use super::layers::Origin;
use super::values::{Entry, Setting, Values};
use super::{
    Agent, Barrier, Budget, CheckoutMode, Gates, Keep, Land, LandMode, Lessons, Limits, Models,
    OnConflict, OnLooping, OnStuck, Permission, Price, Prompt, Publish, Pulls, Questions, Review,
    ReviewMode, Reviewer, Run, RunOnFailure, Sandbox, SandboxKind, SandboxNetwork, SandboxSockets,
    SandboxTmp, SatisfiedBy, Schedule, Settings, Sign, Strategy, Tiers, Unit, Waits, Workspace,
    WorkspaceKind,
};
use crate::diag::{self, Diagnostic};
use crate::fact::Class;
use crate::gate;
use crate::plan::read::{COMMAND_AGENT, SCRIPT_AGENT};
use crate::question::Rule;
use crate::quiet::QuietHours;
use crate::review::Severity;

/// Adds the built-in agents, and a kind to those named after one; others must say theirs.
pub(super) fn complete_agents(values: &mut Values, wrong: &mut Vec<(Origin, Diagnostic)>) {
    for name in [COMMAND_AGENT, SCRIPT_AGENT] {
        if !values.agents.contains_key(name) {
            values.mention_agent(name, &Origin::Default, None);
        }
    }
    for (name, (origin, line)) in values.agents.clone() {
        let path = format!("agents.{name}.kind");
        let kind = values.get(&path).map(|entry| entry.setting.clone());
        let built_in = [COMMAND_AGENT, SCRIPT_AGENT].contains(&name.as_str());
        let differs = |kind: &Setting| *kind != Setting::Text(name.clone());
        if built_in && kind.as_ref().is_some_and(differs) {
            let message = format!("the kind of the built-in agent `{name}` cannot be changed");
            let help = "use a different name for your agent";
            wrong.push((origin, fault(line, message, help.to_owned())));
        } else if kind.is_none() && values.get(&format!("agents.{name}.preset")).is_some() {
            let setting = Setting::Text(COMMAND_AGENT.to_owned());
            values.set(path, Entry { setting, origin: Origin::Default, line: None });
        } else if kind.is_none() && AGENT_KINDS.contains(&name.as_str()) {
            let setting = Setting::Text(name.clone());
            values.set(path, Entry { setting, origin: Origin::Default, line: None });
        } else if kind.is_none() && wrong.is_empty() {
            let message = format!("missing `kind` of the agent `{name}`");
            let help = format!("set `kind` to one of {}", AGENT_KINDS.join(", "));
            wrong.push((origin, fault(line, message, help)));
        }
    }
}

fn fault(line: Option<usize>, message: String, help: String) -> Diagnostic {
    let line = line.unwrap_or(1);
    Diagnostic { code: "config::agent", message, span: 0..0, line, column: 1, help: Some(help) }
}

/// Agents that others fall back on must be there, and tiers have three names.
pub(super) fn check_agents(values: &Values, wrong: &mut Vec<(Origin, Diagnostic)>) {
    let v = Reader { values };
    for name in values.agents.keys() {
        let path = format!("agents.{name}.fallback");
        let strangers =
            v.texts(&path).into_iter().filter(|other| !values.agents.contains_key(other));
        for other in strangers {
            let entry = values.get(&path).expect("BUG: the key was just read");
            let message = format!("unknown agent `{other}` in `{path}`");
            let help = format!("define `[agents.{other}]` or remove the name");
            wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
        }
        let models = format!("agents.{name}.models");
        for (path, tier, entry) in values.table(&models) {
            if !["cheap", "middle", "top"].contains(&tier) {
                let message = format!("unknown tier `{tier}` in `{path}`");
                let help = "known: cheap, middle, top".to_owned();
                wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
            }
        }
    }
    let resolver = values.get("land.resolver").zip(v.text("land.resolver"));
    if let Some((entry, other)) = resolver.filter(|(_, name)| !values.agents.contains_key(name)) {
        let message = format!("unknown agent `{other}` in `land.resolver`");
        let help = format!("define `[agents.{other}]` or remove the name");
        wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
    }
    check_reviewers(&v, wrong);
    check_stacks(&v, wrong);
    check_outcomes(&v, wrong);
    for (path, least, entry) in values.table("models.by_priority") {
        if least.trim().parse::<i64>().is_err() {
            let message = format!("invalid priority `{least}` in `{path}`");
            let help = "use an integer in quotes".to_owned();
            wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
        }
    }
}

/// Reviewers must be agents, and a review needs some.
fn check_reviewers(v: &Reader<'_>, wrong: &mut Vec<(Origin, Diagnostic)>) {
    let known = |name: &String| v.values.agents.contains_key(name);
    let review = review(v);
    let mut say = |path: &str, message: String, help: String| {
        if let Some(entry) = v.values.get(path) {
            wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
        }
    };
    for name in review.agents.iter().filter(|name| !known(&review.reviewer(name).agent)) {
        let message = format!("unknown reviewer or agent `{name}` in `review.agents`");
        let help = format!("define `[reviewers.{name}]` with an `agent`, or `[agents.{name}]`");
        say("review.agents", message, help);
    }
    for (name, reviewer) in review.reviewers.iter().filter(|(_, r)| !known(&r.agent)) {
        let path = format!("reviewers.{name}.agent");
        let message = format!("unknown agent `{}` in `reviewers.{name}.agent`", reviewer.agent);
        say(&path, message, format!("define `[agents.{}]` or use another agent", reviewer.agent));
    }
    if gates(v).review && review.agents.is_empty() {
        let message = "`gates.verify` has @review, but no reviewers are configured".to_owned();
        say("gates.verify", message, "add reviewers: [review] agents = [\"…\"]".to_owned());
    }
}

fn outcome(word: &str) -> Option<Class> {
    Class::ALL.into_iter().find(|class| class.word() == word)
}

/// Outcomes that are named must exist.
fn check_outcomes(v: &Reader<'_>, wrong: &mut Vec<(Origin, Diagnostic)>) {
    let Some(entry) = v.values.get("run.start_over") else { return };
    for word in v.texts("run.start_over").iter().filter(|word| outcome(word).is_none()) {
        let known = Class::ALL.map(Class::word);
        let message = format!("unknown outcome `{word}` in `run.start_over`");
        let help = diag::nearest(word, known).map_or_else(
            || format!("known: {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
    }
}

/// Only pull requests of single tasks can be stacked.
fn check_stacks(v: &Reader<'_>, wrong: &mut Vec<(Origin, Diagnostic)>) {
    let mode = v.word("land.mode");
    if v.flag("land.stacked")
        && mode != "pr"
        && let Some(entry) = v.values.get("land.stacked")
    {
        let message = format!(
            "`land.stacked` needs a pull request per task, which land.mode = \"{mode}\" does not open"
        );
        let help = "set land.mode = \"pr\" or remove land.stacked".to_owned();
        wrong.push((entry.origin.clone(), fault(entry.line, message, help)));
    }
}

/// Builds the settings. Every key with a default has a value of its kind by now.
pub(super) fn build(values: &Values) -> Settings {
    let v = Reader { values };
    Settings {
        run: Run {
            agent: v.text("run.agent"),
            jobs: v.int("run.jobs"),
            on_failure: match v.word("run.on_failure") {
                "drain" => RunOnFailure::Drain,
                "abort" => RunOnFailure::Abort,
                _ => RunOnFailure::Continue,
            },
            retries: v.int("run.retries"),
            timeout_ms: v.ms("run.timeout"),
            idle_timeout_ms: v.ms("run.idle_timeout"),
            grace_ms: v.ms("run.grace"),
            preflight: v.flag("run.preflight"),
            stall_restarts: v.int("run.stall_restarts"),
            on_looping: match v.word("run.on_looping") {
                "fail" => OnLooping::Fail,
                _ => OnLooping::Ask,
            },
            start_over: v.texts("run.start_over").iter().filter_map(|w| outcome(w)).collect(),
        },
        limits: limits(&v),
        workspace: workspace(&v),
        schedule: Schedule {
            barrier: match v.word("schedule.barrier") {
                "level" => Barrier::Level,
                "epic" => Barrier::Epic,
                "phase" => Barrier::Phase,
                _ => Barrier::None,
            },
            satisfied_by: match v.word("schedule.satisfied_by") {
                "verified" => SatisfiedBy::Verified,
                "done" => SatisfiedBy::Done,
                _ => SatisfiedBy::Landed,
            },
        },
        gates: gates(&v),
        review: review(&v),
        land: land(&v),
        budget: Budget {
            usd: v.number("budget.usd"),
            hard: v.flag("budget.hard"),
            per_attempt_usd: v.number("budget.per_attempt").unwrap_or(0.0),
            per_task_usd: v.number("budget.per_task"),
        },
        models: models(&v),
        prices: prices(&v),
        agents: values.agents.keys().map(|name| (name.clone(), agent(&v, name))).collect(),
        sandbox: sandbox(&v),
        secrets_allow: v.texts("secrets.allow"),
        prompt: Prompt { template: v.text("prompt.template"), tokens: v.int("prompt.tokens") },
        questions: Questions {
            policy: v.texts("questions.policy").iter().filter_map(|r| Rule::parse(r)).collect(),
            agent: v.text("questions.agent"),
            agent_timeout_ms: v.ms("questions.agent_timeout"),
            default: v.text("questions.default"),
            deadline_ms: Some(v.ms("questions.deadline")).filter(|ms| *ms > 0),
        },
        lessons: Lessons { learn: v.flag("lessons.learn"), folder: v.text("lessons.folder") },
        snapshot_every_ms: v.ms("snapshots.every"),
        snapshot_keep_ms: v.ms("snapshots.keep"),
    }
}

/// What looks at files or runs a command judges the merged tree; people and review agents judge each
/// task's work before it joins the train.
fn gates(v: &Reader<'_>) -> Gates {
    let (others, verify): (Vec<String>, Vec<String>) =
        v.texts("gates.verify").into_iter().partition(|line| gate::needs_others(line));
    let (reviews, approvals): (Vec<String>, Vec<String>) = others
        .into_iter()
        .partition(|line| matches!(gate::Gate::parse(line), Ok(gate::Gate::Review)));
    Gates {
        verify,
        timeout_ms: v.ms("gates.timeout"),
        retries: v.int("gates.retries"),
        need_tests: v.flag("gates.need_tests"),
        approvals,
        review: !reviews.is_empty(),
        wait: match v.word("gates.wait") {
            "always" => Waits::Always,
            "never" => Waits::Never,
            _ => Waits::Auto,
        },
        caches: v.texts("gates.caches"),
        recheck: v.int("gates.recheck"),
        guard: v.texts("gates.guard"),
    }
}

fn review(v: &Reader<'_>) -> Review {
    let severity = |key: &str, usual| Severity::from_word(v.word(key)).unwrap_or(usual);
    let names = v.values.table("reviewers").filter_map(|(_, rest, _)| rest.rsplit_once('.'));
    let names: BTreeSet<String> = names.map(|(name, _)| name.to_owned()).collect();
    let reviewer = |name: String| {
        let path = |key: &str| format!("reviewers.{name}.{key}");
        let reviewer = Reviewer {
            agent: v.text(&path("agent")).unwrap_or_else(|| name.clone()),
            focus: v.text(&path("focus")),
            paths: v.texts(&path("paths")),
            min_lines: v.int(&path("min_lines")),
            model: v.text(&path("model")),
        };
        (name, reviewer)
    };
    Review {
        agents: v.texts("review.agents"),
        mode: match v.word("review.mode") {
            "split" => ReviewMode::Split,
            _ => ReviewMode::All,
        },
        concurrency: v.int("review.concurrency"),
        max_cycles: v.int("review.max_cycles"),
        changes_at: severity("review.changes_at", Severity::Medium),
        blocks_at: severity("review.blocks_at", Severity::Critical),
        on_stuck: match v.word("review.on_stuck") {
            "ask" => OnStuck::Ask,
            _ => OnStuck::Fail,
        },
        extensions: v.texts("review.extensions"),
        ignore: v.texts("review.ignore"),
        risk_high: v.texts("review.risk_high"),
        risk_low: v.texts("review.risk_low"),
        timeout_ms: v.ms("review.timeout"),
        reviewers: names.into_iter().map(reviewer).collect(),
    }
}

fn sandbox(v: &Reader<'_>) -> Sandbox {
    Sandbox {
        kind: match v.word("sandbox.kind") {
            "bwrap" => SandboxKind::Bwrap,
            "landlock" => SandboxKind::Landlock,
            "off" => SandboxKind::Off,
            _ => SandboxKind::Auto,
        },
        write: v.texts("sandbox.write"),
        write_defaults: v.flag("sandbox.write_defaults"),
        read: v.texts("sandbox.read"),
        hide: v.texts("sandbox.hide"),
        tmp: match v.word("sandbox.tmp") {
            "private" => SandboxTmp::Private,
            "shared" => SandboxTmp::Shared,
            _ => SandboxTmp::Auto,
        },
        network: match v.word("sandbox.network") {
            "loopback" => SandboxNetwork::Loopback,
            "none" => SandboxNetwork::None,
            _ => SandboxNetwork::Open,
        },
        sockets: match v.word("sandbox.sockets") {
            "open" => SandboxSockets::Open,
            "blocked" => SandboxSockets::Blocked,
            _ => SandboxSockets::Auto,
        },
        processes: v.int("sandbox.processes"),
        file_bytes: v.bytes("sandbox.file_size"),
    }
}

fn limits(v: &Reader<'_>) -> Limits {
    Limits {
        per_provider: v.counts("limits.per_provider"),
        per_agent: v.counts("limits.per_agent"),
        per_role: v.counts("limits.per_role"),
        verify: v.int("limits.verify"),
        memory_per_agent: v.bytes("limits.memory_per_agent"),
        disk_floor: v.bytes("limits.disk_floor"),
        load_ceiling: v.number("limits.load_ceiling").unwrap_or(0.0),
        memory_floor: v.bytes("limits.memory_floor"),
        pressure_ceiling: v.number("limits.pressure_ceiling").unwrap_or(0.0),
        output_bytes: v.bytes("limits.output"),
        file_bytes: v.bytes("limits.file_size"),
        rate_limit_waits: v.int("limits.rate_limit_waits"),
        rate_limit_wait_ms: v.ms("limits.rate_limit_wait"),
        quota_wait_ms: v.ms("limits.quota_wait"),
        auto_resume: v.flag("limits.auto_resume"),
        shared: v.flag("limits.shared"),
        quiet_hours: QuietHours::parse(v.word("limits.quiet_hours")).ok(),
        breaker: v.int("limits.breaker"),
        breaker_wait_ms: v.ms("limits.breaker_wait"),
        fallback_after_ms: v.ms("limits.fallback_after"),
    }
}

fn models(v: &Reader<'_>) -> Models {
    let by_priority = v.names("models.by_priority").into_iter();
    Models {
        by_role: v.names("models.by_role").into_iter().collect(),
        by_priority: by_priority
            .filter_map(|(least, choice)| Some((least.trim().parse().ok()?, choice)))
            .collect(),
    }
}

fn prices(v: &Reader<'_>) -> BTreeMap<String, Price> {
    let mut prices: BTreeMap<String, Price> = BTreeMap::new();
    for (path, rest, _) in v.values.table("prices") {
        let Some((model, what)) = rest.rsplit_once('.') else { continue };
        let usd = v.number(path).unwrap_or(0.0);
        let price = prices.entry(model.to_owned()).or_default();
        match what {
            "input" => price.input = usd,
            "output" => price.output = usd,
            "cache_read" => price.cache_read = usd,
            _ => price.cache_write = usd,
        }
    }
    prices
}

fn workspace(v: &Reader<'_>) -> Workspace {
    Workspace {
        root: v.text("workspace.root"),
        editor: v.texts("workspace.editor"),
        unit: match v.word("workspace.unit") {
            "epic" => Unit::Epic,
            "phase" => Unit::Phase,
            "none" => Unit::None,
            _ => Unit::Task,
        },
        kind: match v.word("workspace.kind") {
            "clone" => WorkspaceKind::Clone,
            _ => WorkspaceKind::Worktree,
        },
        setup: v.texts("workspace.setup"),
        include: v.texts("workspace.include"),
        keep: match v.word("workspace.keep") {
            "failed" => Keep::Failed,
            "always" => Keep::Always,
            _ => Keep::UntilLanded,
        },
    }
}

fn land(v: &Reader<'_>) -> Land {
    Land {
        mode: match v.word("land.mode") {
            "pr" => LandMode::Pr,
            "phase-pr" => LandMode::PhasePr,
            "none" => LandMode::None,
            _ => LandMode::Local,
        },
        branch: v.text("land.branch"),
        checkout: match v.word("land.checkout") {
            "branch" => CheckoutMode::Branch,
            _ => CheckoutMode::Follow,
        },
        strategy: match v.word("land.strategy") {
            "squash" => Strategy::Squash,
            "rebase" => Strategy::Rebase,
            _ => Strategy::Merge,
        },
        // `auto` is no number.
        lanes: v.int("land.lanes").max(1),
        groups: v.flag("land.groups"),
        on_conflict: match v.word("land.on_conflict") {
            "agent" => OnConflict::Agent,
            "manual" => OnConflict::Manual,
            "fail" => OnConflict::Fail,
            _ => OnConflict::Rework,
        },
        resolver: v.text("land.resolver"),
        reuse_resolutions: v.flag("land.reuse_resolutions"),
        mergiraf: v.flag("land.mergiraf"),
        sign: match v.word("land.sign") {
            "off" => Sign::Off,
            "required" => Sign::Required,
            _ => Sign::Auto,
        },
        push: v.text("land.push").map(|remote| Publish {
            remote,
            branch: v.text("land.push_branch"),
            tries: v.int("land.push_tries"),
        }),
        pulls: Pulls {
            remote: v.text("land.remote").unwrap_or_else(|| "origin".to_owned()),
            repository: v.text("land.repository"),
            api: v.text("land.api"),
            labels: v.texts("land.labels"),
            milestone: v.text("land.milestone"),
            draft: v.flag("land.draft"),
            template: v.text("land.template"),
            require_checks: v.flag("land.require_checks"),
            approvals: v.int("land.approvals"),
            auto_merge: v.flag("land.auto_merge"),
            stacked: v.flag("land.stacked"),
            delete_branch: v.flag("land.delete_branch"),
            poll_ms: v.ms("land.poll"),
        },
    }
}

fn agent(v: &Reader<'_>, name: &str) -> Agent {
    let path = |key: &str| format!("agents.{name}.{key}");
    let mut tiers: BTreeMap<String, String> = v.names(&path("models")).into_iter().collect();
    Agent {
        kind: v.word(&path("kind")).to_owned(),
        command: v.texts(&path("command")),
        provider: v.text(&path("provider")),
        model: v.text(&path("model")),
        secrets: v.texts(&path("secrets")),
        env: v.names(&path("env")).into_iter().collect(),
        fallback: v.texts(&path("fallback")),
        models: Tiers {
            cheap: tiers.remove("cheap"),
            middle: tiers.remove("middle"),
            top: tiers.remove("top"),
        },
        included: v.word(&path("billing")) == "included",
        preset: v.text(&path("preset")),
        binary: v.text(&path("binary")),
        args: v.texts(&path("args")),
        effort: v.text(&path("effort")),
        system_prompt: v.text(&path("system_prompt")),
        allowed_tools: v.texts(&path("allowed_tools")),
        max_turns: v.int(&path("max_turns")),
        permission: match v.word(&path("permission")) {
            "list" => Permission::List,
            _ => Permission::Bypass,
        },
    }
}

/// Typed access by path; what is not set is empty or zero.
struct Reader<'v> {
    values: &'v Values,
}

impl Reader<'_> {
    fn setting(&self, path: &str) -> Option<&Setting> {
        self.values.get(path).map(|entry| &entry.setting)
    }

    fn word(&self, path: &str) -> &str {
        match self.setting(path) {
            Some(Setting::Text(word)) => word,
            _ => "",
        }
    }

    /// Empty text takes back what a lower layer set.
    fn text(&self, path: &str) -> Option<String> {
        Some(self.word(path)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn texts(&self, path: &str) -> Vec<String> {
        match self.setting(path) {
            Some(Setting::Texts(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    fn flag(&self, path: &str) -> bool {
        self.setting(path) == Some(&Setting::Bool(true))
    }

    fn int(&self, path: &str) -> u32 {
        match self.setting(path) {
            Some(Setting::Int(number)) => u32::try_from(*number).unwrap_or(0),
            _ => 0,
        }
    }

    fn number(&self, path: &str) -> Option<f64> {
        match self.setting(path) {
            Some(Setting::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn ms(&self, path: &str) -> u64 {
        match self.setting(path) {
            Some(Setting::Ms(ms)) => *ms,
            _ => 0,
        }
    }

    fn bytes(&self, path: &str) -> u64 {
        match self.setting(path) {
            Some(Setting::Bytes(bytes)) => *bytes,
            _ => 0,
        }
    }

    /// A table of texts.
    fn names(&self, path: &str) -> Vec<(String, String)> {
        let text = |setting: &Setting| match setting {
            Setting::Text(text) => text.clone(),
            other => other.to_string(),
        };
        let entries = self.values.table(path);
        entries.map(|(_, name, entry)| (name.to_owned(), text(&entry.setting))).collect()
    }

    fn counts(&self, path: &str) -> BTreeMap<String, u32> {
        let entries = self.values.table(path);
        entries.map(|(path, name, _)| (name.to_owned(), self.int(path))).collect()
    }
}
