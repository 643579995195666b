//! What a reviewer is asked for: an opinion and findings.

use mainstem_core::review::{ReviewFinding, ReviewOpinion, Severity};
use serde_json::Value;

use super::AnswerProblem;
use super::fields::AnswerFields;
use crate::extract::AnswerSchema;

/// Findings of one reviewer; more is noise.
const FINDINGS_MAX: usize = 500;

/// How the answer looks, in words for a prompt. Not itself an answer.
pub const REVIEW_SHAPE: &str = r#"{
  "verdict": "APPROVED, CHANGES_NEEDED or BLOCKING",
  "findings": [
    {
      "severity": "info, low, medium, high or critical",
      "category": "a word such as bug, security, tests, style",
      "file": "path from the root of the repository; empty for the whole change",
      "line": 0,
      "description": "what is wrong, and why",
      "suggestion": "what would help; may be left out"
    }
  ]
}"#;

/// The answer of a reviewer.
#[derive(Debug, Clone, Copy)]
pub struct ReviewAnswerSchema;

impl AnswerSchema for ReviewAnswerSchema {
    type ParsedAnswer = (ReviewOpinion, Vec<ReviewFinding>);

    fn leading_keys(&self) -> &[&str] {
        &["verdict", "findings"]
    }

    fn resembles(&self, value: &Value) -> bool {
        value.get("verdict").is_some() || value.get("findings").is_some()
    }

    fn check(&self, value: &Value) -> Result<Self::ParsedAnswer, Vec<AnswerProblem>> {
        let mut fields = AnswerFields::default();
        let words = ReviewOpinion::ALL.map(ReviewOpinion::as_str);
        let word = fields.read_choice(value, "", "verdict", &words);
        let verdict = ReviewOpinion::ALL.into_iter().find(|opinion| opinion.as_str() == word);
        if value.get("findings").is_none() {
            fields.add_problem("findings", "is missing; write an empty list if there are none");
        }
        let list = fields.read_list(value, "", "findings");
        if list.len() > FINDINGS_MAX {
            fields.add_problem(
                "findings",
                format!("has {} entries, more than {FINDINGS_MAX}", list.len()),
            );
        }
        let mut findings = Vec::new();
        for (i, item) in list.iter().take(FINDINGS_MAX).enumerate() {
            let at = format!("findings[{i}]");
            if !item.is_object() {
                fields.add_problem(at, "must be an object");
                continue;
            }
            let word =
                fields.read_choice(item, &at, "severity", &Severity::ALL.map(Severity::as_str));
            let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().trim();
            findings.push(ReviewFinding {
                severity: Severity::from_word(&word).unwrap_or(Severity::Info),
                category: fields.read_line(item, &at, "category"),
                file: text("file").trim_start_matches("./").to_owned(),
                line: fields.read_count(item, &at, "line"),
                description: fields.read_text(item, &at, "description"),
                suggestion: text("suggestion").to_owned(),
                agents: Vec::new(),
            });
        }
        fields.finish((verdict.unwrap_or(ReviewOpinion::ChangesNeeded), findings))
    }

    fn part_names(&self, (_, findings): &Self::ParsedAnswer) -> Vec<String> {
        findings.iter().map(|f| format!("{}:{}:{}", f.file, f.line, f.category)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::extract::extract_answer;

    #[test]
    fn an_answer_is_found_in_prose_and_checked() {
        let text = "I looked.\n```json\n{\"verdict\": \"CHANGES_NEEDED\", \"findings\": [{\"severity\": \"high\", \
            \"category\": \"bug\", \"file\": \"./src/a.rs\", \"line\": 3, \"description\": \"off by one\"},]}\n```\nDone.";
        let (verdict, findings) = extract_answer(text, &ReviewAnswerSchema).unwrap().found;
        assert_eq!(verdict, ReviewOpinion::ChangesNeeded);
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("src/a.rs", 3));
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place() {
        let text = r#"{"verdict": "FINE", "findings": [{"severity": "awful", "category": "x", "line": -1}]}"#;
        let problems = extract_answer(text, &ReviewAnswerSchema).unwrap_err().problems();
        let words = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        for part in
            ["verdict", "findings[0].severity", "findings[0].line", "findings[0].description"]
        {
            assert!(words.contains(part), "{part} in {words}");
        }
        assert!(extract_answer(r#"{"verdict": "APPROVED"}"#, &ReviewAnswerSchema).is_err());
    }

    #[test]
    fn the_shape_in_the_prompt_is_no_answer() {
        assert!(extract_answer(REVIEW_SHAPE, &ReviewAnswerSchema).is_err());
    }
}
