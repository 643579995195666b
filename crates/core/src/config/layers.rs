//! Layers of settings: flag over environment over project file over user file over default.
//!
//! Reads no file and no environment: texts come in with their origins, and every resolved value
//! keeps where it came from. The table in `keys` says what exists.

use std::collections::BTreeMap;
use std::fmt;

use super::Settings;
use super::keys::{self, KeyDoc, Kind, NOT_SETTINGS};
use super::settings;
use super::values::{Entry, Values, from_text, read};
use crate::diag::{Diagnostic, Lines, nearest};
use crate::plan::doc::{self, Faults, Format, Key, Node, Value, clip};

pub use super::keys::keys;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The user's file at this path.
    User(String),
    /// The project's file at this path.
    Project(String),
    /// This environment variable.
    Env(String),
    /// `--config` or another flag.
    Flag,
}

impl Origin {
    fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::User(_) => 1,
            Self::Project(_) => 2,
            Self::Env(_) => 3,
            Self::Flag => 4,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User(path) | Self::Project(path) => f.write_str(path),
            Self::Env(name) => write!(f, "${name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// What a layer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// A file's content.
    Toml(String),
    /// One value, by the key's dotted path or, for [`Origin::Env`], the variable's name.
    Set {
        /// `run.jobs` or `MAINSTEM_RUN_JOBS`.
        key: String,
        /// The value; lists as TOML or comma separated.
        value: String,
    },
}

/// One source of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Where it comes from; decides who wins. Among equals the later one wins.
    pub origin: Origin,
    /// What it says.
    pub source: Text,
}

impl Layer {
    /// The layer of a project's file.
    pub fn project(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { origin: Origin::Project(path.into()), source: Text::Toml(text.into()) }
    }

    /// The layer of a user's file.
    pub fn user(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { origin: Origin::User(path.into()), source: Text::Toml(text.into()) }
    }

    /// The layer of a flag that sets one key.
    pub fn flag(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { origin: Origin::Flag, source: Text::Set { key: key.into(), value: value.into() } }
    }

    /// The layer of `--config KEY=VALUE`; none without a `=`.
    pub fn flag_pair(pair: &str) -> Option<Self> {
        let (key, value) = pair.split_once('=')?;
        Some(Self::flag(key.trim(), value.trim()))
    }

    /// The layers of all `MAINSTEM_*` variables that are settings.
    pub fn environment(variables: impl IntoIterator<Item = (String, String)>) -> Vec<Self> {
        let ours =
            |name: &String| name.starts_with(ENV_PREFIX) && !NOT_SETTINGS.contains(&name.as_str());
        let mut layers: Vec<_> = variables
            .into_iter()
            .filter(|(name, _)| ours(name))
            .map(|(key, value)| Self {
                origin: Origin::Env(key.clone()),
                source: Text::Set { key, value },
            })
            .collect();
        // The environment has no order of its own.
        layers.sort_by(|a, b| a.origin.cmp(&b.origin));
        layers
    }
}

const ENV_PREFIX: &str = "MAINSTEM_";

/// One value as `mainstem config` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Dotted path.
    pub key: String,
    /// The value as TOML; empty if it is not set and has no default.
    pub value: String,
    /// Who set it.
    pub origin: Origin,
    /// The line in the origin's file.
    pub line: Option<usize>,
}

/// Settings with their origins.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The values to work with.
    pub settings: Settings,
    /// The values to show, in the order of the reference.
    pub values: Vec<Shown>,
}

/// Layers settings, or says everything that is wrong with them.
pub fn resolve(layers: &[Layer]) -> Result<Resolved, Vec<(Origin, Diagnostic)>> {
    let mut values = Values::default();
    let mut wrong = Vec::new();
    let mut ordered: Vec<&Layer> = layers.iter().collect();
    ordered.sort_by_key(|layer| layer.origin.rank());
    set_defaults(&mut values);
    for layer in ordered {
        let mut faults = Faults::default();
        let source = match &layer.source {
            Text::Toml(text) => {
                read_file(&mut values, &mut faults, &layer.origin, text);
                text
            }
            Text::Set { key, value } => {
                read_pair(&mut values, &mut faults, &layer.origin, key, value);
                value
            }
        };
        let origin = &layer.origin;
        wrong.extend(faults.finish(source).into_iter().map(|fault| (origin.clone(), fault)));
    }
    settings::complete_agents(&mut values, &mut wrong);
    settings::check_agents(&values, &mut wrong);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Resolved { settings: settings::build(&values), values: show(&values) })
}

fn set_defaults(values: &mut Values) {
    for doc in keys().filter(|doc| !doc.key.contains('*') && !doc.default.is_empty()) {
        let mut faults = Faults::default();
        let text = format!("v = {}", doc.default);
        let Ok(Node { value: Value::Table(mut entries), .. }) = doc::parse_raw(&text, Format::Toml)
        else {
            unreachable!("BUG: the default of {} is not valid TOML", doc.key)
        };
        if let Some((_, node)) = entries.pop() {
            for (path, setting) in read(doc, doc.key, node, &mut faults) {
                values.set(path, Entry { setting, origin: Origin::Default, line: None });
            }
        }
        debug_assert!(faults.is_empty(), "the default of {}", doc.key);
    }
}

fn read_file(values: &mut Values, faults: &mut Faults, origin: &Origin, text: &str) {
    let sections = match doc::parse_raw(text, Format::Toml) {
        Ok(Node { value: Value::Table(sections), .. }) => sections,
        Ok(_) => return,
        Err(found) => return faults.append(found),
    };
    let mut file = File { values, faults, origin, lines: Lines::new(text) };
    for (section, node) in sections {
        let name = section.text.clone().into_owned();
        let known = known_sections().contains(&&*name);
        match node.value {
            Value::Table(entries) if name == "agents" => {
                entries.into_iter().for_each(|(agent, node)| file.agent(&agent, node));
            }
            Value::Table(entries) if name == "prices" || name == "reviewers" => {
                entries.into_iter().for_each(|(entry, node)| file.named(&name, &entry, node));
            }
            Value::Table(entries) if known => {
                for (key, node) in entries {
                    file.key(&format!("{name}.{}", key.text), &key, node);
                }
            }
            other if known => {
                let message = format!("`{name}` is a section, not {}", other.kind());
                let help = format!("write `[{name}]` with the keys below");
                file.faults.add_help("config::type", section.span, message, help);
            }
            _ => unknown(file.faults, &section, "section", &name, known_sections()),
        }
    }
}

fn known_sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = keys().filter_map(|doc| doc.key.split('.').next()).collect();
    sections.dedup();
    sections
}

struct File<'f, 't> {
    values: &'f mut Values,
    faults: &'f mut Faults,
    origin: &'f Origin,
    lines: Lines<'t>,
}

impl File<'_, '_> {
    fn agent(&mut self, agent: &Key<'_>, node: Node<'_>) {
        let name = agent.text.trim();
        if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
            let message = format!("invalid agent name `{}`", clip(&agent.text));
            let help = "use only letters, digits and dashes";
            self.faults.add_help("config::agent", agent.span.clone(), message, help);
            return;
        }
        let Value::Table(entries) = node.value else {
            let message = format!("`agents.{}` is a table, not {}", clip(name), node.value.kind());
            let help = format!("write `[agents.{}]` with the keys below", clip(name));
            self.faults.add_help("config::type", agent.span.clone(), message, help);
            return;
        };
        let line = self.lines.place(agent.span.start).0;
        self.values.mention_agent(name, self.origin, Some(line));
        for (key, node) in entries {
            self.key(&format!("agents.{name}.{}", key.text), &key, node);
        }
    }

    /// One entry of a section whose keys have names of the user's.
    fn named(&mut self, section: &str, entry: &Key<'_>, node: Node<'_>) {
        let name = entry.text.trim();
        let Value::Table(entries) = node.value else {
            let kind = node.value.kind();
            let message = format!("`{section}.{}` is a table, not {kind}", clip(name));
            let example = match section {
                "prices" => "{ input = 3.0, output = 15.0 }",
                _ => "{ agent = \"…\" }",
            };
            let help = format!("write \"{}\" = {example}", clip(name));
            self.faults.add_help("config::type", entry.span.clone(), message, help);
            return;
        };
        for (key, node) in entries {
            self.key(&format!("{section}.{name}.{}", key.text), &key, node);
        }
    }

    fn key(&mut self, path: &str, key: &Key<'_>, node: Node<'_>) {
        let Some(doc) = keys::find(path) else {
            return unknown(self.faults, key, "key", path, sisters(path));
        };
        let line = Some(self.lines.place(key.span.start).0);
        for (path, setting) in read(doc, path, node, self.faults) {
            self.values.set(path, Entry { setting, origin: self.origin.clone(), line });
        }
    }
}

/// The keys of the same section, as they would be written there; all keys if that is unknown.
fn sisters(path: &str) -> Vec<&'static str> {
    let (section, _) = path.split_once('.').unwrap_or((path, ""));
    let own = keys().filter(|doc| doc.key.split('.').next() == Some(section));
    let own: Vec<_> = own.filter_map(|doc| doc.key.rsplit('.').next()).collect();
    if own.is_empty() { keys().map(|doc| doc.key).collect() } else { own }
}

/// Is this a setting, or a section of settings, that only later versions take?
fn is_later(path: &str) -> bool {
    let section = path.split('.').next().unwrap_or_default();
    ["serve", "notify"].contains(&section) || ["store.url", "MAINSTEM_STORE_URL"].contains(&path)
}

fn unknown(faults: &mut Faults, key: &Key<'_>, what: &str, path: &str, known: Vec<&str>) {
    if is_later(path) {
        let message = format!("the {what} `{path}` is not available in this version of Mainstem");
        let help = "remove it; everything else works without it";
        return faults.add_help("config::not_available", key.span.clone(), message, help);
    }
    let message = format!("unknown {what} `{}`", clip(path));
    let help = match nearest(&key.text, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", known.join(", ")),
    };
    faults.add_help("config::unknown_key", key.span.clone(), message, help);
}

fn read_pair(values: &mut Values, faults: &mut Faults, origin: &Origin, key: &str, text: &str) {
    let path = match origin {
        Origin::Env(_) => env_path(key, values),
        _ => Some(key.to_owned()),
    };
    let target = path.as_deref().and_then(|path| Some((path, target(path)?)));
    let Some((path, (doc, entry))) = target else {
        let key = Key { text: key.into(), span: 0..0 };
        let env = matches!(origin, Origin::Env(_));
        let names: Vec<String> =
            keys().map(|doc| if env { env_name(doc.key) } else { doc.key.to_owned() }).collect();
        return unknown(
            faults,
            &key,
            "setting",
            &key.text,
            names.iter().map(String::as_str).collect(),
        );
    };
    if let Some(agent) = agent_name(path) {
        values.mention_agent(agent, origin, None);
    }
    let mut of_value = Faults::default();
    let node = from_text(doc, entry, text, &mut of_value);
    let found = node.map(|node| match entry {
        None => read(doc, path, node, &mut of_value),
        Some(name) => {
            let table = path.strip_suffix(name).and_then(|p| p.strip_suffix('.')).unwrap_or(path);
            let span = node.span.clone();
            let key = Key { text: name.into(), span: span.clone() };
            let node = Node { span, value: Value::Table(vec![(key, node)]) };
            read(doc, table, node, &mut of_value)
        }
    });
    faults.append(of_value);
    for (path, setting) in found.unwrap_or_default() {
        values.set(path, Entry { setting, origin: origin.clone(), line: None });
    }
}

/// The key of a path, and the table entry it names if the key is a table.
fn target(path: &str) -> Option<(&'static KeyDoc, Option<&str>)> {
    if let Some(doc) = keys::find(path) {
        return Some((doc, None));
    }
    let (table, entry) = path.rsplit_once('.')?;
    let doc = keys::find(table)?;
    let open = matches!(doc.kind, Kind::Counts | Kind::Variables) && !entry.is_empty();
    open.then_some((doc, Some(entry)))
}

fn agent_name(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("agents.")?;
    let table = rest.split_once(".env.").or_else(|| rest.split_once(".models."));
    if let Some((name, _)) = table {
        return Some(name);
    }
    Some(rest.rsplit_once('.').map_or(rest, |(name, _)| name))
}

fn env_name(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.replace(['.', '-'], "_").to_ascii_uppercase())
}

/// The path that a variable's name stands for. Agents are looked for among those already known.
fn env_path(name: &str, values: &Values) -> Option<String> {
    let rest = name.strip_prefix(ENV_PREFIX)?;
    for doc in keys() {
        if let Some(last) = doc.key.strip_prefix("agents.*.") {
            let suffix = format!("_{}", last.to_ascii_uppercase());
            let agent = rest.strip_prefix("AGENTS_").and_then(|rest| rest.strip_suffix(&suffix));
            if let Some(agent) = agent.filter(|agent| !agent.is_empty()) {
                let same =
                    |known: &&String| known.replace(['-', '.'], "_").eq_ignore_ascii_case(agent);
                let known = values.agents.keys().find(same).cloned();
                let agent = known.unwrap_or_else(|| agent.to_ascii_lowercase());
                return Some(format!("agents.{agent}.{last}"));
            }
            continue;
        }
        let full = env_name(doc.key);
        if name == full {
            return Some(doc.key.to_owned());
        }
        if doc.kind == Kind::Counts
            && let Some(entry) = name.strip_prefix(&full).and_then(|rest| rest.strip_prefix('_'))
        {
            return Some(format!("{}.{}", doc.key, entry.to_ascii_lowercase()));
        }
    }
    None
}

fn show(values: &Values) -> Vec<Shown> {
    let mut shown = Vec::new();
    for doc in keys().filter(|doc| !doc.key.contains('*')) {
        show_key(values, doc, doc.key, &mut shown);
    }
    // Agents stand where the table has them: before the sections that follow.
    let at = keys().position(|doc| doc.key.contains('*'));
    let after = at.and_then(|at| keys().skip(at).find(|doc| !doc.key.contains('*')));
    let place = after.and_then(|doc| shown.iter().position(|shown| shown.key == doc.key));
    let mut agents = Vec::new();
    for (path, _, entry) in values.table("reviewers").chain(values.table("prices")) {
        let (value, origin) = (entry.setting.to_string(), entry.origin.clone());
        agents.push(Shown { key: path.to_owned(), value, origin, line: entry.line });
    }
    for name in values.agents.keys() {
        for doc in keys() {
            if let Some(last) = doc.key.strip_prefix("agents.*.") {
                let path = format!("agents.{name}.{last}");
                let before = agents.len();
                show_key(values, doc, &path, &mut agents);
                if agents[before..].iter().all(|shown| shown.value.is_empty()) {
                    agents.truncate(before);
                }
            }
        }
    }
    let place = place.unwrap_or(shown.len());
    shown.splice(place..place, agents);
    shown
}

fn show_key(values: &Values, doc: &KeyDoc, path: &str, shown: &mut Vec<Shown>) {
    let before = shown.len();
    let mut push = |key: &str, entry: &Entry| {
        let (value, origin) = (entry.setting.to_string(), entry.origin.clone());
        shown.push(Shown { key: key.to_owned(), value, origin, line: entry.line });
    };
    if matches!(doc.kind, Kind::Counts | Kind::Variables) {
        values.table(path).for_each(|(key, _, entry)| push(key, entry));
    } else if let Some(entry) = values.get(path) {
        push(path, entry);
    }
    if shown.len() == before {
        let value = if path == doc.key { doc.default.to_owned() } else { String::new() };
        shown.push(Shown { key: path.to_owned(), value, origin: Origin::Default, line: None });
    }
}

/// Agents by name with where each is first mentioned, for messages.
pub(super) type Mentions = BTreeMap<String, (Origin, Option<usize>)>;

#[cfg(test)]
mod tests;
