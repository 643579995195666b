//! The train's orders: merge, verify exactly that merge, move the branch.

use std::sync::atomic::Ordering;

use mainstem_core::effect::Effect;
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_engine::perform::{Deed, Order};

use crate::agent::Key;
use crate::faults::Fault;
use crate::git::Git;
use crate::host::{Flight, Progress};
use crate::world::World;

impl World {
    /// One step of an order of the train.
    pub fn train_step(
        &mut self,
        flight: &mut Flight,
        order: &Order,
        key: &Key,
        fails: bool,
    ) -> Progress {
        let Deed::Effect(effect) = &order.deed else { panic!("an effect of the train") };
        match effect {
            _ if fails => {
                // Whatever it had begun in the lane is ended.
                self.stop_gates(&format!("train/{}/", key.0));
                self.train_fails(order)
            }
            Effect::FormCar { tip, .. } => self.form(flight, order, key, tip),
            Effect::VerifyCar { commit, tree, .. } => self.verify(flight, order, key, commit, tree),
            Effect::Land { old, new, tree, .. } => self.land(flight, order, key, (old, new, tree)),
            _ => panic!("an effect of the train"),
        }
    }

    fn train_fails(&mut self, order: &Order) -> Progress {
        let (task, attempt, reason) = (order.ix, order.attempt, "git failed".to_owned());
        self.tell(Input::TrainFailed { task, attempt, reason });
        Progress::Done
    }

    fn form(&mut self, flight: &mut Flight, order: &Order, key: &Key, tip: &Oid) -> Progress {
        let (task, attempt) = (order.ix, order.attempt);
        if flight.step() == 0 {
            flight.found = self.git.main;
            return Progress::On;
        }
        let onto = Git::name(flight.found);
        if self.strikes(Fault::Clashes) {
            let files = vec!["src/a.rs".to_owned()];
            self.tell(Input::CarConflicted { task, attempt, onto, files });
            return Progress::Done;
        }
        let car = self.git.merge(key, flight.found, Git::find(tip));
        let (commit, tree) = (Git::name(car), self.git.tree_name(car));
        self.tell(Input::CarFormed { task, attempt, onto, commit, tree });
        Progress::Done
    }

    fn verify(
        &mut self,
        flight: &mut Flight,
        order: &Order,
        key: &Key,
        commit: &Oid,
        tree: &Oid,
    ) -> Progress {
        let prefix = format!("train/{}/{commit}/", key.0);
        if flight.step() == 0 {
            // Whatever still runs in the lane is ended, and no verdict of an earlier try counts.
            self.stop_gates("train/");
            self.gates.retain(|name, _| !name.starts_with(&prefix));
            assert_eq!(self.git.tree_name(Git::find(commit)), *tree, "the tree of the commit");
            return Progress::On;
        }
        let commands = self.settings.gates.verify.clone();
        match self.gates_step(flight, &commands, &prefix, tree, true) {
            Progress::Done if order.cancel.load(Ordering::Relaxed) => Progress::Done,
            Progress::Done => {
                let (task, attempt) = (order.ix, order.attempt);
                let (commit, gates) = (commit.clone(), flight.verdicts.clone());
                self.tell(Input::CarVerified { task, attempt, commit, gates });
                Progress::Done
            }
            other => other,
        }
    }

    fn land(
        &mut self,
        flight: &mut Flight,
        order: &Order,
        key: &Key,
        (old, new, tree): (&Oid, &Oid, &Oid),
    ) -> Progress {
        let (task, attempt) = (order.ix, order.attempt);
        let (from, to) = (Git::find(old), Git::find(new));
        let landed = |commit| Input::Landed { task, attempt, commit, old: old.clone() };
        let main = self.git.main;
        if flight.step() == 0 {
            if main == from {
                return Progress::On;
            }
            let known = if self.git.contains(main, to) { Some(to) } else { self.git.landing(key) };
            let found = Some(Git::name(main));
            self.tell(match known {
                Some(at) => landed(Git::name(at)),
                None => Input::LandingRefused { task, attempt, new: new.clone(), found },
            });
            return Progress::Done;
        }
        // Compare and swap.
        if main != from {
            let found = Some(Git::name(main));
            self.tell(Input::LandingRefused { task, attempt, new: new.clone(), found });
            return Progress::Done;
        }
        self.move_main(to, key, tree);
        if self.strikes(Fault::OrderUnknown) {
            // It happened, and nobody is told.
            return self.train_fails(order);
        }
        self.tell(landed(new.clone()));
        Progress::Done
    }

    /// The branch moves: only forward, only to what was verified, each task only once.
    fn move_main(&mut self, to: usize, key: &Key, tree: &Oid) {
        self.note(|| format!("main moves to c{to} for {}/{}", key.0, key.1));
        assert_eq!(self.git.tree_name(to), *tree, "another tree than the verified one lands");
        assert_eq!(self.git.get(to).parents[0], self.git.main, "the branch loses a commit");
        for gate in &self.settings.gates.verify {
            let ran = self.passed.contains(&(tree.clone(), gate.clone()));
            assert!(ran, "{tree} lands, but `{gate}` never passed on it");
        }
        let before = self.git.line().filter_map(|at| self.git.get(at).lands.clone());
        let twice = before.filter(|(task, _)| *task == key.0).count();
        assert_eq!(twice, 0, "{} lands a second time", key.0);
        self.git.main = to;
    }
}
