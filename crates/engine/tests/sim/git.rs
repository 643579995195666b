//! A repository in memory: commits with sets of edits for trees, branches, snapshots, workspaces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mainstem_core::id::{Oid, TaskId};

use crate::agent::Key;

/// One edit of somebody; every edit ever made is another one.
pub type Edit = u32;
/// A commit, by its place.
pub type At = usize;

#[derive(Debug, Clone)]
pub struct Commit {
    /// Its parents; the first is the line that it continues.
    pub parents: Vec<At>,
    pub tree: usize,
    /// The attempts that it lands, if it is a car's or binds several.
    pub lands: Vec<Key>,
}

/// A folder with files.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The commit that is checked out.
    pub head: At,
    /// The files as they are.
    pub files: BTreeSet<Edit>,
}

#[derive(Debug)]
pub struct Git {
    commits: Vec<Commit>,
    trees: Vec<BTreeSet<Edit>>,
    tree_ids: BTreeMap<BTreeSet<Edit>, usize>,
    cars: BTreeMap<(At, At, Key), At>,
    edits: Edit,
    /// Where the target branch stands: on the remote, if landings are pushed there.
    pub main: At,
    /// Where it stands here, and where the remote's was last seen; none if nothing is pushed.
    pub here: Option<(At, At)>,
    pub strangers: Vec<At>,
    pub of_strangers: BTreeSet<Edit>,
    pub branches: BTreeMap<String, At>,
    pub snapshots: BTreeMap<String, At>,
    pub workspaces: BTreeMap<PathBuf, Workspace>,
}

impl Git {
    /// One commit, one branch.
    pub fn new() -> Self {
        let mut git = Self {
            commits: Vec::new(),
            trees: Vec::new(),
            tree_ids: BTreeMap::new(),
            cars: BTreeMap::new(),
            edits: 0,
            main: 0,
            here: None,
            strangers: Vec::new(),
            of_strangers: BTreeSet::new(),
            branches: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            workspaces: BTreeMap::new(),
        };
        git.commit(Vec::new(), BTreeSet::new(), Vec::new());
        git
    }

    /// The name of a commit.
    pub fn name(at: At) -> Oid {
        Oid::new(format!("c{at}"))
    }
    /// The commit with this name.
    pub fn find(oid: &Oid) -> At {
        oid.as_str().trim_start_matches('c').parse().expect("a commit's name")
    }
    /// The name of a commit's tree.
    pub fn tree_name(&self, at: At) -> Oid {
        Oid::new(format!("t{}", self.commits[at].tree))
    }
    /// What is in a commit.
    pub fn files(&self, at: At) -> &BTreeSet<Edit> {
        &self.trees[self.commits[at].tree]
    }
    pub fn get(&self, at: At) -> &Commit {
        &self.commits[at]
    }
    /// An edit that nobody made before.
    pub fn edit(&mut self) -> Edit {
        self.edits += 1;
        self.edits
    }

    pub fn commit(&mut self, parents: Vec<At>, files: BTreeSet<Edit>, lands: Vec<Key>) -> At {
        let fresh = self.trees.len();
        let tree = *self.tree_ids.entry(files.clone()).or_insert(fresh);
        if tree == fresh {
            self.trees.push(files);
        }
        self.commits.push(Commit { parents, tree, lands });
        self.commits.len() - 1
    }

    /// Is `old` in the history of `new`?
    pub fn contains(&self, new: At, old: At) -> bool {
        let (mut open, mut seen) = (vec![new], BTreeSet::new());
        while let Some(at) = open.pop() {
            if at == old {
                return true;
            }
            // Parents are older than their children.
            if at > old && seen.insert(at) {
                open.extend(&self.commits[at].parents);
            }
        }
        false
    }

    /// The target branch's own line, newest first.
    pub fn line(&self) -> impl Iterator<Item = At> {
        self.line_from(self.main)
    }

    fn line_from(&self, tip: At) -> impl Iterator<Item = At> {
        std::iter::successors(Some(tip), |at| self.commits[*at].parents.first().copied())
    }

    /// The commit below `tip` that lands this attempt, or the one inside it. Where the branch is on the
    /// remote is no matter: only what was fetched can be looked at.
    pub fn landing(&self, tip: At, key: &Key) -> Option<At> {
        let at = self.line_from(tip).find(|at| self.commits[*at].lands.contains(key))?;
        let mut inside = std::iter::successors(Some(at), |at| {
            let commit = &self.commits[*at];
            let back =
                if commit.lands.len() > 1 { commit.parents.get(1) } else { commit.parents.first() };
            back.copied()
        });
        inside.find(|at| self.commits[*at].lands.as_slice() == [key.clone()])
    }

    /// Where work lands as far as is known here.
    pub fn head(&self) -> At {
        match self.here {
            Some((local, seen)) if !self.contains(local, seen) => seen,
            Some((local, _)) => local,
            None => self.main,
        }
    }

    /// The remote is asked where its branch is, and ours follows if it can.
    pub fn fetch(&mut self) {
        if let Some((local, _)) = self.here {
            let follows = self.contains(self.main, local);
            self.here = Some((if follows { self.main } else { local }, self.main));
        }
    }

    /// Somebody else commits to the target branch: there, or here.
    pub fn stranger(&mut self, there: bool) {
        let on = match self.here {
            Some((local, _)) if !there => local,
            _ => self.main,
        };
        let mut files = self.files(on).clone();
        let edit = self.edit();
        files.insert(edit);
        self.of_strangers.insert(edit);
        let at = self.commit(vec![on], files, Vec::new());
        match &mut self.here {
            Some((local, _)) if !there => *local = at,
            _ => self.main = at,
        }
        self.strangers.push(at);
    }

    /// The merge of a tip onto a commit; made again it is the same.
    pub fn merge(&mut self, key: &Key, onto: At, tip: At) -> At {
        if let Some(known) = self.cars.get(&(onto, tip, key.clone())) {
            return *known;
        }
        let files = self.files(onto) | self.files(tip);
        let car = self.commit(vec![onto, tip], files, vec![key.clone()]);
        self.cars.insert((onto, tip, key.clone()), car);
        car
    }

    /// One commit for several merges; made again it is the same.
    pub fn bind(&mut self, onto: At, tip: At, keys: &[Key]) -> At {
        let name = (TaskId::new("bound"), 0);
        if let Some(known) = self.cars.get(&(onto, tip, name.clone())) {
            return *known;
        }
        let files = self.files(tip).clone();
        let bound = self.commit(vec![onto, tip], files, keys.to_vec());
        self.cars.insert((onto, tip, name), bound);
        bound
    }

    /// Puts a commit on a hidden ref of this attempt; the same content is kept once.
    pub fn keep(&mut self, (task, attempt): &Key, at: At) -> String {
        let prefix = format!("refs/mainstem/snapshots/{task}/{attempt}/");
        let tree = self.commits[at].tree;
        let of_prefix = || {
            self.snapshots.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix))
        };
        if let Some((name, _)) = of_prefix().find(|(_, had)| self.commits[**had].tree == tree) {
            return name.clone();
        }
        let name = format!("{prefix}{:04}", of_prefix().count() + 1);
        self.snapshots.insert(name.clone(), at);
        name
    }

    /// Puts a folder's files on a hidden ref, unless the target branch has them.
    pub fn snapshot(&mut self, key: &Key, path: &Path) -> Option<(String, At)> {
        let Workspace { head, files } = self.workspaces.get(path)?.clone();
        if files == *self.files(head) && self.contains(self.main, head) {
            return None;
        }
        let at = if files == *self.files(head) {
            head
        } else {
            self.commit(vec![head], files, Vec::new())
        };
        Some((self.keep(key, at), at))
    }
}
