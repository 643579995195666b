//! Looks for things in a change that no merge should bring in, whatever the change is about.

use std::collections::{HashMap, HashSet};

use mainstem_core::id::Oid;

use super::error::Result;
use super::tree_links::TreeLinks;
use super::{Repo, lossy_string, path_from_bytes, split_nul};

/// One thing wrong with a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HygieneFlaw {
    /// Added lines contain a whole set of conflict markers.
    ConflictMarkers { path: String },
    /// A file is larger than allowed.
    TooLarge { path: String, bytes: u64, max: u64 },
    /// Two paths differ only in case: such a tree cannot be checked out everywhere.
    CaseCollision { path: String, other: String },
    /// A path component that git would take for a repository.
    GitComponent { path: String },
    /// A path component that would lead out of the folder.
    DotComponent { path: String },
    /// A link that leads out of the tree.
    LinkOutside { path: String, target: String },
    /// A pointer to a repository nobody can fetch: it is not in `.gitmodules`.
    LooseGitlink { path: String },
    /// What the tree says of its submodules would run a command, or git refuses it.
    BadGitmodules { why: String },
    /// A submodule that is at a commit which only the agent's workspace has.
    UnknownCommit {
        /// The path of the submodule.
        path: String,
        commit: String,
    },
}

impl std::fmt::Display for HygieneFlaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConflictMarkers { path } => write!(f, "{path}: conflict markers were left in"),
            Self::TooLarge { path, bytes, max } => {
                f.write_str(&super::import::too_large_message(path, *bytes, *max))
            }
            Self::CaseCollision { path, other } => {
                write!(f, "{path}: differs from {other} only in upper and lower case")
            }
            Self::GitComponent { path } => write!(f, "{path}: a path must not contain `.git`"),
            Self::DotComponent { path } => write!(f, "{path}: a path must not contain `.` or `..`"),
            Self::LinkOutside { path, target } => {
                write!(f, "{path}: the symbolic link points outside the repository, to {target}")
            }
            Self::LooseGitlink { path } => write!(
                f,
                "{path}: a nested repository was added without files; remove the inner `.git` folder, or make the folder a submodule"
            ),
            Self::BadGitmodules { why } => write!(f, ".gitmodules: {why}"),
            Self::UnknownCommit { path, commit } => write!(
                f,
                "{path}: the submodule is at {commit}, which neither the local copy of the submodule nor the remote has; push that commit, or run `git submodule update --init` in the \
                 main checkout first"
            ),
        }
    }
}

struct ChangedTreeEntry {
    mode: String,
    id: String,
    is_new: bool,
    name: Vec<u8>,
}

impl Repo {
    /// The flaws of the change from `base` to `tip`; `file_bytes_max` 0 means no limit.
    pub fn find_hygiene_flaws(
        &self,
        base: &Oid,
        tip: &Oid,
        file_bytes_max: u64,
    ) -> Result<Vec<HygieneFlaw>> {
        let entries = self.list_changed_entries(base, tip)?;
        let mut flaws = Vec::new();
        for entry in &entries {
            if entry.name.split(|&b| b == b'/').any(is_git_component) {
                flaws.push(HygieneFlaw::GitComponent { path: lossy_string(&entry.name) });
            }
        }
        for entry in &entries {
            let stays = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
            if !entry.name.split(|&b| b == b'/').all(stays) {
                flaws.push(HygieneFlaw::DotComponent { path: lossy_string(&entry.name) });
            }
        }
        self.find_outside_links(tip, &entries, &mut flaws)?;
        if file_bytes_max > 0 {
            self.find_large_files(&entries, file_bytes_max, &mut flaws)?;
        }
        self.find_case_collisions(tip, &entries, &mut flaws)?;
        self.find_loose_gitlinks(tip, &entries, &mut flaws)?;
        self.find_bad_gitmodules(&entries, &mut flaws)?;
        self.find_conflict_markers(base, tip, &mut flaws)?;
        Ok(flaws)
    }

    /// What is added or changed; deletions cannot do harm of this kind.
    fn list_changed_entries(&self, base: &Oid, tip: &Oid) -> Result<Vec<ChangedTreeEntry>> {
        let args = ["-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--diff-filter=d"];
        let answer = self.diff_tree(base, tip, &args).run()?;
        let mut fields = split_nul(&answer.stdout);
        let mut entries = Vec::new();
        while let Some(meta) = fields.next() {
            let name = fields.next().ok_or_else(|| answer.bad_output_error())?.to_vec();
            let meta = lossy_string(meta);
            let words: Vec<&str> = meta.split(' ').collect();
            let [_, mode, _, id, status] = words.as_slice() else {
                return Err(answer.bad_output_error());
            };
            let is_new = status.starts_with('A');
            entries.push(ChangedTreeEntry {
                mode: (*mode).to_owned(),
                id: (*id).to_owned(),
                is_new,
                name,
            });
        }
        Ok(entries)
    }

    /// Links that lead out of the tree, by themselves or by way of others, where the change has a hand in
    /// it: whoever writes through one of them on the user's machine writes elsewhere.
    fn find_outside_links(
        &self,
        tip: &Oid,
        entries: &[ChangedTreeEntry],
        flaws: &mut Vec<HygieneFlaw>,
    ) -> Result<()> {
        let is_link = |entry: &&ChangedTreeEntry| entry.mode == "120000";
        let changed: HashSet<&[u8]> =
            entries.iter().filter(is_link).map(|entry| entry.name.as_slice()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let links = self.read_tree_links(tip)?;
        for (name, target) in links.iter() {
            if let Some(way) = links.find_escaping_links(name)
                && way.iter().any(|passed| changed.contains(passed.as_slice()))
            {
                let (path, target) = (lossy_string(name), lossy_string(target));
                flaws.push(HygieneFlaw::LinkOutside { path, target });
            }
        }
        Ok(())
    }

    /// All links of a tree and where each leads.
    fn read_tree_links(&self, tip: &Oid) -> Result<TreeLinks> {
        let listed = self.git().args(["ls-tree", "-r", "-z", "--full-tree", tip.as_str()]).run()?;
        let mut named = Vec::new();
        let mut question = String::new();
        for entry in split_nul(&listed.stdout) {
            let Some(tab) = entry.iter().position(|&b| b == b'\t') else { continue };
            if let Some(id) = lossy_string(&entry[..tab]).strip_prefix("120000 blob ") {
                question.push_str(id);
                question.push('\n');
                named.push(&entry[tab + 1..]);
            }
        }
        let answer = self.git().args(["cat-file", "--batch"]).stdin_bytes(question).run()?;
        let mut links = TreeLinks::default();
        let mut rest = answer.stdout.as_slice();
        for name in named {
            // `<id> blob <size>`, a line end, the content, a line end.
            let read = || -> Option<(&[u8], &[u8])> {
                let end = rest.iter().position(|&b| b == b'\n')?;
                let size: usize = lossy_string(&rest[..end]).rsplit(' ').next()?.parse().ok()?;
                let target = rest.get(end + 1..end + 1 + size)?;
                Some((target, rest.get(end + 2 + size..)?))
            };
            let (target, more) = read().ok_or_else(|| answer.bad_output_error())?;
            links.add(name, target.to_vec());
            rest = more;
        }
        Ok(links)
    }

    fn find_large_files(
        &self,
        entries: &[ChangedTreeEntry],
        max: u64,
        flaws: &mut Vec<HygieneFlaw>,
    ) -> Result<()> {
        let blobs: Vec<&ChangedTreeEntry> =
            entries.iter().filter(|entry| entry.mode.starts_with("10")).collect();
        if blobs.is_empty() {
            return Ok(());
        }
        let input: String = blobs.iter().map(|entry| format!("{}\n", entry.id)).collect();
        let answer = self
            .git()
            .args(["cat-file", "--batch-check=%(objectsize)"])
            .stdin_bytes(input)
            .run()?;
        let text = answer.single_line()?.to_owned();
        let mut sizes = text.lines();
        for entry in blobs {
            let size = sizes.next().and_then(|size| size.parse().ok());
            let bytes: u64 = size.ok_or_else(|| answer.bad_output_error())?;
            if bytes > max {
                flaws.push(HygieneFlaw::TooLarge { path: lossy_string(&entry.name), bytes, max });
            }
        }
        Ok(())
    }

    fn find_case_collisions(
        &self,
        tip: &Oid,
        entries: &[ChangedTreeEntry],
        flaws: &mut Vec<HygieneFlaw>,
    ) -> Result<()> {
        if !entries.iter().any(|entry| entry.is_new) {
            return Ok(());
        }
        let answer = self.git().args(["ls-tree", "-r", "-z", "--name-only", tip.as_str()]).run()?;
        let mut by_fold: HashMap<String, Vec<String>> = HashMap::new();
        for name in split_nul(&answer.stdout).map(lossy_string) {
            by_fold.entry(name.to_lowercase()).or_default().push(name);
        }
        for entry in entries.iter().filter(|entry| entry.is_new) {
            let path = lossy_string(&entry.name);
            let fold = path.to_lowercase();
            let ends = fold.match_indices('/').map(|(at, _)| at).chain([fold.len()]);
            // The whole path against files; each of its folders against files, too.
            let other = ends.filter_map(|end| by_fold.get(&fold[..end])).flatten();
            if let Some(other) = other.into_iter().find(|other| **other != path) {
                flaws.push(HygieneFlaw::CaseCollision { path, other: other.clone() });
            }
        }
        Ok(())
    }

    fn find_loose_gitlinks(
        &self,
        tip: &Oid,
        entries: &[ChangedTreeEntry],
        flaws: &mut Vec<HygieneFlaw>,
    ) -> Result<()> {
        let links: Vec<&ChangedTreeEntry> =
            entries.iter().filter(|entry| entry.mode == "160000").collect();
        if links.is_empty() {
            return Ok(());
        }
        // Exit code 1: the file is there and names no path. No file at all: every link is loose.
        let modules = format!("{tip}:.gitmodules");
        let mut named = HashMap::new();
        if self.find_object(&modules, self.git())?.is_some() {
            let answer = self
                .git()
                .args([
                    "config",
                    "-z",
                    "--blob",
                    &modules,
                    "--get-regexp",
                    r"^submodule\..*\.path$",
                ])
                .accept_exit_codes(&[1])
                .run()?;
            for entry in split_nul(&answer.stdout) {
                let mut halves = entry.splitn(2, |&b| b == b'\n');
                let key = lossy_string(halves.next().unwrap_or_default());
                let name = key.trim_start_matches("submodule.").trim_end_matches(".path");
                named.insert(halves.next().unwrap_or_default().to_vec(), name.to_owned());
            }
        }
        for link in links {
            let path = lossy_string(&link.name);
            match named.get(&link.name) {
                None if link.is_new => flaws.push(HygieneFlaw::LooseGitlink { path }),
                None => {}
                Some(name) if self.has_submodule_commit(name, &Oid::new(link.id.as_str()))? => {}
                Some(_) => flaws.push(HygieneFlaw::UnknownCommit { path, commit: link.id.clone() }),
            }
        }
        Ok(())
    }

    /// Once such a file has landed, git refuses to compare anything in the user's checkout, or runs what
    /// it names when its submodules are brought along.
    fn find_bad_gitmodules(
        &self,
        entries: &[ChangedTreeEntry],
        flaws: &mut Vec<HygieneFlaw>,
    ) -> Result<()> {
        let Some(file) = entries.iter().find(|entry| entry.name == b".gitmodules") else {
            return Ok(());
        };
        let mut flaw = |why: String| flaws.push(HygieneFlaw::BadGitmodules { why });
        if !file.mode.starts_with("10") {
            flaw("git reads only a regular file".to_owned());
            return Ok(());
        }
        let git = self.git().args(["config", "-z", "--blob", &file.id, "--list"]);
        let answer = git.accept_exit_codes(&[1, 3, 128]).run()?;
        if answer.code != 0 {
            flaw("git cannot read it".to_owned());
        }
        for entry in split_nul(&answer.stdout) {
            let text = lossy_string(entry);
            let (key, value) = text.split_once('\n').unwrap_or((&text, ""));
            let Some((name, key)) = key.strip_prefix("submodule.").and_then(|k| k.rsplit_once('.'))
            else {
                continue;
            };
            let is_option = value.starts_with('-');
            let why = match key {
                "update" if value.starts_with('!') => "`update` is a command",
                "url" if is_option || value.contains("::") => "`url` is a command",
                "path" if is_option => "`path` is an option",
                _ if name.split(['/', '\\']).any(|part| part == "..") => {
                    "the name points outside the repository"
                }
                _ => continue,
            };
            flaw(format!("submodule {name}: {why}"));
        }
        Ok(())
    }

    fn find_conflict_markers(
        &self,
        base: &Oid,
        tip: &Oid,
        flaws: &mut Vec<HygieneFlaw>,
    ) -> Result<()> {
        let args =
            ["-r", "-z", "--no-renames", "--name-only", "--diff-filter=d", "-G^<<<<<<<( |$)"];
        let suspects = self.diff_tree(base, tip, &args).run()?;
        for name in split_nul(&suspects.stdout) {
            let mut spec = std::ffi::OsString::from(":(literal,top)");
            spec.push(path_from_bytes(name));
            let args = ["-r", "-p", "-U0", "--no-renames", "--no-color"];
            let patch = self.diff_tree(base, tip, &args).arg("--").arg(spec).run()?;
            if adds_conflict_markers(&patch.stdout) {
                flaws.push(HygieneFlaw::ConflictMarkers { path: lossy_string(name) });
            }
        }
        Ok(())
    }
}

/// Whether added lines hold the three markers in their order. One alone may be a heading or a quote.
fn adds_conflict_markers(patch: &[u8]) -> bool {
    let starts = |line: &[u8], mark: &[u8]| {
        line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest[0] == b' ')
    };
    let mut stage = 0;
    for line in patch.split(|&b| b == b'\n') {
        let Some(line) = line.strip_prefix(b"+") else { continue };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        stage = match stage {
            0 if starts(line, b"<<<<<<<") => 1,
            1 if line == b"=======" => 2,
            2 if starts(line, b">>>>>>>") => return true,
            stage => stage,
        };
    }
    false
}

/// Also as other systems would read it: without regard to case, by Windows' short names, streams and separators,
/// and without the characters that macOS passes over.
pub(super) fn is_git_component(name: &[u8]) -> bool {
    let passed_over = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let name: String = lossy_string(name).chars().filter(|c| !passed_over(*c)).collect();
    name.split('\\').any(|part| {
        let part = part.split(':').next().unwrap_or(part);
        let part = part.trim_end_matches(['.', ' ']).to_ascii_lowercase();
        part == ".git" || part == "git~1"
    })
}

#[cfg(test)]
mod tests {
    use super::is_git_component;

    #[test]
    fn a_name_that_stands_for_the_git_folder_on_any_system_is_known() {
        for name in [
            ".git",
            ".GIT",
            ".git.",
            ".git ",
            "git~1",
            "GIT~1",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".git::$INDEX_ALLOCATION",
            "a\\.git\\config",
        ] {
            assert!(is_git_component(name.as_bytes()), "{name:?}");
        }
        for name in [".gitignore", "git", "git~10", "x.git", ".gitx", "a:b"] {
            assert!(!is_git_component(name.as_bytes()), "{name:?}");
        }
    }
}
