//! Requests to GitHub's REST API, built and nothing more.

use serde_json::{Value, json};

use crate::forge::ForgeMergeOptions;
use crate::model::NewPullRequest;
use crate::remote::ForgeRepository;
use crate::wire::{ForgeHttpMethod, ForgeHttpRequest, percent_encode, percent_encode_path};

/// Things per page of a list.
const PAGE: u32 = 100;

/// Builds requests about one repository.
#[derive(Debug, Clone)]
pub struct GitHubRequests {
    root: String,
    owner: String,
}

impl GitHubRequests {
    pub fn new(place: &ForgeRepository) -> Self {
        let root =
            format!("/repos/{}/{}", percent_encode(&place.owner), percent_encode(&place.name));
        Self { root, owner: place.owner.clone() }
    }

    fn build_request(
        &self,
        verb: ForgeHttpMethod,
        path: &str,
        body: Option<Value>,
        what: String,
    ) -> ForgeHttpRequest {
        ForgeHttpRequest { verb, path: format!("{}{path}", self.root), body, what }
    }

    fn build_get(&self, path: &str, what: String) -> ForgeHttpRequest {
        self.build_request(ForgeHttpMethod::Get, path, None, what)
    }

    fn build_list(&self, path: &str, query: &str, what: String) -> ForgeHttpRequest {
        let more = if query.is_empty() { String::new() } else { format!("&{query}") };
        self.build_get(&format!("{path}?per_page={PAGE}{more}"), what)
    }

    /// Pull requests that offer a branch.
    pub fn pull_requests_from(&self, head: &str) -> ForgeHttpRequest {
        let head = percent_encode(&format!("{}:{head}", self.owner));
        let query = format!("state=all&sort=created&direction=desc&head={head}");
        self.build_list("/pulls", &query, "looking for the pull request".to_owned())
    }

    /// Open pull requests that go into a branch.
    pub fn pull_requests_into(&self, base: &str) -> ForgeHttpRequest {
        let query = format!("state=open&sort=created&direction=desc&base={}", percent_encode(base));
        self.build_list("/pulls", &query, format!("looking for what is stacked on {base}"))
    }

    pub fn get_pull_request(&self, number: u64) -> ForgeHttpRequest {
        self.build_get(&format!("/pulls/{number}"), format!("pull request #{number}"))
    }

    /// A new pull request.
    pub fn create_pull_request(&self, new: &NewPullRequest) -> ForgeHttpRequest {
        let body = json!({
            "head": new.head, "base": new.base, "title": new.title, "body": new.body,
            "draft": new.draft, "maintainer_can_modify": true,
        });
        let what = format!("opening a pull request for {}", new.head);
        self.build_request(ForgeHttpMethod::Post, "/pulls", Some(body), what)
    }

    /// Title and text of a pull request.
    pub fn set_title_and_body(&self, number: u64, title: &str, body: &str) -> ForgeHttpRequest {
        let body = json!({ "title": title, "body": body });
        self.edit_pull_request(number, body, "describing")
    }

    /// The branch a pull request goes into.
    pub fn retarget(&self, number: u64, base: &str) -> ForgeHttpRequest {
        self.edit_pull_request(number, json!({ "base": base }), "retargeting")
    }

    fn edit_pull_request(&self, number: u64, body: Value, doing: &str) -> ForgeHttpRequest {
        let what = format!("{doing} pull request #{number}");
        self.build_request(ForgeHttpMethod::Patch, &format!("/pulls/{number}"), Some(body), what)
    }

    pub fn add_labels(&self, number: u64, labels: &[String]) -> ForgeHttpRequest {
        let path = format!("/issues/{number}/labels");
        let what = format!("labelling pull request #{number}");
        self.build_request(ForgeHttpMethod::Post, &path, Some(json!({ "labels": labels })), what)
    }

    pub fn list_milestones(&self) -> ForgeHttpRequest {
        self.build_list("/milestones", "state=all", "the milestones".to_owned())
    }

    /// The milestone of a pull request.
    pub fn set_milestone(&self, number: u64, milestone: u64) -> ForgeHttpRequest {
        let path = format!("/issues/{number}");
        let what = format!("the milestone of pull request #{number}");
        self.build_request(
            ForgeHttpMethod::Patch,
            &path,
            Some(json!({ "milestone": milestone })),
            what,
        )
    }

    /// What checks say of a commit.
    pub fn list_check_runs(&self, commit: &str) -> ForgeHttpRequest {
        let path = format!("/commits/{}/check-runs", percent_encode(commit));
        self.build_list(&path, "filter=latest", format!("the checks of {commit}"))
    }

    /// What older services say of a commit.
    pub fn list_statuses(&self, commit: &str) -> ForgeHttpRequest {
        let path = format!("/commits/{}/status", percent_encode(commit));
        self.build_list(&path, "", format!("the checks of {commit}"))
    }

    /// What a job printed.
    pub fn read_job_log(&self, job: u64) -> ForgeHttpRequest {
        self.build_get(&format!("/actions/jobs/{job}/logs"), format!("the log of job {job}"))
    }

    /// Reviews of a pull request.
    pub fn list_reviews(&self, number: u64) -> ForgeHttpRequest {
        let path = format!("/pulls/{number}/reviews");
        self.build_list(&path, "", format!("the reviews of pull request #{number}"))
    }

    /// Remarks on lines of a pull request.
    pub fn list_line_comments(&self, number: u64) -> ForgeHttpRequest {
        let path = format!("/pulls/{number}/comments");
        self.build_list(&path, "", format!("the remarks on pull request #{number}"))
    }

    /// Remarks on a pull request as a whole.
    pub fn list_comments(&self, number: u64) -> ForgeHttpRequest {
        let path = format!("/issues/{number}/comments");
        self.build_list(&path, "", format!("the remarks on pull request #{number}"))
    }

    pub fn add_comment(&self, number: u64, body: &str) -> ForgeHttpRequest {
        let path = format!("/issues/{number}/comments");
        let what = format!("a remark on pull request #{number}");
        self.build_request(ForgeHttpMethod::Post, &path, Some(json!({ "body": body })), what)
    }

    /// The merge of a pull request.
    pub fn merge_pull_request(
        &self,
        number: u64,
        wish: &ForgeMergeOptions<'_>,
    ) -> ForgeHttpRequest {
        let body = json!({
            "sha": wish.head, "merge_method": wish.method.as_str(),
            "commit_title": wish.title, "commit_message": wish.message,
        });
        let what = format!("merging pull request #{number}");
        self.build_request(
            ForgeHttpMethod::Put,
            &format!("/pulls/{number}/merge"),
            Some(body),
            what,
        )
    }

    /// The base merged into a pull request.
    pub fn update_branch(&self, number: u64, head: &str) -> ForgeHttpRequest {
        let path = format!("/pulls/{number}/update-branch");
        let what = format!("bringing pull request #{number} up to date");
        self.build_request(
            ForgeHttpMethod::Put,
            &path,
            Some(json!({ "expected_head_sha": head })),
            what,
        )
    }

    pub fn get_branch(&self, name: &str) -> ForgeHttpRequest {
        self.build_get(
            &format!("/git/ref/heads/{}", percent_encode_path(name)),
            format!("the branch {name}"),
        )
    }

    /// The end of a branch.
    pub fn delete_branch(&self, name: &str) -> ForgeHttpRequest {
        let path = format!("/git/refs/heads/{}", percent_encode_path(name));
        self.build_request(
            ForgeHttpMethod::Delete,
            &path,
            None,
            format!("removing the branch {name}"),
        )
    }

    pub fn list_issues(&self, with_closed: bool) -> ForgeHttpRequest {
        let state = if with_closed { "all" } else { "open" };
        let query = format!("state={state}&sort=created&direction=asc");
        self.build_list("/issues", &query, "the issues".to_owned())
    }

    /// What an issue waits for.
    pub fn list_blockers(&self, number: u64) -> ForgeHttpRequest {
        let path = format!("/issues/{number}/dependencies/blocked_by");
        self.build_list(&path, "", format!("what issue #{number} waits for"))
    }

    /// What an issue consists of.
    pub fn list_sub_issues(&self, number: u64) -> ForgeHttpRequest {
        let path = format!("/issues/{number}/sub_issues");
        self.build_list(&path, "", format!("the parts of issue #{number}"))
    }
}
