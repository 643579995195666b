//! Ways of landing that others have, to compare ours with: one at a time, batches, a chain, likely paths.

use std::collections::{BTreeMap, VecDeque};

use super::model::{CarNo, Move, Out, Strategy, Truth};

pub enum Kind {
    /// One at a time.
    Serial,
    /// Batches that were halved, to be tried first.
    Batch(VecDeque<Vec<CarNo>>),
    /// Each merged onto those before it, all verified at once.
    Chain,
    /// The likeliest outcomes of those before it.
    Paths { seen: f64, bad: f64 },
}

/// The ways of others, as far as a model needs them: what to verify on the branch as it stands, and what is
/// known of it.
pub struct Plain {
    kind: Kind,
    waiting: Vec<CarNo>,
    base: usize,
    verdicts: BTreeMap<Vec<CarNo>, bool>,
}

impl Plain {
    pub fn new(kind: Kind) -> Self {
        Self { kind, waiting: Vec::new(), base: 0, verdicts: BTreeMap::new() }
    }

    /// The lines to verify, the first of which decides what lands or leaves.
    fn lines(&mut self, lanes: usize) -> Vec<Vec<CarNo>> {
        let waiting = &self.waiting;
        match &mut self.kind {
            Kind::Serial => vec![waiting[..1].to_vec()],
            Kind::Batch(halves) => {
                halves.retain(|half| half.iter().all(|car| waiting.contains(car)));
                let fresh = || waiting[..waiting.len().min(8)].to_vec();
                vec![halves.front().cloned().unwrap_or_else(fresh)]
            }
            Kind::Chain => {
                let mut line: Vec<CarNo> = Vec::new();
                let mut lines: Vec<Vec<CarNo>> = Vec::new();
                for car in waiting {
                    line.push(*car);
                    lines.push(line.clone());
                    match self.verdicts.get(&line) {
                        Some(false) => drop(line.pop()),
                        Some(true) => {}
                        None if lines
                            .iter()
                            .filter(|l| !self.verdicts.contains_key(*l))
                            .count()
                            == lanes =>
                        {
                            break;
                        }
                        None => {}
                    }
                }
                lines
            }
            Kind::Paths { seen, bad } => {
                let good = 1.0 - *bad / *seen;
                let mut paths: Vec<(f64, Vec<CarNo>)> = vec![(1.0, Vec::new())];
                let mut lines: Vec<(f64, Vec<CarNo>)> = Vec::new();
                for car in waiting.iter().take(8) {
                    let mut next = Vec::new();
                    for (chance, path) in &paths {
                        let with: Vec<CarNo> = path.iter().chain([car]).copied().collect();
                        lines.push((*chance, with.clone()));
                        let known = self.verdicts.get(&with);
                        let share = known.map_or(good, |good| f64::from(u8::from(*good)));
                        next.push((chance * share, with));
                        next.push((chance * (1.0 - share), path.clone()));
                    }
                    next.retain(|(chance, _)| *chance > 0.01);
                    paths = next;
                }
                lines.sort_by(|a, b| b.0.total_cmp(&a.0));
                let open = lines.into_iter().map(|(_, line)| line);
                let first = waiting[..1].to_vec();
                let rest = open.filter(|line| *line != first && !self.verdicts.contains_key(line));
                std::iter::once(first.clone()).chain(rest.take(lanes)).collect()
            }
        }
    }
}

impl Strategy for Plain {
    fn arrives(&mut self, car: CarNo) {
        self.waiting.push(car);
    }

    fn next(&mut self, truth: &Truth, _: f64) -> Move {
        self.base = truth.main.len();
        if self.waiting.is_empty() {
            return Move::default();
        }
        let lanes = truth.conditions.lanes;
        let lines = self.lines(lanes);
        let first = lines[0].clone();
        match self.verdicts.get(&first) {
            Some(true) => Move { land: Some((self.base, first)), ..Move::default() },
            Some(false) if first.len() == 1 => {
                Move { out: Some((first[0], Out::Red)), ..Move::default() }
            }
            Some(false) => {
                let (front, back) = first.split_at(first.len() / 2);
                if let Kind::Batch(halves) = &mut self.kind {
                    halves.pop_front_if(|half| *half == first);
                    halves.push_front(back.to_vec());
                    halves.push_front(front.to_vec());
                }
                self.next(truth, 0.0)
            }
            None => {
                let open = lines.into_iter().filter(|line| !self.verdicts.contains_key(line));
                Move {
                    run: open.take(lanes).map(|line| (self.base, line)).collect(),
                    ..Move::default()
                }
            }
        }
    }

    fn judged(&mut self, _: usize, cars: &[CarNo], good: bool, _: f64) {
        self.verdicts.insert(cars.to_vec(), good);
    }

    fn landed(&mut self, cars: &[CarNo], _: f64) {
        self.waiting.retain(|car| !cars.contains(car));
        let verdicts = std::mem::take(&mut self.verdicts).into_iter();
        let rest = verdicts.filter(|(line, _)| line.len() > cars.len() && line.starts_with(cars));
        self.verdicts = rest.map(|(line, good)| (line[cars.len()..].to_vec(), good)).collect();
        if let Kind::Paths { seen, .. } = &mut self.kind {
            *seen += 1.0;
        }
    }

    fn left(&mut self, car: CarNo) {
        self.waiting.retain(|other| *other != car);
        self.verdicts.retain(|line, _| !line.contains(&car));
        if let Kind::Paths { seen, bad } = &mut self.kind {
            *seen += 1.0;
            *bad += 1.0;
        }
    }

    fn refused(&mut self, _: f64) {}
}
