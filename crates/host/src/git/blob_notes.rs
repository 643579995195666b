//! Merges put together from parts that are known, and notes that hold blobs: what remembering how a
//! conflict was resolved needs of git. Knows neither what a note says nor when it counts.

use std::collections::{BTreeSet, HashMap};

use mainstem_core::id::Oid;

use super::error::Result;
use super::refs::now_ms;
use super::staging::PrivateIndex;
use super::{GitIdentity, RefUpdateOutcome, Repo, lossy_string, parse_oid, split_nul};

/// A file in a tree: its mode as git writes it, and its content.
pub type GitTreeEntry = (String, Oid);

/// Begins a note, so that a ref of somebody else's is not read as one.
const TITLE: &str = "mainstem: note";

/// A note: some text on a ref of its own that keeps blobs alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobNote {
    pub name: String,
    pub commit: Oid,
    /// When it was taken, in milliseconds since 1970.
    pub at_ms: i64,
    pub text: String,
}

impl Repo {
    /// The tree with these files in place of what it has there; none takes the file away.
    pub fn write_tree_with_files(
        &self,
        tree: &Oid,
        files: &[(String, Option<GitTreeEntry>)],
    ) -> Result<Oid> {
        let index = PrivateIndex(self.temp_path("index"));
        let git = || self.git().env("GIT_INDEX_FILE", &index.0);
        git().args(["read-tree", tree.as_str()]).run()?;
        let mut input = Vec::new();
        for (path, entry) in files {
            let nowhere = "0".repeat(tree.as_str().len());
            let line = match entry {
                Some((mode, blob)) => format!("{mode} {blob}\t{path}\0"),
                None => format!("0 {nowhere}\t{path}\0"),
            };
            input.extend(line.into_bytes());
        }
        git().args(["update-index", "-z", "--index-info"]).stdin_bytes(input).run()?;
        let answer = git().arg("write-tree").run()?;
        parse_oid(answer.single_line()?, &answer)
    }

    /// What a commit has at these paths; those it does not have are left out.
    pub fn read_tree_entries(
        &self,
        commit: &Oid,
        paths: &[String],
    ) -> Result<HashMap<String, GitTreeEntry>> {
        if paths.is_empty() {
            return Ok(HashMap::new());
        }
        let answer = self
            .git()
            .env("GIT_LITERAL_PATHSPECS", "1")
            .args(["ls-tree", "-z", "--full-tree", commit.as_str(), "--"])
            .args(paths)
            .run()?;
        let mut found = HashMap::new();
        for line in split_nul(&answer.stdout) {
            let line = lossy_string(line);
            let (head, path) = line.split_once('\t').ok_or_else(|| answer.bad_output_error())?;
            let [mode, _, blob] = head.split(' ').collect::<Vec<_>>()[..] else {
                return Err(answer.bad_output_error());
            };
            found.insert(path.to_owned(), (mode.to_owned(), parse_oid(blob, &answer)?));
        }
        Ok(found)
    }

    /// Takes a note that keeps these blobs. One that is there already stays as it is.
    pub fn write_blob_note(
        &self,
        name: &str,
        text: &str,
        blobs: &[Oid],
    ) -> Result<RefUpdateOutcome> {
        let blobs: BTreeSet<&str> = blobs.iter().map(Oid::as_str).collect();
        let listed: String = blobs.iter().map(|b| format!("100644 blob {b}\t{b}\n")).collect();
        let answer = self.git().arg("mktree").stdin_bytes(listed).run()?;
        let tree = parse_oid(answer.single_line()?, &answer)?;
        let (who, words) = (GitIdentity::fallback(), format!("{TITLE}\n\n{text}\n"));
        let commit = self.commit_tree(&tree, &[], &words, &who, &who, now_ms())?;
        self.update_ref(name, &commit, None, "a note")
    }

    /// All notes below a prefix, the newest first.
    pub fn list_blob_notes(&self, prefix: &str) -> Result<Vec<BlobNote>> {
        let format =
            "--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents)%00%00";
        let answer =
            self.git().args(["for-each-ref", "--sort=-committerdate", format, prefix]).run()?;
        let text = lossy_string(&answer.stdout);
        let mut notes = Vec::new();
        for record in text.split("\0\0\n").filter(|record| !record.is_empty()) {
            let [name, commit, at, words] = record.splitn(4, '\0').collect::<Vec<_>>()[..] else {
                return Err(answer.bad_output_error());
            };
            let Some(text) = words.strip_prefix(TITLE) else { continue };
            notes.push(BlobNote {
                name: name.to_owned(),
                commit: parse_oid(commit, &answer)?,
                at_ms: at.parse::<i64>().unwrap_or(0).saturating_mul(1000),
                text: text.trim().to_owned(),
            });
        }
        Ok(notes)
    }
}
