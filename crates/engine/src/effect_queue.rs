//! Which effects run now. Effects of one task go one after the other, in order; the train has its
//! own line; short ones share a few threads' worth of room. Knows nothing of what they do.

use std::collections::{BTreeMap, VecDeque};

use mainstem_core::id::TaskIx;

/// Effects that touch git or the disk at once. More would only fight for two cores and one disk.
const SHORT_MAX: usize = 4;

/// Whose turn it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EffectQueueKey {
    Task(TaskIx),
    /// The train's merges and landings.
    Train,
    /// What one of its lanes verifies.
    Lane(u32),
    /// A snapshot of running work, apart from what the task itself waits for.
    Snapshot(TaskIx),
    /// Its questions to the answering agent, which may take long and hold up nothing else.
    Questions(TaskIx),
}

/// How long an effect may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectWeight {
    Short,
    /// Commands of the user: setup, gates.
    Long,
    /// Requests to somebody else's machine, which may never answer.
    Remote,
}

/// Handed back when the effect has been performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectTicket {
    key: EffectQueueKey,
    weight: EffectWeight,
}

pub struct EffectQueue<J> {
    waiting: BTreeMap<EffectQueueKey, VecDeque<(EffectWeight, J)>>,
    busy: BTreeMap<EffectQueueKey, EffectWeight>,
    turn_order: VecDeque<EffectQueueKey>,
    short_running: usize,
}

impl<J> EffectQueue<J> {
    pub fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            busy: BTreeMap::new(),
            turn_order: VecDeque::new(),
            short_running: 0,
        }
    }

    pub fn push(&mut self, key: EffectQueueKey, weight: EffectWeight, job: J) {
        self.waiting.entry(key).or_default().push_back((weight, job));
        if !self.turn_order.contains(&key) && !self.busy.contains_key(&key) {
            self.turn_order.push_back(key);
        }
    }

    /// An effect was performed.
    pub fn finish(&mut self, ticket: EffectTicket) {
        self.busy.remove(&ticket.key);
        if ticket.weight == EffectWeight::Short {
            self.short_running -= 1;
        }
        if self.waiting.contains_key(&ticket.key) {
            self.turn_order.push_back(ticket.key);
        }
    }

    /// The next effect that may run now.
    pub fn take_next(&mut self) -> Option<(EffectTicket, J)> {
        let at = self.turn_order.iter().position(|key| {
            self.waiting.get(key).and_then(VecDeque::front).is_some_and(|(weight, _)| {
                *weight != EffectWeight::Short || self.short_running < SHORT_MAX
            })
        })?;
        let key = self.turn_order.remove(at)?;
        let queue = self.waiting.get_mut(&key)?;
        let (weight, job) = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&key);
        }
        if weight == EffectWeight::Short {
            self.short_running += 1;
        }
        self.busy.insert(key, weight);
        Some((EffectTicket { key, weight }, job))
    }

    pub fn running_count(&self) -> usize {
        self.busy.len()
    }

    /// Is everything under way a request to somebody else's machine?
    pub fn runs_remote_effects_only(&self) -> bool {
        self.busy.values().all(|weight| *weight == EffectWeight::Remote)
    }

    /// Forgets all that wait; those under way go on.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.turn_order.clear();
    }
}

impl<J> Default for EffectQueue<J> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_of_one_task_wait_for_each_other_and_others_pass() {
        let mut queue = EffectQueue::new();
        let (a, b) = (EffectQueueKey::Task(TaskIx(0)), EffectQueueKey::Task(TaskIx(1)));
        queue.push(a, EffectWeight::Short, "a1");
        queue.push(a, EffectWeight::Short, "a2");
        queue.push(b, EffectWeight::Short, "b1");
        let (first, job) = queue.take_next().expect("something waits");
        assert_eq!(job, "a1");
        assert_eq!(queue.take_next().map(|(_, job)| job), Some("b1"));
        assert!(queue.take_next().is_none(), "a2 waits for a1");
        queue.finish(first);
        assert_eq!(queue.take_next().map(|(_, job)| job), Some("a2"));
    }

    #[test]
    fn long_effects_do_not_use_up_the_room_of_short_ones() {
        let mut queue = EffectQueue::new();
        for n in 0..10 {
            queue.push(EffectQueueKey::Task(TaskIx(n)), EffectWeight::Long, n);
        }
        for n in 10..20 {
            queue.push(EffectQueueKey::Task(TaskIx(n)), EffectWeight::Short, n);
        }
        let running: Vec<u32> =
            std::iter::from_fn(|| queue.take_next().map(|(_, job)| job)).collect();
        assert_eq!(running.len(), 10 + SHORT_MAX);
    }
}
