//! Which request asks for what. Knows as much of GitHub's REST API as the product speaks.

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::fault::{ForgeFaultKind, due};
use super::state::ForgeStandInState;
use super::{ForgeStandInShared, lock};
use crate::http::{StandInConnection, StandInReply, StandInRequest};

/// Requests of one hour's window, for the headers.
const LIMIT: u64 = 5_000;

/// One connection, request after request.
pub(super) fn connection(stream: TcpStream, shared: &Arc<ForgeStandInShared>) {
    let Ok(mut http) = StandInConnection::new(stream) else { return };
    while let Ok(Some(request)) = http.next() {
        if answer(&mut http, &request, shared).is_err() || http.is_over() {
            return;
        }
    }
}

fn answer(
    http: &mut StandInConnection,
    request: &StandInRequest,
    shared: &Arc<ForgeStandInShared>,
) -> io::Result<()> {
    let fault = due(&mut lock(&shared.state).faults, &request.method, &request.path);
    let plain =
        |status: u64, message: &str| StandInReply::error(status, json!({ "message": message }));
    let note = |status: u64| {
        let entry = json!({
            "method": request.method, "path": request.path, "status": status, "body": request.body,
        });
        lock(&shared.state).requests.push(entry);
    };
    match &fault {
        Some(ForgeFaultKind::DropBefore) => {
            note(0);
            return http.drop_it();
        }
        Some(ForgeFaultKind::Status(status)) => {
            note(u64::from(*status));
            return http.send(&plain(u64::from(*status), "ordered by a test"));
        }
        Some(ForgeFaultKind::RetryAfter(seconds)) => {
            note(429);
            let mut reply = plain(429, "You have exceeded a secondary rate limit");
            reply.headers.push(("retry-after".to_owned(), seconds.to_string()));
            return http.send(&reply);
        }
        Some(ForgeFaultKind::Limited) => {
            note(403);
            return http.send(&plain(403, "You have exceeded a secondary rate limit"));
        }
        Some(ForgeFaultKind::Slow(time)) => std::thread::sleep(*time),
        Some(ForgeFaultKind::DropAfter | ForgeFaultKind::StatusAfter(_)) | None => {}
    }
    let reply = shared.answer(request);
    note(reply.status);
    match fault {
        Some(ForgeFaultKind::DropAfter) => http.drop_it(),
        Some(ForgeFaultKind::StatusAfter(status)) => {
            http.send(&plain(u64::from(status), "ordered by a test"))
        }
        _ => http.send(&reply),
    }
}

impl ForgeStandInShared {
    /// The answer with everything around it: who may ask, limits, ETags, pages.
    fn answer(self: &Arc<Self>, request: &StandInRequest) -> StandInReply {
        let mut state = lock(&self.state);
        let wanted = state.token.as_ref().map(|token| format!("Bearer {token}"));
        if wanted.as_deref().is_some_and(|wanted| request.header("authorization") != Some(wanted)) {
            return StandInReply::error(401, json!({"message": "Bad credentials"}));
        }
        if state.remaining == 0 {
            let mut reply = StandInReply::error(403, json!({"message": "API rate limit exceeded"}));
            reply.headers = limits(&state);
            return reply;
        }
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let Some(rest) = path.strip_prefix("/repos/o/r") else {
            return StandInReply::error(404, json!({"message": "Not Found"}));
        };
        state.refresh();
        let mut reply = route(&mut state, request, rest, query);
        let commits: Vec<String> = state.pulls.iter().map(|p| p.head_commit.clone()).collect();
        let ci = state.ci.clone();
        if request.method == "GET" && reply.status == 200 {
            self.page(&mut reply, path, query);
            let etag = format!("W/\"{:x}\"", hash(&reply.body.to_string()));
            if request.header("if-none-match") == Some(&etag) {
                reply.status = 304;
            }
            reply.headers.push(("etag".to_owned(), etag));
        }
        if reply.status != 304 {
            state.remaining -= 1;
        }
        reply.headers.extend(limits(&state));
        drop(state);
        if let Some(command) = ci {
            commits.iter().for_each(|commit| self.begin_ci(commit, &command));
        }
        reply
    }

    /// One page of a list, and where the next is.
    fn page(&self, reply: &mut StandInReply, path: &str, query: &str) {
        let of_query = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).and_then(|(_, value)| value.parse::<usize>().ok())
        };
        let (size, page) = (of_query("per_page").unwrap_or(30), of_query("page").unwrap_or(1));
        let size = size.min(self.page_max);
        let Some(list) = reply.body.as_array() else { return };
        if list.len() > page * size {
            let kept: Vec<&str> = query.split('&').filter(|p| !p.starts_with("page=")).collect();
            let next = format!("{}{path}?{}&page={}", self.url, kept.join("&"), page + 1);
            reply.headers.push(("link".to_owned(), format!("<{next}>; rel=\"next\"")));
        }
        reply.body = list.iter().skip((page - 1) * size).take(size).cloned().collect();
    }

    /// Runs the ordered command on a commit, once.
    fn begin_ci(self: &Arc<Self>, commit: &str, command: &str) {
        let bare = {
            let mut state = lock(&self.state);
            if state.checks.contains_key(commit) {
                return;
            }
            let check = json!({"name": "ci", "status": "in_progress", "conclusion": null});
            state.checks.insert(commit.to_owned(), vec![check]);
            state.bare.clone()
        };
        let (shared, commit, command) = (Arc::clone(self), commit.to_owned(), command.to_owned());
        std::thread::spawn(move || {
            let (good, said) = bare.try_out(&commit, &command);
            let mut state = lock(&shared.state);
            let id = state.next_number();
            state.logs.insert(id, said);
            let conclusion = if good { "success" } else { "failure" };
            let check = json!({
                "id": id, "name": "ci", "status": "completed", "conclusion": conclusion,
                "app": {"slug": "github-actions"}, "output": {"title": format!("ci: {conclusion}")},
            });
            state.checks.insert(commit, vec![check]);
        });
    }
}

fn limits(state: &ForgeStandInState) -> Vec<(String, String)> {
    let reset = super::now_s() + 60;
    [("limit", LIMIT), ("remaining", state.remaining), ("reset", reset)]
        .map(|(name, value)| (format!("x-ratelimit-{name}"), value.to_string()))
        .to_vec()
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn ok(body: Value) -> StandInReply {
    StandInReply::ok(body)
}

fn created(body: Value) -> StandInReply {
    StandInReply::error(201, body)
}

fn refused(status: u64, message: &str) -> StandInReply {
    StandInReply::error(status, json!({ "message": message }))
}

fn route(
    state: &mut ForgeStandInState,
    request: &StandInRequest,
    rest: &str,
    query: &str,
) -> StandInReply {
    let parts: Vec<&str> = rest.trim_start_matches('/').split('/').collect();
    let number = |part: &str| part.parse::<u64>().unwrap_or(0);
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["pulls"]) => list_pulls(state, query),
        ("POST", ["pulls"]) => match state.create(&request.body) {
            Ok(number) => created(state.show(number, true).unwrap_or_default()),
            Err(why) => refused(422, why),
        },
        ("GET", ["commits", commit, "check-runs"]) => {
            let checks = state.checks.get(*commit).cloned().unwrap_or_default();
            ok(json!({"total_count": checks.len(), "check_runs": checks}))
        }
        ("GET", ["commits", _, "status"]) => ok(json!({"state": "pending", "statuses": []})),
        ("GET", ["actions", "jobs", job, "logs"]) => match state.logs.get(&number(job)) {
            Some(log) => ok(Value::String(log.clone())),
            None => refused(404, "Not Found"),
        },
        ("GET", ["git", "ref", "heads", name @ ..]) => match state.bare.branch(&name.join("/")) {
            Some(commit) => ok(json!({"object": {"sha": commit}})),
            None => refused(404, "Not Found"),
        },
        ("DELETE", ["git", "refs", "heads", name @ ..]) => {
            match state.bare.delete_branch(&name.join("/")) {
                true => {
                    state.refresh();
                    StandInReply::error(204, Value::Null)
                }
                false => refused(422, "Reference does not exist"),
            }
        }
        ("GET", ["milestones"]) => {
            let entry = |(at, title): (usize, &String)| json!({"number": at + 1, "title": title});
            ok(state.milestones.iter().enumerate().map(entry).collect())
        }
        (_, ["pulls", n, more @ ..]) => of_pull(state, request, number(n), more),
        ("GET", ["issues"]) => ok(list_issues(state, query)),
        (_, ["issues", n, more @ ..]) => of_issue(state, request, number(n), more),
        _ => refused(404, "Not Found"),
    }
}

fn list_pulls(state: &mut ForgeStandInState, query: &str) -> StandInReply {
    let of_query = |key: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| decode(value))
    };
    let head = of_query("head").map(|head| head.trim_start_matches("o:").to_owned());
    let base = of_query("base");
    let all = of_query("state").as_deref() == Some("all");
    let wanted = state.pulls.iter().rev().filter(|pull| {
        (all || pull.open)
            && head.as_ref().is_none_or(|head| pull.head == *head)
            && base.as_ref().is_none_or(|base| pull.base == *base)
    });
    let numbers: Vec<u64> = wanted.map(|pull| pull.number).collect();
    ok(numbers.into_iter().filter_map(|number| state.show(number, true)).collect())
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let hex = (*first == b'%').then(|| more.get(..2)).flatten();
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn of_pull(
    state: &mut ForgeStandInState,
    request: &StandInRequest,
    number: u64,
    more: &[&str],
) -> StandInReply {
    if state.pull(number).is_none() {
        return refused(404, "Not Found");
    }
    let done = |result: Result<Value, (u64, &'static str)>| match result {
        Ok(value) => ok(value),
        Err((status, why)) => refused(status, why),
    };
    let list = |list: Option<&mut Vec<Value>>| ok(list.cloned().unwrap_or_default().into());
    match (request.method.as_str(), more) {
        ("GET", []) => ok(state.show(number, false).unwrap_or_default()),
        ("PATCH", []) => {
            let base = request.body["base"].as_str();
            if base.is_some_and(|base| state.bare.branch(base).is_none()) {
                return refused(422, "Proposed base branch was not found");
            }
            if let Some(pull) = state.pull(number) {
                let text = |key: &str| request.body[key].as_str().map(str::to_owned);
                pull.title = text("title").unwrap_or_else(|| pull.title.clone());
                pull.body = text("body").unwrap_or_else(|| pull.body.clone());
                pull.base = text("base").unwrap_or_else(|| pull.base.clone());
                pull.open &= text("state").as_deref() != Some("closed");
            }
            ok(state.show(number, true).unwrap_or_default())
        }
        ("PUT", ["merge"]) => done(state.merge(number, &request.body)),
        ("PUT", ["update-branch"]) => match state.update(number, &request.body) {
            Ok(value) => StandInReply::error(202, value),
            Err((status, why)) => refused(status, why),
        },
        ("GET", ["reviews"]) => list(state.pull(number).map(|pull| &mut pull.reviews)),
        ("GET", ["comments"]) => list(state.pull(number).map(|pull| &mut pull.line_comments)),
        _ => refused(404, "Not Found"),
    }
}

fn list_issues(state: &ForgeStandInState, query: &str) -> Value {
    let all = query.contains("state=all");
    let issues = state.issues.iter().filter(|issue| all || issue["state"] == "open").cloned();
    // GitHub lists pull requests among the issues.
    let pulls = state.pulls.iter().filter(|pull| all || pull.open);
    let pulls = pulls.map(|pull| json!({"number": pull.number, "pull_request": {"url": "u"}}));
    issues.chain(pulls).collect()
}

fn of_issue(
    state: &mut ForgeStandInState,
    request: &StandInRequest,
    number: u64,
    more: &[&str],
) -> StandInReply {
    let named = |numbers: Option<&Vec<u64>>| -> Value {
        numbers.into_iter().flatten().map(|n| json!({ "number": n })).collect()
    };
    match (request.method.as_str(), more) {
        ("GET", ["dependencies", "blocked_by"]) => ok(named(state.blocked_by.get(&number))),
        ("GET", ["sub_issues"]) => ok(named(state.parts.get(&number))),
        ("GET", ["comments"]) => match state.pull(number) {
            Some(pull) => ok(pull.comments.clone().into()),
            None => refused(404, "Not Found"),
        },
        ("POST", ["comments"]) => {
            let id = state.next_number();
            let Some(pull) = state.pull(number) else { return refused(404, "Not Found") };
            let body = request.body["body"].clone();
            let comment = json!({"id": id, "body": body, "user": {"login": "us"}});
            pull.comments.push(comment.clone());
            created(comment)
        }
        ("POST", ["labels"]) => {
            let Some(pull) = state.pull(number) else { return refused(404, "Not Found") };
            for label in request.body["labels"].as_array().into_iter().flatten() {
                let label = label.as_str().unwrap_or_default().to_owned();
                if !pull.labels.contains(&label) {
                    pull.labels.push(label);
                }
            }
            ok(json!(pull.labels))
        }
        ("PATCH", []) => {
            let Some(pull) = state.pull(number) else { return refused(404, "Not Found") };
            pull.milestone = request.body["milestone"].as_u64().or(pull.milestone);
            ok(json!({ "number": number }))
        }
        _ => refused(404, "Not Found"),
    }
}

/// The lock of a state.
pub(super) type ForgeStandInGuard = Mutex<ForgeStandInState>;
