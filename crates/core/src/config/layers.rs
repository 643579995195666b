//! Layers of settings: flag over environment over project file over user file over default.
//!
//! Reads no file and no environment: texts come in with their origins, and every resolved value
//! keeps where it came from. The table in `keys` says what exists.

use std::collections::BTreeMap;
use std::fmt;

use super::Settings;
use super::keys::{self, KeyDoc, NOT_SETTINGS, SettingKind};
use super::settings;
use super::values::{SettingEntry, SettingValues, node_from_text, read_value};
use crate::diagnostic::{Diagnostic, LineIndex, nearest_word};
use crate::plan::document::{
    self, DocumentFormat, DocumentKey, DocumentNode, DocumentValue, FaultCollector, clip_text,
};

pub use super::keys::all_keys;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingOrigin {
    Default,
    /// The user's file at this path.
    User(String),
    /// The project's file at this path.
    Project(String),
    Env(String),
    /// `--config` or another flag.
    Flag,
}

impl SettingOrigin {
    fn precedence(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::User(_) => 1,
            Self::Project(_) => 2,
            Self::Env(_) => 3,
            Self::Flag => 4,
        }
    }
}

impl fmt::Display for SettingOrigin {
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
pub enum LayerContent {
    Toml(String),
    /// One value, by the key's dotted path or, for [`SettingOrigin::Env`], the variable's name.
    Set {
        key: String,
        /// The value; lists as TOML or comma separated.
        value: String,
    },
}

/// One source of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingLayer {
    /// Where it comes from; decides who wins. Among equals the later one wins.
    pub origin: SettingOrigin,
    pub source: LayerContent,
}

impl SettingLayer {
    /// The layer of a project's file.
    pub fn from_project_file(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            origin: SettingOrigin::Project(path.into()),
            source: LayerContent::Toml(text.into()),
        }
    }

    /// The layer of a user's file.
    pub fn from_user_file(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { origin: SettingOrigin::User(path.into()), source: LayerContent::Toml(text.into()) }
    }

    /// The layer of a flag that sets one key.
    pub fn from_flag(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            origin: SettingOrigin::Flag,
            source: LayerContent::Set { key: key.into(), value: value.into() },
        }
    }

    /// The layer of `--config KEY=VALUE`; none without a `=`.
    pub fn from_flag_pair(pair: &str) -> Option<Self> {
        let (key, value) = pair.split_once('=')?;
        Some(Self::from_flag(key.trim(), value.trim()))
    }

    /// The layers of all `MAINSTEM_*` variables that are settings.
    pub fn from_environment(variables: impl IntoIterator<Item = (String, String)>) -> Vec<Self> {
        let ours =
            |name: &String| name.starts_with(ENV_PREFIX) && !NOT_SETTINGS.contains(&name.as_str());
        let mut layers: Vec<_> = variables
            .into_iter()
            .filter(|(name, _)| ours(name))
            .map(|(key, value)| Self {
                origin: SettingOrigin::Env(key.clone()),
                source: LayerContent::Set { key, value },
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
pub struct SettingListing {
    pub key: String,
    /// The value as TOML; empty if it is not set and has no default.
    pub value: String,
    pub origin: SettingOrigin,
    /// The line in the origin's file.
    pub line: Option<usize>,
}

/// Settings with their origins.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedSettings {
    /// The values to work with.
    pub settings: Settings,
    /// The values to show, in the order of the reference.
    pub values: Vec<SettingListing>,
}

/// Layers settings, or says everything that is wrong with them.
pub fn resolve_settings(
    layers: &[SettingLayer],
) -> Result<ResolvedSettings, Vec<(SettingOrigin, Diagnostic)>> {
    let mut values = SettingValues::default();
    let mut wrong = Vec::new();
    let mut ordered: Vec<&SettingLayer> = layers.iter().collect();
    ordered.sort_by_key(|layer| layer.origin.precedence());
    set_defaults(&mut values);
    for layer in ordered {
        let mut faults = FaultCollector::default();
        let source = match &layer.source {
            LayerContent::Toml(text) => {
                read_layer_file(&mut values, &mut faults, &layer.origin, text);
                text
            }
            LayerContent::Set { key, value } => {
                read_assignment(&mut values, &mut faults, &layer.origin, key, value);
                value
            }
        };
        let origin = &layer.origin;
        wrong.extend(
            faults.into_diagnostics(source).into_iter().map(|fault| (origin.clone(), fault)),
        );
    }
    settings::add_builtin_agents(&mut values, &mut wrong);
    settings::check_agents(&values, &mut wrong);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(ResolvedSettings {
        settings: settings::build_settings(&values),
        values: list_settings(&values),
    })
}

fn set_defaults(values: &mut SettingValues) {
    for doc in all_keys().filter(|doc| !doc.key.contains('*') && !doc.default.is_empty()) {
        let mut faults = FaultCollector::default();
        let text = format!("v = {}", doc.default);
        let Ok(DocumentNode { value: DocumentValue::Table(mut entries), .. }) =
            document::parse_with_faults(&text, DocumentFormat::Toml)
        else {
            unreachable!("BUG: the default of {} is not valid TOML", doc.key)
        };
        if let Some((_, node)) = entries.pop() {
            for (path, setting) in read_value(doc, doc.key, node, &mut faults) {
                values.set(
                    path,
                    SettingEntry { setting, origin: SettingOrigin::Default, line: None },
                );
            }
        }
        debug_assert!(faults.is_empty(), "the default of {}", doc.key);
    }
}

fn read_layer_file(
    values: &mut SettingValues,
    faults: &mut FaultCollector,
    origin: &SettingOrigin,
    text: &str,
) {
    let sections = match document::parse_with_faults(text, DocumentFormat::Toml) {
        Ok(DocumentNode { value: DocumentValue::Table(sections), .. }) => sections,
        Ok(_) => return,
        Err(found) => return faults.append_faults(found),
    };
    let mut file = SettingFileReader { values, faults, origin, lines: LineIndex::new(text) };
    for (section, node) in sections {
        let name = section.text.clone().into_owned();
        let known = known_sections().contains(&&*name);
        match node.value {
            DocumentValue::Table(entries) if name == "agents" => {
                entries.into_iter().for_each(|(agent, node)| file.read_agent_table(&agent, node));
            }
            DocumentValue::Table(entries) if name == "prices" || name == "reviewers" => {
                entries
                    .into_iter()
                    .for_each(|(entry, node)| file.read_named_table(&name, &entry, node));
            }
            DocumentValue::Table(entries) if known => {
                for (key, node) in entries {
                    file.read_key(&format!("{name}.{}", key.text), &key, node);
                }
            }
            other if known => {
                let message = format!("`{name}` is a section, not {}", other.kind());
                let help = format!("write `[{name}]` with the keys below");
                file.faults.add_fault_with_help("config::type", section.span, message, help);
            }
            _ => report_unknown_key(file.faults, &section, "section", &name, known_sections()),
        }
    }
}

fn known_sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = all_keys().filter_map(|doc| doc.key.split('.').next()).collect();
    sections.dedup();
    sections
}

struct SettingFileReader<'f, 't> {
    values: &'f mut SettingValues,
    faults: &'f mut FaultCollector,
    origin: &'f SettingOrigin,
    lines: LineIndex<'t>,
}

impl SettingFileReader<'_, '_> {
    fn read_agent_table(&mut self, agent: &DocumentKey<'_>, node: DocumentNode<'_>) {
        let name = agent.text.trim();
        if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
            let message = format!("invalid agent name `{}`", clip_text(&agent.text));
            let help = "use only letters, digits and dashes";
            self.faults.add_fault_with_help("config::agent", agent.span.clone(), message, help);
            return;
        }
        let DocumentValue::Table(entries) = node.value else {
            let message =
                format!("`agents.{}` is a table, not {}", clip_text(name), node.value.kind());
            let help = format!("write `[agents.{}]` with the keys below", clip_text(name));
            self.faults.add_fault_with_help("config::type", agent.span.clone(), message, help);
            return;
        };
        let line = self.lines.line_and_column(agent.span.start).0;
        self.values.mention_agent(name, self.origin, Some(line));
        for (key, node) in entries {
            self.read_key(&format!("agents.{name}.{}", key.text), &key, node);
        }
    }

    /// One entry of a section whose keys have names of the user's.
    fn read_named_table(&mut self, section: &str, entry: &DocumentKey<'_>, node: DocumentNode<'_>) {
        let name = entry.text.trim();
        let DocumentValue::Table(entries) = node.value else {
            let kind = node.value.kind();
            let message = format!("`{section}.{}` is a table, not {kind}", clip_text(name));
            let example = match section {
                "prices" => "{ input = 3.0, output = 15.0 }",
                _ => "{ agent = \"…\" }",
            };
            let help = format!("write \"{}\" = {example}", clip_text(name));
            self.faults.add_fault_with_help("config::type", entry.span.clone(), message, help);
            return;
        };
        for (key, node) in entries {
            self.read_key(&format!("{section}.{name}.{}", key.text), &key, node);
        }
    }

    fn read_key(&mut self, path: &str, key: &DocumentKey<'_>, node: DocumentNode<'_>) {
        let Some(doc) = keys::find_key(path) else {
            return report_unknown_key(self.faults, key, "key", path, sibling_keys(path));
        };
        let line = Some(self.lines.line_and_column(key.span.start).0);
        for (path, setting) in read_value(doc, path, node, self.faults) {
            self.values.set(path, SettingEntry { setting, origin: self.origin.clone(), line });
        }
    }
}

/// The keys of the same section, as they would be written there; all keys if that is unknown.
fn sibling_keys(path: &str) -> Vec<&'static str> {
    let (section, _) = path.split_once('.').unwrap_or((path, ""));
    let own = all_keys().filter(|doc| doc.key.split('.').next() == Some(section));
    let own: Vec<_> = own.filter_map(|doc| doc.key.rsplit('.').next()).collect();
    if own.is_empty() { all_keys().map(|doc| doc.key).collect() } else { own }
}

/// Is this a setting, or a section of settings, that only later versions take?
fn is_later(path: &str) -> bool {
    let section = path.split('.').next().unwrap_or_default();
    ["serve", "notify"].contains(&section) || ["store.url", "MAINSTEM_STORE_URL"].contains(&path)
}

fn report_unknown_key(
    faults: &mut FaultCollector,
    key: &DocumentKey<'_>,
    what: &str,
    path: &str,
    known: Vec<&str>,
) {
    if is_later(path) {
        let message = format!("the {what} `{path}` is not available in this version of Mainstem");
        let help = "remove it; everything else works without it";
        return faults.add_fault_with_help(
            "config::not_available",
            key.span.clone(),
            message,
            help,
        );
    }
    let message = format!("unknown {what} `{}`", clip_text(path));
    let help = match nearest_word(&key.text, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", known.join(", ")),
    };
    faults.add_fault_with_help("config::unknown_key", key.span.clone(), message, help);
}

fn read_assignment(
    values: &mut SettingValues,
    faults: &mut FaultCollector,
    origin: &SettingOrigin,
    key: &str,
    text: &str,
) {
    let path = match origin {
        SettingOrigin::Env(_) => env_var_path(key, values),
        _ => Some(key.to_owned()),
    };
    let target = path.as_deref().and_then(|path| Some((path, find_key_and_entry(path)?)));
    let Some((path, (doc, entry))) = target else {
        let key = DocumentKey { text: key.into(), span: 0..0 };
        let env = matches!(origin, SettingOrigin::Env(_));
        let names: Vec<String> = all_keys()
            .map(|doc| if env { env_var_name(doc.key) } else { doc.key.to_owned() })
            .collect();
        return report_unknown_key(
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
    let mut of_value = FaultCollector::default();
    let node = node_from_text(doc, entry, text, &mut of_value);
    let found = node.map(|node| match entry {
        None => read_value(doc, path, node, &mut of_value),
        Some(name) => {
            let table = path.strip_suffix(name).and_then(|p| p.strip_suffix('.')).unwrap_or(path);
            let span = node.span.clone();
            let key = DocumentKey { text: name.into(), span: span.clone() };
            let node = DocumentNode { span, value: DocumentValue::Table(vec![(key, node)]) };
            read_value(doc, table, node, &mut of_value)
        }
    });
    faults.append_faults(of_value);
    for (path, setting) in found.unwrap_or_default() {
        values.set(path, SettingEntry { setting, origin: origin.clone(), line: None });
    }
}

/// The key of a path, and the table entry it names if the key is a table.
fn find_key_and_entry(path: &str) -> Option<(&'static KeyDoc, Option<&str>)> {
    if let Some(doc) = keys::find_key(path) {
        return Some((doc, None));
    }
    let (table, entry) = path.rsplit_once('.')?;
    let doc = keys::find_key(table)?;
    let open =
        matches!(doc.kind, SettingKind::Counts | SettingKind::Variables) && !entry.is_empty();
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

fn env_var_name(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.replace(['.', '-'], "_").to_ascii_uppercase())
}

/// The path that a variable's name stands for. Agents are looked for among those already known.
fn env_var_path(name: &str, values: &SettingValues) -> Option<String> {
    let rest = name.strip_prefix(ENV_PREFIX)?;
    for doc in all_keys() {
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
        let full = env_var_name(doc.key);
        if name == full {
            return Some(doc.key.to_owned());
        }
        if doc.kind == SettingKind::Counts
            && let Some(entry) = name.strip_prefix(&full).and_then(|rest| rest.strip_prefix('_'))
        {
            return Some(format!("{}.{}", doc.key, entry.to_ascii_lowercase()));
        }
    }
    None
}

fn list_settings(values: &SettingValues) -> Vec<SettingListing> {
    let mut shown = Vec::new();
    for doc in all_keys().filter(|doc| !doc.key.contains('*')) {
        list_key(values, doc, doc.key, &mut shown);
    }
    // Agents stand where the table has them: before the sections that follow.
    let at = all_keys().position(|doc| doc.key.contains('*'));
    let after = at.and_then(|at| all_keys().skip(at).find(|doc| !doc.key.contains('*')));
    let place = after.and_then(|doc| shown.iter().position(|shown| shown.key == doc.key));
    let mut agents = Vec::new();
    for (path, _, entry) in values.table_entries("reviewers").chain(values.table_entries("prices"))
    {
        let (value, origin) = (entry.setting.to_string(), entry.origin.clone());
        agents.push(SettingListing { key: path.to_owned(), value, origin, line: entry.line });
    }
    for name in values.agents.keys() {
        for doc in all_keys() {
            if let Some(last) = doc.key.strip_prefix("agents.*.") {
                let path = format!("agents.{name}.{last}");
                let before = agents.len();
                list_key(values, doc, &path, &mut agents);
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

fn list_key(values: &SettingValues, doc: &KeyDoc, path: &str, shown: &mut Vec<SettingListing>) {
    let before = shown.len();
    let mut push = |key: &str, entry: &SettingEntry| {
        let (value, origin) = (entry.setting.to_string(), entry.origin.clone());
        shown.push(SettingListing { key: key.to_owned(), value, origin, line: entry.line });
    };
    if matches!(doc.kind, SettingKind::Counts | SettingKind::Variables) {
        values.table_entries(path).for_each(|(key, _, entry)| push(key, entry));
    } else if let Some(entry) = values.get(path) {
        push(path, entry);
    }
    if shown.len() == before {
        let value = if path == doc.key { doc.default.to_owned() } else { String::new() };
        shown.push(SettingListing {
            key: path.to_owned(),
            value,
            origin: SettingOrigin::Default,
            line: None,
        });
    }
}

/// Agents by name with where each is first mentioned, for messages.
pub(super) type AgentMentions = BTreeMap<String, (SettingOrigin, Option<usize>)>;

#[cfg(test)]
mod tests;
