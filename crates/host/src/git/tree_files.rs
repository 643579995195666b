//! Looks into trees without a checkout: which files there are, what they hold, what became of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use mainstem_core::id::Oid;

use super::command::TIMEOUT_CHECKOUT;
use super::error::{GitError, Result};
use super::tree_links::{TreeLinks, Way};
use super::{IoErrorContext as _, Repo, is_oid, lossy_string, split_nul};

/// A chain of links is looked up step by step, and no kernel follows a longer one.
const LINK_ROUNDS_MAX: usize = 64;

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// From the root. Bytes that are no text are replaced.
    pub path: String,
    pub id: Oid,
    /// How long that is.
    pub bytes: u64,
}

/// A path of a tree that leads through links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The links on the way, from the root.
    pub links: Vec<String>,
    /// The path that it ends at; none if it leads out of the tree.
    pub end: Option<String>,
}

/// What became of a file between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStatusChange {
    /// Git's letter: `A`, `M`, `D`, `R` and others.
    pub status: char,
    /// Where it is now; for one that is gone, where it was.
    pub path: String,
    /// Where it was, if that is elsewhere.
    pub old_path: Option<String>,
}

impl Repo {
    /// Every file of a tree; submodules are none.
    pub fn list_tree_files(&self, tree: &Oid) -> Result<Vec<TreeFile>> {
        let args = ["ls-tree", "-r", "-z", "-l", "--full-tree", tree.as_str()];
        let answer = self.git().args(args).timeout(TIMEOUT_CHECKOUT).run()?;
        let mut files = Vec::new();
        for entry in split_nul(&answer.stdout).map(lossy_string) {
            // `<mode> <type> <id> <size>\t<path>`
            let (meta, path) = entry.split_once('\t').ok_or_else(|| answer.bad_output_error())?;
            let words: Vec<&str> = meta.split_whitespace().collect();
            match words.as_slice() {
                [_, "blob", id, bytes] if is_oid(id) => files.push(TreeFile {
                    path: path.to_owned(),
                    id: Oid::new(*id),
                    bytes: bytes.parse().map_err(|_| answer.bad_output_error())?,
                }),
                [_, "commit", ..] => {}
                _ => return Err(answer.bad_output_error()),
            }
        }
        Ok(files)
    }

    /// What a file holds.
    pub fn read_tree_file(&self, blob: &TreeFile) -> Result<Vec<u8>> {
        let answer = self.git().args(["cat-file", "blob", blob.id.as_str()]).run()?;
        if answer.stdout.len() as u64 == blob.bytes {
            return Ok(answer.stdout);
        }
        let text = format!("{} bytes of {}", answer.stdout.len(), blob.bytes);
        Err(GitError::BadOutput { what: "git cat-file blob".to_owned(), text })
    }

    /// The content that a path has in a commit; none if there is no such file.
    pub fn blob_id_at(&self, commit: &Oid, path: &str) -> Result<Option<Oid>> {
        let args = ["ls-tree", "-z", "--full-tree", commit.as_str(), "--"];
        let answer = self.git().args(args).arg(format!(":(top,literal){path}")).run()?;
        let entry = split_nul(&answer.stdout).map(lossy_string).next();
        let Some(entry) = entry else { return Ok(None) };
        let (meta, _) = entry.split_once('\t').ok_or_else(|| answer.bad_output_error())?;
        match meta.split_whitespace().collect::<Vec<_>>().as_slice() {
            [_, "blob", id] if is_oid(id) => Ok(Some(Oid::new(*id))),
            [_, "tree" | "commit", _] => Ok(None),
            _ => Err(answer.bad_output_error()),
        }
    }

    /// The id that this content has as a blob.
    pub fn hash_blob(&self, content: &[u8]) -> Result<Oid> {
        let answer =
            self.git().args(["hash-object", "--stdin"]).stdin_bytes(content.to_vec()).run()?;
        super::parse_oid(answer.single_line()?, &answer)
    }

    /// The id that a file of the user's checkout would have if it were committed as it is: line ends,
    /// encodings and filters are taken back as the attributes there say. None if there is no such file.
    pub fn blob_id_as_committed(&self, path: &str) -> Result<Option<Oid>> {
        let Some(checkout) = self.checkout() else { return Ok(None) };
        let file = checkout.join(path);
        let content = match fs::read(&file) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_path("read", &file),
        };
        let git = self.git_in_worktree(self.checkout_git_dir(), checkout);
        let git = git.args(["hash-object", "--stdin", "--path"]).arg(path);
        let answer = git.stdin_bytes(content).run()?;
        super::parse_oid(answer.single_line()?, &answer).map(Some)
    }

    /// Those of these paths that lead through links in a commit, and where to.
    pub fn followed(&self, commit: &Oid, paths: &[String]) -> Result<BTreeMap<String, Followed>> {
        let mut links = TreeLinks::default();
        let mut known: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut ways: Vec<(&String, Way)> = Vec::new();
        for _ in 0..LINK_ROUNDS_MAX {
            ways = paths.iter().map(|path| (path, links.follow(path.as_bytes()))).collect();
            let seen = ways.iter().flat_map(|(_, way)| &way.seen);
            let new: BTreeSet<Vec<u8>> = seen.filter(|at| !known.contains(*at)).cloned().collect();
            if new.is_empty() {
                break;
            }
            self.add_links(commit, &new, &mut links)?;
            known.extend(new);
        }
        let text = |bytes: &Vec<u8>| lossy_string(bytes);
        let through = ways.into_iter().filter(|(_, way)| !way.links.is_empty());
        let followed = through.map(|(path, way)| {
            let links = way.links.iter().map(text).collect();
            (path.clone(), Followed { links, end: way.end.as_ref().map(text) })
        });
        Ok(followed.collect())
    }

    /// Looks up which of these paths are links in a commit.
    fn add_links(&self, commit: &Oid, at: &BTreeSet<Vec<u8>>, links: &mut TreeLinks) -> Result<()> {
        let mut git = self.git().args(["ls-tree", "-z", "--full-tree", commit.as_str(), "--"]);
        for path in at {
            git = git.arg(format!(":(top,literal){}", lossy_string(path)));
        }
        let listed = git.run()?;
        for entry in split_nul(&listed.stdout) {
            let Some(tab) = entry.iter().position(|&b| b == b'\t') else { continue };
            if let Some(id) = lossy_string(&entry[..tab]).strip_prefix("120000 blob ")
                && at.contains(&entry[tab + 1..])
            {
                links.add(&entry[tab + 1..], self.read_blob(&Oid::new(id))?);
            }
        }
        Ok(())
    }

    /// What a blob holds.
    pub fn read_blob(&self, id: &Oid) -> Result<Vec<u8>> {
        Ok(self.git().args(["cat-file", "blob", id.as_str()]).run()?.stdout)
    }

    /// What became of each file from `base` to `tip`.
    pub fn list_file_status_changes(&self, base: &Oid, tip: &Oid) -> Result<Vec<FileStatusChange>> {
        let answer = self.diff_tree(base, tip, &["-r", "-z", "-M", "--name-status"]).run()?;
        let mut rest = split_nul(&answer.stdout).map(lossy_string);
        let mut moves = Vec::new();
        while let Some(word) = rest.next() {
            let letter = word.chars().next().ok_or_else(|| answer.bad_output_error())?;
            let first = rest.next().ok_or_else(|| answer.bad_output_error())?;
            let (path, old) = match letter {
                'R' | 'C' => (rest.next().ok_or_else(|| answer.bad_output_error())?, Some(first)),
                _ => (first, None),
            };
            moves.push(FileStatusChange { status: letter, path, old_path: old });
        }
        Ok(moves)
    }

    /// The difference in these files as a patch.
    pub fn diff_paths(&self, base: &Oid, tip: &Oid, paths: &[String]) -> Result<Vec<u8>> {
        let args = ["-r", "-M", "-p", "--src-prefix=a/", "--dst-prefix=b/", "--no-color"];
        let paths = paths.iter().map(|path| format!(":(top,literal){path}"));
        Ok(self.diff_tree(base, tip, &args).args(["--"]).args(paths).run()?.stdout)
    }
}
