//! Checks that a type name which other modules can see is declared only once in the workspace.
//!
//! Two types with one name cannot be told apart in a search, a review or an error message. Compares
//! names only; it does not know which module uses which type.

use std::collections::BTreeMap;

use super::Finding;
use super::source::DeclaredType;

/// Names that may be declared more than once, each with the reason.
const EXCEPTIONS: &[(&str, &str)] =
    &[("WaitingThread", "one declaration for Linux, one for other systems; only one is compiled")];

/// Reports every declaration of a name after the first, and every exception that is not needed.
pub(super) fn check(types: &[DeclaredType]) -> Vec<Finding> {
    check_with_exceptions(types, EXCEPTIONS)
}

fn check_with_exceptions(types: &[DeclaredType], exceptions: &[(&str, &str)]) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&DeclaredType>> = BTreeMap::new();
    for declared in types {
        by_name.entry(&declared.name).or_default().push(declared);
    }
    let mut findings = Vec::new();
    for (name, declarations) in &by_name {
        if exceptions.iter().any(|(excepted, _)| excepted == name) {
            continue;
        }
        let Some((first, others)) = declarations.split_first() else { continue };
        for other in others {
            let what = format!("type {name} is also declared at {}:{}", first.path, first.line);
            let fix = "give each type a name that says whose it is";
            findings.push(Finding::new(&other.path, other.line, what, fix));
        }
    }
    for (name, _) in exceptions {
        if by_name.get(name).is_none_or(|declarations| declarations.len() < 2) {
            let what = format!("the exception for type {name} is not needed");
            let fix = "remove it from EXCEPTIONS";
            findings.push(Finding::new("xtask/src/tidy/type_names.rs", 1, what, fix));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(path: &str, name: &str) -> DeclaredType {
        DeclaredType { path: path.to_owned(), line: 3, name: name.to_owned() }
    }

    fn whats(types: &[DeclaredType], exceptions: &[(&str, &str)]) -> Vec<String> {
        check_with_exceptions(types, exceptions).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn a_type_name_that_is_declared_twice_is_found() {
        let types = [declared("a.rs", "Report"), declared("b.rs", "Report")];
        assert_eq!(whats(&types, &[]), ["type Report is also declared at a.rs:3"]);
        assert_eq!(whats(&[declared("a.rs", "A"), declared("b.rs", "B")], &[]), [""; 0]);
    }

    #[test]
    fn an_exception_counts_only_while_it_is_needed() {
        let twice = [declared("a.rs", "Report"), declared("b.rs", "Report")];
        assert_eq!(whats(&twice, &[("Report", "twins")]), [""; 0]);
        let found = whats(&twice[..1], &[("Report", "twins")]);
        assert_eq!(found, ["the exception for type Report is not needed"]);
    }
}
