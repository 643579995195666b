//! GitHub over its REST API: conditional requests, pages, limits, retries of what only looks.

pub mod requests;
pub mod responses;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use self::requests::GitHubRequests;
use crate::error::ForgeError;
use crate::forge::{Forge, ForgeMergeOptions};
use crate::model::{
    ForgeCheck, ForgeCheckState, ForgeComment, ForgeIssue, ForgePullRequest, ForgeReview,
    MergedPullRequest, NewPullRequest,
};
use crate::rate_limit::{self, ForgeRetryAdvice};
use crate::remote::ForgeRepository;
use crate::token::ForgeToken;
use crate::wire::{ForgeHttpMethod, ForgeHttpRequest, ForgeHttpResponse, ForgeTransport};

/// Answers remembered with their ETags.
const KNOWN_MAX: usize = 1_000;
/// Pages of one list. More than ten thousand things are no answer to a person's question.
const PAGES_MAX: usize = 100;
/// Bytes of a job's log that are kept: its end.
const LOG_BYTES: usize = 4_000;
/// How long one call waits for a limit by itself; longer waits are the caller's.
const PATIENCE_MS: u64 = 2_000;
/// The version of the API that the answers are read by.
const API_VERSION: &str = "2022-11-28";

/// Waits so long; false if nobody wants the answer any more.
pub type ForgePause = Box<dyn Fn(Duration) -> bool + Send + Sync>;

/// One repository on GitHub, or on a server that speaks its API.
pub struct GitHubForge {
    api: String,
    ask: GitHubRequests,
    host: String,
    token: ForgeToken,
    transport: Box<dyn ForgeTransport>,
    pause: ForgePause,
    known: Mutex<BTreeMap<String, CachedResponse>>,
    /// Nothing is asked before, in milliseconds since 1970.
    rests_until: Mutex<u64>,
}

/// An answer that may still hold.
#[derive(Clone)]
struct CachedResponse {
    etag: String,
    body: Vec<u8>,
    link: Option<String>,
}

impl GitHubForge {
    /// About this repository, at the API of its host, or at `api` if that is said.
    pub fn new(
        place: &ForgeRepository,
        api: Option<&str>,
        token: ForgeToken,
        transport: Box<dyn ForgeTransport>,
        pause: ForgePause,
    ) -> Self {
        let api = api.map_or_else(|| place.api_url(), str::to_owned);
        Self {
            api: api.trim_end_matches('/').to_owned(),
            ask: GitHubRequests::new(place),
            host: place.host.clone(),
            token,
            transport,
            pause,
            known: Mutex::default(),
            rests_until: Mutex::default(),
        }
    }

    fn headers(&self, etag: Option<&str>) -> Vec<(String, String)> {
        let mut headers = vec![
            ("authorization".to_owned(), format!("Bearer {}", self.token.reveal())),
            ("accept".to_owned(), "application/vnd.github+json".to_owned()),
            ("x-github-api-version".to_owned(), API_VERSION.to_owned()),
        ];
        headers.extend(etag.map(|etag| ("if-none-match".to_owned(), etag.to_owned())));
        headers
    }

    /// Sends until there is an answer, or a reason why there is none.
    fn send(
        &self,
        request: &ForgeHttpRequest,
        etag: Option<&str>,
    ) -> Result<ForgeHttpResponse, ForgeError> {
        let url = format!("{}{}", self.api, request.path);
        let mut tries = 0;
        loop {
            self.wait_for_quota()?;
            tries += 1;
            let wait = match self.transport.send(&url, request, &self.headers(etag)) {
                Ok(response) => {
                    match rate_limit::advise_retry(request.verb, &response, tries, now_ms() / 1000)
                    {
                        ForgeRetryAdvice::Use => {
                            self.observe_quota(&response);
                            return Ok(response);
                        }
                        ForgeRetryAdvice::Again(ms) => ms,
                        ForgeRetryAdvice::Rest(ms) => {
                            self.hold_requests(ms);
                            if ms > PATIENCE_MS || tries >= rate_limit::TRIES_MAX {
                                return Err(self.rate_limited(ms));
                            }
                            ms
                        }
                        ForgeRetryAdvice::Unsure => {
                            let why = format!("status {}", response.status);
                            return Err(ForgeError::Unsure { what: request.what.clone(), why });
                        }
                    }
                }
                Err(broken)
                    if request.verb == ForgeHttpMethod::Get && tries < rate_limit::TRIES_MAX =>
                {
                    drop(broken);
                    rate_limit::backoff_ms(tries)
                }
                Err(broken) if broken.maybe_sent => {
                    let what = request.what.clone();
                    return Err(ForgeError::Unsure { what, why: broken.why });
                }
                Err(broken) => {
                    return Err(ForgeError::Unreached { host: self.host.clone(), why: broken.why });
                }
            };
            if !(self.pause)(Duration::from_millis(wait)) {
                let why = "cancelled while waiting".to_owned();
                return Err(ForgeError::Unreached { host: self.host.clone(), why });
            }
        }
    }

    fn rate_limited(&self, after_ms: u64) -> ForgeError {
        ForgeError::Limited { host: self.host.clone(), after_ms }
    }

    /// The last request of the hour was answered: nobody runs into the limit knowingly.
    fn observe_quota(&self, response: &ForgeHttpResponse) {
        if let Some((0, reset)) = rate_limit::remaining_quota(response) {
            self.hold_requests(reset.saturating_mul(1000).saturating_sub(now_ms()));
        }
    }

    /// One limit is one limit for all that ask here.
    fn hold_requests(&self, ms: u64) {
        let mut until = lock_ignoring_poison(&self.rests_until);
        *until = (*until).max(now_ms() + ms);
    }

    fn wait_for_quota(&self) -> Result<(), ForgeError> {
        let left = lock_ignoring_poison(&self.rests_until).saturating_sub(now_ms());
        match left {
            0 => Ok(()),
            short if short <= PATIENCE_MS => {
                (self.pause)(Duration::from_millis(short));
                Ok(())
            }
            long => Err(self.rate_limited(long)),
        }
    }

    /// The answer and the address of the next page. What is known and unchanged costs no request of
    /// the hour's.
    fn fetch_page(
        &self,
        request: &ForgeHttpRequest,
    ) -> Result<(Vec<u8>, Option<String>), ForgeError> {
        let known = lock_ignoring_poison(&self.known).get(&request.path).cloned();
        let response = self.send(request, known.as_ref().map(|known| known.etag.as_str()))?;
        if let (304, Some(known)) = (response.status, known) {
            return Ok((known.body, known.link));
        }
        let response = self.accept_response(request, response)?;
        let link = response.header("link").and_then(responses::next_page_url).map(str::to_owned);
        if let Some(etag) = response.header("etag") {
            let mut all = lock_ignoring_poison(&self.known);
            if all.len() >= KNOWN_MAX {
                all.clear();
            }
            let (etag, body) = (etag.to_owned(), response.body.clone());
            all.insert(request.path.clone(), CachedResponse { etag, body, link: link.clone() });
        }
        Ok((response.body, link))
    }

    /// The answer, if it grants the wish.
    fn accept_response(
        &self,
        request: &ForgeHttpRequest,
        response: ForgeHttpResponse,
    ) -> Result<ForgeHttpResponse, ForgeError> {
        let why = || responses::parse_error_message(&response.body);
        let what = request.what.clone();
        match response.status {
            200..=299 => Ok(response),
            401 => Err(ForgeError::NotLoggedIn { host: self.host.clone(), why: why() }),
            403 => Err(ForgeError::Forbidden { what, why: why() }),
            404 | 410 => Err(ForgeError::NotFound { what }),
            status => Err(ForgeError::Refused { what, status, why: why() }),
        }
    }

    fn get_json(&self, request: &ForgeHttpRequest) -> Result<Value, ForgeError> {
        parse_body(request, &self.fetch_page(request)?.0)
    }

    /// All entries of a list, page after page.
    fn fetch_all_pages<T>(
        &self,
        request: &ForgeHttpRequest,
        key: &str,
        read: impl Fn(&Value) -> Result<T, responses::UnreadableResponse>,
    ) -> Result<Vec<T>, ForgeError> {
        let odd = |why| ForgeError::Odd { what: request.what.clone(), why };
        let mut found = Vec::new();
        let mut page = request.clone();
        for _ in 0..PAGES_MAX {
            let (body, next) = self.fetch_page(&page)?;
            let value = parse_body(request, &body)?;
            for entry in responses::list_entries(&value, key).map_err(odd)? {
                found.push(read(entry).map_err(odd)?);
            }
            let Some(next) = next else { return Ok(found) };
            // Our token goes nowhere else.
            let Some(path) = next.strip_prefix(&self.api) else {
                return Err(odd(format!("the next page is on another host: {next}")));
            };
            path.clone_into(&mut page.path);
        }
        Err(odd(format!("more than {PAGES_MAX} pages")))
    }

    fn send_change(&self, request: &ForgeHttpRequest) -> Result<ForgeHttpResponse, ForgeError> {
        let response = self.send(request, None)?;
        self.accept_response(request, response)
    }

    fn fetch_numbers(&self, request: &ForgeHttpRequest) -> Result<Vec<u64>, ForgeError> {
        let number = |value: &Value| value["number"].as_u64().ok_or_else(|| "no number".to_owned());
        match self.fetch_all_pages(request, "issues", number) {
            // An older server has no such thing.
            Err(ForgeError::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}

impl Forge for GitHubForge {
    fn host(&self) -> &str {
        &self.host
    }

    fn pull_requests_from(&self, head: &str) -> Result<Vec<ForgePullRequest>, ForgeError> {
        let mut pulls = self.fetch_all_pages(
            &self.ask.pull_requests_from(head),
            "items",
            responses::parse_pull_request,
        )?;
        // Servers that do not know the filter list everything.
        pulls.retain(|pull| pull.head == head);
        pulls.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(pulls)
    }

    fn pull_requests_into(&self, base: &str) -> Result<Vec<ForgePullRequest>, ForgeError> {
        let mut pulls = self.fetch_all_pages(
            &self.ask.pull_requests_into(base),
            "items",
            responses::parse_pull_request,
        )?;
        pulls.retain(|pull| {
            pull.base == base && pull.state == crate::model::ForgePullRequestState::Open
        });
        pulls.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(pulls)
    }

    fn get_pull_request(&self, number: u64) -> Result<ForgePullRequest, ForgeError> {
        let request = self.ask.get_pull_request(number);
        responses::parse_pull_request(&self.get_json(&request)?)
            .map_err(|why| ForgeError::Odd { what: request.what, why })
    }

    fn create_pull_request(&self, new: &NewPullRequest) -> Result<ForgePullRequest, ForgeError> {
        let request = self.ask.create_pull_request(new);
        let response = self.send_change(&request)?;
        responses::parse_pull_request(&parse_body(&request, &response.body)?)
            .map_err(|why| ForgeError::Unsure { what: request.what, why })
    }

    fn set_title_and_body(&self, number: u64, title: &str, body: &str) -> Result<(), ForgeError> {
        self.send_change(&self.ask.set_title_and_body(number, title, body)).map(drop)
    }

    fn retarget(&self, number: u64, base: &str) -> Result<(), ForgeError> {
        self.send_change(&self.ask.retarget(number, base)).map(drop)
    }

    fn set_labels(
        &self,
        number: u64,
        labels: &[String],
        milestone: Option<&str>,
    ) -> Result<(), ForgeError> {
        if !labels.is_empty() {
            self.send_change(&self.ask.add_labels(number, labels))?;
        }
        let Some(milestone) = milestone else { return Ok(()) };
        let request = self.ask.list_milestones();
        let entry = |value: &Value| {
            let title = value["title"].as_str().unwrap_or_default().to_owned();
            Ok((title, value["number"].as_u64().ok_or("no number")?))
        };
        let all = self.fetch_all_pages(&request, "items", entry)?;
        let this = |(title, n): &&(String, u64)| title == milestone || n.to_string() == milestone;
        let Some((_, found)) = all.iter().find(this) else {
            let what = format!("the milestone {milestone}");
            return Err(ForgeError::NotFound { what });
        };
        self.send_change(&self.ask.set_milestone(number, *found)).map(drop)
    }

    fn list_checks(&self, commit: &str) -> Result<Vec<ForgeCheck>, ForgeError> {
        let mut checks = self.fetch_all_pages(
            &self.ask.list_check_runs(commit),
            "check_runs",
            responses::parse_check_run,
        )?;
        checks.extend(self.fetch_all_pages(
            &self.ask.list_statuses(commit),
            "statuses",
            responses::parse_commit_status,
        )?);
        // Two of one name, such as a rerun beside its first run: the worse one counts.
        checks
            .sort_by_key(|check| (check.name.clone(), std::cmp::Reverse(check_rank(check.state))));
        checks.dedup_by(|second, first| second.name == first.name);
        Ok(checks)
    }

    fn read_job_log(&self, job: u64) -> Result<String, ForgeError> {
        let response = self.send_change(&self.ask.read_job_log(job))?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        Ok(responses::truncate_tail(text.trim_end(), LOG_BYTES).to_owned())
    }

    fn list_reviews(&self, number: u64) -> Result<Vec<ForgeReview>, ForgeError> {
        let mut reviews =
            self.fetch_all_pages(&self.ask.list_reviews(number), "items", responses::parse_review)?;
        reviews.sort_by_key(|review| review.as_ref().map(|review| review.id));
        Ok(reviews.into_iter().flatten().collect())
    }

    fn list_comments(&self, number: u64) -> Result<Vec<ForgeComment>, ForgeError> {
        let mut comments = self.fetch_all_pages(
            &self.ask.list_line_comments(number),
            "items",
            responses::parse_comment,
        )?;
        comments.extend(self.fetch_all_pages(
            &self.ask.list_comments(number),
            "items",
            responses::parse_comment,
        )?);
        comments.sort_by_key(|comment| comment.id);
        Ok(comments)
    }

    fn add_comment(&self, number: u64, body: &str) -> Result<(), ForgeError> {
        self.send_change(&self.ask.add_comment(number, body)).map(drop)
    }

    fn merge_pull_request(
        &self,
        number: u64,
        wish: &ForgeMergeOptions<'_>,
    ) -> Result<MergedPullRequest, ForgeError> {
        let request = self.ask.merge_pull_request(number, wish);
        let response = self.send_change(&request)?;
        let value = parse_body(&request, &response.body)?;
        match value["sha"].as_str() {
            Some(commit) if value["merged"] == true => {
                Ok(MergedPullRequest { commit: commit.to_owned() })
            }
            _ => Err(ForgeError::Unsure { what: request.what, why: "no commit named".to_owned() }),
        }
    }

    fn update_branch(&self, number: u64, head: &str) -> Result<(), ForgeError> {
        self.send_change(&self.ask.update_branch(number, head)).map(drop)
    }

    fn branch_commit(&self, name: &str) -> Result<Option<String>, ForgeError> {
        let request = self.ask.get_branch(name);
        match self.get_json(&request) {
            Ok(value) => match value["object"]["sha"].as_str() {
                Some(commit) => Ok(Some(commit.to_owned())),
                None => Err(ForgeError::Odd { what: request.what, why: "no commit".to_owned() }),
            },
            Err(ForgeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete_branch(&self, name: &str) -> Result<(), ForgeError> {
        match self.send_change(&self.ask.delete_branch(name)) {
            Ok(_) | Err(ForgeError::NotFound { .. }) => Ok(()),
            Err(ForgeError::Refused { status: 422, .. }) if self.branch_commit(name)?.is_none() => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn list_issues(&self, with_closed: bool) -> Result<Vec<ForgeIssue>, ForgeError> {
        let request = self.ask.list_issues(with_closed);
        let entry =
            |value: &Value| Ok((responses::parse_issue(value)?, responses::issue_relations(value)));
        let mut issues = Vec::new();
        for (issue, (waits, has_parts)) in self.fetch_all_pages(&request, "items", entry)? {
            let Some(mut issue) = issue else { continue };
            if waits {
                issue.blocked_by = self.fetch_numbers(&self.ask.list_blockers(issue.number))?;
            }
            if has_parts {
                issue.parts = self.fetch_numbers(&self.ask.list_sub_issues(issue.number))?;
            }
            issues.push(issue);
        }
        Ok(issues)
    }
}

fn check_rank(state: ForgeCheckState) -> u8 {
    match state {
        ForgeCheckState::Neutral => 0,
        ForgeCheckState::Passed => 1,
        ForgeCheckState::Pending => 2,
        ForgeCheckState::Failed => 3,
    }
}

fn parse_body(request: &ForgeHttpRequest, body: &[u8]) -> Result<Value, ForgeError> {
    serde_json::from_slice(body)
        .map_err(|error| ForgeError::Odd { what: request.what.clone(), why: error.to_string() })
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever died with it left it whole: everything is set in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
