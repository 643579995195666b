//! What a plan may take: time and money, by what tasks of the same effort took before, or by a rule of thumb
//! where nothing was done yet. Knows nothing of where the past comes from.

use mainstem_core::graph::Graph;
use mainstem_core::plan::{Plan, TaskEffort};

/// Minutes of an agent for a task of each effort, where nothing better is known.
const MINUTES: [u64; 3] = [8, 20, 45];

/// What tasks of each effort took: small, medium, large.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EffortHistory {
    sums: [EffortTotals; 3],
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct EffortTotals {
    tasks: u32,
    ms: u64,
    usd: f64,
}

impl EffortHistory {
    /// One more task that was done.
    pub fn add_task(&mut self, effort: TaskEffort, ms: u64, usd: f64) {
        let sum = &mut self.sums[effort_index(effort)];
        (sum.tasks, sum.ms, sum.usd) = (sum.tasks + 1, sum.ms + ms, sum.usd + usd);
    }

    /// Tasks that it knows of.
    pub fn task_count(&self) -> u32 {
        self.sums.iter().map(|sum| sum.tasks).sum()
    }

    /// Milliseconds of a task: those of its effort, else those of others in proportion, else the rule.
    fn expected_ms(&self, effort: TaskEffort) -> u64 {
        let at = effort_index(effort);
        let rule = MINUTES[at] * 60_000;
        let sum = self.sums[at];
        if sum.tasks > 0 {
            return sum.ms / u64::from(sum.tasks);
        }
        let by_rule: u64 =
            self.sums.iter().zip(MINUTES).map(|(sum, m)| u64::from(sum.tasks) * m * 60_000).sum();
        let really: u64 = self.sums.iter().map(|sum| sum.ms).sum();
        if by_rule == 0 { rule } else { (rule as f64 * really as f64 / by_rule as f64) as u64 }
    }

    /// Money of a task; none if nothing was ever paid.
    fn expected_usd(&self, effort: TaskEffort) -> Option<f64> {
        let sum = self.sums[effort_index(effort)];
        if sum.tasks > 0 && sum.usd > 0.0 {
            return Some(sum.usd / f64::from(sum.tasks));
        }
        let paid: f64 = self.sums.iter().map(|sum| sum.usd).sum();
        let minutes: f64 =
            self.sums.iter().zip(MINUTES).map(|(sum, m)| f64::from(sum.tasks) * m as f64).sum();
        (paid > 0.0).then(|| paid / minutes * MINUTES[effort_index(effort)] as f64)
    }
}

fn effort_index(effort: TaskEffort) -> usize {
    match effort {
        TaskEffort::Small => 0,
        TaskEffort::Medium => 1,
        TaskEffort::Large => 2,
    }
}

/// What a plan may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanEstimate {
    pub work_ms: u64,
    /// The longest way through the graph.
    pub path_ms: u64,
    /// With so many at once, at the least.
    pub least_ms: u64,
    /// Money, if anything is known of it.
    pub usd: Option<f64>,
    /// Tasks that it is based on; none makes it a rule of thumb.
    pub based_on: u32,
}

/// What a plan may take with so many agents at once.
pub fn estimate_plan(plan: &Plan, graph: &Graph, jobs: u32, past: &EffortHistory) -> PlanEstimate {
    let ms = |task: &mainstem_core::plan::Task| past.expected_ms(task.effort);
    let work_ms: u64 = plan.tasks.iter().map(ms).sum();
    let tails = graph.longest_tails(|t| ms(&plan.tasks[t.index()]));
    let path_ms = tails.into_iter().max().unwrap_or(0);
    let usd = plan.tasks.iter().map(|task| past.expected_usd(task.effort)).sum::<Option<f64>>();
    PlanEstimate {
        work_ms,
        path_ms,
        least_ms: path_ms.max(work_ms / u64::from(jobs.max(1))),
        usd: usd.filter(|_| !plan.tasks.is_empty()),
        based_on: past.task_count(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use mainstem_core::id::TaskId;
    use mainstem_core::plan::Task;

    use super::*;

    fn plan() -> (Plan, Graph) {
        let task = |id: &str, effort, needs: &[&str]| Task {
            id: TaskId::new(id),
            effort,
            needs: needs.iter().map(|id| TaskId::new(*id)).collect(),
            ..Task::empty()
        };
        let tasks = vec![
            task("A", TaskEffort::Small, &[]),
            task("B", TaskEffort::Large, &["A"]),
            task("C", TaskEffort::Small, &[]),
        ];
        let plan = Plan { title: String::new(), epics: Vec::new(), tasks };
        let graph = Graph::new(&plan).unwrap();
        (plan, graph)
    }

    #[test]
    fn without_a_past_it_is_a_rule_of_thumb_and_money_is_unknown() {
        let (plan, graph) = plan();
        let estimate = estimate_plan(&plan, &graph, 2, &EffortHistory::default());
        assert_eq!((estimate.work_ms, estimate.path_ms), (61 * 60_000, 53 * 60_000));
        assert_eq!((estimate.least_ms, estimate.usd, estimate.based_on), (53 * 60_000, None, 0));
    }

    #[test]
    fn the_past_counts_by_effort_and_in_proportion_where_it_says_nothing() {
        let (plan, graph) = plan();
        let mut past = EffortHistory::default();
        past.add_task(TaskEffort::Small, 60_000, 0.1);
        past.add_task(TaskEffort::Small, 180_000, 0.3);
        let estimate = estimate_plan(&plan, &graph, 1, &past);
        // Small ones take two minutes; a large one as much longer as the rule says.
        let large = 120_000 * 45 / 8;
        assert_eq!(estimate.work_ms, 240_000 + large);
        assert_eq!(estimate.least_ms, estimate.work_ms);
        let usd = estimate.usd.unwrap();
        assert!((usd - (0.4 + 0.2 * 45.0 / 8.0)).abs() < 1e-9, "{usd}");
        assert_eq!(estimate.based_on, 2);
    }
}
