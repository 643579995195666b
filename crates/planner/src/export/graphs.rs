//! Pictures of the graph for other programs to draw.

use std::fmt::Write as _;

use mainstem_core::id::TaskIx;

use super::ExportView;
use crate::import::SourceTaskState;

/// A Mermaid flowchart with the plan's own ids.
pub(super) fn render_mermaid(view: &ExportView<'_>) -> String {
    render_mermaid_with_ids(view, &|at| view.task(at).id.to_string())
}

/// A Mermaid flowchart with these ids.
pub(super) fn render_mermaid_with_ids(
    view: &ExportView<'_>,
    id_of: &dyn Fn(usize) -> String,
) -> String {
    let mut out = String::from("flowchart TD\n");
    for (i, (id, _, members)) in view.groups.iter().enumerate() {
        let inside = !id.is_empty();
        if inside {
            let _ = writeln!(out, "  subgraph e{i}[\"{}\"]", escape_label(&view.heading(i)));
        }
        for at in members {
            let done = if view.states[*at] == SourceTaskState::Done { ":::done" } else { "" };
            let label = format!("{} {}", id_of(*at), escape_label(&view.title(*at)));
            let _ = writeln!(out, "    t{at}[\"{label}\"]{done}");
        }
        if inside {
            out.push_str("  end\n");
        }
    }
    for (from, to, soft) in list_edges(view) {
        let arrow = if soft { "-.->" } else { "-->" };
        let _ = writeln!(out, "  t{from} {arrow} t{to}");
    }
    out.push_str("  classDef done fill:#cfc\n");
    out
}

pub(super) fn render_dot(view: &ExportView<'_>) -> String {
    let mut out = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
    let text = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    for (i, (id, _, members)) in view.groups.iter().enumerate() {
        let inside = !id.is_empty();
        if inside {
            let label = text(&view.heading(i));
            let _ = writeln!(out, "  subgraph cluster_{i} {{\n    label=\"{label}\";");
        }
        for at in members {
            let label = text(&format!("{}\n{}", view.task(*at).id, view.title(*at)));
            let label = label.replace('\n', "\\n");
            let style =
                if view.states[*at] == SourceTaskState::Done { ", style=filled" } else { "" };
            let _ = writeln!(out, "    \"{}\" [label=\"{label}\"{style}];", view.task(*at).id);
        }
        if inside {
            out.push_str("  }\n");
        }
    }
    for (from, to, soft) in list_edges(view) {
        let style = if soft { " [style=dashed]" } else { "" };
        let _ = writeln!(out, "  \"{}\" -> \"{}\"{style};", view.task(from).id, view.task(to).id);
    }
    out.push_str("}\n");
    out
}

/// From what comes first to what needs it.
fn list_edges(view: &ExportView<'_>) -> Vec<(usize, usize, bool)> {
    let mut found = Vec::new();
    for (at, needs) in view.needs.iter().enumerate() {
        found.extend(needs.iter().map(|need| (*need, at, false)));
        let soft = view.graph.soft_needs(TaskIx(at as u32)).map(TaskIx::index);
        found.extend(soft.map(|before| (before, at, true)));
    }
    found
}

/// Text that cannot end a label nor be taken for markup.
fn escape_label(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | ',' | ':' | '/' | '…') {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}
