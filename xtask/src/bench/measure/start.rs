//! How long the binary takes to start and end, as a ratio to `true` started the same way.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Context;
use crate::{Verdict, shell};

const ROUNDS: usize = 41;

/// Prints the medians of both and their ratio; judges nothing.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let mut ours = Vec::with_capacity(ROUNDS);
    let mut floor = Vec::with_capacity(ROUNDS);
    // Alternating, so that a busy moment of the machine falls on both.
    for _ in 0..ROUNDS {
        ours.push(once(&context.binary, &["--version"], &context.scratch)?);
        floor.push(once(Path::new("true"), &[], &context.scratch)?);
    }
    let (ours, floor) = (median(ours), median(floor));
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    println!(
        "mainstem --version {ours:.1?}, true {floor:.1?}, ratio {ratio:.2} (medians of {ROUNDS})"
    );
    Ok(Verdict::Clean)
}

fn once(program: &Path, args: &[&str], dir: &Path) -> Result<Duration, String> {
    let begun = Instant::now();
    let ok = shell::succeeds(shell::command(program, dir).args(args).stdout(Stdio::null()))?;
    let took = begun.elapsed();
    if ok { Ok(took) } else { Err(format!("{} failed", program.display())) }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_slow_round() {
        let times = [1, 900, 2].map(Duration::from_millis).to_vec();
        assert_eq!(median(times), Duration::from_millis(2));
    }
}
