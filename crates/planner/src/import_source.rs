//! Other tools' files as values: what was read, what is to be changed in them.
//!
//! Does not touch files; its callers read and write them.

use std::collections::BTreeMap;
use std::ops::Range;

/// Files of one tool: a folder, or one file of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSource {
    /// What was asked for, for messages.
    pub name: String,
    /// The folder of the files, for finding out whose they are and for messages.
    pub root: String,
    /// Relative to the root, sorted by path.
    pub files: Vec<SourceFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

/// Folders that hold no task files and may be large.
const SKIPPED: [&str; 8] =
    [".git", "node_modules", "target", "dist", "build", ".venv", "vendor", "__pycache__"];

/// Hidden folders that task files live in.
const HIDDEN: [&str; 8] =
    [".taskmaster", ".beads", ".kiro", ".planning", ".plan", ".specify", ".backlog", ".specs"];

/// Is it worth looking into this folder?
pub fn should_enter_folder(folder: &str) -> bool {
    let name = folder.rsplit('/').next().unwrap_or(folder);
    !SKIPPED.contains(&name) && (!name.starts_with('.') || HIDDEN.contains(&name))
}

/// May a file of this name belong to a tool that we read?
pub fn should_read_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    matches!(end.as_deref(), Some("md" | "markdown" | "json" | "jsonl" | "yml" | "yaml" | "conf"))
}

impl ImportSource {
    /// From paths and texts.
    pub fn new(root: impl Into<String>, files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut files: Vec<SourceFile> =
            files.into_iter().map(|(path, text)| SourceFile { path, text }).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let root = root.into();
        Self { name: if root.is_empty() { ".".to_owned() } else { root.clone() }, root, files }
    }

    /// The same under the name that was asked for.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The file at a path.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at])
    }

    /// A file's path as its user knows it.
    pub fn full_path(&self, path: &str) -> String {
        match self.root.trim_end_matches('/') {
            "" | "." => path.to_owned(),
            root => format!("{root}/{path}"),
        }
    }
}

/// One change of one file; of a file that is not there, the span is `0..0` and it is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceEdit {
    /// Relative to the root.
    pub file: String,
    /// Where the range of bytes starts.
    pub start: usize,
    pub end: usize,
    /// What takes its place.
    pub text: String,
}

impl SourceEdit {
    /// Puts `text` in the place of `span`.
    pub fn new(file: &str, span: Range<usize>, text: impl Into<String>) -> Self {
        Self { file: file.to_owned(), start: span.start, end: span.end, text: text.into() }
    }
}

/// The files that change, whole, by path. Edits must not overlap; of two that do, the first in the
/// file counts.
pub fn apply_edits(source: &ImportSource, edits: &[SourceEdit]) -> BTreeMap<String, String> {
    let mut sorted: Vec<&SourceEdit> = edits.iter().collect();
    // Insertions at one place keep their order.
    sorted.sort_by(|a, b| (&a.file, a.start, a.end).cmp(&(&b.file, b.start, b.end)));
    let mut changed: BTreeMap<String, String> = BTreeMap::new();
    for edits in sorted.chunk_by(|a, b| a.file == b.file) {
        let path = &edits[0].file;
        let text = source.file(path).map_or("", |file| file.text.as_str());
        let mut out = String::with_capacity(text.len() + 64);
        let mut at = 0;
        for edit in edits {
            let fits = edit.start >= at && text.get(edit.start..edit.end).is_some();
            if fits {
                out.push_str(&text[at..edit.start]);
                out.push_str(&edit.text);
                at = edit.end;
            }
        }
        out.push_str(&text[at..]);
        changed.insert(path.clone(), out);
    }
    changed
}
