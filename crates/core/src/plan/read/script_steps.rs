//! The `script` key: steps of the built-in script agent.

use std::borrow::Cow;
use std::ops::Range;

use super::{PlanReader, clip_text};
use crate::diagnostic::nearest_word;
use crate::plan::ScriptStep;
use crate::plan::document::{DocumentKey, DocumentNode, DocumentValue};

/// Each step's naming key with the keys that may stand beside it.
const STEPS: [(&str, &[&str]); 13] = [
    ("write", &["text"]),
    ("append", &["text"]),
    ("commit", &[]),
    ("sleep", &[]),
    ("print", &[]),
    ("ask", &["options", "into"]),
    ("fail", &["times"]),
    ("rate_limit", &["times"]),
    ("hang", &["ignore_term"]),
    ("spawn", &["detach"]),
    ("usage", &[]),
    ("nothing_to_do", &[]),
    ("blocked", &[]),
];

const USAGE_KEYS: [&str; 3] = ["input_tokens", "output_tokens", "cost_usd"];

/// What stands beside a step's naming key.
#[derive(Default)]
struct StepModifiers {
    text: Option<String>,
    options: Vec<String>,
    into: Option<String>,
    times: Option<u32>,
    ignore_term: bool,
    detach: bool,
}

impl PlanReader {
    pub(super) fn read_script(&mut self, node: DocumentNode<'_>) -> Vec<ScriptStep> {
        let items = self.read_list("script", node);
        items.into_iter().filter_map(|item| self.read_step(item)).collect()
    }

    fn read_step(&mut self, node: DocumentNode<'_>) -> Option<ScriptStep> {
        let span = node.span.clone();
        let DocumentValue::Table(entries) = node.value else {
            let help = "use a table such as { write = \"a.txt\", text = \"hello\" }";
            self.report_wrong_type("script", &node, "a list of tables", help);
            return None;
        };
        let names: Vec<_> = entries
            .iter()
            .filter_map(|(key, _)| STEPS.iter().find(|(name, _)| *name == key.text))
            .collect();
        let (name, beside) = match names[..] {
            [one] => *one,
            [] => {
                self.report_unnamed_step(&entries, span);
                return None;
            }
            [first, second, ..] => {
                let message = format!("a step has both `{}` and `{}`", first.0, second.0);
                self.faults.add_fault_with_help(
                    "plan::step",
                    span,
                    message,
                    "split the step into two steps",
                );
                return None;
            }
        };
        let mut around = StepModifiers::default();
        let mut main = None;
        for (key, node) in entries {
            if key.text == name {
                main = Some(node);
            } else if beside.contains(&&*key.text) {
                self.read_modifier(&mut around, &key, node);
            } else {
                self.report_unknown_key(&format!("the step `{name}`"), &key, beside);
            }
        }
        self.build_step(name, main?, around)
    }

    fn report_unnamed_step(
        &mut self,
        entries: &[(DocumentKey<'_>, DocumentNode<'_>)],
        span: Range<usize>,
    ) {
        let known = || STEPS.iter().map(|(name, _)| *name);
        let near = entries.iter().find_map(|(key, _)| nearest_word(&key.text, known()));
        let help = match near {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known steps: {}", known().collect::<Vec<_>>().join(", ")),
        };
        self.faults.add_fault_with_help("plan::step", span, "missing kind of step", help);
    }

    fn read_modifier(
        &mut self,
        around: &mut StepModifiers,
        key: &DocumentKey<'_>,
        node: DocumentNode<'_>,
    ) {
        match &*key.text {
            "text" => around.text = self.read_text("text", node).map(Cow::into_owned),
            "options" => around.options = self.read_texts("options", node, Cow::into_owned).0,
            "into" => around.into = self.read_workspace_path("into", node),
            "times" => around.times = self.read_count("times", node, 1),
            "ignore_term" => {
                around.ignore_term = self.read_flag("ignore_term", node).unwrap_or(false);
            }
            _ => around.detach = self.read_flag("detach", node).unwrap_or(false),
        }
    }

    fn build_step(
        &mut self,
        name: &str,
        node: DocumentNode<'_>,
        around: StepModifiers,
    ) -> Option<ScriptStep> {
        let span = node.span.clone();
        Some(match name {
            "write" | "append" => {
                let path = self.read_workspace_path(name, node);
                let Some(text) = around.text else {
                    let message = format!("missing `text` in the step `{name}`");
                    self.faults.add_fault_with_help(
                        "plan::step",
                        span,
                        message,
                        "add text = \"…\"",
                    );
                    return None;
                };
                let path = path?;
                if name == "write" {
                    ScriptStep::Write { path, text }
                } else {
                    ScriptStep::Append { path, text }
                }
            }
            "commit" => ScriptStep::Commit { message: self.read_nonblank_text(name, node)? },
            "sleep" => ScriptStep::Sleep { ms: self.read_duration(name, node)? },
            "print" => ScriptStep::Print { text: self.read_text(name, node)?.into_owned() },
            "ask" => ScriptStep::Ask {
                question: self.read_nonblank_text(name, node)?,
                options: around.options,
                into: around.into,
            },
            "fail" => {
                let code = self.read_int(name, node, 1, 255)?;
                ScriptStep::Fail { code: i32::try_from(code).unwrap_or(1), times: around.times }
            }
            "rate_limit" => ScriptStep::RateLimit {
                retry_after: self.read_duration(name, node)? as f64 / 1_000.0,
                times: around.times,
            },
            "hang" => {
                if !self.read_flag(name, node)? {
                    let message = "`hang = false` does nothing";
                    self.faults.add_fault_with_help("plan::step", span, message, "remove the step");
                    return None;
                }
                ScriptStep::Hang { ignore_term: around.ignore_term }
            }
            "spawn" => {
                ScriptStep::Spawn { ms: self.read_duration(name, node)?, detach: around.detach }
            }
            "usage" => self.read_usage_step(node)?,
            "nothing_to_do" => {
                ScriptStep::NothingToDo { reason: self.read_nonblank_text(name, node)? }
            }
            _ => ScriptStep::Blocked { reason: self.read_nonblank_text(name, node)? },
        })
    }

    fn read_usage_step(&mut self, node: DocumentNode<'_>) -> Option<ScriptStep> {
        let DocumentValue::Table(entries) = node.value else {
            self.report_wrong_type(
                "usage",
                &node,
                "a table",
                "use { input_tokens = 1, output_tokens = 2 }",
            );
            return None;
        };
        let (mut input_tokens, mut output_tokens, mut cost_usd) = (0, 0, 0.0);
        let tokens = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        for (key, node) in entries {
            match &*key.text {
                "input_tokens" => {
                    input_tokens = tokens(self.read_int("input_tokens", node, 0, i64::MAX));
                }
                "output_tokens" => {
                    output_tokens = tokens(self.read_int("output_tokens", node, 0, i64::MAX));
                }
                "cost_usd" => cost_usd = self.read_money("cost_usd", node).unwrap_or(0.0),
                _ => self.report_unknown_key("`usage`", &key, &USAGE_KEYS),
            }
        }
        Some(ScriptStep::Usage { input_tokens, output_tokens, cost_usd })
    }

    fn read_money(&mut self, key: &str, node: DocumentNode<'_>) -> Option<f64> {
        let amount = match node.value {
            DocumentValue::Int(number) => number as f64,
            DocumentValue::Float(number) => number,
            _ => {
                self.report_wrong_type(key, &node, "a number", "use a number such as 0.25");
                return None;
            }
        };
        if !amount.is_finite() || amount < 0.0 {
            let message = format!("`{key}` is not a valid amount of money");
            self.faults.add_fault_with_help(
                "plan::range",
                node.span,
                message,
                "use a number such as 0.25",
            );
            return None;
        }
        Some(amount)
    }

    fn read_flag(&mut self, key: &str, node: DocumentNode<'_>) -> Option<bool> {
        match node.value {
            DocumentValue::Bool(yes) => Some(yes),
            _ => {
                self.report_wrong_type(key, &node, "true or false", "write true");
                None
            }
        }
    }

    fn read_count(&mut self, key: &str, node: DocumentNode<'_>, min: i64) -> Option<u32> {
        self.read_int(key, node, min, i64::from(u32::MAX)).and_then(|n| u32::try_from(n).ok())
    }

    /// A path inside the workspace.
    fn read_workspace_path(&mut self, key: &str, node: DocumentNode<'_>) -> Option<String> {
        let span = node.span.clone();
        let path = self.read_nonblank_line(key, node)?;
        let outside = path.starts_with('/') || path.split('/').any(|part| part == "..");
        if outside || path.ends_with('/') {
            let message = format!("`{}` is not a path inside the workspace", clip_text(&path));
            let help = "use a relative path without `..`";
            self.faults.add_fault_with_help("plan::path", span, message, help);
            return None;
        }
        Some(path)
    }
}
