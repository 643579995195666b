//! Finds a tool's program: on the search path, and behind wrappers that swallow signals.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mainstem_agents::known_agents::native_program_paths;

/// The program to start for a name or a path.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let found = if program.contains('/') {
        Some(PathBuf::from(program)).filter(|path| is_runnable(path))
    } else {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| is_runnable(path))
    }?;
    let Ok(real) = found.canonicalize() else {
        return Some(found);
    };
    let native =
        native_program_paths(&real.to_string_lossy(), std::env::consts::OS, std::env::consts::ARCH);
    let native = native.into_iter().map(PathBuf::from).find(|path| is_runnable(path));
    Some(native.unwrap_or(found))
}

fn is_runnable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_program_behind_the_wrapper_of_codex_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let wrapper = root.join("node_modules/@openai/codex/bin/codex.js");
        program(&wrapper);
        let link = root.join("node_modules/.bin/codex");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("../@openai/codex/bin/codex.js", &link).unwrap();
        let link = link.to_string_lossy().into_owned();
        assert_eq!(find_program(&link).unwrap(), PathBuf::from(&link));
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let native = &native_program_paths(&wrapper.to_string_lossy(), os, arch)[0];
        program(Path::new(native));
        assert_eq!(find_program(&link).unwrap(), PathBuf::from(native));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_eq!(find_program("/nonexistent/codex"), None);
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert!(find_program("sh").is_some());
    }
}
