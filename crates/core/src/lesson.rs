//! What earlier attempts teach later ones, per domain: what went wrong and what cured it, files that
//! matter, files that change together, what worked.
//!
//! Everything comes from evidence and carries where it comes from. Learning the same twice changes
//! nothing, every list is bounded, and what no longer holds is dropped. Knows no files and no clock:
//! texts and times come in.

use serde::{Deserialize, Serialize};

use crate::id::Time;

/// Bounds of what is kept.
const FAILURES_MAX: usize = 10;
const PATTERNS_MAX: usize = 15;
const FILES_MAX: usize = 30;
const TECHNIQUES_MAX: usize = 10;
/// Where a lesson comes from; the newest are enough.
const SOURCES_MAX: usize = 5;
/// Bounds of one text, in bytes.
const ISSUE_MAX: usize = 100;
const TEXT_MAX: usize = 200;
/// New patterns from one attempt.
const NEW_PATTERNS_MAX: usize = 5;
/// Files that change together say something only if they are few.
const TOGETHER: std::ops::RangeInclusive<usize> = 2..=6;
/// What went wrong longer ago than this is no lesson any more.
const FAILURE_AGE_MS: u64 = 30 * 24 * 3600 * 1000;
/// What a prompt gets.
const TOLD_FILES: usize = 10;
const TOLD_PATTERNS: usize = 5;
const TOLD_FAILURES: usize = 3;
const TOLD_TECHNIQUES: usize = 3;

/// What a task is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonDomain {
    Database,
    /// Endpoints and what they speak.
    Api,
    Frontend,
    /// Tests and their tools.
    Testing,
    /// Who may do what.
    Security,
    /// How it gets to where it runs.
    Deployment,
    General,
}

/// Words and paths that speak for a domain.
type DomainHints = (LessonDomain, &'static [&'static str], &'static [&'static str]);

const HINTS: [DomainHints; 6] = [
    (
        LessonDomain::Database,
        &[
            "database",
            "sql",
            "schema",
            "migration",
            "query",
            "table",
            "index",
            "transaction",
            "orm",
        ],
        &["migrations/", "schema", ".sql", "/db/", "database", "models/"],
    ),
    (
        LessonDomain::Api,
        &["api", "endpoint", "rest", "route", "http", "request", "response", "handler", "graphql"],
        &["api/", "routes", "handlers", "controllers", "openapi"],
    ),
    (
        LessonDomain::Frontend,
        &["frontend", "ui", "page", "component", "css", "button", "layout", "browser", "react"],
        &[".css", ".scss", ".tsx", ".jsx", ".vue", ".svelte", ".html", "components/", "web/"],
    ),
    (
        LessonDomain::Testing,
        &["test", "tests", "coverage", "fixture", "mock", "assert", "regression", "flaky"],
        &["tests/", "test_", "_test.", ".spec.", ".test.", "fixtures/"],
    ),
    (
        LessonDomain::Security,
        &["security", "auth", "token", "password", "permission", "encrypt", "secret", "login"],
        &["auth", "security", "crypto", "permissions"],
    ),
    (
        LessonDomain::Deployment,
        &["deploy", "deployment", "docker", "ci", "release", "kubernetes", "pipeline", "container"],
        &["dockerfile", ".github/", "deploy", "k8s", "helm", "terraform", ".gitlab-ci"],
    ),
];

impl LessonDomain {
    /// All, in their order.
    pub const ALL: [Self; 7] = [
        Self::Database,
        Self::Api,
        Self::Frontend,
        Self::Testing,
        Self::Security,
        Self::Deployment,
        Self::General,
    ];

    /// The word for it; also the name of its file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Api => "api",
            Self::Frontend => "frontend",
            Self::Testing => "testing",
            Self::Security => "security",
            Self::Deployment => "deployment",
            Self::General => "general",
        }
    }

    /// The domain with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|domain| domain.as_str().eq_ignore_ascii_case(word))
    }

    /// What a task with this text and these files is about. Words count once each time they come up,
    /// a path that fits counts as two; the first of equals wins, and nothing at all is general.
    pub fn classify_task<'a>(text: &str, paths: impl Iterator<Item = &'a str> + Clone) -> Self {
        let text = text.to_lowercase();
        let words: Vec<&str> =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let mut best = (0, Self::General);
        for (domain, keywords, hints) in HINTS {
            let spoken = words.iter().filter(|word| keywords.contains(word)).count();
            let fits = |path: &str| {
                let path = path.to_lowercase();
                hints.iter().any(|hint| path.contains(hint))
            };
            let score = spoken + 2 * paths.clone().filter(|path| fits(path)).count();
            if score > best.0 {
                best = (score, domain);
            }
        }
        best.1
    }
}

/// Where a lesson comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonSource {
    pub run: String,
    pub task: String,
    pub attempt: u32,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
}

impl LessonSource {
    fn is_same_attempt(&self, other: &Self) -> bool {
        (&self.run, &self.task, self.attempt) == (&other.run, &other.task, other.attempt)
    }
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonFailure {
    /// What, in a few words.
    pub issue: String,
    /// What was seen of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cure: String,
    /// Where it comes from, oldest first.
    pub from: Vec<LessonSource>,
}

/// A line that is worth knowing: a pattern, a technique, or a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonNote {
    pub text: String,
    /// Where it comes from, oldest first.
    pub from: Vec<LessonSource>,
}

/// All that is known in one domain, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DomainLessons {
    #[serde(default)]
    pub failures: Vec<LessonFailure>,
    #[serde(default)]
    pub patterns: Vec<LessonNote>,
    /// Files that were changed, the latest last.
    #[serde(default)]
    pub files: Vec<LessonNote>,
    #[serde(default)]
    pub techniques: Vec<LessonNote>,
}

/// What one attempt taught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLesson {
    pub source: LessonSource,
    /// What went wrong: issue and what was seen of it.
    pub failures: Vec<(String, String)>,
    pub landed: bool,
    pub files: Vec<String>,
    /// What the agent offered as proof.
    pub evidence: Vec<String>,
}

impl DomainLessons {
    /// Takes in what an attempt taught. The same attempt a second time changes nothing.
    pub fn add_attempt(&mut self, learned: &AttemptLesson) {
        let source = &learned.source;
        for (issue, error) in &learned.failures {
            self.add_failure(clip_to_line(issue, ISSUE_MAX), clip_to_line(error, TEXT_MAX), source);
        }
        if learned.landed {
            self.add_cure(learned);
            for file in &learned.files {
                add_note(&mut self.files, file.clone(), source);
            }
            self.add_patterns(learned);
            for proof in &learned.evidence {
                add_note(&mut self.techniques, clip_to_line(proof, TEXT_MAX), source);
            }
        }
        self.trim_to_limits();
    }

    fn add_failure(&mut self, issue: String, error: String, source: &LessonSource) {
        if issue.is_empty() {
            return;
        }
        if let Some(at) = self.failures.iter().position(|f| f.issue == issue && f.error == error) {
            if add_source(&mut self.failures[at].from, source) {
                // Seen again: the newest lessons are last.
                let failure = self.failures.remove(at);
                self.failures.push(failure);
            }
            return;
        }
        let (cure, from) = (String::new(), vec![source.clone()]);
        self.failures.push(LessonFailure { issue, error, cure, from });
    }

    /// Failures of earlier attempts of the same task were cured by this one.
    fn add_cure(&mut self, learned: &AttemptLesson) {
        let LessonSource { run, task, attempt, .. } = &learned.source;
        let files = learned.files.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        let cure = match files.as_str() {
            "" => format!("attempt {attempt} of {task} passed"),
            files => format!("attempt {attempt} of {task} passed after changing {files}"),
        };
        for failure in &mut self.failures {
            let ours = |s: &LessonSource| s.run == *run && s.task == *task && s.attempt < *attempt;
            if failure.cure.is_empty() && failure.from.iter().any(ours) {
                failure.cure = clip_to_line(&cure, TEXT_MAX);
            }
        }
    }

    fn add_patterns(&mut self, learned: &AttemptLesson) {
        if !TOGETHER.contains(&learned.files.len()) {
            return;
        }
        let mut files = learned.files.clone();
        files.sort_unstable();
        let known = |text: &str, all: &[LessonNote]| all.iter().any(|n| n.text == text);
        let text = clip_to_line(&format!("changed together: {}", files.join(", ")), TEXT_MAX);
        let fresh = self
            .patterns
            .iter()
            .filter(|n| n.from.iter().any(|s| s.is_same_attempt(&learned.source)));
        if known(&text, &self.patterns) || fresh.count() < NEW_PATTERNS_MAX {
            add_note(&mut self.patterns, text, &learned.source);
        }
    }

    fn trim_to_limits(&mut self) {
        keep_last(&mut self.failures, FAILURES_MAX);
        keep_last(&mut self.patterns, PATTERNS_MAX);
        keep_last(&mut self.files, FILES_MAX);
        keep_last(&mut self.techniques, TECHNIQUES_MAX);
    }

    /// Drops what no longer holds: files that are gone, and what went wrong long ago.
    pub fn drop_outdated(&mut self, now: Time, exists: &dyn Fn(&str) -> bool) {
        self.files.retain(|file| exists(&file.text));
        self.patterns.retain(|pattern| {
            let files = pattern.text.strip_prefix("changed together: ");
            files.is_none_or(|files| files.ends_with('…') || files.split(", ").all(exists))
        });
        self.failures.retain(|failure| {
            let newest = failure.from.iter().map(|source| source.at_ms).max().unwrap_or(0);
            now.since_ms(Time(newest)) <= FAILURE_AGE_MS
        });
    }

    /// The lines for a prompt, the most telling first.
    pub fn prompt_lines(&self) -> Vec<String> {
        let failures = self.failures.iter().rev().take(TOLD_FAILURES).map(|failure| {
            let LessonFailure { issue, error, cure, .. } = failure;
            let error = if error.is_empty() { String::new() } else { format!(": {error}") };
            let cure = if cure.is_empty() { String::new() } else { format!(" (cure: {cure})") };
            format!("failed before: {issue}{error}{cure}")
        });
        let patterns = self.patterns.iter().rev().take(TOLD_PATTERNS).map(|n| n.text.clone());
        let techniques = self.techniques.iter().rev().take(TOLD_TECHNIQUES);
        let techniques = techniques.map(|n| format!("worked before: {}", n.text));
        let files: Vec<_> =
            self.files.iter().rev().take(TOLD_FILES).map(|n| n.text.as_str()).collect();
        let files =
            (!files.is_empty()).then(|| format!("files often changed: {}", files.join(", ")));
        failures.chain(patterns).chain(techniques).chain(files).collect()
    }

    /// Forgets what holds this text; says how much that was.
    pub fn forget_matching(&mut self, text: &str) -> usize {
        let before = self.len();
        let holds = |line: &str| line.contains(text);
        self.failures.retain(|f| !holds(&f.issue) && !holds(&f.error) && !holds(&f.cure));
        for notes in [&mut self.patterns, &mut self.files, &mut self.techniques] {
            notes.retain(|note| !holds(&note.text));
        }
        before - self.len()
    }

    /// How many lessons there are.
    pub fn len(&self) -> usize {
        self.failures.len() + self.patterns.len() + self.files.len() + self.techniques.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads what [`Self::to_toml`] wrote, or a person.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let mut lessons: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        lessons.trim_to_limits();
        Ok(lessons)
    }

    /// The plain text of a domain's file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("BUG: lessons are plain data")
    }
}

fn add_note(notes: &mut Vec<LessonNote>, text: String, source: &LessonSource) {
    if text.is_empty() {
        return;
    }
    match notes.iter().position(|note| note.text == text) {
        Some(at) => {
            if add_source(&mut notes[at].from, source) {
                let note = notes.remove(at);
                notes.push(note);
            }
        }
        None => notes.push(LessonNote { text, from: vec![source.clone()] }),
    }
}

/// Adds a source unless it is known; true if it was not.
fn add_source(from: &mut Vec<LessonSource>, source: &LessonSource) -> bool {
    // One that is older than the oldest kept was known once, and is no news.
    let older = from.len() >= SOURCES_MAX && from.iter().all(|s| s.at_ms > source.at_ms);
    if older || from.iter().any(|known| known.is_same_attempt(source)) {
        return false;
    }
    from.push(source.clone());
    keep_last(from, SOURCES_MAX);
    true
}

fn keep_last<T>(all: &mut Vec<T>, max: usize) {
    all.drain(..all.len().saturating_sub(max));
}

/// One line of at most so many bytes.
fn clip_to_line(text: &str, bytes_max: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() <= bytes_max {
        return words;
    }
    format!("{}…", &words[..words.floor_char_boundary(bytes_max)])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn source(task: &str, attempt: u32, at_ms: i64) -> LessonSource {
        LessonSource { run: "r1".into(), task: task.into(), attempt, at_ms }
    }

    fn learned(task: &str, attempt: u32, landed: bool) -> AttemptLesson {
        AttemptLesson {
            source: source(task, attempt, i64::from(attempt)),
            failures: Vec::new(),
            landed,
            files: vec!["src/b.rs".into(), "src/a.rs".into()],
            evidence: Vec::new(),
        }
    }

    #[test]
    fn a_text_and_its_paths_have_a_domain() {
        let of =
            |text: &str, paths: &[&str]| LessonDomain::classify_task(text, paths.iter().copied());
        assert_eq!(
            of("Write the schema and a migration for the users table", &[]),
            LessonDomain::Database
        );
        assert_eq!(of("An endpoint that gives a response", &[]), LessonDomain::Api);
        assert_eq!(of("Do it", &["web/app.tsx", "web/x.css"]), LessonDomain::Frontend);
        assert_eq!(of("A flaky test", &[]), LessonDomain::Testing);
        assert_eq!(of("password and login", &[]), LessonDomain::Security);
        assert_eq!(of("x", &["Dockerfile"]), LessonDomain::Deployment);
        assert_eq!(of("Think it over", &["src/main.rs"]), LessonDomain::General);
        // Parts of words say nothing.
        assert_eq!(of("a stable guideline about capital", &[]), LessonDomain::General);
        for domain in LessonDomain::ALL {
            assert_eq!(LessonDomain::from_word(domain.as_str()), Some(domain));
        }
    }

    #[test]
    fn a_failure_and_what_cured_it_are_told_to_the_next() {
        let mut lessons = DomainLessons::default();
        let mut first = learned("T-1", 1, false);
        first.failures = vec![("gate `make test` failed".into(), "assertion\n failed".into())];
        lessons.add_attempt(&first);
        assert_eq!(lessons.failures[0].cure, "");
        assert!(lessons.files.is_empty(), "work that did not land teaches no files");
        lessons.add_attempt(&learned("T-1", 2, true));
        assert_eq!(
            lessons.prompt_lines(),
            [
                "failed before: gate `make test` failed: assertion failed (cure: attempt 2 of T-1 passed after changing src/b.rs, src/a.rs)",
                "changed together: src/a.rs, src/b.rs",
                "files often changed: src/a.rs, src/b.rs",
            ]
        );
    }

    #[test]
    fn learning_twice_changes_nothing() {
        let mut lessons = DomainLessons::default();
        let mut one = learned("T-1", 1, false);
        one.failures = vec![("gate failed".into(), "x".into())];
        let two =
            AttemptLesson { evidence: vec!["ran the tests".into()], ..learned("T-1", 2, true) };
        for taught in [&one, &two] {
            lessons.add_attempt(taught);
        }
        let once = lessons.clone();
        for taught in [&one, &two, &one] {
            lessons.add_attempt(taught);
        }
        assert_eq!(lessons, once);
        assert_eq!(DomainLessons::from_toml(&once.to_toml()).unwrap(), once);
    }

    #[test]
    fn everything_is_bounded_and_the_newest_stays() {
        let mut lessons = DomainLessons::default();
        for n in 1..=100u32 {
            let mut taught = learned(&format!("T-{n}"), 1, true);
            taught.failures = vec![(format!("issue {n} {}", "é".repeat(300)), "e".repeat(999))];
            taught.files = (0..4).map(|k| format!("f{n}-{k}")).collect();
            taught.evidence = vec![format!("proof {n}")];
            lessons.add_attempt(&taught);
        }
        let sizes = [&lessons.patterns, &lessons.files, &lessons.techniques].map(Vec::len);
        assert_eq!((lessons.failures.len(), sizes), (10, [15, 30, 10]));
        assert!(lessons.failures.iter().all(|f| f.issue.len() <= 104 && f.error.len() <= 204));
        assert!(lessons.files.iter().any(|n| n.text == "f100-3"));
        let told = lessons.prompt_lines();
        assert!(told.len() <= 3 + 5 + 3 + 1 && told[0].contains("issue 100"), "{told:?}");
        assert!(lessons.to_toml().lines().count() < 1000);
    }

    #[test]
    fn what_no_longer_holds_is_dropped() {
        let mut lessons = DomainLessons::default();
        let mut old = learned("T-1", 1, true);
        old.failures = vec![("long ago".into(), String::new())];
        lessons.add_attempt(&old);
        let mut new = learned("T-2", 1, false);
        new.source.at_ms = 40 * 24 * 3600 * 1000;
        new.failures = vec![("just now".into(), String::new())];
        lessons.add_attempt(&new);
        lessons.drop_outdated(Time(new.source.at_ms), &|path| path == "src/a.rs");
        let issues: Vec<_> = lessons.failures.iter().map(|f| f.issue.as_str()).collect();
        assert_eq!(issues, ["just now"]);
        assert_eq!(lessons.files.len(), 1);
        assert!(lessons.patterns.is_empty());
    }

    #[test]
    fn what_a_person_names_is_forgotten() {
        let mut lessons = DomainLessons::default();
        lessons.add_attempt(&learned("T-1", 1, true));
        assert_eq!(lessons.forget_matching("src/a.rs"), 2);
        assert_eq!(lessons.files.len(), 1);
        assert_eq!(lessons.forget_matching("nothing such"), 0);
    }
}
