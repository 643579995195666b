//! The train's orders: merge, verify exactly that merge, move the branch.

use std::sync::atomic::Ordering;

use mainstem_core::effect::{CandidateToLand, CandidateToMerge, Effect};
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::publish::PushRefusal;
use mainstem_core::train::batches::{BatchMerge, BatchPurpose, CandidateMerge};
use mainstem_engine::effects::{EffectAction, EffectOrder};

use crate::agent::Key;
use crate::faults::Fault;
use crate::git::{At, Git};
use crate::host::{Flight, Progress};
use crate::world::World;

impl World {
    /// One step of an order of the train.
    pub fn train_step(
        &mut self,
        flight: &mut Flight,
        order: &EffectOrder,
        key: &Key,
        fails: bool,
    ) -> Progress {
        let EffectAction::Effect(effect) = &order.action else { panic!("an effect of the train") };
        match effect {
            _ if fails => {
                // Whatever it had begun in the lane is ended.
                if let Effect::RecheckTarget { commit, lane, .. } = effect {
                    self.stop_gates(&format!("train/{lane}/"));
                    let (commit, gates) = (commit.clone(), Err("git failed".to_owned()));
                    self.tell(Input::TargetRechecked { commit, gates });
                    return Progress::Done;
                }
                if let Effect::VerifyBatch { lane, .. } = effect {
                    self.stop_gates(&format!("train/{lane}/"));
                }
                self.train_fails(order)
            }
            Effect::MergeBatch { purpose, candidates: seats, .. } => {
                self.form(flight, order, *purpose, seats)
            }
            Effect::VerifyBatch { commit, tree, lane, .. } => {
                self.verify(flight, order, (key, *lane), commit, tree)
            }
            Effect::RecheckTarget { commit, tree, lane, .. } => {
                self.recheck(flight, order, *lane, (commit, tree))
            }
            Effect::Land { old, new, tree, candidates: members, .. } => {
                self.land(flight, order, (old, new, tree), members)
            }
            _ => panic!("an effect of the train"),
        }
    }

    fn train_fails(&mut self, order: &EffectOrder) -> Progress {
        let (task, attempt, reason) = (order.ix, order.attempt, "git failed".to_owned());
        self.tell(Input::TrainFailed { task, attempt, reason });
        Progress::Done
    }

    fn form(
        &mut self,
        flight: &mut Flight,
        order: &EffectOrder,
        purpose: BatchPurpose,
        seats: &[CandidateToMerge],
    ) -> Progress {
        if flight.step() == 0 {
            if self.rng.in_thousand(300) {
                self.git.fetch();
            }
            flight.found = self.git.head();
            return Progress::On;
        }
        let keys: Vec<Key> = seats
            .iter()
            .zip(&order.candidate_tasks)
            .map(|(seat, (task, _))| (task.id.clone(), seat.attempt))
            .collect();
        for (seat, (key, (_, undone))) in seats.iter().zip(keys.iter().zip(&order.candidate_tasks))
        {
            let look = seat.check_landed && Git::name(flight.found) != seat.base;
            let landed = self.git.landing(flight.found, key).filter(|_| look);
            let Some(commit) = landed.filter(|at| !undone.contains(&Git::name(*at))) else {
                continue;
            };
            // It got there, and nobody was told.
            let (task, attempt) = (seat.task, seat.attempt);
            let old = Git::name(self.git.get(commit).parents[0]);
            self.tell(Input::Landed { task, attempt, commit: Git::name(commit), old });
            return Progress::Done;
        }
        let onto = Git::name(flight.found);
        let places: Vec<u64> = seats.iter().map(|seat| seat.queue_number).collect();
        let (mut steps, mut tip) = (Vec::new(), flight.found);
        for (at, (seat, key)) in seats.iter().zip(&keys).enumerate() {
            if self.strikes(Fault::Clashes) {
                let files = vec!["src/a.rs".to_owned()];
                let with_main = at == 0 || self.rng.in_thousand(500);
                self.tell(Input::BatchConflicted { purpose, places, at, onto, files, with_main });
                return Progress::Done;
            }
            let car = self.git.merge(key, tip, Git::find(&seat.tip));
            let (onto, commit) = (Git::name(tip), Git::name(car));
            steps.push(CandidateMerge {
                onto,
                commit,
                tree: self.git.tree_name(car),
                reused: Vec::new(),
            });
            tip = car;
        }
        let bound = if keys.len() > 1 { self.git.bind(flight.found, tip, &keys) } else { tip };
        let (tree, base_tree) = (self.git.tree_name(tip), self.git.tree_name(flight.found));
        let (tip, commit) = (Git::name(tip), Git::name(bound));
        let formed = BatchMerge { onto, candidate_merges: steps, tip, commit, tree };
        self.tell(Input::BatchMerged { purpose, places, formed, base_tree });
        Progress::Done
    }

    fn verify(
        &mut self,
        flight: &mut Flight,
        order: &EffectOrder,
        (key, lane): (&Key, u32),
        commit: &Oid,
        tree: &Oid,
    ) -> Progress {
        let prefix = format!("train/{lane}/{}/{commit}/", key.0);
        if flight.step() == 0 {
            // Whatever still runs in the lane is ended, and no verdict of an earlier try counts.
            self.stop_gates(&format!("train/{lane}/"));
            self.gates.retain(|name, _| !name.starts_with(&prefix));
            assert_eq!(self.git.tree_name(Git::find(commit)), *tree, "the tree of the commit");
            return Progress::On;
        }
        let commands = self.settings.gates.verify.clone();
        match self.gates_step(flight, &commands, &prefix, tree, true) {
            Progress::Done if order.cancel.load(Ordering::Relaxed) => Progress::Done,
            Progress::Done => {
                let (task, attempt) = (order.ix, order.attempt);
                let (commit, tree) = (commit.clone(), tree.clone());
                let gates = flight.verdicts.clone();
                self.tell(Input::BatchVerified { task, attempt, commit, tree, gates });
                Progress::Done
            }
            other => other,
        }
    }

    fn recheck(
        &mut self,
        flight: &mut Flight,
        order: &EffectOrder,
        lane: u32,
        (commit, tree): (&Oid, &Oid),
    ) -> Progress {
        let prefix = format!("train/{lane}/_recheck/{commit}/");
        if flight.step() == 0 {
            self.stop_gates(&format!("train/{lane}/"));
            self.gates.retain(|name, _| !name.starts_with(&prefix));
            assert_eq!(self.git.tree_name(Git::find(commit)), *tree, "the tree of the commit");
            return Progress::On;
        }
        let commands = self.settings.gates.verify.clone();
        match self.gates_step(flight, &commands, &prefix, tree, true) {
            Progress::Done if order.cancel.load(Ordering::Relaxed) => Progress::Done,
            Progress::Done => {
                let (commit, gates) = (commit.clone(), Ok(flight.verdicts.clone()));
                self.tell(Input::TargetRechecked { commit, gates });
                Progress::Done
            }
            other => other,
        }
    }

    fn land(
        &mut self,
        flight: &mut Flight,
        order: &EffectOrder,
        (old, new, tree): (&Oid, &Oid, &Oid),
        members: &[CandidateToLand],
    ) -> Progress {
        let (task, attempt) = (order.ix, order.attempt);
        let (from, to) = (Git::find(old), Git::find(new));
        let mut main = self.git.head();
        if flight.step() == 0 && main != from && self.git.here.is_some() {
            // What was pushed before is seen there, whatever became of the branch here.
            if self.strikes(Fault::RemoteAway) {
                return self.push_fails(order);
            }
            self.git.fetch();
            main = self.git.head();
        }
        let found = Some(Git::name(main));
        let refused = Input::LandingRefused { task, attempt, new: new.clone(), found };
        let keys: Vec<Key> = members
            .iter()
            .zip(&order.candidate_tasks)
            .map(|(member, (task, _))| (task.id.clone(), member.attempt))
            .collect();
        if flight.step() == 0 {
            if main == from {
                return Progress::On;
            }
            if self.git.contains(main, to) {
                if self.git.here.is_some() {
                    return Progress::On;
                }
                self.tell_landed(members);
                return Progress::Done;
            }
            let mut all = true;
            for (member, key) in members.iter().zip(&keys) {
                let Some(at) = self.git.landing(main, key) else {
                    all = false;
                    continue;
                };
                let (task, attempt) = (member.task, member.attempt);
                let (commit, old) = (Git::name(at), member.onto.clone());
                self.tell(Input::Landed { task, attempt, commit, old });
            }
            if !all {
                self.tell(refused);
            }
            return Progress::Done;
        }
        if self.git.here.is_some() {
            return self.push(flight, order, (to, tree), (members, &keys));
        }
        // Compare and swap.
        if main != from {
            self.tell(refused);
            return Progress::Done;
        }
        self.move_main(to, &keys, tree);
        if self.strikes(Fault::OrderUnknown) {
            // It happened, and nobody is told.
            return self.train_fails(order);
        }
        self.tell_landed(members);
        Progress::Done
    }

    /// The remote's branch moves from where it was last seen, then ours follows.
    fn push(
        &mut self,
        flight: &mut Flight,
        order: &EffectOrder,
        (to, tree): (At, &Oid),
        (members, keys): (&[CandidateToLand], &[Key]),
    ) -> Progress {
        let Some((_, seen)) = self.git.here else { panic!("nothing is pushed") };
        let (task, attempt) = (order.ix, order.attempt);
        if flight.step() == 2 {
            self.git.fetch();
            self.tell_landed(members);
            return Progress::Done;
        }
        if self.strikes(Fault::RemoteAway) {
            return self.push_fails(order);
        }
        if self.git.contains(self.git.main, to) {
            return Progress::On;
        }
        if seen != self.git.main || !self.git.contains(to, seen) {
            self.git.fetch();
            let (new, found) = (Git::name(to), Some(Git::name(self.git.head())));
            self.tell(Input::LandingRefused { task, attempt, new, found });
            return Progress::Done;
        }
        self.move_main(to, keys, tree);
        if self.strikes(Fault::RemoteAway) {
            // It happened, and nobody is told.
            return self.push_fails(order);
        }
        Progress::On
    }

    fn push_fails(&mut self, order: &EffectOrder) -> Progress {
        let (task, attempt) = (order.ix, order.attempt);
        let (reason, help) = ("away".to_owned(), "go there".to_owned());
        let why = PushRefusal { reason, help, heard: self.rng.in_thousand(300) };
        self.tell(Input::PushFailed { task, attempt, why });
        Progress::Done
    }

    fn tell_landed(&mut self, members: &[CandidateToLand]) {
        for member in members {
            let (task, attempt) = (member.task, member.attempt);
            let (commit, old) = (member.commit.clone(), member.onto.clone());
            self.tell(Input::Landed { task, attempt, commit, old });
        }
    }

    /// The branch moves: only forward, only to what was verified, each task only once.
    fn move_main(&mut self, to: usize, keys: &[Key], tree: &Oid) {
        self.note(|| format!("main moves to c{to} for {keys:?}"));
        assert_eq!(self.git.tree_name(to), *tree, "another tree than the verified one lands");
        let onto = self.git.get(to).parents[0];
        assert!(self.git.contains(onto, self.git.main), "the branch loses a commit");
        let own = onto == self.git.main || self.git.here.is_some();
        assert!(own, "something lands that nobody verified");
        assert_eq!(self.git.get(to).lands, keys, "others land than was said");
        for gate in &self.settings.gates.verify {
            let ran = self.passed.contains(&(tree.clone(), gate.clone()));
            assert!(ran, "{tree} lands, but `{gate}` never passed on it");
        }
        let before: Vec<Key> =
            self.git.line().flat_map(|at| self.git.get(at).lands.clone()).collect();
        for (task, _) in keys {
            let twice = before.iter().any(|(had, _)| had == task);
            assert!(!twice, "{task} lands a second time");
        }
        self.git.main = to;
    }
}
