//! When to ask again: rate limits by their headers, stumbles by a bounded backoff. Pure.

use crate::wire::{ForgeHttpMethod, ForgeHttpResponse};

/// Tries of a request that only looks.
pub const TRIES_MAX: u32 = 4;
/// First wait after a stumble; doubles.
const STUMBLE_MS: u64 = 250;
const STUMBLE_MS_MAX: u64 = 4_000;
/// Wait for a limit that names no time, as the forge's own advice has it; doubles.
const UNNAMED_MS: u64 = 60_000;
const UNNAMED_MS_MAX: u64 = 15 * 60_000;
/// No forge rests longer than its window of an hour.
const REST_MS_MAX: u64 = 3_700_000;

/// What to do after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeRetryAdvice {
    /// It is an answer.
    Use,
    /// The same once more, after so many milliseconds.
    Again(u64),
    /// Nothing at all before so many milliseconds have passed.
    Rest(u64),
    /// It stumbled; whether the wish was granted is not known.
    Unsure,
}

/// Judges an answer to the `tries`-th try (from 1) at `now_s` seconds since 1970.
pub fn advise_retry(
    verb: ForgeHttpMethod,
    response: &ForgeHttpResponse,
    tries: u32,
    now_s: u64,
) -> ForgeRetryAdvice {
    match response.status {
        403 | 429 => rate_limit_wait_ms(response, tries, now_s)
            .map_or(ForgeRetryAdvice::Use, ForgeRetryAdvice::Rest),
        500..=599 if verb == ForgeHttpMethod::Get && tries < TRIES_MAX => {
            ForgeRetryAdvice::Again(backoff_ms(tries))
        }
        500..=599 => ForgeRetryAdvice::Unsure,
        _ => ForgeRetryAdvice::Use,
    }
}

/// The wait before the next try after a stumble.
pub fn backoff_ms(tries: u32) -> u64 {
    (STUMBLE_MS << tries.saturating_sub(1).min(8)).min(STUMBLE_MS_MAX)
}

/// How long a limit lasts; none if the answer is no limit but a refusal.
fn rate_limit_wait_ms(response: &ForgeHttpResponse, tries: u32, now_s: u64) -> Option<u64> {
    let number = |name: &str| response.header(name)?.trim().parse::<u64>().ok();
    if let Some(seconds) = number("retry-after") {
        return Some(seconds.saturating_mul(1_000).clamp(1_000, REST_MS_MAX));
    }
    if number("x-ratelimit-remaining") == Some(0)
        && let Some(reset) = number("x-ratelimit-reset")
    {
        let left = reset.saturating_sub(now_s).saturating_mul(1_000);
        return Some(left.clamp(1_000, REST_MS_MAX));
    }
    let said = String::from_utf8_lossy(&response.body).to_lowercase();
    let limited = response.status == 429 || said.contains("rate limit");
    limited.then(|| (UNNAMED_MS << tries.saturating_sub(1).min(8)).min(UNNAMED_MS_MAX))
}

/// How much of the hour's requests is left, where the answer says so: remaining, and when it is full
/// again in seconds since 1970.
pub fn remaining_quota(response: &ForgeHttpResponse) -> Option<(u64, u64)> {
    let number = |name: &str| response.header(name)?.trim().parse::<u64>().ok();
    Some((number("x-ratelimit-remaining")?, number("x-ratelimit-reset")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> ForgeHttpResponse {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ForgeHttpResponse { status, headers, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn limits_are_told_from_refusals_and_last_as_long_as_they_say() {
        let of =
            |response: ForgeHttpResponse| advise_retry(ForgeHttpMethod::Put, &response, 1, 1_000);
        assert_eq!(of(answer(403, &[("retry-after", "7")], "")), ForgeRetryAdvice::Rest(7_000));
        let primary = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")];
        assert_eq!(of(answer(403, &primary, "")), ForgeRetryAdvice::Rest(30_000));
        assert_eq!(of(answer(429, &primary, "")), ForgeRetryAdvice::Rest(30_000));
        let said = "You have exceeded a secondary rate limit";
        assert_eq!(of(answer(403, &[], said)), ForgeRetryAdvice::Rest(60_000));
        assert_eq!(
            of(answer(403, &[], "Resource not accessible by integration")),
            ForgeRetryAdvice::Use
        );
        assert_eq!(
            of(answer(429, &[("retry-after", "99999999")], "")),
            ForgeRetryAdvice::Rest(3_700_000)
        );
        assert_eq!(of(answer(404, &[], "")), ForgeRetryAdvice::Use);
    }

    #[test]
    fn only_what_looks_is_tried_again_and_not_for_ever() {
        let get = |tries| advise_retry(ForgeHttpMethod::Get, &answer(502, &[], ""), tries, 0);
        assert_eq!(
            [get(1), get(2), get(3)].map(|a| matches!(a, ForgeRetryAdvice::Again(_))),
            [true; 3]
        );
        assert_eq!(get(TRIES_MAX), ForgeRetryAdvice::Unsure);
        assert_eq!(
            advise_retry(ForgeHttpMethod::Post, &answer(500, &[], ""), 1, 0),
            ForgeRetryAdvice::Unsure
        );
        assert!(backoff_ms(60) <= STUMBLE_MS_MAX);
    }
}
