//! The timeline of a run: the phases of every attempt, times in which nothing happened, and what is expected.

use std::collections::BTreeMap;

use mainstem_api::timeline::{
    AttemptTimeline, TIMELINE_SCHEMA, TimelineForecast, TimelineGap, TimelineReport,
    TimelineSegment,
};
use mainstem_core::fact::Fact;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_store::JournalRecord;

use crate::query::follower::JournalFollower;
use crate::query::status::task_id;
use crate::query::{RunLookupError, RunReader};

/// A time without a fact and without active tasks is a gap from this length on.
const GAP_MS: i64 = 10 * 60 * 1_000;

impl RunReader {
    /// The timeline up to the place that is shown.
    pub fn timeline(&self) -> Result<TimelineReport, RunLookupError> {
        let mut timeline = TimelineFold::default();
        if let (Some(reader), Some(run)) = (&self.reader, &self.run) {
            let mut follower = JournalFollower::new(run.clone(), self.machine.settings());
            follower.advance_with(&**reader, self.seq, &mut |record, fact, machine| {
                timeline.apply_fact(record, fact, machine);
            })?;
        }
        let now = self.now();
        let machine = &self.machine;
        let ends = machine.expectations(now).ends;
        let forecast = machine.tasks().all_tasks().filter_map(|t| {
            let expected_end = ends[t.index()]?.0;
            Some(TimelineForecast { task: task_id(machine, t), expected_end })
        });
        Ok(TimelineReport {
            schema: TIMELINE_SCHEMA.to_owned(),
            run: self.run.as_ref().map(ToString::to_string),
            seq: self.seq,
            now: now.0,
            attempts: timeline.attempts,
            gaps: timeline.gaps,
            forecast: forecast.collect(),
        })
    }
}

/// The timeline as the facts tell it.
#[derive(Default)]
struct TimelineFold {
    attempts: Vec<AttemptTimeline>,
    gaps: Vec<TimelineGap>,
    /// Where the newest attempt of each task is in `attempts`.
    newest: BTreeMap<TaskIx, usize>,
    /// When the last fact was written, and whether a task was active then.
    last: Option<(i64, bool)>,
}

impl TimelineFold {
    fn apply_fact(&mut self, record: &JournalRecord, fact: &Fact, machine: &Machine) {
        let at = record.at_ms;
        if let Some((from, false)) = self.last
            && at - from > GAP_MS
        {
            self.gaps.push(TimelineGap { from, to: at });
        }
        self.last = Some((at, machine.tasks().active_tasks().next().is_some()));
        let task = fact.task().and_then(|id| machine.graph().index_of(id.as_str()));
        let Some(task) = task else { return };
        let state = machine.tasks().get(task);
        if state.attempts == 0 {
            return;
        }
        let place = self.newest.get(&task).copied();
        let known = place.filter(|place| self.attempts[*place].attempt == state.attempts);
        let place = known.unwrap_or_else(|| {
            let (task, attempt) = (task_id(machine, task), state.attempts);
            self.attempts.push(AttemptTimeline { task, attempt, segments: Vec::new() });
            self.attempts.len() - 1
        });
        self.newest.insert(task, place);
        enter_phase(&mut self.attempts[place].segments, state.phase(), at);
    }
}

/// Ends the segment that lasts, if the phase is another one, and begins the next; a phase that is over has no segment.
fn enter_phase(segments: &mut Vec<TimelineSegment>, phase: Phase, at: i64) {
    let word = phase.as_str();
    if let Some(last) = segments.last_mut().filter(|last| last.to.is_none()) {
        if last.phase == word {
            return;
        }
        last.to = Some(at);
    }
    if phase.is_active() {
        segments.push(TimelineSegment { phase: word.to_owned(), from: at, to: None });
    }
}
