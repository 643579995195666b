//! Single values: from a tree or a text to what the key's kind asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::keys::{KeyDoc, Kind};
use super::layers::{Mentions, Origin};
use crate::diag::nearest;
use crate::gate::Gate;
use crate::glob::check_glob;
use crate::plan::doc::{self, Faults, Format, Node, Value, clip};
use crate::plan::units::{parse_duration_ms, parse_size, render_duration_ms, render_size};
use crate::quiet::QuietHours;

/// A value that fits its key. Displayed as TOML.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Setting {
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(String),
    Texts(Vec<String>),
    Ms(u64),
    Bytes(u64),
}

impl fmt::Display for Setting {
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
pub(super) struct Entry {
    pub(super) setting: Setting,
    pub(super) origin: Origin,
    pub(super) line: Option<usize>,
}

/// Values by dotted path; entries of tables have paths of their own.
#[derive(Debug, Default)]
pub(super) struct Values {
    map: BTreeMap<String, Entry>,
    /// Every agent that some layer names.
    pub(super) agents: Mentions,
}

impl Values {
    pub(super) fn set(&mut self, path: String, entry: Entry) {
        self.map.insert(path, entry);
    }

    pub(super) fn get(&self, path: &str) -> Option<&Entry> {
        self.map.get(path)
    }

    /// The entries of a table: full path, name, value.
    pub(super) fn table(&self, path: &str) -> impl Iterator<Item = (&str, &str, &Entry)> {
        let prefix = format!("{path}.");
        self.map
            .range(prefix.clone()..)
            .map_while(move |(key, entry)| Some((key.as_str(), key.strip_prefix(&prefix)?, entry)))
    }

    pub(super) fn mention_agent(&mut self, name: &str, origin: &Origin, line: Option<usize>) {
        self.agents.insert(name.to_owned(), (origin.clone(), line));
    }
}

/// Reads a key's value; a table gives one value per entry.
pub(super) fn read(
    doc: &KeyDoc,
    path: &str,
    node: Node<'_>,
    faults: &mut Faults,
) -> Vec<(String, Setting)> {
    match (doc.kind, node.value) {
        (Kind::Counts | Kind::Variables, Value::Table(entries)) => entries
            .into_iter()
            .filter_map(|(key, node)| {
                let path = format!("{path}.{}", key.text);
                if key.text.is_empty() || key.text.contains(['=', '\0']) {
                    let message = format!("invalid name `{}`", clip(&key.text));
                    faults.add_help(
                        "config::value",
                        key.span,
                        message,
                        "use a word without spaces or special characters",
                    );
                    return None;
                }
                let kind = match doc.kind {
                    Kind::Counts => Kind::Int { min: 0, max: 10_000 },
                    _ => Kind::Text,
                };
                let setting = single(&KeyDoc { kind, ..*doc }, &path, node, faults)?;
                Some((path, setting))
            })
            .collect(),
        (_, value) => {
            let node = Node { span: node.span, value };
            single(doc, path, node, faults)
                .map(|value| (path.to_owned(), value))
                .into_iter()
                .collect()
        }
    }
}

fn single(doc: &KeyDoc, path: &str, node: Node<'_>, faults: &mut Faults) -> Option<Setting> {
    let span = node.span.clone();
    match (doc.kind, node.value) {
        (Kind::Bool | Kind::Switch, Value::Bool(yes)) => Some(Setting::Bool(yes)),
        (Kind::Switch, Value::Str(word)) if matches!(&*word, "auto" | "off") => {
            Some(Setting::Text(word.into_owned()))
        }
        (Kind::IntOrAuto { .. }, Value::Str(word)) if word == "auto" => {
            Some(Setting::Text(word.into_owned()))
        }
        (Kind::Int { min, max } | Kind::IntOrAuto { min, max }, Value::Int(number)) => {
            if (min..=max).contains(&number) {
                return Some(Setting::Int(number));
            }
            let message = format!("`{path}` is {number}, which is out of range");
            faults.add_help(
                "config::range",
                span,
                message,
                format!("use a number from {min} to {max}"),
            );
            None
        }
        (Kind::Number, Value::Int(number)) => amount(path, number as f64, span, faults),
        (Kind::Number, Value::Float(number)) => amount(path, number, span, faults),
        (Kind::Text, Value::Str(text)) => line(doc, path, &text, span, faults),
        (Kind::Choice, Value::Str(text)) => choice(doc, path, &text, span, faults),
        (Kind::Duration, Value::Str(text)) => {
            report(path, &text, span, parse_duration_ms(&text).map(Setting::Ms), faults)
        }
        (Kind::Duration, Value::Int(number)) => {
            let message = format!("missing unit in `{path}`");
            let help = format!("write \"{number}s\" for seconds or \"{number}m\" for minutes");
            faults.add_help("config::value", span, message, help);
            None
        }
        (Kind::Size, Value::Str(text)) => {
            report(path, &text, span, parse_size(&text).map(Setting::Bytes), faults)
        }
        (Kind::Size, Value::Int(number)) if number >= 0 => {
            Some(Setting::Bytes(u64::try_from(number).unwrap_or(0)))
        }
        (Kind::Command, Value::Str(text)) => {
            let shell = ["sh", "-c", &text].map(str::to_owned).to_vec();
            filled(path, shell, vec![span; 3], false, faults)
        }
        (
            Kind::Texts | Kind::Globs | Kind::Rules | Kind::Gates | Kind::Command,
            Value::List(items),
        ) => list(doc, path, items, faults),
        (kind, value) => {
            let message = format!("`{path}` is {}, not {}", kind.describe(), value.kind());
            let help = match (kind, &value) {
                (Kind::Texts | Kind::Globs | Kind::Rules | Kind::Gates, Value::Str(text)) => {
                    format!("write [\"{}\"]", clip(text))
                }
                (Kind::Int { .. } | Kind::Number | Kind::Bool, Value::Str(_)) => {
                    "write it without quotes".to_owned()
                }
                _ => format!("write {}", kind.describe()),
            };
            faults.add_help("config::type", span, message, help);
            None
        }
    }
}

fn amount(path: &str, number: f64, span: Range<usize>, faults: &mut Faults) -> Option<Setting> {
    if number.is_finite() && number >= 0.0 {
        return Some(Setting::Number(number));
    }
    let message = format!("`{path}` is {number}, which is not a valid amount");
    faults.add_help("config::range", span, message, "use 0 or a positive number");
    None
}

fn line(
    doc: &KeyDoc,
    path: &str,
    text: &str,
    span: Range<usize>,
    faults: &mut Faults,
) -> Option<Setting> {
    let bad = if text.chars().any(char::is_control) {
        Some("contains control characters")
    } else if matches!(doc.key, "land.branch" | "land.push_branch") && !branch_name(text) {
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
        faults.add_help("config::value", span, format!("`{path}` {bad}"), "use a different value");
        return None;
    }
    Some(Setting::Text(text.to_owned()))
}

/// Whether git takes this as the name of a branch.
pub fn is_branch_name(name: &str) -> bool {
    branch_name(name)
}

fn branch_name(name: &str) -> bool {
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

fn choice(
    doc: &KeyDoc,
    path: &str,
    word: &str,
    span: Range<usize>,
    faults: &mut Faults,
) -> Option<Setting> {
    if doc.choices.contains(&word) {
        return Some(Setting::Text(word.to_owned()));
    }
    if path == "store.kind" && ["postgres", "beads"].contains(&word) {
        let message = format!("`{path} = \"{word}\"` is not available in this version of Mainstem");
        faults.add_help("config::choice", span, message, "write \"embedded\"");
        return None;
    }
    let message = format!("invalid value `{}` for `{path}`", clip(word));
    let help = match nearest(word, doc.choices.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", doc.choices.join(", ")),
    };
    faults.add_help("config::choice", span, message, help);
    None
}

fn report(
    path: &str,
    text: &str,
    span: Range<usize>,
    found: Result<Setting, String>,
    faults: &mut Faults,
) -> Option<Setting> {
    match found {
        Ok(setting) => Some(setting),
        Err(help) => {
            let message = format!("invalid value `{}` for `{path}`", clip(text));
            faults.add_help("config::value", span, message, help);
            None
        }
    }
}

fn list(doc: &KeyDoc, path: &str, items: Vec<Node<'_>>, faults: &mut Faults) -> Option<Setting> {
    let mut texts = Vec::with_capacity(items.len());
    let mut spans = Vec::with_capacity(items.len());
    for item in items {
        match item.value {
            Value::Str(text) => {
                texts.push(text.into_owned());
                spans.push(item.span);
            }
            Value::Table(entries) if doc.kind == Kind::Gates => {
                match doc::gate_line(&entries) {
                    Ok(line) => texts.push(line),
                    Err(why) => {
                        gate_fault(path, &why, item.span, faults);
                        return None;
                    }
                }
                spans.push(item.span);
            }
            other => {
                let message = format!("`{path}` is a list of strings, not of {}", other.kind());
                faults.add_help("config::type", item.span, message, "put each entry in quotes");
                return None;
            }
        }
    }
    if doc.kind == Kind::Globs {
        for (glob, span) in texts.iter().zip(&spans) {
            if let Err(why) = check_glob(glob) {
                let (what, help) = why.split_once("; ").unwrap_or((&why, "fix the glob"));
                let message = format!("`{path}`: `{}`: {what}", clip(glob));
                faults.add_help("config::glob", span.clone(), message, help);
                return None;
            }
        }
    }
    if doc.kind == Kind::Rules {
        for (rule, span) in texts.iter().zip(&spans) {
            if crate::question::Rule::parse(rule).is_none() {
                let message = format!("invalid rule `{}` in `{path}`", clip(rule));
                let help = "use \"PATTERN => ANSWER\" with text on both sides";
                faults.add_help("config::rule", span.clone(), message, help);
                return None;
            }
        }
    }
    if doc.kind == Kind::Gates {
        for (line, span) in texts.iter().zip(&spans) {
            if let Err(why) = Gate::parse(line) {
                gate_fault(path, &why, span.clone(), faults);
                return None;
            }
        }
    }
    let names = doc.key == "agents.*.secrets";
    filled(path, texts, spans, names, faults)
}

fn gate_fault(path: &str, why: &str, span: Range<usize>, faults: &mut Faults) {
    let (what, help) = why.split_once("; ").unwrap_or((why, "fix the check"));
    faults.add_help("config::gate", span, format!("`{path}`: {what}"), help);
}

fn filled(
    path: &str,
    texts: Vec<String>,
    spans: Vec<Range<usize>>,
    names: bool,
    faults: &mut Faults,
) -> Option<Setting> {
    for (text, span) in texts.iter().zip(spans) {
        let bad = text.trim().is_empty() || text.contains('\0') || names && text.contains('=');
        if bad {
            let message = format!("invalid entry in `{path}`: `{}`", clip(text));
            let help = if names {
                "use the name of a variable, without a value"
            } else {
                "remove the entry"
            };
            faults.add_help("config::value", span, message, help);
            return None;
        }
    }
    Some(Setting::Texts(texts))
}

/// The tree of a value given as bare text by a flag or a variable, by the key's kind.
pub(super) fn from_text<'s>(
    doc: &KeyDoc,
    entry: Option<&str>,
    text: &'s str,
    faults: &mut Faults,
) -> Option<Node<'s>> {
    let text = text.trim();
    let span = 0..text.len();
    let kind = match (entry, doc.kind) {
        (Some(_), Kind::Counts) => Kind::Int { min: 0, max: 10_000 },
        (Some(_), Kind::Variables) => Kind::Text,
        (_, kind) => kind,
    };
    let quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    let bare = |value| Some(Node { span: span.clone(), value });
    match kind {
        _ if quoted || text.starts_with(['[', '{']) && kind != Kind::Text => {
            from_toml(text, span.clone(), faults)
        }
        Kind::Bool | Kind::Switch => bare(match text {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            other => Value::Str(other.into()),
        }),
        Kind::Int { .. } | Kind::IntOrAuto { .. } => {
            bare(text.parse().map_or_else(|_| Value::Str(text.into()), Value::Int))
        }
        Kind::Number => bare(text.parse().map_or_else(|_| Value::Str(text.into()), Value::Float)),
        Kind::Texts | Kind::Globs | Kind::Rules | Kind::Gates => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            let node = |item| Node { span: span.clone(), value: Value::Str(item) };
            bare(Value::List(items.map(|item: &str| node(item.into())).collect()))
        }
        Kind::Counts | Kind::Variables => {
            let mut entries = Vec::new();
            for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let (name, value) = (name.trim(), value.trim());
                let node = from_text(doc, Some(name), value, faults)?;
                entries.push((doc::Key { text: name.into(), span: span.clone() }, node));
            }
            bare(Value::Table(entries))
        }
        Kind::Text | Kind::Choice | Kind::Duration | Kind::Size | Kind::Command => {
            bare(Value::Str(text.into()))
        }
    }
}

/// A value in TOML's own syntax.
fn from_toml<'s>(text: &str, span: Range<usize>, faults: &mut Faults) -> Option<Node<'s>> {
    let source = format!("v = {text}");
    let found = match doc::parse_raw(&source, Format::Toml) {
        Ok(Node { value: Value::Table(mut entries), .. }) if entries.len() == 1 => entries.pop(),
        _ => None,
    };
    match found {
        Some((_, node)) => Some(detach(node, &span)),
        None => {
            let message = format!("invalid value `{}`", clip(text));
            faults.add_help("config::value", span, message, "write the value as in TOML");
            None
        }
    }
}

/// The same tree, owned and with one span for all. No deeper than [`doc::DEPTH_MAX`].
fn detach<'s>(node: Node<'_>, span: &Range<usize>) -> Node<'s> {
    let value = match node.value {
        Value::Null => Value::Null,
        Value::Bool(yes) => Value::Bool(yes),
        Value::Int(number) => Value::Int(number),
        Value::Float(number) => Value::Float(number),
        Value::Date(date) => Value::Date(date),
        Value::Str(text) => Value::Str(text.into_owned().into()),
        Value::List(items) => {
            Value::List(items.into_iter().map(|item| detach(item, span)).collect())
        }
        Value::Table(entries) => Value::Table(
            entries
                .into_iter()
                .map(|(key, node)| {
                    let text = key.text.into_owned().into();
                    (doc::Key { text, span: span.clone() }, detach(node, span))
                })
                .collect(),
        ),
    };
    Node { span: span.clone(), value }
}
