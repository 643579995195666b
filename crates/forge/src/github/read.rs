//! Answers of GitHub's REST API, read and nothing more. What is missing is empty; what a decision
//! hangs on and cannot be read is an error.

use serde_json::Value;

use crate::model::{
    Check, CheckState, Comment, Issue, Mergeable, Pull, PullState, Review, ReviewState,
};

/// Bytes of a check's words that are kept.
const DETAIL_BYTES_MAX: usize = 4_000;

/// Why an answer cannot be read.
pub type Odd = String;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> Result<u64, Odd> {
    value[key].as_u64().ok_or_else(|| format!("no `{key}`"))
}

fn needed(value: &Value, key: &str) -> Result<String, Odd> {
    match value[key].as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("no `{key}`")),
    }
}

/// The entries of a list, which some answers wrap.
pub fn entries<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], Odd> {
    let list = if value.is_array() { value } else { &value[key] };
    list.as_array().map(Vec::as_slice).ok_or_else(|| "no list".to_owned())
}

/// A pull request.
pub fn pull(value: &Value) -> Result<Pull, Odd> {
    let merged = value["merged_at"].is_string() || value["merged"] == true;
    let state = match value["state"].as_str() {
        _ if merged => PullState::Merged { commit: needed(value, "merge_commit_sha")? },
        Some("open") => PullState::Open,
        Some("closed") => PullState::Closed,
        other => return Err(format!("the state {other:?}")),
    };
    Ok(Pull {
        number: number(value, "number")?,
        url: text(&value["html_url"]),
        title: text(&value["title"]),
        state,
        draft: value["draft"] == true,
        head: needed(&value["head"], "ref")?,
        head_commit: needed(&value["head"], "sha")?,
        base: needed(&value["base"], "ref")?,
        mergeable: mergeable(value),
    })
}

/// A forge that is still thinking says null, and so does one that was asked for a list.
fn mergeable(value: &Value) -> Mergeable {
    match (value["mergeable"].as_bool(), value["mergeable_state"].as_str().unwrap_or_default()) {
        (Some(false), _) | (_, "dirty") => Mergeable::Conflict,
        (None, _) | (_, "unknown") => Mergeable::Unknown,
        (_, "behind") => Mergeable::Behind,
        (_, "blocked") => Mergeable::Blocked,
        (Some(true), _) => Mergeable::Yes,
    }
}

/// A check of the newer kind.
pub fn check_run(value: &Value) -> Result<Check, Odd> {
    let ended = value["status"] == "completed";
    let state = match value["conclusion"].as_str() {
        _ if !ended => CheckState::Pending,
        Some("success") => CheckState::Passed,
        Some("neutral" | "skipped") => CheckState::Neutral,
        // failure, cancelled, timed_out, action_required, stale, and whatever comes
        _ => CheckState::Failed,
    };
    let output = &value["output"];
    let conclusion = value["conclusion"].as_str().filter(|word| *word != "success");
    let parts = [
        conclusion.unwrap_or_default(),
        output["title"].as_str().unwrap_or_default(),
        output["summary"].as_str().unwrap_or_default(),
        output["text"].as_str().unwrap_or_default(),
        value["details_url"].as_str().unwrap_or_default(),
    ];
    let is_job = value["app"]["slug"] == "github-actions";
    Ok(Check {
        name: needed(value, "name")?,
        state,
        detail: joined(&parts),
        job: value["id"].as_u64().filter(|_| is_job),
    })
}

/// A check of the older kind.
pub fn status(value: &Value) -> Result<Check, Odd> {
    let state = match value["state"].as_str() {
        Some("success") => CheckState::Passed,
        Some("pending") => CheckState::Pending,
        _ => CheckState::Failed,
    };
    let parts = [
        value["description"].as_str().unwrap_or_default(),
        value["target_url"].as_str().unwrap_or_default(),
    ];
    Ok(Check { name: needed(value, "context")?, state, detail: joined(&parts), job: None })
}

fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|p| !p.is_empty()).collect();
    clip(&parts.join("\n"), DETAIL_BYTES_MAX)
}

/// The beginning of a text, at most so many bytes.
pub fn clip(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// The end of a text, at most so many bytes, from the beginning of a line.
pub fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = &text[from..];
    if from == 0 { rest } else { rest.split_once('\n').map_or(rest, |(_, rest)| rest) }
}

/// A review; none if nobody has handed it in yet.
pub fn review(value: &Value) -> Result<Option<Review>, Odd> {
    let state = match value["state"].as_str() {
        Some("APPROVED") => ReviewState::Approved,
        Some("CHANGES_REQUESTED") => ReviewState::ChangesRequested,
        Some("DISMISSED") => ReviewState::Dismissed,
        Some("COMMENTED") => ReviewState::Commented,
        Some("PENDING") => return Ok(None),
        other => return Err(format!("the review state {other:?}")),
    };
    Ok(Some(Review {
        id: number(value, "id")?,
        who: text(&value["user"]["login"]),
        state,
        body: text(&value["body"]),
        commit: text(&value["commit_id"]),
    }))
}

/// A remark.
pub fn comment(value: &Value) -> Result<Comment, Odd> {
    let line = value["line"].as_u64().or_else(|| value["original_line"].as_u64());
    Ok(Comment {
        id: number(value, "id")?,
        who: text(&value["user"]["login"]),
        body: text(&value["body"]),
        review: value["pull_request_review_id"].as_u64(),
        at: value["path"].as_str().map(|path| (path.to_owned(), line)),
    })
}

/// An issue; none if it is a pull request, which GitHub lists among them.
pub fn issue(value: &Value) -> Result<Option<Issue>, Odd> {
    if value["pull_request"].is_object() {
        return Ok(None);
    }
    let labels = value["labels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |label: &Value| label["name"].as_str().or(label.as_str()).map(str::to_owned);
    Ok(Some(Issue {
        number: number(value, "number")?,
        title: text(&value["title"]),
        body: text(&value["body"]),
        open: value["state"] != "closed",
        labels: labels.iter().filter_map(name).collect(),
        milestone: value["milestone"]["title"].as_str().map(str::to_owned),
        url: text(&value["html_url"]),
        blocked_by: Vec::new(),
        parts: Vec::new(),
    }))
}

/// Whether an issue says that it waits for others, and that it has parts.
pub fn has_edges(value: &Value) -> (bool, bool) {
    let some = |at: &str| value.pointer(at).and_then(Value::as_u64).is_some_and(|n| n > 0);
    let waits = some("/issue_dependencies_summary/total_blocked_by")
        || some("/issue_dependencies_summary/blocked_by");
    (waits, some("/sub_issues_summary/total"))
}

/// What the forge says is wrong.
pub fn complaint(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut parts = vec![text(&value["message"])];
    for error in value["errors"].as_array().map(Vec::as_slice).unwrap_or_default() {
        parts.push(error["message"].as_str().or(error.as_str()).unwrap_or_default().to_owned());
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        parts.push(clip(String::from_utf8_lossy(body).trim(), 200));
    }
    parts.join("; ")
}

/// The address of the next page.
pub fn next_page(link: &str) -> Option<&str> {
    link.split(',').find_map(|part| {
        let (address, rest) = part.trim().strip_prefix('<')?.split_once('>')?;
        rest.contains("rel=\"next\"").then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn a_pull() -> Value {
        json!({
            "number": 7, "state": "open", "title": "T", "html_url": "u", "draft": false,
            "merged_at": null, "merge_commit_sha": "test-merge",
            "head": {"ref": "mainstem/T-1", "sha": "aaa"}, "base": {"ref": "main", "sha": "bbb"},
            "mergeable": true, "mergeable_state": "clean",
        })
    }

    #[test]
    fn a_pull_request_is_open_closed_or_merged_whatever_else_the_answer_holds() {
        let mut value = a_pull();
        let read = pull(&value).map(|pull| (pull.state, pull.mergeable, pull.head_commit));
        assert_eq!(read, Ok((PullState::Open, Mergeable::Yes, "aaa".to_owned())));
        value["state"] = json!("closed");
        assert_eq!(pull(&value).map(|pull| pull.state), Ok(PullState::Closed));
        value["merged_at"] = json!("2026-01-01T00:00:00Z");
        let merged = PullState::Merged { commit: "test-merge".to_owned() };
        assert_eq!(pull(&value).map(|pull| pull.state), Ok(merged));
        value["head"] = json!({});
        assert!(pull(&value).is_err());
        assert!(pull(&json!({"message": "Not Found"})).is_err());
    }

    #[test]
    fn what_the_forge_has_not_found_out_is_not_taken_for_an_answer() {
        let of = |yes: Value, state: &str| {
            let mut value = a_pull();
            value["mergeable"] = yes;
            value["mergeable_state"] = json!(state);
            pull(&value).map(|pull| pull.mergeable)
        };
        assert_eq!(of(Value::Null, "unknown"), Ok(Mergeable::Unknown));
        assert_eq!(of(json!(true), "unknown"), Ok(Mergeable::Unknown));
        assert_eq!(of(json!(false), "dirty"), Ok(Mergeable::Conflict));
        assert_eq!(of(json!(true), "behind"), Ok(Mergeable::Behind));
        assert_eq!(of(json!(true), "blocked"), Ok(Mergeable::Blocked));
        assert_eq!(of(json!(true), "unstable"), Ok(Mergeable::Yes));
    }

    #[test]
    fn a_check_passes_only_if_it_ended_and_says_so() {
        let of = |status: &str, conclusion: Value| {
            let value = json!({"name": "ci", "status": status, "conclusion": conclusion});
            check_run(&value).map(|check| check.state)
        };
        assert_eq!(of("completed", json!("success")), Ok(CheckState::Passed));
        assert_eq!(of("in_progress", json!("success")), Ok(CheckState::Pending));
        assert_eq!(of("queued", Value::Null), Ok(CheckState::Pending));
        assert_eq!(of("completed", json!("skipped")), Ok(CheckState::Neutral));
        for word in ["failure", "cancelled", "timed_out", "action_required", "something new"] {
            assert_eq!(of("completed", json!(word)), Ok(CheckState::Failed), "{word}");
        }
        assert_eq!(of("completed", Value::Null), Ok(CheckState::Failed));
        let old = |state: &str| status(&json!({"context": "c", "state": state})).map(|c| c.state);
        assert_eq!(old("error"), Ok(CheckState::Failed));
        assert_eq!(old("pending"), Ok(CheckState::Pending));
    }

    #[test]
    fn the_next_page_is_named_by_its_relation() {
        let link = "<https://h/x?page=1>; rel=\"prev\", <https://h/x?page=3>; rel=\"next\"";
        assert_eq!(next_page(link), Some("https://h/x?page=3"));
        assert_eq!(next_page("<https://h/x?page=1>; rel=\"first\""), None);
    }

    #[test]
    fn complaints_are_read_and_long_texts_cut_between_letters() {
        let body = br#"{"message":"Validation Failed","errors":[{"message":"exists"},"odd"]}"#;
        assert_eq!(complaint(body), "Validation Failed; exists; odd");
        assert_eq!(complaint(b"<html>bad gateway"), "<html>bad gateway");
        assert_eq!(clip("äöü", 3), "ä");
        assert_eq!(tail("one\ntwo\nthree\n", 8), "three\n");
        assert_eq!(tail("short", 100), "short");
    }
}
