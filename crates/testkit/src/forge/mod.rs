//! A stand-in for a forge that speaks GitHub's REST API, on loopback only.
//!
//! Keeps a real bare repository, to which tests push, and pull requests on top of it: whether one can
//! be merged is found by a real merge, and merging moves the real branch. It answers conditional
//! requests, counts the hour's requests, pages lists, and lets a test order faults: a status, a broken
//! connection before or after the effect, slowness, limits. The repository is `o/r`. Knows neither
//! engine nor agents.

mod fault;
mod git;
mod routes;
mod state;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub use self::fault::{ForgeFault, ForgeFaultKind};
pub use self::state::ForgeBranchRules;

use self::git::BareTestRepo;
use self::routes::ForgeStandInGuard;
use self::state::ForgeStandInState;

/// The repository that it keeps.
pub const REPOSITORY: &str = "o/r";

/// A running stand-in; it ends with the process.
pub struct ForgeStandIn {
    path: PathBuf,
    shared: Arc<ForgeStandInShared>,
}

struct ForgeStandInShared {
    url: String,
    page_max: usize,
    state: ForgeStandInGuard,
}

fn lock(state: &Mutex<ForgeStandInState>) -> MutexGuard<'_, ForgeStandInState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl ForgeStandIn {
    /// Starts one on a free port, with its bare repository here.
    pub fn start(bare: &Path) -> Self {
        Self::start_at(bare, 0, 100).expect("loopback has a free port")
    }

    /// Starts one on this port, with at most so many things on a page.
    pub fn start_at(bare: &Path, port: u16, page_max: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let url = format!("http://127.0.0.1:{}", listener.local_addr()?.port());
        let state = Mutex::new(ForgeStandInState::new(BareTestRepo::make(bare)));
        let shared = Arc::new(ForgeStandInShared { url, page_max, state });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || routes::connection(stream, &shared));
            }
        });
        Ok(Self { path: bare.to_owned(), shared })
    }

    fn state(&self) -> MutexGuard<'_, ForgeStandInState> {
        lock(&self.shared.state)
    }

    pub fn url(&self) -> &str {
        &self.shared.url
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Only who has this token is let in.
    pub fn let_in_only(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Runs this shell command as the check `ci` on every head of a pull request.
    pub fn ci(&self, command: &str) {
        self.state().ci = Some(command.to_owned());
    }

    /// Rules of the base branch.
    pub fn rules(&self, rules: ForgeBranchRules) {
        self.state().rules = rules;
    }

    pub fn fault(&self, fault: ForgeFault) {
        self.state().faults.push(fault);
    }

    /// Requests that the hour still has.
    pub fn set_remaining(&self, remaining: u64) {
        self.state().remaining = remaining;
    }

    /// The same as it stands.
    pub fn remaining(&self) -> u64 {
        self.state().remaining
    }

    /// Every request so far: method, path, status, body.
    pub fn requests(&self) -> Vec<Value> {
        self.state().requests.clone()
    }

    /// How many faults that were ordered have not been met yet.
    pub fn faults_to_come(&self) -> u32 {
        self.state().faults.iter().map(|fault| fault.times).sum()
    }

    /// How many requests of this method had this in their path and were granted.
    pub fn granted(&self, method: &str, path: &str) -> usize {
        let this = |request: &&Value| {
            let good = request["status"].as_u64().is_some_and(|s| (200..300).contains(&s));
            good && request["method"] == method
                && request["path"].as_str().is_some_and(|p| p.contains(path))
        };
        self.state().requests.iter().filter(this).count()
    }

    /// Sets a check of a commit: `queued`, `in_progress` or how it ended.
    pub fn set_check(&self, commit: &str, name: &str, word: &str, summary: &str) {
        let running = matches!(word, "queued" | "in_progress");
        let (status, conclusion) = if running { (word, None) } else { ("completed", Some(word)) };
        let check = json!({
            "name": name, "status": status, "conclusion": conclusion,
            "output": {"title": word, "summary": summary},
        });
        let mut state = self.state();
        let checks = state.checks.entry(commit.to_owned()).or_default();
        checks.retain(|check| check["name"] != name);
        checks.push(check);
    }

    /// Hands in a review: `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`, with remarks on lines.
    pub fn review(
        &self,
        pull: u64,
        who: &str,
        word: &str,
        body: &str,
        lines: &[(&str, u64, &str)],
    ) {
        let mut state = self.state();
        state.refresh();
        let id = state.next_number();
        let numbers: Vec<u64> = lines.iter().map(|_| state.next_number()).collect();
        let pull = state.pull(pull).expect("there is such a pull request");
        let user = json!({ "login": who });
        pull.reviews.push(json!({
            "id": id, "user": user, "state": word, "body": body, "commit_id": pull.head_commit,
        }));
        for ((path, line, text), n) in lines.iter().zip(numbers) {
            pull.line_comments.push(json!({
                "id": n, "user": user, "path": path, "line": line, "body": text,
                "pull_request_review_id": id,
            }));
        }
    }

    /// Closes a pull request without merging it.
    pub fn close(&self, pull: u64) {
        self.state().pull(pull).expect("there is such a pull request").open = false;
    }

    /// Nothing can be merged before there was a pull request of this branch.
    pub fn hold_merges_until(&self, head: &str) {
        self.state().held_until = Some(head.to_owned());
    }

    /// From now on it closes pull requests whose base goes, also if that was merged, as some forges do.
    pub fn close_orphans(&self) {
        self.state().closes_orphans = true;
    }

    /// A draft becomes ready.
    pub fn set_ready(&self, pull: u64) {
        self.state().pull(pull).expect("there is such a pull request").draft = false;
    }

    /// A pull request as the API shows it; none if there is none.
    pub fn pull(&self, number: u64) -> Option<Value> {
        let mut state = self.state();
        state.refresh();
        let mut value = state.show(number, true)?;
        let pull = state.pull(number)?;
        value["forced"] = json!(pull.forced);
        value["comments"] = json!(pull.comments);
        Some(value)
    }

    /// All pull requests, oldest first.
    pub fn pulls(&self) -> Vec<Value> {
        let numbers: Vec<u64> = self.state().pulls.iter().map(|pull| pull.number).collect();
        numbers.into_iter().filter_map(|number| self.pull(number)).collect()
    }

    /// Merges a pull request as a person would, by this method.
    pub fn merge_by_hand(&self, number: u64, method: &str) -> String {
        let body = json!({"merge_method": method, "commit_title": "merged by hand"});
        let merged = self.state().merge(number, &body).expect("it can be merged");
        merged["sha"].as_str().unwrap_or_default().to_owned()
    }

    /// The commit of a branch of the bare repository.
    pub fn branch(&self, name: &str) -> Option<String> {
        self.state().bare.branch(name)
    }

    /// A milestone; its number is its place.
    pub fn add_milestone(&self, title: &str) {
        self.state().milestones.push(title.to_owned());
    }

    /// An issue that waits for others and has parts; returns its number.
    pub fn add_issue(&self, title: &str, body: &str, blocked_by: &[u64], parts: &[u64]) -> u64 {
        let mut state = self.state();
        let number = state.next_number();
        state.issues.push(json!({
            "number": number, "title": title, "body": body, "state": "open", "labels": [],
            "html_url": format!("http://forge.invalid/o/r/issues/{number}"),
            "issue_dependencies_summary": {"total_blocked_by": blocked_by.len()},
            "sub_issues_summary": {"total": parts.len()},
        }));
        state.blocked_by.insert(number, blocked_by.to_vec());
        state.parts.insert(number, parts.to_vec());
        number
    }
}
