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

use crate::diagnostic::{Diagnostic, LineIndex};

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
pub enum DocumentFormat {
    Toml,
    /// YAML 1.2 without anchors and tags.
    Yaml,
    /// JSON as in RFC 8259.
    Json,
}

impl DocumentFormat {
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
pub struct DocumentNode<'s> {
    /// Bytes of the source.
    pub span: Range<usize>,
    pub value: DocumentValue<'s>,
}

/// A table's key and the bytes it stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentKey<'s> {
    pub text: Cow<'s, str>,
    /// Bytes of the source.
    pub span: Range<usize>,
}

/// What a text can say.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentValue<'s> {
    /// Nothing; TOML has none.
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Cow<'s, str>),
    /// A TOML date or time, as written. No key of ours takes one.
    Date(String),
    List(Vec<DocumentNode<'s>>),
    /// Keys and values in the order of the source.
    Table(Vec<(DocumentKey<'s>, DocumentNode<'s>)>),
}

/// The line of a gate that is written as a table of plain values.
pub(crate) fn gate_line(entries: &[(DocumentKey<'_>, DocumentNode<'_>)]) -> Result<String, String> {
    let mut fields = std::collections::BTreeMap::new();
    for (key, node) in entries {
        let text = match &node.value {
            DocumentValue::Str(text) => text.to_string(),
            DocumentValue::Int(number) => number.to_string(),
            DocumentValue::Float(number) => number.to_string(),
            DocumentValue::Bool(yes) => yes.to_string(),
            other => {
                return Err(format!("`{}` of a check is a string, not {}", key.text, other.kind()));
            }
        };
        fields.insert(key.text.to_string(), text);
    }
    crate::gate::gate_line_from_fields(&fields)
}

impl DocumentValue<'_> {
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
pub(crate) struct FaultCollector {
    list: Vec<Diagnostic>,
}

impl FaultCollector {
    /// Adds a fault; its cure may be set on the result.
    pub(crate) fn add_fault(
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
    pub(crate) fn add_fault_with_help(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add_fault(code, span, message).help = Some(help.into());
    }

    /// True while nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes over what others found.
    pub(crate) fn append_faults(&mut self, mut other: Self) {
        self.list.append(&mut other.list);
    }

    /// Everything in the order of the source, with lines and columns.
    pub(crate) fn into_diagnostics(mut self, source: &str) -> Vec<Diagnostic> {
        if self.list.is_empty() {
            return self.list;
        }
        self.list.sort_by_key(|fault| (fault.span.start, fault.span.end));
        self.list.dedup();
        let more = self.list.len().saturating_sub(FAULTS_MAX);
        if more > 0 {
            self.list.truncate(FAULTS_MAX);
            let end = source.len()..source.len();
            self.add_fault("report::more", end, format!("{more} more errors are not shown"));
        }
        let lines = LineIndex::new(source);
        for fault in &mut self.list {
            (fault.line, fault.column) = lines.line_and_column(fault.span.start);
        }
        self.list
    }
}

/// The text in `bytes`, if it is short enough and UTF-8.
pub fn decode_text(bytes: &[u8]) -> Result<&str, Vec<Diagnostic>> {
    let mut faults = FaultCollector::default();
    if bytes.len() > SIZE_MAX {
        let message = format!("the file has {} bytes; the limit is {SIZE_MAX}", bytes.len());
        faults.add_fault_with_help(
            "syntax::size",
            0..0,
            message,
            "split the file into several plans",
        );
        return Err(faults.into_diagnostics(""));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let good = std::str::from_utf8(&bytes[..at]).unwrap_or_default();
        let message = format!("byte {at} (0x{:02x}) is not UTF-8", bytes[at]);
        faults.add_fault_with_help("syntax::utf8", at..at, message, "save the file as UTF-8");
        faults.into_diagnostics(good)
    })
}

/// Reads a text into a tree, or says everything that is wrong with its syntax.
pub fn parse_document(
    source: &str,
    format: DocumentFormat,
) -> Result<DocumentNode<'_>, Vec<Diagnostic>> {
    parse_with_faults(source, format).map_err(|faults| faults.into_diagnostics(source))
}

pub(crate) fn parse_with_faults(
    source: &str,
    format: DocumentFormat,
) -> Result<DocumentNode<'_>, FaultCollector> {
    if source.len() > SIZE_MAX {
        let mut faults = FaultCollector::default();
        faults.add_fault("syntax::size", 0..0, format!("the text is longer than {SIZE_MAX} bytes"));
        return Err(faults);
    }
    if count_structure_marks(source) > MARKS_MAX {
        let mut faults = FaultCollector::default();
        let message = format!("the text has more than {MARKS_MAX} commas, brackets and the like");
        faults.add_fault_with_help("syntax::size", 0..0, message, "split it into several files");
        return Err(faults);
    }
    let body = source.strip_prefix('\u{feff}').unwrap_or(source);
    let base = source.len() - body.len();
    match format {
        DocumentFormat::Toml => parse_toml(body, base),
        DocumentFormat::Yaml => yaml::parse_yaml(body, base),
        DocumentFormat::Json => json::parse_json(body, base),
    }
}

/// Parsers keep something for each of these, far larger than the byte itself.
fn count_structure_marks(source: &str) -> usize {
    let mark = |byte: &&u8| matches!(**byte, b',' | b'[' | b'{' | b':' | b'=' | b'.' | b'\n');
    source.as_bytes().iter().filter(mark).count()
}

fn report_too_deep(faults: &mut FaultCollector, span: Range<usize>) {
    let message = format!("nested more than {DEPTH_MAX} levels deep");
    faults.add_fault_with_help("syntax::depth", span, message, "flatten the value");
}

// TOML

fn parse_toml(body: &str, base: usize) -> Result<DocumentNode<'_>, FaultCollector> {
    let table = match DeTable::parse(body) {
        Ok(table) => table,
        Err(first) => return Err(collect_toml_faults(body, base, first)),
    };
    let mut reader = TomlReader { base, faults: FaultCollector::default() };
    let span = base..base + body.len();
    let value = reader.read_table(table.into_inner(), 1);
    if reader.faults.is_empty() { Ok(DocumentNode { span, value }) } else { Err(reader.faults) }
}

fn collect_toml_faults(body: &str, base: usize, first: toml::de::Error) -> FaultCollector {
    let all =
        if body.len() <= RECOVER_MAX { DeTable::parse_recoverable(body).1 } else { vec![first] };
    let mut faults = FaultCollector::default();
    for error in all.iter().take(FAULTS_MAX) {
        let span = error.span().unwrap_or(0..0);
        let span = base + span.start..base + span.end;
        let message = error.message().trim();
        if message.contains("recurs") {
            // The parser names no place for over-long dotted keys, and one report is enough.
            let mut deep = FaultCollector::default();
            report_too_deep(&mut deep, span);
            return deep;
        }
        if message.contains("duplicate key") {
            let key = source_part(body, error.span());
            let message = format!("duplicate key `{}`", clip_text(key));
            faults.add_fault_with_help("syntax::duplicate_key", span, message, "keep one of them");
        } else {
            let help = "check quotes, brackets and `=` here";
            faults.add_fault_with_help("syntax::toml", span, message.replace('\n', "; "), help);
        }
    }
    faults
}

fn source_part(body: &str, span: Option<Range<usize>>) -> &str {
    span.and_then(|span| body.get(span)).unwrap_or_default()
}

struct TomlReader {
    base: usize,
    faults: FaultCollector,
}

impl TomlReader {
    fn source_span(&self, span: Range<usize>) -> Range<usize> {
        self.base + span.start..self.base + span.end
    }

    /// `depth` counts the containers around this table, itself included. Bounded by the parser's
    /// own limits on brackets and dotted keys, so recursion is safe.
    fn read_table<'s>(&mut self, table: DeTable<'s>, depth: usize) -> DocumentValue<'s> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let span = self.source_span(key.span());
            let key = DocumentKey { text: key.into_inner(), span };
            let node = self.read_node(value, depth);
            entries.push((key, node));
        }
        entries.sort_by_key(|(key, _)| key.span.start);
        DocumentValue::Table(entries)
    }

    fn read_node<'s>(&mut self, value: Spanned<DeValue<'s>>, depth: usize) -> DocumentNode<'s> {
        let span = self.source_span(value.span());
        let value = match value.into_inner() {
            DeValue::String(text) => DocumentValue::Str(text),
            DeValue::Boolean(yes) => DocumentValue::Bool(yes),
            DeValue::Datetime(date) => DocumentValue::Date(date.to_string()),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => DocumentValue::Int(number),
                    Err(_) => report_number_range(&mut self.faults, span.clone()),
                }
            }
            DeValue::Float(number) => {
                DocumentValue::Float(number.as_str().parse().unwrap_or(f64::NAN))
            }
            DeValue::Array(_) | DeValue::Table(_) if depth >= DEPTH_MAX => {
                report_too_deep(&mut self.faults, span.clone());
                DocumentValue::Null
            }
            DeValue::Array(items) => DocumentValue::List(
                items.into_iter().map(|item| self.read_node(item, depth + 1)).collect(),
            ),
            DeValue::Table(table) => self.read_table(table, depth + 1),
        };
        DocumentNode { span, value }
    }
}

fn report_number_range<'s>(faults: &mut FaultCollector, span: Range<usize>) -> DocumentValue<'s> {
    faults.add_fault_with_help(
        "syntax::number",
        span,
        "the number does not fit into 64 bits",
        "use a smaller number, or add quotes for a string",
    );
    DocumentValue::Null
}

// What YAML and JSON share: a tree built from openings and closings, without recursion.

struct DocumentBuilder<'s> {
    stack: Vec<OpenContainer<'s>>,
    root: Option<DocumentNode<'s>>,
    faults: FaultCollector,
}

struct OpenContainer<'s> {
    start: usize,
    kind: ContainerKind<'s>,
}

enum ContainerKind<'s> {
    List(Vec<DocumentNode<'s>>),
    Table(Vec<(DocumentKey<'s>, DocumentNode<'s>)>, Option<DocumentKey<'s>>),
}

/// Nothing after this point of the text can be trusted; the fault is noted.
struct ParseStop;

impl<'s> DocumentBuilder<'s> {
    fn new() -> Self {
        Self { stack: Vec::new(), root: None, faults: FaultCollector::default() }
    }

    fn expects_key(&self) -> bool {
        matches!(self.stack.last(), Some(OpenContainer { kind: ContainerKind::Table(_, None), .. }))
    }

    fn set_key(&mut self, text: Cow<'s, str>, span: Range<usize>) {
        if let Some(OpenContainer { kind: ContainerKind::Table(_, pending), .. }) =
            self.stack.last_mut()
        {
            *pending = Some(DocumentKey { text, span });
        }
    }

    fn open(&mut self, start: usize, kind: ContainerKind<'s>) -> Result<(), ParseStop> {
        if self.stack.len() >= DEPTH_MAX {
            report_too_deep(&mut self.faults, start..start + 1);
            return Err(ParseStop);
        }
        self.stack.push(OpenContainer { start, kind });
        Ok(())
    }

    fn close(&mut self, end: usize) {
        let Some(OpenContainer { start, kind }) = self.stack.pop() else { return };
        let value = match kind {
            ContainerKind::List(items) => DocumentValue::List(items),
            ContainerKind::Table(entries, _) => {
                self.report_duplicates(&entries);
                DocumentValue::Table(entries)
            }
        };
        self.push_node(DocumentNode { span: start..end.max(start), value });
    }

    fn push_node(&mut self, node: DocumentNode<'s>) {
        match self.stack.last_mut().map(|frame| &mut frame.kind) {
            None => self.root = Some(node),
            Some(ContainerKind::List(items)) => items.push(node),
            Some(ContainerKind::Table(entries, pending)) => {
                if let Some(key) = pending.take() {
                    entries.push((key, node));
                }
            }
        }
    }

    fn report_duplicates(&mut self, entries: &[(DocumentKey<'s>, DocumentNode<'s>)]) {
        let mut seen = BTreeSet::new();
        for (key, _) in entries {
            if !seen.insert(&*key.text) {
                let message = format!("duplicate key `{}`", clip_text(&key.text));
                self.faults.add_fault_with_help(
                    "syntax::duplicate_key",
                    key.span.clone(),
                    message,
                    "keep one of them",
                );
            }
        }
    }

    fn into_document(self, span: Range<usize>) -> Result<DocumentNode<'s>, FaultCollector> {
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        Ok(self.root.unwrap_or(DocumentNode { span, value: DocumentValue::Null }))
    }
}

/// A text for a message: short, and without characters that would disturb a terminal.
pub(crate) fn clip_text(text: &str) -> String {
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
