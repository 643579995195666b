//! Reading spanned trees of YAML and JSON that others wrote, and the Markdown around them. Lenient:
//! a value of another kind than expected counts as absent or as its text.

use std::ops::Range;

use mainstem_core::diagnostic::Diagnostic;
use mainstem_core::plan::document::{DocumentFormat, DocumentNode, DocumentValue, parse_document};

/// The value of a key; null counts as absent.
pub(crate) fn get_key<'a, 's>(
    node: &'a DocumentNode<'s>,
    key: &str,
) -> Option<&'a DocumentNode<'s>> {
    let DocumentValue::Table(entries) = &node.value else { return None };
    let found = entries.iter().find(|(name, _)| &*name.text == key)?;
    (found.1.value != DocumentValue::Null).then_some(&found.1)
}

/// The first of several keys that is there.
pub(crate) fn first_key<'a, 's>(
    node: &'a DocumentNode<'s>,
    keys: &[&str],
) -> Option<&'a DocumentNode<'s>> {
    keys.iter().find_map(|key| get_key(node, key))
}

/// The names of all keys.
pub(crate) fn key_names<'a>(node: &'a DocumentNode<'_>) -> Vec<&'a str> {
    match &node.value {
        DocumentValue::Table(entries) => entries.iter().map(|(key, _)| &*key.text).collect(),
        _ => Vec::new(),
    }
}

/// The values of a list; of anything else none.
pub(crate) fn list_items<'a, 's>(node: Option<&'a DocumentNode<'s>>) -> &'a [DocumentNode<'s>] {
    match node.map(|node| &node.value) {
        Some(DocumentValue::List(items)) => items,
        _ => &[],
    }
}

/// A scalar as text. Numbers as they are written, if `source` is the text they stand in: `001` is a
/// name.
pub(crate) fn scalar_text(node: Option<&DocumentNode<'_>>, source: &str) -> Option<String> {
    let node = node?;
    match &node.value {
        DocumentValue::Str(text) => Some(text.clone().into_owned()),
        DocumentValue::Int(_)
        | DocumentValue::Float(_)
        | DocumentValue::Bool(_)
        | DocumentValue::Date(_) => Some(source.get(node.span.clone())?.trim().to_owned()),
        DocumentValue::Null | DocumentValue::List(_) | DocumentValue::Table(_) => None,
    }
}

/// A list of scalars; one scalar is a list of itself.
pub(crate) fn scalar_texts(node: Option<&DocumentNode<'_>>, source: &str) -> Vec<String> {
    match node.map(|node| &node.value) {
        Some(DocumentValue::List(items)) => {
            items.iter().filter_map(|item| scalar_text(Some(item), source)).collect()
        }
        Some(_) => {
            scalar_text(node, source).into_iter().filter(|text| !text.trim().is_empty()).collect()
        }
        None => Vec::new(),
    }
}

/// A whole number, also one in quotes.
pub(crate) fn scalar_int(node: Option<&DocumentNode<'_>>) -> Option<i64> {
    match &node?.value {
        DocumentValue::Int(number) => Some(*number),
        DocumentValue::Float(number) if number.is_finite() => Some(number.round() as i64),
        DocumentValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A number, also one in quotes.
pub(crate) fn scalar_number(node: Option<&DocumentNode<'_>>) -> Option<f64> {
    match &node?.value {
        DocumentValue::Int(number) => Some(*number as f64),
        DocumentValue::Float(number) => Some(*number),
        DocumentValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The bytes of a scalar without white space around it.
pub(crate) fn trimmed_span(source: &str, span: &Range<usize>) -> Range<usize> {
    let text = source.get(span.clone()).unwrap_or_default();
    let start = span.start + (text.len() - text.trim_start().len());
    start..start + text.trim().len()
}

/// The YAML at the top of a Markdown file, and where the rest starts.
pub(crate) fn front_matter(text: &str) -> Option<(Range<usize>, usize)> {
    let start = text.strip_prefix('\u{feff}').map_or(0, |_| 3);
    let rest = &text[start..];
    let open = rest.strip_prefix("---\n").map(|_| 4).or(rest.strip_prefix("---\r\n").map(|_| 5))?;
    let mut at = start + open;
    for line in text[at..].split_inclusive('\n') {
        let next = at + line.len();
        if matches!(line.trim_end(), "---" | "...") {
            return Some((start + open..at, next));
        }
        at = next;
    }
    None
}

/// YAML in a part of a text, with spans of the whole text.
pub(crate) fn yaml_part(
    text: &str,
    part: Range<usize>,
) -> Result<DocumentNode<'_>, Vec<Diagnostic>> {
    let base = part.start;
    let mut node = parse_document(&text[part], DocumentFormat::Yaml)
        .map_err(|faults| shift_diagnostics(text, base, faults))?;
    shift_spans(&mut node, base);
    Ok(node)
}

/// JSON in a part of a text, with spans of the whole text.
pub(crate) fn json_part(
    text: &str,
    part: Range<usize>,
) -> Result<DocumentNode<'_>, Vec<Diagnostic>> {
    let base = part.start;
    let mut node = parse_document(&text[part], DocumentFormat::Json)
        .map_err(|faults| shift_diagnostics(text, base, faults))?;
    shift_spans(&mut node, base);
    Ok(node)
}

fn shift_diagnostics(text: &str, base: usize, faults: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let above = text[..base].matches('\n').count();
    let moved = |mut fault: Diagnostic| {
        fault.span = fault.span.start + base..fault.span.end + base;
        fault.line += above;
        fault
    };
    faults.into_iter().map(moved).collect()
}

/// Depth is bounded by the parser.
fn shift_spans(node: &mut DocumentNode<'_>, by: usize) {
    if by == 0 {
        return;
    }
    node.span = node.span.start + by..node.span.end + by;
    match &mut node.value {
        DocumentValue::List(items) => items.iter_mut().for_each(|item| shift_spans(item, by)),
        DocumentValue::Table(entries) => {
            for (key, node) in entries {
                key.span = key.span.start + by..key.span.end + by;
                shift_spans(node, by);
            }
        }
        _ => {}
    }
}

/// A heading of a Markdown text with what stands below it, up to the next heading of its level.
pub(crate) struct MarkdownSection<'t> {
    pub(crate) title: &'t str,
    pub(crate) body: &'t str,
}

/// The sections of one level (`## ` is 2), fenced code aside.
pub(crate) fn markdown_sections(text: &str, level: usize) -> Vec<MarkdownSection<'_>> {
    let mut heads: Vec<(usize, usize, &str)> = Vec::new();
    let mut ends: Vec<usize> = Vec::new();
    let mut fenced = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
        }
        let hashes = line.bytes().take_while(|b| *b == b'#').count();
        if !fenced && (1..=level).contains(&hashes) && line[hashes..].starts_with(' ') {
            ends.push(at);
            if hashes == level {
                heads.push((at, at + line.len(), line[hashes..].trim()));
            }
        }
        at += line.len();
    }
    let end_after =
        |start: usize| ends.iter().copied().find(|end| *end > start).unwrap_or(text.len());
    heads
        .into_iter()
        .map(|(start, body, title)| MarkdownSection {
            title,
            body: text[body..end_after(start)].trim(),
        })
        .collect()
}

/// The section of level 2 or 3 whose title is one of these, in any case.
pub(crate) fn find_markdown_section<'t>(text: &'t str, titles: &[&str]) -> Option<&'t str> {
    (2..=3).flat_map(|level| markdown_sections(text, level)).find_map(|part| {
        let plain = part.title.trim_end_matches(':').to_lowercase();
        let named =
            titles.iter().any(|title| plain == *title || plain.starts_with(&format!("{title} (")));
        named.then_some(part.body)
    })
}

/// The entries of a bulleted or numbered list, with boxes and `#1` taken off, wrapped lines joined.
pub(crate) fn bullet_items(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("<!--") || trimmed.is_empty() {
            continue;
        }
        match bullet_text(trimmed) {
            Some(rest) if indent_columns(line) < 4 || found.is_empty() => {
                found.push(strip_checkbox(rest).trim().to_owned());
            }
            _ => {
                if let Some(last) = found.last_mut() {
                    last.push(' ');
                    last.push_str(trimmed);
                }
            }
        }
    }
    found.retain(|text| !text.is_empty());
    found
}

/// What follows `- `, `* `, `+ ` or `1. `.
pub(crate) fn bullet_text(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix(['-', '*', '+']) {
        return rest.strip_prefix(' ');
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line[digits..].strip_prefix(['.', ')'])?;
    (digits > 0).then(|| rest.strip_prefix(' ')).flatten()
}

fn strip_checkbox(text: &str) -> &str {
    let text = match text.strip_prefix('[') {
        Some(rest) => match rest.char_indices().nth(1) {
            Some((at, ']')) => rest[at + 1..].trim_start(),
            _ => text,
        },
        None => text,
    };
    match text.strip_prefix('#') {
        Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start(),
        None => text,
    }
}

/// Columns before the first character; a tab is four.
pub(crate) fn indent_columns(line: &str) -> usize {
    let mut columns = 0;
    for c in line.chars() {
        match c {
            ' ' => columns += 1,
            '\t' => columns += 4,
            _ => break,
        }
    }
    columns
}
