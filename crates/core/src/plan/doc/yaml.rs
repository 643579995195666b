//! YAML 1.2 by its core schema, one document, without anchors, aliases and tags.

use std::borrow::Cow;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use super::{Builder, Faults, FrameKind, Node, Stop, Value, number_out_of_range, too_deep};

pub(super) fn parse_yaml(body: &str, base: usize) -> Result<Node<'_>, Faults> {
    let offsets = CharOffsets::new(body, base);
    let mut builder = Builder::new();
    let mut parser = Parser::new_from_str(body);
    let mut documents = 0;
    while let Some(next) = parser.next_event() {
        let (event, span) = match next {
            Ok((event, span)) => {
                (event, offsets.byte(span.start.index())..offsets.byte(span.end.index()))
            }
            Err(error) => {
                yaml_fault(&mut builder.faults, &offsets, &error);
                break;
            }
        };
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let message = "a second YAML document starts here";
                let help = "keep one document per file: remove the `---` and what follows";
                builder.faults.add_help("syntax::yaml", span, message, help);
                break;
            }
            continue;
        }
        let Ok(()) = yaml_event(&mut builder, event, span) else { break };
    }
    builder.finish(base..base + body.len())
}

fn yaml_fault(faults: &mut Faults, offsets: &CharOffsets<'_>, error: &ScanError) {
    let at = offsets.byte(error.marker().index());
    if error.info().contains("recursion limit") {
        too_deep(faults, at..at);
    } else {
        let help = "check indentation, quotes and colons here";
        faults.add_help("syntax::yaml", at..at, error.info().replace('\n', "; "), help);
    }
}

fn yaml_event<'s>(
    builder: &mut Builder<'s>,
    event: Event<'s>,
    span: Range<usize>,
) -> Result<(), Stop> {
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
        builder.faults.add_help("syntax::yaml", span, message, "use the plain value");
        return Err(Stop);
    }
    match event {
        Event::Scalar(text, _, _, _) if builder.wants_key() => builder.key(text, span),
        Event::SequenceStart(..) | Event::MappingStart(..) if builder.wants_key() => {
            let message = "a key must be a string, not a list or a table";
            builder.faults.add_help("syntax::yaml", span, message, "use a word as the key");
            return Err(Stop);
        }
        Event::Scalar(text, style, _, _) => {
            let value = if style == ScalarStyle::Plain {
                plain_scalar(text, &mut builder.faults, &span)
            } else {
                Value::Str(text)
            };
            builder.put(Node { span, value });
        }
        Event::SequenceStart(..) => builder.open(span.start, FrameKind::List(Vec::new()))?,
        Event::MappingStart(..) => builder.open(span.start, FrameKind::Table(Vec::new(), None))?,
        Event::SequenceEnd | Event::MappingEnd => builder.close(span.end),
        _ => {}
    }
    Ok(())
}

/// A plain scalar by YAML's core schema.
fn plain_scalar<'s>(text: Cow<'s, str>, faults: &mut Faults, span: &Range<usize>) -> Value<'s> {
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Value::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Value::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
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
        Some(Ok(number)) => return Value::Int(number),
        Some(Err(_)) => return number_out_of_range(faults, span.clone()),
        None => {}
    }
    // Rust's own float syntax also takes words such as `inf`, which YAML reads as text.
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().any(|b| b.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if numeric => Value::Float(number),
        _ => Value::Str(text),
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

    fn byte(&self, chars: usize) -> usize {
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
