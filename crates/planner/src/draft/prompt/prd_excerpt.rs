//! As much of a PRD as there is room for: the wanted sections in full, of the others the beginnings.

use std::ops::Range;

use super::{PrdExtent, truncate_text};
use crate::plan_assembly::coverage::{covers_number, first_number};
use crate::text_forms::plain_words;

/// A heading with its own text, up to the next heading.
struct PrdPiece {
    level: usize,
    number: String,
    title: String,
    span: Range<usize>,
}

/// The whole, if there is room; otherwise what matters most of it.
pub(super) fn build_excerpt(prd: &str, wanted: &[String], room: usize) -> (String, PrdExtent) {
    if prd.len() <= room {
        return (prd.to_owned(), PrdExtent::Whole);
    }
    let pieces = split_pieces(prd);
    let chosen = choose_pieces(&pieces, wanted);
    let length = |i: usize| pieces[i].span.len();
    let full: usize = (0..pieces.len()).filter(|i| chosen[*i]).map(length).sum();
    // What was chosen may fill most of the room and never all: the rest is what it belongs to.
    let for_chosen = full.min(room / 5 * 4);
    let share = |total: usize, count: usize| total / count.max(1);
    let count = chosen.iter().filter(|chosen| **chosen).count();
    let (of_chosen, of_other) =
        (share(for_chosen, count), share(room - for_chosen, pieces.len() - count));
    let mut out = String::with_capacity(room);
    let mut whole = 0;
    for (i, piece) in pieces.iter().enumerate() {
        let text = &prd[piece.span.clone()];
        // Room that short pieces leave is not worth a second round.
        let most = match chosen[i] {
            true if full <= for_chosen => text.len(),
            true => of_chosen,
            false => of_other.saturating_sub(8),
        };
        whole += usize::from(chosen[i] && most >= text.len());
        out.push_str(truncate_text(text, most));
        if most < text.len() {
            out.push_str(" …\n\n");
        }
    }
    let text = truncate_text(&out, room).to_owned();
    (text, PrdExtent::Sections { full: whole, of: pieces.len() })
}

fn split_pieces(prd: &str) -> Vec<PrdPiece> {
    let mut found =
        vec![PrdPiece { level: 0, number: String::new(), title: String::new(), span: 0..0 }];
    let (mut offset, mut fenced) = (0, false);
    for line in prd.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        fenced ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if !fenced && (1..=6).contains(&level) && line[level..].starts_with(' ') {
            let text = line[level..].trim();
            let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            found.push(PrdPiece {
                level,
                number: text[..digits].trim_end_matches('.').to_owned(),
                title: plain_words(&text[digits..]),
                span: start..offset,
            });
        }
        if let Some(last) = found.last_mut() {
            last.span.end = offset;
        }
    }
    found.retain(|piece| !piece.span.is_empty());
    found
}

/// Pieces that a wanted name means, and all below them.
fn choose_pieces(pieces: &[PrdPiece], wanted: &[String]) -> Vec<bool> {
    let means = |piece: &PrdPiece| {
        wanted.iter().any(|name| {
            let title = plain_words(name);
            let by_title = !piece.title.is_empty()
                && (title == piece.title || title.ends_with(&format!(" {}", piece.title)));
            let by_number = !piece.number.is_empty()
                && first_number(name).is_some_and(|number| covers_number(number, &piece.number));
            by_title || by_number
        })
    };
    let mut inside: Option<usize> = None;
    let mut chosen = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if inside.is_some_and(|level| piece.level <= level) {
            inside = None;
        }
        if inside.is_none() && means(piece) {
            inside = Some(piece.level);
        }
        chosen.push(inside.is_some());
    }
    chosen
}
