//! From a policy to what Landlock knows: a list of paths and what is granted below each.
//!
//! Landlock can only add below what it grants. A folder that holds something more guarded than itself is
//! therefore not granted as a whole: each of its other entries is, as they are now. Such a folder cannot
//! be listed or added to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::SandboxPathAccess;

/// The grants for `entries`, on top of reading everything.
pub(super) fn list_grants(
    entries: &[(PathBuf, SandboxPathAccess)],
) -> io::Result<Vec<(PathBuf, SandboxPathAccess)>> {
    let mut found = Vec::new();
    spread_grants(Path::new("/"), SandboxPathAccess::Read, entries, &mut found)?;
    Ok(found)
}

fn spread_grants(
    path: &Path,
    inherited: SandboxPathAccess,
    entries: &[(PathBuf, SandboxPathAccess)],
    found: &mut Vec<(PathBuf, SandboxPathAccess)>,
) -> io::Result<()> {
    let own = entries.iter().rev().find(|(entry, _)| entry == path).map(|(_, access)| *access);
    let access = own.unwrap_or(inherited);
    let below: Vec<&(PathBuf, SandboxPathAccess)> =
        entries.iter().filter(|(entry, _)| entry != path && entry.starts_with(path)).collect();
    let less = below.iter().any(|(_, deeper)| *deeper < access);
    if !less {
        if access > SandboxPathAccess::Hidden {
            found.push((path.to_path_buf(), access));
        }
        // Each of the next entries down has its own word on what is below it.
        let covered = |entry: &Path| {
            below.iter().any(|(other, _)| other != entry && entry.starts_with(other))
        };
        for (entry, _) in below.iter().filter(|(entry, _)| !covered(entry)) {
            spread_grants(entry, access, entries, found)?;
        }
        return Ok(());
    }
    let listing = match fs::read_dir(path) {
        Ok(listing) => listing,
        // What we may not list the command may not either.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in listing {
        let child = entry?.path();
        if below.iter().any(|(deeper, _)| deeper.starts_with(&child)) {
            spread_grants(&child, access, entries, found)?;
        } else if access > SandboxPathAccess::Hidden {
            found.push((child, access));
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_splits_its_parents_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        for name in ["keys/deep", "work", "src"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        let entries = vec![
            (home.join("keys"), SandboxPathAccess::Hidden),
            (home.join("keys/deep"), SandboxPathAccess::Read),
            (home.join("work"), SandboxPathAccess::Write),
            (home.join("not-there-yet"), SandboxPathAccess::Hidden),
        ];
        let found = list_grants(&entries).unwrap();
        let has = |path: &Path, access| found.contains(&(path.to_path_buf(), access));
        assert!(has(&home.join("work"), SandboxPathAccess::Write));
        assert!(has(&home.join("src"), SandboxPathAccess::Read));
        assert!(has(&home.join("keys/deep"), SandboxPathAccess::Read));
        assert!(has(Path::new("/usr"), SandboxPathAccess::Read));
        for ancestor in home.ancestors().chain([home.join("keys").as_path()]) {
            assert!(!found.iter().any(|(path, _)| path == ancestor), "{}", ancestor.display());
        }
    }

    #[test]
    fn what_is_opened_again_below_a_hidden_folder_keeps_its_own_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("keys")).unwrap();
        fs::create_dir_all(home.join("src")).unwrap();
        let entries = vec![
            (home.parent().unwrap().to_path_buf(), SandboxPathAccess::Hidden),
            (home.clone(), SandboxPathAccess::Read),
            (home.join("keys"), SandboxPathAccess::Hidden),
        ];
        let found = list_grants(&entries).unwrap();
        assert!(found.contains(&(home.join("src"), SandboxPathAccess::Read)));
        let open = |path: &Path| found.iter().any(|(grant, _)| path.starts_with(grant));
        assert!(!open(&home.join("keys")), "{found:?}");
    }

    #[test]
    fn without_hidden_paths_the_root_is_granted_once() {
        let found = list_grants(&[(PathBuf::from("/tmp"), SandboxPathAccess::Write)]).unwrap();
        let tmp = (PathBuf::from("/tmp"), SandboxPathAccess::Write);
        assert_eq!(found, [(PathBuf::from("/"), SandboxPathAccess::Read), tmp]);
    }
}
