//! From other tools' gate files to gates of ours.
//!
//! Two forms: checks by phase, mandatory and recommended; and the passage from one phase to the next,
//! with artifacts, measures and an approval. What is mandatory and cannot be said as a gate of ours becomes
//! something that a person confirms; nothing is left out without a word. Imported text is data: commands in
//! it become gates only if asked for. Knows no files.

use mainstem_core::diag::Diagnostic;
use mainstem_core::gate::{Compare, Gate, Wants};
use mainstem_core::plan::doc::{Format, Node, Value, parse};

use crate::tree::{any, get, int, keys, list, number, text, texts};

/// What may be taken over.
#[derive(Debug, Clone, Copy, Default)]
pub struct GateOptions<'a> {
    /// Commands become gates.
    pub commands: bool,
    /// Recommended checks become gates as well.
    pub recommended: bool,
    /// The file in which measures are found.
    pub metrics: Option<&'a str>,
    /// Only this phase, where checks are by phase.
    pub phase: Option<&'a str>,
}

/// A gate file as gates of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateFile {
    /// What it is called there.
    pub name: String,
    /// Lines for `verify`.
    pub gates: Vec<String>,
    /// What each check became.
    pub taken: Vec<(String, String)>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// What a person has to confirm, because no gate can.
    pub by_hand: Vec<String>,
}

/// Why there are no gates.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GateFileError {
    /// It cannot be read.
    #[error("cannot read the gate file")]
    Syntax(Vec<Diagnostic>),
    /// It is something else.
    #[error(
        "not a gate file: the file has neither `checks` nor `required_artifacts`, `quality_checks` or `human_approval`"
    )]
    NoGates,
    /// The phase is not in it.
    #[error("the gate file has no checks of phase {0}")]
    NoPhase(String),
}

/// Reads either form.
pub fn read(
    source: &str,
    format: Format,
    options: &GateOptions<'_>,
) -> Result<GateFile, GateFileError> {
    let root = parse(source, format).map_err(GateFileError::Syntax)?;
    // Some wrap the whole in one key.
    let root = get(&root, "gate").unwrap_or(&root);
    let mut reader = Reader { source, options, file: GateFile::default(), within: None };
    reader.file.name = text(any(root, &["name", "gate_name"]), source).unwrap_or_default();
    let passage = ["required_artifacts", "quality_checks", "human_approval", "gate_conditions"];
    match get(root, "checks") {
        Some(checks) => reader.checks(checks)?,
        None if any(root, &passage).is_some() => reader.passage(root),
        None => return Err(GateFileError::NoGates),
    }
    reader.notes(root);
    Ok(reader.finish())
}

struct Reader<'a> {
    source: &'a str,
    options: &'a GateOptions<'a>,
    file: GateFile,
    within: Option<u64>,
}

impl Reader<'_> {
    fn text(&self, node: &Node<'_>, key: &str) -> Option<String> {
        text(get(node, key), self.source).filter(|text| !text.trim().is_empty())
    }

    fn take(&mut self, what: &str, gate: &Gate) {
        let line = gate.to_string();
        match Gate::parse(&line) {
            Ok(again) if again == *gate => {
                self.file.taken.push((what.to_owned(), line.clone()));
                self.file.gates.push(line);
            }
            Ok(_) => self.by_hand(what, "cannot be expressed as a check"),
            Err(why) => self.by_hand(what, &why),
        }
    }

    /// Mandatory, and beyond what a gate can see.
    fn by_hand(&mut self, what: &str, why: &str) {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.file.by_hand.push(format!("{} ({})", flat(what), flat(why)));
    }

    /// Checks by phase, or all of one.
    fn checks(&mut self, checks: &Node<'_>) -> Result<(), GateFileError> {
        if get(checks, "mandatory").is_some() || get(checks, "recommended").is_some() {
            self.phase(checks);
            return Ok(());
        }
        let names: Vec<String> = keys(checks).into_iter().map(str::to_owned).collect();
        let wanted = |name: &str| {
            self.options.phase.is_none_or(|phase| {
                name == phase
                    || name.strip_prefix("phase_") == Some(phase.trim_start_matches("phase_"))
            })
        };
        let chosen: Vec<String> = names.iter().filter(|name| wanted(name)).cloned().collect();
        if chosen.is_empty() {
            return Err(GateFileError::NoPhase(self.options.phase.unwrap_or_default().to_owned()));
        }
        for name in names.iter().filter(|name| !chosen.contains(name)) {
            self.file.left_out.push(format!("{name}: belongs to another phase"));
        }
        for name in chosen {
            if let Some(phase) = get(checks, &name) {
                self.phase(phase);
            }
        }
        Ok(())
    }

    fn phase(&mut self, phase: &Node<'_>) {
        for check in list(get(phase, "mandatory")) {
            self.check(check);
        }
        for check in list(get(phase, "recommended")) {
            if self.options.recommended {
                self.check(check);
            } else {
                let what = self.name_of(check);
                self.file.left_out.push(format!("{what}: recommended only"));
            }
        }
    }

    fn name_of(&self, node: &Node<'_>) -> String {
        let words = ["name", "type", "metric", "description"];
        words.iter().find_map(|key| self.text(node, key)).unwrap_or_else(|| "a check".to_owned())
    }

    fn check(&mut self, check: &Node<'_>) {
        let what = self.name_of(check);
        let kind = self.text(check, "check_type").unwrap_or_default();
        match kind.as_str() {
            "file_exists" => match self.globs(check) {
                Some(files) if !self.expects_absence(check) => {
                    self.take(&what, &Gate::FileExists { files });
                }
                _ => self.by_hand(&what, "no file is named that must exist"),
            },
            "content_search" => self.content(&what, check),
            "yaml_query" => self.query(&what, check),
            "command" => self.command(&what, check),
            other => self.by_hand(&what, &format!("unsupported check `{other}`")),
        }
    }

    /// The pattern of paths, or the one that may stand in for it.
    fn globs(&self, node: &Node<'_>) -> Option<String> {
        let first = self.text(node, "path_pattern").or_else(|| self.text(node, "path"))?;
        Some(match self.text(node, "fallback_pattern") {
            Some(other) if !first.contains(['{', ',']) && !other.contains(['{', ',']) => {
                format!("{{{first},{other}}}")
            }
            _ => first,
        })
    }

    fn expects_absence(&self, check: &Node<'_>) -> bool {
        let expected = self.text(check, "expected").unwrap_or_default().to_lowercase();
        let words = ["false", "absent", "none", "not_found", "no_match", "no matches", "0"];
        words.contains(&expected.as_str()) || int(get(check, "expected_count")) == Some(0)
    }

    fn content(&mut self, what: &str, check: &Node<'_>) {
        let patterns = texts(any(check, &["patterns", "pattern"]), self.source);
        let Some(files) = self.globs(check).filter(|_| !patterns.is_empty()) else {
            return self.by_hand(what, "no files or no pattern are named");
        };
        let count = int(get(check, "expected_count")).and_then(|n| u64::try_from(n).ok());
        let all = || patterns.iter().map(|p| format!("(?:{p})")).collect::<Vec<_>>().join("|");
        match count {
            _ if self.expects_absence(check) => {
                for pattern in &patterns {
                    let (files, pattern) = (files.clone(), pattern.clone());
                    self.take(what, &Gate::Content { files, pattern, wants: Wants::None });
                }
            }
            Some(count) => {
                let pattern = if patterns.len() == 1 { patterns[0].clone() } else { all() };
                self.take(what, &Gate::Content { files, pattern, wants: Wants::AtLeast(count) });
            }
            // Each of them, as nothing says that one is enough.
            None => {
                for pattern in &patterns {
                    let (files, pattern) = (files.clone(), pattern.clone());
                    self.take(what, &Gate::Content { files, pattern, wants: Wants::AtLeast(1) });
                }
            }
        }
    }

    fn query(&mut self, what: &str, check: &Node<'_>) {
        let path =
            ["query", "yaml_path", "key", "command"].iter().find_map(|key| self.text(check, key));
        let path = path.map(|path| path.trim_start_matches(['$', '.']).to_owned());
        let file = self.text(check, "path_pattern").or_else(|| self.text(check, "path"));
        let value = text(get(check, "expected"), self.source);
        match (file, path, value) {
            (Some(file), Some(path), Some(value)) if !file.contains(['*', '?', '{', '[']) => {
                self.take(what, &Gate::Query { file, path, compare: Compare::Equal, value });
            }
            _ => self.by_hand(what, "the file, the place in it or the expected value is not named"),
        }
    }

    fn command(&mut self, what: &str, check: &Node<'_>) {
        let Some(command) = self.text(check, "command") else {
            return self.by_hand(what, "no command is named");
        };
        if !self.options.commands {
            let why = format!(
                "the command `{command}` was not accepted; accept commands with --accept-commands"
            );
            return self.by_hand(what, &why);
        }
        if get(check, "expected_count").is_some() {
            return self.by_hand(what, &format!("`{command}` is to give a number of results"));
        }
        let expected = self.text(check, "expected").unwrap_or_default();
        self.take(what, &Gate::Command(with_expectation(&command, &expected)));
    }

    /// The passage from one phase to the next.
    fn passage(&mut self, root: &Node<'_>) {
        for artifact in list(get(root, "required_artifacts")) {
            self.artifact(artifact);
        }
        for check in list(get(root, "quality_checks")) {
            self.quality(check);
        }
        if let Some(approval) = get(root, "human_approval") {
            self.approval(approval);
        }
        match get(root, "gate_conditions").map(|node| &node.value) {
            None | Some(Value::Null) => {}
            Some(Value::List(_)) => {
                for condition in texts(get(root, "gate_conditions"), self.source) {
                    self.by_hand(&condition, "a condition in words");
                }
            }
            Some(_) => {
                let node = get(root, "gate_conditions");
                for key in node.map(keys).unwrap_or_default() {
                    let value = text(node.and_then(|node| get(node, key)), self.source);
                    let what = format!("{key}: {}", value.unwrap_or_default());
                    self.by_hand(&what, "a condition in words");
                }
            }
        }
    }

    fn artifact(&mut self, artifact: &Node<'_>) {
        let what = self.name_of(artifact);
        let optional = self.text(artifact, "optional").as_deref() == Some("true");
        if optional {
            return self.file.left_out.push(format!("{what}: optional"));
        }
        if let Some(condition) = self.text(artifact, "conditional").filter(|text| text != "false") {
            return self.by_hand(&what, &format!("needed only if {condition}"));
        }
        match self.globs(artifact) {
            Some(files) => self.take(&what, &Gate::FileExists { files }),
            None => self.by_hand(&what, "no file is named"),
        }
        if let Some(validation) = self.text(artifact, "validation") {
            let known = ["exists", "file_exists", "required", "present"];
            if !known.contains(&validation.to_lowercase().as_str()) {
                self.by_hand(&what, &format!("is to be checked: {validation}"));
            }
        }
    }

    fn quality(&mut self, check: &Node<'_>) {
        let what = self.name_of(check);
        let metric = self.text(check, "metric").unwrap_or_else(|| what.clone());
        let threshold = text(get(check, "threshold"), self.source).unwrap_or_default();
        if let Some(condition) = self.text(check, "conditional").filter(|text| text != "false") {
            return self.by_hand(&what, &format!("needed only if {condition}"));
        }
        let compare = match self.text(check, "comparison").unwrap_or_default().as_str() {
            "equal" | "equals" | "" => Compare::Equal,
            "greater_or_equal" => Compare::AtLeast,
            "less_or_equal" => Compare::AtMost,
            "not_equal" => Compare::NotEqual,
            other => return self.by_hand(&what, &format!("{metric} {other} {threshold}")),
        };
        if threshold.eq_ignore_ascii_case("approved") && metric.contains("review") {
            return self.take(&what, &Gate::Review);
        }
        match self.options.metrics {
            Some(file) if !threshold.is_empty() => {
                let (file, path, value) = (file.to_owned(), metric, threshold);
                self.take(&what, &Gate::Query { file, path, compare, value });
            }
            _ => {
                let sign = match compare {
                    Compare::Equal => "is",
                    Compare::NotEqual => "is not",
                    Compare::AtLeast => "is at least",
                    Compare::AtMost => "is at most",
                };
                let why = format!(
                    "{metric} {sign} {threshold}; the source of the metric is unknown; use --metrics FILE"
                );
                self.by_hand(&what, &why);
            }
        }
    }

    fn approval(&mut self, approval: &Node<'_>) {
        if self.text(approval, "required").as_deref() == Some("false") {
            return self.file.left_out.push("human approval: not required".to_owned());
        }
        let hours = number(get(approval, "timeout_hours")).filter(|hours| *hours > 0.0);
        self.within = hours.map(|hours| (hours * 3_600_000.0) as u64);
        let roles = texts(get(approval, "roles"), self.source);
        let text =
            if roles.is_empty() { String::new() } else { format!("for {}", roles.join(", ")) };
        self.take("human approval", &Gate::Approval { within_ms: self.within, text });
    }

    /// What a gate of ours has no word for.
    fn notes(&mut self, root: &Node<'_>) {
        for key in ["applies_to", "escalation", "from_phase", "to_phase"] {
            let node = get(root, key);
            let value = texts(node, self.source).join(", ");
            if node.is_some() {
                self.file.left_out.push(format!("{key} {value}: checks apply to every task"));
            }
        }
        let action = self.text(root, "failure_action").unwrap_or_else(|| "block".to_owned());
        if action != "block" {
            self.file
                .left_out
                .push(format!("failure_action {action}: a failed check always blocks"));
        }
    }

    fn finish(mut self) -> GateFile {
        if !self.file.by_hand.is_empty() {
            let text = format!("Confirm by hand: {}.", self.file.by_hand.join("; "));
            let gate = Gate::Approval { within_ms: self.within, text };
            let line = gate.to_string();
            self.file.gates.push(line);
        }
        self.file
    }
}

/// The shell command that passes only if `command` gives what its author expects of it.
///
/// Gate files use the word `0` (or `true`) both for an exit code and for what a command prints, such as a
/// count of matches. A command that prints something is therefore judged by what it prints, and only a
/// silent one by its exit code.
fn with_expectation(command: &str, expected: &str) -> String {
    let word = expected.trim().to_lowercase();
    match word.as_str() {
        "" | "success" | "pass" | "passed" => command.to_owned(),
        "0" | "true" => format!(
            "found=$({command}); code=$?; echo \"$found\"; \
             test \"$found\" = {word} || {{ test -z \"$found\" && test $code -eq 0; }}"
        ),
        _ => format!("test \"$({command})\" = '{}'", expected.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const CHECKS: &str = "\
name: security-gate
version: 1
applies_to: [feature, fix]
failure_action: block
escalation: security-team
checks:
  phase_5:
    mandatory:
      - name: no keys
        check_type: content_search
        path_pattern: '**/*.py'
        patterns: ['AKIA[0-9A-Z]{16}', 'BEGIN PRIVATE']
        expected_count: 0
      - name: validation
        check_type: content_search
        path_pattern: 'src/**'
        patterns: ['validate']
      - name: readme
        check_type: file_exists
        path_pattern: README.md
        fallback_pattern: docs/index.md
      - name: policy
        check_type: yaml_query
        path_pattern: .security.yaml
        query: policy.level
        expected: strict
      - name: audit
        check_type: command
        command: npm audit
      - name: threat model
        check_type: interview
    recommended:
      - name: changelog
        check_type: file_exists
        path_pattern: CHANGELOG.md
  phase_6:
    mandatory:
      - name: other
        check_type: file_exists
        path_pattern: other.md
";

    const PASSAGE: &str = "\
gate_name: phase-5-to-6
from_phase: 5
to_phase: 6
required_artifacts:
  - type: source
    path_pattern: src/**
    validation: exists
  - type: design
    path_pattern: docs/design.md
    validation: reviewed by an architect
  - type: notes
    path_pattern: notes.md
    optional: true
quality_checks:
  - name: coverage
    metric: test.coverage
    threshold: 80
    comparison: greater_or_equal
  - name: critical issues
    metric: issues.critical
    threshold: 0
    comparison: equal
  - name: code review
    metric: review_status
    threshold: approved
    comparison: equal
human_approval:
  required: true
  roles: [tech-lead, security]
  timeout_hours: 48
gate_conditions:
  all_checks: passed
";

    #[test]
    fn checks_become_gates_and_what_no_gate_can_see_is_confirmed_by_hand() {
        let options = GateOptions { phase: Some("5"), commands: true, ..GateOptions::default() };
        let file = read(CHECKS, Format::Yaml, &options).unwrap();
        assert_eq!(file.name, "security-gate");
        assert_eq!(
            file.gates,
            [
                "@content_absent **/*.py => AKIA[0-9A-Z]{16}",
                "@content_absent **/*.py => BEGIN PRIVATE",
                "@content_search src/** => validate",
                "@file_exists {README.md,docs/index.md}",
                "@query .security.yaml policy.level == strict",
                "npm audit",
                "@approval Confirm by hand: threat model (unsupported check `interview`).",
            ]
        );
        let left = file.left_out.join("\n");
        for word in ["phase_6", "changelog", "applies_to feature, fix", "escalation"] {
            assert!(left.contains(word), "{word} in {left}");
        }
    }

    #[test]
    fn a_command_is_only_a_gate_if_that_is_accepted() {
        let file = read(CHECKS, Format::Yaml, &GateOptions::default()).unwrap();
        assert!(!file.gates.iter().any(|gate| gate.starts_with("npm")));
        assert!(file.gates.last().unwrap().contains("npm audit"), "{:?}", file.gates);
    }

    #[test]
    fn a_command_that_prints_is_judged_by_what_it_prints() {
        let count = with_expectation("grep -c x f", "0");
        assert!(count.contains("test \"$found\" = 0"), "{count}");
        assert!(with_expectation("query", "True").contains("= true"));
        assert_eq!(with_expectation("make", "passed"), "make");
        assert_eq!(with_expectation("uname", "Linux"), "test \"$(uname)\" = 'Linux'");
    }

    #[test]
    fn a_passage_becomes_gates_too() {
        let options = GateOptions { metrics: Some("quality.json"), ..GateOptions::default() };
        let file = read(PASSAGE, Format::Yaml, &options).unwrap();
        assert_eq!(
            file.gates,
            [
                "@file_exists src/**",
                "@file_exists docs/design.md",
                "@query quality.json test.coverage >= 80",
                "@query quality.json issues.critical == 0",
                "@review",
                "@approval within 2d for tech-lead, security",
                "@approval within 2d Confirm by hand: design (is to be checked: reviewed by an architect); \
                 all_checks: passed (a condition in words).",
            ]
        );
        assert!(file.left_out.iter().any(|note| note.starts_with("notes: optional")));
        let without = read(PASSAGE, Format::Yaml, &GateOptions::default()).unwrap();
        assert!(without.gates.last().unwrap().contains("test.coverage is at least 80"));
    }

    #[test]
    fn every_gate_that_comes_out_can_be_read() {
        for (text, commands) in [(CHECKS, true), (CHECKS, false), (PASSAGE, true), (PASSAGE, false)]
        {
            let options = GateOptions { commands, recommended: true, ..GateOptions::default() };
            for line in read(text, Format::Yaml, &options).unwrap().gates {
                assert!(Gate::parse(&line).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn something_else_is_refused() {
        assert_eq!(
            read("a: 1", Format::Yaml, &GateOptions::default()),
            Err(GateFileError::NoGates)
        );
        let missing = GateOptions { phase: Some("9"), ..GateOptions::default() };
        assert!(matches!(read(CHECKS, Format::Yaml, &missing), Err(GateFileError::NoPhase(_))));
    }
}
