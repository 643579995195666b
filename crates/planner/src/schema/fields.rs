//! Fields of loose JSON, with everything that is wrong collected on the way.

use serde_json::Value;

use super::AnswerProblem;

/// Reads fields and remembers what was wrong.
#[derive(Default)]
pub(super) struct AnswerFields {
    pub(super) problems: Vec<AnswerProblem>,
}

/// Problems beyond this many say nothing new to whoever must mend them.
const PROBLEMS_MAX: usize = 200;

impl AnswerFields {
    pub(super) fn add_problem(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(AnswerProblem::new(field, message));
        }
    }

    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<AnswerProblem>> {
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }

    fn field_path(at: &str, key: &str) -> String {
        if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
    }

    fn get_value<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
        item.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn read_list<'v>(&mut self, item: &'v Value, at: &str, key: &str) -> &'v [Value] {
        match Self::get_value(item, key) {
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.add_problem(Self::field_path(at, key), "must be a list");
                &[]
            }
            None => &[],
        }
    }

    /// Text that must be there.
    pub(super) fn read_text(&mut self, item: &Value, at: &str, key: &str) -> String {
        let path = Self::field_path(at, key);
        match Self::get_value(item, key) {
            Some(Value::String(text)) if !text.trim().is_empty() => return text.trim().to_owned(),
            Some(Value::String(_)) => self.add_problem(path, "is empty"),
            Some(_) => self.add_problem(path, "must be a string"),
            None => self.add_problem(path, "is missing"),
        }
        String::new()
    }

    /// Text of one line.
    pub(super) fn read_line(&mut self, item: &Value, at: &str, key: &str) -> String {
        let text = self.read_text(item, at, key);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(super) fn read_texts(&mut self, item: &Value, at: &str, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for (i, entry) in self.read_list(item, at, key).iter().enumerate() {
            match entry {
                Value::String(text) => texts.push(text.trim().to_owned()),
                _ => self
                    .add_problem(format!("{}[{i}]", Self::field_path(at, key)), "must be a string"),
            }
        }
        texts
    }

    pub(super) fn read_count(&mut self, item: &Value, at: &str, key: &str) -> u64 {
        match Self::get_value(item, key) {
            None => 0,
            Some(value) => value.as_u64().unwrap_or_else(|| {
                self.add_problem(Self::field_path(at, key), "must be an integer, 0 or more");
                0
            }),
        }
    }

    pub(super) fn read_choice(
        &mut self,
        item: &Value,
        at: &str,
        key: &str,
        words: &[&str],
    ) -> String {
        let before = self.problems.len();
        let text = self.read_text(item, at, key);
        if self.problems.len() == before && !words.contains(&text.as_str()) {
            let message = format!("is `{text}`; it must be one of {}", words.join(", "));
            self.add_problem(Self::field_path(at, key), message);
        }
        text
    }
}
