//! How long a file and a function may be, and the list of those that are longer.
//!
//! The list only shrinks: an entry must equal what is measured, so a giant may be cut but never grow, and the entry of
//! one that is gone must go too. Knows lengths, not Rust.

use std::collections::BTreeMap;

use super::Finding;

/// Where the list is.
pub(super) const PATH: &str = "xtask/ratchet.toml";

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Code lines of a file outside its tests.
    File,
    /// Code lines of a function.
    Function,
}

impl Kind {
    const ALL: [Self; 2] = [Self::File, Self::Function];

    fn limit(self) -> usize {
        match self {
            Self::File => FILE_LINES_MAX,
            Self::Function => FUNCTION_LINES_MAX,
        }
    }

    /// The table of the list.
    fn table(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Function => "function",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) kind: Kind,
    /// The path, or `path::function`. Functions of one name in one file share an entry: the longest counts.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

type Listed = BTreeMap<(Kind, String), usize>;

/// Compares the list with what was measured.
pub(super) fn check(list: &str, measured: &[Measured]) -> Vec<Finding> {
    let (mut listed, mut findings) = read(list);
    let mut longest: BTreeMap<(Kind, String), &Measured> = BTreeMap::new();
    for one in measured {
        let best = longest.entry((one.kind, one.name.clone())).or_insert(one);
        if one.lines > best.lines {
            *best = one;
        }
    }
    for (key, one) in longest {
        let allowed = listed.remove(&key);
        findings.extend(judge(one, allowed));
    }
    for ((kind, name), _) in listed {
        let what = format!("[{}] {name} does not exist", kind.table());
        findings.push(Finding::new(PATH, 1, what, "remove the entry"));
    }
    findings
}

fn judge(one: &Measured, allowed: Option<usize>) -> Option<Finding> {
    let (limit, lines, table) = (one.kind.limit(), one.lines, one.kind.table());
    match allowed {
        None if lines <= limit => None,
        None => {
            let what = format!("{table} {} has {lines} code lines, more than {limit}", one.name);
            Some(Finding::new(
                &one.path,
                one.line,
                what,
                format!("split it, or list it in {PATH} with a reason"),
            ))
        }
        Some(_) if lines <= limit => {
            let what = format!("[{table}] {} has only {lines} lines now", one.name);
            Some(Finding::new(PATH, 1, what, "remove the entry"))
        }
        Some(allowed) if allowed > lines => {
            let what = format!("[{table}] {} allows {allowed} lines, there are {lines}", one.name);
            Some(Finding::new(PATH, 1, what, format!("lower it to {lines}")))
        }
        Some(allowed) if allowed < lines => {
            let what = format!("{table} {} grew from {allowed} to {lines} lines", one.name);
            Some(Finding::new(&one.path, one.line, what, "split it; the list only shrinks"))
        }
        Some(_) => None,
    }
}

/// `[file]` and `[function]` tables of `"name" = { lines = 90, why = "…" }`.
fn read(list: &str) -> (Listed, Vec<Finding>) {
    let mut listed = Listed::new();
    let mut findings = Vec::new();
    let table: toml::Table = match list.parse() {
        Ok(table) => table,
        Err(error) => {
            findings.push(Finding::new(PATH, 1, error.message().to_owned(), "write valid TOML"));
            return (listed, findings);
        }
    };
    for (section, entries) in &table {
        let kind = Kind::ALL.into_iter().find(|kind| kind.table() == section);
        let (Some(kind), Some(entries)) = (kind, entries.as_table()) else {
            let what = format!("unknown section {section}");
            findings.push(Finding::new(PATH, 1, what, "use [file] and [function]"));
            continue;
        };
        for (name, entry) in entries {
            let lines = entry.get("lines").and_then(toml::Value::as_integer);
            let lines = lines.and_then(|lines| usize::try_from(lines).ok());
            let why = entry.get("why").and_then(toml::Value::as_str).unwrap_or_default();
            match lines {
                Some(lines) if !why.trim().is_empty() => {
                    listed.insert((kind, name.clone()), lines);
                }
                _ => {
                    let what = format!("[{section}] {name} is incomplete");
                    let fix = "write { lines = N, why = \"…\" }";
                    findings.push(Finding::new(PATH, 1, what, fix));
                }
            }
        }
    }
    (listed, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> Measured {
        Measured {
            kind: Kind::Function,
            name: name.to_owned(),
            path: "a.rs".to_owned(),
            line: 3,
            lines,
        }
    }

    fn whats(list: &str, measured: &[Measured]) -> Vec<String> {
        check(list, measured).into_iter().map(|finding| finding.what).collect()
    }

    fn listed(lines: usize) -> String {
        format!("[function]\n\"a.rs::b\" = {{ lines = {lines}, why = \"flat match\" }}\n")
    }

    #[test]
    fn the_limits_are_the_last_allowed_lengths() {
        let file =
            |lines| Measured { kind: Kind::File, name: "a.rs".to_owned(), ..function("", lines) };
        assert_eq!(whats("", &[file(600), function("a.rs::b", 70)]), [""; 0]);
        assert_eq!(whats("", &[file(601), function("a.rs::b", 71)]).len(), 2);
    }

    #[test]
    fn a_listed_giant_may_stand_but_not_grow() {
        assert_eq!(whats(&listed(90), &[function("a.rs::b", 90)]), [""; 0]);
        let found = whats(&listed(90), &[function("a.rs::b", 91)]);
        assert_eq!(found, ["function a.rs::b grew from 90 to 91 lines"]);
    }

    #[test]
    fn the_list_only_shrinks() {
        let found = whats(&listed(90), &[function("a.rs::b", 80)]);
        assert_eq!(found, ["[function] a.rs::b allows 90 lines, there are 80"]);
        let found = whats(&listed(90), &[function("a.rs::b", 70)]);
        assert_eq!(found, ["[function] a.rs::b has only 70 lines now"]);
        assert_eq!(whats(&listed(90), &[]), ["[function] a.rs::b does not exist"]);
    }

    #[test]
    fn of_two_functions_with_one_name_the_longest_counts() {
        let both = [function("a.rs::b", 90), function("a.rs::b", 71)];
        assert_eq!(whats(&listed(90), &both), [""; 0]);
    }

    #[test]
    fn an_entry_needs_a_reason() {
        let found = whats("[file]\n\"a.rs\" = { lines = 700 }\n", &[]);
        assert_eq!(found, ["[file] a.rs is incomplete"]);
        assert_eq!(whats("[files]\n", &[]), ["unknown section files"]);
        assert_eq!(whats("[file\n", &[]).len(), 1);
    }
}
