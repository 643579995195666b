//! From other tools' gate files to gates of ours.
//!
//! Two forms: checks by phase, mandatory and recommended; and the passage from one phase to the next,
//! with artifacts, measures and an approval. What is mandatory and cannot be said as a gate of ours becomes
//! something that a person confirms; nothing is left out without a word. Imported text is data: commands in
//! it become gates only if asked for. Knows no files.

use mainstem_core::diagnostic::Diagnostic;
use mainstem_core::gate::{GateComparison, GateSpec, MatchRequirement};
use mainstem_core::plan::document::{DocumentFormat, DocumentNode, DocumentValue, parse_document};

use crate::lenient_tree::{
    first_key, get_key, key_names, list_items, scalar_int, scalar_number, scalar_text, scalar_texts,
};

/// What may be taken over.
#[derive(Debug, Clone, Copy, Default)]
pub struct GateOptions<'a> {
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

pub fn read_gate_file(
    source: &str,
    format: DocumentFormat,
    options: &GateOptions<'_>,
) -> Result<GateFile, GateFileError> {
    let root = parse_document(source, format).map_err(GateFileError::Syntax)?;
    // Some wrap the whole in one key.
    let root = get_key(&root, "gate").unwrap_or(&root);
    let mut reader = GateFileReader { source, options, file: GateFile::default(), within: None };
    reader.file.name =
        scalar_text(first_key(root, &["name", "gate_name"]), source).unwrap_or_default();
    let passage = ["required_artifacts", "quality_checks", "human_approval", "gate_conditions"];
    match get_key(root, "checks") {
        Some(checks) => reader.read_checks(checks)?,
        None if first_key(root, &passage).is_some() => reader.read_phase_transition(root),
        None => return Err(GateFileError::NoGates),
    }
    reader.collect_unsupported(root);
    Ok(reader.finish())
}

struct GateFileReader<'a> {
    source: &'a str,
    options: &'a GateOptions<'a>,
    file: GateFile,
    within: Option<u64>,
}

impl GateFileReader<'_> {
    fn text_field(&self, node: &DocumentNode<'_>, key: &str) -> Option<String> {
        scalar_text(get_key(node, key), self.source).filter(|text| !text.trim().is_empty())
    }

    fn add_gate(&mut self, what: &str, gate: &GateSpec) {
        let line = gate.to_string();
        match GateSpec::parse(&line) {
            Ok(again) if again == *gate => {
                self.file.taken.push((what.to_owned(), line.clone()));
                self.file.gates.push(line);
            }
            Ok(_) => self.add_manual_check(what, "cannot be expressed as a check"),
            Err(why) => self.add_manual_check(what, &why),
        }
    }

    /// Mandatory, and beyond what a gate can see.
    fn add_manual_check(&mut self, what: &str, why: &str) {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.file.by_hand.push(format!("{} ({})", flat(what), flat(why)));
    }

    /// Checks by phase, or all of one.
    fn read_checks(&mut self, checks: &DocumentNode<'_>) -> Result<(), GateFileError> {
        if get_key(checks, "mandatory").is_some() || get_key(checks, "recommended").is_some() {
            self.read_phase(checks);
            return Ok(());
        }
        let names: Vec<String> = key_names(checks).into_iter().map(str::to_owned).collect();
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
            if let Some(phase) = get_key(checks, &name) {
                self.read_phase(phase);
            }
        }
        Ok(())
    }

    fn read_phase(&mut self, phase: &DocumentNode<'_>) {
        for check in list_items(get_key(phase, "mandatory")) {
            self.read_check(check);
        }
        for check in list_items(get_key(phase, "recommended")) {
            if self.options.recommended {
                self.read_check(check);
            } else {
                let what = self.check_name(check);
                self.file.left_out.push(format!("{what}: recommended only"));
            }
        }
    }

    fn check_name(&self, node: &DocumentNode<'_>) -> String {
        let words = ["name", "type", "metric", "description"];
        words
            .iter()
            .find_map(|key| self.text_field(node, key))
            .unwrap_or_else(|| "a check".to_owned())
    }

    fn read_check(&mut self, check: &DocumentNode<'_>) {
        let what = self.check_name(check);
        let kind = self.text_field(check, "check_type").unwrap_or_default();
        match kind.as_str() {
            "file_exists" => match self.path_globs(check) {
                Some(files) if !self.expects_absence(check) => {
                    self.add_gate(&what, &GateSpec::FileExists { files });
                }
                _ => self.add_manual_check(&what, "no file is named that must exist"),
            },
            "content_search" => self.read_content_check(&what, check),
            "yaml_query" => self.read_query_check(&what, check),
            "command" => self.read_command_check(&what, check),
            other => self.add_manual_check(&what, &format!("unsupported check `{other}`")),
        }
    }

    /// The pattern of paths, or the one that may stand in for it.
    fn path_globs(&self, node: &DocumentNode<'_>) -> Option<String> {
        let first =
            self.text_field(node, "path_pattern").or_else(|| self.text_field(node, "path"))?;
        Some(match self.text_field(node, "fallback_pattern") {
            Some(other) if !first.contains(['{', ',']) && !other.contains(['{', ',']) => {
                format!("{{{first},{other}}}")
            }
            _ => first,
        })
    }

    fn expects_absence(&self, check: &DocumentNode<'_>) -> bool {
        let expected = self.text_field(check, "expected").unwrap_or_default().to_lowercase();
        let words = ["false", "absent", "none", "not_found", "no_match", "no matches", "0"];
        words.contains(&expected.as_str())
            || scalar_int(get_key(check, "expected_count")) == Some(0)
    }

    fn read_content_check(&mut self, what: &str, check: &DocumentNode<'_>) {
        let patterns = scalar_texts(first_key(check, &["patterns", "pattern"]), self.source);
        let Some(files) = self.path_globs(check).filter(|_| !patterns.is_empty()) else {
            return self.add_manual_check(what, "no files or no pattern are named");
        };
        let count =
            scalar_int(get_key(check, "expected_count")).and_then(|n| u64::try_from(n).ok());
        let all = || patterns.iter().map(|p| format!("(?:{p})")).collect::<Vec<_>>().join("|");
        match count {
            _ if self.expects_absence(check) => {
                for pattern in &patterns {
                    let (files, pattern) = (files.clone(), pattern.clone());
                    self.add_gate(
                        what,
                        &GateSpec::Content { files, pattern, wants: MatchRequirement::None },
                    );
                }
            }
            Some(count) => {
                let pattern = if patterns.len() == 1 { patterns[0].clone() } else { all() };
                self.add_gate(
                    what,
                    &GateSpec::Content { files, pattern, wants: MatchRequirement::AtLeast(count) },
                );
            }
            // Each of them, as nothing says that one is enough.
            None => {
                for pattern in &patterns {
                    let (files, pattern) = (files.clone(), pattern.clone());
                    self.add_gate(
                        what,
                        &GateSpec::Content { files, pattern, wants: MatchRequirement::AtLeast(1) },
                    );
                }
            }
        }
    }

    fn read_query_check(&mut self, what: &str, check: &DocumentNode<'_>) {
        let path = ["query", "yaml_path", "key", "command"]
            .iter()
            .find_map(|key| self.text_field(check, key));
        let path = path.map(|path| path.trim_start_matches(['$', '.']).to_owned());
        let file =
            self.text_field(check, "path_pattern").or_else(|| self.text_field(check, "path"));
        let value = scalar_text(get_key(check, "expected"), self.source);
        match (file, path, value) {
            (Some(file), Some(path), Some(value)) if !file.contains(['*', '?', '{', '[']) => {
                self.add_gate(
                    what,
                    &GateSpec::Query { file, path, compare: GateComparison::Equal, value },
                );
            }
            _ => self.add_manual_check(
                what,
                "the file, the place in it or the expected value is not named",
            ),
        }
    }

    fn read_command_check(&mut self, what: &str, check: &DocumentNode<'_>) {
        let Some(command) = self.text_field(check, "command") else {
            return self.add_manual_check(what, "no command is named");
        };
        if !self.options.commands {
            let why = format!(
                "the command `{command}` was not accepted; accept commands with --accept-commands"
            );
            return self.add_manual_check(what, &why);
        }
        if get_key(check, "expected_count").is_some() {
            return self
                .add_manual_check(what, &format!("`{command}` is to give a number of results"));
        }
        let expected = self.text_field(check, "expected").unwrap_or_default();
        self.add_gate(what, &GateSpec::Command(with_expectation(&command, &expected)));
    }

    /// The passage from one phase to the next.
    fn read_phase_transition(&mut self, root: &DocumentNode<'_>) {
        for artifact in list_items(get_key(root, "required_artifacts")) {
            self.read_artifact(artifact);
        }
        for check in list_items(get_key(root, "quality_checks")) {
            self.read_quality_check(check);
        }
        if let Some(approval) = get_key(root, "human_approval") {
            self.read_approval(approval);
        }
        match get_key(root, "gate_conditions").map(|node| &node.value) {
            None | Some(DocumentValue::Null) => {}
            Some(DocumentValue::List(_)) => {
                for condition in scalar_texts(get_key(root, "gate_conditions"), self.source) {
                    self.add_manual_check(&condition, "a condition in words");
                }
            }
            Some(_) => {
                let node = get_key(root, "gate_conditions");
                for key in node.map(key_names).unwrap_or_default() {
                    let value = scalar_text(node.and_then(|node| get_key(node, key)), self.source);
                    let what = format!("{key}: {}", value.unwrap_or_default());
                    self.add_manual_check(&what, "a condition in words");
                }
            }
        }
    }

    fn read_artifact(&mut self, artifact: &DocumentNode<'_>) {
        let what = self.check_name(artifact);
        let optional = self.text_field(artifact, "optional").as_deref() == Some("true");
        if optional {
            return self.file.left_out.push(format!("{what}: optional"));
        }
        if let Some(condition) =
            self.text_field(artifact, "conditional").filter(|text| text != "false")
        {
            return self.add_manual_check(&what, &format!("needed only if {condition}"));
        }
        match self.path_globs(artifact) {
            Some(files) => self.add_gate(&what, &GateSpec::FileExists { files }),
            None => self.add_manual_check(&what, "no file is named"),
        }
        if let Some(validation) = self.text_field(artifact, "validation") {
            let known = ["exists", "file_exists", "required", "present"];
            if !known.contains(&validation.to_lowercase().as_str()) {
                self.add_manual_check(&what, &format!("is to be checked: {validation}"));
            }
        }
    }

    fn read_quality_check(&mut self, check: &DocumentNode<'_>) {
        let what = self.check_name(check);
        let metric = self.text_field(check, "metric").unwrap_or_else(|| what.clone());
        let threshold = scalar_text(get_key(check, "threshold"), self.source).unwrap_or_default();
        if let Some(condition) =
            self.text_field(check, "conditional").filter(|text| text != "false")
        {
            return self.add_manual_check(&what, &format!("needed only if {condition}"));
        }
        let compare = match self.text_field(check, "comparison").unwrap_or_default().as_str() {
            "equal" | "equals" | "" => GateComparison::Equal,
            "greater_or_equal" => GateComparison::AtLeast,
            "less_or_equal" => GateComparison::AtMost,
            "not_equal" => GateComparison::NotEqual,
            other => return self.add_manual_check(&what, &format!("{metric} {other} {threshold}")),
        };
        if threshold.eq_ignore_ascii_case("approved") && metric.contains("review") {
            return self.add_gate(&what, &GateSpec::Review);
        }
        match self.options.metrics {
            Some(file) if !threshold.is_empty() => {
                let (file, path, value) = (file.to_owned(), metric, threshold);
                self.add_gate(&what, &GateSpec::Query { file, path, compare, value });
            }
            _ => {
                let sign = match compare {
                    GateComparison::Equal => "is",
                    GateComparison::NotEqual => "is not",
                    GateComparison::AtLeast => "is at least",
                    GateComparison::AtMost => "is at most",
                };
                let why = format!(
                    "{metric} {sign} {threshold}; the source of the metric is unknown; use --metrics FILE"
                );
                self.add_manual_check(&what, &why);
            }
        }
    }

    fn read_approval(&mut self, approval: &DocumentNode<'_>) {
        if self.text_field(approval, "required").as_deref() == Some("false") {
            return self.file.left_out.push("human approval: not required".to_owned());
        }
        let hours = scalar_number(get_key(approval, "timeout_hours")).filter(|hours| *hours > 0.0);
        self.within = hours.map(|hours| (hours * 3_600_000.0) as u64);
        let roles = scalar_texts(get_key(approval, "roles"), self.source);
        let text =
            if roles.is_empty() { String::new() } else { format!("for {}", roles.join(", ")) };
        self.add_gate("human approval", &GateSpec::Approval { within_ms: self.within, text });
    }

    /// What a gate of ours has no word for.
    fn collect_unsupported(&mut self, root: &DocumentNode<'_>) {
        for key in ["applies_to", "escalation", "from_phase", "to_phase"] {
            let node = get_key(root, key);
            let value = scalar_texts(node, self.source).join(", ");
            if node.is_some() {
                self.file.left_out.push(format!("{key} {value}: checks apply to every task"));
            }
        }
        let action = self.text_field(root, "failure_action").unwrap_or_else(|| "block".to_owned());
        if action != "block" {
            self.file
                .left_out
                .push(format!("failure_action {action}: a failed check always blocks"));
        }
    }

    fn finish(mut self) -> GateFile {
        if !self.file.by_hand.is_empty() {
            let text = format!("Confirm by hand: {}.", self.file.by_hand.join("; "));
            let gate = GateSpec::Approval { within_ms: self.within, text };
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
        let file = read_gate_file(CHECKS, DocumentFormat::Yaml, &options).unwrap();
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
        let file = read_gate_file(CHECKS, DocumentFormat::Yaml, &GateOptions::default()).unwrap();
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
        let file = read_gate_file(PASSAGE, DocumentFormat::Yaml, &options).unwrap();
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
        let without =
            read_gate_file(PASSAGE, DocumentFormat::Yaml, &GateOptions::default()).unwrap();
        assert!(without.gates.last().unwrap().contains("test.coverage is at least 80"));
    }

    #[test]
    fn every_gate_that_comes_out_can_be_read() {
        for (text, commands) in [(CHECKS, true), (CHECKS, false), (PASSAGE, true), (PASSAGE, false)]
        {
            let options = GateOptions { commands, recommended: true, ..GateOptions::default() };
            for line in read_gate_file(text, DocumentFormat::Yaml, &options).unwrap().gates {
                assert!(GateSpec::parse(&line).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn something_else_is_refused() {
        assert_eq!(
            read_gate_file("a: 1", DocumentFormat::Yaml, &GateOptions::default()),
            Err(GateFileError::NoGates)
        );
        let missing = GateOptions { phase: Some("9"), ..GateOptions::default() };
        assert!(matches!(
            read_gate_file(CHECKS, DocumentFormat::Yaml, &missing),
            Err(GateFileError::NoPhase(_))
        ));
    }
}
