//! Finds the wanted JSON value in what a model said.
//!
//! Models wrap answers in prose, fences and events, echo examples, and write almost-JSON. Three
//! passes, each only if the one before found nothing: the whole text, every JSON value in the text
//! (and inside it), every value after repairs that cannot change a meaning. What is taken always
//! satisfies the schema; two different answers are refused, never guessed between. Every pass is
//! linear in the text. Knows nothing of what is wanted: that is the [`Wanted`] passed in.

mod ansi;
mod parse;

use serde_json::Value;

use crate::schema::Problem;
pub use parse::Repair;
use parse::{Mode, Outcome, parse_at};

/// Longer answers are refused before they are looked at.
pub const SIZE_MAX: usize = 10 << 20;

/// Passes over one text may step over each byte this often on average; then only values that start
/// outside of failed ones are tried.
const EFFORT: usize = 6;

/// Values inside values that are tried; an answer wrapped deeper is not found.
const INNER_MAX: usize = 2_000;

/// What is looked for: a cheap test and a thorough one.
pub trait Wanted {
    /// What the value becomes.
    type Found;
    /// Keys that broken text must start with to be taken for a failed answer.
    fn signs(&self) -> &[&str];
    /// Could this be it? Tested on many values, so it must be cheap.
    fn resembles(&self, value: &Value) -> bool;
    /// The value, or everything that is wrong with it.
    fn check(&self, value: &Value) -> Result<Self::Found, Vec<Problem>>;
    /// Names of the parts, to tell a draft from its successor.
    fn parts(&self, found: &Self::Found) -> Vec<String>;
}

/// An answer that satisfies the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Extracted<T> {
    /// The answer.
    pub found: T,
    /// What had to be mended, if anything.
    pub repairs: Vec<Repair>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Longer than [`SIZE_MAX`].
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
    Broken {
        /// What is wrong.
        message: String,
        /// Where.
        at: usize,
    },
    /// It was read and does not satisfy the schema.
    #[error("the answer does not match the schema: {}", .0.len())]
    Unfit(Vec<Problem>),
    /// Several answers that contradict each other.
    #[error("found {0} different answers; expected exactly one")]
    Several(usize),
}

impl NoAnswer {
    /// The same as problems, for a retry's prompt.
    pub fn problems(&self) -> Vec<Problem> {
        match self {
            Self::Unfit(problems) => problems.clone(),
            other => vec![Problem::new("json", other.to_string())],
        }
    }
}

/// Finds the wanted value in a text.
pub fn extract<W: Wanted>(text: &str, wanted: &W) -> Result<Extracted<W::Found>, NoAnswer> {
    Search::new(wanted).run(text)
}

/// One JSON value and nothing else around it but white space, without repairs.
pub fn parse_strict(text: &str) -> Result<Value, NoAnswer> {
    let body = text.trim_start_matches('\u{feff}').trim();
    match parse_at(body, 0, Mode::Strict, &mut 0) {
        Ok(Outcome { value, end, .. }) if end == body.len() => Ok(value),
        Ok(Outcome { end, .. }) => {
            Err(NoAnswer::Broken { message: "something follows the value".to_owned(), at: end })
        }
        Err(fault) => Err(NoAnswer::Broken { message: fault.message.to_owned(), at: fault.at }),
    }
}

struct Search<'w, W: Wanted> {
    wanted: &'w W,
    hits: Vec<(W::Found, Vec<String>, Vec<Repair>)>,
    /// The reason that says most about the nearest miss, and how near it was.
    miss: Option<(u8, NoAnswer)>,
    steps: usize,
}

impl<'w, W: Wanted> Search<'w, W> {
    fn new(wanted: &'w W) -> Self {
        Self { wanted, hits: Vec::new(), miss: None, steps: 0 }
    }

    fn run(mut self, text: &str) -> Result<Extracted<W::Found>, NoAnswer> {
        if text.len() > SIZE_MAX {
            return Err(NoAnswer::TooLarge(text.len()));
        }
        let text = ansi::strip(text);
        let body = text.trim_start_matches('\u{feff}').trim();
        for mode in [Mode::Strict, Mode::Repair] {
            self.scan(body, mode, 1);
            if !self.hits.is_empty() {
                return self.choose();
            }
        }
        Err(self.miss.map_or(NoAnswer::Nothing, |(_, why)| why))
    }

    /// Tries every place where a value could start, from the left, jumping over what was read.
    fn scan(&mut self, body: &str, mode: Mode, inner: u8) {
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
                    self.offer(&outcome.value, &outcome.repairs, mode, inner);
                    at = outcome.end;
                }
                Err(fault) => {
                    let like = self.could_be(&body[at..]);
                    if like && mode == Mode::Repair && fault.truncated {
                        self.missed(3, || NoAnswer::Truncated(fault.at));
                    } else if like && mode == Mode::Repair {
                        let message = fault.message.to_owned();
                        self.missed(2, || NoAnswer::Broken { message, at: fault.at });
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
    fn could_be(&self, rest: &str) -> bool {
        let mut end = rest.len().min(200);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let head = &rest[..end];
        self.wanted.signs().iter().any(|key| head.contains(key))
    }

    fn missed(&mut self, nearness: u8, why: impl FnOnce() -> NoAnswer) {
        if self.miss.as_ref().is_none_or(|(best, _)| nearness >= *best) {
            self.miss = Some((nearness, why()));
        }
    }

    /// Tests a value, then what is inside it: answers come wrapped in events and other objects.
    fn offer(&mut self, value: &Value, repairs: &[Repair], mode: Mode, inner: u8) {
        let mut queue = std::collections::VecDeque::from([value]);
        let mut seen = 0;
        while let Some(value) = queue.pop_front() {
            seen += 1;
            if seen > INNER_MAX {
                return;
            }
            if self.wanted.resembles(value) {
                self.test(value, repairs);
                continue;
            }
            match value {
                Value::Object(entries) => queue.extend(entries.values()),
                Value::Array(items) => queue.extend(items),
                // A CLI's result event holds the answer as text.
                Value::String(text) if inner > 0 && text.contains('{') => {
                    let text = text.clone();
                    self.scan(&text, mode, inner - 1);
                }
                _ => {}
            }
        }
    }

    fn test(&mut self, value: &Value, repairs: &[Repair]) {
        match self.wanted.check(value) {
            Ok(found) => {
                let mut parts = self.wanted.parts(&found);
                parts.sort();
                self.hits.push((found, parts, repairs.to_vec()));
            }
            Err(problems) => self.missed(4, || NoAnswer::Unfit(problems)),
        }
    }

    /// A later answer with all the parts of an earlier one takes its place; others contradict.
    fn choose(mut self) -> Result<Extracted<W::Found>, NoAnswer> {
        let count = self.hits.len();
        let mut best = 0;
        for i in 1..count {
            if includes(&self.hits[i].1, &self.hits[best].1) {
                best = i;
            } else if !includes(&self.hits[best].1, &self.hits[i].1) {
                return Err(NoAnswer::Several(count));
            }
        }
        let (found, _, repairs) = self.hits.swap_remove(best);
        Ok(Extracted { found, repairs })
    }
}

/// Both sorted.
fn includes(whole: &[String], part: &[String]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|name| whole.by_ref().any(|other| other == name))
}

#[cfg(test)]
mod tests;
