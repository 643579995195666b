//! Campaigns: whole families of cases that are not drawn but counted out, one by one. A case is its
//! name, so that a failed one can be played again by it; a campaign lists the names and plays them.

pub mod effects;
pub mod journal;
pub mod points;
pub mod scenes;
pub mod tour;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use mainstem_testkit::Rng;
use tempfile::TempDir;

use scenes::Scene;

use crate::play::Played;
use crate::show::Show;
use crate::stage::{Stage, Tools};

/// One family of cases.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// First word of its cases' names.
    pub name: &'static str,
    /// What it attacks.
    pub about: &'static str,
    /// Counts its cases out.
    pub list: fn(&Order) -> Result<List, String>,
    /// Plays the case of these words (the name's words but the first).
    pub play: fn(&Room, &[&str]) -> Result<Played, String>,
}

/// All of them.
pub const ALL: &[Campaign] = &[
    Campaign {
        name: "points",
        about: "a death at every crash point",
        list: points::list,
        play: points::play_one,
    },
    Campaign {
        name: "pairs",
        about: "a death at every crash point, and one at every point of the life after",
        list: points::list_pairs,
        play: points::play_pair,
    },
    Campaign {
        name: "journal",
        about: "a journal that lost its end, at every index, with the world ahead of it",
        list: journal::list,
        play: journal::play_one,
    },
    Campaign {
        name: "twice",
        about: "every effect performed twice",
        list: effects::list_twice,
        play: effects::play_twice,
    },
    Campaign {
        name: "failing",
        about: "every operation failing once, before or after it was done",
        list: effects::list_failing,
        play: effects::play_failing,
    },
];

/// What is wanted of a campaign.
#[derive(Debug, Clone)]
pub struct Order {
    /// The programs.
    pub tools: Tools,
    /// Cases at once.
    pub jobs: usize,
    /// Only so many of the cases.
    pub rounds: Option<usize>,
    /// Which those are.
    pub seed: u64,
}

/// The cases of a campaign.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Their names, without the campaign's.
    pub cases: Vec<String>,
    /// What the counting found wrong already.
    pub wrong: Vec<String>,
    /// What the counting found worth telling.
    pub remarks: Vec<String>,
}

impl Order {
    /// A sample of the cases if only so many are wanted, in the order they had.
    pub fn sample<T>(&self, cases: Vec<T>) -> Vec<T> {
        let Some(rounds) = self.rounds.filter(|rounds| *rounds < cases.len()) else { return cases };
        let mut rng = Rng::new(self.seed);
        let mut left = cases.len();
        let mut wanted = rounds;
        cases
            .into_iter()
            .filter(|_| {
                let taken = rng.below(left as u64) < wanted as u64;
                left -= 1;
                wanted -= usize::from(taken);
                taken
            })
            .collect()
    }

    /// The scenes to count: a sample of cases needs only some.
    fn scenes(&self, which: impl Fn(&Scene) -> bool) -> Vec<Scene> {
        let rounds = self.rounds.map(|rounds| rounds.div_ceil(3));
        Self { rounds, ..self.clone() }.sample(scenes::all().into_iter().filter(which).collect())
    }

    /// Does one thing per item, a few at once; the results are in the items' order.
    pub fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        act: impl Fn(&T) -> Result<R, String> + Sync,
    ) -> Result<Vec<R>, String> {
        let next = Mutex::new(items.iter().enumerate());
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some((n, item)) = next.lock().ok().and_then(|mut next| next.next()) {
                        let result = act(item);
                        if let Ok(mut done) = done.lock() {
                            done.push((n, result));
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().map_err(|error| error.to_string())?;
        done.sort_by_key(|(n, _)| *n);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// Folders of one case.
#[derive(Debug)]
pub struct Room {
    dir: TempDir,
    /// The programs.
    pub tools: Tools,
}

impl Room {
    /// In memory where the machine has such a place: git and the journal sync much.
    pub fn new(tools: &Tools) -> Result<Self, String> {
        let shm = Path::new("/dev/shm");
        let parent = match std::env::var_os("TMPDIR") {
            None if shm.is_dir() => shm.to_owned(),
            _ => std::env::temp_dir(),
        };
        let dir = tempfile::Builder::new().prefix("chaos").tempdir_in(parent);
        let dir = dir.map_err(|error| error.to_string())?;
        Ok(Self { dir, tools: tools.clone() })
    }

    /// Sets the stage for a round.
    pub fn stage(&self, show: &Show) -> Result<Stage, String> {
        let folder = |name: &str| {
            let path = self.dir.path().join(name);
            std::fs::create_dir_all(&path).map(|()| path).map_err(|error| error.to_string())
        };
        Stage::set(&folder("place")?, &folder("outside")?, &self.tools, show)
    }

    /// Leaves the folders on disk and says where.
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}

/// How a case went.
#[derive(Debug)]
pub struct Outcome {
    /// Its whole name.
    pub name: String,
    /// What came of it; an error means that the attacker itself failed.
    pub played: Result<Played, String>,
    /// Where it is left, if it failed and was to be kept.
    pub left: Option<PathBuf>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// All promises kept.
    pub fn is_good(&self) -> bool {
        self.played.as_ref().is_ok_and(|played| played.violations.is_empty())
    }
}

/// Plays the case of a whole name, such as `points/one/7`.
pub fn play(tools: &Tools, name: &str, keep: bool) -> Outcome {
    let started = Instant::now();
    let mut words = name.split('/');
    let campaign = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let mut left = None;
    let played = match ALL.iter().find(|one| one.name == campaign) {
        None => Err(format!("there is no campaign {campaign:?}")),
        Some(campaign) => Room::new(tools).and_then(|room| {
            let played = (campaign.play)(&room, &words);
            let good = played.as_ref().is_ok_and(|played| played.violations.is_empty());
            if keep && !good {
                left = Some(room.keep());
            }
            played
        }),
    };
    Outcome { name: name.to_owned(), played, left, seconds: started.elapsed().as_secs_f64() }
}

/// The n-th word of a case's name as a number.
fn number(words: &[&str], n: usize) -> Result<u64, String> {
    let word = words.get(n).copied().unwrap_or_default();
    word.parse().map_err(|_| format!("no such case: {}", words.join("/")))
}

fn wish(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn order(rounds: Option<usize>, seed: u64) -> Order {
        let tools = Tools { mainstem: "".into(), agent: "".into(), oracle: "".into() };
        Order { tools, jobs: 3, rounds, seed }
    }

    #[test]
    fn a_sample_has_the_wanted_size_and_another_seed_has_others() {
        let cases: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let one = order(Some(20), 1).sample(cases.clone());
        assert_eq!(one.len(), 20);
        assert_eq!(one, order(Some(20), 1).sample(cases.clone()));
        assert_ne!(one, order(Some(20), 2).sample(cases.clone()));
        assert_eq!(order(None, 1).sample(cases.clone()), cases);
        assert_eq!(order(Some(1000), 1).sample(cases.clone()), cases);
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..50).collect();
        assert_eq!(order(None, 0).each(&items, |n| Ok(n * 2)).unwrap()[49], 98);
        assert!(order(None, 0).each(&items, |_| Err::<(), _>("no".to_owned())).is_err());
    }
}
