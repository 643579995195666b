//! Campaigns: whole families of cases that are not drawn but counted out, one by one. A case is its
//! name, so that a failed one can be played again by it; a campaign lists the names and plays them.

pub mod effects;
pub mod journal_cuts;
pub mod crash_points;
pub mod fixed_scenarios;
pub mod sweep;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use mainstem_testkit::SeededRng;
use tempfile::TempDir;

use fixed_scenarios::FixedScenario;

use crate::fixture::{ChaosFixture, ChaosPrograms};
use crate::run_round::RoundResult;
use crate::scenario::ChaosScenario;

/// One family of cases.
#[derive(Debug, Clone, Copy)]
pub struct ChaosCampaign {
    /// First word of its cases' names.
    pub name: &'static str,
    pub about: &'static str,
    /// Counts its cases out.
    pub list: fn(&CampaignRequest) -> Result<CampaignCases, String>,
    /// Plays the case of these words (the name's words but the first).
    pub play: fn(&CaseFolders, &[&str]) -> Result<RoundResult, String>,
}

pub const ALL: &[ChaosCampaign] = &[
    ChaosCampaign {
        name: "points",
        about: "a death at every crash point",
        list: crash_points::list,
        play: crash_points::play_one,
    },
    ChaosCampaign {
        name: "pairs",
        about: "a death at every crash point, and one at every point of the life after",
        list: crash_points::list_pairs,
        play: crash_points::play_pair,
    },
    ChaosCampaign {
        name: "journal",
        about: "a journal that lost its end, at every index, with the world ahead of it",
        list: journal_cuts::list,
        play: journal_cuts::play_one,
    },
    ChaosCampaign {
        name: "twice",
        about: "every effect performed twice",
        list: effects::list_twice,
        play: effects::play_twice,
    },
    ChaosCampaign {
        name: "failing",
        about: "every operation failing once, before or after it was done",
        list: effects::list_failing,
        play: effects::play_failing,
    },
];

/// What is wanted of a campaign.
#[derive(Debug, Clone)]
pub struct CampaignRequest {
    pub tools: ChaosPrograms,
    pub jobs: usize,
    /// Only so many of the cases.
    pub rounds: Option<usize>,
    pub seed: u64,
}

/// The cases of a campaign.
#[derive(Debug, Clone, Default)]
pub struct CampaignCases {
    /// Their names, without the campaign's.
    pub cases: Vec<String>,
    /// What the counting found wrong already.
    pub wrong: Vec<String>,
    /// What the counting found worth telling.
    pub remarks: Vec<String>,
}

impl CampaignRequest {
    /// A sample of the cases if only so many are wanted, in the order they had.
    pub fn sample<T>(&self, cases: Vec<T>) -> Vec<T> {
        let Some(rounds) = self.rounds.filter(|rounds| *rounds < cases.len()) else { return cases };
        let mut rng = SeededRng::new(self.seed);
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
    fn scenes(&self, which: impl Fn(&FixedScenario) -> bool) -> Vec<FixedScenario> {
        let rounds = self.rounds.map(|rounds| rounds.div_ceil(3));
        Self { rounds, ..self.clone() }
            .sample(fixed_scenarios::all().into_iter().filter(which).collect())
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
pub struct CaseFolders {
    dir: TempDir,
    pub tools: ChaosPrograms,
}

impl CaseFolders {
    /// In memory where the machine has such a place: git and the journal sync much.
    pub fn new(tools: &ChaosPrograms) -> Result<Self, String> {
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
    pub fn stage(&self, show: &ChaosScenario) -> Result<ChaosFixture, String> {
        let folder = |name: &str| {
            let path = self.dir.path().join(name);
            std::fs::create_dir_all(&path).map(|()| path).map_err(|error| error.to_string())
        };
        ChaosFixture::set(&folder("place")?, &folder("outside")?, &self.tools, show)
    }

    /// Leaves the folders on disk and says where.
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}

/// How a case went.
#[derive(Debug)]
pub struct CaseOutcome {
    pub name: String,
    /// What came of it; an error means that the attacker itself failed.
    pub played: Result<RoundResult, String>,
    /// Where it is left, if it failed and was to be kept.
    pub left: Option<PathBuf>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl CaseOutcome {
    pub fn is_good(&self) -> bool {
        self.played.as_ref().is_ok_and(|played| played.violations.is_empty())
    }
}

/// Plays the case of a whole name, such as `points/one/7`.
pub fn play(tools: &ChaosPrograms, name: &str, keep: bool) -> CaseOutcome {
    let started = Instant::now();
    let mut words = name.split('/');
    let campaign = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let mut left = None;
    let played = match ALL.iter().find(|one| one.name == campaign) {
        None => Err(format!("there is no campaign {campaign:?}")),
        Some(campaign) => CaseFolders::new(tools).and_then(|room| {
            let played = (campaign.play)(&room, &words);
            let good = played.as_ref().is_ok_and(|played| played.violations.is_empty());
            if keep && !good {
                left = Some(room.keep());
            }
            played
        }),
    };
    CaseOutcome { name: name.to_owned(), played, left, seconds: started.elapsed().as_secs_f64() }
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

    fn order(rounds: Option<usize>, seed: u64) -> CampaignRequest {
        let tools = ChaosPrograms { mainstem: "".into(), agent: "".into(), oracle: "".into() };
        CampaignRequest { tools, jobs: 3, rounds, seed }
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
