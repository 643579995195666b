//! The world outside the machine: one branch, workspaces, and agents that outlive engines.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::attempt_work::ContinuedWork;
use mainstem_core::fact::{AgentClaim, AgentEnding, AgentFault, Usage};
use mainstem_core::id::{Oid, TaskId, Time};
use mainstem_core::machine::AgentStatement;

use crate::rng::Rng;

/// An attempt, by its task's id.
pub type Key = (TaskId, u32);

/// A commit on or off the branch.
#[derive(Debug, Clone)]
pub struct Commit {
    parent: Option<Oid>,
    /// The cars' own merges, if it binds several.
    inside: Option<Oid>,
    /// Whose work it lands.
    lands: Vec<Key>,
    /// Whose work it takes back.
    reverts: Option<TaskId>,
    /// All that is in it, whatever the order.
    content: u64,
}

/// A repository with one branch.
#[derive(Debug, Clone)]
pub struct Git {
    commits: BTreeMap<Oid, Commit>,
    /// Where the branch stands.
    pub main: Oid,
    strangers: u32,
}

impl Git {
    /// A branch with one commit.
    pub fn new() -> Self {
        let root =
            Commit { parent: None, inside: None, lands: Vec::new(), reverts: None, content: 0 };
        Self { commits: BTreeMap::from([("c0".into(), root)]), main: "c0".into(), strangers: 0 }
    }
    fn add(&mut self, name: String, parent: &Oid, lands: Vec<Key>, reverts: Option<TaskId>) -> Oid {
        let own = name.rsplit('!').next().unwrap_or_default();
        let hash = own.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let content = self.commits[parent].content ^ hash;
        let oid = Oid::new(name);
        let commit = Commit { parent: Some(parent.clone()), inside: None, lands, reverts, content };
        self.commits.insert(oid.clone(), commit);
        oid
    }
    /// A merge of an attempt's work onto a commit; the same again gives the same.
    pub fn merge(&mut self, key: &Key, onto: &Oid) -> Oid {
        let short = self.commits.len();
        let known = self
            .commits
            .iter()
            .find(|(_, c)| c.lands.as_slice() == [key.clone()] && c.parent.as_ref() == Some(onto));
        if let Some((oid, _)) = known {
            return oid.clone();
        }
        self.add(format!("m{short}!{}-{}", key.0, key.1), onto, vec![key.clone()], None)
    }
    /// One commit for several merges; the same again gives the same.
    pub fn bind(&mut self, onto: &Oid, tip: &Oid, keys: &[Key]) -> Oid {
        let oid = Oid::new(format!("bound {onto} {tip}"));
        let (content, inside) = (self.commits[tip].content, Some(tip.clone()));
        let (parent, lands) = (Some(onto.clone()), keys.to_vec());
        let bound = Commit { parent, inside, lands, reverts: None, content };
        self.commits.insert(oid.clone(), bound);
        oid
    }
    /// The tree of a commit.
    pub fn tree(&self, commit: &Oid) -> Oid {
        Oid::new(format!("t{:x}", self.commits[commit].content))
    }
    pub fn stranger_moves(&mut self) {
        self.strangers += 1;
        let main = self.main.clone();
        self.main = self.add(format!("x{}", self.strangers), &main, Vec::new(), None);
    }
    pub fn swap(&mut self, old: &Oid, new: &Oid) -> bool {
        let free = self.main == *old;
        if free {
            self.main = new.clone();
        }
        free
    }
    /// Takes a landing back with a commit on top.
    pub fn revert(&mut self, task: &TaskId) -> (Oid, Oid) {
        self.strangers += 1;
        let old = self.main.clone();
        let name = format!("r{}", self.strangers);
        self.main = self.add(name, &old, Vec::new(), Some(task.clone()));
        (old, self.main.clone())
    }
    fn line(&self, from: &Oid) -> Vec<(Oid, &Commit)> {
        let mut line = Vec::new();
        let mut at = Some(from.clone());
        while let Some(oid) = at {
            let commit = &self.commits[&oid];
            at = commit.parent.clone();
            line.push((oid, commit));
        }
        line
    }
    /// Is `commit` in the history of `from`?
    pub fn contains(&self, from: &Oid, commit: &Oid) -> bool {
        let inside = |c: &Commit| {
            c.inside.as_ref().is_some_and(|tip| {
                self.line(tip).iter().take(c.lands.len()).any(|(oid, _)| oid == commit)
            })
        };
        self.line(from).iter().any(|(oid, c)| oid == commit || inside(c))
    }
    /// Is this attempt's work on the branch?
    pub fn landed(&self, key: &Key) -> Option<(Oid, Oid)> {
        let line = self.line(&self.main);
        let (oid, commit) = line.iter().find(|(_, c)| c.lands.contains(key))?;
        let Some(tip) = &commit.inside else { return Some((oid.clone(), commit.parent.clone()?)) };
        let line = self.line(tip);
        let (oid, commit) = line.iter().find(|(_, c)| c.lands.as_slice() == [key.clone()])?;
        Some((oid.clone(), commit.parent.clone()?))
    }
    /// How often each task's work is on the branch, less how often it was taken back.
    pub fn landings(&self) -> BTreeMap<TaskId, i32> {
        let mut count = BTreeMap::new();
        for (_, commit) in self.line(&self.main) {
            for (task, _) in &commit.lands {
                *count.entry(task.clone()).or_default() += 1;
            }
            if let Some(task) = &commit.reverts {
                *count.entry(task.clone()).or_default() -= 1;
            }
        }
        count
    }
}

#[derive(Debug, Clone)]
pub struct Agent {
    /// How it ended, once it has.
    pub ended: Option<(AgentEnding, AgentClaim)>,
    /// What it has said so far; a mark is the place in here, from 1.
    pub log: Vec<AgentStatement>,
    /// What it will still say.
    script: Vec<AgentStatement>,
    /// How it will end.
    fate: (AgentEnding, AgentClaim),
    asked: u32,
    /// Waits until all its questions are answered.
    patient: bool,
    /// Answers that reached it.
    pub answers: BTreeSet<u32>,
    pub worked: bool,
    /// It was asked to end.
    pub stopping: bool,
}

impl Agent {
    /// One that never ran.
    pub fn never() -> Self {
        let fate = (
            AgentEnding::NotStarted { why: "stopped before".to_owned(), permanent: false },
            AgentClaim::None,
        );
        Self {
            ended: Some(fate.clone()),
            log: Vec::new(),
            script: Vec::new(),
            fate,
            asked: 0,
            patient: true,
            answers: BTreeSet::new(),
            worked: false,
            stopping: false,
        }
    }
    /// One with a random life before it. A fair one is well-behaved.
    pub fn random(rng: &mut Rng, fair: bool) -> Self {
        let words = if fair { 1 } else { rng.below(5) };
        let script = (0..words).map(|_| word(rng, fair)).collect();
        let luck = if fair { rng.below(60) } else { rng.below(100) };
        let fate = match luck {
            0..50 => (AgentEnding::Exited { code: 0 }, AgentClaim::None),
            50..55 => (AgentEnding::Exited { code: 0 }, done()),
            55..62 => {
                (AgentEnding::Exited { code: 0 }, AgentClaim::NothingToDo { reason: String::new() })
            }
            62..66 => {
                (AgentEnding::Exited { code: 0 }, AgentClaim::Blocked { reason: "no".to_owned() })
            }
            66..69 => (AgentEnding::Exited { code: 1 }, AgentClaim::RateLimited {}),
            69..72 => (AgentEnding::Exited { code: 1 }, AgentClaim::QuotaExhausted {}),
            72..82 => (AgentEnding::Exited { code: 1 }, failed(*rng.pick(&TROUBLES))),
            82..86 => (AgentEnding::Exited { code: 1 }, AgentClaim::None),
            86..89 => (AgentEnding::Signalled { signal: 9 }, AgentClaim::None),
            89..92 => (AgentEnding::TimedOut { idle: rng.in_thousand(500) }, AgentClaim::None),
            92..96 => (AgentEnding::Vanished {}, AgentClaim::None),
            _ => (
                AgentEnding::NotStarted { why: "no such program".to_owned(), permanent: false },
                AgentClaim::None,
            ),
        };
        let idle = matches!(fate.1, AgentClaim::NothingToDo { .. });
        let patient = rng.in_thousand(600);
        let worked = !idle && (fair || rng.in_thousand(900));
        Self { ended: None, script, fate, patient, worked, ..Self::never() }
    }
    /// Is its process there?
    pub fn alive(&self) -> bool {
        self.ended.is_none()
    }
    /// It waits for an answer before it does anything else.
    pub fn waits(&self) -> bool {
        let open = (1..=self.asked).any(|n| !self.answers.contains(&n));
        self.alive() && open && (self.patient || self.script.is_empty())
    }
    /// One more moment of its life.
    pub fn live(&mut self) {
        if !self.alive() {
            return;
        }
        if self.stopping {
            self.ended = Some((AgentEnding::Stopped {}, AgentClaim::None));
        } else if self.waits() {
        } else if let Some(said) = self.script.pop() {
            self.asked += u32::from(matches!(said, AgentStatement::Asked { .. }));
            self.log.push(said);
        } else {
            self.ended = Some(self.fate.clone());
        }
    }
    pub fn vanish(&mut self) {
        if self.alive() {
            self.ended = Some((AgentEnding::Vanished {}, AgentClaim::None));
        }
    }
}

/// Provider outages are what a breaker counts, so they are frequent.
const TROUBLES: [AgentFault; 8] = [
    AgentFault::Transient,
    AgentFault::Transient,
    AgentFault::Transient,
    AgentFault::Auth,
    AgentFault::Request,
    AgentFault::Stalled,
    AgentFault::Looping,
    AgentFault::Context,
];

fn failed(fault: AgentFault) -> AgentClaim {
    AgentClaim::Failed { fault, message: "503".to_owned(), help: None }
}

fn done() -> AgentClaim {
    AgentClaim::Done { summary: "did it".to_owned(), evidence: Vec::new() }
}

fn word(rng: &mut Rng, fair: bool) -> AgentStatement {
    let text = || "text".to_owned();
    match rng.below(if fair { 6 } else { 16 }) {
        0..5 => AgentStatement::Usage(Usage {
            input_tokens: 1 + rng.next() % 100,
            output_tokens: rng.next() % 10,
            // Exact in binary, so that sums can be compared.
            cost_usd: rng
                .in_thousand(800)
                .then(|| f64::from(u32::try_from(rng.below(8)).unwrap_or(0)) * 0.25),
            model: rng.pick(&[None, Some("priced"), Some("other")]).map(str::to_owned),
            ..Usage::default()
        }),
        5 => AgentStatement::Session { session: (*rng.pick(&["s1", "s2", "s3"])).to_owned() },
        6 | 7 => AgentStatement::RateLimited {
            retry_after_ms: rng.in_thousand(500).then(|| rng.next() % 5_000),
            reset_at: rng.in_thousand(300).then(|| Time(i64::try_from(rng.below(90_000)).unwrap())),
            message: "slow down".to_owned(),
            retrying: rng.in_thousand(400),
        },
        8 => AgentStatement::QuotaExhausted {
            reset_at: rng.in_thousand(500).then(|| Time(i64::try_from(rng.below(90_000)).unwrap())),
            message: "no more".to_owned(),
        },
        9 => AgentStatement::Issue { title: text(), text: text(), severity: String::new() },
        10 => AgentStatement::Proposed {
            id: None,
            title: text(),
            description: text(),
            needs: Vec::new(),
        },
        _ => AgentStatement::Asked {
            text: "which?".to_owned(),
            options: vec!["a".to_owned(), "b".to_owned()],
            default: rng.in_thousand(300).then(|| "a".to_owned()),
            deadline_ms: rng.in_thousand(500).then(|| rng.next() % 3_000),
            reference: rng.in_thousand(300).then(|| "r".to_owned()),
        },
    }
}

/// What one engine reads of one agent.
#[derive(Debug, Clone)]
pub struct Watch {
    pub words: usize,
    /// It was said to be alive.
    pub started: bool,
    /// That is said only after so many words.
    pub start_after: usize,
    /// It was said to be gone.
    pub ended: bool,
}

/// Everything outside the machine.
#[derive(Debug, Clone)]
pub struct World {
    pub git: Git,
    /// All agents that ever were.
    pub agents: BTreeMap<Key, Agent>,
    /// Those that this engine reads.
    pub watches: BTreeMap<Key, Watch>,
    /// Gates that this engine runs.
    pub gating: BTreeSet<Key>,
    /// The commit that a workspace was made from.
    pub bases: BTreeMap<Key, Oid>,
    /// What each workspace was made from, if that was earlier work.
    pub continued: BTreeMap<Key, ContinuedWork>,
}

impl World {
    pub fn new() -> Self {
        Self {
            git: Git::new(),
            agents: BTreeMap::new(),
            watches: BTreeMap::new(),
            gating: BTreeSet::new(),
            bases: BTreeMap::new(),
            continued: BTreeMap::new(),
        }
    }
    /// The engine is gone; the rest goes on.
    pub fn engine_dies(&mut self) {
        self.watches.clear();
        self.gating.clear();
    }
    /// Attempts whose agent lives.
    pub fn living(&self) -> Vec<Key> {
        self.agents.iter().filter(|(_, a)| a.alive()).map(|(key, _)| key.clone()).collect()
    }
}
