//! Words, colours and columns, the same in every command.

mod charset;

use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use mainstem_core::phase::Phase;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::error::CliError;

pub(crate) use charset::adapt_to_terminal;

/// Writes data to standard output. A reader that has gone away (`| head`) ends the command quietly.
pub(crate) fn write_stdout(text: &str) -> Result<(), CliError> {
    write_stdout_unchanged(&charset::adapt_to_terminal(text))
}

fn write_stdout_unchanged(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(CliError { code: 0, ..CliError::new(String::new()) })
        }
        Err(error) => Err(CliError::io_error("cannot write to standard output", &error)),
        Ok(()) => Ok(()),
    }
}

/// One JSON document on standard output.
pub(crate) fn write_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::new(format!("BUG: cannot be written as JSON: {error}")))?;
    text.push('\n');
    write_stdout_unchanged(&text)
}

/// A value as one line of JSON.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("BUG: reports are plain data")
}

/// Writes a message to standard error; who does not listen misses it.
pub(crate) fn write_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{}", charset::adapt_to_terminal(text));
}

/// Writes a part of a line to standard error, at once.
pub(crate) fn write_stderr_part(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "{text}");
    let _ = stderr.flush();
}

/// Text in a style, if colours are wanted.
pub(crate) fn paint_text(text: &str, style: Style, color: bool) -> String {
    if color {
        format!("{}{text}{}", style.render(), style.render_reset())
    } else {
        text.to_owned()
    }
}

/// The sign of a phase.
pub(crate) fn phase_sign(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "·",
        Phase::Ready => "○",
        Phase::Preparing => "◌",
        Phase::Working => "●",
        Phase::Asking => "?",
        Phase::Verifying => "◆",
        Phase::Merging => "▸",
        Phase::Landed => "✓",
        Phase::Conflicted => "⚡",
        Phase::Failed => "✗",
        Phase::Blocked => "–",
        Phase::Cancelled => "⊘",
        Phase::Skipped => "»",
    }
}

/// The style of a phase.
pub(crate) fn phase_style(phase: Phase) -> Style {
    let color = match phase {
        Phase::Waiting | Phase::Skipped | Phase::Cancelled => return Style::new().dimmed(),
        Phase::Ready => return Style::new(),
        Phase::Preparing | Phase::Working => AnsiColor::Cyan,
        Phase::Asking => AnsiColor::Yellow,
        Phase::Verifying | Phase::Merging => AnsiColor::Blue,
        Phase::Landed => AnsiColor::Green,
        Phase::Conflicted | Phase::Failed => AnsiColor::Red,
        Phase::Blocked => AnsiColor::Magenta,
    };
    Style::new().fg_color(Some(color.into()))
}

/// Agent text made harmless for a terminal: no escape sequences, no control characters.
pub(crate) fn sanitize_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => skip_escape(&mut chars),
            '\t' | '\n' => clean.push(c),
            c if c.is_control() || is_invisible_char(c) => {
                clean.extend(c.escape_unicode());
            }
            c => clean.push(c),
        }
    }
    clean
}

/// Direction marks and zero-width characters, which make text look like other text.
fn is_invisible_char(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            for c in chars.by_ref() {
                if ('\x40'..='\x7e').contains(&c) {
                    break;
                }
            }
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            let mut last = ' ';
            for c in chars.by_ref() {
                if c == '\x07' || (last == '\x1b' && c == '\\') {
                    break;
                }
                last = c;
            }
        }
        Some(_) => {
            chars.next();
        }
        None => {}
    }
}

/// Cuts a text to a width, with an ellipsis.
pub(crate) fn truncate_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        if cut.width() + 1 + c.len_utf8().min(2) > width {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Pads a text to a width.
pub(crate) fn pad_to_width(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// A duration for people: `4.2s`, `3m 05s`, `2h 10m`.
pub(crate) fn format_duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=59 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..=3599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A number with its noun: `1 commit`, `2 commits`.
pub(crate) fn count_noun(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// How wide the terminal on standard output is. Without one, `COLUMNS` says; else lines are as long as they are.
pub(crate) fn stdout_columns() -> Option<usize> {
    let stdout = std::io::stdout();
    let terminal = terminal_size::terminal_size_of(&stdout).filter(|_| stdout.is_terminal());
    terminal.map(|(width, _)| usize::from(width.0)).or_else(columns_from_env)
}

/// How wide pictures are drawn.
pub(crate) fn picture_width() -> usize {
    stdout_columns().unwrap_or(100)
}

/// How wide the terminal on standard error is, where progress goes. Without one, `COLUMNS` says.
pub(crate) fn stderr_columns() -> Option<usize> {
    let stderr = std::io::stderr();
    let terminal = terminal_size::terminal_size_of(&stderr).filter(|_| stderr.is_terminal());
    terminal.map(|(width, _)| usize::from(width.0)).or_else(columns_from_env)
}

/// How wide the live view is drawn.
pub(crate) fn live_columns() -> usize {
    stderr_columns().unwrap_or(80)
}

fn columns_from_env() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok()?.parse::<usize>().ok()?;
    Some(named).filter(|columns| *columns >= 20)
}

/// Breaks a text into lines of at most this width, between words where that is possible.
pub(crate) fn wrap_text(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if line.width() + c.width().unwrap_or(0) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Folds what is wider than the terminal, each line below its own beginning.
pub(crate) fn wrap_to_screen(text: &str) -> String {
    let Some(columns) = stdout_columns() else { return text.to_owned() };
    let mut out = String::new();
    for line in text.lines() {
        if visible_width(line) <= columns {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let below = indent_block(line.trim_start(), indent + 2, Some(columns));
        out.push_str(&below[2..]);
    }
    out
}

/// A block of text below a line: each line behind the same number of blanks, folded to the width.
pub(crate) fn indent_block(text: &str, indent: usize, columns: Option<usize>) -> String {
    let blanks = " ".repeat(indent);
    let mut out = String::new();
    for line in text.lines() {
        let folded = match columns {
            Some(columns) => wrap_text(line, columns.saturating_sub(indent)),
            None => vec![line.to_owned()],
        };
        for line in folded {
            out.push_str(format!("{blanks}{line}").trim_end());
            out.push('\n');
        }
    }
    out
}

/// Rows in columns as wide as their widest cell. On a terminal the last column is folded to what is left of the
/// line, below itself; where less than a third of the line is left for it, it stands below its row.
pub(crate) fn format_wrapped_table(rows: &[Vec<String>]) -> String {
    let Some(columns) = stdout_columns() else { return format_table(rows) };
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |c: usize| rows.iter().filter_map(|row| row.get(c)).map(|cell| visible_width(cell)).max();
    let indent: usize = (0..count.saturating_sub(1)).map(|c| widest(c).unwrap_or(0) + 2).sum();
    if indent + widest(count.saturating_sub(1)).unwrap_or(0) <= columns {
        return format_table(rows);
    }
    let below = columns.saturating_sub(indent) < columns / 3;
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate().take(count.saturating_sub(1)) {
            line.push_str(cell);
            if c + 1 < row.len() {
                let blanks = widest(c).unwrap_or(0).saturating_sub(visible_width(cell)) + 2;
                line.push_str(&" ".repeat(blanks));
            }
        }
        let last = row.get(count.saturating_sub(1)).map(String::as_str).unwrap_or_default();
        if below {
            out.push_str(&indent_block(&strip_styles(line.trim_end()), 0, Some(columns)));
            out.push_str(&indent_block(&strip_styles(last), 4, Some(columns)));
            continue;
        }
        let mut folded = wrap_text(&strip_styles(last), columns - indent).into_iter();
        line.push_str(&folded.next().unwrap_or_default());
        out.push_str(line.trim_end());
        out.push('\n');
        for rest in folded {
            out.push_str(&format!("{}{rest}\n", " ".repeat(indent)));
        }
    }
    out
}

/// Rows in columns as wide as their widest cell; the last one takes what is left.
pub(crate) fn format_table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| {
            rows.iter()
                .filter_map(|row| row.get(c))
                .map(|cell| visible_width(cell))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if c + 1 < row.len() {
                line.push_str(&" ".repeat(widths[c].saturating_sub(visible_width(cell)) + 2));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A cell without its colors.
fn strip_styles(cell: &str) -> String {
    anstream::adapter::strip_str(cell).to_string()
}

/// A cell's width without its colours.
pub(crate) fn visible_width(cell: &str) -> usize {
    strip_styles(cell).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_control_characters_never_reach_the_terminal() {
        let hostile = "a\x1b[31mb\x1b]0;title\x07c\x1bPq\x1b\\d\re\u{202e}f\u{9b}2Jg";
        let clean = sanitize_text(hostile);
        assert!(!clean.contains('\x1b') && !clean.contains('\r') && !clean.contains('\u{202e}'));
        assert!(!clean.contains('\u{9b}'), "{clean:?}");
        assert!(clean.starts_with("abcd"), "{clean:?}");
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(format_duration(4_250), "4.2s");
        assert_eq!(format_duration(185_000), "3m 05s");
        assert_eq!(format_duration(7_800_000), "2h 10m");
    }

    #[test]
    fn columns_line_up_whatever_the_colours() {
        let style = phase_style(Phase::Landed);
        let rows = vec![
            vec![paint_text("ab", style, true), "x".to_owned()],
            vec!["abcd".to_owned(), "y".to_owned()],
        ];
        let text = anstream::adapter::strip_str(&format_table(&rows)).to_string();
        assert_eq!(text, "ab    x\nabcd  y\n");
    }
}
