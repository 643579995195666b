//! Work goes on where it stopped: what an attempt leaves for the next one, and when that starts over
//! instead. A session is taken up only together with the work that it made.

use crate::attempt_policy;
use crate::attempt_work::{AttemptWork, WorkPlacement, WorkspaceContinuation};
use crate::fact::{Fact, FailureClass};
use crate::id::{Oid, TaskIx};
use crate::machine::Machine;
use crate::tasks::AttemptState;

/// How the next attempt at a task starts.
#[derive(Debug, Default)]
pub(super) struct AttemptStart {
    pub continues: Option<AttemptWork>,
    /// Over, although there is earlier work or an earlier session.
    pub fresh: bool,
    pub session: Option<String>,
}

impl Machine {
    /// Does the next attempt start over, whatever there is? A person or the settings say so.
    fn starts_over(&self, t: TaskIx) -> bool {
        let state = self.tasks.get(t);
        let class = state.last.as_ref().map(|last| last.class);
        state.fresh || class.is_some_and(|class| self.settings.run.start_over.contains(&class))
    }

    /// Does the next attempt start from work that was left?
    pub(super) fn keeps_work(&self, t: TaskIx) -> bool {
        self.tasks.get(t).kept_work.is_some() && !self.starts_over(t)
    }

    pub(super) fn next_attempt_start(&self, t: TaskIx, agent: &str) -> AttemptStart {
        let state = self.tasks.get(t);
        if self.starts_over(t) {
            let fresh = state.kept_work.is_some() || state.session.is_some();
            return AttemptStart { fresh, ..AttemptStart::default() };
        }
        let resumes =
            state.last.as_ref().is_some_and(|last| attempt_policy::may_resume_session(last.class));
        let session = state.session.as_ref().filter(|(owner, _)| resumes && owner == agent);
        // The merge that is laid out for whoever resolves a clash has all of that work in it.
        let merged = self.conflict_to_resolve(t).map(|clash| clash.attempt);
        let continues = state.kept_work.clone().filter(|work| Some(work.attempt) != merged);
        AttemptStart {
            continues,
            fresh: false,
            session: session.map(|(_, session)| session.clone()),
        }
    }

    /// How the workspace of the attempt under way is made from earlier work.
    pub(super) fn workspace_continuation(&self, t: TaskIx) -> Option<WorkspaceContinuation> {
        let work = self.tasks.get(t).current.as_ref()?.continues.clone()?;
        // What is below in a stack is not on the target branch yet, but what a reviewed pull request holds is
        // where its next attempt begins.
        let in_stack = self.lower_pull_request(t).is_some() && self.next_attempt_base(t).is_none();
        let place = if in_stack { WorkPlacement::Stays } else { work.placement() };
        let uncommitted = work.flawed;
        Some(WorkspaceContinuation { work, place, uncommitted })
    }

    /// The merge that is laid out in the workspace of the attempt under way, and what it starts with if
    /// that is not its base.
    pub fn workspace_start(&self, t: TaskIx) -> (Option<Oid>, Option<Oid>) {
        let current = self.tasks.get(t).current.as_ref();
        match current.and_then(|attempt| attempt.continued.as_ref()) {
            Some(there) if there.uncommitted => (Some(there.commit.clone()), None),
            Some(there) => (None, Some(there.commit.clone())),
            None => (self.merge_to_lay_out(t), None),
        }
    }

    /// Work that clashes is merged anew only for the first attempt that resolves it.
    pub(super) fn merge_to_lay_out(&self, t: TaskIx) -> Option<Oid> {
        let current = self.tasks.get(t).current.as_ref()?;
        let anew = current.continues.is_none();
        self.conflict_in_workspace(t).filter(|_| anew).map(|clash| clash.tip.clone())
    }

    /// The fold of what is left for the next attempt.
    pub(super) fn apply_kept_work(&mut self, t: TaskIx, fact: &Fact) {
        let goes_on_from = self.next_attempt_base(t).is_some();
        let stacked = self.lower_pull_request(t).is_some();
        let landings = self.train.landings();
        let state = self.tasks.state_mut(t);
        match fact {
            Fact::AttemptIntended { continues, fresh, session, .. } => {
                state.fresh = false;
                if *fresh {
                    state.kept_work = None;
                }
                // A new conversation knows nothing of the one before.
                if session.is_none() {
                    state.session = None;
                }
                if let Some(attempt) = state.current.as_mut() {
                    attempt.continues.clone_from(continues);
                    attempt.fresh = *fresh;
                    attempt.landings_seen = landings;
                }
            }
            Fact::WorkspaceReady { base, continued, .. } => {
                let Some(attempt) = state.current.as_mut() else { return };
                attempt.continued.clone_from(continued);
                if !goes_on_from || state.origin.is_none() {
                    state.origin = Some(base.clone());
                }
                if continued.as_ref().is_some_and(|there| there.moved) && !stacked {
                    state.began_after = state.began_after.max(attempt.landings_seen);
                }
                // Its snapshots are gone, and with them what the session remembers.
                if attempt.continues.is_some() && continued.is_none() {
                    attempt.session = None;
                    (state.kept_work, state.session) = (None, None);
                }
            }
            Fact::SnapshotTaken { attempt: n, commit, .. } => {
                let current = state.current.as_mut().filter(|a| a.n == *n);
                if let Some(attempt) = current.filter(|a| a.started_at.is_some()) {
                    attempt.snapshot = Some(commit.clone());
                }
            }
            Fact::AttemptFailed { class, .. } => {
                let origin = state.origin.clone().filter(|_| goes_on_from && !stacked);
                if let Some(left) =
                    state.current.as_ref().and_then(|a| work_left_by(a, *class, origin))
                {
                    state.kept_work = left;
                }
            }
            Fact::TaskRetried { hint, agent, fresh, .. } => {
                state.hint.clone_from(hint);
                if agent.is_some() {
                    state.agent.clone_from(agent);
                }
                if *fresh {
                    state.fresh = true;
                    state.conflict = None;
                }
            }
            Fact::TaskLanded { .. } => {
                (state.kept_work, state.session, state.origin) = (None, None, None);
                (state.hint, state.agent) = (None, None);
            }
            _ => {}
        }
    }
}

/// What an attempt left: some work, none, or (outer none) nobody looked and what was there before it
/// still counts.
fn work_left_by(
    attempt: &AttemptState,
    class: FailureClass,
    origin: Option<Oid>,
) -> Option<Option<AttemptWork>> {
    let start = attempt.base.as_ref()?;
    let work = |base: &Oid, commit: &Oid, flawed| AttemptWork {
        attempt: attempt.n,
        base: origin.clone().unwrap_or_else(|| base.clone()),
        commit: commit.clone(),
        class,
        flawed,
        unread: attempt.evidence.is_none(),
    };
    match (&attempt.evidence, &attempt.snapshot) {
        (Some(left), _) if left.tip == left.base => Some(None),
        (Some(left), _) => Some(Some(work(&left.base, &left.tip, !left.flaws.is_empty()))),
        (None, Some(commit)) => Some(Some(work(start, commit, false))),
        // Nobody could read it. What stands in its workspace is saved before that is used again, on top
        // of what it began with.
        (None, None) => {
            let begun = attempt.continued.as_ref().map_or(start, |there| &there.commit);
            Some(Some(work(start, begun, false)))
        }
    }
}
