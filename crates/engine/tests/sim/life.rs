//! One seed: lives of an engine one after the other, first in a hostile world, then in a calm one, until
//! another life changes nothing any more.

use mainstem_core::config::Settings;
use mainstem_core::id::{RunId, TaskId, TaskIx, Time};
use mainstem_core::machine::{EpochOptions, Input, Machine, RestReason};
use mainstem_core::plan::Plan;
use mainstem_engine::driver::{DriverStart, EngineDriver, EngineOutcome};
use mainstem_engine::observer::{EngineActivity, JournaledFact, RunObserver};
use mainstem_engine::run_journal;
use mainstem_store::{Journal, JournalReader, JournalRecord, MemoryJournal, StoreError};

use crate::faults::{Fault, Tally};
use crate::git::Git;
use crate::host::Simulated;
use crate::record::Faulty;
use crate::rng::Rng;
use crate::rules::{self, Look};
use crate::world::{Shared, Trace, World};
use crate::{check, setup};

/// Most tasks of a plan: enough for every shape of trouble, few enough for a thousand runs a second.
const TASKS_MAX: usize = 8;
/// Rounds in a hostile world at most.
const HOSTILE_TURNS: u64 = 500;
/// After the last fault the engine comes to rest within so many rounds and so much time.
const CALM_TURNS: u64 = 6_000;
const CALM_LIVES: u64 = 40;
const CALM_MS: u64 = 12 * 3_600 * 1_000;

/// What one seed came to.
#[derive(Debug)]
pub struct Report {
    /// Rounds of the driver.
    pub turns: u64,
    /// Lives of the engine.
    pub lives: u64,
    pub tally: Tally,
    pub journal: Vec<JournalRecord>,
}

struct Sim {
    world: Shared,
    journal: MemoryJournal,
    settings: Settings,
    plan: Plan,
    clash: Vec<Vec<bool>>,
    turns: u64,
    lives: u64,
    horizon: u64,
    calm_since: Option<(u64, u64)>,
}

/// How a life ended.
enum End {
    Rested(RestReason),
    Died,
}

/// Sees that what is shown is durable.
struct Witness(Shared);

impl RunObserver for Witness {
    fn on_fact(&mut self, shown: &JournaledFact<'_>, _: &Machine) {
        assert!(shown.seq <= self.0.get().facts, "a fact is shown that is not durable");
    }
    fn on_tick(&mut self, _: &Machine, _: &dyn Fn() -> EngineActivity) {}
}

/// Runs one seed to its end.
pub fn run(seed: u64, trace: Option<Trace>) -> Report {
    let mut rng = Rng::new(seed);
    let mut settings = setup::random_settings(&mut rng);
    settings.run.jobs = settings.run.jobs.max(1);
    let mut plan = setup::random_plan(&mut rng);
    plan.tasks.truncate(TASKS_MAX);
    let mut world = World::new(rng, settings.clone());
    world.trace = trace;
    let horizon = world.at + 3_000 + world.rng.next() % 60_000;
    let mut sim = Sim {
        world: Shared::new(world),
        journal: MemoryJournal::new(),
        settings,
        plan,
        clash: Vec::new(),
        turns: 0,
        lives: 0,
        horizon,
        calm_since: None,
    };
    sim.runs_out();
    let journal = sim.journal.reader().read_after(0, usize::MAX).unwrap();
    let tally = sim.world.get().faults.tally.clone();
    Report { turns: sim.turns, lives: sim.lives, tally, journal }
}

impl Sim {
    fn runs_out(&mut self) {
        let mut calm_lives = 0;
        loop {
            self.grow_calm();
            let before = self.world.get().facts;
            let end = self.live();
            let mut world = self.world.get();
            world.engine_gone();
            let wrote = world.facts - before;
            drop(world);
            let calm = self.calm_since.is_some();
            let quiet = calm && wrote == 2;
            calm_lives += u64::from(calm);
            assert!(calm_lives <= CALM_LIVES, "another life always changes something");
            if let End::Rested(RestReason::Done | RestReason::NotLanded) = end {
                if quiet {
                    break;
                }
                if wrote == 2 {
                    // Nothing is left to be hostile to.
                    self.horizon = 0;
                }
            }
        }
        let (_, machine) =
            run_journal::load_newest_run(&self.journal.reader(), &self.settings).unwrap().unwrap();
        let world = self.world.get();
        rules::i5_replay_is_the_live_state(&machine, &world.shadow);
        check::last_words(&world, &machine);
    }

    /// Time passes without an engine.
    fn nobody_works(&mut self) {
        let mut world = self.world.get();
        let most = *world.rng.pick(&[50, 1_000, 10_000]);
        let until = world.at + world.rng.next() % most;
        while world.happen(until) {}
        world.at = world.at.max(until);
        world.nobody_listens();
    }

    fn live(&mut self) -> End {
        self.lives += 1;
        self.nobody_works();
        self.world.get().note(|| "a new life".to_owned());
        let world = self.world.clone();
        let mut journal = Faulty { inner: self.journal.clone(), world };
        let epoch = journal.take_over().unwrap();
        let Ok((run, machine)) = self.adopt(&mut journal, epoch) else { return End::Died };
        if self.world.get().dead {
            return End::Died;
        }
        rules::i5_replay_is_the_live_state(&machine, &self.world.get().shadow);
        self.clash = rules::clashes(machine.plan());
        let scope = self.scope(&machine);
        let (host, version) = (String::new(), String::new());
        let begin = Input::Begin { epoch, pid: 1, host, version, scope };
        let start = DriverStart { run, machine, journal: Box::new(journal), epoch };
        let mut outside = Simulated(self.world.clone());
        let mut face = Witness(self.world.clone());
        let mut driver = EngineDriver::new(start, &mut outside, &mut face);
        let mut slots = driver.machine().job_limit().max(driver.machine().tasks().slots_in_use());
        let mut outcome = driver.run_first_round(begin);
        loop {
            self.turns += 1;
            if self.world.get().dead {
                return End::Died;
            }
            match outcome {
                // It must have stopped by itself: the world has seen nothing more of it.
                Err(_) | Ok(Some(EngineOutcome::Left)) => return End::Died,
                Ok(Some(EngineOutcome::Rested(rest))) => {
                    let mut world = self.world.get();
                    world.tidy_up(driver.machine());
                    rules::i5_replay_is_the_live_state(driver.machine(), &world.shadow);
                    check::at_rest(&world, driver.machine());
                    return End::Rested(rest);
                }
                Ok(None) => self.look(driver.machine(), slots),
            }
            slots = driver.machine().job_limit().max(driver.machine().tasks().slots_in_use());
            self.grow_calm();
            self.no_endless_work(driver.machine());
            outcome = driver.run_next_round();
        }
    }

    /// What a session does before a life: finds or starts the run, adopts the plan, takes commands.
    fn adopt(&mut self, journal: &mut Faulty, epoch: u64) -> Result<(RunId, Machine), StoreError> {
        let now = || Time(self.world.get().wall());
        let found = run_journal::load_newest_run(&journal.inner.reader(), &self.settings).unwrap();
        let (run, mut machine) = match found {
            Some(found) => found,
            None => {
                let (run, mut machine) = (RunId::new("r"), Machine::new(self.settings.clone()));
                let start = Input::StartRun {
                    target: "main".to_owned(),
                    base: Git::name(0),
                    bring_to: None,
                };
                run_journal::record_step(journal, epoch, &run, &mut machine, (start, now()))?;
                (run, machine)
            }
        };
        if machine.revision() == 0 {
            let (plan, hash) = (Box::new(self.plan.clone()), "first".to_owned());
            let adopt = Input::AdoptPlan { plan, hash };
            run_journal::record_step(journal, epoch, &run, &mut machine, (adopt, now()))?;
        } else if self.world.get().strikes(Fault::Revisions) {
            let adopt = self.revision(&machine);
            run_journal::record_step(journal, epoch, &run, &mut machine, (adopt, now()))?;
        }
        while self.world.get().strikes(Fault::People) {
            let wish = Input::Command(self.world.get().wish());
            let (_, reply) =
                run_journal::record_step(journal, epoch, &run, &mut machine, (wish, now()))?;
            assert!(reply.is_some(), "a command was not answered");
        }
        let options = EpochOptions { waits_for_people: true, ..EpochOptions::default() };
        machine.step(Input::ConfigureEpoch(options), now());
        Ok((run, machine))
    }

    fn revision(&self, machine: &Machine) -> Input {
        let (tasks, plan) = (machine.tasks(), machine.plan());
        let unstarted = |t: &TaskIx| tasks.get(*t).attempts == 0;
        let free: Vec<TaskId> =
            tasks.all_tasks().filter(unstarted).map(|t| plan.tasks[t.index()].id.clone()).collect();
        let mut world = self.world.get();
        let plan = setup::revised(&mut world.rng, plan, &free, self.lives);
        Input::AdoptPlan { plan: Box::new(plan), hash: format!("revision {}", self.lives) }
    }

    fn scope(&self, machine: &Machine) -> Option<Vec<TaskIx>> {
        let mut world = self.world.get();
        let count = machine.plan().tasks.len();
        if count == 0 || !world.strikes(Fault::People) {
            return None;
        }
        Some(vec![TaskIx(u32::try_from(world.rng.below(count)).unwrap())])
    }

    fn look(&mut self, machine: &Machine, slots_before: u32) {
        let mut world = self.world.get();
        world.all_answered();
        check::after_turn(&world, machine);
        rules::after_step(&Look {
            live: machine,
            shadow: &world.shadow,
            settings: &self.settings,
            clash: &self.clash,
            slots_before,
            now: machine.now(),
            draining: world.draining,
            interrupting: world.interrupted,
            whole: self.turns.is_multiple_of(16),
        });
    }

    /// At some moment the faults end.
    fn grow_calm(&mut self) {
        let mut world = self.world.get();
        if self.calm_since.is_none() && (world.at > self.horizon || self.turns > HOSTILE_TURNS) {
            world.note(|| "CALM".to_owned());
            world.faults.over = true;
            self.calm_since = Some((world.at, self.turns));
        }
    }

    /// In a calm world the engine has to come to rest.
    fn no_endless_work(&self, machine: &Machine) {
        if let Some((at, turns)) = self.calm_since {
            let late = self.world.get().at - at > CALM_MS || self.turns - turns > CALM_TURNS;
            assert!(!late, "it does not come to rest: {}", picture(machine));
        }
    }
}

fn picture(machine: &Machine) -> String {
    let tasks = machine.tasks();
    let line = |t: TaskIx| {
        let state = tasks.get(t);
        format!("\n{} {} {:?}", machine.graph().id(t), state.phase().as_str(), state.current)
    };
    let all: String = tasks.all_tasks().map(line).collect();
    format!("{all}\ntrain {:?}\nwakes at {:?}", machine.train(), machine.wake_at())
}
