//! Which model works on a task, and why. A pure rule, so that a choice can be checked afterwards:
//! what the task names, then what the settings say of its role or priority, then how complex it reads,
//! what its models have achieved so far, and how much money is left.

use crate::config::{AgentSettings, ModelSettings, ModelTiers};
use crate::plan::{Task, TaskEffort};

/// A choice and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// The model; none leaves it to the agent.
    pub model: Option<String>,
    /// In words; empty if nothing was chosen.
    pub reason: String,
}

/// What a model has achieved.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelRecord {
    /// Attempts that ended on the merits.
    pub ended: u32,
    /// Attempts whose work landed.
    pub good: u32,
    /// What they cost together.
    pub usd: f64,
}

/// Everything a choice may depend on.
#[derive(Clone, Copy)]
pub struct ModelChoiceContext<'a> {
    pub task: &'a Task,
    pub agent: &'a AgentSettings,
    /// The task names a model of another agent than the one that works.
    pub stands_in: bool,
    pub models: &'a ModelSettings,
    /// What a model has achieved.
    pub record: &'a dyn Fn(&str) -> ModelRecord,
    /// The model whose attempt at this very task failed on the merits last.
    pub failed_with: Option<&'a str>,
    /// Money left of all there was, in percent, and in dollars.
    pub money_left: Option<(f64, f64)>,
}

/// Attempts before a record says something.
const RECORD_MIN: u32 = 4;
/// A cheap model must have gone well this often.
const CHEAP_SUCCESS_MIN: f64 = 0.85;
/// Below this much of the budget, in percent, only cheap ones work.
const SHORT_OF_MONEY_PERCENT: f64 = 10.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ModelTier {
    Cheap,
    Middle,
    Top,
}

impl ModelTier {
    fn name(self) -> &'static str {
        match self {
            Self::Cheap => "cheap",
            Self::Middle => "middle",
            Self::Top => "top",
        }
    }
    fn from_name(word: &str) -> Option<Self> {
        [Self::Cheap, Self::Middle, Self::Top].into_iter().find(|tier| tier.name() == word)
    }
    fn next_stronger(self) -> Self {
        match self {
            Self::Cheap => Self::Middle,
            Self::Middle | Self::Top => Self::Top,
        }
    }
    fn next_cheaper(self) -> Option<Self> {
        match self {
            Self::Cheap => None,
            Self::Middle => Some(Self::Cheap),
            Self::Top => Some(Self::Middle),
        }
    }
}

impl ModelTiers {
    fn has_any(&self) -> bool {
        self.cheap.is_some() || self.middle.is_some() || self.top.is_some()
    }
    /// The tier's model, or the nearest there is: rather a stronger one than a weaker.
    fn model_for_tier(&self, tier: ModelTier) -> Option<&String> {
        let (cheap, middle, top) = (self.cheap.as_ref(), self.middle.as_ref(), self.top.as_ref());
        match tier {
            ModelTier::Cheap => cheap.or(middle).or(top),
            ModelTier::Middle => middle.or(top).or(cheap),
            ModelTier::Top => top.or(middle).or(cheap),
        }
    }
    fn tier_of(&self, model: &str) -> Option<ModelTier> {
        [
            (ModelTier::Cheap, &self.cheap),
            (ModelTier::Middle, &self.middle),
            (ModelTier::Top, &self.top),
        ]
        .into_iter()
        .find_map(|(tier, name)| (name.as_deref() == Some(model)).then_some(tier))
    }
}

/// Chooses. Nothing is chosen unless the task, the settings or the agent's tiers give a choice.
pub fn choose_model(situation: &ModelChoiceContext<'_>) -> ModelChoice {
    let ModelChoiceContext { task, agent, models, .. } = *situation;
    if let Some(model) = task.model.as_ref().filter(|_| !situation.stands_in) {
        return ModelChoice { model: Some(model.clone()), reason: "set in the task".to_owned() };
    }
    let tiers = &agent.models;
    let of = |choice: &str, why: String| {
        let model = match ModelTier::from_name(choice) {
            Some(tier) => tiers.model_for_tier(tier)?.clone(),
            None => choice.to_owned(),
        };
        Some(ModelChoice { model: Some(model), reason: why })
    };
    let role = task.role.as_ref().and_then(|role| Some((role, models.by_role.get(role)?)));
    let by_role = role.and_then(|(role, choice)| of(choice, format!("models.by_role.{role}")));
    let priority = models.by_priority.range(..=task.priority).next_back();
    let by_priority =
        || priority.and_then(|(least, choice)| of(choice, format!("models.by_priority.{least}")));
    if let Some(choice) = by_role.or_else(by_priority) {
        return choice;
    }
    if !tiers.has_any() {
        let reason = if agent.model.is_some() { "the agent's model" } else { "" };
        return ModelChoice { model: agent.model.clone(), reason: reason.to_owned() };
    }
    choose_by_policy(situation)
}

fn choose_by_policy(situation: &ModelChoiceContext<'_>) -> ModelChoice {
    let tiers = &situation.agent.models;
    let complexity = estimate_complexity(situation.task);
    let mut tier = match complexity {
        below if below < 2.0 => ModelTier::Cheap,
        below if below < 4.0 => ModelTier::Middle,
        _ => ModelTier::Top,
    };
    let mut why = vec![format!("complexity {complexity:.2}: {}", tier.name())];
    if is_critical_task(situation.task) && tier != ModelTier::Top {
        tier = ModelTier::Top;
        why.push("critical: top".to_owned());
    }
    if let Some(failed) = situation.failed_with.and_then(|model| tiers.tier_of(model))
        && tier <= failed
        && failed != ModelTier::Top
    {
        tier = failed.next_stronger();
        why.push(format!("{} failed: {}", failed.name(), tier.name()));
    }
    if tier == ModelTier::Cheap
        && let Some(cheap) = &tiers.cheap
    {
        let record = (situation.record)(cheap);
        let rate = f64::from(record.good) / f64::from(record.ended.max(1));
        if record.ended >= RECORD_MIN && rate < CHEAP_SUCCESS_MIN {
            tier = ModelTier::Middle;
            why.push(format!("cheap succeeded {:.0}% of the time: middle", rate * 100.0));
        }
    }
    if let Some((percent, usd)) = situation.money_left {
        if percent < SHORT_OF_MONEY_PERCENT && tier != ModelTier::Cheap {
            tier = ModelTier::Cheap;
            why.push(format!("{percent:.0}% of the budget left: cheap"));
        }
        while let Some(lower) = tier.next_cheaper()
            && let Some(expected) = expected_usd(situation, tier)
            && expected > usd
        {
            tier = lower;
            why.push(format!("${expected:.2} expected, ${usd:.2} left: {}", tier.name()));
        }
    }
    ModelChoice { model: tiers.model_for_tier(tier).cloned(), reason: why.join("; ") }
}

fn expected_usd(situation: &ModelChoiceContext<'_>, tier: ModelTier) -> Option<f64> {
    let record = (situation.record)(situation.agent.models.model_for_tier(tier)?);
    (record.ended > 0).then(|| record.usd / f64::from(record.ended))
}

/// How complex a task reads, from 1 to 5: four aspects, each by how many of its words occur.
pub fn estimate_complexity(task: &Task) -> f64 {
    let text = format!("{} {} {}", task.title, task.description, task.acceptance.join(" "));
    let text = text.to_lowercase();
    let words: std::collections::BTreeSet<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2).collect();
    let score = |of: &[&str]| {
        let hits = of.iter().filter(|stem| words.iter().any(|word| word.starts_with(**stem)));
        match hits.count() {
            0 => 1.0,
            1 | 2 => 2.0,
            3 | 4 => 3.0,
            5 | 6 => 4.0,
            _ => 5.0,
        }
    };
    let size: f64 = match task.effort {
        TaskEffort::Small => 1.0,
        TaskEffort::Medium => 2.0,
        TaskEffort::Large => 4.0,
    };
    let context = size.max(score(CONTEXT));
    0.35 * score(REASONING) + 0.25 * score(CODE) + 0.25 * score(DOMAIN) + 0.15 * context
}

fn is_critical_task(task: &Task) -> bool {
    let text = format!("{} {}", task.title, task.description).to_lowercase();
    text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "critical")
}

const REASONING: &[&str] = &[
    "algorithm",
    "analy",
    "architect",
    "concurren",
    "consisten",
    "debug",
    "deadlock",
    "design",
    "diagnos",
    "invariant",
    "investigat",
    "optimi",
    "proof",
    "prove",
    "race",
    "reason",
    "recover",
    "schedul",
    "tradeoff",
];
const CODE: &[&str] = &[
    "async",
    "compil",
    "generic",
    "implement",
    "interface",
    "lock",
    "macro",
    "migrat",
    "parallel",
    "parser",
    "protocol",
    "refactor",
    "rewrit",
    "thread",
    "transaction",
    "unsafe",
];
const DOMAIN: &[&str] = &[
    "authent",
    "authori",
    "billing",
    "crypto",
    "database",
    "distribut",
    "encrypt",
    "kernel",
    "network",
    "payment",
    "permission",
    "privacy",
    "sandbox",
    "secur",
    "schema",
];
const CONTEXT: &[&str] = &[
    "across",
    "all",
    "backward",
    "compatib",
    "cross",
    "dependenc",
    "end",
    "entire",
    "every",
    "integrat",
    "legacy",
    "module",
    "multiple",
    "whole",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers() -> ModelTiers {
        let some = |text: &str| Some(text.to_owned());
        ModelTiers { cheap: some("c"), middle: some("m"), top: some("t") }
    }

    struct Case {
        task: Task,
        agent: AgentSettings,
        models: ModelSettings,
        record: ModelRecord,
        failed_with: Option<&'static str>,
        money_left: Option<(f64, f64)>,
        stands_in: bool,
    }

    fn simple() -> Case {
        Case {
            task: Task {
                title: "Fix a typo".to_owned(),
                effort: TaskEffort::Small,
                ..Task::empty()
            },
            agent: AgentSettings { models: tiers(), ..AgentSettings::default() },
            models: ModelSettings::default(),
            record: ModelRecord::default(),
            failed_with: None,
            money_left: None,
            stands_in: false,
        }
    }

    fn chosen(case: &Case) -> (Option<String>, String) {
        let record = |_: &str| case.record;
        let choice = choose_model(&ModelChoiceContext {
            task: &case.task,
            agent: &case.agent,
            stands_in: case.stands_in,
            models: &case.models,
            record: &record,
            failed_with: case.failed_with,
            money_left: case.money_left,
        });
        (choice.model, choice.reason)
    }

    fn model(case: &Case) -> String {
        let (model, reason) = chosen(case);
        assert!(!reason.is_empty());
        model.unwrap_or_default()
    }

    #[test]
    fn what_the_task_names_wins_then_the_role_then_the_priority() {
        let mut case = simple();
        case.task.role = Some("coder".to_owned());
        case.task.priority = 7;
        case.models.by_priority.insert(5, "top".to_owned());
        case.models.by_priority.insert(9, "cheap".to_owned());
        assert_eq!(model(&case), "t");
        case.models.by_role.insert("coder".to_owned(), "own-model".to_owned());
        assert_eq!(model(&case), "own-model");
        case.task.model = Some("named".to_owned());
        assert_eq!(model(&case), "named");
        case.stands_in = true;
        assert_eq!(model(&case), "own-model", "another agent does not know the task's model");
    }

    #[test]
    fn without_tiers_nothing_is_chosen_but_what_the_agent_has() {
        let mut case = simple();
        case.agent.models = ModelTiers::default();
        assert_eq!(chosen(&case), (None, String::new()));
        case.agent.model = Some("usual".to_owned());
        assert_eq!(model(&case), "usual");
        case.task.role = Some("coder".to_owned());
        case.models.by_role.insert("coder".to_owned(), "top".to_owned());
        assert_eq!(model(&case), "usual", "there is no such tier here");
    }

    #[test]
    fn complexity_chooses_the_tier_and_a_record_can_raise_it() {
        let mut case = simple();
        assert_eq!(model(&case), "c");
        case.record = ModelRecord { ended: 4, good: 3, usd: 0.0 };
        assert_eq!(model(&case), "m", "a cheap model that goes wrong is not cheap");
        case.record = ModelRecord { ended: 3, good: 0, usd: 0.0 };
        assert_eq!(model(&case), "c", "too few to say");
        case.record = ModelRecord::default();
        case.failed_with = Some("c");
        assert_eq!(model(&case), "m");
        case.failed_with = Some("m");
        assert_eq!(model(&case), "t");
        case.failed_with = Some("t");
        assert_eq!(model(&case), "c", "no tier is left to go up to");
        case.failed_with = None;
        "Critical: mend the typo".clone_into(&mut case.task.title);
        assert_eq!(model(&case), "t");
    }

    #[test]
    fn hard_texts_are_complex_and_plain_ones_are_not() {
        let mut task = Task::empty();
        task.effort = TaskEffort::Small;
        "Rename a variable".clone_into(&mut task.title);
        assert!(estimate_complexity(&task) < 2.0);
        task.description = "Design a concurrent scheduling algorithm, prove the invariant, analyse races and \
            deadlocks, optimise recovery; implement the async protocol parser with transactions and locks \
            across all modules; encrypt the distributed database schema, authenticate payments, permissions, \
            secure network sandbox; refactor generic macros in parallel threads"
            .to_owned();
        task.effort = TaskEffort::Large;
        assert!(estimate_complexity(&task) >= 4.0, "{}", estimate_complexity(&task));
        task.description.truncate(60);
        assert!((2.0..4.0).contains(&estimate_complexity(&task)), "{}", estimate_complexity(&task));
    }

    #[test]
    fn money_that_runs_out_chooses_cheaper_ones() {
        let mut case = simple();
        "Critical".clone_into(&mut case.task.title);
        case.money_left = Some((50.0, 100.0));
        assert_eq!(model(&case), "t");
        case.money_left = Some((9.0, 100.0));
        assert_eq!(model(&case), "c");
        case.record = ModelRecord { ended: 2, good: 2, usd: 10.0 };
        case.money_left = Some((50.0, 4.0));
        assert_eq!(model(&case), "c", "five dollars expected of each, four left");
    }

    #[test]
    fn a_missing_tier_is_stood_in_for_by_the_nearest() {
        let mut case = simple();
        case.agent.models.cheap = None;
        assert_eq!(model(&case), "m");
        case.agent.models.middle = None;
        assert_eq!(model(&case), "t");
    }
}
