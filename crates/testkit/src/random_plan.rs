//! Random plans with a model that knows how fast they could be done at best.

use std::fmt::Write as _;
use std::path::PathBuf;

/// A small generator of random numbers (xorshift): the same seed, the same plan, on every machine.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// From any seed; zero is as good as others.
    pub fn new(seed: u64) -> Self {
        // Spread, so that neighbouring seeds do not start alike; xorshift stays at zero for ever.
        let spread = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((spread ^ (spread >> 31)).max(1))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which must not be zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

/// What the tasks of a random plan do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RandomTaskBody {
    /// Steps for the built-in script agent: sleep, write a file of its own, commit.
    Script,
    /// A shell command that does the same and logs `start TASK MS` and `end TASK MS`.
    Shell {
        /// The log, for [`crate::max_concurrent`].
        log: PathBuf,
    },
}

/// What a random plan looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomPlanShape {
    /// Same seed, same plan.
    pub seed: u64,
    pub tasks: usize,
    /// Probability of an edge between two tasks, from 0 to 1.
    pub edge_density: f64,
    /// Length of a typical task; a few are many times longer.
    pub typical_ms: u64,
    /// What the tasks do.
    pub body: RandomTaskBody,
}

impl RandomPlanShape {
    /// Short scripted tasks with few edges.
    pub fn small(seed: u64) -> Self {
        Self { seed, tasks: 12, edge_density: 0.15, typical_ms: 50, body: RandomTaskBody::Script }
    }
}

/// One task of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanModelTask {
    pub id: String,
    /// How long it works.
    pub ms: u64,
    /// Places of the tasks it needs, all before it.
    pub needs: Vec<usize>,
}

/// A plan's tasks in an order that respects its edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanModel {
    pub tasks: Vec<PlanModelTask>,
}

impl PlanModel {
    /// All ids, in order.
    pub fn ids(&self) -> Vec<&str> {
        self.tasks.iter().map(|task| task.id.as_str()).collect()
    }

    pub fn critical_path_ms(&self) -> u64 {
        let mut ends: Vec<u64> = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let start = task.needs.iter().map(|need| ends[*need]).max().unwrap_or(0);
            ends.push(start + task.ms);
        }
        ends.into_iter().max().unwrap_or(0)
    }

    /// All tasks one after the other.
    pub fn work_ms(&self) -> u64 {
        self.tasks.iter().map(|task| task.ms).sum()
    }

    /// No schedule with this many slots is faster.
    pub fn lower_bound_ms(&self, slots: u32) -> u64 {
        self.critical_path_ms().max(self.work_ms().div_ceil(u64::from(slots.max(1))))
    }
}

/// The longest task in terms of a typical one.
const TAIL_MAX: f64 = 20.0;

/// A random plan: its text and its model. Lengths are heavy-tailed (Pareto).
pub fn random_plan(shape: &RandomPlanShape) -> (String, PlanModel) {
    let mut rng = SeededRng::new(shape.seed);
    let mut tasks = Vec::with_capacity(shape.tasks);
    for at in 0..shape.tasks {
        let needs = (0..at).filter(|_| rng.chance(shape.edge_density)).collect();
        let stretch = (1.0 - rng.unit()).powf(-1.0 / 1.5).min(TAIL_MAX);
        let ms = (shape.typical_ms as f64 * stretch) as u64;
        tasks.push(PlanModelTask { id: format!("T-{:03}", at + 1), ms, needs });
    }
    let model = PlanModel { tasks };
    let mut text = format!("version = 1\ntitle = \"Random plan {}\"\n", shape.seed);
    for at in shuffled(&mut rng, shape.tasks) {
        task_text(&mut text, &model, at, &shape.body);
    }
    (text, model)
}

/// The file's order must not give the edges away.
fn shuffled(rng: &mut SeededRng, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    order
}

fn task_text(text: &mut String, model: &PlanModel, at: usize, body: &RandomTaskBody) {
    let PlanModelTask { id, ms, needs } = &model.tasks[at];
    let needs: Vec<_> = needs.iter().map(|need| format!("\"{}\"", model.tasks[*need].id)).collect();
    let _ = writeln!(text, "\n[[task]]\nid = \"{id}\"\ntitle = \"Work {id}\"");
    let _ = writeln!(text, "needs = [{}]", needs.join(", "));
    let _ = match body {
        RandomTaskBody::Script => writeln!(
            text,
            "agent = \"script\"\nscript = [{{ sleep = \"{ms}ms\" }}, \
             {{ write = \"work/{id}.txt\", text = \"{id}\\n\" }}, {{ commit = \"Do {id}\" }}]"
        ),
        RandomTaskBody::Shell { log } => {
            let log = format!("'{}'", log.display().to_string().replace('\'', "'\\''"));
            let line = |what: &str| format!("echo {what} {id} $(date +%s%3N) >> {log}");
            let run = format!(
                "{}; sleep {}.{:03}; mkdir -p work; echo {id} > work/{id}.txt; {}",
                line("start"),
                ms / 1000,
                ms % 1000,
                line("end")
            );
            writeln!(text, "run = {}", toml_text(&run))
        }
    };
}

fn toml_text(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_one_another() {
        let one = random_plan(&RandomPlanShape::small(7));
        assert_eq!(one, random_plan(&RandomPlanShape::small(7)));
        assert_ne!(one.0, random_plan(&RandomPlanShape::small(8)).0);
    }

    #[test]
    fn edges_lead_back_and_their_density_is_what_was_asked_for() {
        let shape = RandomPlanShape { tasks: 200, edge_density: 0.1, ..RandomPlanShape::small(1) };
        let (_, model) = random_plan(&shape);
        let edges: usize = model.tasks.iter().map(|task| task.needs.len()).sum();
        assert!((1500..2500).contains(&edges), "{edges} of about 1990");
        for (at, task) in model.tasks.iter().enumerate() {
            assert!(task.needs.iter().all(|need| *need < at));
        }
    }

    #[test]
    fn lengths_are_heavy_tailed_and_bounded() {
        let shape = RandomPlanShape { tasks: 1000, edge_density: 0.0, ..RandomPlanShape::small(3) };
        let (_, model) = random_plan(&shape);
        let mut lengths: Vec<u64> = model.tasks.iter().map(|task| task.ms).collect();
        lengths.sort_unstable();
        assert!(lengths[0] >= 50 && lengths[999] <= 1000, "{}..{}", lengths[0], lengths[999]);
        assert!(lengths[500] < 100 && lengths[990] > 300, "{} {}", lengths[500], lengths[990]);
    }

    #[test]
    fn no_schedule_beats_the_lower_bound() {
        let task =
            |ms, needs: &[usize]| PlanModelTask { id: "T".into(), ms, needs: needs.to_vec() };
        let model =
            PlanModel { tasks: vec![task(5, &[]), task(7, &[0]), task(4, &[]), task(4, &[])] };
        assert_eq!(model.critical_path_ms(), 12);
        assert_eq!(model.work_ms(), 20);
        assert_eq!([1, 2, 0].map(|slots| model.lower_bound_ms(slots)), [20, 12, 20]);
    }

    #[test]
    fn a_plan_text_names_every_task_once_whatever_its_body() {
        let shell = RandomTaskBody::Shell { log: PathBuf::from("/tmp/a 'b\\\"/log") };
        for body in [RandomTaskBody::Script, shell] {
            let (text, model) = random_plan(&RandomPlanShape { body, ..RandomPlanShape::small(5) });
            for id in model.ids() {
                assert_eq!(text.matches(&format!("\nid = \"{id}\"\n")).count(), 1, "{text}");
            }
        }
    }

    #[test]
    fn numbers_are_spread_evenly_enough() {
        let mut rng = SeededRng::new(0);
        let mut hits = [0; 8];
        for _ in 0..8000 {
            hits[rng.below(8) as usize] += 1;
        }
        assert!(hits.iter().all(|hit| (800..1200).contains(hit)), "{hits:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
