//! Fields of loose JSON, with everything that is wrong collected on the way.

use serde_json::Value;

use super::Problem;

/// Reads fields and remembers what was wrong.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) problems: Vec<Problem>,
}

/// Problems beyond this many say nothing new to whoever must mend them.
const PROBLEMS_MAX: usize = 200;

impl Fields {
    pub(super) fn wrong(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem::new(field, message));
        }
    }

    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }

    fn path(at: &str, key: &str) -> String {
        if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
    }

    fn get<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
        item.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn list<'v>(&mut self, item: &'v Value, at: &str, key: &str) -> &'v [Value] {
        match Self::get(item, key) {
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.wrong(Self::path(at, key), "must be a list");
                &[]
            }
            None => &[],
        }
    }

    /// Text that must be there.
    pub(super) fn text(&mut self, item: &Value, at: &str, key: &str) -> String {
        let path = Self::path(at, key);
        match Self::get(item, key) {
            Some(Value::String(text)) if !text.trim().is_empty() => return text.trim().to_owned(),
            Some(Value::String(_)) => self.wrong(path, "is empty"),
            Some(_) => self.wrong(path, "must be a string"),
            None => self.wrong(path, "is missing"),
        }
        String::new()
    }

    /// Text of one line.
    pub(super) fn line(&mut self, item: &Value, at: &str, key: &str) -> String {
        let text = self.text(item, at, key);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(super) fn texts(&mut self, item: &Value, at: &str, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for (i, entry) in self.list(item, at, key).iter().enumerate() {
            match entry {
                Value::String(text) => texts.push(text.trim().to_owned()),
                _ => self.wrong(format!("{}[{i}]", Self::path(at, key)), "must be a string"),
            }
        }
        texts
    }

    pub(super) fn count(&mut self, item: &Value, at: &str, key: &str) -> u64 {
        match Self::get(item, key) {
            None => 0,
            Some(value) => value.as_u64().unwrap_or_else(|| {
                self.wrong(Self::path(at, key), "must be an integer, 0 or more");
                0
            }),
        }
    }

    pub(super) fn choice(&mut self, item: &Value, at: &str, key: &str, words: &[&str]) -> String {
        let before = self.problems.len();
        let text = self.text(item, at, key);
        if self.problems.len() == before && !words.contains(&text.as_str()) {
            let message = format!("is `{text}`; it must be one of {}", words.join(", "));
            self.wrong(Self::path(at, key), message);
        }
        text
    }
}
