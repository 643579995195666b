//! What a prompt says of the work that an earlier attempt left in the workspace.

use std::fmt::Write as _;

use super::{collapse_whitespace, inline_code, write_list};

/// What the workspace holds of earlier work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EarlierWork {
    /// Which attempt left it.
    pub attempt: u32,
    /// Its commits, newest first, one line each.
    pub commits: Vec<String>,
    /// The files that it changed, each with the lines added and removed.
    pub files: Vec<String>,
    pub insertions: u64,
    pub deletions: u64,
    /// It is there as edits instead of commits.
    pub uncommitted: bool,
    /// It was brought onto what has landed since.
    pub moved: bool,
    /// Files that conflict with what has landed since.
    pub conflicts: Vec<String>,
    /// Those files are as they landed; otherwise as they were left.
    pub set_back: bool,
}

/// The work that is there, and how it fits what has landed.
pub(super) fn describe_work(out: &mut String, kept: &EarlierWork) {
    let files = kept.files.len();
    let _ = writeln!(
        out,
        "\nYour workspace contains the work of attempt {}. Continue from there; do not redo this work. \
         Changes: {files} {}, +{} -{}:\n",
        kept.attempt,
        if files == 1 { "file" } else { "files" },
        kept.insertions,
        kept.deletions,
    );
    write_list(out, kept.files.iter().map(|file| collapse_whitespace(file)));
    if kept.uncommitted {
        out.push_str(
            "\nThe work is uncommitted, because something in the commits must not land. Fix that before you commit.\n",
        );
    } else if !kept.commits.is_empty() {
        out.push_str("\nCommits, newest first:\n\n");
        write_list(out, kept.commits.iter().map(|line| collapse_whitespace(line)));
    }
    if kept.moved {
        out.push_str("\nThe work was updated to include what has landed since then.\n");
    }
    if !kept.conflicts.is_empty() && !kept.set_back {
        out.push_str(
            "\nOther work has landed since then that conflicts with this work in the files below. Your \
             workspace does not have that other work yet; finish the task here first. The conflict \
             is handled when your work is merged.\n\n",
        );
        write_list(out, kept.conflicts.iter().map(|file| inline_code(file)));
    }
}

pub(super) fn describe_no_work(out: &mut String, started_over: bool) {
    out.push_str(if started_over {
        "\nYou start over from the current state of the target branch; the work of that attempt was set aside.\n"
    } else {
        "\nThat attempt left no work: your workspace is the current state of the target branch.\n"
    });
}
