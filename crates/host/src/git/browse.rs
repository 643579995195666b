//! Looks into trees without a checkout: which files there are, what they hold, what became of them.

use mainstem_core::id::Oid;

use super::error::{GitError, Result};
use super::run::TIMEOUT_CHECKOUT;
use super::{Repo, is_oid, lossy, parts};

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// From the root. Bytes that are no text are replaced.
    pub path: String,
    /// Its content.
    pub id: Oid,
    /// How long that is.
    pub bytes: u64,
}

/// What became of a file between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Git's letter: `A`, `M`, `D`, `R` and others.
    pub letter: char,
    /// Where it is now; for one that is gone, where it was.
    pub path: String,
    /// Where it was, if that is elsewhere.
    pub old: Option<String>,
}

impl Repo {
    /// Every file of a tree; submodules are none.
    pub fn files_of(&self, tree: &Oid) -> Result<Vec<Blob>> {
        let args = ["ls-tree", "-r", "-z", "-l", "--full-tree", tree.as_str()];
        let answer = self.git().args(args).timeout(TIMEOUT_CHECKOUT).run()?;
        let mut files = Vec::new();
        for entry in parts(&answer.stdout).map(lossy) {
            // `<mode> <type> <id> <size>\t<path>`
            let (meta, path) = entry.split_once('\t').ok_or_else(|| answer.bad())?;
            let words: Vec<&str> = meta.split_whitespace().collect();
            match words.as_slice() {
                [_, "blob", id, bytes] if is_oid(id) => files.push(Blob {
                    path: path.to_owned(),
                    id: Oid::new(*id),
                    bytes: bytes.parse().map_err(|_| answer.bad())?,
                }),
                [_, "commit", ..] => {}
                _ => return Err(answer.bad()),
            }
        }
        Ok(files)
    }

    /// What a file holds.
    pub fn content_of(&self, blob: &Blob) -> Result<Vec<u8>> {
        let answer = self.git().args(["cat-file", "blob", blob.id.as_str()]).run()?;
        if answer.stdout.len() as u64 == blob.bytes {
            return Ok(answer.stdout);
        }
        let text = format!("{} bytes of {}", answer.stdout.len(), blob.bytes);
        Err(GitError::BadOutput { what: "git cat-file blob".to_owned(), text })
    }

    /// The content that a path has in a commit; none if there is no such file.
    pub fn blob_at(&self, commit: &Oid, path: &str) -> Result<Option<Oid>> {
        let args = ["ls-tree", "-z", "--full-tree", commit.as_str(), "--"];
        let answer = self.git().args(args).arg(format!(":(top,literal){path}")).run()?;
        let entry = parts(&answer.stdout).map(lossy).next();
        let Some(entry) = entry else { return Ok(None) };
        let (meta, _) = entry.split_once('\t').ok_or_else(|| answer.bad())?;
        match meta.split_whitespace().collect::<Vec<_>>().as_slice() {
            [_, "blob", id] if is_oid(id) => Ok(Some(Oid::new(*id))),
            [_, "tree" | "commit", _] => Ok(None),
            _ => Err(answer.bad()),
        }
    }

    /// The id that this content has as a blob.
    pub fn blob_id(&self, content: &[u8]) -> Result<Oid> {
        let answer = self.git().args(["hash-object", "--stdin"]).input(content.to_vec()).run()?;
        super::oid(answer.line()?, &answer)
    }

    /// What a blob holds.
    pub fn read_blob(&self, id: &Oid) -> Result<Vec<u8>> {
        Ok(self.git().args(["cat-file", "blob", id.as_str()]).run()?.stdout)
    }

    /// What became of each file from `base` to `tip`.
    pub fn moves(&self, base: &Oid, tip: &Oid) -> Result<Vec<Moved>> {
        let answer = self.diff_tree(base, tip, &["-r", "-z", "-M", "--name-status"]).run()?;
        let mut rest = parts(&answer.stdout).map(lossy);
        let mut moves = Vec::new();
        while let Some(word) = rest.next() {
            let letter = word.chars().next().ok_or_else(|| answer.bad())?;
            let first = rest.next().ok_or_else(|| answer.bad())?;
            let (path, old) = match letter {
                'R' | 'C' => (rest.next().ok_or_else(|| answer.bad())?, Some(first)),
                _ => (first, None),
            };
            moves.push(Moved { letter, path, old });
        }
        Ok(moves)
    }

    /// The difference in these files as a patch.
    pub fn diff_of(&self, base: &Oid, tip: &Oid, paths: &[String]) -> Result<Vec<u8>> {
        let args = ["-r", "-M", "-p", "--src-prefix=a/", "--dst-prefix=b/", "--no-color"];
        let paths = paths.iter().map(|path| format!(":(top,literal){path}"));
        Ok(self.diff_tree(base, tip, &args).args(["--"]).args(paths).run()?.stdout)
    }
}
