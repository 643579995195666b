//! Draws a layout as characters: boxes, lines, arrow heads.
//!
//! Lines join only within a net; where two nets cross, the upright line runs over the other, so
//! every line can be followed with a finger.

use std::collections::BTreeMap;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::layout::{EdgeBundle, GraphLayout, LayoutSlot};
use crate::output;

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;
/// Rows of a box.
const BOX_HEIGHT: usize = 3;

/// What a node looks like.
pub(super) struct GraphNodeBox {
    /// The text in the box.
    pub(super) label: String,
    pub(super) style: Style,
    /// Drawn with heavy lines.
    pub(super) heavy: bool,
}

impl GraphNodeBox {
    /// Columns of the box.
    pub(super) fn width(&self) -> usize {
        self.label.width() + 4
    }
}

#[derive(Clone, Copy)]
struct CanvasCell {
    /// None: the right half of a wide character.
    glyph: Option<char>,
    style: Style,
}

struct GraphCanvas {
    cells: Vec<Vec<CanvasCell>>,
    /// Directions of lines per cell.
    lines: BTreeMap<(usize, usize), (u8, bool)>,
}

/// A net with the columns where its lines leave boxes and enter them.
struct GraphWire<'a> {
    net: &'a EdgeBundle,
    starts: Vec<usize>,
    ends: Vec<usize>,
    track: usize,
}

impl GraphWire<'_> {
    fn column_span(&self) -> (usize, usize) {
        let columns = self.starts.iter().chain(&self.ends);
        columns.fold((usize::MAX, 0), |(low, high), c| (low.min(*c), high.max(*c)))
    }

    fn is_straight(&self) -> bool {
        let (low, high) = self.column_span();
        low == high
    }
}

/// The picture as lines of text.
pub(super) fn draw_layout(layout: &GraphLayout, faces: &[GraphNodeBox], color: bool) -> String {
    let gaps: Vec<(Vec<GraphWire<'_>>, usize)> =
        layout.gaps.iter().map(|nets| route_wires(layout, nets)).collect();
    let rows = layout.rows.len();
    let height = rows * BOX_HEIGHT + gaps.iter().map(|(_, height)| height).sum::<usize>();
    let blank = CanvasCell { glyph: Some(' '), style: Style::new() };
    let mut canvas =
        GraphCanvas { cells: vec![vec![blank; layout.width()]; height], lines: BTreeMap::new() };
    let mut y = 0;
    let mut tops = Vec::new();
    for (i, row) in layout.rows.iter().enumerate() {
        for slot in row {
            canvas.draw_slot(y, &layout.slots[*slot], faces);
        }
        tops.push(y + BOX_HEIGHT);
        y += BOX_HEIGHT + gaps.get(i).map_or(0, |(_, height)| *height);
    }
    // Heads and ports are put on boxes, so these come last.
    for ((wires, height), top) in gaps.iter().zip(tops) {
        wires.iter().for_each(|wire| canvas.draw_wire(top, *height, wire));
        wires.iter().for_each(|wire| canvas.draw_ports(layout, faces, top, *height, wire));
    }
    canvas.render_text(color)
}

/// Columns and tracks of the nets between two rows, and the rows of the gap.
fn route_wires<'a>(layout: &GraphLayout, nets: &'a [EdgeBundle]) -> (Vec<GraphWire<'a>>, usize) {
    let mut wires: Vec<GraphWire<'a>> = nets
        .iter()
        .map(|net| GraphWire { net, starts: Vec::new(), ends: Vec::new(), track: 0 })
        .collect();
    assign_exit_columns(layout, &mut wires);
    assign_entry_columns(layout, &mut wires);
    let height = assign_tracks(&mut wires);
    (wires, height.max(1))
}

fn mean_column(layout: &GraphLayout, slots: &[usize]) -> usize {
    slots.iter().map(|slot| layout.slots[*slot].centre_column()).sum::<usize>() / slots.len().max(1)
}

fn assign_exit_columns(layout: &GraphLayout, wires: &mut [GraphWire<'_>]) {
    let mut leaving: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, wire) in wires.iter().enumerate() {
        wire.net.sources.iter().for_each(|slot| leaving.entry(*slot).or_default().push(i));
    }
    for (slot, mut nets) in leaving {
        nets.sort_by_key(|i| mean_column(layout, &wires[*i].net.targets));
        let place = &layout.slots[slot];
        let first = (place.centre_column() + 1).saturating_sub(nets.len());
        for (n, i) in nets.into_iter().enumerate() {
            let column = (first + 2 * n).clamp(place.left, place.left + place.width - 1);
            wires[i].starts.push(column);
        }
    }
}

/// Lines enter as straight below where they left as can be, each net at a column of its own.
fn assign_entry_columns(layout: &GraphLayout, wires: &mut [GraphWire<'_>]) {
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
        nets.sort_by_key(|i| mean_column(layout, &wires[*i].net.sources));
        let mut taken: Vec<usize> = Vec::new();
        let count = nets.len();
        for (n, i) in nets.into_iter().enumerate() {
            // Without a straight way in: spread around the middle.
            let spread = (place.centre_column() + 1 + 2 * n).saturating_sub(count);
            let above = wires[i].starts.iter().copied().filter(|c| inside.contains(c));
            let wish = above.min_by_key(|c| c.abs_diff(place.centre_column())).unwrap_or(spread);
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
fn assign_tracks(wires: &mut [GraphWire<'_>]) -> usize {
    // A line that leaves a box in a column must turn off above one that enters below it there.
    let above = |a: &GraphWire<'_>, b: &GraphWire<'_>| a.starts.iter().any(|c| b.ends.contains(c));
    let mut waiting: Vec<usize> = (0..wires.len()).filter(|i| !wires[*i].is_straight()).collect();
    waiting.sort_by_key(|i| wires[*i].column_span());
    let mut track = 0;
    while !waiting.is_empty() {
        let held = |i: usize, waiting: &[usize]| {
            waiting.iter().any(|other| *other != i && above(&wires[*other], &wires[i]))
        };
        let mut now: Vec<usize> = Vec::new();
        for i in waiting.iter().copied().filter(|i| !held(*i, &waiting)) {
            let (low, high) = wires[i].column_span();
            let apart = |other: &usize| {
                let (left, right) = wires[*other].column_span();
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

impl GraphCanvas {
    fn put_glyph(&mut self, y: usize, x: usize, glyph: char, style: Style) {
        if let Some(cell) = self.cells.get_mut(y).and_then(|row| row.get_mut(x)) {
            *cell = CanvasCell { glyph: Some(glyph), style };
        }
    }

    fn draw_slot(&mut self, y: usize, slot: &LayoutSlot, faces: &[GraphNodeBox]) {
        let Some(face) = slot.node.map(|node| &faces[node]) else {
            for y in y..y + BOX_HEIGHT {
                self.put_glyph(y, slot.left, line_glyph(UP | DOWN, slot.soft), Style::new());
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
            self.put_glyph(y, slot.left, first, style);
            (slot.left + 1..right).for_each(|x| self.put_glyph(y, x, fill, style));
            self.put_glyph(y, right, last, style);
        }
        let side = if face.heavy { '┃' } else { '│' };
        self.put_glyph(y + 1, slot.left, side, style);
        self.put_glyph(y + 1, right, side, style);
        let mut x = slot.left + 2;
        for c in face.label.chars() {
            let width = c.width().unwrap_or(0);
            if width > 0 {
                self.put_glyph(y + 1, x, c, style);
            }
            if width == 2 {
                self.cells[y + 1][x + 1].glyph = None;
            }
            x += width;
        }
    }

    fn draw_wire(&mut self, top: usize, height: usize, wire: &GraphWire<'_>) {
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
            let (low, high) = wire.column_span();
            for x in low..=high {
                add(track, x, if x > low { LEFT } else { 0 } | if x < high { RIGHT } else { 0 });
            }
        }
        for ((y, x), ways) in cells {
            self.draw_line(y, x, ways, wire.net.soft);
        }
    }

    fn draw_line(&mut self, y: usize, x: usize, ways: u8, soft: bool) {
        let (ways, soft) = match self.lines.get(&(y, x)) {
            None => (ways, soft),
            Some((old, old_soft)) if *old == UP | DOWN && ways == LEFT | RIGHT => (*old, *old_soft),
            Some((old, _)) if *old == LEFT | RIGHT && ways == UP | DOWN => (ways, soft),
            Some((old, old_soft)) => (old | ways, soft && *old_soft),
        };
        self.lines.insert((y, x), (ways, soft));
        self.put_glyph(y, x, line_glyph(ways, soft), Style::new());
    }

    /// Where lines leave boxes and the heads of arrows that enter them.
    fn draw_ports(
        &mut self,
        layout: &GraphLayout,
        faces: &[GraphNodeBox],
        top: usize,
        height: usize,
        wire: &GraphWire<'_>,
    ) {
        let boxed = |slots: &[usize], column: usize| {
            let holds = |slot: &&LayoutSlot| slot.left <= column && column < slot.left + slot.width;
            slots.iter().map(|slot| &layout.slots[*slot]).find(holds).and_then(|slot| slot.node)
        };
        for column in &wire.starts {
            if let Some(node) = boxed(&wire.net.sources, *column) {
                let port = if faces[node].heavy { '┯' } else { '┬' };
                self.put_glyph(top - 1, *column, port, faces[node].style);
            }
        }
        for column in &wire.ends {
            if let Some(node) = boxed(&wire.net.targets, *column) {
                self.put_glyph(top + height, *column, '▼', faces[node].style);
            }
        }
    }

    fn render_text(&self, color: bool) -> String {
        let mut out = String::new();
        for row in &self.cells {
            let mut line = String::new();
            let mut run = String::new();
            let mut style = Style::new();
            for cell in row {
                if cell.style != style {
                    line.push_str(&paint_text(&run, style, color));
                    run.clear();
                    style = cell.style;
                }
                run.extend(cell.glyph);
            }
            line.push_str(&paint_text(&run, style, color));
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn paint_text(text: &str, style: Style, color: bool) -> String {
    if text.is_empty() || style == Style::new() {
        return text.to_owned();
    }
    output::paint_text(text, style, color)
}

fn line_glyph(ways: u8, soft: bool) -> char {
    const GLYPHS: [char; 16] =
        [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];
    match (ways, soft) {
        (3, true) => '┊',
        (12, true) => '┄',
        _ => GLYPHS[usize::from(ways & 15)],
    }
}
