//! YAML 1.2 by its core schema, one document, without anchors, aliases and tags.

use std::borrow::Cow;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use super::{
    ContainerKind, DocumentBuilder, DocumentNode, DocumentValue, FaultCollector, ParseStop,
    report_number_range, report_too_deep,
};

pub(super) fn parse_yaml(body: &str, base: usize) -> Result<DocumentNode<'_>, FaultCollector> {
    let offsets = CharOffsets::new(body, base);
    let mut builder = DocumentBuilder::new();
    let mut parser = Parser::new_from_str(body);
    let mut documents = 0;
    while let Some(next) = parser.next_event() {
        let (event, span) = match next {
            Ok((event, span)) => (
                event,
                offsets.byte_offset(span.start.index())..offsets.byte_offset(span.end.index()),
            ),
            Err(error) => {
                report_yaml_fault(&mut builder.faults, &offsets, &error);
                break;
            }
        };
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let message = "a second YAML document starts here";
                let help = "keep one document per file: remove the `---` and what follows";
                builder.faults.add_fault_with_help("syntax::yaml", span, message, help);
                break;
            }
            continue;
        }
        let Ok(()) = handle_yaml_event(&mut builder, event, span) else { break };
    }
    builder.into_document(base..base + body.len())
}

fn report_yaml_fault(faults: &mut FaultCollector, offsets: &CharOffsets<'_>, error: &ScanError) {
    let at = offsets.byte_offset(error.marker().index());
    if error.info().contains("recursion limit") {
        report_too_deep(faults, at..at);
    } else {
        let help = "check indentation, quotes and colons here";
        faults.add_fault_with_help("syntax::yaml", at..at, error.info().replace('\n', "; "), help);
    }
}

fn handle_yaml_event<'s>(
    builder: &mut DocumentBuilder<'s>,
    event: Event<'s>,
    span: Range<usize>,
) -> Result<(), ParseStop> {
    let (anchor, tag) = match &event {
        Event::Alias(_) => (1, false),
        Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
        Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
            (*anchor, tag.is_some())
        }
        _ => (0, false),
    };
    if anchor != 0 || tag {
        let message = if tag {
            "YAML tags are not supported"
        } else {
            "YAML anchors and aliases are not supported"
        };
        builder.faults.add_fault_with_help("syntax::yaml", span, message, "use the plain value");
        return Err(ParseStop);
    }
    match event {
        Event::Scalar(text, _, _, _) if builder.expects_key() => builder.set_key(text, span),
        Event::SequenceStart(..) | Event::MappingStart(..) if builder.expects_key() => {
            let message = "a key must be a string, not a list or a table";
            builder.faults.add_fault_with_help(
                "syntax::yaml",
                span,
                message,
                "use a word as the key",
            );
            return Err(ParseStop);
        }
        Event::Scalar(text, style, _, _) => {
            let value = if style == ScalarStyle::Plain {
                parse_plain_scalar(text, &mut builder.faults, &span)
            } else {
                DocumentValue::Str(text)
            };
            builder.push_node(DocumentNode { span, value });
        }
        Event::SequenceStart(..) => builder.open(span.start, ContainerKind::List(Vec::new()))?,
        Event::MappingStart(..) => {
            builder.open(span.start, ContainerKind::Table(Vec::new(), None))?;
        }
        Event::SequenceEnd | Event::MappingEnd => builder.close(span.end),
        _ => {}
    }
    Ok(())
}

/// A plain scalar by YAML's core schema.
fn parse_plain_scalar<'s>(
    text: Cow<'s, str>,
    faults: &mut FaultCollector,
    span: &Range<usize>,
) -> DocumentValue<'s> {
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => return DocumentValue::Null,
        "true" | "True" | "TRUE" => return DocumentValue::Bool(true),
        "false" | "False" | "FALSE" => return DocumentValue::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return DocumentValue::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return DocumentValue::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return DocumentValue::Float(f64::NAN),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let radix = [("0o", 8), ("0x", 16)]
        .into_iter()
        .find_map(|(prefix, radix)| Some((text.strip_prefix(prefix)?, radix)));
    let whole = match radix {
        Some((digits, radix))
            if digits.chars().all(|c| c.is_digit(radix)) && !digits.is_empty() =>
        {
            Some(i64::from_str_radix(digits, radix))
        }
        _ if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Some(text.parse()),
        _ => None,
    };
    match whole {
        Some(Ok(number)) => return DocumentValue::Int(number),
        Some(Err(_)) => return report_number_range(faults, span.clone()),
        None => {}
    }
    // Rust's own float syntax also takes words such as `inf`, which YAML reads as text.
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().any(|b| b.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if numeric => DocumentValue::Float(number),
        _ => DocumentValue::Str(text),
    }
}

/// The YAML parser counts characters; spans count bytes.
struct CharOffsets<'s> {
    body: &'s str,
    base: usize,
    /// Byte offset of every [`STRIDE`]th character; empty for ASCII texts.
    marks: Vec<u32>,
}

const STRIDE: usize = 64;

impl<'s> CharOffsets<'s> {
    fn new(body: &'s str, base: usize) -> Self {
        let marks = if body.is_ascii() {
            Vec::new()
        } else {
            body.char_indices().step_by(STRIDE).map(|(at, _)| at as u32).collect()
        };
        Self { body, base, marks }
    }

    fn byte_offset(&self, chars: usize) -> usize {
        if self.marks.is_empty() {
            return self.base + chars.min(self.body.len());
        }
        let Some(mark) = self.marks.get(chars / STRIDE) else {
            return self.base + self.body.len();
        };
        let mark = *mark as usize;
        let rest = self.body[mark..].char_indices().nth(chars % STRIDE);
        self.base + rest.map_or(self.body.len(), |(at, _)| mark + at)
    }
}
