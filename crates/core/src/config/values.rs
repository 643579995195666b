//! Single values: from a tree or a text to what the key's kind asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Range, RangeInclusive};

use super::keys::{KeyDoc, SettingKind};
use super::layers::{AgentMentions, SettingOrigin};
use crate::diagnostic::nearest_word;
use crate::gate::GateSpec;
use crate::glob::check_glob;
use crate::plan::document::{
    self, DocumentFormat, DocumentNode, DocumentValue, FaultCollector, clip_text,
};
use crate::plan::quantities::{parse_duration_ms, parse_size, render_duration_ms, render_size};
use crate::quiet_hours::QuietHours;

/// A value that fits its key. Displayed as TOML.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SettingValue {
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(String),
    Texts(Vec<String>),
    Ms(u64),
    Bytes(u64),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = |text: &str| toml::Value::String(text.to_owned()).to_string();
        match self {
            Self::Bool(yes) => write!(f, "{yes}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Text(text) => f.write_str(&quote(text)),
            Self::Texts(texts) => {
                let texts: Vec<_> = texts.iter().map(|text| quote(text)).collect();
                write!(f, "[{}]", texts.join(", "))
            }
            Self::Ms(ms) => f.write_str(&quote(&render_duration_ms(*ms))),
            Self::Bytes(bytes) => f.write_str(&quote(&render_size(*bytes))),
        }
    }
}

/// A value and who set it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SettingEntry {
    pub(super) setting: SettingValue,
    pub(super) origin: SettingOrigin,
    pub(super) line: Option<usize>,
}

/// Values by dotted path; entries of tables have paths of their own.
#[derive(Debug, Default)]
pub(super) struct SettingValues {
    map: BTreeMap<String, SettingEntry>,
    /// Every agent that some layer names.
    pub(super) agents: AgentMentions,
}

impl SettingValues {
    pub(super) fn set(&mut self, path: String, entry: SettingEntry) {
        self.map.insert(path, entry);
    }

    pub(super) fn get(&self, path: &str) -> Option<&SettingEntry> {
        self.map.get(path)
    }

    /// The entries of a table: full path, name, value.
    pub(super) fn table_entries(
        &self,
        path: &str,
    ) -> impl Iterator<Item = (&str, &str, &SettingEntry)> {
        let prefix = format!("{path}.");
        self.map
            .range(prefix.clone()..)
            .map_while(move |(key, entry)| Some((key.as_str(), key.strip_prefix(&prefix)?, entry)))
    }

    pub(super) fn mention_agent(
        &mut self,
        name: &str,
        origin: &SettingOrigin,
        line: Option<usize>,
    ) {
        self.agents.insert(name.to_owned(), (origin.clone(), line));
    }
}

/// Reads a key's value; a table gives one value per entry.
pub(super) fn read_value(
    doc: &KeyDoc,
    path: &str,
    node: DocumentNode<'_>,
    faults: &mut FaultCollector,
) -> Vec<(String, SettingValue)> {
    match (doc.kind, node.value) {
        (SettingKind::Counts | SettingKind::Variables, DocumentValue::Table(entries)) => entries
            .into_iter()
            .filter_map(|(key, node)| {
                let path = format!("{path}.{}", key.text);
                if key.text.is_empty() || key.text.contains(['=', '\0']) {
                    let message = format!("invalid name `{}`", clip_text(&key.text));
                    faults.add_fault_with_help(
                        "config::value",
                        key.span,
                        message,
                        "use a word without spaces or special characters",
                    );
                    return None;
                }
                let kind = match doc.kind {
                    SettingKind::Counts => SettingKind::Int { min: 0, max: 10_000 },
                    _ => SettingKind::Text,
                };
                let setting = read_single_value(&KeyDoc { kind, ..*doc }, &path, node, faults)?;
                Some((path, setting))
            })
            .collect(),
        (_, value) => {
            let node = DocumentNode { span: node.span, value };
            read_single_value(doc, path, node, faults)
                .map(|value| (path.to_owned(), value))
                .into_iter()
                .collect()
        }
    }
}

fn read_single_value(
    doc: &KeyDoc,
    path: &str,
    node: DocumentNode<'_>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    let span = node.span.clone();
    match (doc.kind, node.value) {
        (SettingKind::Bool | SettingKind::Switch, DocumentValue::Bool(yes)) => {
            Some(SettingValue::Bool(yes))
        }
        (SettingKind::Switch, DocumentValue::Str(word)) if matches!(&*word, "auto" | "off") => {
            Some(SettingValue::Text(word.into_owned()))
        }
        (SettingKind::IntOrAuto { .. }, DocumentValue::Str(word)) if word == "auto" => {
            Some(SettingValue::Text(word.into_owned()))
        }
        (
            SettingKind::Int { min, max } | SettingKind::IntOrAuto { min, max },
            DocumentValue::Int(number),
        ) => check_range(path, number, min..=max, span, faults),
        (SettingKind::Number, DocumentValue::Int(number)) => {
            check_amount(path, number as f64, span, faults)
        }
        (SettingKind::Number, DocumentValue::Float(number)) => {
            check_amount(path, number, span, faults)
        }
        (SettingKind::Text, DocumentValue::Str(text)) => check_line(doc, path, &text, span, faults),
        (SettingKind::Choice, DocumentValue::Str(text)) => {
            check_choice(doc, path, &text, span, faults)
        }
        (SettingKind::Duration, DocumentValue::Str(text)) => report_bad_value(
            path,
            &text,
            span,
            parse_duration_ms(&text).map(SettingValue::Ms),
            faults,
        ),
        (SettingKind::Duration, DocumentValue::Int(number)) => {
            let message = format!("missing unit in `{path}`");
            let help = format!("write \"{number}s\" for seconds or \"{number}m\" for minutes");
            faults.add_fault_with_help("config::value", span, message, help);
            None
        }
        (SettingKind::Size, DocumentValue::Str(text)) => {
            report_bad_value(path, &text, span, parse_size(&text).map(SettingValue::Bytes), faults)
        }
        (SettingKind::Size, DocumentValue::Int(number)) if number >= 0 => {
            Some(SettingValue::Bytes(u64::try_from(number).unwrap_or(0)))
        }
        (SettingKind::Command, DocumentValue::Str(text)) => {
            let shell = ["sh", "-c", &text].map(str::to_owned).to_vec();
            check_list_entries(path, shell, vec![span; 3], false, faults)
        }
        (
            SettingKind::Texts
            | SettingKind::Globs
            | SettingKind::Rules
            | SettingKind::Gates
            | SettingKind::Command,
            DocumentValue::List(items),
        ) => read_list(doc, path, items, faults),
        (kind, value) => {
            report_wrong_type(kind, path, &value, span, faults);
            None
        }
    }
}

fn report_wrong_type(
    kind: SettingKind,
    path: &str,
    value: &DocumentValue<'_>,
    span: Range<usize>,
    faults: &mut FaultCollector,
) {
    let message = format!("`{path}` is {}, not {}", kind.describe(), value.kind());
    let help = match (kind, value) {
        (
            SettingKind::Texts | SettingKind::Globs | SettingKind::Rules | SettingKind::Gates,
            DocumentValue::Str(text),
        ) => format!("write [\"{}\"]", clip_text(text)),
        (
            SettingKind::Int { .. } | SettingKind::Number | SettingKind::Bool,
            DocumentValue::Str(_),
        ) => "write it without quotes".to_owned(),
        _ => format!("write {}", kind.describe()),
    };
    faults.add_fault_with_help("config::type", span, message, help);
}

fn check_range(
    path: &str,
    number: i64,
    allowed: RangeInclusive<i64>,
    span: Range<usize>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    if allowed.contains(&number) {
        return Some(SettingValue::Int(number));
    }
    let message = format!("`{path}` is {number}, which is out of range");
    let help = format!("use a number from {} to {}", allowed.start(), allowed.end());
    faults.add_fault_with_help("config::range", span, message, help);
    None
}

fn check_amount(
    path: &str,
    number: f64,
    span: Range<usize>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    if number.is_finite() && number >= 0.0 {
        return Some(SettingValue::Number(number));
    }
    let message = format!("`{path}` is {number}, which is not a valid amount");
    faults.add_fault_with_help("config::range", span, message, "use 0 or a positive number");
    None
}

fn check_line(
    doc: &KeyDoc,
    path: &str,
    text: &str,
    span: Range<usize>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    let bad = if text.chars().any(char::is_control) {
        Some("contains control characters")
    } else if matches!(doc.key, "land.branch" | "land.push_branch") && !has_branch_syntax(text) {
        // It is handed to git, which must not take it for an option or a range.
        Some("is not a valid branch name")
    } else if doc.key == "limits.quiet_hours"
        && !text.is_empty()
        && QuietHours::parse(text).is_err()
    {
        Some("is not a time span such as \"22:00-07:00\"")
    } else {
        None
    };
    if let Some(bad) = bad {
        faults.add_fault_with_help(
            "config::value",
            span,
            format!("`{path}` {bad}"),
            "use a different value",
        );
        return None;
    }
    Some(SettingValue::Text(text.to_owned()))
}

/// Whether git takes this as the name of a branch.
pub fn is_branch_name(name: &str) -> bool {
    has_branch_syntax(name)
}

fn has_branch_syntax(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.is_empty()
        || !name.starts_with('-')
            && !name.ends_with('.')
            && !name.contains("..")
            && !name.contains("@{")
            && !name.contains([' ', '~', '^', ':', '?', '*', '[', '\\'])
            && name != "@"
            && name.split('/').all(part)
}

fn check_choice(
    doc: &KeyDoc,
    path: &str,
    word: &str,
    span: Range<usize>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    if doc.choices.contains(&word) {
        return Some(SettingValue::Text(word.to_owned()));
    }
    if path == "store.kind" && ["postgres", "beads"].contains(&word) {
        let message = format!("`{path} = \"{word}\"` is not available in this version of Mainstem");
        faults.add_fault_with_help("config::choice", span, message, "write \"embedded\"");
        return None;
    }
    let message = format!("invalid value `{}` for `{path}`", clip_text(word));
    let help = match nearest_word(word, doc.choices.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", doc.choices.join(", ")),
    };
    faults.add_fault_with_help("config::choice", span, message, help);
    None
}

fn report_bad_value(
    path: &str,
    text: &str,
    span: Range<usize>,
    found: Result<SettingValue, String>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    match found {
        Ok(setting) => Some(setting),
        Err(help) => {
            let message = format!("invalid value `{}` for `{path}`", clip_text(text));
            faults.add_fault_with_help("config::value", span, message, help);
            None
        }
    }
}

fn read_list(
    doc: &KeyDoc,
    path: &str,
    items: Vec<DocumentNode<'_>>,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    let mut texts = Vec::with_capacity(items.len());
    let mut spans = Vec::with_capacity(items.len());
    for item in items {
        match item.value {
            DocumentValue::Str(text) => {
                texts.push(text.into_owned());
                spans.push(item.span);
            }
            DocumentValue::Table(entries) if doc.kind == SettingKind::Gates => {
                match document::gate_line(&entries) {
                    Ok(line) => texts.push(line),
                    Err(why) => {
                        report_gate_fault(path, &why, item.span, faults);
                        return None;
                    }
                }
                spans.push(item.span);
            }
            other => {
                let message = format!("`{path}` is a list of strings, not of {}", other.kind());
                faults.add_fault_with_help(
                    "config::type",
                    item.span,
                    message,
                    "put each entry in quotes",
                );
                return None;
            }
        }
    }
    if doc.kind == SettingKind::Globs {
        for (glob, span) in texts.iter().zip(&spans) {
            if let Err(why) = check_glob(glob) {
                let (what, help) = why.split_once("; ").unwrap_or((&why, "fix the glob"));
                let message = format!("`{path}`: `{}`: {what}", clip_text(glob));
                faults.add_fault_with_help("config::glob", span.clone(), message, help);
                return None;
            }
        }
    }
    if doc.kind == SettingKind::Rules {
        for (rule, span) in texts.iter().zip(&spans) {
            if crate::question::AnswerRule::parse(rule).is_none() {
                let message = format!("invalid rule `{}` in `{path}`", clip_text(rule));
                let help = "use \"PATTERN => ANSWER\" with text on both sides";
                faults.add_fault_with_help("config::rule", span.clone(), message, help);
                return None;
            }
        }
    }
    if doc.kind == SettingKind::Gates {
        for (line, span) in texts.iter().zip(&spans) {
            if let Err(why) = GateSpec::parse(line) {
                report_gate_fault(path, &why, span.clone(), faults);
                return None;
            }
        }
    }
    let names = doc.key == "agents.*.secrets";
    check_list_entries(path, texts, spans, names, faults)
}

fn report_gate_fault(path: &str, why: &str, span: Range<usize>, faults: &mut FaultCollector) {
    let (what, help) = why.split_once("; ").unwrap_or((why, "fix the check"));
    faults.add_fault_with_help("config::gate", span, format!("`{path}`: {what}"), help);
}

fn check_list_entries(
    path: &str,
    texts: Vec<String>,
    spans: Vec<Range<usize>>,
    names: bool,
    faults: &mut FaultCollector,
) -> Option<SettingValue> {
    for (text, span) in texts.iter().zip(spans) {
        let bad = text.trim().is_empty() || text.contains('\0') || names && text.contains('=');
        if bad {
            let message = format!("invalid entry in `{path}`: `{}`", clip_text(text));
            let help = if names {
                "use the name of a variable, without a value"
            } else {
                "remove the entry"
            };
            faults.add_fault_with_help("config::value", span, message, help);
            return None;
        }
    }
    Some(SettingValue::Texts(texts))
}

/// The tree of a value given as bare text by a flag or a variable, by the key's kind.
pub(super) fn node_from_text<'s>(
    doc: &KeyDoc,
    entry: Option<&str>,
    text: &'s str,
    faults: &mut FaultCollector,
) -> Option<DocumentNode<'s>> {
    let text = text.trim();
    let span = 0..text.len();
    let kind = match (entry, doc.kind) {
        (Some(_), SettingKind::Counts) => SettingKind::Int { min: 0, max: 10_000 },
        (Some(_), SettingKind::Variables) => SettingKind::Text,
        (_, kind) => kind,
    };
    let quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    let bare = |value| Some(DocumentNode { span: span.clone(), value });
    match kind {
        _ if quoted || text.starts_with(['[', '{']) && kind != SettingKind::Text => {
            node_from_toml(text, span.clone(), faults)
        }
        SettingKind::Bool | SettingKind::Switch => bare(match text {
            "true" | "1" => DocumentValue::Bool(true),
            "false" | "0" => DocumentValue::Bool(false),
            other => DocumentValue::Str(other.into()),
        }),
        SettingKind::Int { .. } | SettingKind::IntOrAuto { .. } => {
            bare(text.parse().map_or_else(|_| DocumentValue::Str(text.into()), DocumentValue::Int))
        }
        SettingKind::Number => bare(
            text.parse().map_or_else(|_| DocumentValue::Str(text.into()), DocumentValue::Float),
        ),
        SettingKind::Texts | SettingKind::Globs | SettingKind::Rules | SettingKind::Gates => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            let node = |item| DocumentNode { span: span.clone(), value: DocumentValue::Str(item) };
            bare(DocumentValue::List(items.map(|item: &str| node(item.into())).collect()))
        }
        SettingKind::Counts | SettingKind::Variables => {
            let mut entries = Vec::new();
            for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let (name, value) = (name.trim(), value.trim());
                let node = node_from_text(doc, Some(name), value, faults)?;
                entries
                    .push((document::DocumentKey { text: name.into(), span: span.clone() }, node));
            }
            bare(DocumentValue::Table(entries))
        }
        SettingKind::Text
        | SettingKind::Choice
        | SettingKind::Duration
        | SettingKind::Size
        | SettingKind::Command => bare(DocumentValue::Str(text.into())),
    }
}

/// A value in TOML's own syntax.
fn node_from_toml<'s>(
    text: &str,
    span: Range<usize>,
    faults: &mut FaultCollector,
) -> Option<DocumentNode<'s>> {
    let source = format!("v = {text}");
    let found = match document::parse_with_faults(&source, DocumentFormat::Toml) {
        Ok(DocumentNode { value: DocumentValue::Table(mut entries), .. }) if entries.len() == 1 => {
            entries.pop()
        }
        _ => None,
    };
    match found {
        Some((_, node)) => Some(detach_node(node, &span)),
        None => {
            let message = format!("invalid value `{}`", clip_text(text));
            faults.add_fault_with_help(
                "config::value",
                span,
                message,
                "write the value as in TOML",
            );
            None
        }
    }
}

/// The same tree, owned and with one span for all. No deeper than [`crate::plan::document::DEPTH_MAX`].
fn detach_node<'s>(node: DocumentNode<'_>, span: &Range<usize>) -> DocumentNode<'s> {
    let value = match node.value {
        DocumentValue::Null => DocumentValue::Null,
        DocumentValue::Bool(yes) => DocumentValue::Bool(yes),
        DocumentValue::Int(number) => DocumentValue::Int(number),
        DocumentValue::Float(number) => DocumentValue::Float(number),
        DocumentValue::Date(date) => DocumentValue::Date(date),
        DocumentValue::Str(text) => DocumentValue::Str(text.into_owned().into()),
        DocumentValue::List(items) => {
            DocumentValue::List(items.into_iter().map(|item| detach_node(item, span)).collect())
        }
        DocumentValue::Table(entries) => DocumentValue::Table(
            entries
                .into_iter()
                .map(|(key, node)| {
                    let text = key.text.into_owned().into();
                    (document::DocumentKey { text, span: span.clone() }, detach_node(node, span))
                })
                .collect(),
        ),
    };
    DocumentNode { span: span.clone(), value }
}
