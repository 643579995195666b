//! TOML, YAML and JSON as one spanned tree, within limits.
//!
//! Knows nothing of plans or settings: it reads syntax, and says where each key and value stands.
//! Hostile texts cost a diagnostic, never a stack or a memory that grows out of bounds.

mod json;
mod yaml;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diag::{Diagnostic, Lines};

/// Deeper nesting than any plan or configuration needs, shallow enough for recursion.
pub const DEPTH_MAX: usize = 64;

/// A plan of a million tasks fits; spans fit 32 bits.
pub const SIZE_MAX: usize = 64 << 20;

/// A text of the largest size has about 10 million if it is a plan; more is made to hurt.
pub const MARKS_MAX: usize = 12_000_000;

/// A report longer than this is not read by anyone; the rest is counted.
pub const FAULTS_MAX: usize = 1_000;

/// Above this, only the first TOML syntax error is shown: collecting all could cost gigabytes.
const RECOVER_MAX: usize = 1 << 20;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// YAML 1.2 without anchors and tags.
    Yaml,
    /// JSON as in RFC 8259.
    Json,
}

impl Format {
    /// The format that a file's name promises.
    pub fn from_path(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// A value and the bytes it stands at.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'s> {
    /// Bytes of the source.
    pub span: Range<usize>,
    /// What stands there.
    pub value: Value<'s>,
}

/// A table's key and the bytes it stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key<'s> {
    /// The key, unquoted.
    pub text: Cow<'s, str>,
    /// Bytes of the source.
    pub span: Range<usize>,
}

/// What a text can say.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'s> {
    /// Nothing; TOML has none.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(Cow<'s, str>),
    /// A TOML date or time, as written. No key of ours takes one.
    Date(String),
    /// Values in order.
    List(Vec<Node<'s>>),
    /// Keys and values in the order of the source.
    Table(Vec<(Key<'s>, Node<'s>)>),
}

/// The line of a gate that is written as a table of plain values.
pub(crate) fn gate_line(entries: &[(Key<'_>, Node<'_>)]) -> Result<String, String> {
    let mut fields = std::collections::BTreeMap::new();
    for (key, node) in entries {
        let text = match &node.value {
            Value::Str(text) => text.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bool(yes) => yes.to_string(),
            other => {
                return Err(format!("`{}` of a check is a string, not {}", key.text, other.kind()));
            }
        };
        fields.insert(key.text.to_string(), text);
    }
    crate::gate::from_fields(&fields)
}

impl Value<'_> {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::Date(_) => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Collects what is wrong; lines are worked out at the end, and only if there is anything.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    list: Vec<Diagnostic>,
}

impl Faults {
    /// Adds a fault; its cure may be set on the result.
    pub(crate) fn add(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        let message = message.into();
        self.list.push(Diagnostic { code, message, span, line: 0, column: 0, help: None });
        self.list.last_mut().expect("BUG: just pushed")
    }

    /// Adds a fault with its cure.
    pub(crate) fn add_help(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(code, span, message).help = Some(help.into());
    }

    /// True while nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes over what others found.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.list.append(&mut other.list);
    }

    /// Everything in the order of the source, with lines and columns.
    pub(crate) fn finish(mut self, source: &str) -> Vec<Diagnostic> {
        if self.list.is_empty() {
            return self.list;
        }
        self.list.sort_by_key(|fault| (fault.span.start, fault.span.end));
        self.list.dedup();
        let more = self.list.len().saturating_sub(FAULTS_MAX);
        if more > 0 {
            self.list.truncate(FAULTS_MAX);
            let end = source.len()..source.len();
            self.add("report::more", end, format!("{more} more errors are not shown"));
        }
        let lines = Lines::new(source);
        for fault in &mut self.list {
            (fault.line, fault.column) = lines.place(fault.span.start);
        }
        self.list
    }
}

/// The text in `bytes`, if it is short enough and UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, Vec<Diagnostic>> {
    let mut faults = Faults::default();
    if bytes.len() > SIZE_MAX {
        let message = format!("the file has {} bytes; the limit is {SIZE_MAX}", bytes.len());
        faults.add_help("syntax::size", 0..0, message, "split the file into several plans");
        return Err(faults.finish(""));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let good = std::str::from_utf8(&bytes[..at]).unwrap_or_default();
        let message = format!("byte {at} (0x{:02x}) is not UTF-8", bytes[at]);
        faults.add_help("syntax::utf8", at..at, message, "save the file as UTF-8");
        faults.finish(good)
    })
}

/// Reads a text into a tree, or says everything that is wrong with its syntax.
pub fn parse(source: &str, format: Format) -> Result<Node<'_>, Vec<Diagnostic>> {
    parse_raw(source, format).map_err(|faults| faults.finish(source))
}

pub(crate) fn parse_raw(source: &str, format: Format) -> Result<Node<'_>, Faults> {
    if source.len() > SIZE_MAX {
        let mut faults = Faults::default();
        faults.add("syntax::size", 0..0, format!("the text is longer than {SIZE_MAX} bytes"));
        return Err(faults);
    }
    if marks(source) > MARKS_MAX {
        let mut faults = Faults::default();
        let message = format!("the text has more than {MARKS_MAX} commas, brackets and the like");
        faults.add_help("syntax::size", 0..0, message, "split it into several files");
        return Err(faults);
    }
    let body = source.strip_prefix('\u{feff}').unwrap_or(source);
    let base = source.len() - body.len();
    match format {
        Format::Toml => parse_toml(body, base),
        Format::Yaml => yaml::parse_yaml(body, base),
        Format::Json => json::parse_json(body, base),
    }
}

/// Parsers keep something for each of these, far larger than the byte itself.
fn marks(source: &str) -> usize {
    let mark = |byte: &&u8| matches!(**byte, b',' | b'[' | b'{' | b':' | b'=' | b'.' | b'\n');
    source.as_bytes().iter().filter(mark).count()
}

fn too_deep(faults: &mut Faults, span: Range<usize>) {
    let message = format!("nested more than {DEPTH_MAX} levels deep");
    faults.add_help("syntax::depth", span, message, "flatten the value");
}

// TOML

fn parse_toml(body: &str, base: usize) -> Result<Node<'_>, Faults> {
    let table = match DeTable::parse(body) {
        Ok(table) => table,
        Err(first) => return Err(toml_faults(body, base, first)),
    };
    let mut reader = TomlReader { base, faults: Faults::default() };
    let span = base..base + body.len();
    let value = reader.table(table.into_inner(), 1);
    if reader.faults.is_empty() { Ok(Node { span, value }) } else { Err(reader.faults) }
}

fn toml_faults(body: &str, base: usize, first: toml::de::Error) -> Faults {
    let all =
        if body.len() <= RECOVER_MAX { DeTable::parse_recoverable(body).1 } else { vec![first] };
    let mut faults = Faults::default();
    for error in all.iter().take(FAULTS_MAX) {
        let span = error.span().unwrap_or(0..0);
        let span = base + span.start..base + span.end;
        let message = error.message().trim();
        if message.contains("recurs") {
            // The parser names no place for over-long dotted keys, and one report is enough.
            let mut deep = Faults::default();
            too_deep(&mut deep, span);
            return deep;
        }
        if message.contains("duplicate key") {
            let key = source_part(body, error.span());
            let message = format!("duplicate key `{}`", clip(key));
            faults.add_help("syntax::duplicate_key", span, message, "keep one of them");
        } else {
            let help = "check quotes, brackets and `=` here";
            faults.add_help("syntax::toml", span, message.replace('\n', "; "), help);
        }
    }
    faults
}

fn source_part(body: &str, span: Option<Range<usize>>) -> &str {
    span.and_then(|span| body.get(span)).unwrap_or_default()
}

struct TomlReader {
    base: usize,
    faults: Faults,
}

impl TomlReader {
    fn span(&self, span: Range<usize>) -> Range<usize> {
        self.base + span.start..self.base + span.end
    }

    /// `depth` counts the containers around this table, itself included. Bounded by the parser's
    /// own limits on brackets and dotted keys, so recursion is safe.
    fn table<'s>(&mut self, table: DeTable<'s>, depth: usize) -> Value<'s> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let span = self.span(key.span());
            let key = Key { text: key.into_inner(), span };
            let node = self.node(value, depth);
            entries.push((key, node));
        }
        entries.sort_by_key(|(key, _)| key.span.start);
        Value::Table(entries)
    }

    fn node<'s>(&mut self, value: Spanned<DeValue<'s>>, depth: usize) -> Node<'s> {
        let span = self.span(value.span());
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Str(text),
            DeValue::Boolean(yes) => Value::Bool(yes),
            DeValue::Datetime(date) => Value::Date(date.to_string()),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Int(number),
                    Err(_) => number_out_of_range(&mut self.faults, span.clone()),
                }
            }
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Array(_) | DeValue::Table(_) if depth >= DEPTH_MAX => {
                too_deep(&mut self.faults, span.clone());
                Value::Null
            }
            DeValue::Array(items) => {
                Value::List(items.into_iter().map(|item| self.node(item, depth + 1)).collect())
            }
            DeValue::Table(table) => self.table(table, depth + 1),
        };
        Node { span, value }
    }
}

fn number_out_of_range<'s>(faults: &mut Faults, span: Range<usize>) -> Value<'s> {
    faults.add_help(
        "syntax::number",
        span,
        "the number does not fit into 64 bits",
        "use a smaller number, or add quotes for a string",
    );
    Value::Null
}

// What YAML and JSON share: a tree built from openings and closings, without recursion.

struct Builder<'s> {
    stack: Vec<Frame<'s>>,
    root: Option<Node<'s>>,
    faults: Faults,
}

struct Frame<'s> {
    start: usize,
    kind: FrameKind<'s>,
}

enum FrameKind<'s> {
    List(Vec<Node<'s>>),
    Table(Vec<(Key<'s>, Node<'s>)>, Option<Key<'s>>),
}

/// Nothing after this point of the text can be trusted; the fault is noted.
struct Stop;

impl<'s> Builder<'s> {
    fn new() -> Self {
        Self { stack: Vec::new(), root: None, faults: Faults::default() }
    }

    fn wants_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame { kind: FrameKind::Table(_, None), .. }))
    }

    fn key(&mut self, text: Cow<'s, str>, span: Range<usize>) {
        if let Some(Frame { kind: FrameKind::Table(_, pending), .. }) = self.stack.last_mut() {
            *pending = Some(Key { text, span });
        }
    }

    fn open(&mut self, start: usize, kind: FrameKind<'s>) -> Result<(), Stop> {
        if self.stack.len() >= DEPTH_MAX {
            too_deep(&mut self.faults, start..start + 1);
            return Err(Stop);
        }
        self.stack.push(Frame { start, kind });
        Ok(())
    }

    fn close(&mut self, end: usize) {
        let Some(Frame { start, kind }) = self.stack.pop() else { return };
        let value = match kind {
            FrameKind::List(items) => Value::List(items),
            FrameKind::Table(entries, _) => {
                self.report_duplicates(&entries);
                Value::Table(entries)
            }
        };
        self.put(Node { span: start..end.max(start), value });
    }

    fn put(&mut self, node: Node<'s>) {
        match self.stack.last_mut().map(|frame| &mut frame.kind) {
            None => self.root = Some(node),
            Some(FrameKind::List(items)) => items.push(node),
            Some(FrameKind::Table(entries, pending)) => {
                if let Some(key) = pending.take() {
                    entries.push((key, node));
                }
            }
        }
    }

    fn report_duplicates(&mut self, entries: &[(Key<'s>, Node<'s>)]) {
        let mut seen = BTreeSet::new();
        for (key, _) in entries {
            if !seen.insert(&*key.text) {
                let message = format!("duplicate key `{}`", clip(&key.text));
                self.faults.add_help(
                    "syntax::duplicate_key",
                    key.span.clone(),
                    message,
                    "keep one of them",
                );
            }
        }
    }

    fn finish(self, span: Range<usize>) -> Result<Node<'s>, Faults> {
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        Ok(self.root.unwrap_or(Node { span, value: Value::Null }))
    }
}

/// A text for a message: short, and without characters that would disturb a terminal.
pub(crate) fn clip(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let mut out: String =
        text.chars().take(CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
