//! Takes terminal control sequences out of a text. Knows nothing of JSON.

use std::borrow::Cow;

/// The text without escape sequences (colours, titles, cursor movements); linear.
pub(super) fn strip_ansi(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\u{9b}']) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{9b}' => skip_csi(&mut chars),
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    skip_csi(&mut chars);
                }
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    chars.next();
                    skip_string(&mut chars);
                }
                Some('(' | ')' | '#' | '%') => {
                    chars.next();
                    chars.next();
                }
                Some(_) => {
                    chars.next();
                }
                None => {}
            },
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// Parameters and the final byte; anything else ends a broken sequence and stays.
fn skip_csi(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.peek() {
        match c {
            '\x20'..='\x3f' => {
                chars.next();
            }
            '\x40'..='\x7e' => {
                chars.next();
                return;
            }
            _ => return,
        }
    }
}

/// Up to its terminator; a line's end is one too, so that a broken sequence cannot eat the answer.
fn skip_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.peek().copied() {
        if c == '\n' {
            return;
        }
        chars.next();
        if c == '\x07' {
            return;
        }
        if c == '\x1b' {
            chars.next_if_eq(&'\\');
            return;
        }
    }
}
