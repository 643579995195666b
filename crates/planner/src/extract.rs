//! Finds the wanted JSON value in what a model said.
//!
//! Models wrap answers in prose, fences and events, echo examples, and write almost-JSON. Three
//! passes, each only if the one before found nothing: the whole text, every JSON value in the text
//! (and inside it), every value after repairs that cannot change a meaning. What is taken always
//! satisfies the schema; two different answers are refused, never guessed between. Every pass is
//! linear in the text. Knows nothing of what is wanted: that is the [`AnswerSchema`] passed in.

mod ansi;
mod lenient_json;

use serde_json::Value;

use crate::schema::AnswerProblem;
pub use lenient_json::JsonRepair;
use lenient_json::{JsonParseMode, ParsedJson, parse_at};

/// Longer answers are refused before they are looked at.
pub const SIZE_MAX: usize = 10 << 20;

/// Passes over one text may step over each byte this often on average; then only values that start
/// outside of failed ones are tried.
const EFFORT: usize = 6;

/// Values inside values that are tried; an answer wrapped deeper is not found.
const INNER_MAX: usize = 2_000;

/// What is looked for: a cheap test and a thorough one.
pub trait AnswerSchema {
    /// What the value becomes.
    type ParsedAnswer;
    /// Keys that broken text must start with to be taken for a failed answer.
    fn leading_keys(&self) -> &[&str];
    /// Could this be it? Tested on many values, so it must be cheap.
    fn resembles(&self, value: &Value) -> bool;
    /// The value, or everything that is wrong with it.
    fn check(&self, value: &Value) -> Result<Self::ParsedAnswer, Vec<AnswerProblem>>;
    /// Names of the parts, to tell a draft from its successor.
    fn part_names(&self, found: &Self::ParsedAnswer) -> Vec<String>;
}

/// An answer that satisfies the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractedAnswer<T> {
    pub found: T,
    /// What had to be mended, if anything.
    pub repairs: Vec<JsonRepair>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    #[error("the answer has {0} bytes; the limit is {SIZE_MAX}")]
    TooLarge(usize),
    /// Nothing that looks like the wanted value.
    #[error("no JSON with the requested content in the answer")]
    Nothing,
    /// It starts but does not end.
    #[error("the JSON is incomplete (after byte {0}): the answer was cut off")]
    Truncated(usize),
    /// It looks like the wanted value but is no JSON, also after repairs.
    #[error("invalid JSON: {message} (at byte {at})")]
    Broken { message: String, at: usize },
    /// It was read and does not satisfy the schema.
    #[error("the answer does not match the schema: {}", .0.len())]
    Unfit(Vec<AnswerProblem>),
    /// Several answers that contradict each other.
    #[error("found {0} different answers; expected exactly one")]
    Several(usize),
}

impl ExtractError {
    /// The same as problems, for a retry's prompt.
    pub fn problems(&self) -> Vec<AnswerProblem> {
        match self {
            Self::Unfit(problems) => problems.clone(),
            other => vec![AnswerProblem::new("json", other.to_string())],
        }
    }
}

/// Finds the wanted value in a text.
pub fn extract_answer<W: AnswerSchema>(
    text: &str,
    wanted: &W,
) -> Result<ExtractedAnswer<W::ParsedAnswer>, ExtractError> {
    AnswerSearch::new(wanted).run(text)
}

/// Reads the answer from the file where it was asked for, and if that holds none, from what was printed. The
/// problems are those of the first text.
pub fn search_answer<T>(
    file: Option<&str>,
    printed: &str,
    read: impl Fn(&str) -> Result<T, Vec<AnswerProblem>>,
) -> Result<T, Vec<AnswerProblem>> {
    match file.filter(|text| !text.trim().is_empty()) {
        Some(text) => read(text).or_else(|problems| read(printed).map_err(|_| problems)),
        None => read(printed),
    }
}

/// One JSON value and nothing else around it but white space, without repairs.
pub fn parse_strict(text: &str) -> Result<Value, ExtractError> {
    let body = text.trim_start_matches('\u{feff}').trim();
    match parse_at(body, 0, JsonParseMode::Strict, &mut 0) {
        Ok(ParsedJson { value, end, .. }) if end == body.len() => Ok(value),
        Ok(ParsedJson { end, .. }) => {
            Err(ExtractError::Broken { message: "something follows the value".to_owned(), at: end })
        }
        Err(fault) => Err(ExtractError::Broken { message: fault.message.to_owned(), at: fault.at }),
    }
}

struct AnswerSearch<'w, W: AnswerSchema> {
    wanted: &'w W,
    hits: Vec<(W::ParsedAnswer, Vec<String>, Vec<JsonRepair>)>,
    /// The reason that says most about the nearest miss, and how near it was.
    miss: Option<(u8, ExtractError)>,
    steps: usize,
}

impl<'w, W: AnswerSchema> AnswerSearch<'w, W> {
    fn new(wanted: &'w W) -> Self {
        Self { wanted, hits: Vec::new(), miss: None, steps: 0 }
    }

    fn run(mut self, text: &str) -> Result<ExtractedAnswer<W::ParsedAnswer>, ExtractError> {
        if text.len() > SIZE_MAX {
            return Err(ExtractError::TooLarge(text.len()));
        }
        let text = ansi::strip_ansi(text);
        let body = text.trim_start_matches('\u{feff}').trim();
        for mode in [JsonParseMode::Strict, JsonParseMode::Repair] {
            self.scan_text(body, mode, 1);
            if !self.hits.is_empty() {
                return self.choose_answer();
            }
        }
        Err(self.miss.map_or(ExtractError::Nothing, |(_, why)| why))
    }

    /// Tries every place where a value could start, from the left, jumping over what was read.
    fn scan_text(&mut self, body: &str, mode: JsonParseMode, inner: u8) {
        let budget = body.len().saturating_mul(EFFORT) + 4_096;
        let mut spent = 0;
        let mut at = 0;
        while let Some(next) = body[at..].find(['{', '[']) {
            at += next;
            let mut steps = 0;
            let result = parse_at(body, at, mode, &mut steps);
            spent += steps;
            self.steps += steps;
            match result {
                Ok(outcome) => {
                    self.try_value(&outcome.value, &outcome.repairs, mode, inner);
                    at = outcome.end;
                }
                Err(fault) => {
                    let like = self.looks_like_answer(&body[at..]);
                    if like && mode == JsonParseMode::Repair && fault.truncated {
                        self.record_miss(3, || ExtractError::Truncated(fault.at));
                    } else if like && mode == JsonParseMode::Repair {
                        let message = fault.message.to_owned();
                        self.record_miss(2, || ExtractError::Broken { message, at: fault.at });
                    }
                    // Inside of an answer that was cut off are only parts of it.
                    let whole = like && fault.truncated;
                    at = if whole || spent > budget { fault.at.max(at + 1) } else { at + 1 };
                    while !body.is_char_boundary(at) {
                        at += 1;
                    }
                }
            }
        }
    }

    /// Broken text cannot be asked what it is; its first key says enough to call it the answer.
    fn looks_like_answer(&self, rest: &str) -> bool {
        let mut end = rest.len().min(200);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let head = &rest[..end];
        self.wanted.leading_keys().iter().any(|key| head.contains(key))
    }

    fn record_miss(&mut self, nearness: u8, why: impl FnOnce() -> ExtractError) {
        if self.miss.as_ref().is_none_or(|(best, _)| nearness >= *best) {
            self.miss = Some((nearness, why()));
        }
    }

    /// Tests a value, then what is inside it: answers come wrapped in events and other objects.
    fn try_value(&mut self, value: &Value, repairs: &[JsonRepair], mode: JsonParseMode, inner: u8) {
        let mut queue = std::collections::VecDeque::from([value]);
        let mut seen = 0;
        while let Some(value) = queue.pop_front() {
            seen += 1;
            if seen > INNER_MAX {
                return;
            }
            if self.wanted.resembles(value) {
                self.check_value(value, repairs);
                continue;
            }
            match value {
                Value::Object(entries) => queue.extend(entries.values()),
                Value::Array(items) => queue.extend(items),
                // A CLI's result event holds the answer as text.
                Value::String(text) if inner > 0 && text.contains('{') => {
                    let text = text.clone();
                    self.scan_text(&text, mode, inner - 1);
                }
                _ => {}
            }
        }
    }

    fn check_value(&mut self, value: &Value, repairs: &[JsonRepair]) {
        match self.wanted.check(value) {
            Ok(found) => {
                let mut parts = self.wanted.part_names(&found);
                parts.sort();
                self.hits.push((found, parts, repairs.to_vec()));
            }
            Err(problems) => self.record_miss(4, || ExtractError::Unfit(problems)),
        }
    }

    /// A later answer with all the parts of an earlier one takes its place; others contradict.
    fn choose_answer(mut self) -> Result<ExtractedAnswer<W::ParsedAnswer>, ExtractError> {
        let count = self.hits.len();
        let mut best = 0;
        for i in 1..count {
            if includes_all(&self.hits[i].1, &self.hits[best].1) {
                best = i;
            } else if !includes_all(&self.hits[best].1, &self.hits[i].1) {
                return Err(ExtractError::Several(count));
            }
        }
        let (found, _, repairs) = self.hits.swap_remove(best);
        Ok(ExtractedAnswer { found, repairs })
    }
}

fn includes_all(whole: &[String], part: &[String]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|name| whole.by_ref().any(|other| other == name))
}

#[cfg(test)]
mod tests;
