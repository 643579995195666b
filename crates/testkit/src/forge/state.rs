//! What the stand-in keeps: pull requests, checks, reviews, issues. Branches are the repository's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fault::ForgeFault;
use super::git::BareTestRepo;

pub(super) struct ForgeStandInPullRequest {
    pub(super) number: u64,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) head: String,
    pub(super) base: String,
    pub(super) draft: bool,
    pub(super) open: bool,
    pub(super) merged: Option<String>,
    pub(super) head_commit: String,
    pub(super) labels: Vec<String>,
    pub(super) milestone: Option<u64>,
    pub(super) reviews: Vec<Value>,
    pub(super) line_comments: Vec<Value>,
    pub(super) comments: Vec<Value>,
    /// The head was replaced by something that does not build on it: from, to.
    pub(super) forced: Vec<(String, String)>,
    /// Head and base for which mergeability has been asked.
    asked: Option<(String, String)>,
}

/// The rules of the base branch.
#[derive(Debug, Clone, Default)]
pub struct ForgeBranchRules {
    /// Checks that must have passed.
    pub checks: Vec<String>,
    /// Reviewers that must have approved.
    pub approvals: usize,
    /// The head must contain the base.
    pub up_to_date: bool,
}

pub(super) struct ForgeStandInState {
    pub(super) bare: BareTestRepo,
    pub(super) pulls: Vec<ForgeStandInPullRequest>,
    pub(super) checks: BTreeMap<String, Vec<Value>>,
    pub(super) logs: BTreeMap<u64, String>,
    pub(super) ci: Option<String>,
    pub(super) rules: ForgeBranchRules,
    /// Pull requests whose base goes are closed, also if that was merged.
    pub(super) closes_orphans: bool,
    /// Rules are not met before there was a pull request of this branch.
    pub(super) held_until: Option<String>,
    pub(super) issues: Vec<Value>,
    pub(super) blocked_by: BTreeMap<u64, Vec<u64>>,
    pub(super) parts: BTreeMap<u64, Vec<u64>>,
    pub(super) milestones: Vec<String>,
    pub(super) faults: Vec<ForgeFault>,
    pub(super) requests: Vec<Value>,
    /// Requests that the hour still has.
    pub(super) remaining: u64,
    pub(super) numbers: u64,
    pub(super) token: Option<String>,
}

impl ForgeStandInState {
    pub(super) fn new(bare: BareTestRepo) -> Self {
        Self {
            bare,
            pulls: Vec::new(),
            checks: BTreeMap::new(),
            logs: BTreeMap::new(),
            ci: None,
            rules: ForgeBranchRules::default(),
            closes_orphans: false,
            held_until: None,
            issues: Vec::new(),
            blocked_by: BTreeMap::new(),
            parts: BTreeMap::new(),
            milestones: Vec::new(),
            faults: Vec::new(),
            requests: Vec::new(),
            remaining: 5_000,
            numbers: 0,
            token: None,
        }
    }

    /// A number that nothing else has: pull requests, issues, reviews and checks share them.
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn pull(&mut self, number: u64) -> Option<&mut ForgeStandInPullRequest> {
        self.pulls.iter_mut().find(|pull| pull.number == number)
    }

    /// Brings every open pull request up to what git says: moved, replaced, merged by hand, gone.
    pub(super) fn refresh(&mut self) {
        let bare = self.bare.clone();
        self.follow_bases();
        for pull in self.pulls.iter_mut().filter(|pull| pull.open) {
            let Some(now) = bare.branch(&pull.head) else {
                pull.open = false;
                continue;
            };
            if now != pull.head_commit {
                if !bare.is_ancestor(&pull.head_commit, &now) {
                    pull.forced.push((pull.head_commit.clone(), now.clone()));
                }
                pull.head_commit = now;
            }
            let base = bare.branch(&pull.base);
            if base.is_some_and(|base| bare.is_ancestor(&pull.head_commit, &base)) {
                pull.open = false;
                pull.merged = Some(pull.head_commit.clone());
            }
        }
    }

    /// What GitHub does with pull requests whose base goes: where that branch was merged they follow it,
    /// else they are closed.
    fn follow_bases(&mut self) {
        for at in 0..self.pulls.len() {
            let pull = &self.pulls[at];
            if !pull.open || self.bare.branch(&pull.base).is_some() {
                continue;
            }
            let of_base = self.pulls.iter().rev().find(|other| other.head == pull.base);
            let follows =
                |other: &&ForgeStandInPullRequest| other.merged.is_some() && !self.closes_orphans;
            match of_base.filter(follows).map(|other| other.base.clone()) {
                Some(base) => self.pulls[at].base = base,
                None => self.pulls[at].open = false,
            }
        }
    }

    pub(super) fn create(&mut self, body: &Value) -> Result<u64, &'static str> {
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let (head, base) = (text("head"), text("base"));
        let head = head.rsplit_once(':').map_or(head.clone(), |(_, head)| head.to_owned());
        let Some(head_commit) = self.bare.branch(&head) else { return Err("head is invalid") };
        let Some(base_commit) = self.bare.branch(&base) else { return Err("base is invalid") };
        if self.pulls.iter().any(|pull| pull.open && pull.head == head && pull.base == base) {
            return Err("A pull request already exists for it");
        }
        if self.bare.is_ancestor(&head_commit, &base_commit) {
            return Err("No commits between base and head");
        }
        let number = self.next_number();
        self.pulls.push(ForgeStandInPullRequest {
            number,
            title: text("title"),
            body: text("body"),
            head,
            base,
            draft: body["draft"] == true,
            open: true,
            merged: None,
            head_commit,
            labels: Vec::new(),
            milestone: None,
            reviews: Vec::new(),
            line_comments: Vec::new(),
            comments: Vec::new(),
            forced: Vec::new(),
            asked: None,
        });
        Ok(number)
    }

    /// A pull request as JSON; whether it can be merged is said from the second look on.
    pub(super) fn show(&mut self, number: u64, in_list: bool) -> Option<Value> {
        let at = self.pulls.iter().position(|pull| pull.number == number)?;
        let pull = &self.pulls[at];
        let base_commit = self.bare.branch(&pull.base).unwrap_or_default();
        let pair = (pull.head_commit.clone(), base_commit.clone());
        let known = pull.asked.as_ref() == Some(&pair) || !pull.open;
        let (mergeable, word) = match known && !in_list && pull.open {
            true => self.mergeable(pull, &base_commit),
            false => (Value::Null, "unknown"),
        };
        let pull = &mut self.pulls[at];
        if !in_list {
            pull.asked = Some(pair);
        }
        let labels: Vec<Value> = pull.labels.iter().map(|name| json!({"name": name})).collect();
        Some(json!({
            "number": pull.number, "title": pull.title, "body": pull.body, "draft": pull.draft,
            "state": if pull.open { "open" } else { "closed" },
            "merged": pull.merged.is_some(),
            "merged_at": pull.merged.as_ref().map(|_| "2026-01-01T00:00:00Z"),
            "merge_commit_sha": pull.merged,
            "html_url": format!("http://forge.invalid/o/r/pull/{}", pull.number),
            "head": {"ref": pull.head, "sha": pull.head_commit},
            "base": {"ref": pull.base, "sha": base_commit},
            "mergeable": mergeable, "mergeable_state": word,
            "labels": labels, "milestone": pull.milestone.map(|n| json!({"number": n})),
        }))
    }

    fn mergeable(&self, pull: &ForgeStandInPullRequest, base: &str) -> (Value, &'static str) {
        if self.bare.merge_tree(base, &pull.head_commit).is_none() {
            return (json!(false), "dirty");
        }
        let word = match () {
            () if pull.draft => "draft",
            () if self.blocked(pull) => "blocked",
            () if self.rules.up_to_date && !self.bare.is_ancestor(base, &pull.head_commit) => {
                "behind"
            }
            () => "clean",
        };
        (json!(true), word)
    }

    fn blocked(&self, pull: &ForgeStandInPullRequest) -> bool {
        let checks = self.checks.get(&pull.head_commit);
        let passed = |name: &String| {
            let mut of_name = checks.into_iter().flatten().filter(|check| check["name"] == **name);
            of_name.any(|check| check["conclusion"] == "success")
        };
        let mut verdicts: BTreeMap<&str, &str> = BTreeMap::new();
        for review in &pull.reviews {
            let who = review["user"]["login"].as_str().unwrap_or_default();
            verdicts.insert(who, review["state"].as_str().unwrap_or_default());
        }
        let approvals = verdicts.values().filter(|state| **state == "APPROVED").count();
        let held = |head: &String| !self.pulls.iter().any(|pull| pull.head == *head);
        self.held_until.as_ref().is_some_and(held)
            || !self.rules.checks.iter().all(passed)
            || approvals < self.rules.approvals
            || verdicts.values().any(|state| *state == "CHANGES_REQUESTED")
    }

    /// Merges a pull request in the repository.
    pub(super) fn merge(
        &mut self,
        number: u64,
        body: &Value,
    ) -> Result<Value, (u64, &'static str)> {
        self.refresh();
        let at = self.pulls.iter().position(|pull| pull.number == number).ok_or((404, "none"))?;
        let pull = &self.pulls[at];
        if !pull.open || pull.draft {
            return Err((405, "Pull Request is not mergeable"));
        }
        if body["sha"].as_str().is_some_and(|sha| sha != pull.head_commit) {
            return Err((409, "Head branch was modified. Review and try the merge again."));
        }
        let bare = self.bare.clone();
        let base = bare.branch(&pull.base).ok_or((405, "Base branch is gone"))?;
        let behind = self.rules.up_to_date && !bare.is_ancestor(&base, &pull.head_commit);
        if self.blocked(pull) || behind {
            return Err((405, "At least one rule of the base branch is not met"));
        }
        let tree = bare.merge_tree(&base, &pull.head_commit);
        let tree = tree.ok_or((405, "Pull Request is not mergeable"))?;
        let text = |key: &str| body[key].as_str().unwrap_or_default();
        let message = format!("{}\n\n{}", text("commit_title"), text("commit_message"));
        let commit = match text("merge_method") {
            "squash" => bare.commit(&tree, &[&base], &message),
            "rebase" => bare.replay(&base, &pull.head_commit).ok_or((405, "cannot be rebased"))?,
            _ => bare.commit(&tree, &[&base, &pull.head_commit], &message),
        };
        if !bare.move_branch(&pull.base, &commit, &base) {
            return Err((409, "Base branch was modified. Review and try the merge again."));
        }
        let pull = &mut self.pulls[at];
        pull.open = false;
        pull.merged = Some(commit.clone());
        Ok(json!({"sha": commit, "merged": true, "message": "merged"}))
    }

    /// Merges the base into a pull request's branch.
    pub(super) fn update(
        &mut self,
        number: u64,
        body: &Value,
    ) -> Result<Value, (u64, &'static str)> {
        self.refresh();
        let bare = self.bare.clone();
        let pull = self.pull(number).ok_or((404, "none"))?;
        if body["expected_head_sha"].as_str().is_some_and(|sha| sha != pull.head_commit) {
            return Err((422, "expected head sha didn't match current head ref"));
        }
        let base = bare.branch(&pull.base).ok_or((422, "Base branch is gone"))?;
        let tree = bare.merge_tree(&pull.head_commit, &base).ok_or((422, "merge conflict"))?;
        let commit = bare.commit(&tree, &[&pull.head_commit, &base], "Merge the base branch");
        bare.move_branch(&pull.head, &commit, &pull.head_commit);
        Ok(json!({"message": "Updating pull request branch."}))
    }
}
