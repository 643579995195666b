//! Whose the state folder is. A copied repository brings along the state of the one it was copied
//! from: records of living agents, paths of workspaces. Working on those would end and take what is
//! the original's.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use mainstem_store::{StoreContents, embedded_store};
use serde_json::{Value, json};

/// In the state folder: where the repository was when this state was last worked on, and a name that
/// a copy shares and nobody else has.
const HOME: &str = "home";

/// Notes whose state this is. If it came from a repository that is still where it was, has it too and
/// is at work there, nothing is noted and that one is returned: this one is a copy. A copy of one that
/// rests goes its own way from here: what is the original's in the state is known as such and left alone.
pub(crate) fn claim_state_folder(common_dir: &Path, state: &Path) -> io::Result<Option<PathBuf>> {
    let here = common_dir.to_string_lossy();
    let noted = read_owner(state)?;
    if noted["repository"] == here.as_ref() && noted["id"].is_string() {
        return Ok(None);
    }
    if let Some(before) = noted["repository"].as_str().map(Path::new)
        && !is_same_folder(before, common_dir)
        && noted["id"].is_string()
        // What cannot be read there may well be the original.
        && read_owner(&before.join("mainstem")).map_or(true, |theirs| theirs["id"] == noted["id"])
    {
        if is_engine_running(&before.join("mainstem")) {
            return Ok(Some(before.to_path_buf()));
        }
        write_owner(state, &json!({ "repository": here, "id": new_owner_id() }))?;
        return Ok(None);
    }
    let id = noted["id"].as_str().map_or_else(new_owner_id, str::to_owned);
    write_owner(state, &json!({ "repository": here, "id": id }))?;
    Ok(None)
}

/// Whether an engine owns the store of runs in that state folder. Doubt counts as yes.
fn is_engine_running(state: &Path) -> bool {
    !matches!(embedded_store(state, StoreContents::Runs).owner(), Ok(None))
}

fn new_owner_id() -> String {
    // Two of one process may be made within a millisecond.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{}-{number}", mainstem_host::clock::now_ms(), std::process::id())
}

/// Null if there is none; what cannot be understood was torn and counts as none.
fn read_owner(state: &Path) -> io::Result<Value> {
    match fs::read(state.join(HOME)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Value::Null)
        }
        Err(error) => Err(error),
    }
}

/// The caller holds the engine's lock, so there is one writer.
fn write_owner(state: &Path, value: &Value) -> io::Result<()> {
    let draft = state.join(format!("{HOME}.tmp"));
    let mut file = File::create(&draft)?;
    file.write_all(format!("{value}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, state.join(HOME))
}

/// One folder may have two names, by links and mounts.
fn is_same_folder(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn place(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let common = dir.join(name);
        fs::create_dir_all(common.join("mainstem")).unwrap();
        (common.clone(), common.join("mainstem"))
    }

    fn copy(from: &Path, to: &Path) {
        fs::copy(from.join(HOME), to.join(HOME)).unwrap();
    }

    #[test]
    fn a_copy_is_told_from_a_move_and_from_another_repository_in_the_old_place() {
        let dir = tempfile::tempdir().unwrap();
        let (first, state) = place(dir.path(), "first");
        for _ in 0..2 {
            assert_eq!(claim_state_folder(&first, &state).unwrap(), None);
        }
        let (second, copied) = place(dir.path(), "second");
        copy(&state, &copied);
        let at_work = embedded_store(&state, StoreContents::Runs).claim("{}").unwrap();
        for _ in 0..2 {
            assert_eq!(claim_state_folder(&second, &copied).unwrap(), Some(first.clone()));
        }
        drop(at_work);
        let (other, copied_too) = place(dir.path(), "other");
        copy(&state, &copied_too);
        assert_eq!(claim_state_folder(&other, &copied_too).unwrap(), None);
        assert_ne!(read_owner(&copied_too).unwrap()["id"], read_owner(&state).unwrap()["id"]);
        // The original is gone: what is here was moved, and stays so whatever comes there later.
        fs::rename(&first, dir.path().join("away")).unwrap();
        assert_eq!(claim_state_folder(&second, &copied).unwrap(), None);
        let (first, state) = place(dir.path(), "first");
        assert_eq!(claim_state_folder(&first, &state).unwrap(), None);
        let (third, moved) = place(dir.path(), "third");
        copy(&copied, &moved);
        fs::remove_dir_all(&second).unwrap();
        let (second, new) = place(dir.path(), "second");
        assert_eq!(claim_state_folder(&second, &new).unwrap(), None);
        assert_eq!(claim_state_folder(&third, &moved).unwrap(), None);
        // A note that was torn says nothing.
        fs::write(moved.join(HOME), "{").unwrap();
        assert_eq!(claim_state_folder(&third, &moved).unwrap(), None);
        assert!(fs::read_to_string(moved.join(HOME)).unwrap().contains("third"));
    }
}
