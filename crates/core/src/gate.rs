//! Kinds of gates beside commands, as one line of text each, and the verdicts of those that only look at
//! files.
//!
//! A gate stays text in plans, settings and facts; what starts with `@` is read here. Runs nothing and
//! reads nothing: files come in through [`GateFiles`]. What cannot be looked at is an error, never a pass.

mod fields;
mod query;

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};

pub use fields::{FIELDS, gate_line_from_fields};

use crate::glob::check_glob;
use crate::plan::quantities::{parse_duration_ms, render_duration_ms};
use crate::verdict::GateVerdict;

/// Larger files are not searched or read.
pub const FILE_BYTES_MAX: u64 = 32 << 20;
/// Longest pattern, and the memory that one may take when it is compiled.
const PATTERN_BYTES_MAX: usize = 2_000;
const PATTERN_MEMORY_MAX: usize = 4 << 20;
/// Places that are named in a verdict.
const SHOWN_MAX: usize = 5;

/// What a line of `verify` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateSpec {
    /// A shell command that ends with exit code 0.
    Command(String),
    /// At least one file matches.
    FileExists { files: String },
    /// Lines of files match, or none does.
    Content { files: String, pattern: String, wants: MatchRequirement },
    /// A value in a file is as expected.
    Query {
        file: String,
        /// Keys and list places, joined by dots.
        path: String,
        /// How it is compared.
        compare: GateComparison,
        value: String,
    },
    /// A person says yes.
    Approval {
        /// After which nobody's yes counts.
        within_ms: Option<u64>,
        /// What the person is asked, besides the task.
        text: String,
    },
    /// The review agents are content.
    Review,
}

/// How many lines must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchRequirement {
    /// So many or more.
    AtLeast(u64),
    None,
}

/// How a value is compared with what is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateComparison {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
}

impl GateComparison {
    const ALL: [(&'static str, Self); 4] =
        [("==", Self::Equal), ("!=", Self::NotEqual), (">=", Self::AtLeast), ("<=", Self::AtMost)];

    fn operator(self) -> &'static str {
        Self::ALL.iter().find(|(_, compare)| *compare == self).map_or("==", |(sign, _)| sign)
    }
}

/// Is this the line of a gate that needs people or review agents, rather than files?
pub fn needs_person_or_reviewer(line: &str) -> bool {
    matches!(gate_kind_word(line), Some("approval" | "review"))
}

/// Is this the line of a gate that only looks at files?
pub fn is_file_gate(line: &str) -> bool {
    gate_kind_word(line).is_some() && !needs_person_or_reviewer(line)
}

fn gate_kind_word(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix('@')?.split_whitespace().next()
}

impl GateSpec {
    /// Reads a line; the error says what is wrong and the cure.
    pub fn parse(line: &str) -> Result<Self, String> {
        let Some(body) = line.trim().strip_prefix('@') else {
            return Ok(Self::Command(line.to_owned()));
        };
        let (kind, rest) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
        let rest = rest.trim();
        let gate = match kind {
            "file_exists" => Self::FileExists { files: rest.to_owned() },
            "content_search" | "content_absent" | "content_count" => {
                parse_content_gate(kind, rest)?
            }
            "query" => parse_query_gate(rest)?,
            "approval" => parse_approval_gate(rest)?,
            "review" if rest.is_empty() => Self::Review,
            "review" => {
                return Err(
                    "`@review` takes no arguments; reviewers are set in [review]".to_owned()
                );
            }
            other => {
                let known = "file_exists, content_search, content_absent, content_count, query, approval, review";
                return Err(format!("unknown check `@{other}`; known: {known}"));
            }
        };
        gate.validated()
    }

    fn validated(self) -> Result<Self, String> {
        match &self {
            Self::FileExists { files } => check_glob(files)?,
            Self::Content { files, pattern, .. } => {
                check_glob(files)?;
                compile_pattern(pattern)?;
            }
            Self::Query { file, path, value, .. } => {
                check_glob(file)?;
                if crate::plan::document::DocumentFormat::from_path(file).is_none() {
                    return Err(format!(
                        "`{file}` is not a .json, .toml or .yaml file; use one of these"
                    ));
                }
                if path.is_empty() || value.is_empty() {
                    return Err("invalid query; use `@query FILE PATH == VALUE`".to_owned());
                }
            }
            Self::Command(_) | Self::Approval { .. } | Self::Review => {}
        }
        Ok(self)
    }
}

fn parse_content_gate(kind: &str, rest: &str) -> Result<GateSpec, String> {
    let shape = || match kind {
        "content_count" => format!("invalid `@{kind}`; use `@{kind} NUMBER GLOB => PATTERN`"),
        _ => format!("invalid `@{kind}`; use `@{kind} GLOB => PATTERN`"),
    };
    let (left, pattern) = rest.split_once("=>").ok_or_else(shape)?;
    let (wants, files) = match kind {
        "content_absent" => (MatchRequirement::None, left),
        "content_search" => (MatchRequirement::AtLeast(1), left),
        _ => {
            let (count, files) = left.trim().split_once(' ').ok_or_else(shape)?;
            (MatchRequirement::AtLeast(count.parse().map_err(|_| shape())?), files)
        }
    };
    let (files, pattern) = (files.trim().to_owned(), pattern.trim().to_owned());
    if pattern.is_empty() || wants == MatchRequirement::AtLeast(0) {
        return Err(shape());
    }
    Ok(GateSpec::Content { files, pattern, wants })
}

fn parse_query_gate(rest: &str) -> Result<GateSpec, String> {
    let shape = || "invalid query; use `@query FILE PATH == VALUE` (or !=, >=, <=)".to_owned();
    let (file, rest) = rest.split_once(char::is_whitespace).ok_or_else(shape)?;
    let found = GateComparison::ALL.iter().filter_map(|(sign, compare)| {
        let at = rest.find(&format!(" {sign} "))?;
        Some((at, *sign, *compare))
    });
    let (at, sign, compare) = found.min_by_key(|(at, ..)| *at).ok_or_else(shape)?;
    let (path, value) = (rest[..at].trim(), rest[at + sign.len() + 2..].trim());
    let (file, path, value) = (file.to_owned(), path.to_owned(), value.to_owned());
    Ok(GateSpec::Query { file, path, compare, value })
}

fn parse_approval_gate(rest: &str) -> Result<GateSpec, String> {
    let Some(span) = rest.strip_prefix("within ") else {
        return Ok(GateSpec::Approval { within_ms: None, text: rest.to_owned() });
    };
    let (span, text) = span.trim_start().split_once(' ').unwrap_or((span.trim(), ""));
    let ms = parse_duration_ms(span).map_err(|why| format!("`{span}`: {why}"))?;
    let within_ms = Some(ms).filter(|ms| *ms > 0);
    Ok(GateSpec::Approval { within_ms, text: text.trim().to_owned() })
}

impl fmt::Display for GateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.write_str(command),
            Self::FileExists { files } => write!(f, "@file_exists {files}"),
            Self::Content { files, pattern, wants: MatchRequirement::None } => {
                write!(f, "@content_absent {files} => {pattern}")
            }
            Self::Content { files, pattern, wants: MatchRequirement::AtLeast(1) } => {
                write!(f, "@content_search {files} => {pattern}")
            }
            Self::Content { files, pattern, wants: MatchRequirement::AtLeast(count) } => {
                write!(f, "@content_count {count} {files} => {pattern}")
            }
            Self::Query { file, path, compare, value } => {
                write!(f, "@query {file} {path} {} {value}", compare.operator())
            }
            Self::Approval { within_ms, text } => {
                f.write_str("@approval")?;
                if let Some(ms) = within_ms {
                    write!(f, " within {}", render_duration_ms(*ms))?;
                }
                if text.is_empty() { Ok(()) } else { write!(f, " {text}") }
            }
            Self::Review => f.write_str("@review"),
        }
    }
}

/// The files of the tree that is judged.
pub trait GateFiles {
    /// Every file, by its path from the root.
    fn file_names(&self) -> Result<Vec<String>, String>;
    /// What one of them holds.
    fn read(&self, name: &str) -> Result<Vec<u8>, String>;
}

/// The verdict of a gate that looks at files, with what was found.
pub fn judge_file_gate(line: &str, files: &dyn GateFiles) -> (GateVerdict, String) {
    let judged = GateSpec::parse(line).and_then(|gate| match gate {
        GateSpec::FileExists { files: glob } => {
            let found = matching_files(&glob, files)?;
            Ok(match found.first() {
                Some(_) => (GateVerdict::Passed, join_names(&found)),
                None => (GateVerdict::Failed, format!("no file matches `{glob}`")),
            })
        }
        GateSpec::Content { files: glob, pattern, wants } => {
            search_files(files, &glob, &pattern, wants)
        }
        GateSpec::Query { file, path, compare, value } => {
            let bytes = files.read(&file)?;
            query::judge_query(&file, &bytes, &path, compare, &value)
        }
        GateSpec::Command(_) | GateSpec::Approval { .. } | GateSpec::Review => {
            Err("this check does not read files".to_owned())
        }
    });
    judged.unwrap_or_else(|why| (GateVerdict::Error, why))
}

fn search_files(
    files: &dyn GateFiles,
    glob: &str,
    pattern: &str,
    wants: MatchRequirement,
) -> Result<(GateVerdict, String), String> {
    let regex = compile_pattern(pattern)?;
    let names = matching_files(glob, files)?;
    if names.is_empty() {
        // Nothing was looked at, so nothing was found to be in order.
        return Err(format!("no file matches `{glob}`"));
    }
    let mut places = Vec::new();
    for name in &names {
        let bytes = files.read(name)?;
        let lines = bytes.split(|byte| *byte == b'\n').zip(1u64..);
        let hits = lines.filter(|(line, _)| regex.is_match(line));
        places.extend(hits.map(|(_, n)| format!("{name}:{n}")));
    }
    let count = places.len() as u64;
    let good = match wants {
        MatchRequirement::AtLeast(least) => count >= least,
        MatchRequirement::None => count == 0,
    };
    let said = match (wants, count) {
        (_, 0) => format!("no line matches `{pattern}` (files searched: {})", names.len()),
        _ => format!("{count} lines match `{pattern}`: {}", join_names(&places)),
    };
    Ok((if good { GateVerdict::Passed } else { GateVerdict::Failed }, said))
}

fn join_names(names: &[String]) -> String {
    let mut text = names.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN_MAX {
        text.push_str(&format!(" and {} more", names.len() - SHOWN_MAX));
    }
    text
}

fn matching_files(glob: &str, files: &dyn GateFiles) -> Result<Vec<String>, String> {
    let matcher = compile_glob(glob)?;
    Ok(files.file_names()?.into_iter().filter(|name| matcher.is_match(name)).collect())
}

/// A glob ready to be compared with paths; `*` stays within a folder.
pub fn compile_glob(glob: &str) -> Result<GlobMatcher, String> {
    check_glob(glob)?;
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "the pattern is longer than {PATTERN_BYTES_MAX} bytes; use a shorter pattern"
        ));
    }
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_MEMORY_MAX).build();
    built.map_err(|error| format!("invalid pattern `{pattern}`: {error}"))
}

#[cfg(test)]
mod tests;
