//! Takes objects that an agent wrote into the user's store, each one checked first.
//!
//! An agent's folder of objects is read as data: plain files only, nothing is waited for, sizes have
//! limits, and what a file holds must hash to the name it has. What passes goes into one pack, which
//! `git index-pack --strict` checks as git understands it: dates, names and order in trees, nothing
//! missing. What is refused is named, and nothing of it stays in the user's store.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mainstem_core::id::Oid;
use mainstem_core::plan::quantities::render_size;

use super::command::TIMEOUT_CHECKOUT;
use super::error::{GitError, IoErrorContext, Result};
use super::loose_objects::{GitObjectKind, LooseObjectError, LooseObjectStore};
use super::pack_writer::PackWriter;
use super::{Repo, lossy_string};

/// Commits and trees are small; one beyond this is no work of a person or an agent.
const TREE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes held in memory for one import; more goes the slower way, through `git fetch`.
const IMPORT_BYTES_MAX: u64 = 256 << 20;
/// Most objects of one import.
const OBJECTS_MAX: usize = 1_000_000;
/// With more packs than this every git process has to open all of them.
const PACKS_MAX: usize = 60;

/// Why objects were not taken in, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportRefusal(pub(super) String);

/// What became of an import.
#[derive(Debug)]
pub(super) enum ImportOutcome {
    /// Everything is in the user's store.
    Whole,
    /// Something is in packs of the agent's, or there is too much of it, so that git has to read it.
    NeedsGit,
    Refused(ImportRefusal),
}

/// An object to look at: its name, what it must be, and the file or folder it stands for.
struct WantedObject {
    id: String,
    kind: GitObjectKind,
    path: String,
    /// Its size, if the agent's own is larger than is taken in.
    too_large: Option<u64>,
}

impl WantedObject {
    fn new(id: String, kind: GitObjectKind, path: String) -> Self {
        Self { id, kind, path, too_large: None }
    }
}

/// What a walk through an agent's objects found.
struct ObjectWalk {
    pack: PackWriter,
    /// Objects that are not the agent's own, so that the user's store must have them.
    elsewhere: Vec<WantedObject>,
}

enum ObjectWalkStop {
    Refused(ImportRefusal),
    TooMuch,
}

impl Repo {
    /// Takes `tips` (commits) and all they need out of `store`, an agent's folder of objects. `known` is a
    /// commit that both sides have.
    pub(super) fn import_objects(
        &self,
        store: &Path,
        tips: &[String],
        known: Option<&Oid>,
    ) -> Result<ImportOutcome> {
        let walked = match self.walk_objects(store, tips) {
            Ok(walked) => walked,
            Err(ObjectWalkStop::Refused(refusal)) => return Ok(ImportOutcome::Refused(refusal)),
            Err(ObjectWalkStop::TooMuch) => return Ok(ImportOutcome::NeedsGit),
        };
        let partial = has_file_with_suffix(&self.common_dir().join("objects/pack"), ".promisor");
        let missing = self.select_missing_objects(&walked.elsewhere)?;
        if let Some((wanted, bytes)) = missing.iter().find_map(|w| Some((w, w.too_large?))) {
            let text = too_large_message(&wanted.path, bytes, self.file_limit());
            return Ok(ImportOutcome::Refused(ImportRefusal(text)));
        }
        if let Some(first) = missing.first() {
            if has_file_with_suffix(&store.join("pack"), ".pack") {
                return Ok(ImportOutcome::NeedsGit);
            }
            let promised =
                if partial { self.list_promised_objects(known)? } else { HashSet::new() };
            if missing.iter().any(|wanted| !promised.contains(&wanted.id)) {
                let text =
                    format!("{} is missing{}", describe_object(first), path_suffix(&first.path));
                return Ok(ImportOutcome::Refused(ImportRefusal(text)));
            }
        }
        if walked.pack.is_empty() {
            return Ok(ImportOutcome::Whole);
        }
        // In a partial clone a strict check would miss what the remote promised.
        let check = if partial { "--fsck-objects" } else { "--strict" };
        let indexed = self
            .git()
            .config_setting("pack.writeReverseIndex=false")
            .env("GIT_NO_LAZY_FETCH", "1")
            .args(["index-pack", "--stdin", check])
            .stdin_bytes(walked.pack.finish())
            .timeout(TIMEOUT_CHECKOUT)
            .run();
        match indexed {
            Ok(_) => {
                self.merge_small_packs(partial);
                Ok(ImportOutcome::Whole)
            }
            Err(GitError::Failed { code: Some(_), stderr, .. }) if is_object_complaint(&stderr) => {
                Ok(ImportOutcome::Refused(ImportRefusal(first_fsck_fault(&stderr))))
            }
            Err(error) => Err(error),
        }
    }

    fn walk_objects(
        &self,
        store: &Path,
        tips: &[String],
    ) -> std::result::Result<ObjectWalk, ObjectWalkStop> {
        let sha256 = tips.iter().any(|tip| tip.len() == 64);
        let loose = LooseObjectStore::new(store, sha256);
        let limit = self.file_limit();
        let mut found = ObjectWalk { pack: PackWriter::new(sha256), elsewhere: Vec::new() };
        let mut seen = HashSet::new();
        let start =
            |id: &String| WantedObject::new(id.clone(), GitObjectKind::Commit, String::new());
        let mut open: Vec<WantedObject> = tips.iter().map(start).collect();
        while let Some(mut wanted) = open.pop() {
            if !seen.insert(wanted.id.clone()) {
                continue;
            }
            if seen.len() > OBJECTS_MAX {
                return Err(refuse_import(format!("there are more than {OBJECTS_MAX} objects")));
            }
            let max = match wanted.kind {
                GitObjectKind::Blob if limit > 0 => limit,
                GitObjectKind::Blob => IMPORT_BYTES_MAX,
                GitObjectKind::Commit | GitObjectKind::Tree => TREE_BYTES_MAX,
            };
            match loose.read(&wanted.id, wanted.kind, max) {
                Ok(Some(body)) => {
                    open.extend(parse_object_links(&wanted, &body, sha256)?);
                    found.pack.add(wanted.kind, &body);
                    if found.pack.byte_count() > IMPORT_BYTES_MAX {
                        return Err(ObjectWalkStop::TooMuch);
                    }
                }
                Ok(None) => found.elsewhere.push(wanted),
                Err(LooseObjectError::TooLarge(_))
                    if wanted.kind == GitObjectKind::Blob && limit == 0 =>
                {
                    return Err(ObjectWalkStop::TooMuch);
                }
                // The user may have it all the same.
                Err(LooseObjectError::TooLarge(bytes)) if wanted.kind == GitObjectKind::Blob => {
                    wanted.too_large = Some(bytes);
                    found.elsewhere.push(wanted);
                }
                Err(why) => {
                    return Err(refuse_import(format!(
                        "{} {why}{}",
                        describe_object(&wanted),
                        path_suffix(&wanted.path)
                    )));
                }
            }
        }
        Ok(found)
    }

    /// Those of the objects that the user's store does not have as what they must be.
    fn select_missing_objects<'a>(
        &self,
        wanted: &'a [WantedObject],
    ) -> Result<Vec<&'a WantedObject>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let question: String = wanted.iter().map(|wanted| format!("{}\n", wanted.id)).collect();
        let answer = self
            .git()
            .env("GIT_NO_LAZY_FETCH", "1")
            .args(["cat-file", "--batch-check=%(objecttype)"])
            .stdin_bytes(question)
            .run()?;
        let text = lossy_string(&answer.stdout);
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() != wanted.len() {
            return Err(answer.bad_output_error());
        }
        let pairs = wanted.iter().zip(lines);
        Ok(pairs.filter(|(wanted, line)| *line != wanted.kind.name()).map(|(w, _)| w).collect())
    }

    /// What a partial clone does not have and its remote promised, in the tree of a commit.
    fn list_promised_objects(&self, known: Option<&Oid>) -> Result<HashSet<String>> {
        let Some(known) = known else { return Ok(HashSet::new()) };
        let answer = self
            .git()
            .env("GIT_NO_LAZY_FETCH", "1")
            .args(["rev-list", "--objects", "--no-object-names", "--missing=print", "-n", "1"])
            .arg(known.as_str())
            .timeout(TIMEOUT_CHECKOUT)
            .run()?;
        let text = lossy_string(&answer.stdout);
        Ok(text.lines().filter_map(|line| line.strip_prefix('?')).map(str::to_owned).collect())
    }

    /// Every import leaves a pack, and every git process opens all packs. Nothing is thrown away here.
    fn merge_small_packs(&self, partial: bool) {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let folder = self.common_dir().join("objects/pack");
        let count = || {
            let names = fs::read_dir(&folder).into_iter().flatten().flatten();
            names.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".pack")).count()
        };
        if partial || count() <= PACKS_MAX {
            return;
        }
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if count() > PACKS_MAX {
            let args = ["repack", "-d", "-l", "-q", "--geometric=2"];
            // It saves time later; without it everything works as well.
            let _ = self.git().args(args).timeout(TIMEOUT_CHECKOUT).run();
        }
    }

    /// Puts what `tip` has and `base` has not through the checks of an import, for agents that write into the
    /// user's store themselves. Gives what is wrong with it.
    pub fn find_history_fault(&self, base: &Oid, tip: &Oid) -> Result<Option<String>> {
        let listed = format!("{tip}\n^{base}\n");
        let args = ["pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"];
        let pack = match self.git().args(args).stdin_bytes(listed).timeout(TIMEOUT_CHECKOUT).run() {
            Ok(answer) => answer.stdout,
            Err(GitError::Failed { code: Some(_), stderr, .. }) => {
                return Ok(Some(first_fsck_fault(&stderr)));
            }
            // More than is held in memory is more than can be looked at here.
            Err(GitError::TooMuchOutput { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let beside = self.temp_path("checked");
        fs::create_dir_all(&beside).with_path("create", &beside)?;
        let partial = has_file_with_suffix(&self.common_dir().join("objects/pack"), ".promisor");
        let check = if partial { "--fsck-objects" } else { "--strict" };
        let indexed = self
            .git()
            .env("GIT_OBJECT_DIRECTORY", &beside)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.common_dir().join("objects"))
            .env("GIT_NO_LAZY_FETCH", "1")
            .args(["index-pack", "--stdin", check])
            .stdin_bytes(pack)
            .timeout(TIMEOUT_CHECKOUT)
            .run();
        // What stays is swept at the next start.
        let _ = crate::files::remove_all(&beside);
        match indexed {
            Ok(_) => Ok(None),
            Err(GitError::Failed { code: Some(_), stderr, .. }) if is_object_complaint(&stderr) => {
                Ok(Some(first_fsck_fault(&stderr)))
            }
            Err(error) => Err(error),
        }
    }
}

/// In words that name the setting.
pub(super) fn too_large_message(path: &str, bytes: u64, limit: u64) -> String {
    let limit = render_size(limit);
    format!("{path}: {bytes} bytes are more than limits.file_size ({limit}) allows")
}

fn refuse_import(text: String) -> ObjectWalkStop {
    ObjectWalkStop::Refused(ImportRefusal(text))
}

fn describe_object(wanted: &WantedObject) -> String {
    format!("{} {}", wanted.kind.name(), &wanted.id[..wanted.id.len().min(12)])
}

fn path_suffix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" ({path})") }
}

/// What an object needs.
fn parse_object_links(
    wanted: &WantedObject,
    body: &[u8],
    sha256: bool,
) -> std::result::Result<Vec<WantedObject>, ObjectWalkStop> {
    let bad = || {
        refuse_import(format!(
            "{} makes no sense{}",
            describe_object(wanted),
            path_suffix(&wanted.path)
        ))
    };
    match wanted.kind {
        GitObjectKind::Blob => Ok(Vec::new()),
        GitObjectKind::Commit => parse_commit_links(body, sha256).ok_or_else(bad),
        GitObjectKind::Tree => parse_tree_links(body, sha256, &wanted.path).ok_or_else(bad),
    }
}

fn parse_commit_links(body: &[u8], sha256: bool) -> Option<Vec<WantedObject>> {
    let digits = if sha256 { 64 } else { 40 };
    let mut found = Vec::new();
    for line in body.split(|&b| b == b'\n').take_while(|line| !line.is_empty()) {
        let line = std::str::from_utf8(line).unwrap_or_default();
        let (kind, id) = match line.split_once(' ') {
            Some(("tree", id)) if found.is_empty() => (GitObjectKind::Tree, id),
            Some(("parent", id)) => (GitObjectKind::Commit, id),
            _ => continue,
        };
        if id.len() != digits || !super::is_oid(id) {
            return None;
        }
        found.push(WantedObject::new(id.to_owned(), kind, String::new()));
    }
    found.first().is_some_and(|first| first.kind == GitObjectKind::Tree).then_some(found)
}

fn parse_tree_links(body: &[u8], sha256: bool, at: &str) -> Option<Vec<WantedObject>> {
    let raw = if sha256 { 32 } else { 20 };
    let mut found = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let space = rest.iter().position(|&b| b == b' ')?;
        let end = rest.iter().position(|&b| b == 0).filter(|end| *end > space)?;
        let id = rest.get(end + 1..end + 1 + raw)?;
        let (mode, name) = (&rest[..space], lossy_string(&rest[space + 1..end]));
        rest = &rest[end + 1 + raw..];
        let kind = match mode {
            b"40000" | b"040000" => GitObjectKind::Tree,
            // A submodule's commit is not here.
            b"160000" => continue,
            _ => GitObjectKind::Blob,
        };
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = if at.is_empty() { name } else { format!("{at}/{name}") };
        found.push(WantedObject::new(id, kind, path));
    }
    Some(found)
}

fn has_file_with_suffix(folder: &Path, end: &str) -> bool {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names.into_iter().any(|entry| entry.file_name().as_encoded_bytes().ends_with(end.as_bytes()))
}

/// Whether git complains about what it was given, and not about where it was to put it.
fn is_object_complaint(stderr: &str) -> bool {
    ["unable to create", "unable to write", "No space left", "Permission denied", "cannot create"]
        .iter()
        .all(|words| !stderr.contains(words))
}

/// The first thing git says is wrong.
fn first_fsck_fault(stderr: &str) -> String {
    let fault = |line: &str| {
        line.strip_prefix("error: ").or_else(|| line.strip_prefix("fatal: ")).map(str::to_owned)
    };
    stderr.lines().find_map(fault).unwrap_or_else(|| stderr.trim().to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_ends_in_the_middle_makes_no_sense() {
        let whole = [b"100644 a\0".as_slice(), &[1; 20], b"40000 d\0", &[2; 20]].concat();
        let found = parse_tree_links(&whole, false, "at").unwrap();
        let kinds: Vec<_> =
            found.iter().map(|wanted| (wanted.kind, wanted.path.as_str())).collect();
        assert_eq!(kinds, [(GitObjectKind::Blob, "at/a"), (GitObjectKind::Tree, "at/d")]);
        for end in 1..whole.len() {
            let known = parse_tree_links(&whole[..end], false, "");
            assert!(end == 29 || known.is_none(), "{end}");
        }
    }

    #[test]
    fn a_commit_without_a_tree_makes_no_sense() {
        let id = "1".repeat(40);
        let good = format!("tree {id}\nparent {id}\nauthor x\n\ntree {id}\n");
        assert_eq!(parse_commit_links(good.as_bytes(), false).unwrap().len(), 2);
        for bad in [format!("parent {id}\n\n"), "tree 12\n\n".to_owned(), String::new()] {
            assert!(parse_commit_links(bad.as_bytes(), false).is_none(), "{bad}");
        }
    }
}
