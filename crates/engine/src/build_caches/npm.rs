//! A cache for npm that shows what the user's has. Its content is found by checksum: what a lock file names is read
//! without asking the index, and checked each time.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::link_mirror::{LINKS_MAX, list_folder, mirror_folder};

/// Files that name packages with their checksums.
const LOCKS: [&str; 2] = ["package-lock.json", "npm-shrinkwrap.json"];

/// Fills `own` with what the npm cache `theirs` has for a workspace.
pub(super) fn fill_npm_cache(theirs: &Path, own: &Path, workspace: &Path) -> io::Result<()> {
    let (theirs, own) = (theirs.join("_cacache"), own.join("_cacache"));
    fs::create_dir_all(&own)?;
    let Some(wanted) = list_locked_packages(workspace) else {
        // The index is added to, file by file.
        copy_index(&theirs.join("index-v5"), &own.join("index-v5"), &mut LINKS_MAX.clone())?;
        return mirror_folder(&theirs.join("content-v2"), &own.join("content-v2"), &|_| false);
    };
    for content in wanted.iter().take(LINKS_MAX) {
        let (from, to) = (theirs.join(content), own.join(content));
        if from.is_file() {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            symlink(from, to)?;
        }
    }
    Ok(())
}

fn copy_index(from: &Path, to: &Path, left: &mut usize) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in list_folder(from)? {
        let entry = entry?;
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_index(&entry.path(), &target, left)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Where npm keeps the packages that the workspace's lock file names; `None` if there is no such file, or if npm has to
/// ask where they are to be had.
fn list_locked_packages(workspace: &Path) -> Option<BTreeSet<PathBuf>> {
    let text = LOCKS.iter().find_map(|name| fs::read_to_string(workspace.join(name)).ok())?;
    let lock: Value = serde_json::from_str(&text).ok()?;
    let mut found = BTreeSet::new();
    collect_checksums(&lock, &mut found)?;
    Some(found)
}

fn collect_checksums(value: &Value, found: &mut BTreeSet<PathBuf>) -> Option<()> {
    let Value::Object(entries) = value else { return Some(()) };
    if let Some(sums) = entries.get("integrity").and_then(Value::as_str) {
        entries.get("resolved")?;
        found.extend(sums.split_whitespace().filter_map(content_path));
    }
    entries.values().try_for_each(|value| collect_checksums(value, found))
}

/// `sha512-BASE64` as the path of the content with this checksum.
fn content_path(sum: &str) -> Option<PathBuf> {
    let (kind, text) = sum.split_once('-')?;
    if !["sha1", "sha256", "sha384", "sha512"].contains(&kind) {
        return None;
    }
    let hex = base64_to_hex(text.split('?').next()?)?;
    let (first, rest) = (hex.get(..2)?, hex.get(2..)?);
    let (second, rest) = (rest.get(..2)?, rest.get(2..)?);
    Some(Path::new("content-v2").join(kind).join(first).join(second).join(rest))
}

/// Base64 as hexadecimal digits; `None` if it is none.
fn base64_to_hex(text: &str) -> Option<String> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => Some(u32::from(digit - b'A')),
        b'a'..=b'z' => Some(u32::from(digit - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(digit - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut count, mut hex) = (0u32, 0, String::new());
    for digit in text.trim_end_matches('=').bytes() {
        bits = (bits << 6) | value(digit)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            hex.push_str(&format!("{:02x}", (bits >> count) & 0xff));
        }
    }
    Some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_leads_to_its_content() {
        let path = content_path("sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
        let known = "content-v2/sha1/da/39/a3ee5e6b4b0d3255bfef95601890afd80709";
        assert_eq!(path.as_deref(), Some(Path::new(known)));
        assert_eq!(content_path("md5-abc="), None);
        assert_eq!(content_path("sha1-../../x"), None);
    }
}
