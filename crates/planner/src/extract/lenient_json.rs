//! A JSON reader that also says how far it got, in two modes: strict, and with repairs.
//!
//! A repair is made only where there is one way to read the text. Where content may be missing (a
//! list without its end, an ellipsis) or could be cut in two ways, it is a fault. Repeated keys are
//! a fault too: one of the two would be lost.

use serde_json::{Map, Number, Value};

/// Deeper nesting is no answer.
const DEPTH_MAX: usize = 64;

/// How much is forgiven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonParseMode {
    Strict,
    /// What models get wrong.
    Repair,
}

/// What had to be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JsonRepair {
    /// A comma before a closing bracket.
    TrailingComma,
    /// No comma between two entries on lines of their own.
    MissingComma,
    /// A comment that began with `//`, `#` or `/*`.
    Comment,
    /// `'text'` or typographic quotes.
    OtherQuotes,
    /// A key without quotes.
    BareKey,
    /// `True`, `False`, `None`, `undefined`.
    PythonWord,
    /// A line break or control character inside a text.
    RawControl,
    /// A backslash before a character that needs none.
    BadEscape,
    /// A quote inside a text.
    InnerQuote,
    /// The last closing brace is missing.
    MissingBrace,
}

impl std::fmt::Display for JsonRepair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TrailingComma => "a comma before a closing bracket",
            Self::MissingComma => "a missing comma",
            Self::Comment => "a comment",
            Self::OtherQuotes => "quotes that JSON does not have",
            Self::BareKey => "a key without quotes",
            Self::PythonWord => "a literal of another language",
            Self::RawControl => "a line break inside a text",
            Self::BadEscape => "an invalid escape",
            Self::InnerQuote => "a quote inside a text",
            Self::MissingBrace => "a missing last brace",
        })
    }
}

/// A value and where it ends.
pub(super) struct ParsedJson {
    pub(super) value: Value,
    pub(super) end: usize,
    pub(super) repairs: Vec<JsonRepair>,
}

/// Why no value could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonParseFault {
    pub(super) at: usize,
    pub(super) message: &'static str,
    /// The text ended first.
    pub(super) truncated: bool,
}

/// Reads the value that starts at `at`. `steps` is raised by the bytes looked at.
pub(super) fn parse_at(
    text: &str,
    at: usize,
    mode: JsonParseMode,
    steps: &mut usize,
) -> Result<ParsedJson, JsonParseFault> {
    let mut reader = LenientJsonReader {
        text,
        bytes: text.as_bytes(),
        at,
        mode,
        repairs: Vec::new(),
        open_lists: 0,
    };
    let result = reader.read_value(0, JsonStringContext::Value);
    *steps += reader.at.saturating_sub(at) + 1;
    let value = result?;
    reader.repairs.sort_unstable();
    reader.repairs.dedup();
    Ok(ParsedJson { value, end: reader.at, repairs: reader.repairs })
}

/// Where a text stands; it decides how its end is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonStringContext {
    Key,
    Value,
    /// In a list: no key follows that would prove where the text ends.
    Entry,
}

struct LenientJsonReader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    mode: JsonParseMode,
    repairs: Vec<JsonRepair>,
    open_lists: usize,
}

impl LenientJsonReader<'_> {
    fn fail_at_position<T>(&self, message: &'static str) -> Result<T, JsonParseFault> {
        Err(JsonParseFault { at: self.at, message, truncated: self.at >= self.bytes.len() })
    }

    /// Notes a repair; in strict mode it is a fault.
    fn record_repair(
        &mut self,
        repair: JsonRepair,
        message: &'static str,
    ) -> Result<(), JsonParseFault> {
        if self.mode == JsonParseMode::Strict {
            return self.fail_at_position(message);
        }
        if self.repairs.last() != Some(&repair) {
            self.repairs.push(repair);
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_gap(&mut self) -> Result<(), JsonParseFault> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(b'#') => self.skip_comment("\n")?,
                Some(b'/') if self.rest().starts_with("//") => self.skip_comment("\n")?,
                Some(b'/') if self.rest().starts_with("/*") => self.skip_comment("*/")?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self, end: &str) -> Result<(), JsonParseFault> {
        self.record_repair(JsonRepair::Comment, "comments are not allowed in JSON")?;
        let start = self.at;
        self.at = self.rest().find(end).map_or(self.bytes.len(), |found| start + found + end.len());
        // "// … more tasks" stands for content that is not there.
        let words = self.text[start..self.at].to_lowercase();
        let hollow = words.contains("...") || words.contains('…');
        if hollow || words.contains("more ") || words.contains("rest of") || words.contains("etc") {
            self.at = start;
            return self.fail_at_position("a comment replaces missing content");
        }
        Ok(())
    }

    fn read_value(
        &mut self,
        depth: usize,
        place: JsonStringContext,
    ) -> Result<Value, JsonParseFault> {
        if depth > DEPTH_MAX {
            return self.fail_at_position("nested too deep");
        }
        self.skip_gap()?;
        match self.peek() {
            Some(b'{') => self.read_object(depth),
            Some(b'[') => self.read_list(depth),
            Some(b'"') => Ok(Value::String(self.read_string("\"", place)?)),
            Some(b'-' | b'0'..=b'9') => self.read_number(),
            Some(b'\'') => self.read_quoted_value("'", place),
            Some(_) if self.rest().starts_with(['“', '”']) => {
                self.read_quoted_value("”", place)
            }
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.read_word(),
            _ => self.fail_at_position("a value is missing"),
        }
    }

    fn read_quoted_value(
        &mut self,
        end: &str,
        place: JsonStringContext,
    ) -> Result<Value, JsonParseFault> {
        self.record_repair(JsonRepair::OtherQuotes, "strings need double quotes")?;
        Ok(Value::String(self.read_string(end, place)?))
    }

    fn read_word(&mut self) -> Result<Value, JsonParseFault> {
        let len = self.rest().bytes().take_while(u8::is_ascii_alphabetic).count();
        let (value, python) = match &self.rest()[..len] {
            "true" => (Value::Bool(true), false),
            "false" => (Value::Bool(false), false),
            "null" => (Value::Null, false),
            "True" => (Value::Bool(true), true),
            "False" => (Value::Bool(false), true),
            "None" | "undefined" => (Value::Null, true),
            _ if self.at + len >= self.bytes.len() => {
                self.at = self.bytes.len();
                return self.fail_at_position("the text ends in the middle of a literal");
            }
            _ => return self.fail_at_position("a string without quotes"),
        };
        if python {
            self.record_repair(JsonRepair::PythonWord, "use true, false and null")?;
        }
        self.at += len;
        Ok(value)
    }

    fn read_number(&mut self) -> Result<Value, JsonParseFault> {
        let number = |b: &u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let len = self.bytes[self.at..].iter().take_while(|b| number(b)).count();
        match self.rest()[..len].parse::<Number>() {
            // A number at the text's end may have lost digits.
            Ok(_) if self.at + len >= self.bytes.len() => {
                self.at = self.bytes.len();
                self.fail_at_position("the text ends in the middle")
            }
            Ok(number) => {
                self.at += len;
                Ok(Value::Number(number))
            }
            Err(_) => self.fail_at_position("invalid number"),
        }
    }

    fn read_list(&mut self, depth: usize) -> Result<Value, JsonParseFault> {
        self.at += 1;
        self.open_lists += 1;
        let mut items = Vec::new();
        loop {
            self.skip_gap()?;
            match self.peek() {
                Some(b']') => break,
                None => return self.fail_at_position("the list has no end"),
                Some(b',') => return self.fail_at_position("an entry is missing"),
                _ => {}
            }
            items.push(self.read_value(depth + 1, JsonStringContext::Entry)?);
            self.read_comma(b']')?;
        }
        self.at += 1;
        self.open_lists -= 1;
        Ok(Value::Array(items))
    }

    fn read_object(&mut self, depth: usize) -> Result<Value, JsonParseFault> {
        self.at += 1;
        let mut entries = Map::new();
        loop {
            self.skip_gap()?;
            match self.peek() {
                Some(b'}') => break,
                None | Some(b'`') if self.may_omit_brace(depth, &entries) => {
                    self.record_repair(JsonRepair::MissingBrace, "the closing brace is missing")?;
                    return Ok(Value::Object(entries));
                }
                None => return self.fail_at_position("the object has no end"),
                _ => {}
            }
            let key_at = self.at;
            let key = self.read_key()?;
            self.skip_gap()?;
            if self.peek() != Some(b':') {
                return self.fail_at_position("a colon is missing");
            }
            self.at += 1;
            let value = self.read_value(depth + 1, JsonStringContext::Value)?;
            if entries.insert(key, value).is_some() {
                self.at = key_at;
                return self.fail_at_position("duplicate key");
            }
            self.read_comma(b'}')?;
        }
        self.at += 1;
        Ok(Value::Object(entries))
    }

    /// Only the outermost brace may be missing, and only after a list that did end: then nothing
    /// of that list can be lost.
    fn may_omit_brace(&self, depth: usize, entries: &Map<String, Value>) -> bool {
        let ended = self.text[..self.at].trim_end().ends_with(']');
        depth == 0 && self.open_lists == 0 && ended && entries.values().any(Value::is_array)
    }

    /// Between entries: a comma, or the end ahead.
    fn read_comma(&mut self, close: u8) -> Result<(), JsonParseFault> {
        let before = self.at;
        self.skip_gap()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.skip_gap()?;
                match self.peek() {
                    Some(byte) if byte == close => {
                        self.record_repair(JsonRepair::TrailingComma, "a comma before the end")
                    }
                    Some(b',') => self.fail_at_position("an entry is missing"),
                    _ => Ok(()),
                }
            }
            Some(byte) if byte == close => Ok(()),
            None => Ok(()),
            Some(b'"' | b'{' | b'[') if self.text[before..self.at].contains('\n') => {
                self.record_repair(JsonRepair::MissingComma, "a comma is missing")
            }
            _ => self.fail_at_position("a comma is missing"),
        }
    }

    fn read_key(&mut self) -> Result<String, JsonParseFault> {
        match self.peek() {
            Some(b'"') => self.read_string("\"", JsonStringContext::Key),
            Some(b'\'') => {
                self.record_repair(JsonRepair::OtherQuotes, "keys need double quotes")?;
                self.read_string("'", JsonStringContext::Key)
            }
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                self.record_repair(JsonRepair::BareKey, "keys need double quotes")?;
                let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let len = self.bytes[self.at..].iter().take_while(|b| word(b)).count();
                let key = self.rest()[..len].to_owned();
                self.at += len;
                Ok(key)
            }
            Some(_) if self.rest().starts_with(['“', '”']) => {
                self.record_repair(JsonRepair::OtherQuotes, "keys need double quotes")?;
                self.read_string("”", JsonStringContext::Key)
            }
            _ => self.fail_at_position("a key is missing"),
        }
    }

    /// The opening quote is ahead; `end` closes.
    fn read_string(
        &mut self,
        end: &str,
        place: JsonStringContext,
    ) -> Result<String, JsonParseFault> {
        let first = self.rest().chars().next().map_or(1, char::len_utf8);
        self.at += first;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let stop = |c: char| c == '\\' || c < ' ' || end.starts_with(c);
            let Some(plain) = rest.find(stop) else {
                self.at = self.bytes.len();
                return self.fail_at_position("the text has no end");
            };
            out.push_str(&rest[..plain]);
            self.at += plain;
            let rest = self.rest();
            if rest.starts_with(end) {
                if self.is_closing_quote(end, place) {
                    self.at += end.len();
                    return Ok(out);
                }
                if place != JsonStringContext::Value {
                    return self.fail_at_position("a quote inside a text");
                }
                self.record_repair(JsonRepair::InnerQuote, "a quote inside a text")?;
                out.push_str(end);
                self.at += end.len();
            } else if rest.starts_with('\\') {
                self.read_escape(&mut out)?;
            } else {
                self.record_repair(JsonRepair::RawControl, "a control character inside a text")?;
                out.push(char::from(self.bytes[self.at]));
                self.at += 1;
            }
        }
    }

    /// Does the quote ahead end its text? In strict mode every quote does. Otherwise what follows
    /// must be able to follow a text: of a key a colon; of a value an end, or a comma and then
    /// something that can be an entry.
    fn is_closing_quote(&self, end: &str, place: JsonStringContext) -> bool {
        if self.mode == JsonParseMode::Strict {
            return true;
        }
        let after = self.text[self.at + end.len()..].trim_start();
        let Some(next) = after.chars().next() else { return true };
        if place == JsonStringContext::Key {
            return next == ':';
        }
        match next {
            '}' | ']' | '/' | '#' => true,
            ',' => {
                let entry = after[1..].trim_start();
                let wordy = entry.starts_with(char::is_alphabetic);
                !wordy || after[1..].starts_with(['\n', '\r']) || is_key_or_word(entry)
            }
            '"' | '\'' | '{' => {
                let line = self.text[self.at + end.len()..].trim_start_matches([' ', '\t', '\r']);
                line.starts_with('\n')
            }
            _ => false,
        }
    }

    fn read_escape(&mut self, out: &mut String) -> Result<(), JsonParseFault> {
        let rest = self.rest();
        let Some(c) = rest[1..].chars().next() else {
            self.at = self.bytes.len();
            return self.fail_at_position("the text has no end");
        };
        let plain = match c {
            '"' | '\\' | '/' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => return self.read_unicode_escape(out),
            '\'' => {
                self.record_repair(JsonRepair::BadEscape, "invalid escape")?;
                c
            }
            // `\d` of a pattern and `\.` of a path mean themselves.
            _ if !c.is_control() => {
                self.record_repair(JsonRepair::BadEscape, "invalid escape")?;
                out.push('\\');
                c
            }
            _ => return self.fail_at_position("invalid escape"),
        };
        out.push(plain);
        self.at += 1 + c.len_utf8();
        Ok(())
    }

    fn read_unicode_escape(&mut self, out: &mut String) -> Result<(), JsonParseFault> {
        let Some(first) = self.read_hex(self.at + 2) else {
            return self.fail_at_position("`\\u` needs four digits");
        };
        let mut len = 6;
        let mut code = first;
        if (0xd800..0xdc00).contains(&first) && self.rest()[6..].starts_with("\\u") {
            match self.read_hex(self.at + 8) {
                Some(second) if (0xdc00..0xe000).contains(&second) => {
                    code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    len = 12;
                }
                _ => return self.fail_at_position("an incomplete surrogate pair"),
            }
        }
        let Some(c) = char::from_u32(code) else {
            return self.fail_at_position("an incomplete surrogate pair");
        };
        out.push(c);
        self.at += len;
        Ok(())
    }

    fn read_hex(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 4)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u32::from_str_radix(self.text.get(at..at + 4)?, 16).ok()
    }
}

fn is_key_or_word(text: &str) -> bool {
    let len = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    matches!(&text[..len], "true" | "false" | "null" | "True" | "False" | "None")
        || text[len..].starts_with(':')
}
