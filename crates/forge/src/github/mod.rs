//! GitHub over its REST API: conditional requests, pages, limits, retries of what only looks.

pub mod ask;
pub mod read;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use self::ask::Ask;
use crate::error::ForgeError;
use crate::forge::{Forge, Merging};
use crate::model::{Check, CheckState, Comment, Issue, Merged, NewPull, Pull, Review};
use crate::pace::{self, Advice};
use crate::remote::Place;
use crate::token::Token;
use crate::wire::{Request, Response, Transport, Verb};

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
pub type Pause = Box<dyn Fn(Duration) -> bool + Send + Sync>;

/// One repository on GitHub, or on a server that speaks its API.
pub struct GitHub {
    api: String,
    ask: Ask,
    host: String,
    token: Token,
    transport: Box<dyn Transport>,
    pause: Pause,
    known: Mutex<BTreeMap<String, Known>>,
    /// Nothing is asked before, in milliseconds since 1970.
    rests_until: Mutex<u64>,
}

/// An answer that may still hold.
#[derive(Clone)]
struct Known {
    etag: String,
    body: Vec<u8>,
    link: Option<String>,
}

impl GitHub {
    /// About this repository, at the API of its host, or at `api` if that is said.
    pub fn new(
        place: &Place,
        api: Option<&str>,
        token: Token,
        transport: Box<dyn Transport>,
        pause: Pause,
    ) -> Self {
        let api = api.map_or_else(|| place.api(), str::to_owned);
        Self {
            api: api.trim_end_matches('/').to_owned(),
            ask: Ask::new(place),
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
    fn send(&self, request: &Request, etag: Option<&str>) -> Result<Response, ForgeError> {
        let url = format!("{}{}", self.api, request.path);
        let mut tries = 0;
        loop {
            self.let_rest()?;
            tries += 1;
            let wait = match self.transport.send(&url, request, &self.headers(etag)) {
                Ok(response) => match pace::advice(request.verb, &response, tries, now_ms() / 1000)
                {
                    Advice::Use => {
                        self.mind(&response);
                        return Ok(response);
                    }
                    Advice::Again(ms) => ms,
                    Advice::Rest(ms) => {
                        self.rest(ms);
                        if ms > PATIENCE_MS || tries >= pace::TRIES_MAX {
                            return Err(self.limited(ms));
                        }
                        ms
                    }
                    Advice::Unsure => {
                        let why = format!("status {}", response.status);
                        return Err(ForgeError::Unsure { what: request.what.clone(), why });
                    }
                },
                Err(broken) if request.verb == Verb::Get && tries < pace::TRIES_MAX => {
                    drop(broken);
                    pace::stumble_ms(tries)
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

    fn limited(&self, after_ms: u64) -> ForgeError {
        ForgeError::Limited { host: self.host.clone(), after_ms }
    }

    /// The last request of the hour was answered: nobody runs into the limit knowingly.
    fn mind(&self, response: &Response) {
        if let Some((0, reset)) = pace::left(response) {
            self.rest(reset.saturating_mul(1000).saturating_sub(now_ms()));
        }
    }

    /// One limit is one limit for all that ask here.
    fn rest(&self, ms: u64) {
        let mut until = lock(&self.rests_until);
        *until = (*until).max(now_ms() + ms);
    }

    fn let_rest(&self) -> Result<(), ForgeError> {
        let left = lock(&self.rests_until).saturating_sub(now_ms());
        match left {
            0 => Ok(()),
            short if short <= PATIENCE_MS => {
                (self.pause)(Duration::from_millis(short));
                Ok(())
            }
            long => Err(self.limited(long)),
        }
    }

    /// The answer and the address of the next page. What is known and unchanged costs no request of
    /// the hour's.
    fn look(&self, request: &Request) -> Result<(Vec<u8>, Option<String>), ForgeError> {
        let known = lock(&self.known).get(&request.path).cloned();
        let response = self.send(request, known.as_ref().map(|known| known.etag.as_str()))?;
        if let (304, Some(known)) = (response.status, known) {
            return Ok((known.body, known.link));
        }
        let response = self.accept(request, response)?;
        let link = response.header("link").and_then(read::next_page).map(str::to_owned);
        if let Some(etag) = response.header("etag") {
            let mut all = lock(&self.known);
            if all.len() >= KNOWN_MAX {
                all.clear();
            }
            let (etag, body) = (etag.to_owned(), response.body.clone());
            all.insert(request.path.clone(), Known { etag, body, link: link.clone() });
        }
        Ok((response.body, link))
    }

    /// The answer, if it grants the wish.
    fn accept(&self, request: &Request, response: Response) -> Result<Response, ForgeError> {
        let why = || read::complaint(&response.body);
        let what = request.what.clone();
        match response.status {
            200..=299 => Ok(response),
            401 => Err(ForgeError::NotLoggedIn { host: self.host.clone(), why: why() }),
            403 => Err(ForgeError::Forbidden { what, why: why() }),
            404 | 410 => Err(ForgeError::NotFound { what }),
            status => Err(ForgeError::Refused { what, status, why: why() }),
        }
    }

    fn get(&self, request: &Request) -> Result<Value, ForgeError> {
        parse(request, &self.look(request)?.0)
    }

    /// All entries of a list, page after page.
    fn all<T>(
        &self,
        request: &Request,
        key: &str,
        read: impl Fn(&Value) -> Result<T, read::Odd>,
    ) -> Result<Vec<T>, ForgeError> {
        let odd = |why| ForgeError::Odd { what: request.what.clone(), why };
        let mut found = Vec::new();
        let mut page = request.clone();
        for _ in 0..PAGES_MAX {
            let (body, next) = self.look(&page)?;
            let value = parse(request, &body)?;
            for entry in read::entries(&value, key).map_err(odd)? {
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

    fn wish(&self, request: &Request) -> Result<Response, ForgeError> {
        let response = self.send(request, None)?;
        self.accept(request, response)
    }

    fn numbers(&self, request: &Request) -> Result<Vec<u64>, ForgeError> {
        let number = |value: &Value| value["number"].as_u64().ok_or_else(|| "no number".to_owned());
        match self.all(request, "issues", number) {
            // An older server has no such thing.
            Err(ForgeError::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}

impl Forge for GitHub {
    fn host(&self) -> &str {
        &self.host
    }

    fn pulls_of(&self, head: &str) -> Result<Vec<Pull>, ForgeError> {
        let mut pulls = self.all(&self.ask.pulls_of(head), "items", read::pull)?;
        // Servers that do not know the filter list everything.
        pulls.retain(|pull| pull.head == head);
        pulls.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(pulls)
    }

    fn pulls_into(&self, base: &str) -> Result<Vec<Pull>, ForgeError> {
        let mut pulls = self.all(&self.ask.pulls_into(base), "items", read::pull)?;
        pulls.retain(|pull| pull.base == base && pull.state == crate::model::PullState::Open);
        pulls.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(pulls)
    }

    fn pull(&self, number: u64) -> Result<Pull, ForgeError> {
        let request = self.ask.pull(number);
        read::pull(&self.get(&request)?).map_err(|why| ForgeError::Odd { what: request.what, why })
    }

    fn create(&self, new: &NewPull) -> Result<Pull, ForgeError> {
        let request = self.ask.create(new);
        let response = self.wish(&request)?;
        read::pull(&parse(&request, &response.body)?)
            .map_err(|why| ForgeError::Unsure { what: request.what, why })
    }

    fn describe(&self, number: u64, title: &str, body: &str) -> Result<(), ForgeError> {
        self.wish(&self.ask.describe(number, title, body)).map(drop)
    }

    fn retarget(&self, number: u64, base: &str) -> Result<(), ForgeError> {
        self.wish(&self.ask.retarget(number, base)).map(drop)
    }

    fn dress(
        &self,
        number: u64,
        labels: &[String],
        milestone: Option<&str>,
    ) -> Result<(), ForgeError> {
        if !labels.is_empty() {
            self.wish(&self.ask.label(number, labels))?;
        }
        let Some(milestone) = milestone else { return Ok(()) };
        let request = self.ask.milestones();
        let entry = |value: &Value| {
            let title = value["title"].as_str().unwrap_or_default().to_owned();
            Ok((title, value["number"].as_u64().ok_or("no number")?))
        };
        let all = self.all(&request, "items", entry)?;
        let this = |(title, n): &&(String, u64)| title == milestone || n.to_string() == milestone;
        let Some((_, found)) = all.iter().find(this) else {
            let what = format!("the milestone {milestone}");
            return Err(ForgeError::NotFound { what });
        };
        self.wish(&self.ask.set_milestone(number, *found)).map(drop)
    }

    fn checks(&self, commit: &str) -> Result<Vec<Check>, ForgeError> {
        let mut checks = self.all(&self.ask.check_runs(commit), "check_runs", read::check_run)?;
        checks.extend(self.all(&self.ask.statuses(commit), "statuses", read::status)?);
        // Two of one name, such as a rerun beside its first run: the worse one counts.
        checks.sort_by_key(|check| (check.name.clone(), std::cmp::Reverse(rank(check.state))));
        checks.dedup_by(|second, first| second.name == first.name);
        Ok(checks)
    }

    fn job_log(&self, job: u64) -> Result<String, ForgeError> {
        let response = self.wish(&self.ask.job_log(job))?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        Ok(read::tail(text.trim_end(), LOG_BYTES).to_owned())
    }

    fn reviews(&self, number: u64) -> Result<Vec<Review>, ForgeError> {
        let mut reviews = self.all(&self.ask.reviews(number), "items", read::review)?;
        reviews.sort_by_key(|review| review.as_ref().map(|review| review.id));
        Ok(reviews.into_iter().flatten().collect())
    }

    fn comments(&self, number: u64) -> Result<Vec<Comment>, ForgeError> {
        let mut comments = self.all(&self.ask.line_comments(number), "items", read::comment)?;
        comments.extend(self.all(&self.ask.comments(number), "items", read::comment)?);
        comments.sort_by_key(|comment| comment.id);
        Ok(comments)
    }

    fn comment(&self, number: u64, body: &str) -> Result<(), ForgeError> {
        self.wish(&self.ask.comment(number, body)).map(drop)
    }

    fn merge(&self, number: u64, wish: &Merging<'_>) -> Result<Merged, ForgeError> {
        let request = self.ask.merge(number, wish);
        let response = self.wish(&request)?;
        let value = parse(&request, &response.body)?;
        match value["sha"].as_str() {
            Some(commit) if value["merged"] == true => Ok(Merged { commit: commit.to_owned() }),
            _ => Err(ForgeError::Unsure { what: request.what, why: "no commit named".to_owned() }),
        }
    }

    fn update_branch(&self, number: u64, head: &str) -> Result<(), ForgeError> {
        self.wish(&self.ask.update_branch(number, head)).map(drop)
    }

    fn branch(&self, name: &str) -> Result<Option<String>, ForgeError> {
        let request = self.ask.branch(name);
        match self.get(&request) {
            Ok(value) => match value["object"]["sha"].as_str() {
                Some(commit) => Ok(Some(commit.to_owned())),
                None => Err(ForgeError::Odd { what: request.what, why: "no commit".to_owned() }),
            },
            Err(ForgeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete_branch(&self, name: &str) -> Result<(), ForgeError> {
        match self.wish(&self.ask.delete_branch(name)) {
            Ok(_) | Err(ForgeError::NotFound { .. }) => Ok(()),
            Err(ForgeError::Refused { status: 422, .. }) if self.branch(name)?.is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn issues(&self, with_closed: bool) -> Result<Vec<Issue>, ForgeError> {
        let request = self.ask.issues(with_closed);
        let entry = |value: &Value| Ok((read::issue(value)?, read::has_edges(value)));
        let mut issues = Vec::new();
        for (issue, (waits, has_parts)) in self.all(&request, "items", entry)? {
            let Some(mut issue) = issue else { continue };
            if waits {
                issue.blocked_by = self.numbers(&self.ask.blocked_by(issue.number))?;
            }
            if has_parts {
                issue.parts = self.numbers(&self.ask.parts(issue.number))?;
            }
            issues.push(issue);
        }
        Ok(issues)
    }
}

fn rank(state: CheckState) -> u8 {
    match state {
        CheckState::Neutral => 0,
        CheckState::Passed => 1,
        CheckState::Pending => 2,
        CheckState::Failed => 3,
    }
}

fn parse(request: &Request, body: &[u8]) -> Result<Value, ForgeError> {
    serde_json::from_slice(body)
        .map_err(|error| ForgeError::Odd { what: request.what.clone(), why: error.to_string() })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever died with it left it whole: everything is set in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
