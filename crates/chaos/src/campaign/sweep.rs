//! Plays the cases of a campaign, a few at once, and sums up. Says what happens to whoever asked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{CampaignRequest, CaseOutcome, play};

/// What came of many cases.
#[derive(Debug, Default)]
pub struct SweepTotals {
    pub cases: usize,
    /// Cases in which nothing was fired: their place was not reached.
    pub idle: usize,
    /// How often the product was started.
    pub lives: usize,
    /// What was fired, how often.
    pub fired: BTreeMap<String, usize>,
    /// Names of those that failed, with the first thing wrong.
    pub failed: Vec<String>,
    /// Cases that could not be played.
    pub broken: Vec<String>,
    /// Cases left when the time was up.
    pub left: usize,
}

impl SweepTotals {
    fn take(&mut self, outcome: &CaseOutcome) {
        self.cases += 1;
        match &outcome.played {
            Err(why) => self.broken.push(format!("{}: {why}", outcome.name)),
            Ok(played) => {
                self.lives += played.lives;
                self.idle += usize::from(played.fired.is_empty());
                for name in &played.fired {
                    *self.fired.entry(name.clone()).or_default() += 1;
                }
                if let Some(first) = played.violations.first() {
                    let line = first.0.lines().next().unwrap_or_default();
                    self.failed.push(format!("{}: {line}", outcome.name));
                }
            }
        }
    }

    /// All promises kept, in every case.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.broken.is_empty()
    }
}

impl fmt::Display for SweepTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases, {} lives, {} failed, {} broken",
            self.cases,
            self.lives,
            self.failed.len(),
            self.broken.len()
        )?;
        if self.idle > 0 {
            write!(f, ", {} whose place was not reached", self.idle)?;
        }
        if self.left > 0 {
            write!(f, ", {} not played", self.left)?;
        }
        Ok(())
    }
}

/// Word of a case that ended, or now and then of how far it all is.
#[derive(Debug)]
pub enum SweepProgress<'a> {
    /// A case ended badly.
    Bad(&'a CaseOutcome),
    /// So many of so many are done, the last of them this one.
    Progress(usize, usize, &'a CaseOutcome),
}

const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Plays the cases of these whole names.
pub fn tour(
    order: &CampaignRequest,
    names: &[String],
    keep: bool,
    until: Option<Instant>,
    tell: &(dyn Fn(SweepProgress<'_>) + Sync),
) -> Result<SweepTotals, String> {
    let sum = Mutex::new((SweepTotals::default(), Instant::now()));
    order.each(names, |name| {
        if until.is_some_and(|until| Instant::now() >= until) {
            if let Ok(mut sum) = sum.lock() {
                sum.0.left += 1;
            }
            return Ok(());
        }
        let outcome = play(&order.tools, name, keep);
        if !outcome.is_good() {
            tell(SweepProgress::Bad(&outcome));
        }
        let mut sum = sum.lock().map_err(|error| error.to_string())?;
        sum.0.take(&outcome);
        if sum.1.elapsed() > PROGRESS_EVERY {
            sum.1 = Instant::now();
            tell(SweepProgress::Progress(sum.0.cases, names.len(), &outcome));
        }
        Ok(())
    })?;
    sum.into_inner().map(|(sum, _)| sum).map_err(|error| error.to_string())
}
