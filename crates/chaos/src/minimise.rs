//! Makes a failing round smaller: fewer faults, fewer tasks, as long as it still fails. Knows nothing
//! of how a round is played.

use crate::scenario::ChaosScenario;

/// A smaller round for which `fails` still says so. It is asked at most `tries` times.
pub fn minimise(
    show: &ChaosScenario,
    tries: usize,
    mut fails: impl FnMut(&ChaosScenario) -> bool,
) -> ChaosScenario {
    let mut best = show.clone();
    let mut left = tries;
    let mut ask = |show: &ChaosScenario| {
        let may = left > 0;
        left = left.saturating_sub(1);
        may && fails(show)
    };
    let mut size = best.faults.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < best.faults.len() {
            let mut smaller = best.clone();
            smaller.faults.drain(start..(start + size).min(best.faults.len()));
            if ask(&smaller) {
                best = smaller;
            } else {
                start += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    for n in (0..best.scripts.len()).rev() {
        let task = best.scripts[n].task.clone();
        let needed = best.scripts.iter().any(|script| script.needs.contains(&task));
        if needed || best.scripts.len() == 1 {
            continue;
        }
        let mut smaller = best.clone();
        smaller.scripts.remove(n);
        if ask(&smaller) {
            best = smaller;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{ChaosFault, ChaosFaultKind};

    fn show() -> ChaosScenario {
        let mut show = ChaosScenario::draw(7);
        show.faults = (0..9)
            .map(|at| ChaosFault { at, delay_ms: 0, what: ChaosFaultKind::KillEngine })
            .chain([ChaosFault { at: 9, delay_ms: 0, what: ChaosFaultKind::KillGit }])
            .collect();
        show
    }

    #[test]
    fn only_the_fault_that_matters_is_left() {
        let culprit = |show: &ChaosScenario| {
            show.faults.iter().any(|fault| fault.what == ChaosFaultKind::KillGit)
        };
        let small = minimise(&show(), 100, culprit);
        assert_eq!(small.faults.len(), 1);
        assert_eq!(small.faults[0].what, ChaosFaultKind::KillGit);
        assert_eq!(small.scripts.len(), 1);
    }

    #[test]
    fn a_round_that_never_fails_again_stays_as_it_is() {
        assert_eq!(minimise(&show(), 100, |_| false), show());
    }

    #[test]
    fn the_tries_are_kept_to() {
        let mut asked = 0;
        minimise(&show(), 5, |_| {
            asked += 1;
            false
        });
        assert_eq!(asked, 5);
    }
}
