//! The tools: what they are called, what they take, and what a call comes to. Pure.

use serde_json::{Map, Value, json};

/// Texts longer than this are refused rather than cut: the agent can say it shorter.
const TEXT_BYTES_MAX: usize = 16 * 1024;
const LIST_MAX: usize = 32;
/// The longest deadline: a week.
const DEADLINE_SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;
/// Stands for the answer that did not come in time.
pub const NO_ANSWER: &str = "No answer came in time. Use your own judgment and state your assumption in the commit message.";

#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// Its name; clients put their own prefix before it.
    pub name: &'static str,
    /// What it is for, told to the model.
    pub description: &'static str,
    /// JSON schema of its arguments.
    pub schema: Map<String, Value>,
}

/// What a call comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum McpToolCall {
    /// Send this line, without its `ref`, and wait for the answer.
    Ask(Map<String, Value>),
    /// Send this line, then say this.
    Say(Value, &'static str),
    /// Give back the content of this file.
    Read(&'static str),
}

/// All tools, in the order in which they are listed.
pub fn list_tools() -> Vec<McpTool> {
    vec![
        describe_tool(
            "ask",
            "Ask the person or policy responsible for this run, and wait for the answer. Use this tool when a decision is not yours to make or a wrong guess would be expensive; otherwise decide yourself. \
             Other agents keep working while you wait.",
            &json!({
                "question": {"type": "string", "description": "One self-contained question."},
                "options": {"type": "array", "items": {"type": "string"}, "description": "Possible answers, if there are only a few."},
                "default": {"type": "string", "description": "Answer to use when the deadline passes."},
                "deadline_seconds": {"type": "number", "description": "Maximum time to wait."},
            }),
            &["question"],
        ),
        describe_tool(
            "report_progress",
            "Report in one line what you are doing now. Shown to people who watch; does not block.",
            &json!({"text": {"type": "string", "description": "One line."}}),
            &["text"],
        ),
        describe_tool(
            "complete_task",
            "Report that your work on the task is finished, with evidence. The checks decide whether the task is done. \
             Commit first, then call this tool once and finish.",
            &json!({
                "summary": {"type": "string", "description": "What you did, why there was nothing to do, or what blocks you."},
                "evidence": {"type": "array", "items": {"type": "string"}, "description": "For example, commands that you ran and their results."},
                "outcome": {"type": "string", "enum": ["done", "nothing_to_do", "blocked"], "description": "Default: done."},
            }),
            &["summary"],
        ),
        describe_tool(
            "log_issue",
            "Record a problem that is not part of your task: a bug, a risk, a broken test. \
             Do not fix it here.",
            &json!({
                "title": {"type": "string", "description": "Short title."},
                "text": {"type": "string", "description": "What is wrong, where, and how to reproduce the problem."},
                "severity": {"type": "string", "enum": ["low", "medium", "high"]},
            }),
            &["title"],
        ),
        describe_tool(
            "propose_task",
            "Propose an additional task for the plan. A person must accept the proposal first.",
            &json!({
                "title": {"type": "string", "description": "Short title."},
                "description": {"type": "string", "description": "Self-contained description of what to do."},
                "needs": {"type": "array", "items": {"type": "string"}, "description": "Ids of tasks that the proposed task depends on."},
                "id": {"type": "string", "description": "Id of the proposed task (optional)."},
            }),
            &["title", "description"],
        ),
        describe_tool(
            "get_task",
            "Show your task: description, acceptance criteria, checks and landed work.",
            &json!({}),
            &[],
        ),
        describe_tool(
            "list_peers",
            "List the other tasks of the run, as of your start, and the files they expect to change.",
            &json!({}),
            &[],
        ),
    ]
}

fn describe_tool(
    name: &'static str,
    description: &'static str,
    properties: &Value,
    required: &[&str],
) -> McpTool {
    let schema = json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    });
    let Value::Object(schema) = schema else { unreachable!("BUG: a schema is an object") };
    McpTool { name, description, schema }
}

/// What a call with these arguments comes to, or why it cannot be; told to the model.
pub fn parse_call(name: &str, arguments: &Map<String, Value>) -> Result<McpToolCall, String> {
    let known = list_tools();
    let Some(tool) = known.iter().find(|tool| tool.name == name) else {
        let names: Vec<_> = known.iter().map(|tool| tool.name).collect();
        return Err(format!("unknown tool `{name}`; available: {}", names.join(", ")));
    };
    let properties = tool.schema["properties"].as_object();
    if let Some(odd) = arguments.keys().find(|key| properties.is_none_or(|p| !p.contains_key(*key)))
    {
        return Err(format!("unknown argument `{odd}` of `{name}`"));
    }
    let read = McpArguments { tool: name, arguments };
    Ok(match name {
        "ask" => McpToolCall::Ask(parse_question(&read)?),
        "report_progress" => {
            let line = json!({"mainstem": "progress", "text": read.required_text("text")?});
            McpToolCall::Say(line, "Noted.")
        }
        "complete_task" => parse_completion(&read)?,
        "log_issue" => McpToolCall::Say(
            json!({
                "mainstem": "issue", "title": read.required_text("title")?,
                "text": read.optional_text("text")?.unwrap_or_default(),
                "severity": read.optional_text("severity")?.unwrap_or_default(),
            }),
            "Recorded. Continue with your task.",
        ),
        "propose_task" => {
            let mut line = json!({
                "mainstem": "propose_task", "title": read.required_text("title")?,
                "description": read.required_text("description")?, "needs": read.text_list("needs")?,
            });
            if let Some(id) = read.optional_text("id")? {
                line["id"] = Value::from(id);
            }
            McpToolCall::Say(line, "Proposed. A person decides; continue with your task.")
        }
        "get_task" => McpToolCall::Read("task.json"),
        _ => McpToolCall::Read("peers.json"),
    })
}

fn parse_question(read: &McpArguments<'_>) -> Result<Map<String, Value>, String> {
    let mut line = Map::new();
    line.insert("mainstem".to_owned(), Value::from("ask"));
    line.insert("question".to_owned(), Value::from(read.required_text("question")?));
    let options = read.text_list("options")?;
    if !options.is_empty() {
        line.insert("options".to_owned(), Value::from(options));
    }
    let default = read.optional_text("default")?;
    let seconds = match read.arguments.get("deadline_seconds") {
        None | Some(Value::Null) => None,
        Some(given) => {
            let seconds = given.as_f64().filter(|seconds| *seconds >= 0.0);
            let seconds = seconds.ok_or("`deadline_seconds` must be a number of seconds")?;
            Some(seconds.min(DEADLINE_SECONDS_MAX))
        }
    };
    if let Some(seconds) = seconds {
        line.insert("deadline".to_owned(), Value::from(seconds));
        // A deadline that leads to nothing would keep the agent waiting after it.
        let default = default.clone().unwrap_or_else(|| NO_ANSWER.to_owned());
        line.insert("default".to_owned(), Value::from(default));
    } else if let Some(default) = default {
        line.insert("default".to_owned(), Value::from(default));
    }
    Ok(line)
}

fn parse_completion(read: &McpArguments<'_>) -> Result<McpToolCall, String> {
    let summary = read.required_text("summary")?;
    let evidence = read.text_list("evidence")?;
    let outcome = read.optional_text("outcome")?;
    let done = "Recorded. Finish now: the checks decide.";
    match outcome.as_deref().unwrap_or("done") {
        "done" => {
            let line =
                json!({"mainstem": "claimed_done", "summary": summary, "evidence": evidence});
            Ok(McpToolCall::Say(line, done))
        }
        word @ ("nothing_to_do" | "blocked") => Ok(McpToolCall::Say(
            json!({"mainstem": word, "reason": summary}),
            "Recorded. Finish now.",
        )),
        other => Err(format!("`outcome` must be done, nothing_to_do or blocked, not `{other}`")),
    }
}

/// Typed access with messages for the model.
struct McpArguments<'a> {
    tool: &'a str,
    arguments: &'a Map<String, Value>,
}

impl McpArguments<'_> {
    fn optional_text(&self, key: &str) -> Result<Option<String>, String> {
        match self.arguments.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_BYTES_MAX => {
                Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
            }
            Some(Value::String(_)) => {
                Err(format!("`{key}` is longer than {TEXT_BYTES_MAX} bytes; use a shorter text"))
            }
            Some(_) => Err(format!("`{key}` must be a string")),
        }
    }

    fn required_text(&self, key: &str) -> Result<String, String> {
        self.optional_text(key)?
            .ok_or_else(|| format!("missing argument `{key}` of `{}`", self.tool))
    }

    fn text_list(&self, key: &str) -> Result<Vec<String>, String> {
        let wrong = || format!("`{key}` must be a list of at most {LIST_MAX} strings");
        let list = match self.arguments.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(list)) if list.len() <= LIST_MAX => list,
            Some(_) => return Err(wrong()),
        };
        let text = |value: &Value| {
            let text = value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX);
            text.map(str::to_owned).ok_or_else(wrong)
        };
        list.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn called(name: &str, arguments: Value) -> Result<McpToolCall, String> {
        parse_call(name, arguments.as_object().unwrap())
    }

    #[test]
    fn a_question_becomes_a_line_of_the_protocol() {
        let Ok(McpToolCall::Ask(line)) = called(
            "ask",
            json!({"question": " Which? ", "options": ["a", "b"], "default": "a", "deadline_seconds": 2.5}),
        ) else {
            panic!("a question asks")
        };
        assert_eq!(
            Value::Object(line),
            json!({"mainstem": "ask", "question": "Which?", "options": ["a", "b"], "default": "a", "deadline": 2.5})
        );
    }

    #[test]
    fn a_deadline_always_leads_to_an_answer() {
        let Ok(McpToolCall::Ask(line)) =
            called("ask", json!({"question": "?", "deadline_seconds": 1}))
        else {
            panic!("a question asks")
        };
        assert_eq!(line["default"], NO_ANSWER);
        let Ok(McpToolCall::Ask(line)) = called("ask", json!({"question": "?"})) else {
            panic!("a question asks")
        };
        assert!(!line.contains_key("default") && !line.contains_key("deadline"));
    }

    #[test]
    fn what_a_tool_cannot_take_is_said_in_words() {
        let said = |name: &str, arguments: Value| called(name, arguments).unwrap_err();
        assert_eq!(said("ask", json!({})), "missing argument `question` of `ask`");
        assert_eq!(said("ask", json!({"question": "  "})), "missing argument `question` of `ask`");
        assert_eq!(said("ask", json!({"question": 7})), "`question` must be a string");
        assert_eq!(said("ask", json!({"question": "?", "x": 1})), "unknown argument `x` of `ask`");
        assert!(said("ask", json!({"question": "?", "deadline_seconds": -1})).contains("seconds"));
        assert!(said("ask", json!({"question": "x".repeat(20_000)})).contains("shorter"));
        assert!(
            said("complete_task", json!({"summary": "s", "outcome": "great"})).contains("great")
        );
        assert!(
            said("propose_task", json!({"title": "t", "description": "d", "needs": [1]}))
                .contains("list")
        );
        assert!(said("merge", json!({})).contains("unknown tool `merge`"));
    }

    #[test]
    fn the_end_of_the_work_is_said_in_the_word_that_fits() {
        let line = |arguments: Value| match called("complete_task", arguments) {
            Ok(McpToolCall::Say(line, _)) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            line(json!({"summary": "s", "evidence": ["ran"]})),
            json!({"mainstem": "claimed_done", "summary": "s", "evidence": ["ran"]})
        );
        assert_eq!(
            line(json!({"summary": "s", "outcome": "nothing_to_do"})),
            json!({"mainstem": "nothing_to_do", "reason": "s"})
        );
        assert_eq!(
            line(json!({"summary": "s", "outcome": "blocked"})),
            json!({"mainstem": "blocked", "reason": "s"})
        );
    }

    #[test]
    fn every_listed_tool_can_be_called_with_what_it_requires() {
        for tool in list_tools() {
            let required = tool.schema["required"].as_array().unwrap();
            let arguments: Map<_, _> = required
                .iter()
                .map(|key| (key.as_str().unwrap().to_owned(), Value::from("x")))
                .collect();
            assert!(parse_call(tool.name, &arguments).is_ok(), "{}", tool.name);
        }
    }
}
