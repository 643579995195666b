//! Globs of declared files: are they well formed, and may two of them name the same file.
//!
//! Knows nothing of tasks or of the file system. The answer of [`globs_may_overlap`] is conservative:
//! only a `false` is a promise.

use globset::GlobBuilder;

/// Longer globs are refused; the comparison's cost is the product of two lengths.
pub const GLOB_LEN_MAX: usize = 512;

/// Deeper braces are refused: other readers of a glob may recurse into them.
const BRACES_MAX: usize = 8;

/// Checks a glob as `writes` and `include` take it. The error says what is wrong and the cure.
pub fn check_glob(glob: &str) -> Result<(), String> {
    if glob.trim().is_empty() {
        return Err("the glob is empty; use a glob such as `src/**`".to_owned());
    }
    if glob.len() > GLOB_LEN_MAX {
        return Err(format!("the glob is longer than {GLOB_LEN_MAX} bytes; use several globs"));
    }
    if glob.chars().any(char::is_control) {
        return Err("the glob contains a control character; remove the character".to_owned());
    }
    if glob.starts_with('/') {
        return Err("the glob is absolute; use a path relative to the repository root".to_owned());
    }
    if glob.split(['/', ',', '{', '}']).any(|part| part == "..") {
        return Err(
            "the glob leaves the repository with `..`; use a path inside the repository".to_owned()
        );
    }
    if glob == "." || glob.starts_with("./") || glob.contains("/./") {
        return Err(
            "the glob has `.` as a folder, which matches nothing; remove the `.`".to_owned()
        );
    }
    if glob.contains("//") {
        return Err("the glob has `//`, which matches nothing; use a single `/`".to_owned());
    }
    if brace_depth(glob) > BRACES_MAX {
        return Err(format!(
            "braces are nested more than {BRACES_MAX} levels deep; use several globs"
        ));
    }
    if !glob.contains(['[', ']', '{', '}', '\\']) {
        // Stars and question marks alone are always well formed.
        return Ok(());
    }
    match GlobBuilder::new(glob).literal_separator(true).build() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{}; escape special characters with `\\`", error.kind())),
    }
}

fn brace_depth(glob: &str) -> usize {
    let mut depth = 0usize;
    let mut deepest = 0;
    for byte in glob.bytes() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// May some path match both globs? A glob that ends in a plain name also covers what lies under
/// that name. `false` only if no path can match both; an unreadable glob may match anything.
pub fn globs_may_overlap(a: &str, b: &str) -> bool {
    if literal_prefixes_differ(a, b) {
        return false;
    }
    let (Some(a), Some(b)) = (GlobAutomaton::from_glob(a), GlobAutomaton::from_glob(b)) else {
        return true;
    };
    a.accepts_common_path(&b)
}

/// The common case without building anything: `crates/a/**` and `crates/b/**`.
fn literal_prefixes_differ(a: &str, b: &str) -> bool {
    let plain = |byte: &u8| !matches!(byte, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'\\');
    let a = a.bytes().take_while(plain);
    let b = b.bytes().take_while(plain);
    a.zip(b).any(|(a, b)| a != b)
}

/// A set of bytes. Bytes and not characters, because that is how the matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByteSet([u64; 4]);

impl ByteSet {
    const NONE: Self = Self([0; 4]);
    const ALL: Self = Self([u64::MAX; 4]);

    fn of_byte(byte: u8) -> Self {
        let mut set = Self::NONE;
        set.insert(byte);
        set
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    fn name_bytes() -> Self {
        Self::ALL.without(Self::of_byte(b'/'))
    }

    fn intersects(self, other: Self) -> bool {
        (0..4).any(|i| self.0[i] & other.0[i] != 0)
    }
}

/// A nondeterministic machine that takes at least the paths its glob matches.
#[derive(Debug, Default)]
struct GlobAutomaton {
    states: Vec<GlobState>,
}

#[derive(Debug, Default, Clone)]
struct GlobState {
    /// Taken without a byte.
    free: Vec<u32>,
    /// Taken with one of these bytes.
    step: Option<GlobTransition>,
}

#[derive(Debug, Clone, Copy)]
struct GlobTransition {
    bytes: ByteSet,
    to: u32,
    kind: TransitionKind,
}

/// Where a step comes from: `**` must not take every named file for a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransitionKind {
    Plain,
    /// A step that is part of a `**`.
    Deep,
    /// Into something that looks like a file, such as `lib.rs`, but might be a folder.
    IntoFile,
}

impl GlobTransition {
    fn overlaps_with(self, other: Self) -> bool {
        let kinds = (self.kind, other.kind);
        let apart = matches!(
            kinds,
            (TransitionKind::Deep, TransitionKind::IntoFile)
                | (TransitionKind::IntoFile, TransitionKind::Deep)
        );
        !apart && self.bytes.intersects(other.bytes)
    }
}

/// One open brace: where its alternatives begin, and the ends of those already read.
struct OpenBrace {
    start: u32,
    ends: Vec<u32>,
}

impl GlobAutomaton {
    /// The machine's last state is the accepting one.
    fn from_glob(glob: &str) -> Option<Self> {
        if glob.len() > GLOB_LEN_MAX {
            return None;
        }
        let folder = glob.ends_with('/');
        let body = glob.trim_end_matches('/');
        let mut machine = Self::default();
        let start = machine.add_state();
        let mut at = machine.append_glob(body, start)?;
        if folder || may_name_folder(body) {
            let under = machine.add_state();
            let end = machine.add_state();
            let file = !folder && looks_like_file(body);
            let kind = if file { TransitionKind::IntoFile } else { TransitionKind::Plain };
            machine.add_transition(at, ByteSet::of_byte(b'/'), under, kind);
            machine.add_transition(under, ByteSet::ALL, under, TransitionKind::Plain);
            machine.add_empty_transition(at, end);
            machine.add_empty_transition(under, end);
            at = end;
        }
        debug_assert_eq!(at as usize, machine.states.len() - 1);
        Some(machine)
    }

    fn add_state(&mut self) -> u32 {
        self.states.push(GlobState::default());
        (self.states.len() - 1) as u32
    }

    fn add_empty_transition(&mut self, from: u32, to: u32) {
        self.states[from as usize].free.push(to);
    }

    fn add_transition(&mut self, from: u32, bytes: ByteSet, to: u32, kind: TransitionKind) {
        self.states[from as usize].step = Some(GlobTransition { bytes, to, kind });
    }

    fn append_transition(&mut self, from: u32, bytes: ByteSet) -> u32 {
        let to = self.add_state();
        self.add_transition(from, bytes, to, TransitionKind::Plain);
        to
    }

    /// Any number of these bytes.
    fn append_repetition(&mut self, from: u32, bytes: ByteSet) -> u32 {
        let kind = if bytes == ByteSet::ALL { TransitionKind::Deep } else { TransitionKind::Plain };
        let again = self.add_state();
        let to = self.add_state();
        self.add_empty_transition(from, again);
        self.add_transition(again, bytes, again, kind);
        self.add_empty_transition(again, to);
        to
    }

    fn append_glob(&mut self, glob: &str, start: u32) -> Option<u32> {
        let mut at = start;
        let mut braces: Vec<OpenBrace> = Vec::new();
        let mut chars = glob.chars().peekable();
        let mut before: Option<char> = None;
        // True at the start of the glob and of each alternative.
        let mut fresh = true;
        while let Some(c) = chars.next() {
            let was_fresh = std::mem::replace(&mut fresh, false);
            match c {
                '?' => at = self.append_transition(at, ByteSet::name_bytes()),
                '*' if chars.peek() == Some(&'*') => {
                    chars.next();
                    let inside = !braces.is_empty();
                    (at, before) =
                        self.append_double_star(at, was_fresh, before, inside, &mut chars)?;
                    continue;
                }
                '*' => at = self.append_repetition(at, ByteSet::name_bytes()),
                '[' => {
                    let class = read_class(&mut chars)?;
                    at = self.append_transition(at, class);
                }
                '{' => {
                    braces.push(OpenBrace { start: at, ends: Vec::new() });
                    at = self.append_branch(at);
                    fresh = true;
                }
                ',' if !braces.is_empty() => {
                    let brace = braces.last_mut()?;
                    brace.ends.push(at);
                    let start = brace.start;
                    at = self.append_branch(start);
                    fresh = true;
                }
                '}' => {
                    let brace = braces.pop()?;
                    let join = self.add_state();
                    for end in brace.ends.into_iter().chain([at]) {
                        self.add_empty_transition(end, join);
                    }
                    at = join;
                }
                '\\' => at = self.append_literal(at, chars.next()?),
                c => at = self.append_literal(at, c),
            }
            before = Some(c);
        }
        if !braces.is_empty() {
            return None;
        }
        let end = self.add_state();
        self.add_empty_transition(at, end);
        Some(end)
    }

    fn append_branch(&mut self, from: u32) -> u32 {
        let to = self.add_state();
        self.add_empty_transition(from, to);
        to
    }

    fn append_literal(&mut self, mut at: u32, c: char) -> u32 {
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            at = self.append_transition(at, ByteSet::of_byte(byte));
        }
        at
    }

    /// `**`: whole folders if it stands alone between slashes, otherwise the same as `*`. Answers
    /// also the last character read, which may be the slash behind it.
    fn append_double_star(
        &mut self,
        at: u32,
        fresh: bool,
        before: Option<char>,
        inside: bool,
        chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    ) -> Option<(u32, Option<char>)> {
        if inside && !fresh && matches!(before, Some(',' | '{')) {
            // An escaped comma before `**` inside braces: the matcher's reading is its own.
            return None;
        }
        let alone_left = fresh || before == Some('/');
        match chars.peek() {
            Some('/') if alone_left => {
                chars.next();
                // `(.*/)?`
                let deep = self.append_repetition(at, ByteSet::ALL);
                let slash = self.add_state();
                self.add_transition(deep, ByteSet::of_byte(b'/'), slash, TransitionKind::Deep);
                let to = self.add_state();
                self.add_empty_transition(slash, to);
                self.add_empty_transition(at, to);
                Some((to, Some('/')))
            }
            None | Some(',' | '}') if alone_left => {
                Some((self.append_repetition(at, ByteSet::ALL), Some('*')))
            }
            _ => Some((self.append_repetition(at, ByteSet::name_bytes()), Some('*'))),
        }
    }

    /// Walks both machines at once over all pairs of states that some text can reach.
    fn accepts_common_path(&self, other: &Self) -> bool {
        let width = other.states.len();
        let last = (self.states.len() - 1, width - 1);
        let mut seen = vec![false; self.states.len() * width];
        let mut open = vec![(0usize, 0usize)];
        seen[0] = true;
        while let Some((i, j)) = open.pop() {
            if (i, j) == last {
                return true;
            }
            let (a, b) = (&self.states[i], &other.states[j]);
            let mut go = |i: usize, j: usize| {
                if !std::mem::replace(&mut seen[i * width + j], true) {
                    open.push((i, j));
                }
            };
            for next in &a.free {
                go(*next as usize, j);
            }
            for next in &b.free {
                go(i, *next as usize);
            }
            if let (Some(x), Some(y)) = (a.step, b.step)
                && x.overlaps_with(y)
            {
                go(x.to as usize, y.to as usize);
            }
        }
        false
    }
}

/// Does the glob end in a plain name, which may be a folder's? Braces at the end may hold one.
fn may_name_folder(glob: &str) -> bool {
    let last = glob.rsplit('/').next().unwrap_or(glob);
    glob.ends_with('}') || !last.contains(['*', '?', '[', ']'])
}

/// Does the last name have an ending with a letter in it?
fn looks_like_file(glob: &str) -> bool {
    let last = glob.rsplit('/').next().unwrap_or(glob);
    let Some((stem, ending)) = last.rsplit_once('.') else { return false };
    !stem.is_empty() && ending.contains(|c: char| c.is_ascii_alphabetic())
}

/// The rest of a class after `[`.
fn read_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<ByteSet> {
    let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut members = Vec::new();
    loop {
        match chars.next()? {
            ']' if !members.is_empty() => break,
            c => members.push(c),
        }
    }
    if !members.iter().all(char::is_ascii) {
        // The matcher compares bytes, so a class of wide characters matches parts of them.
        return Some(ByteSet::ALL);
    }
    let mut set = ByteSet::NONE;
    let mut i = 0;
    while i < members.len() {
        let low = members[i] as u8;
        if i + 2 < members.len() && members[i + 1] == '-' {
            (low..=members[i + 2] as u8).for_each(|byte| set.insert(byte));
            i += 3;
        } else {
            set.insert(low);
            i += 1;
        }
    }
    Some(if negated { ByteSet::ALL.without(set) } else { set })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlap_is_decided_by_the_paths_both_can_match() {
        for (a, b, want) in [
            ("a.txt", "a.txt", true),
            ("a.txt", "b.txt", false),
            ("src/**", "src/a/b.rs", true),
            ("src/**", "docs/**", false),
            ("**", "anything/at/all", true),
            ("src", "src/a.rs", true),
            ("src/", "src/a/b.rs", true),
            ("src/", "srcs/a", false),
            ("src", "src2", false),
            ("src/a", "src/a/", true),
            ("*.rs", "*.toml", false),
            ("*.rs", "src/a.rs", false),
            ("**/*.rs", "src/a.rs", true),
            ("**/*.rs", "a.rs", true),
            ("src/*.rs", "src/**/x.txt", false),
            ("src/*", "src/a/b.rs", false),
            ("src/?.rs", "src/ab.rs", false),
            ("src/?.rs", "src/[a-c].rs", true),
            ("[a-c]x", "[d-f]x", false),
            ("[!a]", "a", false),
            ("[!a]", "b", true),
            ("{src,docs}/**", "docs/a.md", true),
            ("{src,docs}/**", "tests/a.md", false),
            ("{a,b}/{c,d}.rs", "{b,e}/{d,f}.rs", true),
            ("{a,b}/{c,d}.rs", "{b,e}/{g,f}.rs", false),
            ("{src,docs}", "docs/x", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "a/x/y/c", true),
            ("a/**/b.rs", "a/x/y/c.rs", false),
            ("src/lib.rs", "**/Cargo.toml", false),
            ("src/lib.rs", "**/lib.rs", true),
            ("src/lib.rs", "src/lib.rs/odd", true),
            ("conf.d", "conf.d/**", true),
            ("v1.2", "**/x.rs", true),
            (".github", "**/x.yml", true),
            ("a/**/b", "**/c/b", true),
            ("a/**/**/b.rs", "a/x/y/b.rs", true),
            ("**/**/b.rs", "x/y/b.rs", true),
            ("a**b", "a/b", false),
            ("a**b", "axb", true),
            ("\\*", "a", false),
            ("\\*", "*", true),
            ("é*", "é/x", false),
            ("é*", "éx", true),
            ("crates/core/**", "crates/core/src/lib.rs", true),
            ("crates/*/Cargo.toml", "crates/core/Cargo.toml", true),
            ("crates/*/Cargo.toml", "crates/core/src/Cargo.toml", false),
            ("[", "a", true),
            ("{", "a", true),
            ("b[", "a", false),
        ] {
            assert_eq!(globs_may_overlap(a, b), want, "{a} {b}");
            assert_eq!(globs_may_overlap(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn bad_globs_are_refused_with_a_cure() {
        for good in ["src/**", "a", "src/", "{a,b}/*.rs", "[a-z]?", "..a", "a..b", ".env.local"] {
            assert_eq!(check_glob(good), Ok(()), "{good}");
        }
        let deep = format!("{}{}", "{".repeat(100), "}".repeat(100));
        let hundred_thousand = "{".repeat(100_000);
        for bad in [
            "",
            " ",
            "/etc/*",
            "../x",
            "a/../b",
            "{a,..}/b",
            "a/..",
            "./a",
            "a/./b",
            ".",
            "a//b",
            "[",
            "a[z-a]",
            "{a",
            "a}",
            "a\\",
            "a\nb",
            &deep,
            &hundred_thousand,
        ] {
            assert!(check_glob(bad).is_err(), "{bad:.20}");
        }
        assert!(globs_may_overlap(&hundred_thousand, "a"));
    }

    #[test]
    fn the_longest_globs_are_compared_quickly() {
        let a = "*a".repeat(GLOB_LEN_MAX / 2);
        let b = "*b".repeat(GLOB_LEN_MAX / 2);
        assert!(!globs_may_overlap(&a, &b));
    }

    fn matches(glob: &str, path: &str) -> Option<bool> {
        let glob = GlobBuilder::new(glob).literal_separator(true).build().ok()?;
        Some(glob.compile_matcher().is_match(path))
    }

    /// A glob that matches the path, or nearly: parts of the path are replaced by wildcards.
    fn generalise(path: &str, dice: &[u8]) -> String {
        let mut glob = String::new();
        let mut dice = dice.iter().cycle();
        for c in path.chars() {
            match (dice.next().unwrap() % 12, c) {
                (0, '/') => glob.push_str("/**/"),
                (_, '/') => glob.push('/'),
                (0, _) => glob.push('*'),
                (1, _) => glob.push('?'),
                (2, c) => glob.push_str(&format!("[{c}x]")),
                (3, c) => glob.push_str(&format!("{{{c},q/**,*}}")),
                (4, _) => glob.push_str("[!z]"),
                (5, _) => glob.push_str("**"),
                (6, c) => glob.push_str(&format!("{{**/{c},{c}}}")),
                (_, c) => glob.push(c),
            }
        }
        glob
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn two_globs_that_match_one_path_overlap(
            path in "[abé]{1,2}(/[ab]{1,2}){0,3}",
            dice_a in proptest::collection::vec(any::<u8>(), 1..12),
            dice_b in proptest::collection::vec(any::<u8>(), 1..12),
        ) {
            let (a, b) = (generalise(&path, &dice_a), generalise(&path, &dice_b));
            if matches(&a, &path) == Some(true) && matches(&b, &path) == Some(true) {
                prop_assert!(globs_may_overlap(&a, &b), "{} {} {}", a, b, path);
            }
        }

        #[test]
        fn random_globs_agree_with_the_matcher(
            a in "[ab/*?{},!\\[\\]\\\\-]{0,8}",
            b in "[ab/*?{},!\\[\\]\\\\-]{0,8}",
            path in "[ab]{1,2}(/[ab]{1,2}){0,2}",
        ) {
            let _ = check_glob(&a);
            if matches(&a, &path) == Some(true) && matches(&b, &path) == Some(true) {
                prop_assert!(globs_may_overlap(&a, &b), "{} {} {}", a, b, path);
            }
            if matches(&a, &path) == Some(true) {
                prop_assert!(globs_may_overlap(&a, &path), "{} {}", a, path);
            }
        }
    }
}
