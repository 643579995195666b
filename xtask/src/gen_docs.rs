//! Keeps `docs/reference` equal to what the binary says about itself.
//!
//! Does not know what the pages hold: the hidden command `mainstem __reference DIR` writes them all.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Verdict, shell};

const REFERENCE: &str = "docs/reference";

/// Whether differences are written or only reported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Make the folder equal to the generated pages.
    Write,
    /// Name each page that differs.
    Check,
}

/// File name (with folders) to content.
type Pages = BTreeMap<PathBuf, Vec<u8>>;

/// Builds the binary, lets it write its pages to a scratch folder and compares.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<Verdict, String> {
    if !shell::succeeds(shell::cargo(root).args(["build", "--quiet", "--package", "mainstem"]))? {
        return Err("the binary does not build".to_owned());
    }
    let target = shell::target_dir(root)?;
    let scratch = target.join("xtask-reference");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(|error| at(&scratch, &error))?;
    }
    fs::create_dir_all(&scratch).map_err(|error| at(&scratch, &error))?;
    let binary = target.join("debug").join("mainstem");
    shell::output(shell::command(&binary, root).arg("__reference").arg(&scratch))?;

    let made = read_pages(&scratch)?;
    if made.is_empty() {
        return Err("`mainstem __reference` wrote no page".to_owned());
    }
    let kept = root.join(REFERENCE);
    let differing = differences(&made, &read_pages(&kept)?);
    match mode {
        Mode::Write => {
            write_pages(&kept, &made, &differing)?;
            println!("{REFERENCE}: {} pages, {} changed", made.len(), differing.len());
            Ok(Verdict::Clean)
        }
        Mode::Check if differing.is_empty() => Ok(Verdict::Clean),
        Mode::Check => {
            for (page, how) in &differing {
                println!("{REFERENCE}/{}:1: {how}; run `cargo xtask gen`", page.display());
            }
            Ok(Verdict::Findings)
        }
    }
}

fn differences(made: &Pages, kept: &Pages) -> BTreeMap<PathBuf, &'static str> {
    let mut found = BTreeMap::new();
    for (page, text) in made {
        match kept.get(page) {
            None => found.insert(page.clone(), "is missing"),
            Some(old) if old != text => found.insert(page.clone(), "is out of date"),
            Some(_) => None,
        };
    }
    let stale = kept.keys().filter(|page| !made.contains_key(*page));
    found.extend(stale.map(|page| (page.clone(), "is no longer generated")));
    found
}

fn write_pages(
    kept: &Path,
    made: &Pages,
    differing: &BTreeMap<PathBuf, &'static str>,
) -> Result<(), String> {
    for page in differing.keys() {
        let path = kept.join(page);
        let done = match made.get(page) {
            None => fs::remove_file(&path),
            Some(text) => {
                let folder = path.parent().expect("BUG: a page lies in a folder");
                fs::create_dir_all(folder).and_then(|()| fs::write(&path, text))
            }
        };
        done.map_err(|error| at(&path, &error))?;
    }
    Ok(())
}

/// An absent folder holds no page; any other failure is an error.
fn read_pages(folder: &Path) -> Result<Pages, String> {
    let mut pages = Pages::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(at(&dir, &error)),
        };
        for entry in entries {
            let path = entry.map_err(|error| at(&dir, &error))?.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let text = fs::read(&path).map_err(|error| at(&path, &error))?;
            let name = path.strip_prefix(folder).expect("BUG: found below the folder");
            pages.insert(name.to_path_buf(), text);
        }
    }
    Ok(pages)
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pages(list: &[(&str, &str)]) -> Pages {
        list.iter().map(|(name, text)| (PathBuf::from(name), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let made = pages(&[("same.md", "a"), ("new.md", "b"), ("changed.md", "c")]);
        let kept = pages(&[("same.md", "a"), ("changed.md", "old"), ("gone.md", "d")]);
        let found = differences(&made, &kept);
        let found: Vec<_> =
            found.iter().map(|(page, how)| (page.to_str().unwrap(), *how)).collect();
        assert_eq!(
            found,
            [
                ("changed.md", "is out of date"),
                ("gone.md", "is no longer generated"),
                ("new.md", "is missing")
            ]
        );
    }

    #[test]
    fn writing_makes_the_folder_equal_to_the_pages() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("gone.md"), "d").unwrap();
        let made = pages(&[("cli/run.md", "a"), ("exit-codes.md", "b")]);
        let differing = differences(&made, &read_pages(dir.path()).unwrap());
        write_pages(dir.path(), &made, &differing).unwrap();
        assert_eq!(read_pages(dir.path()).unwrap(), made);
    }

    #[test]
    fn an_absent_folder_holds_no_page() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_pages(&dir.path().join("none")).unwrap().is_empty());
    }
}
