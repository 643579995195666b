//! One provider, as all attempts share it: when it is left alone, how it is woken again, and when it
//! counts as broken. Pure; time comes in, and everything here is folded from facts.
//!
//! An incident is one limit, however many attempts run into it: what an attempt says that began before
//! the incident belongs to it and can only make the wait longer. After a wait one attempt goes first,
//! then two, then four: a provider that just said "too many" is not met by everybody at once.

use crate::fact::LimitKind;
use crate::id::Time;
use crate::limits;

/// While a provider is tried again, this long without a new limit doubles how many may try.
pub const RAMP_STEP_MS: u64 = 20_000;
/// So many at once are as good as no bound.
const RAMP_MAX: u32 = 1 << 10;
/// Longest rest of a provider that failed too often.
const BREAKER_WAIT_MS_MAX: u64 = 30 * 60 * 1000;
/// Longest part of a wait that is there only to spread those who wait.
const JITTER_MS_MAX: u64 = 30_000;

/// Whether attempts of a provider may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderStanding {
    /// As many as otherwise allowed.
    Free,
    /// At most so many at once.
    Ramps(u32),
    Rests,
}

/// A provider as far as we know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provider {
    until: Option<Time>,
    kind: LimitKind,
    message: String,
    /// When the present incident began; attempts that began before belong to it.
    incident: Option<Time>,
    incidents: u32,
    /// A quota is used up, and nobody has said that it is filled again.
    parked: bool,
    troubles: u32,
    opened: u32,
    ramp: Option<ProviderRamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProviderRamp {
    allowed: u32,
    /// Since when that many were let in without a new limit; none until the first was.
    since: Option<Time>,
}

/// What an attempt said of a limit.
#[derive(Debug, Clone, Copy)]
pub struct LimitReport<'a> {
    /// When it said so.
    pub at: Time,
    /// Since when the attempt has been under way.
    pub begun: Time,
    /// Leave the provider alone until then.
    pub until: Time,
    /// What kind of limit.
    pub kind: LimitKind,
    pub message: &'a str,
    /// It waits by itself, so somebody is trying already.
    pub retrying: bool,
}

impl Provider {
    /// An attempt ran into a limit.
    pub fn record_limit(&mut self, limit: &LimitReport<'_>) {
        let same = self.incident.is_some_and(|since| limit.begun <= since);
        if !same {
            self.incidents += 1;
            self.incident = Some(limit.at);
        }
        // A quota outlasts a rate limit that is met on the way.
        if !same || limit.kind == LimitKind::Quota || self.kind == LimitKind::Breaker {
            self.kind = limit.kind;
        }
        self.parked |= limit.kind == LimitKind::Quota;
        self.start_rest(limit.until, limit.message);
        let since = limit.retrying.then_some(limit.until);
        self.ramp = Some(ProviderRamp { allowed: 1, since });
    }

    /// It is left alone for another reason than an attempt's word.
    pub fn park(&mut self, kind: LimitKind, until: Time, message: &str) {
        self.kind = kind;
        match kind {
            LimitKind::Breaker => self.opened += 1,
            LimitKind::Quota => self.parked = true,
            LimitKind::Rate => {}
        }
        self.start_rest(until, message);
        self.ramp = Some(ProviderRamp { allowed: 1, since: None });
    }

    fn start_rest(&mut self, until: Time, message: &str) {
        self.until = Some(self.until.map_or(until, |had| had.max(until)));
        message.clone_into(&mut self.message);
    }

    /// A person says that it may be used again; it is still tried by one first.
    pub fn release(&mut self) {
        let ramp = self.ramp.map(|_| ProviderRamp { allowed: 1, since: None });
        *self = Self { ramp, message: std::mem::take(&mut self.message), ..Self::default() };
    }

    /// A person wants a task tried again: what was counted against the provider counts no more.
    pub fn clear_failures(&mut self) {
        self.incidents = 0;
    }

    /// An attempt is about to start.
    pub fn record_start(&mut self, at: Time) {
        if let Some(ramp) = &mut self.ramp {
            ramp.since.get_or_insert(at);
        }
    }

    /// It answered an attempt that has been under way since `begun`.
    pub fn record_answer(&mut self, at: Time, begun: Time) {
        if self.is_after_incident(at, begun) {
            self.troubles = 0;
            self.widen_ramp(at);
        }
    }

    /// An attempt of it ended without any complaint of it.
    pub fn record_success(&mut self, at: Time, begun: Time) {
        if self.is_after_incident(at, begun) {
            (self.incidents, self.troubles, self.opened) = (0, 0, 0);
            (self.until, self.parked) = (None, false);
            self.widen_ramp(at);
        }
    }

    /// Does this say anything of how it is now? What began before an incident does not, until that is
    /// over.
    fn is_after_incident(&self, at: Time, begun: Time) -> bool {
        let over = self.until.is_none_or(|until| until <= at);
        over && (!self.parked || self.incident.is_none_or(|since| begun > since))
    }

    fn widen_ramp(&mut self, at: Time) {
        let allowed = self.allowed_attempts(at).saturating_mul(2);
        self.ramp = (self.ramp.is_some() && allowed < RAMP_MAX)
            .then_some(ProviderRamp { allowed, since: Some(at) });
    }

    /// It failed an attempt: overloaded, unreachable, connection lost.
    pub fn record_failure(&mut self) {
        self.troubles += 1;
    }

    /// Has it failed so often in a row that it is to be left alone?
    pub fn is_broken(&self, bound: u32, at: Time) -> bool {
        bound > 0 && self.troubles >= bound && self.until.is_none_or(|until| until <= at)
    }

    /// How long, given the wait after the first time.
    pub fn breaker_wait_ms(&self, first_ms: u64) -> u64 {
        let doubled = first_ms.saturating_mul(1 << self.opened.min(16));
        doubled.min(BREAKER_WAIT_MS_MAX.max(first_ms))
    }

    /// Failures in a row.
    pub fn failures_in_row(&self) -> u32 {
        self.troubles
    }

    /// Whether attempts may start now. Without `auto_resume` a used-up quota waits for a person.
    pub fn standing(&self, now: Time, auto_resume: bool) -> ProviderStanding {
        if self.rests_until(now, auto_resume).is_some() {
            return ProviderStanding::Rests;
        }
        match self.ramp {
            Some(_) => ProviderStanding::Ramps(self.allowed_attempts(now)),
            None => ProviderStanding::Free,
        }
    }

    /// If it rests: until when; none inside if only a person ends it.
    pub fn rests_until(&self, now: Time, auto_resume: bool) -> Option<Option<Time>> {
        if self.parked && !auto_resume {
            return Some(None);
        }
        self.until.filter(|until| *until > now).map(Some)
    }

    fn allowed_attempts(&self, now: Time) -> u32 {
        let Some(ProviderRamp { allowed, since }) = self.ramp else { return RAMP_MAX };
        let steps = since.map_or(0, |since| now.since_ms(since) / RAMP_STEP_MS);
        let doublings = u32::try_from(steps).unwrap_or(u32::MAX).min(RAMP_MAX.ilog2());
        (allowed << doublings).min(RAMP_MAX)
    }

    /// When something changes here by itself.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        if let Some(until) = self.until.filter(|until| *until > now) {
            return Some(until);
        }
        let since = self.ramp?.since?;
        if self.allowed_attempts(now) >= RAMP_MAX {
            return None;
        }
        let steps = now.since_ms(since) / RAMP_STEP_MS;
        Some(since.plus_ms((steps + 1) * RAMP_STEP_MS))
    }

    /// What kind of limit it is, or was last.
    pub fn kind(&self) -> LimitKind {
        self.kind
    }
    /// What was said of it last.
    pub fn message(&self) -> &str {
        &self.message
    }
    /// Limits in a row, each counted once, since an attempt last went well.
    pub fn incidents(&self) -> u32 {
        self.incidents
    }
    /// When the present limit was first met.
    pub fn limited_since(&self) -> Option<Time> {
        self.incident
    }
    /// The end of the wait, past or not.
    pub fn wait_end(&self) -> Option<Time> {
        self.until
    }
}

/// For how long a provider is left alone by an agent's word: a wait that no provider asks for is not believed.
pub fn believed_wait_ms(kind: LimitKind, wait_ms: u64, usual_ms: u64) -> u64 {
    match kind {
        LimitKind::Rate if wait_ms > limits::RATE_WAIT_MS_PLAUSIBLE => usual_ms,
        _ => wait_ms.min(limits::PROVIDER_WAIT_MS_MAX),
    }
}

/// Added to a wait so that not everybody who waits for the same moment comes back at it: the same for
/// the same name, at most a tenth of the wait.
pub fn jitter_ms(name: &str, wait_ms: u64) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let most = (wait_ms / 10).min(JITTER_MS_MAX);
    // The high bits are the well mixed ones.
    if most == 0 { 0 } else { (hash >> 32) % (most + 1) }
}
