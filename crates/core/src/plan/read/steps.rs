//! The `script` key: steps of the built-in script agent.

use std::borrow::Cow;
use std::ops::Range;

use super::{Reader, clip};
use crate::diag::nearest;
use crate::plan::ScriptStep;
use crate::plan::doc::{Key, Node, Value};

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
struct Beside {
    text: Option<String>,
    options: Vec<String>,
    into: Option<String>,
    times: Option<u32>,
    ignore_term: bool,
    detach: bool,
}

impl Reader {
    pub(super) fn script(&mut self, node: Node<'_>) -> Vec<ScriptStep> {
        let items = self.list("script", node);
        items.into_iter().filter_map(|item| self.step(item)).collect()
    }

    fn step(&mut self, node: Node<'_>) -> Option<ScriptStep> {
        let span = node.span.clone();
        let Value::Table(entries) = node.value else {
            let help = "use a table such as { write = \"a.txt\", text = \"hello\" }";
            self.wrong("script", &node, "a list of tables", help);
            return None;
        };
        let names: Vec<_> = entries
            .iter()
            .filter_map(|(key, _)| STEPS.iter().find(|(name, _)| *name == key.text))
            .collect();
        let (name, beside) = match names[..] {
            [one] => *one,
            [] => {
                self.nameless(&entries, span);
                return None;
            }
            [first, second, ..] => {
                let message = format!("a step has both `{}` and `{}`", first.0, second.0);
                self.faults.add_help("plan::step", span, message, "split the step into two steps");
                return None;
            }
        };
        let mut around = Beside::default();
        let mut main = None;
        for (key, node) in entries {
            if key.text == name {
                main = Some(node);
            } else if beside.contains(&&*key.text) {
                self.beside(&mut around, &key, node);
            } else {
                self.unknown(&format!("the step `{name}`"), &key, beside);
            }
        }
        self.build(name, main?, around)
    }

    fn nameless(&mut self, entries: &[(Key<'_>, Node<'_>)], span: Range<usize>) {
        let known = || STEPS.iter().map(|(name, _)| *name);
        let near = entries.iter().find_map(|(key, _)| nearest(&key.text, known()));
        let help = match near {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known steps: {}", known().collect::<Vec<_>>().join(", ")),
        };
        self.faults.add_help("plan::step", span, "missing kind of step", help);
    }

    fn beside(&mut self, around: &mut Beside, key: &Key<'_>, node: Node<'_>) {
        match &*key.text {
            "text" => around.text = self.text("text", node).map(Cow::into_owned),
            "options" => around.options = self.texts("options", node, Cow::into_owned).0,
            "into" => around.into = self.path("into", node),
            "times" => around.times = self.count("times", node, 1),
            "ignore_term" => around.ignore_term = self.flag("ignore_term", node).unwrap_or(false),
            _ => around.detach = self.flag("detach", node).unwrap_or(false),
        }
    }

    fn build(&mut self, name: &str, node: Node<'_>, around: Beside) -> Option<ScriptStep> {
        let span = node.span.clone();
        Some(match name {
            "write" | "append" => {
                let path = self.path(name, node);
                let Some(text) = around.text else {
                    let message = format!("missing `text` in the step `{name}`");
                    self.faults.add_help("plan::step", span, message, "add text = \"…\"");
                    return None;
                };
                let path = path?;
                if name == "write" {
                    ScriptStep::Write { path, text }
                } else {
                    ScriptStep::Append { path, text }
                }
            }
            "commit" => ScriptStep::Commit { message: self.filled(name, node)? },
            "sleep" => ScriptStep::Sleep { ms: self.duration(name, node)? },
            "print" => ScriptStep::Print { text: self.text(name, node)?.into_owned() },
            "ask" => ScriptStep::Ask {
                question: self.filled(name, node)?,
                options: around.options,
                into: around.into,
            },
            "fail" => {
                let code = self.int(name, node, 1, 255)?;
                ScriptStep::Fail { code: i32::try_from(code).unwrap_or(1), times: around.times }
            }
            "rate_limit" => ScriptStep::RateLimit {
                retry_after: self.duration(name, node)? as f64 / 1_000.0,
                times: around.times,
            },
            "hang" => {
                if !self.flag(name, node)? {
                    let message = "`hang = false` does nothing";
                    self.faults.add_help("plan::step", span, message, "remove the step");
                    return None;
                }
                ScriptStep::Hang { ignore_term: around.ignore_term }
            }
            "spawn" => ScriptStep::Spawn { ms: self.duration(name, node)?, detach: around.detach },
            "usage" => self.usage(node)?,
            "nothing_to_do" => ScriptStep::NothingToDo { reason: self.filled(name, node)? },
            _ => ScriptStep::Blocked { reason: self.filled(name, node)? },
        })
    }

    fn usage(&mut self, node: Node<'_>) -> Option<ScriptStep> {
        let Value::Table(entries) = node.value else {
            self.wrong("usage", &node, "a table", "use { input_tokens = 1, output_tokens = 2 }");
            return None;
        };
        let (mut input_tokens, mut output_tokens, mut cost_usd) = (0, 0, 0.0);
        let tokens = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        for (key, node) in entries {
            match &*key.text {
                "input_tokens" => {
                    input_tokens = tokens(self.int("input_tokens", node, 0, i64::MAX));
                }
                "output_tokens" => {
                    output_tokens = tokens(self.int("output_tokens", node, 0, i64::MAX));
                }
                "cost_usd" => cost_usd = self.money("cost_usd", node).unwrap_or(0.0),
                _ => self.unknown("`usage`", &key, &USAGE_KEYS),
            }
        }
        Some(ScriptStep::Usage { input_tokens, output_tokens, cost_usd })
    }

    fn money(&mut self, key: &str, node: Node<'_>) -> Option<f64> {
        let amount = match node.value {
            Value::Int(number) => number as f64,
            Value::Float(number) => number,
            _ => {
                self.wrong(key, &node, "a number", "use a number such as 0.25");
                return None;
            }
        };
        if !amount.is_finite() || amount < 0.0 {
            let message = format!("`{key}` is not a valid amount of money");
            self.faults.add_help("plan::range", node.span, message, "use a number such as 0.25");
            return None;
        }
        Some(amount)
    }

    fn flag(&mut self, key: &str, node: Node<'_>) -> Option<bool> {
        match node.value {
            Value::Bool(yes) => Some(yes),
            _ => {
                self.wrong(key, &node, "true or false", "write true");
                None
            }
        }
    }

    fn count(&mut self, key: &str, node: Node<'_>, min: i64) -> Option<u32> {
        self.int(key, node, min, i64::from(u32::MAX)).and_then(|n| u32::try_from(n).ok())
    }

    /// A path inside the workspace.
    fn path(&mut self, key: &str, node: Node<'_>) -> Option<String> {
        let span = node.span.clone();
        let path = self.word(key, node)?;
        let outside = path.starts_with('/') || path.split('/').any(|part| part == "..");
        if outside || path.ends_with('/') {
            let message = format!("`{}` is not a path inside the workspace", clip(&path));
            let help = "use a relative path without `..`";
            self.faults.add_help("plan::path", span, message, help);
            return None;
        }
        Some(path)
    }
}
