//! Which script a conversation carries, which step it has come to, and what that step is in the agent's
//! own tools. Knows no protocol.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LlmSpeaker {
    User,
    Model,
    Other,
}

/// A tool that the agent offers.
#[derive(Debug, Clone)]
pub(super) struct LlmOfferedTool {
    pub(super) name: String,
    pub(super) schema: Value,
    /// The group it is in, for protocols that have groups.
    pub(super) group: Option<String>,
}

/// A conversation, whatever its protocol.
#[derive(Debug, Default)]
pub(super) struct LlmConversation {
    /// Who, what, and the highest step number among its call ids.
    pub(super) items: Vec<(LlmSpeaker, String, Option<u64>)>,
    pub(super) tools: Vec<LlmOfferedTool>,
    /// Everything that may name the working directory.
    pub(super) blob: String,
}

/// A script and where the conversation is in it.
pub(super) struct LlmScriptPosition {
    pub(super) script: Value,
    pub(super) raw: String,
    pub(super) step: u64,
    /// How often the model spoke before the script came.
    pub(super) earlier: usize,
}

/// A step in the agent's own tools.
pub(super) struct LlmScriptStep {
    pub(super) number: u64,
    pub(super) plan: Value,
    pub(super) text: String,
    pub(super) calls: Vec<(String, Value)>,
}

impl LlmScriptStep {
    /// Tokens read, written and cached.
    pub(super) fn usage(&self) -> (u64, u64, u64) {
        let count = |key: &str, other: u64| self.plan["usage"][key].as_u64().unwrap_or(other);
        (count("in", 1000), count("out", 50), count("cached", 0))
    }

    /// An id for a call that carries the step's number, so that it is found again.
    pub(super) fn call_id(&self, prefix: &str) -> String {
        format!("{prefix}s{}q{}", self.number, unique())
    }
}

/// Sixteen hexadecimal digits that do not come again.
pub(super) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    // Spread over all digits: some clients shorten ids.
    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The highest step number that one of these ids carries.
pub(super) fn mark<'i>(ids: impl Iterator<Item = &'i str>) -> Option<u64> {
    ids.filter_map(|id| {
        id.match_indices("_s").find_map(|(at, _)| {
            let (number, rest) = id[at + 2..].split_once('q')?;
            let hex = rest.get(..16)?.bytes().all(|byte| byte.is_ascii_hexdigit());
            number.parse().ok().filter(|_| hex)
        })
    })
    .max()
}

/// The last script in a text.
fn directive(text: &str) -> Option<(Value, String)> {
    let start = text.rfind("<<STUB")?;
    let rest = &text[start + "<<STUB".len()..];
    let raw = rest[..rest.find("STUB>>")?].trim().to_owned();
    let script = match serde_json::from_str(&raw) {
        Ok(Value::Array(steps)) => json!({ "steps": steps }),
        Ok(script) => script,
        Err(error) => json!({"steps": [{"say": format!("stub: bad directive: {error}")}]}),
    };
    Some((script, raw))
}

/// One of a script's `cases`, by a text that the prompt around the script must hold.
fn case_of(script: Value, prompt: &str) -> Value {
    let Some(cases) = script["cases"].as_array() else { return script };
    let holds = |text: &Value| text.as_str().is_none_or(|text| prompt.contains(text));
    let lacks = |text: &Value| text.as_str().is_none_or(|text| !prompt.contains(text));
    let fits = |case: &&Value| holds(&case["when"]) && lacks(&case["unless"]);
    cases.iter().find(fits).cloned().unwrap_or(json!({"steps": []}))
}

pub(super) fn choose(talk: &LlmConversation) -> LlmScriptPosition {
    let newest = talk.items.iter().enumerate().rev().find_map(|(at, (who, text, _))| {
        let found = (*who == LlmSpeaker::User).then(|| directive(text))??;
        Some((at, found))
    });
    let newest = newest.map(|(at, (script, raw))| {
        let said = talk.items[at].1.replace(&raw, "");
        (at, (case_of(script, &said), raw))
    });
    let (start, (script, raw)) =
        newest.unwrap_or((0, (json!({"steps": [{"say": "stub: nothing to do"}]}), String::new())));
    let earlier = talk.items[..start].iter().filter(|(who, ..)| *who == LlmSpeaker::Model).count();
    if talk.tools.is_empty() && script["toolless"] != true {
        let script = json!({"steps": [{"say": "stub side answer"}]});
        return LlmScriptPosition { script, raw: format!("(side) {raw}"), step: 0, earlier };
    }
    // The highest number in our call ids, and the turns without calls after it.
    let (mut base, mut turns, mut before) = (0, 0, None);
    for (who, _, mark) in &talk.items[start..] {
        match (who, mark) {
            (LlmSpeaker::Model, Some(mark)) => (base, turns) = (base.max(mark + 1), 0),
            (LlmSpeaker::Model, None) if before != Some(LlmSpeaker::Model) => turns += 1,
            _ => {}
        }
        before = Some(*who);
    }
    LlmScriptPosition { script, raw, step: base + turns, earlier }
}

fn list(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    }
}

/// The step in the agent's own tools.
pub(super) fn play(chosen: &LlmScriptPosition, talk: &LlmConversation) -> LlmScriptStep {
    let at = usize::try_from(chosen.step).unwrap_or(usize::MAX);
    let plan = chosen.script["steps"].get(at).cloned().unwrap_or(json!({"say": "stub: done"}));
    let cwd = working_directory(&talk.blob);
    let mut calls = Vec::new();
    let mut text = plan["say"].as_str().unwrap_or_default().to_owned();
    for file in list(&plan["write"]) {
        let path = file["path"].as_str().unwrap_or_default();
        let content = file["content"].as_str().unwrap_or_default();
        match write(&talk.tools, path, content, cwd.as_deref()) {
            Some(call) => calls.push(call),
            None => text.push_str(&format!("\n\n{path}\n```\n{content}```")),
        }
    }
    for command in list(&plan["run"]) {
        calls.extend(shell(&talk.tools, command.as_str().unwrap_or_default()));
    }
    for tool in list(&plan["tool"]) {
        let name = tool["name"].as_str().unwrap_or_default();
        calls.push((named(&talk.tools, name), tool["args"].clone()));
    }
    if text.is_empty() && calls.is_empty() {
        text = "stub: ok".to_owned();
    }
    LlmScriptStep { number: chosen.step, plan, text, calls }
}

const WRITERS: [&str; 7] =
    ["Write", "write_file", "write", "write_to_file", "create_file", "create", "developer__write"];
const SHELLS: [&str; 9] = [
    "Bash",
    "run_shell_command",
    "bash",
    "exec_command",
    "shell_command",
    "shell",
    "execute_command",
    "developer__shell",
    "run_command",
];

fn offered<'t>(tools: &'t [LlmOfferedTool], names: &[&str]) -> Option<&'t LlmOfferedTool> {
    names.iter().find_map(|name| tools.iter().find(|tool| tool.name.eq_ignore_ascii_case(name)))
}

fn key<'k>(tool: &LlmOfferedTool, keys: &[&'k str]) -> Option<&'k str> {
    keys.iter().copied().find(|key| tool.schema["properties"].get(key).is_some())
}

/// Gives every other required parameter a value that may pass.
fn filled(tool: &LlmOfferedTool, mut args: Map<String, Value>) -> Value {
    for name in tool.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if args.contains_key(name) {
            continue;
        }
        let wants = &tool.schema["properties"][name];
        let value = match wants["type"].as_str() {
            _ if wants["enum"].is_array() => wants["enum"][0].clone(),
            Some("boolean") => json!(false),
            Some("integer" | "number") => json!(60),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("stub"),
        };
        args.insert(name.to_owned(), value);
    }
    Value::Object(args)
}

fn shell(tools: &[LlmOfferedTool], command: &str) -> Option<(String, Value)> {
    let tool = offered(tools, &SHELLS)?;
    let key = key(tool, &["command", "cmd", "script"]).unwrap_or("command");
    let array = tool.schema["properties"][key]["type"] == "array";
    let value = if array { json!(["bash", "-lc", command]) } else { json!(command) };
    Some((tool.name.clone(), filled(tool, Map::from_iter([(key.to_owned(), value)]))))
}

fn write(
    tools: &[LlmOfferedTool],
    path: &str,
    content: &str,
    cwd: Option<&str>,
) -> Option<(String, Value)> {
    if let Some(tool) = offered(tools, &WRITERS)
        && let Some(path_key) = key(tool, &["file_path", "filePath", "path", "absolute_path"])
        && let Some(body_key) = key(tool, &["content", "contents", "file_text", "text"])
    {
        let full = match cwd {
            Some(cwd) if !path.starts_with('/') => format!("{cwd}/{path}"),
            _ => path.to_owned(),
        };
        let args = [(path_key.to_owned(), json!(full)), (body_key.to_owned(), json!(content))];
        return Some((tool.name.clone(), filled(tool, Map::from_iter(args))));
    }
    let parent = path
        .rsplit_once('/')
        .map_or(String::new(), |(folder, _)| format!("mkdir -p '{folder}' && "));
    let end = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
    shell(tools, &format!("{parent}cat > '{path}' <<'STUB_EOF'\n{content}{end}STUB_EOF"))
}

/// A tool by its name or, for those of servers, by the end of it.
fn named(tools: &[LlmOfferedTool], name: &str) -> String {
    let ends = |tool: &&LlmOfferedTool| {
        ["__", "_", "-"].iter().any(|s| tool.name.ends_with(&format!("{s}{name}")))
    };
    let exact = tools.iter().find(|tool| tool.name == name);
    exact.or_else(|| tools.iter().find(ends)).map_or_else(|| name.to_owned(), |t| t.name.clone())
}

/// Where the agent works, as its own prompt says.
fn working_directory(blob: &str) -> Option<String> {
    let after = ["orking directory: ", "<cwd>", "currently working in the directory: "];
    after.iter().find_map(|start| {
        let rest = &blob[blob.find(start)? + start.len()..];
        let rest = rest.trim_start_matches('`');
        let end = rest.find(|c: char| c.is_whitespace() || c == '<' || c == '`');
        let path = &rest[..end.unwrap_or(rest.len())];
        path.starts_with('/').then(|| path.trim_end_matches('.').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(items: &[(LlmSpeaker, &str, Option<u64>)]) -> LlmConversation {
        let items = items.iter().map(|(who, text, mark)| (*who, (*text).to_owned(), *mark));
        let bash = LlmOfferedTool {
            name: "Bash".into(),
            schema: json!({"properties": {"command": {"type": "string"}}, "required": ["command"]}),
            group: None,
        };
        LlmConversation {
            items: items.collect(),
            tools: vec![bash],
            blob: "Working directory: /w/x\n".into(),
        }
    }

    #[test]
    fn the_step_follows_from_the_conversation_alone() {
        let prompt = "Do <<STUB [{\"run\":\"a\"},{\"say\":\"b\"}] STUB>> now";
        let first = talk(&[(LlmSpeaker::User, prompt, None)]);
        let step = play(&choose(&first), &first);
        assert_eq!(step.calls, [("Bash".to_owned(), json!({"command": "a"}))]);
        let id = step.call_id("toolu_");
        let seen = mark([id.as_str()].into_iter());
        assert_eq!(seen, Some(0));
        let second = talk(&[
            (LlmSpeaker::User, prompt, None),
            (LlmSpeaker::Model, "", seen),
            (LlmSpeaker::Other, "", None),
        ]);
        let step = play(&choose(&second), &second);
        assert_eq!((step.text.as_str(), step.calls.len()), ("b", 0));
    }

    #[test]
    fn a_file_without_a_writing_tool_is_written_by_the_shell() {
        let talk = talk(&[]);
        let (_, args) = write(&talk.tools, "a/b.txt", "hi", None).expect("there is a shell");
        assert_eq!(args["command"], "mkdir -p 'a' && cat > 'a/b.txt' <<'STUB_EOF'\nhi\nSTUB_EOF");
        assert_eq!(working_directory(&talk.blob).as_deref(), Some("/w/x"));
    }
}
