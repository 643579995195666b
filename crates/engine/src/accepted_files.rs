//! What decides about runs, as a person had it: the settings file, `.worktreeinclude`, the templates. What a
//! landing of ours makes of such a file is not in force until a person accepts it; until then the version that
//! was in force before is read from here.
//!
//! A version is known by its blob id, so it does not matter how it came into a checkout. What people commit by
//! hand or pull is theirs, and is in force at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstem_core::config::Settings;
use mainstem_core::id::Oid;
use mainstem_host::git::{FileStatusChange, Followed, GitError, Repo};
use mainstem_host::{clock, files, lock};
use serde::{Deserialize, Serialize};

/// The settings file, in whichever folder.
pub const CONFIG_FILE: &str = "mainstem.toml";
/// Which ignored files a workspace gets.
pub const INCLUDE_FILE: &str = ".worktreeinclude";
/// What says how git writes files into a checkout.
const ATTRIBUTES_FILE: &str = ".gitattributes";

/// How long another process may hold the record.
const LOCK_WITHIN: Duration = Duration::from_secs(20);

/// Why the record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AcceptedFilesError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// The files could not be used.
    #[error("cannot read the accepted settings in {}: {source}", folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

/// A version that a landing brought and nobody has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingFileVersion {
    /// The file, from the root of the repository.
    pub path: String,
    /// Its content; none if the landing removed the file.
    pub blob: Option<Oid>,
    pub commit: Oid,
    /// The tasks that landed with it.
    pub tasks: Vec<String>,
    pub at_ms: i64,
    /// Contents in which a checkout showed this version, where attributes made other bytes of it.
    #[serde(default)]
    pub shown_as: Vec<Oid>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct AcceptedFileEntry {
    /// A version is known that a person had.
    known: bool,
    /// That version; none if there was no such file.
    accepted: Option<Oid>,
    pending: Vec<PendingFileVersion>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct AcceptedFilesRecord {
    files: BTreeMap<String, AcceptedFileEntry>,
}

/// What is in force of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileInForce {
    /// What is in the checkout.
    CheckoutVersion,
    /// The version before, because a landing brought what is in the checkout.
    EarlierVersion {
        /// That version; none if there was no such file.
        content: Option<Vec<u8>>,
        pending: PendingFileVersion,
    },
}

/// The record of one repository.
#[derive(Debug, Clone)]
pub struct AcceptedFiles {
    repo: Repo,
    folder: PathBuf,
}

impl AcceptedFiles {
    /// The record in this state folder.
    pub fn new(repo: &Repo, state: &Path) -> Self {
        Self { repo: repo.clone(), folder: state.join("accepted") }
    }

    fn io_error(&self) -> impl Fn(io::Error) -> AcceptedFilesError + '_ {
        |source| AcceptedFilesError::Io { folder: self.folder.clone(), source }
    }

    fn read_record(&self) -> Result<AcceptedFilesRecord, AcceptedFilesError> {
        match fs::read(self.folder.join("record.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| self.io_error()(e.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(AcceptedFilesRecord::default())
            }
            Err(error) => Err(self.io_error()(error)),
        }
    }

    /// Changes the record while nobody else does.
    fn change_record<T>(
        &self,
        change: impl FnOnce(&mut AcceptedFilesRecord) -> Result<T, AcceptedFilesError>,
    ) -> Result<T, AcceptedFilesError> {
        fs::create_dir_all(&self.folder).map_err(self.io_error())?;
        let held = lock::lock_file_until(&self.folder.join("lock"), Instant::now() + LOCK_WITHIN);
        let held = held.map_err(self.io_error())?;
        let busy = || self.io_error()(io::Error::other("another process is changing the file"));
        let _held = held.ok_or_else(busy)?;
        let mut record = self.read_record()?;
        let done = change(&mut record)?;
        let bytes = serde_json::to_vec_pretty(&record).expect("BUG: a record is plain data");
        files::write_atomic(&self.folder.join("record.json"), &bytes).map_err(self.io_error())?;
        Ok(done)
    }

    fn store_blob(&self, blob: &Oid, content: &[u8]) -> Result<(), AcceptedFilesError> {
        let path = self.folder.join(blob.as_str());
        if path.exists() {
            return Ok(());
        }
        files::write_atomic(&path, content).map_err(self.io_error())
    }

    /// What is in force of a file of the user's checkout.
    pub fn file_in_force(&self, path: &str) -> Result<FileInForce, AcceptedFilesError> {
        let record = self.read_record()?;
        let Some(entry) = record.files.get(path).filter(|entry| !entry.pending.is_empty()) else {
            return Ok(FileInForce::CheckoutVersion);
        };
        let Some(pending) = self.find_pending_version(path, entry)? else {
            return Ok(FileInForce::CheckoutVersion);
        };
        let content = match &entry.accepted {
            Some(blob) => Some(fs::read(self.folder.join(blob.as_str())).map_err(self.io_error())?),
            None => None,
        };
        Ok(FileInForce::EarlierVersion { content, pending })
    }

    /// The landed version that the checkout shows, if it does.
    fn find_pending_version(
        &self,
        path: &str,
        entry: &AcceptedFileEntry,
    ) -> Result<Option<PendingFileVersion>, AcceptedFilesError> {
        let Some(newest) = entry.pending.last() else { return Ok(None) };
        let Some(home) = self.repo.checkout() else { return Ok(None) };
        let here = match fs::read(home.join(path)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let gone = entry.pending.iter().rev().find(|pending| pending.blob.is_none());
                return Ok(gone.cloned());
            }
            Err(error) => return Err(self.io_error()(error)),
        };
        let raw = self.repo.hash_blob(&here)?;
        let plain = normalize_checkout_bytes(&here);
        for pending in entry.pending.iter().rev() {
            let Some(blob) = &pending.blob else { continue };
            if *blob == raw
                || pending.shown_as.contains(&raw)
                || normalize_checkout_bytes(&self.repo.read_blob(blob)?) == plain
            {
                return Ok(Some(pending.clone()));
            }
        }
        // Attributes that landed too can make any bytes of a version: an encoding, a filter of the user's.
        match self.repo.blob_id_as_committed(path) {
            Ok(id) => {
                let same =
                    |pending: &&PendingFileVersion| pending.blob.is_some() && pending.blob == id;
                Ok(entry.pending.iter().rev().find(same).cloned())
            }
            // Nobody can tell whose it is, so it is not taken for a person's.
            Err(_) => Ok(Some(newest.clone())),
        }
    }

    /// Remembers the bytes in which the checkout shows a landed version. Attributes that a later landing
    /// changes do not make a person's version of them.
    fn remember_shown(&self, record: &mut AcceptedFilesRecord) -> Result<(), AcceptedFilesError> {
        let Some(home) = self.repo.checkout() else { return Ok(()) };
        for (path, entry) in &mut record.files {
            let Some(shown) = self.find_pending_version(path, entry)? else { continue };
            let Ok(bytes) = fs::read(home.join(path)) else { continue };
            let raw = self.repo.hash_blob(&bytes)?;
            let known = entry.pending.iter_mut().find(|pending| pending.blob == shown.blob);
            if let Some(pending) = known.filter(|pending| !pending.shown_as.contains(&raw)) {
                pending.shown_as.push(raw);
            }
        }
        Ok(())
    }

    /// Takes down what a person has in their checkout when a run starts.
    pub fn accept_checkout_versions(&self, paths: &[String]) -> Result<(), AcceptedFilesError> {
        let Some(home) = self.repo.checkout() else { return Ok(()) };
        let mut found = Vec::new();
        for path in paths {
            if self.file_in_force(path)? != FileInForce::CheckoutVersion {
                continue;
            }
            match fs::read(home.join(path)) {
                Ok(bytes) => {
                    let blob = self.repo.hash_blob(&bytes)?;
                    found.push((path, Some((blob, bytes))));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => found.push((path, None)),
                Err(error) => return Err(self.io_error()(error)),
            }
        }
        self.change_record(|record| {
            for (path, version) in found {
                let entry = record.files.entry(path.clone()).or_default();
                if let Some((blob, bytes)) = &version {
                    self.store_blob(blob, bytes)?;
                }
                (entry.known, entry.accepted) = (true, version.map(|(blob, _)| blob));
            }
            Ok(())
        })
    }

    /// Takes down what a landing is about to change, before it does; says which files that are.
    pub fn record_landing(
        &self,
        settings: &Settings,
        (old, new): (&Oid, &Oid),
        tasks: &[String],
    ) -> Result<Vec<String>, AcceptedFilesError> {
        let moves = self.repo.list_file_status_changes(old, new)?;
        let attributes = moves.iter().any(|moved| moved.path.ends_with(ATTRIBUTES_FILE));
        let watched = watched_among(settings, moves);
        let named = std::iter::once(CONFIG_FILE.to_owned()).chain(list_governing_files(settings));
        let all: BTreeSet<String> = self.read_record()?.files.into_keys().chain(named).collect();
        let all: Vec<String> = all.into_iter().chain(watched.iter().cloned()).collect();
        let links = [self.repo.followed(old, &all)?, self.repo.followed(new, &all)?];
        let through_links = |path: &String| links.iter().any(|links| links.contains_key(path));
        let doubtful = |path: &&String| watched.contains(path) || through_links(path);
        let doubtful: Vec<String> = all.iter().filter(doubtful).cloned().collect();
        let before = self.contents(old, &doubtful, &links[0])?;
        let after = self.contents(new, &doubtful, &links[1])?;
        let mut changed = watched;
        let differs = |path: &String| before.get(path) != after.get(path);
        let by_links = doubtful.into_iter().filter(differs);
        let by_links: Vec<String> = by_links.filter(|path| !changed.contains(path)).collect();
        changed.extend(by_links);
        if changed.is_empty() && !attributes {
            return Ok(changed);
        }
        self.change_record(|record| {
            self.remember_shown(record)?;
            for path in &changed {
                let entry = record.files.entry(path.clone()).or_default();
                let at = |found: &BTreeMap<String, Option<Oid>>| found.get(path).cloned().flatten();
                self.record_change(entry, path, (at(&before), at(&after)), (new, tasks))?;
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// What these paths hold in a commit, links followed as in a checkout.
    fn contents(
        &self,
        commit: &Oid,
        paths: &[String],
        links: &BTreeMap<String, Followed>,
    ) -> Result<BTreeMap<String, Option<Oid>>, AcceptedFilesError> {
        let mut found = BTreeMap::new();
        for path in paths {
            let end = match links.get(path) {
                Some(followed) => followed.end.as_ref(),
                None => Some(path),
            };
            let blob = end.map(|end| self.repo.blob_id_at(commit, end)).transpose()?.flatten();
            found.insert(path.clone(), blob);
        }
        Ok(found)
    }

    fn record_change(
        &self,
        entry: &mut AcceptedFileEntry,
        path: &str,
        (before, after): (Option<Oid>, Option<Oid>),
        (commit, tasks): (&Oid, &[String]),
    ) -> Result<(), AcceptedFilesError> {
        let ours = entry.pending.iter().any(|pending| pending.blob == before);
        // What was there and is no landing's is a person's.
        if !ours && (!entry.known || before.is_some()) {
            if let Some(blob) = &before {
                self.store_blob(blob, &self.repo.read_blob(blob)?)?;
            }
            (entry.known, entry.accepted) = (true, before);
        }
        entry.pending.retain(|pending| pending.blob != after);
        if entry.accepted != after {
            entry.pending.push(PendingFileVersion {
                path: path.to_owned(),
                blob: after,
                commit: commit.clone(),
                tasks: tasks.to_vec(),
                at_ms: clock::now_ms(),
                shown_as: Vec::new(),
            });
        }
        Ok(())
    }

    /// What waits for a person: landed versions that the checkout shows, or the target branch has.
    pub fn list_pending(
        &self,
        target: Option<&Oid>,
    ) -> Result<Vec<PendingFileVersion>, AcceptedFilesError> {
        let mut all = Vec::new();
        for (path, entry) in self.read_record()?.files {
            let Some(newest) = entry.pending.last() else { continue };
            let shown = match (self.find_pending_version(&path, &entry)?, target) {
                (Some(pending), _) => Some(pending),
                (None, Some(target)) => {
                    let paths = std::slice::from_ref(&path);
                    let links = self.repo.followed(target, paths)?;
                    let there = self.contents(target, paths, &links)?;
                    there.get(&path).filter(|blob| **blob == newest.blob).map(|_| newest.clone())
                }
                (None, None) => None,
            };
            all.extend(shown);
        }
        Ok(all)
    }

    /// A person accepts these.
    pub fn accept_versions(
        &self,
        accepted: &[PendingFileVersion],
    ) -> Result<(), AcceptedFilesError> {
        self.change_record(|record| {
            for pending in accepted {
                let Some(entry) = record.files.get_mut(&pending.path) else { continue };
                if let Some(blob) = &pending.blob {
                    self.store_blob(blob, &self.repo.read_blob(blob)?)?;
                }
                (entry.known, entry.accepted) = (true, pending.blob.clone());
                entry.pending.retain(|known| known.blob != pending.blob);
            }
            Ok(())
        })
    }
}

/// Files that decide about runs, of those that settings name by path.
pub fn list_governing_files(settings: &Settings) -> Vec<String> {
    let named = [&settings.prompt.template, &settings.land.pulls.template];
    let named = named.into_iter().flatten().map(|path| path.trim_start_matches("./").to_owned());
    std::iter::once(INCLUDE_FILE.to_owned()).chain(named).collect()
}

/// Files that decide about runs, of those that a change touches.
pub fn watched_among(settings: &Settings, moves: Vec<FileStatusChange>) -> Vec<String> {
    let mut changed = Vec::new();
    for moved in moves {
        for path in std::iter::once(moved.path).chain(moved.old_path) {
            if is_governing_file(settings, &path) && !changed.contains(&path) {
                changed.push(path);
            }
        }
    }
    changed
}

fn is_governing_file(settings: &Settings, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == CONFIG_FILE || list_governing_files(settings).iter().any(|named| named == path)
}

/// A file without what git may do to it on its way into a checkout: line ends and `$Id$`. Attributes can be
/// landed too, so they do not decide whether a file is the one that a landing brought.
fn normalize_checkout_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'$'
            && let Some(id) = after.strip_prefix(b"Id:")
            && let Some(end) = id.iter().position(|&b| b == b'$' || b == b'\n')
            && id[end] == b'$'
        {
            plain.extend_from_slice(b"$Id$");
            rest = &id[end + 1..];
        } else if byte != b'\r' {
            plain.push(byte);
        }
    }
    plain
}

/// The text of a file that decides about runs, as it is in force; none if there is none.
pub fn read_file_in_force(
    repo: &Repo,
    state: &Path,
    path: &str,
) -> Result<Option<String>, AcceptedFilesError> {
    let accepted = AcceptedFiles::new(repo, state);
    let bytes = match accepted.file_in_force(path)? {
        FileInForce::EarlierVersion { content, .. } => content,
        FileInForce::CheckoutVersion => {
            let home = repo.checkout().unwrap_or_else(|| repo.dir());
            match fs::read(home.join(path)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(accepted.io_error()(error)),
            }
        }
    };
    let text = bytes.map(|bytes| String::from_utf8(bytes).map_err(io::Error::other)).transpose();
    text.map_err(accepted.io_error())
}
