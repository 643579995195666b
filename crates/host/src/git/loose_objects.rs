//! Reads loose objects of a store that somebody else can write to. Nothing in it is believed: a file is
//! opened only if it is a plain one, is read up to a limit, and must hash to its own name.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::ZlibDecoder;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha1::{Digest, Sha1};
use sha2::Sha256;

/// The longest a header can be: a kind, a number, a NUL.
const HEADER_MAX: usize = 32;

/// What an object can be; tags are never looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitObjectKind {
    Commit,
    Tree,
    Blob,
}

impl GitObjectKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        }
    }
}

/// Why an object could not be read, as the rest of a sentence that begins with its name.
#[derive(Debug, thiserror::Error)]
pub(super) enum LooseObjectError {
    #[error("is not a regular file")]
    NoFile,
    #[error("is too large ({0} bytes)")]
    TooLarge(u64),
    #[error("is damaged")]
    Damaged,
    #[error("does not match the object id")]
    WrongContent,
    #[error("is a {0}")]
    WrongKind(String),
    #[error("cannot be read: {0}")]
    Files(io::Error),
}

/// A folder of loose objects.
pub(super) struct LooseObjectStore {
    folder: PathBuf,
    sha256: bool,
}

impl LooseObjectStore {
    pub(super) fn new(folder: &Path, sha256: bool) -> Self {
        Self { folder: folder.to_path_buf(), sha256 }
    }

    /// The content of an object of this kind, at most `max` bytes of it; `None` if there is no such file.
    pub(super) fn read(
        &self,
        id: &str,
        kind: GitObjectKind,
        max: u64,
    ) -> Result<Option<Vec<u8>>, LooseObjectError> {
        let Some(file) = self.open(id)? else { return Ok(None) };
        let mut stream = ZlibDecoder::new(file);
        let (found, size) = read_object_header(&mut stream)?;
        if found != kind.name() {
            return Err(LooseObjectError::WrongKind(found));
        }
        if size > max {
            return Err(LooseObjectError::TooLarge(size));
        }
        let mut body = Vec::with_capacity(usize::try_from(size.min(1 << 20)).unwrap_or(0));
        stream
            .by_ref()
            .take(size + 1)
            .read_to_end(&mut body)
            .map_err(|_| LooseObjectError::Damaged)?;
        if body.len() as u64 != size {
            return Err(LooseObjectError::Damaged);
        }
        if hash_object(kind, &body, self.sha256) == id {
            Ok(Some(body))
        } else {
            Err(LooseObjectError::WrongContent)
        }
    }

    fn open(&self, id: &str) -> Result<Option<File>, LooseObjectError> {
        let Some((start, rest)) = id.split_at_checked(2) else { return Ok(None) };
        let plain = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::RDONLY;
        let folder =
            rustix::fs::open(self.folder.join(start), plain | OFlags::DIRECTORY, Mode::empty());
        let folder = match folder {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(LooseObjectError::NoFile),
            Err(error) => return Err(LooseObjectError::Files(error.into())),
        };
        match rustix::fs::openat(&folder, rest, plain, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                let meta = file.metadata().map_err(LooseObjectError::Files)?;
                if meta.is_file() { Ok(Some(file)) } else { Err(LooseObjectError::NoFile) }
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => Err(LooseObjectError::NoFile),
            Err(error) => Err(LooseObjectError::Files(error.into())),
        }
    }
}

fn read_object_header(stream: &mut impl Read) -> Result<(String, u64), LooseObjectError> {
    let mut text = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).map_err(|_| LooseObjectError::Damaged)?;
        match byte[0] {
            0 => break,
            _ if text.len() >= HEADER_MAX => return Err(LooseObjectError::Damaged),
            other => text.push(other),
        }
    }
    let text = String::from_utf8(text).map_err(|_| LooseObjectError::Damaged)?;
    let (kind, size) = text.split_once(' ').ok_or(LooseObjectError::Damaged)?;
    Ok((kind.to_owned(), size.parse().map_err(|_| LooseObjectError::Damaged)?))
}

/// The name of an object with this content.
pub(super) fn hash_object(kind: GitObjectKind, body: &[u8], sha256: bool) -> String {
    let header = format!("{} {}\0", kind.name(), body.len());
    to_hex(&hash_parts(&[header.as_bytes(), body], sha256))
}

pub(super) fn hash_parts(parts: &[&[u8]], sha256: bool) -> Vec<u8> {
    fn digest_parts<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
        let mut digest = D::new();
        parts.iter().for_each(|part| digest.update(part));
        digest.finalize().to_vec()
    }
    if sha256 { digest_parts::<Sha256>(parts) } else { digest_parts::<Sha1>(parts) }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    /// What `git hash-object` says of "hello\n".
    const HELLO: &str = "ce013625030ba8dba906f756967f9e9ca394464a";

    fn store(bytes: &[u8]) -> (tempfile::TempDir, LooseObjectStore) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ce")).unwrap();
        let mut file = ZlibEncoder::new(Vec::new(), Compression::fast());
        file.write_all(bytes).unwrap();
        fs::write(dir.path().join("ce").join(&HELLO[2..]), file.finish().unwrap()).unwrap();
        let store = LooseObjectStore::new(dir.path(), false);
        (dir, store)
    }

    #[test]
    fn an_object_is_read_only_under_its_own_name_and_kind() {
        assert_eq!(hash_object(GitObjectKind::Blob, b"hello\n", false), HELLO);
        let (_dir, good) = store(b"blob 6\0hello\n");
        assert_eq!(good.read(HELLO, GitObjectKind::Blob, 6).unwrap().unwrap(), b"hello\n");
        assert!(matches!(
            good.read(HELLO, GitObjectKind::Tree, 6),
            Err(LooseObjectError::WrongKind(_))
        ));
        assert!(matches!(
            good.read(HELLO, GitObjectKind::Blob, 5),
            Err(LooseObjectError::TooLarge(6))
        ));
        assert!(good.read(&"1".repeat(40), GitObjectKind::Blob, 6).unwrap().is_none());
        let (_dir, planted) = store(b"blob 6\0howdy\n");
        assert!(matches!(
            planted.read(HELLO, GitObjectKind::Blob, 9),
            Err(LooseObjectError::WrongContent)
        ));
        for bytes in [&b"blob 5\0hello\n"[..], b"blob 7\0hello\n", b"blob", b"blob x\0", b""] {
            let (_dir, damaged) = store(bytes);
            assert!(matches!(
                damaged.read(HELLO, GitObjectKind::Blob, 9),
                Err(LooseObjectError::Damaged)
            ));
        }
    }

    #[test]
    fn what_is_no_plain_file_is_not_waited_for() {
        let (dir, found) = store(b"blob 6\0hello\n");
        let file = dir.path().join("ce").join(&HELLO[2..]);
        fs::rename(&file, dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("real"), &file).unwrap();
        assert!(matches!(found.read(HELLO, GitObjectKind::Blob, 9), Err(LooseObjectError::NoFile)));
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert!(matches!(found.read(HELLO, GitObjectKind::Blob, 9), Err(LooseObjectError::NoFile)));
    }
}
