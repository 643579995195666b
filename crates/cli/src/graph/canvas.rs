//! Draws a layout as characters: boxes, lines, arrow heads.
//!
//! Lines join only within a net; where two nets cross, the upright line runs over the other, so
//! every line can be followed with a finger.

use std::collections::BTreeMap;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::layout::{Layout, Net, Slot};
use crate::print;

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;
/// Rows of a box.
const BOX_HEIGHT: usize = 3;

/// What a node looks like.
pub(super) struct Face {
    /// The text in the box.
    pub(super) label: String,
    /// Its style.
    pub(super) style: Style,
    /// Drawn with heavy lines.
    pub(super) heavy: bool,
}

impl Face {
    /// Columns of the box.
    pub(super) fn width(&self) -> usize {
        self.label.width() + 4
    }
}

#[derive(Clone, Copy)]
struct Cell {
    /// None: the right half of a wide character.
    glyph: Option<char>,
    style: Style,
}

struct Canvas {
    cells: Vec<Vec<Cell>>,
    /// Directions of lines per cell.
    lines: BTreeMap<(usize, usize), (u8, bool)>,
}

/// A net with the columns where its lines leave boxes and enter them.
struct Wire<'a> {
    net: &'a Net,
    starts: Vec<usize>,
    ends: Vec<usize>,
    track: usize,
}

impl Wire<'_> {
    fn span(&self) -> (usize, usize) {
        let columns = self.starts.iter().chain(&self.ends);
        columns.fold((usize::MAX, 0), |(low, high), c| (low.min(*c), high.max(*c)))
    }

    fn is_straight(&self) -> bool {
        let (low, high) = self.span();
        low == high
    }
}

/// The picture as lines of text.
pub(super) fn draw(layout: &Layout, faces: &[Face], color: bool) -> String {
    let gaps: Vec<(Vec<Wire<'_>>, usize)> =
        layout.gaps.iter().map(|nets| route(layout, nets)).collect();
    let rows = layout.rows.len();
    let height = rows * BOX_HEIGHT + gaps.iter().map(|(_, height)| height).sum::<usize>();
    let blank = Cell { glyph: Some(' '), style: Style::new() };
    let mut canvas =
        Canvas { cells: vec![vec![blank; layout.width()]; height], lines: BTreeMap::new() };
    let mut y = 0;
    let mut tops = Vec::new();
    for (i, row) in layout.rows.iter().enumerate() {
        for slot in row {
            canvas.slot(y, &layout.slots[*slot], faces);
        }
        tops.push(y + BOX_HEIGHT);
        y += BOX_HEIGHT + gaps.get(i).map_or(0, |(_, height)| *height);
    }
    // Heads and ports are put on boxes, so these come last.
    for ((wires, height), top) in gaps.iter().zip(tops) {
        wires.iter().for_each(|wire| canvas.wire(top, *height, wire));
        wires.iter().for_each(|wire| canvas.ports(layout, faces, top, *height, wire));
    }
    canvas.finish(color)
}

/// Columns and tracks of the nets between two rows, and the rows of the gap.
fn route<'a>(layout: &Layout, nets: &'a [Net]) -> (Vec<Wire<'a>>, usize) {
    let mut wires: Vec<Wire<'a>> = nets
        .iter()
        .map(|net| Wire { net, starts: Vec::new(), ends: Vec::new(), track: 0 })
        .collect();
    leave_boxes(layout, &mut wires);
    enter_boxes(layout, &mut wires);
    let height = assign_tracks(&mut wires);
    (wires, height.max(1))
}

fn mean(layout: &Layout, slots: &[usize]) -> usize {
    slots.iter().map(|slot| layout.slots[*slot].centre()).sum::<usize>() / slots.len().max(1)
}

fn leave_boxes(layout: &Layout, wires: &mut [Wire<'_>]) {
    let mut leaving: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, wire) in wires.iter().enumerate() {
        wire.net.sources.iter().for_each(|slot| leaving.entry(*slot).or_default().push(i));
    }
    for (slot, mut nets) in leaving {
        nets.sort_by_key(|i| mean(layout, &wires[*i].net.targets));
        let place = &layout.slots[slot];
        let first = (place.centre() + 1).saturating_sub(nets.len());
        for (n, i) in nets.into_iter().enumerate() {
            let column = (first + 2 * n).clamp(place.left, place.left + place.width - 1);
            wires[i].starts.push(column);
        }
    }
}

/// Lines enter as straight below where they left as can be, each net at a column of its own.
fn enter_boxes(layout: &Layout, wires: &mut [Wire<'_>]) {
    let mut entering: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, wire) in wires.iter().enumerate() {
        wire.net.targets.iter().for_each(|slot| entering.entry(*slot).or_default().push(i));
    }
    let starts: Vec<(usize, usize)> = wires
        .iter()
        .enumerate()
        .flat_map(|(i, wire)| wire.starts.iter().map(move |column| (*column, i)))
        .collect();
    for (slot, mut nets) in entering {
        let place = &layout.slots[slot];
        let inside = if place.node.is_some() {
            place.left + 1..=place.left + place.width.saturating_sub(2)
        } else {
            place.left..=place.left
        };
        nets.sort_by_key(|i| mean(layout, &wires[*i].net.sources));
        let mut taken: Vec<usize> = Vec::new();
        let count = nets.len();
        for (n, i) in nets.into_iter().enumerate() {
            // Without a straight way in: spread around the middle.
            let spread = (place.centre() + 1 + 2 * n).saturating_sub(count);
            let above = wires[i].starts.iter().copied().filter(|c| inside.contains(c));
            let wish = above.min_by_key(|c| c.abs_diff(place.centre())).unwrap_or(spread);
            let free = |c: &usize| {
                !taken.contains(c) && starts.iter().all(|(at, net)| at != c || *net == i)
            };
            let by_nearness = |c: &usize| (c.abs_diff(wish), *c);
            let column = inside.clone().filter(free).min_by_key(by_nearness);
            let column = column.unwrap_or_else(|| wish.clamp(*inside.start(), *inside.end()));
            taken.push(column);
            wires[i].ends.push(column);
        }
    }
}

/// Gives every net that is not straight a row of its own part of the gap; says how many rows.
fn assign_tracks(wires: &mut [Wire<'_>]) -> usize {
    // A line that leaves a box in a column must turn off above one that enters below it there.
    let above = |a: &Wire<'_>, b: &Wire<'_>| a.starts.iter().any(|c| b.ends.contains(c));
    let mut waiting: Vec<usize> = (0..wires.len()).filter(|i| !wires[*i].is_straight()).collect();
    waiting.sort_by_key(|i| wires[*i].span());
    let mut track = 0;
    while !waiting.is_empty() {
        let held = |i: usize, waiting: &[usize]| {
            waiting.iter().any(|other| *other != i && above(&wires[*other], &wires[i]))
        };
        let mut now: Vec<usize> = Vec::new();
        for i in waiting.iter().copied().filter(|i| !held(*i, &waiting)) {
            let (low, high) = wires[i].span();
            let apart = |other: &usize| {
                let (left, right) = wires[*other].span();
                right + 1 < low || high + 1 < left
            };
            if now.iter().all(apart) {
                now.push(i);
            }
        }
        if now.is_empty() {
            // Two nets that each must be above the other: let them touch.
            now.push(waiting[0]);
        }
        waiting.retain(|i| !now.contains(i));
        now.iter().for_each(|i| wires[*i].track = track);
        track += 1;
    }
    track
}

impl Canvas {
    fn put(&mut self, y: usize, x: usize, glyph: char, style: Style) {
        if let Some(cell) = self.cells.get_mut(y).and_then(|row| row.get_mut(x)) {
            *cell = Cell { glyph: Some(glyph), style };
        }
    }

    fn slot(&mut self, y: usize, slot: &Slot, faces: &[Face]) {
        let Some(face) = slot.node.map(|node| &faces[node]) else {
            for y in y..y + BOX_HEIGHT {
                self.put(y, slot.left, glyph(UP | DOWN, slot.soft), Style::new());
            }
            return;
        };
        let (right, style) = (slot.left + slot.width - 1, face.style);
        let [top, bottom] =
            if face.heavy { ["┏━┓", "┗━┛"] } else { ["┌─┐", "└─┘"] };
        for (y, line) in [(y, top), (y + 2, bottom)] {
            let mut line = line.chars();
            let mut next = || line.next().unwrap_or(' ');
            let (first, fill, last) = (next(), next(), next());
            self.put(y, slot.left, first, style);
            (slot.left + 1..right).for_each(|x| self.put(y, x, fill, style));
            self.put(y, right, last, style);
        }
        let side = if face.heavy { '┃' } else { '│' };
        self.put(y + 1, slot.left, side, style);
        self.put(y + 1, right, side, style);
        let mut x = slot.left + 2;
        for c in face.label.chars() {
            let width = c.width().unwrap_or(0);
            if width > 0 {
                self.put(y + 1, x, c, style);
            }
            if width == 2 {
                self.cells[y + 1][x + 1].glyph = None;
            }
            x += width;
        }
    }

    fn wire(&mut self, top: usize, height: usize, wire: &Wire<'_>) {
        let mut cells: BTreeMap<(usize, usize), u8> = BTreeMap::new();
        let mut add = |y: usize, x: usize, way: u8| *cells.entry((y, x)).or_default() |= way;
        if wire.is_straight() {
            (top..top + height).for_each(|y| add(y, wire.starts[0], UP | DOWN));
        } else {
            let track = top + wire.track;
            for x in &wire.starts {
                (top..track).for_each(|y| add(y, *x, UP | DOWN));
                add(track, *x, UP);
            }
            for x in &wire.ends {
                (track + 1..top + height).for_each(|y| add(y, *x, UP | DOWN));
                add(track, *x, DOWN);
            }
            let (low, high) = wire.span();
            for x in low..=high {
                add(track, x, if x > low { LEFT } else { 0 } | if x < high { RIGHT } else { 0 });
            }
        }
        for ((y, x), ways) in cells {
            self.line(y, x, ways, wire.net.soft);
        }
    }

    fn line(&mut self, y: usize, x: usize, ways: u8, soft: bool) {
        let (ways, soft) = match self.lines.get(&(y, x)) {
            None => (ways, soft),
            Some((old, old_soft)) if *old == UP | DOWN && ways == LEFT | RIGHT => (*old, *old_soft),
            Some((old, _)) if *old == LEFT | RIGHT && ways == UP | DOWN => (ways, soft),
            Some((old, old_soft)) => (old | ways, soft && *old_soft),
        };
        self.lines.insert((y, x), (ways, soft));
        self.put(y, x, glyph(ways, soft), Style::new());
    }

    /// Where lines leave boxes and the heads of arrows that enter them.
    fn ports(
        &mut self,
        layout: &Layout,
        faces: &[Face],
        top: usize,
        height: usize,
        wire: &Wire<'_>,
    ) {
        let boxed = |slots: &[usize], column: usize| {
            let holds = |slot: &&Slot| slot.left <= column && column < slot.left + slot.width;
            slots.iter().map(|slot| &layout.slots[*slot]).find(holds).and_then(|slot| slot.node)
        };
        for column in &wire.starts {
            if let Some(node) = boxed(&wire.net.sources, *column) {
                let port = if faces[node].heavy { '┯' } else { '┬' };
                self.put(top - 1, *column, port, faces[node].style);
            }
        }
        for column in &wire.ends {
            if let Some(node) = boxed(&wire.net.targets, *column) {
                self.put(top + height, *column, '▼', faces[node].style);
            }
        }
    }

    fn finish(&self, color: bool) -> String {
        let mut out = String::new();
        for row in &self.cells {
            let mut line = String::new();
            let mut run = String::new();
            let mut style = Style::new();
            for cell in row {
                if cell.style != style {
                    line.push_str(&painted(&run, style, color));
                    run.clear();
                    style = cell.style;
                }
                run.extend(cell.glyph);
            }
            line.push_str(&painted(&run, style, color));
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn painted(text: &str, style: Style, color: bool) -> String {
    if text.is_empty() || style == Style::new() {
        return text.to_owned();
    }
    print::paint(text, style, color)
}

fn glyph(ways: u8, soft: bool) -> char {
    const GLYPHS: [char; 16] =
        [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];
    match (ways, soft) {
        (3, true) => '┊',
        (12, true) => '┄',
        _ => GLYPHS[usize::from(ways & 15)],
    }
}
