//! A cache for npm that shows what the user's has. Its content is found by checksum: what a lock file names is read
//! without asking the index, and checked each time.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::links::{LINKS_MAX, entries, mirror};

/// Files that name packages with their checksums.
const LOCKS: [&str; 2] = ["package-lock.json", "npm-shrinkwrap.json"];

/// Fills `own` with what the npm cache `theirs` has for a workspace.
pub(super) fn fill(theirs: &Path, own: &Path, workspace: &Path) -> io::Result<()> {
    let (theirs, own) = (theirs.join("_cacache"), own.join("_cacache"));
    fs::create_dir_all(&own)?;
    let Some(wanted) = locked(workspace) else {
        // The index is added to, file by file.
        copy_index(&theirs.join("index-v5"), &own.join("index-v5"), &mut LINKS_MAX.clone())?;
        return mirror(&theirs.join("content-v2"), &own.join("content-v2"), &|_| false);
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
    for entry in entries(from)? {
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
fn locked(workspace: &Path) -> Option<BTreeSet<PathBuf>> {
    let text = LOCKS.iter().find_map(|name| fs::read_to_string(workspace.join(name)).ok())?;
    let lock: Value = serde_json::from_str(&text).ok()?;
    let mut found = BTreeSet::new();
    collect(&lock, &mut found)?;
    Some(found)
}

fn collect(value: &Value, found: &mut BTreeSet<PathBuf>) -> Option<()> {
    let Value::Object(entries) = value else { return Some(()) };
    if let Some(sums) = entries.get("integrity").and_then(Value::as_str) {
        entries.get("resolved")?;
        found.extend(sums.split_whitespace().filter_map(content_of));
    }
    entries.values().try_for_each(|value| collect(value, found))
}

/// `sha512-BASE64` as the path of the content with this checksum.
fn content_of(sum: &str) -> Option<PathBuf> {
    let (kind, text) = sum.split_once('-')?;
    if !["sha1", "sha256", "sha384", "sha512"].contains(&kind) {
        return None;
    }
    let hex = hex_of(text.split('?').next()?)?;
    let (first, rest) = (hex.get(..2)?, hex.get(2..)?);
    let (second, rest) = (rest.get(..2)?, rest.get(2..)?);
    Some(Path::new("content-v2").join(kind).join(first).join(second).join(rest))
}

/// Base64 as hexadecimal digits; `None` if it is none.
fn hex_of(text: &str) -> Option<String> {
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
        let path = content_of("sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
        let known = "content-v2/sha1/da/39/a3ee5e6b4b0d3255bfef95601890afd80709";
        assert_eq!(path.as_deref(), Some(Path::new(known)));
        assert_eq!(content_of("md5-abc="), None);
        assert_eq!(content_of("sha1-../../x"), None);
    }
}
