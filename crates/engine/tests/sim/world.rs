//! Everything outside the engine, and the agenda of what happens when. It goes on when engines die.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use mainstem_core::config::Settings;
use mainstem_core::fact::{Fact, GateVerdict};
use mainstem_core::id::Oid;
use mainstem_core::machine::Machine;
use mainstem_engine::event::{CommandReply, EngineEvent};
use mainstem_host::process::WatchEvent;

use crate::agent::{Agent, IDLE_MS, Job, Key};
use crate::faults::{Fault, Faults};
use crate::git::Git;
use crate::host::Flight;
use crate::rng::Rng;

/// Something that is going to happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// An order of this engine goes one step further.
    Order(u64),
    /// An agent does one thing.
    Agent(Key),
    /// A gate's command ends.
    Gate(String),
    /// The watcher looks at a job.
    Look(u64),
    /// People and strangers do something, or not.
    People,
    /// Somebody looks after the run: answers what is asked, resumes what is paused.
    Care,
}

#[derive(Debug, Clone)]
pub struct Gate {
    pub command: String,
    /// The tree that it looks at.
    pub tree: Oid,
    /// How it will end, or has.
    pub verdict: GateVerdict,
    pub running: bool,
    /// It was stopped on the way.
    pub stopped: bool,
    /// It runs in the train's workspace.
    pub lane: bool,
}

/// What this engine reads of one agent.
#[derive(Debug, Clone)]
pub struct Ear {
    pub of: Key,
    pub lines: usize,
}

/// What happened, line by line.
pub type Trace = Arc<Mutex<Vec<String>>>;

/// Everything outside the engine.
pub struct World {
    pub rng: Rng,
    pub faults: Faults,
    pub settings: Settings,
    /// Milliseconds that really passed.
    pub at: u64,
    /// How far the clock on the wall is off.
    pub skew: i64,
    pub git: Git,
    pub agents: BTreeMap<Key, Agent>,
    pub gates: BTreeMap<String, Gate>,
    /// Trees on which a gate of the train passed.
    pub passed: BTreeSet<(Oid, String)>,
    agenda: BTreeMap<(u64, u64), Happening>,
    numbers: u64,
    /// The engine is dead; nothing that it does has an effect.
    pub dead: bool,
    /// The journal failed this engine: it must not do anything more.
    pub broken: bool,
    pub flights: BTreeMap<u64, Flight>,
    pub ears: BTreeMap<u64, Ear>,
    pub inbox: VecDeque<EngineEvent>,
    /// Where answers to commands will come, in the order of the commands.
    pub asked: VecDeque<std::sync::mpsc::Receiver<CommandReply>>,
    /// Commands that the engine has taken and not answered.
    pub unanswered: usize,
    /// It was told to go.
    pub interrupted: bool,
    pub no_room: bool,
    pub shadow: Machine,
    pub facts: u64,
    pub draining: bool,
    /// What was intended, for "written down before it is done".
    pub intents: BTreeSet<String>,
    /// Money counted, by attempt and place of the word.
    pub counted: BTreeMap<(Key, u64), f64>,
    /// Questions whose answering agent was paid for.
    pub answers: BTreeSet<String>,
    /// What of it was paid for, not included in a subscription.
    pub paid: f64,
    /// Attempts of whose output a piece was dropped.
    pub gaps: BTreeSet<Key>,
    /// The attempt that each folder was last made for.
    pub owners: BTreeMap<PathBuf, Key>,
    pub trace: Option<Trace>,
}

/// The world, as several hold it. Only one thread ever does.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }
    pub fn get(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl World {
    /// The world of a seed.
    pub fn new(mut rng: Rng, settings: Settings) -> Self {
        let faults = Faults::draw(&mut rng);
        let mut git = Git::new();
        git.here = settings.land.push.as_ref().map(|_| (0, 0));
        let mut world = Self {
            rng,
            faults,
            at: 1_000_000,
            skew: 0,
            git,
            agents: BTreeMap::new(),
            gates: BTreeMap::new(),
            passed: BTreeSet::new(),
            agenda: BTreeMap::new(),
            numbers: 0,
            dead: false,
            broken: false,
            flights: BTreeMap::new(),
            ears: BTreeMap::new(),
            inbox: VecDeque::new(),
            asked: VecDeque::new(),
            unanswered: 0,
            interrupted: false,
            no_room: false,
            shadow: Machine::new(settings.clone()),
            settings,
            facts: 0,
            draining: false,
            intents: BTreeSet::new(),
            counted: BTreeMap::new(),
            answers: BTreeSet::new(),
            paid: 0.0,
            gaps: BTreeSet::new(),
            owners: BTreeMap::new(),
            trace: None,
        };
        world.later(1, 2_000, Happening::People);
        world.later(1_000, 4_000, Happening::Care);
        world
    }

    /// Notes a step of the trace, if anybody wants one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let line = format!("{:>8} {}", self.at - 1_000_000, line());
            trace.lock().unwrap().push(line);
        }
    }

    /// Does this fault strike now?
    pub fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.faults.strikes(fault, &mut self.rng);
        if strikes {
            self.note(|| format!("FAULT {fault:?}"));
        }
        strikes
    }

    /// The clock on the wall.
    pub fn wall(&self) -> i64 {
        i64::try_from(self.at).unwrap() + self.skew
    }

    /// A number that nobody had.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Puts something on the agenda, between `soonest` and `latest` milliseconds from now.
    pub fn later(&mut self, soonest: u64, latest: u64, what: Happening) {
        let at = self.at + soonest + self.rng.next() % (latest - soonest + 1);
        let number = self.number();
        self.agenda.insert((at, number), what);
    }

    /// The next thing happens, if it is due by then; false if nothing is.
    pub fn happen(&mut self, until: u64) -> bool {
        let Some((&(at, number), _)) = self.agenda.first_key_value() else { return false };
        if at > until {
            return false;
        }
        let what = self.agenda.remove(&(at, number)).expect("it was there");
        self.at = self.at.max(at);
        match what {
            Happening::Order(flight) => self.fly(flight),
            Happening::Agent(key) => self.agent_lives(&key),
            Happening::Gate(name) => {
                if let Some(gate) = self.gates.get_mut(&name)
                    && gate.running
                {
                    gate.running = false;
                    if gate.lane && gate.verdict == GateVerdict::Passed {
                        self.passed.insert((gate.tree.clone(), gate.command.clone()));
                    }
                }
            }
            Happening::Look(key) => self.look(key),
            Happening::People => self.people(),
            Happening::Care => self.care(),
        }
        true
    }

    fn agent_lives(&mut self, key: &Key) {
        let gone = self.strikes(Fault::SupervisorGone) && self.rng.in_thousand(300);
        let now = self.wall();
        let Some(agent) = self.agents.get_mut(key) else { return };
        if gone && agent.job == Job::Alive {
            agent.job = Job::Vanished { orphan: true };
            let dies = self.rng.in_thousand(500);
            if dies {
                agent.die(&self.git);
            }
        } else {
            agent.live(&mut self.git, self.at, now);
        }
        let story = format!("{:?}, {} lines", agent.job, agent.log.len());
        let (lives, waits) = (agent.lives(), agent.waits() && !agent.stopping);
        self.note(|| format!("agent {}/{}: {story}", key.0, key.1));
        if lives && waits {
            self.later(IDLE_MS, IDLE_MS, Happening::Agent(key.clone()));
        } else if lives {
            self.later(5, 1_500, Happening::Agent(key.clone()));
        }
    }

    /// Something was done to an agent: it goes on.
    pub fn stir(&mut self, key: &Key) {
        self.later(1, 200, Happening::Agent(key.clone()));
    }

    fn look(&mut self, key: u64) {
        let Some(ear) = self.ears.get(&key).cloned() else { return };
        let Some(agent) = self.agents.get(&ear.of) else { return };
        let (job, said) = (agent.job.clone(), agent.log.len());
        let fresh = agent.log[ear.lines..].to_vec();
        if ear.lines < said {
            let dropped = self.strikes(Fault::Gap);
            if dropped {
                self.gaps.insert(ear.of.clone());
                let bytes = fresh.len() as u64;
                self.inbox.push_back(EngineEvent::JobWatched(WatchEvent::Gap { key, bytes }));
            } else {
                let lines = fresh.into();
                self.inbox.push_back(EngineEvent::JobWatched(WatchEvent::Lines { key, lines }));
            }
            self.ears.get_mut(&key).unwrap().lines = said;
        }
        match job {
            Job::Alive => return self.later(5, 700, Happening::Look(key)),
            Job::Vanished { .. } => {
                self.inbox.push_back(EngineEvent::JobWatched(WatchEvent::Vanished { key }));
            }
            Job::Ended(exit) => {
                self.inbox.push_back(EngineEvent::JobWatched(WatchEvent::Ended { key, exit }));
            }
        }
        self.ears.remove(&key);
    }

    /// The engine is gone; all that was its own goes with it.
    pub fn engine_gone(&mut self) {
        self.flights.clear();
        self.ears.clear();
        self.nobody_listens();
        self.dead = false;
        self.broken = false;
        self.interrupted = false;
        if self.strikes(Fault::PowerCut) {
            self.power_cut();
        }
    }

    /// What people say now is said to nobody.
    pub fn nobody_listens(&mut self) {
        self.inbox.clear();
        self.asked.clear();
        self.unanswered = 0;
    }

    /// Every command that the engine took was answered.
    pub fn all_answered(&mut self) {
        for _ in 0..std::mem::take(&mut self.unanswered) {
            let answer = self.asked.pop_front().expect("somebody waits for the answer");
            assert!(answer.try_recv().is_ok(), "a command was not answered");
        }
    }

    fn power_cut(&mut self) {
        for agent in self.agents.values_mut().filter(|agent| agent.lives()) {
            agent.die(&self.git);
        }
        // Gates that nobody saw the end of gave no verdict.
        self.gates.retain(|_, gate| !gate.running);
    }

    /// What a durable fact says, taken down.
    pub fn learn(&mut self, fact: &Fact) {
        self.facts += 1;
        match fact {
            Fact::RunDraining { .. } => self.draining = true,
            Fact::EngineStarted { .. } => self.draining = false,
            Fact::UsageReported { task, attempt, mark, usage } => {
                self.paid += usage.paid_usd();
                if let Some(who) = &usage.answering {
                    let first = self.answers.insert(who.question.clone());
                    assert!(first, "an answer is paid for once: {fact:?}");
                } else {
                    let key = ((task.clone(), *attempt), *mark);
                    let twice = self.counted.insert(key, usage.cost_usd.unwrap_or(0.0));
                    assert_eq!(twice, None, "money is counted once: {fact:?}");
                }
            }
            _ => {}
        }
        if let Some(intent) = crate::check::intent_of(fact) {
            self.intents.insert(intent);
        }
    }

    /// Agents and gates that live.
    pub fn living(&self) -> Vec<String> {
        let agents = self.agents.iter().filter(|(_, agent)| agent.lives());
        let agents = agents.map(|((task, attempt), _)| format!("agent {task}/{attempt}"));
        let gates = self.gates.iter().filter(|(_, gate)| gate.running).map(|(name, _)| name);
        agents.chain(gates.cloned()).collect()
    }

    /// Ends all jobs of an attempt and those before it, as whoever uses its folder again does.
    pub fn end_jobs(&mut self, key: &Key) {
        let now = self.wall();
        for attempt in 1..=key.1 {
            if let Some(agent) = self.agents.get_mut(&(key.0.clone(), attempt)) {
                agent.kill(&self.git, now);
            }
            let prefix = format!("gate/{}/{attempt}/", key.0);
            self.stop_gates(&prefix);
        }
        let mine = format!("/{}/", key.0);
        for (name, gate) in &mut self.gates {
            if name.starts_with("train/") && name.contains(&mine) {
                gate.stopped |= gate.running;
                gate.running = false;
            }
        }
    }

    /// What a session does when its engine has gone in good order: gates of earlier lives are ended.
    pub fn tidy_up(&mut self, machine: &Machine) {
        for t in machine.tasks().all_tasks() {
            let current = machine.tasks().get(t).current.as_ref().filter(|a| !a.removed);
            if let Some(attempt) = current.map(|a| a.n) {
                let task = machine.graph().id(t).clone();
                let agent = self.agents.get(&(task.clone(), attempt));
                assert!(!agent.is_some_and(Agent::lives), "at rest, but {task}/{attempt} lives");
                self.end_jobs(&(task, attempt));
            }
        }
        let rechecks = |name: &&String| name.contains("/_recheck/");
        let left: Vec<String> = self.gates.keys().filter(rechecks).cloned().collect();
        left.iter().for_each(|name| self.stop_gates(name));
    }

    /// Stops running gates by the beginning of their names.
    pub fn stop_gates(&mut self, prefix: &str) {
        for (_, gate) in self.gates.iter_mut().filter(|(name, _)| name.starts_with(prefix)) {
            gate.stopped |= gate.running;
            gate.running = false;
        }
    }

    /// Nobody works in a folder that is taken away or made anew.
    pub fn nobody_in(&self, path: &Path) {
        let inside = |agent: &&Agent| agent.lives() && agent.workspace == path;
        let somebody = self.agents.values().find(inside);
        assert!(somebody.is_none(), "{} is taken from under a living agent", path.display());
    }

    /// Where an agent's job is.
    pub fn job_dir((task, attempt): &Key) -> PathBuf {
        PathBuf::from(format!("job/{task}/{attempt}"))
    }
    /// Whose job is there.
    pub fn job_of(dir: &Path) -> Key {
        let text = dir.to_string_lossy();
        let mut parts = text.split('/').skip(1);
        let task = parts.next().expect("a task").into();
        (task, parts.next().expect("an attempt").parse().unwrap())
    }
}
