//! Requests to GitHub's REST API, built and nothing more.

use serde_json::{Value, json};

use crate::forge::Merging;
use crate::model::NewPull;
use crate::remote::Place;
use crate::wire::{Request, Verb, encode, encode_path};

/// Things per page of a list.
const PAGE: u32 = 100;

/// Builds requests about one repository.
#[derive(Debug, Clone)]
pub struct Ask {
    root: String,
    owner: String,
}

impl Ask {
    /// About this repository.
    pub fn new(place: &Place) -> Self {
        let root = format!("/repos/{}/{}", encode(&place.owner), encode(&place.name));
        Self { root, owner: place.owner.clone() }
    }

    fn request(&self, verb: Verb, path: &str, body: Option<Value>, what: String) -> Request {
        Request { verb, path: format!("{}{path}", self.root), body, what }
    }

    fn get(&self, path: &str, what: String) -> Request {
        self.request(Verb::Get, path, None, what)
    }

    fn list(&self, path: &str, query: &str, what: String) -> Request {
        let more = if query.is_empty() { String::new() } else { format!("&{query}") };
        self.get(&format!("{path}?per_page={PAGE}{more}"), what)
    }

    /// Pull requests that offer a branch.
    pub fn pulls_of(&self, head: &str) -> Request {
        let head = encode(&format!("{}:{head}", self.owner));
        let query = format!("state=all&sort=created&direction=desc&head={head}");
        self.list("/pulls", &query, "looking for the pull request".to_owned())
    }

    /// Open pull requests that go into a branch.
    pub fn pulls_into(&self, base: &str) -> Request {
        let query = format!("state=open&sort=created&direction=desc&base={}", encode(base));
        self.list("/pulls", &query, format!("looking for what is stacked on {base}"))
    }

    /// One pull request.
    pub fn pull(&self, number: u64) -> Request {
        self.get(&format!("/pulls/{number}"), format!("pull request #{number}"))
    }

    /// A new pull request.
    pub fn create(&self, new: &NewPull) -> Request {
        let body = json!({
            "head": new.head, "base": new.base, "title": new.title, "body": new.body,
            "draft": new.draft, "maintainer_can_modify": true,
        });
        let what = format!("opening a pull request for {}", new.head);
        self.request(Verb::Post, "/pulls", Some(body), what)
    }

    /// Title and text of a pull request.
    pub fn describe(&self, number: u64, title: &str, body: &str) -> Request {
        let body = json!({ "title": title, "body": body });
        self.change(number, body, "describing")
    }

    /// The branch a pull request goes into.
    pub fn retarget(&self, number: u64, base: &str) -> Request {
        self.change(number, json!({ "base": base }), "retargeting")
    }

    fn change(&self, number: u64, body: Value, doing: &str) -> Request {
        let what = format!("{doing} pull request #{number}");
        self.request(Verb::Patch, &format!("/pulls/{number}"), Some(body), what)
    }

    /// Labels to add.
    pub fn label(&self, number: u64, labels: &[String]) -> Request {
        let path = format!("/issues/{number}/labels");
        let what = format!("labelling pull request #{number}");
        self.request(Verb::Post, &path, Some(json!({ "labels": labels })), what)
    }

    /// All milestones.
    pub fn milestones(&self) -> Request {
        self.list("/milestones", "state=all", "the milestones".to_owned())
    }

    /// The milestone of a pull request.
    pub fn set_milestone(&self, number: u64, milestone: u64) -> Request {
        let path = format!("/issues/{number}");
        let what = format!("the milestone of pull request #{number}");
        self.request(Verb::Patch, &path, Some(json!({ "milestone": milestone })), what)
    }

    /// What checks say of a commit.
    pub fn check_runs(&self, commit: &str) -> Request {
        let path = format!("/commits/{}/check-runs", encode(commit));
        self.list(&path, "filter=latest", format!("the checks of {commit}"))
    }

    /// What older services say of a commit.
    pub fn statuses(&self, commit: &str) -> Request {
        let path = format!("/commits/{}/status", encode(commit));
        self.list(&path, "", format!("the checks of {commit}"))
    }

    /// What a job printed.
    pub fn job_log(&self, job: u64) -> Request {
        self.get(&format!("/actions/jobs/{job}/logs"), format!("the log of job {job}"))
    }

    /// Reviews of a pull request.
    pub fn reviews(&self, number: u64) -> Request {
        let path = format!("/pulls/{number}/reviews");
        self.list(&path, "", format!("the reviews of pull request #{number}"))
    }

    /// Remarks on lines of a pull request.
    pub fn line_comments(&self, number: u64) -> Request {
        let path = format!("/pulls/{number}/comments");
        self.list(&path, "", format!("the remarks on pull request #{number}"))
    }

    /// Remarks on a pull request as a whole.
    pub fn comments(&self, number: u64) -> Request {
        let path = format!("/issues/{number}/comments");
        self.list(&path, "", format!("the remarks on pull request #{number}"))
    }

    /// A new remark.
    pub fn comment(&self, number: u64, body: &str) -> Request {
        let path = format!("/issues/{number}/comments");
        let what = format!("a remark on pull request #{number}");
        self.request(Verb::Post, &path, Some(json!({ "body": body })), what)
    }

    /// The merge of a pull request.
    pub fn merge(&self, number: u64, wish: &Merging<'_>) -> Request {
        let body = json!({
            "sha": wish.head, "merge_method": wish.method.word(),
            "commit_title": wish.title, "commit_message": wish.message,
        });
        let what = format!("merging pull request #{number}");
        self.request(Verb::Put, &format!("/pulls/{number}/merge"), Some(body), what)
    }

    /// The base merged into a pull request.
    pub fn update_branch(&self, number: u64, head: &str) -> Request {
        let path = format!("/pulls/{number}/update-branch");
        let what = format!("bringing pull request #{number} up to date");
        self.request(Verb::Put, &path, Some(json!({ "expected_head_sha": head })), what)
    }

    /// A branch.
    pub fn branch(&self, name: &str) -> Request {
        self.get(&format!("/git/ref/heads/{}", encode_path(name)), format!("the branch {name}"))
    }

    /// The end of a branch.
    pub fn delete_branch(&self, name: &str) -> Request {
        let path = format!("/git/refs/heads/{}", encode_path(name));
        self.request(Verb::Delete, &path, None, format!("removing the branch {name}"))
    }

    /// The issues.
    pub fn issues(&self, with_closed: bool) -> Request {
        let state = if with_closed { "all" } else { "open" };
        let query = format!("state={state}&sort=created&direction=asc");
        self.list("/issues", &query, "the issues".to_owned())
    }

    /// What an issue waits for.
    pub fn blocked_by(&self, number: u64) -> Request {
        let path = format!("/issues/{number}/dependencies/blocked_by");
        self.list(&path, "", format!("what issue #{number} waits for"))
    }

    /// What an issue consists of.
    pub fn parts(&self, number: u64) -> Request {
        let path = format!("/issues/{number}/sub_issues");
        self.list(&path, "", format!("the parts of issue #{number}"))
    }
}
