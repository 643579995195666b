//! Reads JSON strictly, as RFC 8259 defines it.

use std::borrow::Cow;

use super::{
    ContainerKind, DocumentBuilder, DocumentNode, DocumentValue, FaultCollector, ParseStop,
    report_number_range,
};

pub(super) fn parse_json(body: &str, base: usize) -> Result<DocumentNode<'_>, FaultCollector> {
    // The strict check comes first, so the walk below may trust the syntax.
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(body) {
        let mut faults = FaultCollector::default();
        let at = base + line_column_offset(body, error.line(), error.column());
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        let help = "check commas, quotes and brackets here";
        faults.add_fault_with_help("syntax::json", at..at, message, help);
        return Err(faults);
    }
    let mut walk = JsonWalker { body, base, at: 0, builder: DocumentBuilder::new() };
    let _stopped = walk.run();
    walk.builder.into_document(base..base + body.len())
}

/// `column` counts bytes from 1; 0 stands for the line's start.
fn line_column_offset(body: &str, line: usize, column: usize) -> usize {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(nth) => body.match_indices('\n').nth(nth).map_or(body.len(), |(at, _)| at + 1),
    };
    (start + column.saturating_sub(1)).min(body.len())
}

struct JsonWalker<'s> {
    body: &'s str,
    base: usize,
    at: usize,
    builder: DocumentBuilder<'s>,
}

impl<'s> JsonWalker<'s> {
    fn run(&mut self) -> Result<(), ParseStop> {
        let bytes = self.body.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            let start = self.base + self.at;
            match byte {
                b'{' => self.builder.open(start, ContainerKind::Table(Vec::new(), None))?,
                b'[' => self.builder.open(start, ContainerKind::List(Vec::new()))?,
                b'}' | b']' => self.builder.close(start + 1),
                b'"' => {
                    self.read_string();
                    continue;
                }
                b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' => {}
                _ => {
                    self.read_literal();
                    continue;
                }
            }
            self.at += 1;
        }
        Ok(())
    }

    fn read_string(&mut self) {
        let bytes = self.body.as_bytes();
        let start = self.at;
        let mut end = start + 1;
        let mut escaped = false;
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'\\' => {
                    escaped = true;
                    end += 1;
                }
                b'"' => break,
                _ => {}
            }
            end += 1;
        }
        let end = (end + 1).min(bytes.len());
        self.at = end;
        let span = self.base + start..self.base + end;
        let text = if !escaped {
            Cow::Borrowed(self.body.get(start + 1..end - 1).unwrap_or_default())
        } else {
            match serde_json::from_str::<String>(self.body.get(start..end).unwrap_or_default()) {
                Ok(text) => Cow::Owned(text),
                Err(_) => {
                    let message = "the string contains an escape that is not a character";
                    self.builder.faults.add_fault("syntax::json", span.clone(), message);
                    Cow::Borrowed("")
                }
            }
        };
        if self.builder.expects_key() {
            self.builder.set_key(text, span);
        } else {
            self.builder.push_node(DocumentNode { span, value: DocumentValue::Str(text) });
        }
    }

    fn read_literal(&mut self) {
        let rest = &self.body[self.at..];
        let len = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.'))
            .unwrap_or(rest.len())
            .max(1);
        let span = self.base + self.at..self.base + self.at + len;
        let word = rest.get(..len).unwrap_or_default();
        self.at += len;
        let value = match word {
            "null" => DocumentValue::Null,
            "true" => DocumentValue::Bool(true),
            "false" => DocumentValue::Bool(false),
            number if number.contains(['.', 'e', 'E']) => {
                DocumentValue::Float(number.parse().unwrap_or(f64::NAN))
            }
            number => match number.parse() {
                Ok(number) => DocumentValue::Int(number),
                Err(_) => report_number_range(&mut self.builder.faults, span.clone()),
            },
        };
        self.builder.push_node(DocumentNode { span, value });
    }
}
