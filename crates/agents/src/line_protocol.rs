//! The line protocol: the JSON lines that an agent, or whatever drives one, may print, and the line that
//! answers it.
//!
//! A line is ours only if it is one JSON object with a text under the key `mainstem`. Everything
//! else is log: prose about limits or questions means nothing here, however it is worded.

use mainstem_core::fact::{AgentFault, CostBasis, Usage};
use serde_json::{Map, Value};

/// Longer lines are log. No message of ours comes near; reading one would cost memory for nothing.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Texts from an agent end up in the journal, so each is cut here.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;
/// More options than a person would read; also the most proofs or needs that are kept.
pub const OPTIONS_MAX: usize = 32;
/// Names of sessions, models and references are short; longer ones are none.
pub const NAME_BYTES_MAX: usize = 512;
/// The longest wait an agent can ask for: a weekly quota. More is taken as this.
pub const WAIT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;
/// A token count above this is a broken counter, not usage of one attempt.
pub const TOKENS_MAX: u64 = 1_000_000_000_000;

/// Something an agent said that means more than log.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The agent's own name for the conversation, to take it up again later.
    Session { id: String },
    /// Tokens and money spent since the last such line.
    Usage(Usage),
    /// The provider refuses more work for now.
    RateLimited {
        /// When to try again, if it was said.
        retry_after_ms: Option<u64>,
        /// The same as a moment, in milliseconds since the epoch.
        reset_at_ms: Option<i64>,
        /// What the provider said; may be empty.
        message: String,
        /// The agent waits by itself and goes on.
        retrying: bool,
    },
    /// The provider's quota is used up.
    QuotaExhausted {
        /// When it is filled again, in milliseconds since the epoch.
        reset_at_ms: Option<i64>,
        /// Which quota, in the provider's words; may be empty.
        window: String,
        /// What the provider said; may be empty.
        message: String,
    },
    /// The provider, or the agent's program, gave up.
    Failed {
        fault: AgentFault,
        /// What was said; may be empty.
        message: String,
        /// The command that helps.
        help: Option<String>,
    },
    /// A sign of life.
    Progress {
        /// What it is at; may be empty.
        text: String,
        /// The tool it uses.
        tool: Option<String>,
    },
    /// A question; the agent waits for the answer.
    Ask {
        question: String,
        options: Vec<String>,
        /// The answer to take when nobody answers in time.
        default: Option<String>,
        /// How long the agent is willing to wait.
        deadline_ms: Option<u64>,
        /// The asker's own name for it, which its answer carries.
        reference: Option<String>,
    },
    /// The agent says that it is done.
    ClaimedDone {
        /// What it did; may be empty.
        summary: String,
        /// What it offers as proof.
        evidence: Vec<String>,
    },
    /// Something is wrong that is not part of the task.
    Issue {
        /// In a few words.
        title: String,
        /// In more; may be empty.
        text: String,
        /// As the agent sees it; may be empty.
        severity: String,
    },
    /// A further task, in the agent's opinion.
    ProposeTask {
        /// Its id, if the agent named one.
        id: Option<String>,
        /// In a few words.
        title: String,
        /// What to do; may be empty.
        description: String,
        /// What it would need.
        needs: Vec<String>,
    },
    /// The task needs no change.
    NothingToDo { reason: String },
    /// The task cannot be done as it stands.
    Blocked { reason: String },
}

/// Reads an agent's standard output, one line at a time.
pub trait AgentOutputParser: Send {
    /// The events in one line, with or without its end. Any length, any bytes.
    fn parse_line(&mut self, line: &[u8]) -> Vec<AgentEvent>;
}

/// The line that answers a question, with its newline: to be written to the agent's standard input
/// as it is.
///
/// It reads `{"mainstem":"answer","question":"Q1","text":"…","answer":"…"}`: the answer stands under
/// both words, because people look for either. It comes after the prompt on the
/// same stream, so an agent skips lines until one has `answer` under the key `mainstem`. The answer to a
/// question that was asked with a `ref` carries the same one.
pub fn answer_line(question_id: &str, text: &str, reference: Option<&str>) -> String {
    let (question, text) = (Value::from(question_id), Value::from(text));
    let reference = reference.map(|name| format!(",\"ref\":{}", Value::from(name)));
    let reference = reference.unwrap_or_default();
    format!(
        "{{\"mainstem\":\"answer\",\"question\":{question},\"text\":{text},\"answer\":{text}{reference}}}\n"
    )
}

/// Parser of the `command` protocol. Every line stands alone, so there is nothing to remember.
pub(crate) struct JsonLineParser;

impl AgentOutputParser for JsonLineParser {
    fn parse_line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        parse_event(line).into_iter().collect()
    }
}

fn parse_event(line: &[u8]) -> Option<AgentEvent> {
    if line.len() > LINE_BYTES_MAX || line.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let fields = parse_object(line)?;
    match fields.get("mainstem")?.as_str()? {
        "session" => Some(AgentEvent::Session { id: short_name(&fields, "id")? }),
        "usage" => parse_usage(&fields),
        "rate_limited" => Some(AgentEvent::RateLimited {
            retry_after_ms: seconds_as_ms(&fields, "retry_after"),
            reset_at_ms: timestamp_as_ms(&fields, "reset_at"),
            message: text_or_empty(&fields, "message"),
            retrying: fields.get("retrying") == Some(&Value::Bool(true)),
        }),
        "quota_exhausted" => Some(AgentEvent::QuotaExhausted {
            reset_at_ms: timestamp_as_ms(&fields, "reset_at"),
            window: text_or_empty(&fields, "window"),
            message: text_or_empty(&fields, "message"),
        }),
        "failed" => Some(AgentEvent::Failed {
            fault: AgentFault::from_word(fields.get("class")?.as_str()?),
            message: text_or_empty(&fields, "message"),
            help: text_field(&fields, "help").filter(|help| !help.trim().is_empty()),
        }),
        "progress" => Some(AgentEvent::Progress {
            text: text_or_empty(&fields, "text"),
            tool: short_name(&fields, "tool"),
        }),
        "ask" => parse_question(&fields),
        "claimed_done" => Some(AgentEvent::ClaimedDone {
            summary: text_or_empty(&fields, "summary"),
            evidence: text_list(&fields, "evidence"),
        }),
        "issue" => Some(AgentEvent::Issue {
            title: title_text(&fields)?,
            text: text_or_empty(&fields, "text"),
            severity: short_name(&fields, "severity").unwrap_or_default(),
        }),
        "propose_task" => Some(AgentEvent::ProposeTask {
            id: short_name(&fields, "id"),
            title: title_text(&fields)?,
            description: text_or_empty(&fields, "description"),
            needs: text_list(&fields, "needs"),
        }),
        "nothing_to_do" => Some(AgentEvent::NothingToDo { reason: reason_text(&fields) }),
        "blocked" => Some(AgentEvent::Blocked { reason: reason_text(&fields) }),
        _ => None,
    }
}

fn parse_object(line: &[u8]) -> Option<Map<String, Value>> {
    let line = String::from_utf8_lossy(line);
    let value = match serde_json::from_str(&line) {
        Ok(value) => value,
        Err(_) => serde_json::from_str(&with_finite_numbers(&line)).ok()?,
    };
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

/// Replaces numbers that JSON has no room for. Common encoders print `NaN` and `Infinity`, and a
/// rate limit must not be missed because its time was nonsense.
fn with_finite_numbers(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let token = match first {
            '"' => json_string_len(rest),
            _ if is_bare_word_char(first) => {
                rest.find(|c| !is_bare_word_char(c)).unwrap_or(rest.len())
            }
            other => other.len_utf8(),
        };
        let (word, tail) = rest.split_at(token);
        out.push_str(finite_number(word));
        rest = tail;
    }
    out
}

fn is_bare_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

fn finite_number(word: &str) -> &str {
    match word {
        "NaN" => "null",
        "Infinity" => "1e300",
        "-Infinity" => "-1e300",
        _ if !word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => word,
        _ => match word.parse::<f64>() {
            Ok(number) if number == f64::INFINITY => "1e300",
            Ok(number) if number == f64::NEG_INFINITY => "-1e300",
            _ => word,
        },
    }
}

/// Length of the JSON string that `text` starts with, quotes included; all of it if it never ends.
fn json_string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn parse_usage(fields: &Map<String, Value>) -> Option<AgentEvent> {
    let input = token_count(fields, "input_tokens");
    let output = token_count(fields, "output_tokens");
    // Whether it can be true is judged where it is counted, so that people are told.
    let cost_usd = fields.get("cost_usd").and_then(Value::as_f64);
    let cache_read = token_count(fields, "cache_read_tokens");
    let cache_write = token_count(fields, "cache_write_tokens");
    let counted = [input, output, cache_read, cache_write];
    if counted.iter().all(Option::is_none) && cost_usd.is_none() {
        return None;
    }
    let basis = match fields.get("basis").and_then(Value::as_str) {
        Some("reported") => Some(CostBasis::Reported),
        Some("estimated") => Some(CostBasis::Estimated),
        Some("included") => Some(CostBasis::Included),
        _ => None,
    };
    Some(AgentEvent::Usage(Usage {
        input_tokens: input.unwrap_or(0),
        output_tokens: output.unwrap_or(0),
        cache_read_tokens: cache_read.unwrap_or(0),
        cache_write_tokens: cache_write.unwrap_or(0),
        cost_usd,
        model: short_name(fields, "model"),
        basis,
        answering: None,
    }))
}

fn token_count(fields: &Map<String, Value>, key: &str) -> Option<u64> {
    let value = fields.get(key)?;
    let whole = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let fits = number.fract() == 0.0 && (0.0..=TOKENS_MAX as f64).contains(&number);
        fits.then_some(number as u64)
    })?;
    (whole <= TOKENS_MAX).then_some(whole)
}

/// A time in seconds as milliseconds, from none at all to [`WAIT_MS_MAX`].
fn seconds_as_ms(fields: &Map<String, Value>, key: &str) -> Option<u64> {
    let seconds = fields.get(key)?.as_f64().filter(|seconds| !seconds.is_nan())?;
    Some((seconds * 1000.0).ceil().clamp(0.0, WAIT_MS_MAX as f64) as u64)
}

/// A moment in seconds since the epoch as milliseconds. What cannot be one is unknown.
fn timestamp_as_ms(fields: &Map<String, Value>, key: &str) -> Option<i64> {
    let seconds = fields.get(key)?.as_f64().filter(|at| (0.0..=EPOCH_SECONDS_MAX).contains(at))?;
    Some((seconds * 1000.0).ceil() as i64)
}

/// The year 9999: a later moment is a broken clock, or milliseconds taken for seconds.
const EPOCH_SECONDS_MAX: f64 = 253_402_300_799.0;

fn parse_question(fields: &Map<String, Value>) -> Option<AgentEvent> {
    let question = text_field(fields, "question").filter(|question| !question.trim().is_empty())?;
    Some(AgentEvent::Ask {
        question,
        options: text_list(fields, "options"),
        default: text_field(fields, "default"),
        deadline_ms: seconds_as_ms(fields, "deadline"),
        reference: short_name(fields, "ref"),
    })
}

fn text_list(fields: &Map<String, Value>, key: &str) -> Vec<String> {
    let all = fields.get(key).and_then(Value::as_array).into_iter().flatten();
    let texts = all.filter_map(Value::as_str).take(OPTIONS_MAX);
    texts.map(|text| truncate_text(text, TEXT_BYTES_MAX).to_owned()).collect()
}

fn reason_text(fields: &Map<String, Value>) -> String {
    text_or_empty(fields, "reason")
}

fn text_or_empty(fields: &Map<String, Value>, key: &str) -> String {
    text_field(fields, key).unwrap_or_default()
}

fn title_text(fields: &Map<String, Value>) -> Option<String> {
    text_field(fields, "title").filter(|title| !title.trim().is_empty())
}

/// A short text that names something. Cut it would name something else, so a long one is none.
fn short_name(fields: &Map<String, Value>, key: &str) -> Option<String> {
    let name = fields.get(key)?.as_str()?.trim();
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    (fits && !name.chars().any(char::is_control)).then(|| name.to_owned())
}

fn text_field(fields: &Map<String, Value>, key: &str) -> Option<String> {
    Some(truncate_text(fields.get(key)?.as_str()?, TEXT_BYTES_MAX).to_owned())
}

/// The longest beginning of at most `bytes_max` bytes that ends between characters.
pub(crate) fn truncate_text(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<AgentEvent> {
        let mut events = JsonLineParser.parse_line(line.as_bytes());
        assert!(events.len() <= 1);
        events.pop()
    }

    fn wait(line: &str) -> Option<u64> {
        match one(line) {
            Some(AgentEvent::RateLimited { retry_after_ms, .. }) => retry_after_ms,
            other => panic!("not a rate limit: {line} gave {other:?}"),
        }
    }

    #[test]
    fn every_line_of_the_contract_is_understood() {
        assert_eq!(
            one(r#"{"mainstem":"usage","input_tokens":1,"output_tokens":2,"cost_usd":0.01}"#),
            Some(AgentEvent::Usage(Usage {
                input_tokens: 1,
                output_tokens: 2,
                cost_usd: Some(0.01),
                ..Usage::default()
            }))
        );
        assert_eq!(
            one(r#"{"mainstem":"rate_limited","retry_after":30}"#),
            Some(AgentEvent::RateLimited {
                retry_after_ms: Some(30_000),
                reset_at_ms: None,
                message: String::new(),
                retrying: false,
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"ask","question":"Which?","options":["a","b"]}"#),
            Some(AgentEvent::Ask {
                question: "Which?".into(),
                options: vec!["a".into(), "b".into()],
                default: None,
                deadline_ms: None,
                reference: None,
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"nothing_to_do","reason":"there already"}"#),
            Some(AgentEvent::NothingToDo { reason: "there already".into() })
        );
        assert_eq!(
            one(r#"{"mainstem":"blocked","reason":"no schema"}"#),
            Some(AgentEvent::Blocked { reason: "no schema".into() })
        );
    }

    #[test]
    fn every_further_line_of_the_protocol_is_understood() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            one(r#"{"mainstem":"session","id":"s-1"}"#),
            Some(AgentEvent::Session { id: "s-1".into() })
        );
        assert_eq!(
            one(
                r#"{"mainstem":"usage","cache_read_tokens":7,"cache_write_tokens":8,"model":"m-1","basis":"included"}"#
            ),
            Some(AgentEvent::Usage(Usage {
                cache_read_tokens: 7,
                cache_write_tokens: 8,
                model: some("m-1"),
                basis: Some(CostBasis::Included),
                ..Usage::default()
            }))
        );
        assert_eq!(
            one(
                r#"{"mainstem":"rate_limited","reset_at":1800000000,"retrying":true,"message":"m"}"#
            ),
            Some(AgentEvent::RateLimited {
                retry_after_ms: None,
                reset_at_ms: Some(1_800_000_000_000),
                message: "m".into(),
                retrying: true,
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"quota_exhausted","reset_at":1800000000,"window":"five_hour"}"#),
            Some(AgentEvent::QuotaExhausted {
                reset_at_ms: Some(1_800_000_000_000),
                window: "five_hour".into(),
                message: String::new(),
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"failed","class":"auth","message":"401","help":"claude /login"}"#),
            Some(AgentEvent::Failed {
                fault: AgentFault::Auth,
                message: "401".into(),
                help: some("claude /login"),
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"progress","text":"reads","tool":"Read"}"#),
            Some(AgentEvent::Progress { text: "reads".into(), tool: some("Read") })
        );
        assert_eq!(
            one(r#"{"mainstem":"claimed_done","summary":"did","evidence":["ran tests",3]}"#),
            Some(AgentEvent::ClaimedDone {
                summary: "did".into(),
                evidence: vec!["ran tests".into()],
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"issue","title":"T","text":"t","severity":"high"}"#),
            Some(AgentEvent::Issue {
                title: "T".into(),
                text: "t".into(),
                severity: "high".into(),
            })
        );
        assert_eq!(
            one(r#"{"mainstem":"propose_task","id":"T-9","title":"T","needs":["T-1"]}"#),
            Some(AgentEvent::ProposeTask {
                id: some("T-9"),
                title: "T".into(),
                description: String::new(),
                needs: vec!["T-1".into()],
            })
        );
        assert!(matches!(
            one(r#"{"mainstem":"ask","question":"Q","ref":"r-1"}"#),
            Some(AgentEvent::Ask { reference, .. }) if reference == some("r-1")
        ));
    }

    #[test]
    fn what_a_further_line_must_say_is_asked_for_and_unknown_words_have_a_place() {
        for line in [
            r#"{"mainstem":"session"}"#,
            r#"{"mainstem":"session","id":" "}"#,
            r#"{"mainstem":"session","id":"a\nb"}"#,
            r#"{"mainstem":"failed"}"#,
            r#"{"mainstem":"issue","text":"no title"}"#,
            r#"{"mainstem":"propose_task","title":""}"#,
        ] {
            assert_eq!(one(line), None, "{line}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(one(&format!(r#"{{"mainstem":"session","id":"{long}"}}"#)), None);
        assert!(matches!(
            one(r#"{"mainstem":"failed","class":"something_new"}"#),
            Some(AgentEvent::Failed { fault: AgentFault::Other, help: None, .. })
        ));
        for fault in AgentFault::ALL {
            let line = format!(r#"{{"mainstem":"failed","class":"{}"}}"#, fault.as_str());
            assert!(matches!(one(&line), Some(AgentEvent::Failed { fault: f, .. }) if f == fault));
        }
        for nonsense in ["-1", "1800000000000", "\"soon\"", "NaN", "null"] {
            let line = format!(r#"{{"mainstem":"quota_exhausted","reset_at":{nonsense}}}"#);
            let Some(AgentEvent::QuotaExhausted { reset_at_ms, .. }) = one(&line) else {
                panic!("a quota is used up whatever its time is: {line}")
            };
            assert_eq!(reset_at_ms, None, "{nonsense}");
        }
    }

    #[test]
    fn order_unknown_fields_spaces_and_line_ends_do_not_matter() {
        assert_eq!(
            one("\t {\"x\":[1,{}], \"reason\" : \"r\", \"mainstem\" : \"blocked\"} \r\n"),
            Some(AgentEvent::Blocked { reason: "r".into() })
        );
        assert_eq!(
            one(
                r#"{"deadline":1.5,"default":"a","question":"Q","mainstem":"ask","options":[1,"a",null]}"#
            ),
            Some(AgentEvent::Ask {
                question: "Q".into(),
                options: vec!["a".into()],
                default: Some("a".into()),
                deadline_ms: Some(1500),
                reference: None,
            })
        );
    }

    #[test]
    fn everything_else_is_log() {
        for line in [
            "",
            "   ",
            "Error: rate limit exceeded, retry after 30 seconds (429)",
            "the agent printed {\"mainstem\":\"rate_limited\"} in a sentence",
            r#"[{"mainstem":"rate_limited"}]"#,
            r#""{\"mainstem\":\"rate_limited\"}""#,
            r#"{"mainstem":"rate_limited""#,
            r#"{"mainstem":"rate_limited"} trailing"#,
            r#"{"mainstem":7}"#,
            r#"{"mainstem":["ask"]}"#,
            r#"{"mainstem":"RATE_LIMITED"}"#,
            r#"{"mainstem":"something_new","x":1}"#,
            r#"{"type":"rate_limited","retry_after":30}"#,
            r#"{"inner":{"mainstem":"blocked"}}"#,
            r#"{"mainstem":"ask"}"#,
            r#"{"mainstem":"ask","question":" "}"#,
            r#"{"mainstem":"usage"}"#,
            r#"{"mainstem":"usage","input_tokens":-1,"output_tokens":"2","cost_usd":NaN}"#,
        ] {
            assert_eq!(one(line), None, "{line}");
        }
    }

    #[test]
    fn waits_are_clamped_and_nonsense_waits_are_unknown() {
        let with = |number: &str| {
            wait(&format!(r#"{{"mainstem":"rate_limited","retry_after":{number}}}"#))
        };
        assert_eq!(with("0"), Some(0));
        assert_eq!(with("0.25"), Some(250));
        assert_eq!(with("-5"), Some(0));
        assert_eq!(with("-Infinity"), Some(0));
        for huge in ["604801", "1e300", "1e999", "Infinity", "99999999999999999999999999"] {
            assert_eq!(with(huge), Some(WAIT_MS_MAX), "{huge}");
        }
        for unknown in ["null", "NaN", "\"30\"", "[30]", "true"] {
            assert_eq!(with(unknown), None, "{unknown}");
        }
        assert_eq!(
            wait(r#"{"mainstem":"rate_limited","message":"NaN \" Infinity","x":NaN}"#),
            None
        );
    }

    #[test]
    fn a_broken_number_costs_only_its_own_field() {
        assert_eq!(
            one(r#"{"mainstem":"usage","input_tokens":10.0,"output_tokens":1e30,"cost_usd":NaN}"#),
            Some(AgentEvent::Usage(Usage { input_tokens: 10, ..Usage::default() }))
        );
    }

    #[test]
    fn costs_that_cannot_be_true_are_passed_on_to_those_who_count() {
        for (said, usd) in [("1e308", 1e308), ("Infinity", 1e300), ("-1", -1.0)] {
            let line = format!(r#"{{"mainstem":"usage","cost_usd":{said}}}"#);
            let cost_usd = Some(usd);
            let usage = AgentEvent::Usage(Usage { cost_usd, ..Usage::default() });
            assert_eq!(one(&line), Some(usage), "{said}");
        }
    }

    #[test]
    fn texts_and_lines_are_bounded() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let Some(AgentEvent::Blocked { reason }) =
            one(&format!(r#"{{"mainstem":"blocked","reason":"{long}"}}"#))
        else {
            panic!("a long reason is still a reason")
        };
        assert!(reason.len() <= TEXT_BYTES_MAX && reason.len() > TEXT_BYTES_MAX - 4);
        let endless = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(one(&format!(r#"{{"mainstem":"blocked","reason":"{endless}"}}"#)), None);
        assert_eq!(one(&"{\"a\":".repeat(50_000)), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_not_fatal() {
        let events =
            JsonLineParser.parse_line(b"{\"mainstem\":\"blocked\",\"reason\":\"caf\xe9\"}");
        assert_eq!(events, [AgentEvent::Blocked { reason: "caf\u{fffd}".into() }]);
    }

    #[test]
    fn random_bytes_never_panic() {
        let seeds: [&[u8]; 3] = [
            br#"{"mainstem":"usage","input_tokens":1,"output_tokens":2,"cost_usd":0.01}"#,
            br#"{"mainstem":"rate_limited","retry_after":-1e999,"message":"\u00e9\"x"}"#,
            "{\"mainstem\":\"ask\",\"question\":\"ä?\",\"options\":[NaN,\"b\"]}".as_bytes(),
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20_000 {
            let mut line = seeds[round % seeds.len()].to_vec();
            for _ in 0..next() % 6 {
                let at = next() as usize % line.len();
                match next() % 3 {
                    0 => line[at] = next() as u8,
                    1 => line.truncate(at.max(1)),
                    _ => line.insert(at, b"\"\\{}[]-+.eE09NI\0\xff"[next() as usize % 17]),
                }
            }
            JsonLineParser.parse_line(&line);
        }
    }

    #[test]
    fn an_answer_is_one_line_whatever_it_says() {
        assert_eq!(
            answer_line("Q1", "yes", None),
            "{\"mainstem\":\"answer\",\"question\":\"Q1\",\"text\":\"yes\",\"answer\":\"yes\"}\n"
        );
        let hostile = answer_line("Q\"1", "two\nlines \"quoted\" \u{1b}[31m", Some("r\"1"));
        assert_eq!(hostile.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&hostile).expect("an answer is JSON");
        assert_eq!(value["text"], "two\nlines \"quoted\" \u{1b}[31m");
    }
}
