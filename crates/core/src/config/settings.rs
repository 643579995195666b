//! From resolved values to [`Settings`], and the agents that are always there.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::AGENT_KINDS;
use super::layers::SettingOrigin;
use super::values::{SettingEntry, SettingValue, SettingValues};
use super::{
    AgentPermission, AgentSettings, BudgetSettings, CheckoutMode, ConflictAction,
    DependencySatisfaction, GateSettings, GateWaitMode, LandMode, LandSettings, LandSigning,
    LandStrategy, LessonSettings, LimitSettings, LoopingAction, ModelPrice, ModelSettings,
    ModelTiers, PromptSettings, PublishSettings, PullRequestSettings, QuestionSettings, ReviewMode,
    ReviewSettings, ReviewerSettings, RunFailureAction, RunSettings, SandboxKind, SandboxNetwork,
    SandboxSettings, SandboxSockets, SandboxTmp, ScheduleBarrier, ScheduleSettings, Settings,
    StuckReviewAction, WorkspaceKind, WorkspaceRetention, WorkspaceSettings, WorkspaceSharing,
};
use crate::diagnostic::{self, Diagnostic};
use crate::fact::FailureClass;
use crate::gate;
use crate::plan::read::{COMMAND_AGENT, SCRIPT_AGENT};
use crate::question::AnswerRule;
use crate::quiet_hours::QuietHours;
use crate::review::Severity;

/// Adds the built-in agents, and a kind to those named after one; others must say theirs.
pub(super) fn add_builtin_agents(
    values: &mut SettingValues,
    wrong: &mut Vec<(SettingOrigin, Diagnostic)>,
) {
    for name in [COMMAND_AGENT, SCRIPT_AGENT] {
        if !values.agents.contains_key(name) {
            values.mention_agent(name, &SettingOrigin::Default, None);
        }
    }
    for (name, (origin, line)) in values.agents.clone() {
        let path = format!("agents.{name}.kind");
        let kind = values.get(&path).map(|entry| entry.setting.clone());
        let built_in = [COMMAND_AGENT, SCRIPT_AGENT].contains(&name.as_str());
        let differs = |kind: &SettingValue| *kind != SettingValue::Text(name.clone());
        if built_in && kind.as_ref().is_some_and(differs) {
            let message = format!("the kind of the built-in agent `{name}` cannot be changed");
            let help = "use a different name for your agent";
            wrong.push((origin, diagnostic_at_line(line, message, help.to_owned())));
        } else if kind.is_none() && values.get(&format!("agents.{name}.preset")).is_some() {
            let setting = SettingValue::Text(COMMAND_AGENT.to_owned());
            values.set(path, SettingEntry { setting, origin: SettingOrigin::Default, line: None });
        } else if kind.is_none() && AGENT_KINDS.contains(&name.as_str()) {
            let setting = SettingValue::Text(name.clone());
            values.set(path, SettingEntry { setting, origin: SettingOrigin::Default, line: None });
        } else if kind.is_none() && wrong.is_empty() {
            let message = format!("missing `kind` of the agent `{name}`");
            let help = format!("set `kind` to one of {}", AGENT_KINDS.join(", "));
            wrong.push((origin, diagnostic_at_line(line, message, help)));
        }
    }
}

fn diagnostic_at_line(line: Option<usize>, message: String, help: String) -> Diagnostic {
    let line = line.unwrap_or(1);
    Diagnostic { code: "config::agent", message, span: 0..0, line, column: 1, help: Some(help) }
}

/// Agents that others fall back on must be there, and tiers have three names.
pub(super) fn check_agents(values: &SettingValues, wrong: &mut Vec<(SettingOrigin, Diagnostic)>) {
    let v = SettingReader { values };
    for name in values.agents.keys() {
        let path = format!("agents.{name}.fallback");
        let strangers =
            v.get_texts(&path).into_iter().filter(|other| !values.agents.contains_key(other));
        for other in strangers {
            let entry = values.get(&path).expect("BUG: the key was just read");
            let message = format!("unknown agent `{other}` in `{path}`");
            let help = format!("define `[agents.{other}]` or remove the name");
            wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
        }
        let models = format!("agents.{name}.models");
        for (path, tier, entry) in values.table_entries(&models) {
            if !["cheap", "middle", "top"].contains(&tier) {
                let message = format!("unknown tier `{tier}` in `{path}`");
                let help = "known: cheap, middle, top".to_owned();
                wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
            }
        }
    }
    let resolver = values.get("land.resolver").zip(v.get_text("land.resolver"));
    if let Some((entry, other)) = resolver.filter(|(_, name)| !values.agents.contains_key(name)) {
        let message = format!("unknown agent `{other}` in `land.resolver`");
        let help = format!("define `[agents.{other}]` or remove the name");
        wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
    }
    check_reviewers(&v, wrong);
    check_stacks(&v, wrong);
    check_outcomes(&v, wrong);
    for (path, least, entry) in values.table_entries("models.by_priority") {
        if least.trim().parse::<i64>().is_err() {
            let message = format!("invalid priority `{least}` in `{path}`");
            let help = "use an integer in quotes".to_owned();
            wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
        }
    }
}

/// Reviewers must be agents, and a review needs some.
fn check_reviewers(v: &SettingReader<'_>, wrong: &mut Vec<(SettingOrigin, Diagnostic)>) {
    let known = |name: &String| v.values.agents.contains_key(name);
    let review = build_review_settings(v);
    let mut say = |path: &str, message: String, help: String| {
        if let Some(entry) = v.values.get(path) {
            wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
        }
    };
    for name in review.agents.iter().filter(|name| !known(&review.reviewer_settings(name).agent)) {
        let message = format!("unknown reviewer or agent `{name}` in `review.agents`");
        let help = format!("define `[reviewers.{name}]` with an `agent`, or `[agents.{name}]`");
        say("review.agents", message, help);
    }
    for (name, reviewer) in review.reviewers.iter().filter(|(_, r)| !known(&r.agent)) {
        let path = format!("reviewers.{name}.agent");
        let message = format!("unknown agent `{}` in `reviewers.{name}.agent`", reviewer.agent);
        say(&path, message, format!("define `[agents.{}]` or use another agent", reviewer.agent));
    }
    if build_gate_settings(v).review && review.agents.is_empty() {
        let message = "`gates.verify` has @review, but no reviewers are configured".to_owned();
        say("gates.verify", message, "add reviewers: [review] agents = [\"…\"]".to_owned());
    }
}

fn parse_failure_class(word: &str) -> Option<FailureClass> {
    FailureClass::ALL.into_iter().find(|class| class.as_str() == word)
}

/// Outcomes that are named must exist.
fn check_outcomes(v: &SettingReader<'_>, wrong: &mut Vec<(SettingOrigin, Diagnostic)>) {
    let Some(entry) = v.values.get("run.start_over") else { return };
    for word in
        v.get_texts("run.start_over").iter().filter(|word| parse_failure_class(word).is_none())
    {
        let known = FailureClass::ALL.map(FailureClass::as_str);
        let message = format!("unknown outcome `{word}` in `run.start_over`");
        let help = diagnostic::nearest_word(word, known).map_or_else(
            || format!("known: {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
    }
}

/// Only pull requests of single tasks can be stacked.
fn check_stacks(v: &SettingReader<'_>, wrong: &mut Vec<(SettingOrigin, Diagnostic)>) {
    let mode = v.get_word("land.mode");
    if v.get_flag("land.stacked")
        && mode != "pr"
        && let Some(entry) = v.values.get("land.stacked")
    {
        let message = format!(
            "`land.stacked` needs a pull request per task, which land.mode = \"{mode}\" does not open"
        );
        let help = "set land.mode = \"pr\" or remove land.stacked".to_owned();
        wrong.push((entry.origin.clone(), diagnostic_at_line(entry.line, message, help)));
    }
}

/// Builds the settings. Every key with a default has a value of its kind by now.
pub(super) fn build_settings(values: &SettingValues) -> Settings {
    let v = SettingReader { values };
    Settings {
        run: build_run_settings(&v),
        limits: build_limit_settings(&v),
        workspace: build_workspace_settings(&v),
        schedule: ScheduleSettings {
            barrier: match v.get_word("schedule.barrier") {
                "level" => ScheduleBarrier::Level,
                "epic" => ScheduleBarrier::Epic,
                "phase" => ScheduleBarrier::Phase,
                _ => ScheduleBarrier::None,
            },
            satisfied_by: match v.get_word("schedule.satisfied_by") {
                "verified" => DependencySatisfaction::Verified,
                "done" => DependencySatisfaction::Done,
                _ => DependencySatisfaction::Landed,
            },
        },
        gates: build_gate_settings(&v),
        review: build_review_settings(&v),
        land: build_land_settings(&v),
        budget: BudgetSettings {
            usd: v.get_number("budget.usd"),
            hard: v.get_flag("budget.hard"),
            per_attempt_usd: v.get_number("budget.per_attempt").unwrap_or(0.0),
            per_task_usd: v.get_number("budget.per_task"),
        },
        models: build_model_settings(&v),
        prices: build_model_prices(&v),
        agents: values
            .agents
            .keys()
            .map(|name| (name.clone(), build_agent_settings(&v, name)))
            .collect(),
        sandbox: build_sandbox_settings(&v),
        secrets_allow: v.get_texts("secrets.allow"),
        prompt: PromptSettings {
            template: v.get_text("prompt.template"),
            tokens: v.get_int("prompt.tokens"),
        },
        questions: build_question_settings(&v),
        lessons: LessonSettings {
            learn: v.get_flag("lessons.learn"),
            folder: v.get_text("lessons.folder"),
        },
        snapshot_every_ms: v.get_ms("snapshots.every"),
        snapshot_keep_ms: v.get_ms("snapshots.keep"),
    }
}

fn build_run_settings(v: &SettingReader<'_>) -> RunSettings {
    RunSettings {
        agent: v.get_text("run.agent"),
        jobs: v.get_int("run.jobs"),
        on_failure: match v.get_word("run.on_failure") {
            "drain" => RunFailureAction::Drain,
            "abort" => RunFailureAction::Abort,
            _ => RunFailureAction::Continue,
        },
        retries: v.get_int("run.retries"),
        timeout_ms: v.get_ms("run.timeout"),
        idle_timeout_ms: v.get_ms("run.idle_timeout"),
        grace_ms: v.get_ms("run.grace"),
        preflight: v.get_flag("run.preflight"),
        stall_restarts: v.get_int("run.stall_restarts"),
        on_looping: match v.get_word("run.on_looping") {
            "fail" => LoopingAction::Fail,
            _ => LoopingAction::Ask,
        },
        start_over: v
            .get_texts("run.start_over")
            .iter()
            .filter_map(|w| parse_failure_class(w))
            .collect(),
    }
}

fn build_question_settings(v: &SettingReader<'_>) -> QuestionSettings {
    QuestionSettings {
        policy: v
            .get_texts("questions.policy")
            .iter()
            .filter_map(|r| AnswerRule::parse(r))
            .collect(),
        agent: v.get_text("questions.agent"),
        agent_timeout_ms: v.get_ms("questions.agent_timeout"),
        default: v.get_text("questions.default"),
        deadline_ms: Some(v.get_ms("questions.deadline")).filter(|ms| *ms > 0),
    }
}

/// What looks at files or runs a command judges the merged tree; people and review agents judge each
/// task's work before it joins the train.
fn build_gate_settings(v: &SettingReader<'_>) -> GateSettings {
    let (others, verify): (Vec<String>, Vec<String>) = v
        .get_texts("gates.verify")
        .into_iter()
        .partition(|line| gate::needs_person_or_reviewer(line));
    let (reviews, approvals): (Vec<String>, Vec<String>) = others
        .into_iter()
        .partition(|line| matches!(gate::GateSpec::parse(line), Ok(gate::GateSpec::Review)));
    GateSettings {
        verify,
        timeout_ms: v.get_ms("gates.timeout"),
        retries: v.get_int("gates.retries"),
        need_tests: v.get_flag("gates.need_tests"),
        approvals,
        review: !reviews.is_empty(),
        wait: match v.get_word("gates.wait") {
            "always" => GateWaitMode::Always,
            "never" => GateWaitMode::Never,
            _ => GateWaitMode::Auto,
        },
        caches: v.get_texts("gates.caches"),
        recheck: v.get_int("gates.recheck"),
        guard: v.get_texts("gates.guard"),
    }
}

fn build_review_settings(v: &SettingReader<'_>) -> ReviewSettings {
    let severity = |key: &str, usual| Severity::from_word(v.get_word(key)).unwrap_or(usual);
    let names =
        v.values.table_entries("reviewers").filter_map(|(_, rest, _)| rest.rsplit_once('.'));
    let names: BTreeSet<String> = names.map(|(name, _)| name.to_owned()).collect();
    let reviewer = |name: String| {
        let path = |key: &str| format!("reviewers.{name}.{key}");
        let reviewer = ReviewerSettings {
            agent: v.get_text(&path("agent")).unwrap_or_else(|| name.clone()),
            focus: v.get_text(&path("focus")),
            paths: v.get_texts(&path("paths")),
            min_lines: v.get_int(&path("min_lines")),
            model: v.get_text(&path("model")),
        };
        (name, reviewer)
    };
    ReviewSettings {
        agents: v.get_texts("review.agents"),
        mode: match v.get_word("review.mode") {
            "split" => ReviewMode::Split,
            _ => ReviewMode::All,
        },
        concurrency: v.get_int("review.concurrency"),
        max_cycles: v.get_int("review.max_cycles"),
        changes_at: severity("review.changes_at", Severity::Medium),
        blocks_at: severity("review.blocks_at", Severity::Critical),
        on_stuck: match v.get_word("review.on_stuck") {
            "ask" => StuckReviewAction::Ask,
            _ => StuckReviewAction::Fail,
        },
        extensions: v.get_texts("review.extensions"),
        ignore: v.get_texts("review.ignore"),
        risk_high: v.get_texts("review.risk_high"),
        risk_low: v.get_texts("review.risk_low"),
        timeout_ms: v.get_ms("review.timeout"),
        reviewers: names.into_iter().map(reviewer).collect(),
    }
}

fn build_sandbox_settings(v: &SettingReader<'_>) -> SandboxSettings {
    SandboxSettings {
        kind: match v.get_word("sandbox.kind") {
            "bwrap" => SandboxKind::Bwrap,
            "landlock" => SandboxKind::Landlock,
            "off" => SandboxKind::Off,
            _ => SandboxKind::Auto,
        },
        write: v.get_texts("sandbox.write"),
        write_defaults: v.get_flag("sandbox.write_defaults"),
        read: v.get_texts("sandbox.read"),
        hide: v.get_texts("sandbox.hide"),
        tmp: match v.get_word("sandbox.tmp") {
            "private" => SandboxTmp::Private,
            "shared" => SandboxTmp::Shared,
            _ => SandboxTmp::Auto,
        },
        network: match v.get_word("sandbox.network") {
            "loopback" => SandboxNetwork::Loopback,
            "none" => SandboxNetwork::None,
            _ => SandboxNetwork::Open,
        },
        sockets: match v.get_word("sandbox.sockets") {
            "open" => SandboxSockets::Open,
            "blocked" => SandboxSockets::Blocked,
            _ => SandboxSockets::Auto,
        },
        processes: v.get_int("sandbox.processes"),
        file_bytes: v.get_bytes("sandbox.file_size"),
    }
}

fn build_limit_settings(v: &SettingReader<'_>) -> LimitSettings {
    LimitSettings {
        per_provider: v.get_count_table("limits.per_provider"),
        per_agent: v.get_count_table("limits.per_agent"),
        per_role: v.get_count_table("limits.per_role"),
        verify: v.get_int("limits.verify"),
        memory_per_agent: v.get_bytes("limits.memory_per_agent"),
        disk_floor: v.get_bytes("limits.disk_floor"),
        load_ceiling: v.get_number("limits.load_ceiling").unwrap_or(0.0),
        memory_floor: v.get_bytes("limits.memory_floor"),
        pressure_ceiling: v.get_number("limits.pressure_ceiling").unwrap_or(0.0),
        output_bytes: v.get_bytes("limits.output"),
        file_bytes: v.get_bytes("limits.file_size"),
        rate_limit_waits: v.get_int("limits.rate_limit_waits"),
        rate_limit_wait_ms: v.get_ms("limits.rate_limit_wait"),
        quota_wait_ms: v.get_ms("limits.quota_wait"),
        auto_resume: v.get_flag("limits.auto_resume"),
        shared: v.get_flag("limits.shared"),
        quiet_hours: QuietHours::parse(v.get_word("limits.quiet_hours")).ok(),
        breaker: v.get_int("limits.breaker"),
        breaker_wait_ms: v.get_ms("limits.breaker_wait"),
        fallback_after_ms: v.get_ms("limits.fallback_after"),
    }
}

fn build_model_settings(v: &SettingReader<'_>) -> ModelSettings {
    let by_priority = v.get_text_table("models.by_priority").into_iter();
    ModelSettings {
        by_role: v.get_text_table("models.by_role").into_iter().collect(),
        by_priority: by_priority
            .filter_map(|(least, choice)| Some((least.trim().parse().ok()?, choice)))
            .collect(),
    }
}

fn build_model_prices(v: &SettingReader<'_>) -> BTreeMap<String, ModelPrice> {
    let mut prices: BTreeMap<String, ModelPrice> = BTreeMap::new();
    for (path, rest, _) in v.values.table_entries("prices") {
        let Some((model, what)) = rest.rsplit_once('.') else { continue };
        let usd = v.get_number(path).unwrap_or(0.0);
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

fn build_workspace_settings(v: &SettingReader<'_>) -> WorkspaceSettings {
    WorkspaceSettings {
        root: v.get_text("workspace.root"),
        editor: v.get_texts("workspace.editor"),
        unit: match v.get_word("workspace.unit") {
            "epic" => WorkspaceSharing::Epic,
            "phase" => WorkspaceSharing::Phase,
            "none" => WorkspaceSharing::None,
            _ => WorkspaceSharing::Task,
        },
        kind: match v.get_word("workspace.kind") {
            "clone" => WorkspaceKind::Clone,
            _ => WorkspaceKind::Worktree,
        },
        setup: v.get_texts("workspace.setup"),
        include: v.get_texts("workspace.include"),
        keep: match v.get_word("workspace.keep") {
            "failed" => WorkspaceRetention::Failed,
            "always" => WorkspaceRetention::Always,
            _ => WorkspaceRetention::UntilLanded,
        },
    }
}

fn build_land_settings(v: &SettingReader<'_>) -> LandSettings {
    LandSettings {
        mode: match v.get_word("land.mode") {
            "pr" => LandMode::Pr,
            "phase-pr" => LandMode::PhasePr,
            "none" => LandMode::None,
            _ => LandMode::Local,
        },
        branch: v.get_text("land.branch"),
        checkout: match v.get_word("land.checkout") {
            "branch" => CheckoutMode::Branch,
            _ => CheckoutMode::Follow,
        },
        strategy: match v.get_word("land.strategy") {
            "squash" => LandStrategy::Squash,
            "rebase" => LandStrategy::Rebase,
            _ => LandStrategy::Merge,
        },
        // `auto` is no number.
        lanes: v.get_int("land.lanes").max(1),
        groups: v.get_flag("land.groups"),
        on_conflict: match v.get_word("land.on_conflict") {
            "agent" => ConflictAction::Agent,
            "manual" => ConflictAction::Manual,
            "fail" => ConflictAction::Fail,
            _ => ConflictAction::Rework,
        },
        resolver: v.get_text("land.resolver"),
        reuse_resolutions: v.get_flag("land.reuse_resolutions"),
        mergiraf: v.get_flag("land.mergiraf"),
        sign: match v.get_word("land.sign") {
            "off" => LandSigning::Off,
            "required" => LandSigning::Required,
            _ => LandSigning::Auto,
        },
        push: v.get_text("land.push").map(|remote| PublishSettings {
            remote,
            branch: v.get_text("land.push_branch"),
            tries: v.get_int("land.push_tries"),
        }),
        pulls: PullRequestSettings {
            remote: v.get_text("land.remote").unwrap_or_else(|| "origin".to_owned()),
            repository: v.get_text("land.repository"),
            api: v.get_text("land.api"),
            labels: v.get_texts("land.labels"),
            milestone: v.get_text("land.milestone"),
            draft: v.get_flag("land.draft"),
            template: v.get_text("land.template"),
            require_checks: v.get_flag("land.require_checks"),
            approvals: v.get_int("land.approvals"),
            auto_merge: v.get_flag("land.auto_merge"),
            stacked: v.get_flag("land.stacked"),
            delete_branch: v.get_flag("land.delete_branch"),
            poll_ms: v.get_ms("land.poll"),
        },
    }
}

fn build_agent_settings(v: &SettingReader<'_>, name: &str) -> AgentSettings {
    let path = |key: &str| format!("agents.{name}.{key}");
    let mut tiers: BTreeMap<String, String> =
        v.get_text_table(&path("models")).into_iter().collect();
    AgentSettings {
        kind: v.get_word(&path("kind")).to_owned(),
        command: v.get_texts(&path("command")),
        provider: v.get_text(&path("provider")),
        model: v.get_text(&path("model")),
        secrets: v.get_texts(&path("secrets")),
        env: v.get_text_table(&path("env")).into_iter().collect(),
        fallback: v.get_texts(&path("fallback")),
        models: ModelTiers {
            cheap: tiers.remove("cheap"),
            middle: tiers.remove("middle"),
            top: tiers.remove("top"),
        },
        included: v.get_word(&path("billing")) == "included",
        preset: v.get_text(&path("preset")),
        binary: v.get_text(&path("binary")),
        args: v.get_texts(&path("args")),
        effort: v.get_text(&path("effort")),
        system_prompt: v.get_text(&path("system_prompt")),
        allowed_tools: v.get_texts(&path("allowed_tools")),
        max_turns: v.get_int(&path("max_turns")),
        permission: match v.get_word(&path("permission")) {
            "list" => AgentPermission::List,
            _ => AgentPermission::Bypass,
        },
    }
}

/// Typed access by path; what is not set is empty or zero.
struct SettingReader<'v> {
    values: &'v SettingValues,
}

impl SettingReader<'_> {
    fn get_setting(&self, path: &str) -> Option<&SettingValue> {
        self.values.get(path).map(|entry| &entry.setting)
    }

    fn get_word(&self, path: &str) -> &str {
        match self.get_setting(path) {
            Some(SettingValue::Text(word)) => word,
            _ => "",
        }
    }

    /// Empty text takes back what a lower layer set.
    fn get_text(&self, path: &str) -> Option<String> {
        Some(self.get_word(path)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn get_texts(&self, path: &str) -> Vec<String> {
        match self.get_setting(path) {
            Some(SettingValue::Texts(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    fn get_flag(&self, path: &str) -> bool {
        self.get_setting(path) == Some(&SettingValue::Bool(true))
    }

    fn get_int(&self, path: &str) -> u32 {
        match self.get_setting(path) {
            Some(SettingValue::Int(number)) => u32::try_from(*number).unwrap_or(0),
            _ => 0,
        }
    }

    fn get_number(&self, path: &str) -> Option<f64> {
        match self.get_setting(path) {
            Some(SettingValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn get_ms(&self, path: &str) -> u64 {
        match self.get_setting(path) {
            Some(SettingValue::Ms(ms)) => *ms,
            _ => 0,
        }
    }

    fn get_bytes(&self, path: &str) -> u64 {
        match self.get_setting(path) {
            Some(SettingValue::Bytes(bytes)) => *bytes,
            _ => 0,
        }
    }

    /// A table of texts.
    fn get_text_table(&self, path: &str) -> Vec<(String, String)> {
        let text = |setting: &SettingValue| match setting {
            SettingValue::Text(text) => text.clone(),
            other => other.to_string(),
        };
        let entries = self.values.table_entries(path);
        entries.map(|(_, name, entry)| (name.to_owned(), text(&entry.setting))).collect()
    }

    fn get_count_table(&self, path: &str) -> BTreeMap<String, u32> {
        let entries = self.values.table_entries(path);
        entries.map(|(path, name, _)| (name.to_owned(), self.get_int(path))).collect()
    }
}
