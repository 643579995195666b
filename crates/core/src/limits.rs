//! Numbers that bound things, each with its reason. What people may want to change is in
//! `config`; these are ours.

/// Attempts lost without a word (killed supervisor, reboot) before a task gives up. A task that
/// kills the machine three times should not get a fourth try by itself.
pub const CRASHES_MAX: u32 = 2;

/// Failures on our own side (no workspace, no process) before a task gives up.
pub const TRANSIENTS_MAX: u32 = 3;

/// First wait after such a failure; doubles each time up to [`TRANSIENT_WAIT_MS_MAX`].
pub const TRANSIENT_WAIT_MS: u64 = 500;

pub const TRANSIENT_WAIT_MS_MAX: u64 = 60_000;

/// How often a remote that says no to a push is asked. It may be another push at the same time; it is
/// more likely a rule there that will not change by itself.
pub const PUSH_REFUSALS_MAX: u32 = 3;

/// How often in a row a forge may say that a pull request is not there, or not for us, before its task
/// waits for a person. Asked once a minute: a token that is being renewed has its time.
pub const FORGE_REFUSALS_MAX: u32 = 5;

/// Failures of the provider (overloaded, connection lost) that one task lives through. More than of
/// our own side: outages last minutes, and a provider that is down is left alone by all meanwhile.
pub const OUTAGES_MAX: u32 = 8;

/// First wait after such a failure; doubles each time up to [`OUTAGE_WAIT_MS_MAX`].
pub const OUTAGE_WAIT_MS: u64 = 2_000;

pub const OUTAGE_WAIT_MS_MAX: u64 = 300_000;

/// Proposals and issues that are kept in mind per run; the journal has them all.
pub const REMARKS_MAX: usize = 1_000;

/// Times the same task is redone because its merge clashed, before a person is asked.
pub const CONFLICT_REWORKS_MAX: u32 = 2;

/// A longer wait for a rate limit is no wait that any provider asks for: the usual one is taken instead.
pub const RATE_WAIT_MS_PLAUSIBLE: u64 = 24 * 3600 * 1000;

/// Money that one report of an agent may name. More is a mistake or a lie, and is not counted.
pub const REPORT_USD_MAX: f64 = 1_000.0;

/// Longest wait for a provider that we take from an agent's word. A typo of an agent must not
/// park a run for a year.
pub const PROVIDER_WAIT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// Durations of a check that are kept to say how long it usually takes.
pub const GATE_TIMES_KEPT: usize = 9;

/// Characters of a reason that are kept in a fact.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Answered questions of a task that its next attempt is told of.
pub const ANSWERS_KEPT: usize = 30;

/// Tasks named in a chain of blocked ones; the middle of a longer one is left out.
pub const CHAIN_MAX: usize = 16;

/// Cuts a text for a fact, at a character boundary.
pub fn clip_for_fact(text: &str) -> String {
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
