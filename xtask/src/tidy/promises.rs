//! Checks that every test named on the page of promises exists in the sources.
//!
//! Compares names only. Whether a test proves what its row says is for the reviewer to judge.

use std::collections::BTreeSet;

use super::Finding;

/// The page whose tables name tests.
pub(super) const PAGE: &str = "docs/design/promises.md";

/// Reports every test that a table names and that no source file has.
pub(super) fn check(page: &str, tests: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut column = None;
    for (n, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.trim_start().starts_with('|') {
            column = None;
            continue;
        }
        if let Some(at) = cells.iter().position(|cell| *cell == "test") {
            column = Some(at);
            continue;
        }
        let Some(at) = column.filter(|_| !line.contains("---")) else { continue };
        let named = cells.get(at).copied().unwrap_or_default();
        for name in named.split('`').skip(1).step_by(2).filter(|name| is_test(name)) {
            if !tests.contains(name) {
                let what = format!("no test is called {name}");
                findings.push(Finding::new(PAGE, n + 1, what, "name the test that shows it"));
            }
        }
    }
    findings
}

/// A sentence in snake case, and not a command or a file.
fn is_test(name: &str) -> bool {
    name.matches('_').count() >= 3 && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

/// The functions that a source file has, by their names.
pub(super) fn functions(source: &str) -> impl Iterator<Item = String> + '_ {
    source.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("fn ")?;
        rest.split('(').next().map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_does_not_exist_is_named_with_its_line() {
        let page = "| what | test |\n|---|---|\n| a | `this_one_is_really_there` |\n| b | `this_one_is_not_there` |\n";
        let tests = functions("    fn this_one_is_really_there() {").collect();
        let found = check(page, &tests);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains(":4:"), "{}", found[0]);
    }

    #[test]
    fn commands_and_tables_without_tests_are_no_tests() {
        let page =
            "| what | test |\n|---|---|\n| a | `cargo xtask chaos` |\n\n| key |\n| `a_b_c_d` |\n";
        assert_eq!(check(page, &BTreeSet::new()).len(), 0);
    }
}
