//! Settings and plans, by default and at random.

use std::collections::BTreeMap;

use mainstem_core::config::{
    AgentSettings, BudgetSettings, ConflictAction, DependencySatisfaction, GateSettings, LandMode,
    LandSettings, LandSigning, LandStrategy, LimitSettings, LoopingAction, ModelPrice,
    ModelSettings, ModelTiers, RunFailureAction, RunSettings, SandboxKind, SandboxNetwork,
    SandboxSettings, SandboxSockets, SandboxTmp, ScheduleBarrier, ScheduleSettings, Settings,
    WorkspaceKind, WorkspaceRetention, WorkspaceSettings, WorkspaceSharing,
};
use mainstem_core::graph::Graph;
use mainstem_core::id::{EpicId, TaskId};
use mainstem_core::plan::{Epic, Plan, Task, TaskEffort, TaskFailureAction};
use mainstem_core::quiet_hours::QuietHours;
use mainstem_core::review::{ReviewFinding, Severity};

use crate::rng::Rng;

/// Settings that hold nothing back but one job more than the machine has cores.
pub fn settings() -> Settings {
    Settings {
        run: RunSettings {
            agent: Some("ann".to_owned()),
            jobs: 3,
            on_failure: RunFailureAction::Continue,
            retries: 1,
            timeout_ms: 0,
            idle_timeout_ms: 0,
            grace_ms: 0,
            preflight: true,
            stall_restarts: 0,
            on_looping: LoopingAction::Ask,
            start_over: Vec::new(),
        },
        limits: LimitSettings {
            per_provider: BTreeMap::new(),
            per_agent: BTreeMap::new(),
            per_role: BTreeMap::new(),
            verify: 0,
            memory_per_agent: 0,
            disk_floor: 0,
            load_ceiling: 0.0,
            memory_floor: 0,
            pressure_ceiling: 0.0,
            output_bytes: 0,
            file_bytes: 0,
            rate_limit_waits: 3,
            rate_limit_wait_ms: 1_000,
            quota_wait_ms: 4_000,
            auto_resume: true,
            shared: false,
            quiet_hours: None,
            breaker: 0,
            breaker_wait_ms: 1_000,
            fallback_after_ms: 0,
        },
        workspace: WorkspaceSettings {
            root: None,
            editor: Vec::new(),
            unit: WorkspaceSharing::Task,
            kind: WorkspaceKind::Worktree,
            setup: Vec::new(),
            include: Vec::new(),
            keep: WorkspaceRetention::UntilLanded,
        },
        schedule: ScheduleSettings {
            barrier: ScheduleBarrier::None,
            satisfied_by: DependencySatisfaction::Landed,
        },
        gates: GateSettings {
            verify: vec!["test".to_owned()],
            timeout_ms: 0,
            retries: 0,
            need_tests: true,
            approvals: Vec::new(),
            review: false,
            wait: mainstem_core::config::GateWaitMode::Auto,
            guard: Vec::new(),
            caches: Vec::new(),
            recheck: 0,
        },
        review: mainstem_core::config::ReviewSettings::default(),
        land: LandSettings {
            mode: LandMode::Local,
            branch: None,
            checkout: mainstem_core::config::CheckoutMode::Follow,
            strategy: LandStrategy::Merge,
            lanes: 1,
            groups: false,
            on_conflict: ConflictAction::Rework,
            resolver: None,
            reuse_resolutions: true,
            mergiraf: true,
            sign: LandSigning::Off,
            push: None,
            pulls: mainstem_core::config::PullRequestSettings::default(),
        },
        budget: BudgetSettings { usd: None, hard: false, per_attempt_usd: 0.0, per_task_usd: None },
        models: ModelSettings::default(),
        prices: BTreeMap::new(),
        agents: ["ann", "bob", "cid"]
            .into_iter()
            .map(|name| (name.to_owned(), agent(name)))
            .collect(),
        sandbox: SandboxSettings {
            kind: SandboxKind::Off,
            write: Vec::new(),
            write_defaults: true,
            read: Vec::new(),
            hide: Vec::new(),
            tmp: SandboxTmp::Auto,
            network: SandboxNetwork::Open,
            sockets: SandboxSockets::Auto,
            processes: 0,
            file_bytes: 0,
        },
        secrets_allow: Vec::new(),
        snapshot_every_ms: 0,
        prompt: mainstem_core::config::PromptSettings { template: None, tokens: 64_000 },
        questions: mainstem_core::config::QuestionSettings::default(),
        lessons: mainstem_core::config::LessonSettings { learn: true, folder: None },
        snapshot_keep_ms: 0,
    }
}

/// `bob` and `cid` share a provider.
fn agent(name: &str) -> AgentSettings {
    AgentSettings {
        kind: "command".to_owned(),
        provider: (name != "ann").then(|| "shared".to_owned()),
        ..AgentSettings::default()
    }
}

/// A task that says nothing but its id and what it needs.
pub fn task(id: &str, needs: &[&str]) -> Task {
    let needs = needs.iter().map(|id| TaskId::new(*id)).collect();
    Task { id: TaskId::new(id), needs, ..Task::empty() }
}

/// A plan of these tasks.
pub fn plan(tasks: Vec<Task>) -> Plan {
    Plan { title: String::new(), epics: Vec::new(), tasks }
}

/// Settings as people might have them.
pub fn random_settings(rng: &mut Rng) -> Settings {
    let mut s = settings();
    s.run.jobs = 1 + u32::try_from(rng.below(6)).unwrap_or(0);
    s.run.retries = u32::try_from(rng.below(3)).unwrap_or(0);
    use RunFailureAction as F;
    s.run.on_failure = *rng.pick(&[F::Continue, F::Continue, F::Continue, F::Drain, F::Abort]);
    if rng.in_thousand(300) {
        s.limits
            .per_provider
            .insert("shared".to_owned(), 1 + u32::try_from(rng.below(2)).unwrap_or(0));
    }
    if rng.in_thousand(300) {
        s.limits.per_agent.insert("ann".to_owned(), 1 + u32::try_from(rng.below(2)).unwrap_or(0));
    }
    if rng.in_thousand(300) {
        s.limits.per_role.insert("coder".to_owned(), 1);
    }
    s.limits.verify = u32::try_from(rng.below(3)).unwrap_or(0);
    s.workspace.unit = *rng.pick(&[
        WorkspaceSharing::Task,
        WorkspaceSharing::Task,
        WorkspaceSharing::Epic,
        WorkspaceSharing::Phase,
        WorkspaceSharing::None,
    ]);
    s.workspace.keep = *rng.pick(&[
        WorkspaceRetention::UntilLanded,
        WorkspaceRetention::UntilLanded,
        WorkspaceRetention::Failed,
        WorkspaceRetention::Always,
    ]);
    use ScheduleBarrier as B;
    s.schedule.barrier = *rng.pick(&[B::None, B::None, B::None, B::Level, B::Epic, B::Phase]);
    let gates = rng.below(3);
    s.gates.verify = ["test", "lint"].into_iter().take(gates).map(str::to_owned).collect();
    s.land.lanes = *rng.pick(&[1, 1, 2, 3, 4]);
    s.land.groups = rng.in_thousand(500);
    s.gates.caches = vec!["target".to_owned()];
    s.gates.recheck = *rng.pick(&[0, 1, 2, 5]);
    s.land.push = rng.in_thousand(300).then(|| mainstem_core::config::PublishSettings {
        remote: "origin".to_owned(),
        branch: None,
        tries: *rng.pick(&[1, 3, 8]),
    });
    use ConflictAction as C;
    s.land.on_conflict = *rng.pick(&[C::Rework, C::Agent, C::Manual, C::Manual, C::Fail]);
    if rng.in_thousand(150) {
        s.budget.usd = Some(1.0 + f64::from(u32::try_from(rng.below(40)).unwrap_or(0)));
        s.budget.hard = rng.in_thousand(700);
        s.budget.per_attempt_usd = *rng.pick(&[0.0, 0.5, 1.0]);
    }
    if rng.in_thousand(300) {
        s.snapshot_every_ms = 1_000;
    }
    random_coordination(rng, &mut s);
    random_others(rng, &mut s);
    s
}

/// What providers, models and money may be set to.
fn random_coordination(rng: &mut Rng, s: &mut Settings) {
    s.run.stall_restarts = u32::try_from(rng.below(3)).unwrap_or(0);
    if rng.in_thousand(200) {
        use mainstem_core::fact::FailureClass as K;
        s.run.start_over = rng
            .pick(&[&[K::AgentFailed][..], &[K::Conflicted, K::GateFailed], &[K::Killed]])
            .to_vec();
    }
    s.run.on_looping = *rng.pick(&[LoopingAction::Ask, LoopingAction::Fail]);
    s.limits.auto_resume = rng.in_thousand(700);
    s.limits.breaker = *rng.pick(&[0, 1, 2, 3]);
    s.limits.fallback_after_ms = *rng.pick(&[0, 500, 3_000]);
    if rng.in_thousand(100) {
        s.limits.quiet_hours = QuietHours::parse("00:00-00:01").ok();
    }
    if rng.in_thousand(200) {
        s.budget.per_task_usd = Some(2.0);
    }
    if rng.in_thousand(400) {
        s.agents.get_mut("ann").unwrap().fallback = vec!["bob".to_owned(), "cid".to_owned()];
    }
    if rng.in_thousand(400) {
        s.agents.get_mut("bob").unwrap().fallback = vec!["ann".to_owned()];
    }
    s.agents.get_mut("cid").unwrap().included = rng.in_thousand(300);
    if rng.in_thousand(300) {
        let some = |text: &str| Some(text.to_owned());
        s.agents.get_mut("ann").unwrap().models =
            ModelTiers { cheap: some("cheap"), middle: some("middle"), top: some("top") };
        s.models.by_role.insert("writer".to_owned(), "top".to_owned());
    }
    if rng.in_thousand(300) {
        // A quarter of a dollar per token: exact in binary.
        let price = ModelPrice { input: 250_000.0, ..ModelPrice::default() };
        s.prices.insert("priced".to_owned(), price);
    }
}

/// Who else has a say.
fn random_others(rng: &mut Rng, s: &mut Settings) {
    if rng.in_thousand(300) {
        let count = 1 + rng.below(3);
        s.review.agents =
            ["ann", "bob", "cid"].into_iter().take(count).map(str::to_owned).collect();
        s.review.concurrency = *rng.pick(&[1, 2]);
        s.review.max_cycles = *rng.pick(&[0, 1, 3]);
        use mainstem_core::config::StuckReviewAction;
        s.review.on_stuck = *rng.pick(&[StuckReviewAction::Fail, StuckReviewAction::Ask]);
    }
    if rng.in_thousand(200) {
        s.gates.approvals =
            vec![(*rng.pick(&["@approval", "@approval within 2s look"])).to_owned()];
    }
}

/// A task as people might write it; needs only earlier ones, so there is no cycle.
pub fn random_task(rng: &mut Rng, id: String, earlier: &[TaskId]) -> Task {
    let mut task = Task { id: TaskId::new(id), ..Task::empty() };
    for edge in 0..rng.below(4) {
        if earlier.is_empty() || rng.in_thousand(300) {
            break;
        }
        // Mostly near ones: chains are where blocking goes wrong.
        let reach = if rng.in_thousand(700) { earlier.len().min(4) } else { earlier.len() };
        let id = earlier[earlier.len() - 1 - rng.below(reach)].clone();
        if task.needs.contains(&id) || task.after.contains(&id) {
            continue;
        }
        if edge == 2 || rng.in_thousand(150) { task.after.push(id) } else { task.needs.push(id) }
    }
    task.priority = *rng.pick(&[0, 0, 0, 1, 5, -1]);
    task.effort = *rng.pick(&[TaskEffort::Small, TaskEffort::Medium, TaskEffort::Large]);
    use TaskFailureAction as F;
    task.on_failure = *rng.pick(&[F::Block, F::Block, F::Block, F::Continue, F::Skip]);
    task.agent = rng.pick(&[None, Some("ann"), Some("bob"), Some("cid")]).map(str::to_owned);
    task.role = rng.pick(&[None, None, Some("coder"), Some("writer")]).map(str::to_owned);
    task.phase = rng.pick(&[None, Some("one"), Some("two")]).map(str::to_owned);
    task.retries = *rng.pick(&[None, None, Some(0), Some(2)]);
    if rng.in_thousand(350) {
        task.writes =
            vec![(*rng.pick(&["src/**", "src/a.rs", "docs/*", "b/**", "c.txt"])).to_owned()];
    }
    if rng.in_thousand(400) {
        task.verify = vec!["unit".to_owned()];
    }
    if rng.in_thousand(100) {
        task.verify.push((*rng.pick(&["@review", "@approval", "@approval within 1s"])).to_owned());
    }
    task
}

/// A plan as people might write it.
pub fn random_plan(rng: &mut Rng) -> Plan {
    let count = match rng.below(10) {
        0..6 => 1 + rng.below(6),
        6..9 => 4 + rng.below(10),
        _ => 10 + rng.below(31),
    };
    let mut plan = Plan::default();
    let mut ids = Vec::new();
    for n in 0..count {
        let task = random_task(rng, format!("T{n}"), &ids);
        ids.push(task.id.clone());
        plan.tasks.push(task);
    }
    if rng.in_thousand(350) {
        let epic = |id: &str, needs: &[&str]| Epic {
            id: EpicId::new(id),
            title: String::new(),
            needs: needs.iter().map(|id| EpicId::new(*id)).collect(),
        };
        plan.epics =
            vec![epic("E1", &[]), epic("E2", if rng.in_thousand(500) { &["E1"] } else { &[] })];
        for (n, task) in plan.tasks.iter_mut().enumerate() {
            let name = if n * 2 < count { "E1" } else { "E2" };
            task.epic = rng.in_thousand(700).then(|| EpicId::new(name));
        }
    }
    if Graph::new(&plan).is_err() {
        plan.epics.iter_mut().for_each(|epic| epic.needs.clear());
    }
    plan
}

/// The same plan some days later: texts and priorities changed, tasks added, `free` ones dropped.
pub fn revised(rng: &mut Rng, old: &Plan, free: &[TaskId], fresh: u64) -> Plan {
    let mut plan = old.clone();
    plan.title = format!("revision {fresh}");
    let dropped: Vec<TaskId> = free.iter().filter(|_| rng.in_thousand(300)).cloned().collect();
    plan.tasks.retain(|task| !dropped.contains(&task.id));
    for task in &mut plan.tasks {
        task.needs.retain(|id| !dropped.contains(id));
        task.after.retain(|id| !dropped.contains(id));
        if rng.in_thousand(200) {
            task.priority = *rng.pick(&[0, 3]);
            task.description = format!("new text {fresh}");
        }
        if rng.in_thousand(100) {
            task.needs.pop();
        }
    }
    let ids: Vec<TaskId> = plan.tasks.iter().map(|task| task.id.clone()).collect();
    if rng.in_thousand(600) || ids.is_empty() {
        let at = rng.below(ids.len() + 1);
        let task = random_task(rng, format!("N{fresh}"), &ids[..at]);
        // Not always at the end: tasks change their places.
        plan.tasks.insert(at, task);
    }
    if Graph::new(&plan).is_err() { old.clone() } else { plan }
}

/// What a reviewer of the simulations finds.
pub fn finding() -> ReviewFinding {
    ReviewFinding {
        severity: Severity::High,
        category: "bug".to_owned(),
        file: "a.rs".to_owned(),
        line: 1,
        description: "wrong".to_owned(),
        suggestion: String::new(),
        agents: Vec::new(),
    }
}
