//! Rules on one Rust file, read as tokens: what a string or a comment says cannot trip them.
//!
//! Knows no types and resolves no names.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use super::ratchet::{Kind, Measured};
use super::{Finding, names};

/// Macros that mean "not finished", each with what to do instead.
const MACROS: &[(&str, &str)] = &[
    ("todo", "finish it or return an error"),
    ("unimplemented", "finish it or return an error"),
    ("dbg", "remove it; facts and logs show what happened"),
];

/// Code whose state has one owner, so that a lock around shared state would be a second one. Tests may
/// share a simulated world with what they simulate.
const ONE_OWNER: &[&str] = &["crates/core/src/", "crates/engine/src/"];

/// A doc comment with fewer words repeats the name below it, or is a riddle.
const DOC_WORDS_MIN: usize = 4;

/// All rules that need only this file.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = doc(path, text).into_iter().collect();
    match scan(text) {
        Err(line) => {
            let fix = "run `cargo check`";
            findings.push(Finding::new(path, line, "is not Rust", fix));
        }
        Ok(scan) => {
            let shared = ONE_OWNER.iter().any(|prefix| path.starts_with(prefix));
            let notes = scan.notes.into_iter().filter(|note| shared || !note.one_owner);
            findings.extend(notes.map(|note| Finding::new(path, note.line, note.what, note.fix)));
        }
    }
    findings
}

/// The lengths of the file and of each function in it, tests left out.
pub(super) fn measure(path: &str, text: &str) -> Vec<Measured> {
    let Ok(scan) = scan(text) else { return Vec::new() };
    if is_test_file(path) {
        return Vec::new();
    }
    let blank: BTreeSet<usize> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim().is_empty())
        .map(|(at, _)| at + 1)
        .collect();
    let count = |from: usize, to: usize| {
        scan.code.range(from..=to).filter(|line| !blank.contains(line)).count()
    };
    let file = Measured {
        kind: Kind::File,
        name: path.to_owned(),
        path: path.to_owned(),
        line: 1,
        lines: count(1, usize::MAX),
    };
    let functions = scan.functions.iter().map(|function| Measured {
        kind: Kind::Function,
        name: format!("{path}::{}", function.name),
        path: path.to_owned(),
        line: function.from,
        lines: count(function.from, function.to),
    });
    std::iter::once(file).chain(functions).collect()
}

/// A type that other modules can see: `pub` or `pub(…)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredType {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) name: String,
}

/// The types of a file that other modules can see, tests left out.
pub(super) fn declared_types(path: &str, text: &str) -> Vec<DeclaredType> {
    let Ok(scan) = scan(text) else { return Vec::new() };
    if is_test_file(path) {
        return Vec::new();
    }
    let types = scan.types.into_iter();
    types.map(|(line, name)| DeclaredType { path: path.to_owned(), line, name }).collect()
}

/// A file of tests only: `<module>/tests.rs`, or below a `tests` folder.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Test modules below `src` are described by the module they test.
fn doc(path: &str, text: &str) -> Option<Finding> {
    let exempt = is_test_file(path) && path.contains("/src/");
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if exempt || first.starts_with("//!") {
        return None;
    }
    let fix = "begin with `//!`: what it does and what it does not know";
    Some(Finding::new(path, 1, "no module doc", fix))
}

/// A rule broken at a line.
struct Note {
    line: usize,
    what: String,
    fix: &'static str,
    /// Counts only in the crates of [`ONE_OWNER`].
    one_owner: bool,
}

struct Function {
    name: String,
    from: usize,
    to: usize,
}

/// What one pass over the tokens saw.
#[derive(Default)]
struct Scan {
    /// Lines that hold code outside test modules.
    code: BTreeSet<usize>,
    /// Functions outside test modules.
    functions: Vec<Function>,
    /// Types outside test modules that other modules can see: line and name.
    types: Vec<(usize, String)>,
    notes: Vec<Note>,
}

/// `Err` names the line where the text stops being Rust.
fn scan(text: &str) -> Result<Scan, usize> {
    let tokens: TokenStream =
        text.parse().map_err(|error: proc_macro2::LexError| error.span().start().line)?;
    let mut scan = Scan::default();
    scan.walk(tokens, false);
    Ok(scan)
}

impl Scan {
    fn walk(&mut self, stream: TokenStream, in_test: bool) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut test_next = false;
        let mut at = 0;
        self.check_doc_comments(&tokens);
        while let Some(token) = tokens.get(at) {
            if let Some((attribute, used)) = attribute(&tokens[at..]) {
                test_next |= self.attribute(&attribute, in_test);
                at += used;
                continue;
            }
            self.mark(token, in_test);
            match token {
                TokenTree::Ident(ident) => {
                    let word = ident.to_string();
                    self.judge(&word, &tokens[at..], in_test);
                    let keep = matches!(word.as_str(), "pub" | "mod" | "r#mod");
                    if word == "mod"
                        && let [TokenTree::Ident(name), TokenTree::Group(body), ..] =
                            &tokens[at + 1..]
                    {
                        let test = in_test || test_next || name == "tests";
                        self.mark(&tokens[at + 2], test);
                        self.walk(body.stream(), test);
                        at += 3;
                        test_next = false;
                        continue;
                    }
                    test_next &= keep;
                }
                TokenTree::Group(group) => {
                    self.walk(group.stream(), in_test);
                    test_next &= group.delimiter() == Delimiter::Parenthesis;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => test_next = false,
            }
            at += 1;
        }
    }

    /// Counts the words of each doc comment; consecutive lines are one comment.
    fn check_doc_comments(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            let Some((text, length)) = doc_line(&tokens[at..]) else {
                at += 1;
                continue;
            };
            let line = tokens[at].span().start().line;
            let mut words = count_words(&text);
            let mut used = length;
            // A `//!` line takes three tokens and a `///` line two: they are not one comment.
            while let Some((text, same)) = doc_line(&tokens[at + used..])
                && same == length
            {
                words += count_words(&text);
                used += same;
            }
            if words < DOC_WORDS_MIN {
                let what = format!("a doc comment of fewer than {DOC_WORDS_MIN} words");
                self.note(line, what, "write a whole sentence, or nothing");
            }
            at += used;
        }
    }

    /// Remembers the lines a token stands on: all of a literal, the two ends of a group.
    fn mark(&mut self, token: &TokenTree, in_test: bool) {
        if in_test {
            return;
        }
        match token {
            TokenTree::Group(group) => {
                self.code.insert(group.span_open().start().line);
                self.code.insert(group.span_close().end().line);
            }
            other => self.code.extend(lines(other.span())),
        }
    }

    /// `true` when what follows is compiled for tests only.
    fn attribute(&mut self, group: &Group, in_test: bool) -> bool {
        let words = idents(&group.stream());
        let first = words.first().map(String::as_str).unwrap_or_default();
        if first == "doc" {
            return false;
        }
        if !in_test {
            self.code.extend(lines(group.span()));
        }
        let line = group.span().start().line;
        let says =
            |word: &str| first == word || (first == "cfg_attr" && words.iter().any(|w| w == word));
        if says("allow") {
            let fix = "use `#[expect(lint, reason = \"…\")]`, which ends when its cause does";
            self.note(line, "`#[allow]` outlives its cause".to_owned(), fix);
        }
        if says("ignore") {
            let fix = "make the test fit for every run, or delete it; slow ones look at RUN_SLOW";
            self.note(line, "an ignored test protects nothing".to_owned(), fix);
        }
        first == "cfg" && words.get(1).is_some_and(|word| word == "test")
    }

    /// Judges one identifier and what stands right after it.
    fn judge(&mut self, word: &str, from: &[TokenTree], in_test: bool) {
        let line = from[0].span().start().line;
        if let Some(what) = names::check_ident(word) {
            self.note(line, what, "name it after what it does");
        }
        if word == "mod"
            && let Some(TokenTree::Ident(name)) = from.get(1)
            && let Some(what) = names::check_module(&name.to_string())
        {
            self.note(line, what, "name it after what it holds");
        }
        let bang = matches!(from.get(1), Some(TokenTree::Punct(p)) if p.as_char() == '!' && p.spacing() == Spacing::Alone);
        if let Some((name, fix)) = MACROS.iter().find(|(name, _)| bang && *name == word) {
            self.note(line, format!("`{name}!` is left over"), fix);
        }
        if word == "Arc" && wraps_mutex(&from[1..]) {
            self.notes.push(Note {
                line,
                what: "`Arc<Mutex>` makes a second owner of state".to_owned(),
                fix: "send a message to the loop that owns it",
                one_owner: true,
            });
        }
        if word == "fn" && !in_test {
            self.functions.extend(function(from));
        }
        if word == "pub" && !in_test {
            self.types.extend(visible_type(from));
        }
    }

    fn note(&mut self, line: usize, what: String, fix: &'static str) {
        self.notes.push(Note { line, what, fix, one_owner: false });
    }
}

/// `#[…]` or `#![…]` at the front, and how many tokens it takes.
fn attribute(tokens: &[TokenTree]) -> Option<(Group, usize)> {
    let hash =
        |token: &TokenTree, c: char| matches!(token, TokenTree::Punct(p) if p.as_char() == c);
    let (group, used) = match tokens {
        [a, TokenTree::Group(group), ..] if hash(a, '#') => (group, 2),
        [a, b, TokenTree::Group(group), ..] if hash(a, '#') && hash(b, '!') => (group, 3),
        _ => return None,
    };
    (group.delimiter() == Delimiter::Bracket).then(|| (group.clone(), used))
}

/// The text of a `///` or `//!` line at the front, and how many tokens it takes.
fn doc_line(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let (group, used) = attribute(tokens)?;
    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
    match inner.as_slice() {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(text)]
            if name == "doc" =>
        {
            let text = text.to_string();
            let text = text.trim_start_matches(['r', '#']).trim_end_matches('#');
            Some((text.trim_matches('"').to_owned(), used))
        }
        _ => None,
    }
}

fn count_words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// `pub struct Name`, `pub(crate) enum Name` and the like: line and name.
fn visible_type(from: &[TokenTree]) -> Option<(usize, String)> {
    let rest = match &from[1..] {
        [TokenTree::Group(scope), rest @ ..] if scope.delimiter() == Delimiter::Parenthesis => rest,
        rest => rest,
    };
    let [TokenTree::Ident(keyword), TokenTree::Ident(name), ..] = rest else { return None };
    let declares = ["struct", "enum", "trait", "union", "type"].iter().any(|word| keyword == word);
    declares.then(|| (name.span().start().line, name.to_string()))
}

/// `fn name … { … }`; a pointer type has no name and a required method no body.
fn function(from: &[TokenTree]) -> Option<Function> {
    let [start, TokenTree::Ident(name), rest @ ..] = from else { return None };
    for token in rest {
        match token {
            TokenTree::Punct(p) if p.as_char() == ';' => return None,
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                let to = body.span_close().end().line;
                return Some(Function {
                    name: name.to_string(),
                    from: start.span().start().line,
                    to,
                });
            }
            _ => {}
        }
    }
    None
}

/// `<Mutex<…`, `<std::sync::Mutex<…`, `::new(Mutex::…` right after `Arc`.
fn wraps_mutex(after: &[TokenTree]) -> bool {
    match after {
        [TokenTree::Punct(p), rest @ ..] if p.as_char() == '<' => path_holds_mutex(rest),
        [
            TokenTree::Punct(_),
            TokenTree::Punct(_),
            TokenTree::Ident(new),
            TokenTree::Group(inner),
            ..,
        ] if new == "new" => {
            let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
            path_holds_mutex(&inner)
        }
        _ => false,
    }
}

fn path_holds_mutex(tokens: &[TokenTree]) -> bool {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "Mutex" || ident == "RwLock" => return true,
            TokenTree::Ident(_) => {}
            TokenTree::Punct(p) if p.as_char() == ':' => {}
            _ => return false,
        }
    }
    false
}

fn idents(stream: &TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in stream.clone() {
        match token {
            TokenTree::Ident(ident) => found.push(ident.to_string()),
            TokenTree::Group(group) => found.extend(idents(&group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

fn lines(span: Span) -> std::ops::RangeInclusive<usize> {
    span.start().line..=span.end().line
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(path, text).into_iter().map(|finding| finding.what).collect()
    }

    fn whats_of(code: &str) -> Vec<String> {
        whats("crates/engine/src/a.rs", &format!("//! A file for tests.\n{code}"))
    }

    #[test]
    fn a_doc_comment_of_three_words_is_found() {
        let what = "a doc comment of fewer than 4 words";
        assert_eq!(whats_of("/// Which attempt.\nfn a() {}\n"), [what]);
        assert_eq!(whats_of("struct A {\n    /// The — task.\n    b: u8,\n}\n"), [what]);
        assert_eq!(whats_of("/// Says which attempt\n/// it is.\nfn a() {}\n"), [""; 0]);
        assert_eq!(whats_of("// Why.\nfn a() {}\n"), [""; 0]);
        let found = check("crates/core/src/a.rs", "//! JSON, strict.\nfn a() {}\n");
        assert_eq!(found[0].line, 1);
        assert_eq!(found[0].what, what);
    }

    #[test]
    fn types_that_other_modules_see_are_listed_with_their_lines() {
        let code = "pub struct A;\npub(crate) enum B {}\nstruct C;\npub fn d() {}\nmod tests {\n    pub struct E;\n}\n";
        let names = |path: &str| {
            let types = declared_types(path, code).into_iter();
            types.map(|one| (one.line, one.name)).collect::<Vec<_>>()
        };
        assert_eq!(names("crates/core/src/a.rs"), [(1, "A".to_owned()), (2, "B".to_owned())]);
        assert_eq!(names("crates/core/tests/sim/a.rs"), []);
    }

    #[test]
    fn a_file_without_a_module_doc_is_found() {
        assert_eq!(whats("crates/core/src/a.rs", "use std::fmt;\n"), ["no module doc"]);
        assert_eq!(whats("crates/core/src/a.rs", ""), ["no module doc"]);
        assert_eq!(whats("crates/core/src/phase/tests.rs", "use super::*;\n"), [""; 0]);
        assert_eq!(whats("crates/core/src/phase/tests/moves.rs", "use super::*;\n"), [""; 0]);
        assert_eq!(whats("crates/cli/tests/it/main.rs", "mod a;\n"), ["no module doc"]);
    }

    #[test]
    fn unfinished_macros_are_found_but_not_in_strings() {
        assert_eq!(whats_of("fn a() { todo!(\"x\") }").len(), 1);
        assert_eq!(whats_of("fn a() { b(dbg!(1)); unimplemented!() }").len(), 2);
        assert_eq!(whats_of("fn a() { b(\"todo!()\"); let todo = 1; if todo != 2 {} }"), [""; 0]);
    }

    #[test]
    fn allow_and_ignore_are_found_also_under_a_condition() {
        assert_eq!(whats_of("#[allow(dead_code)] fn a() {}").len(), 1);
        assert_eq!(whats_of("#![allow(dead_code)]").len(), 1);
        assert_eq!(whats_of("#[cfg_attr(unix, allow(dead_code))] fn a() {}").len(), 1);
        assert_eq!(whats_of("mod tests { #[test] #[ignore = \"slow\"] fn a() {} }").len(), 1);
        assert_eq!(whats_of("#[expect(dead_code, reason = \"allow\")] fn a() {}"), [""; 0]);
    }

    #[test]
    fn a_shared_lock_is_found_in_core_and_engine_only() {
        for code in [
            "struct A(Arc<Mutex<u8>>);",
            "struct A(Arc<std::sync::RwLock<u8>>);",
            "fn a() { Arc::new(Mutex::new(1)); }",
        ] {
            assert_eq!(whats_of(code).len(), 1, "{code}");
            assert_eq!(
                whats("crates/cli/src/a.rs", &format!("//! A file for tests.\n{code}")),
                [""; 0],
                "{code}"
            );
        }
        assert_eq!(whats_of("struct A(Arc<Vec<Mutex<u8>>>, Arc<str>);"), [""; 0]);
    }

    #[test]
    fn empty_nouns_are_found_in_code() {
        assert_eq!(whats_of("struct LaneManager;").len(), 1);
        assert_eq!(whats_of("mod utils;").len(), 1);
        assert_eq!(whats_of("// a Manager\nfn a() { b(\"Service\") }"), [""; 0]);
    }

    #[test]
    fn text_that_is_not_rust_is_found_with_its_line() {
        let found = check("crates/core/src/a.rs", "//! A file for tests.\nfn a() {\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "is not Rust");
    }

    fn lengths(path: &str, text: &str) -> Vec<(String, usize)> {
        measure(path, text).into_iter().map(|m| (m.name, m.lines)).collect()
    }

    #[test]
    fn comments_blank_lines_and_test_modules_are_not_counted() {
        let text = "\
//! A file for tests.

/* long
   comment */
fn a(
    b: u8, // why
) {

    // why
    let _ = \"two

lines\";
}

#[cfg(test)]
mod checks {
    fn c() {
    }
}
mod tests {
    fn d() {
    }
}
";
        let path = "crates/core/src/a.rs";
        // Six lines of `a`, and the lines that open the two modules.
        let expected = [(path.to_owned(), 9), (format!("{path}::a"), 6)];
        assert_eq!(lengths(path, text), expected);
    }

    #[test]
    fn methods_count_and_pointer_types_and_required_methods_do_not() {
        let text =
            "trait A { fn b(&self); }\nimpl A for u8 {\nfn b(&self) {\n}\n}\ntype C = fn(u8);\n";
        let functions: Vec<_> = lengths("a.rs", text).into_iter().skip(1).collect();
        assert_eq!(functions, [("a.rs::b".to_owned(), 2)]);
    }

    #[test]
    fn test_files_are_not_measured() {
        assert_eq!(lengths("crates/core/src/phase/tests.rs", "fn a() {}"), []);
        assert_eq!(lengths("crates/cli/tests/it/a.rs", "fn a() {}"), []);
    }

    #[test]
    fn the_scan_of_this_very_file_finds_its_functions() {
        let found = measure("xtask/src/tidy/source.rs", include_str!("source.rs"));
        assert!(found.iter().any(|m| m.name.ends_with("::wraps_mutex")));
        assert!(!found.iter().any(|m| m.name.ends_with("::lengths")), "a test's own function");
        assert!(found.iter().find(|m| m.kind == Kind::File).unwrap().lines > 100);
    }
}
