//! Every package's licence against the list in `deny.toml`.
//!
//! Does what `cargo deny check licenses` does for our lock file, where that tool is not installed. Knows the SPDX
//! operators, not the licences.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Value;

use super::Finding;
use crate::shell;

const PATH: &str = "deny.toml";

/// One finding per package whose licence is not covered.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join(PATH));
    let text = text.map_err(|error| format!("{PATH}: {error}"))?;
    let packages = packages(&metadata(root)?)?;
    judge(&text, &packages)
}

/// Name and licence expression.
type Package = (String, Option<String>);

fn judge(deny: &str, packages: &[Package]) -> Result<Vec<Finding>, String> {
    let allowed = allowed(deny)?;
    let mut findings = Vec::new();
    for (name, licence) in packages {
        let licence = licence.as_deref().unwrap_or_default();
        if let Err(why) = choose(licence, &allowed) {
            let fix = "take another package, or add the licence after reading it";
            findings.push(Finding::new(PATH, 1, format!("{name}: {why}"), fix));
        }
    }
    Ok(findings)
}

fn allowed(deny: &str) -> Result<BTreeSet<String>, String> {
    let table: toml::Table = deny.parse().map_err(|error| format!("{PATH}: {error}"))?;
    let list = table.get("licenses").and_then(|section| section.get("allow"));
    let list =
        list.and_then(Value::as_array).ok_or_else(|| format!("{PATH}: no [licenses] allow"))?;
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Every target's packages if they are on disk, else this machine's; a fresh clone has to fetch them.
fn metadata(root: &Path) -> Result<Vec<u8>, String> {
    let ask = |more: &[&str]| {
        let mut ask = shell::cargo(root);
        ask.args(["metadata", "--format-version", "1", "--locked"]);
        shell::output(ask.args(more))
    };
    let here_only = || {
        let host = shell::output(shell::command("rustc", root).args(["--print", "host-tuple"]))?;
        let host = String::from_utf8_lossy(&host).trim().to_owned();
        ask(&["--offline", "--filter-platform", &host])
    };
    ask(&["--offline"]).or_else(|_| here_only()).or_else(|_| ask(&[]))
}

fn packages(metadata: &[u8]) -> Result<Vec<Package>, String> {
    let metadata: serde_json::Value = serde_json::from_slice(metadata)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let list = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let read = |package: &serde_json::Value| {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        (text("name").unwrap_or_default(), text("license"))
    };
    Ok(list.iter().map(read).collect())
}

/// `Err` says why nothing on the list satisfies the expression.
fn choose(expression: &str, allowed: &BTreeSet<String>) -> Result<(), String> {
    // Before SPDX expressions were required, `/` meant "or".
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    let satisfied = reader.any()?;
    if !reader.words.is_empty() {
        return Err(format!("cannot read the licence `{expression}`"));
    }
    if satisfied { Ok(()) } else { Err(format!("licence `{expression}` is not allowed")) }
}

/// Reads `any = all ("OR" all)*`, `all = one ("AND" one)*`, `one = "(" any ")" | id ("WITH" id)?`.
struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl Reader<'_> {
    // `|` and `&` rather than `||` and `&&`: both sides must be read.
    fn any(&mut self) -> Result<bool, String> {
        let mut satisfied = self.all()?;
        while self.take("OR") {
            satisfied |= self.all()?;
        }
        Ok(satisfied)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut satisfied = self.one()?;
        while self.take("AND") {
            satisfied &= self.one()?;
        }
        Ok(satisfied)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let inner = self.any()?;
            return if self.take(")") { Ok(inner) } else { Err("a `)` is missing".to_owned()) };
        }
        let [id, rest @ ..] = self.words else {
            return Err("there is no licence, or half of one".to_owned());
        };
        self.words = rest;
        let mut id = (*id).to_owned();
        if self.take("WITH") {
            let [exception, rest @ ..] = self.words else {
                return Err("an exception is missing after WITH".to_owned());
            };
            self.words = rest;
            id = format!("{id} WITH {exception}");
        }
        Ok(self.allowed.contains(&id))
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words {
            [first, rest @ ..] if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ok(expression: &str) -> bool {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        choose(expression, &BTreeSet::from(allowed)).is_ok()
    }

    #[test]
    fn expressions_are_weighed_by_their_operators() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(ok(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0",
            "(MIT OR Apache-2.0) AND OpenSSL",
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT MIT",
            "MIT WITH",
        ] {
            assert!(!ok(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_outside_the_list_or_without_a_licence_is_found() {
        let deny = "[licenses]\nallow = [\"MIT\"]\n";
        let package =
            |name: &str, licence: Option<&str>| (name.to_owned(), licence.map(str::to_owned));
        let packages =
            [package("a", Some("MIT")), package("b", Some("GPL-3.0")), package("c", None)];
        let found: Vec<String> =
            judge(deny, &packages).unwrap().into_iter().map(|f| f.what).collect();
        assert_eq!(
            found,
            ["b: licence `GPL-3.0` is not allowed", "c: there is no licence, or half of one"]
        );
    }

    #[test]
    fn a_list_without_licences_is_an_error_not_a_pass() {
        assert!(judge("[bans]\n", &[]).is_err());
        assert!(packages(b"{}").is_err());
    }
}
