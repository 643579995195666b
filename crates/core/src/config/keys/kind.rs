//! What settings take, and what is said of each.

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SettingKind {
    Bool,
    /// A whole number within bounds.
    Int {
        min: i64,
        max: i64,
    },
    /// A whole number within bounds, or `auto`.
    IntOrAuto {
        min: i64,
        max: i64,
    },
    /// `auto`, `off`, or true or false.
    Switch,
    /// A number from zero up.
    Number,
    /// Text of one line.
    Text,
    Choice,
    /// A list of texts.
    Texts,
    /// A list of globs.
    Globs,
    /// A list of `PATTERN => ANSWER`.
    Rules,
    /// A list of gates: commands, lines that start with `@`, or tables.
    Gates,
    /// A program with its arguments, or one text for `sh -c`.
    Command,
    /// A time span such as `45m`.
    Duration,
    /// Bytes such as `4G`.
    Size,
    /// A table of names and whole numbers.
    Counts,
    /// A table of names and texts.
    Variables,
}

impl SettingKind {
    /// The kind in words, for messages and the reference.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int { .. } => "an integer",
            Self::IntOrAuto { .. } => "an integer or \"auto\"",
            Self::Switch => "\"auto\", \"off\", true or false",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Choice => "one of the listed values",
            Self::Texts => "a list of strings",
            Self::Globs => "a list of globs",
            Self::Gates => "a list of commands, strings such as \"@file_exists GLOB\", or tables",
            Self::Rules => "a list of strings such as \"which port => 8080\"",
            Self::Command => "a list of strings, or one string for `sh -c`",
            Self::Duration => "a duration such as \"45m\"",
            Self::Size => "a size such as \"4G\"",
            Self::Counts => "a table of integers",
            Self::Variables => "a table of strings",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyDoc {
    /// Dotted path such as `run.jobs`; `agents.*.kind` stands for every agent.
    pub key: &'static str,
    pub kind: SettingKind,
    /// The default as TOML; empty if there is none.
    pub default: &'static str,
    /// One line for people.
    pub doc: &'static str,
    /// The words of a [`SettingKind::Choice`].
    pub choices: &'static [&'static str],
}
