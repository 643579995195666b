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
pub(super) enum Mode {
    /// RFC 8259.
    Strict,
    /// What models get wrong.
    Repair,
}

/// What had to be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// A comma before a closing bracket.
    TrailingComma,
    /// No comma between two entries on lines of their own.
    MissingComma,
    /// `//`, `#` or `/* */`.
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

impl std::fmt::Display for Repair {
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
pub(super) struct Outcome {
    pub(super) value: Value,
    pub(super) end: usize,
    pub(super) repairs: Vec<Repair>,
}

/// Why no value could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: &'static str,
    /// The text ended first.
    pub(super) truncated: bool,
}

/// Reads the value that starts at `at`. `steps` is raised by the bytes looked at.
pub(super) fn parse_at(
    text: &str,
    at: usize,
    mode: Mode,
    steps: &mut usize,
) -> Result<Outcome, Fault> {
    let mut reader =
        Reader { text, bytes: text.as_bytes(), at, mode, repairs: Vec::new(), open_lists: 0 };
    let result = reader.value(0, Place::Value);
    *steps += reader.at.saturating_sub(at) + 1;
    let value = result?;
    reader.repairs.sort_unstable();
    reader.repairs.dedup();
    Ok(Outcome { value, end: reader.at, repairs: reader.repairs })
}

/// Where a text stands; it decides how its end is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a colon.
    Key,
    /// After one.
    Value,
    /// In a list: no key follows that would prove where the text ends.
    Entry,
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    mode: Mode,
    repairs: Vec<Repair>,
    open_lists: usize,
}

impl Reader<'_> {
    fn fault<T>(&self, message: &'static str) -> Result<T, Fault> {
        Err(Fault { at: self.at, message, truncated: self.at >= self.bytes.len() })
    }

    /// Notes a repair; in strict mode it is a fault.
    fn mend(&mut self, repair: Repair, message: &'static str) -> Result<(), Fault> {
        if self.mode == Mode::Strict {
            return self.fault(message);
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

    fn gap(&mut self) -> Result<(), Fault> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(b'#') => self.comment("\n")?,
                Some(b'/') if self.rest().starts_with("//") => self.comment("\n")?,
                Some(b'/') if self.rest().starts_with("/*") => self.comment("*/")?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self, end: &str) -> Result<(), Fault> {
        self.mend(Repair::Comment, "comments are not allowed in JSON")?;
        let start = self.at;
        self.at = self.rest().find(end).map_or(self.bytes.len(), |found| start + found + end.len());
        // "// … more tasks" stands for content that is not there.
        let words = self.text[start..self.at].to_lowercase();
        let hollow = words.contains("...") || words.contains('…');
        if hollow || words.contains("more ") || words.contains("rest of") || words.contains("etc") {
            self.at = start;
            return self.fault("a comment replaces missing content");
        }
        Ok(())
    }

    fn value(&mut self, depth: usize, place: Place) -> Result<Value, Fault> {
        if depth > DEPTH_MAX {
            return self.fault("nested too deep");
        }
        self.gap()?;
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Value::String(self.string("\"", place)?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'\'') => self.other_string("'", place),
            Some(_) if self.rest().starts_with(['“', '”']) => self.other_string("”", place),
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.word(),
            _ => self.fault("a value is missing"),
        }
    }

    fn other_string(&mut self, end: &str, place: Place) -> Result<Value, Fault> {
        self.mend(Repair::OtherQuotes, "strings need double quotes")?;
        Ok(Value::String(self.string(end, place)?))
    }

    fn word(&mut self) -> Result<Value, Fault> {
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
                return self.fault("the text ends in the middle of a literal");
            }
            _ => return self.fault("a string without quotes"),
        };
        if python {
            self.mend(Repair::PythonWord, "use true, false and null")?;
        }
        self.at += len;
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let number = |b: &u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let len = self.bytes[self.at..].iter().take_while(|b| number(b)).count();
        match self.rest()[..len].parse::<Number>() {
            // A number at the text's end may have lost digits.
            Ok(_) if self.at + len >= self.bytes.len() => {
                self.at = self.bytes.len();
                self.fault("the text ends in the middle")
            }
            Ok(number) => {
                self.at += len;
                Ok(Value::Number(number))
            }
            Err(_) => self.fault("invalid number"),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        self.open_lists += 1;
        let mut items = Vec::new();
        loop {
            self.gap()?;
            match self.peek() {
                Some(b']') => break,
                None => return self.fault("the list has no end"),
                Some(b',') => return self.fault("an entry is missing"),
                _ => {}
            }
            items.push(self.value(depth + 1, Place::Entry)?);
            self.comma(b']')?;
        }
        self.at += 1;
        self.open_lists -= 1;
        Ok(Value::Array(items))
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut entries = Map::new();
        loop {
            self.gap()?;
            match self.peek() {
                Some(b'}') => break,
                None | Some(b'`') if self.may_close(depth, &entries) => {
                    self.mend(Repair::MissingBrace, "the closing brace is missing")?;
                    return Ok(Value::Object(entries));
                }
                None => return self.fault("the object has no end"),
                _ => {}
            }
            let key_at = self.at;
            let key = self.key()?;
            self.gap()?;
            if self.peek() != Some(b':') {
                return self.fault("a colon is missing");
            }
            self.at += 1;
            let value = self.value(depth + 1, Place::Value)?;
            if entries.insert(key, value).is_some() {
                self.at = key_at;
                return self.fault("duplicate key");
            }
            self.comma(b'}')?;
        }
        self.at += 1;
        Ok(Value::Object(entries))
    }

    /// Only the outermost brace may be missing, and only after a list that did end: then nothing
    /// of that list can be lost.
    fn may_close(&self, depth: usize, entries: &Map<String, Value>) -> bool {
        let ended = self.text[..self.at].trim_end().ends_with(']');
        depth == 0 && self.open_lists == 0 && ended && entries.values().any(Value::is_array)
    }

    /// Between entries: a comma, or the end ahead.
    fn comma(&mut self, close: u8) -> Result<(), Fault> {
        let before = self.at;
        self.gap()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.gap()?;
                match self.peek() {
                    Some(byte) if byte == close => {
                        self.mend(Repair::TrailingComma, "a comma before the end")
                    }
                    Some(b',') => self.fault("an entry is missing"),
                    _ => Ok(()),
                }
            }
            Some(byte) if byte == close => Ok(()),
            None => Ok(()),
            Some(b'"' | b'{' | b'[') if self.text[before..self.at].contains('\n') => {
                self.mend(Repair::MissingComma, "a comma is missing")
            }
            _ => self.fault("a comma is missing"),
        }
    }

    fn key(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(b'"') => self.string("\"", Place::Key),
            Some(b'\'') => {
                self.mend(Repair::OtherQuotes, "keys need double quotes")?;
                self.string("'", Place::Key)
            }
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                self.mend(Repair::BareKey, "keys need double quotes")?;
                let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let len = self.bytes[self.at..].iter().take_while(|b| word(b)).count();
                let key = self.rest()[..len].to_owned();
                self.at += len;
                Ok(key)
            }
            Some(_) if self.rest().starts_with(['“', '”']) => {
                self.mend(Repair::OtherQuotes, "keys need double quotes")?;
                self.string("”", Place::Key)
            }
            _ => self.fault("a key is missing"),
        }
    }

    /// The opening quote is ahead; `end` closes.
    fn string(&mut self, end: &str, place: Place) -> Result<String, Fault> {
        let first = self.rest().chars().next().map_or(1, char::len_utf8);
        self.at += first;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let stop = |c: char| c == '\\' || c < ' ' || end.starts_with(c);
            let Some(plain) = rest.find(stop) else {
                self.at = self.bytes.len();
                return self.fault("the text has no end");
            };
            out.push_str(&rest[..plain]);
            self.at += plain;
            let rest = self.rest();
            if rest.starts_with(end) {
                if self.closes(end, place) {
                    self.at += end.len();
                    return Ok(out);
                }
                if place != Place::Value {
                    return self.fault("a quote inside a text");
                }
                self.mend(Repair::InnerQuote, "a quote inside a text")?;
                out.push_str(end);
                self.at += end.len();
            } else if rest.starts_with('\\') {
                self.escape(&mut out)?;
            } else {
                self.mend(Repair::RawControl, "a control character inside a text")?;
                out.push(char::from(self.bytes[self.at]));
                self.at += 1;
            }
        }
    }

    /// Does the quote ahead end its text? In strict mode every quote does. Otherwise what follows
    /// must be able to follow a text: of a key a colon; of a value an end, or a comma and then
    /// something that can be an entry.
    fn closes(&self, end: &str, place: Place) -> bool {
        if self.mode == Mode::Strict {
            return true;
        }
        let after = self.text[self.at + end.len()..].trim_start();
        let Some(next) = after.chars().next() else { return true };
        if place == Place::Key {
            return next == ':';
        }
        match next {
            '}' | ']' | '/' | '#' => true,
            ',' => {
                let entry = after[1..].trim_start();
                let wordy = entry.starts_with(char::is_alphabetic);
                !wordy || after[1..].starts_with(['\n', '\r']) || key_or_word(entry)
            }
            '"' | '\'' | '{' => {
                let line = self.text[self.at + end.len()..].trim_start_matches([' ', '\t', '\r']);
                line.starts_with('\n')
            }
            _ => false,
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Fault> {
        let rest = self.rest();
        let Some(c) = rest[1..].chars().next() else {
            self.at = self.bytes.len();
            return self.fault("the text has no end");
        };
        let plain = match c {
            '"' | '\\' | '/' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => return self.unicode(out),
            '\'' => {
                self.mend(Repair::BadEscape, "invalid escape")?;
                c
            }
            // `\d` of a pattern and `\.` of a path mean themselves.
            _ if !c.is_control() => {
                self.mend(Repair::BadEscape, "invalid escape")?;
                out.push('\\');
                c
            }
            _ => return self.fault("invalid escape"),
        };
        out.push(plain);
        self.at += 1 + c.len_utf8();
        Ok(())
    }

    fn unicode(&mut self, out: &mut String) -> Result<(), Fault> {
        let Some(first) = self.hex(self.at + 2) else {
            return self.fault("`\\u` needs four digits");
        };
        let mut len = 6;
        let mut code = first;
        if (0xd800..0xdc00).contains(&first) && self.rest()[6..].starts_with("\\u") {
            match self.hex(self.at + 8) {
                Some(second) if (0xdc00..0xe000).contains(&second) => {
                    code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    len = 12;
                }
                _ => return self.fault("an incomplete surrogate pair"),
            }
        }
        let Some(c) = char::from_u32(code) else {
            return self.fault("an incomplete surrogate pair");
        };
        out.push(c);
        self.at += len;
        Ok(())
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 4)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u32::from_str_radix(self.text.get(at..at + 4)?, 16).ok()
    }
}

fn key_or_word(text: &str) -> bool {
    let len = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    matches!(&text[..len], "true" | "false" | "null" | "True" | "False" | "None")
        || text[len..].starts_with(':')
}
