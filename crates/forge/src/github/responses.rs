//! Answers of GitHub's REST API, read and nothing more. What is missing is empty; what a decision
//! hangs on and cannot be read is an error.

use serde_json::Value;

use crate::model::{
    ForgeCheck, ForgeCheckState, ForgeComment, ForgeIssue, ForgeMergeability, ForgePullRequest,
    ForgePullRequestState, ForgeReview, ForgeReviewState,
};

/// Bytes of a check's words that are kept.
const DETAIL_BYTES_MAX: usize = 4_000;

/// Why an answer cannot be read.
pub type UnreadableResponse = String;

fn text_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn required_number(value: &Value, key: &str) -> Result<u64, UnreadableResponse> {
    value[key].as_u64().ok_or_else(|| format!("no `{key}`"))
}

fn required_text(value: &Value, key: &str) -> Result<String, UnreadableResponse> {
    match value[key].as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("no `{key}`")),
    }
}

/// The entries of a list, which some answers wrap.
pub fn list_entries<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], UnreadableResponse> {
    let list = if value.is_array() { value } else { &value[key] };
    list.as_array().map(Vec::as_slice).ok_or_else(|| "no list".to_owned())
}

pub fn parse_pull_request(value: &Value) -> Result<ForgePullRequest, UnreadableResponse> {
    let merged = value["merged_at"].is_string() || value["merged"] == true;
    let state = match value["state"].as_str() {
        _ if merged => {
            ForgePullRequestState::Merged { commit: required_text(value, "merge_commit_sha")? }
        }
        Some("open") => ForgePullRequestState::Open,
        Some("closed") => ForgePullRequestState::Closed,
        other => return Err(format!("the state {other:?}")),
    };
    Ok(ForgePullRequest {
        number: required_number(value, "number")?,
        url: text_or_empty(&value["html_url"]),
        title: text_or_empty(&value["title"]),
        state,
        draft: value["draft"] == true,
        head: required_text(&value["head"], "ref")?,
        head_commit: required_text(&value["head"], "sha")?,
        base: required_text(&value["base"], "ref")?,
        mergeable: parse_mergeability(value),
    })
}

/// A forge that is still thinking says null, and so does one that was asked for a list.
fn parse_mergeability(value: &Value) -> ForgeMergeability {
    match (value["mergeable"].as_bool(), value["mergeable_state"].as_str().unwrap_or_default()) {
        (Some(false), _) | (_, "dirty") => ForgeMergeability::Conflict,
        (None, _) | (_, "unknown") => ForgeMergeability::Unknown,
        (_, "behind") => ForgeMergeability::Behind,
        (_, "blocked") => ForgeMergeability::Blocked,
        (Some(true), _) => ForgeMergeability::Yes,
    }
}

/// A check of the newer kind.
pub fn parse_check_run(value: &Value) -> Result<ForgeCheck, UnreadableResponse> {
    let ended = value["status"] == "completed";
    let state = match value["conclusion"].as_str() {
        _ if !ended => ForgeCheckState::Pending,
        Some("success") => ForgeCheckState::Passed,
        Some("neutral" | "skipped") => ForgeCheckState::Neutral,
        // failure, cancelled, timed_out, action_required, stale, and whatever comes
        _ => ForgeCheckState::Failed,
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
    Ok(ForgeCheck {
        name: required_text(value, "name")?,
        state,
        detail: join_texts(&parts),
        job: value["id"].as_u64().filter(|_| is_job),
    })
}

/// A check of the older kind.
pub fn parse_commit_status(value: &Value) -> Result<ForgeCheck, UnreadableResponse> {
    let state = match value["state"].as_str() {
        Some("success") => ForgeCheckState::Passed,
        Some("pending") => ForgeCheckState::Pending,
        _ => ForgeCheckState::Failed,
    };
    let parts = [
        value["description"].as_str().unwrap_or_default(),
        value["target_url"].as_str().unwrap_or_default(),
    ];
    Ok(ForgeCheck {
        name: required_text(value, "context")?,
        state,
        detail: join_texts(&parts),
        job: None,
    })
}

fn join_texts(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|p| !p.is_empty()).collect();
    truncate_head(&parts.join("\n"), DETAIL_BYTES_MAX)
}

/// The beginning of a text, at most so many bytes.
pub fn truncate_head(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// The end of a text, at most so many bytes, from the beginning of a line.
pub fn truncate_tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = &text[from..];
    if from == 0 { rest } else { rest.split_once('\n').map_or(rest, |(_, rest)| rest) }
}

/// A review; none if nobody has handed it in yet.
pub fn parse_review(value: &Value) -> Result<Option<ForgeReview>, UnreadableResponse> {
    let state = match value["state"].as_str() {
        Some("APPROVED") => ForgeReviewState::Approved,
        Some("CHANGES_REQUESTED") => ForgeReviewState::ChangesRequested,
        Some("DISMISSED") => ForgeReviewState::Dismissed,
        Some("COMMENTED") => ForgeReviewState::Commented,
        Some("PENDING") => return Ok(None),
        other => return Err(format!("the review state {other:?}")),
    };
    Ok(Some(ForgeReview {
        id: required_number(value, "id")?,
        who: text_or_empty(&value["user"]["login"]),
        state,
        body: text_or_empty(&value["body"]),
        commit: text_or_empty(&value["commit_id"]),
    }))
}

pub fn parse_comment(value: &Value) -> Result<ForgeComment, UnreadableResponse> {
    let line = value["line"].as_u64().or_else(|| value["original_line"].as_u64());
    Ok(ForgeComment {
        id: required_number(value, "id")?,
        who: text_or_empty(&value["user"]["login"]),
        body: text_or_empty(&value["body"]),
        review: value["pull_request_review_id"].as_u64(),
        at: value["path"].as_str().map(|path| (path.to_owned(), line)),
    })
}

/// An issue; none if it is a pull request, which GitHub lists among them.
pub fn parse_issue(value: &Value) -> Result<Option<ForgeIssue>, UnreadableResponse> {
    if value["pull_request"].is_object() {
        return Ok(None);
    }
    let labels = value["labels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |label: &Value| label["name"].as_str().or(label.as_str()).map(str::to_owned);
    Ok(Some(ForgeIssue {
        number: required_number(value, "number")?,
        title: text_or_empty(&value["title"]),
        body: text_or_empty(&value["body"]),
        open: value["state"] != "closed",
        labels: labels.iter().filter_map(name).collect(),
        milestone: value["milestone"]["title"].as_str().map(str::to_owned),
        url: text_or_empty(&value["html_url"]),
        blocked_by: Vec::new(),
        parts: Vec::new(),
    }))
}

/// Whether an issue says that it waits for others, and that it has parts.
pub fn issue_relations(value: &Value) -> (bool, bool) {
    let some = |at: &str| value.pointer(at).and_then(Value::as_u64).is_some_and(|n| n > 0);
    let waits = some("/issue_dependencies_summary/total_blocked_by")
        || some("/issue_dependencies_summary/blocked_by");
    (waits, some("/sub_issues_summary/total"))
}

/// What the forge says is wrong.
pub fn parse_error_message(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut parts = vec![text_or_empty(&value["message"])];
    for error in value["errors"].as_array().map(Vec::as_slice).unwrap_or_default() {
        parts.push(error["message"].as_str().or(error.as_str()).unwrap_or_default().to_owned());
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        parts.push(truncate_head(String::from_utf8_lossy(body).trim(), 200));
    }
    parts.join("; ")
}

/// The address of the next page.
pub fn next_page_url(link: &str) -> Option<&str> {
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
        let read =
            parse_pull_request(&value).map(|pull| (pull.state, pull.mergeable, pull.head_commit));
        assert_eq!(
            read,
            Ok((ForgePullRequestState::Open, ForgeMergeability::Yes, "aaa".to_owned()))
        );
        value["state"] = json!("closed");
        assert_eq!(
            parse_pull_request(&value).map(|pull| pull.state),
            Ok(ForgePullRequestState::Closed)
        );
        value["merged_at"] = json!("2026-01-01T00:00:00Z");
        let merged = ForgePullRequestState::Merged { commit: "test-merge".to_owned() };
        assert_eq!(parse_pull_request(&value).map(|pull| pull.state), Ok(merged));
        value["head"] = json!({});
        assert!(parse_pull_request(&value).is_err());
        assert!(parse_pull_request(&json!({"message": "Not Found"})).is_err());
    }

    #[test]
    fn what_the_forge_has_not_found_out_is_not_taken_for_an_answer() {
        let of = |yes: Value, state: &str| {
            let mut value = a_pull();
            value["mergeable"] = yes;
            value["mergeable_state"] = json!(state);
            parse_pull_request(&value).map(|pull| pull.mergeable)
        };
        assert_eq!(of(Value::Null, "unknown"), Ok(ForgeMergeability::Unknown));
        assert_eq!(of(json!(true), "unknown"), Ok(ForgeMergeability::Unknown));
        assert_eq!(of(json!(false), "dirty"), Ok(ForgeMergeability::Conflict));
        assert_eq!(of(json!(true), "behind"), Ok(ForgeMergeability::Behind));
        assert_eq!(of(json!(true), "blocked"), Ok(ForgeMergeability::Blocked));
        assert_eq!(of(json!(true), "unstable"), Ok(ForgeMergeability::Yes));
    }

    #[test]
    fn a_check_passes_only_if_it_ended_and_says_so() {
        let of = |status: &str, conclusion: Value| {
            let value = json!({"name": "ci", "status": status, "conclusion": conclusion});
            parse_check_run(&value).map(|check| check.state)
        };
        assert_eq!(of("completed", json!("success")), Ok(ForgeCheckState::Passed));
        assert_eq!(of("in_progress", json!("success")), Ok(ForgeCheckState::Pending));
        assert_eq!(of("queued", Value::Null), Ok(ForgeCheckState::Pending));
        assert_eq!(of("completed", json!("skipped")), Ok(ForgeCheckState::Neutral));
        for word in ["failure", "cancelled", "timed_out", "action_required", "something new"] {
            assert_eq!(of("completed", json!(word)), Ok(ForgeCheckState::Failed), "{word}");
        }
        assert_eq!(of("completed", Value::Null), Ok(ForgeCheckState::Failed));
        let old = |state: &str| {
            parse_commit_status(&json!({"context": "c", "state": state})).map(|c| c.state)
        };
        assert_eq!(old("error"), Ok(ForgeCheckState::Failed));
        assert_eq!(old("pending"), Ok(ForgeCheckState::Pending));
    }

    #[test]
    fn the_next_page_is_named_by_its_relation() {
        let link = "<https://h/x?page=1>; rel=\"prev\", <https://h/x?page=3>; rel=\"next\"";
        assert_eq!(next_page_url(link), Some("https://h/x?page=3"));
        assert_eq!(next_page_url("<https://h/x?page=1>; rel=\"first\""), None);
    }

    #[test]
    fn complaints_are_read_and_long_texts_cut_between_letters() {
        let body = br#"{"message":"Validation Failed","errors":[{"message":"exists"},"odd"]}"#;
        assert_eq!(parse_error_message(body), "Validation Failed; exists; odd");
        assert_eq!(parse_error_message(b"<html>bad gateway"), "<html>bad gateway");
        assert_eq!(truncate_head("äöü", 3), "ä");
        assert_eq!(truncate_tail("one\ntwo\nthree\n", 8), "three\n");
        assert_eq!(truncate_tail("short", 100), "short");
    }
}
