//! The live view: a row per agent at work, a row per check that runs, and one line for the whole run. Each row fits
//! the terminal: what matters least goes first.

use mainstem_api::outlook::Progress;
use mainstem_core::fact::GateScope;
use mainstem_core::id::{TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::observer::{EngineActivity, GateActivity};

use crate::output;

/// Agents that have a row of their own.
const AGENTS_MAX: usize = 8;
/// Checks that have a row of their own.
const CHECKS_MAX: usize = 4;

/// The rows of the live view, none wider than `columns`.
pub(crate) fn render_rows(
    machine: &Machine,
    activity: &EngineActivity,
    (began, now): (i64, i64),
    columns: usize,
) -> Vec<String> {
    let tasks = machine.tasks();
    let mut at_work: Vec<TaskIx> = tasks
        .active_tasks()
        .filter(|t| matches!(tasks.phase(*t), Phase::Preparing | Phase::Working | Phase::Asking))
        .collect();
    at_work.sort_by_key(|t| tasks.get(*t).since);
    let mut rows: Vec<LiveRow> =
        at_work.iter().take(AGENTS_MAX).map(|t| agent_row(machine, *t, activity, now)).collect();
    let more = at_work.len().saturating_sub(AGENTS_MAX);
    let waiting = machine.train().candidates().len().saturating_sub(activity.gates.len());
    rows.extend(activity.gates.iter().take(CHECKS_MAX).map(|gate| check_row(gate, waiting, now)));
    let mut lines = align_rows(&rows, columns);
    if more > 0 {
        lines.push(format!("  and {more} more working: mainstem status"));
    }
    lines.push(output::truncate_to_width(
        &format!("  {}", run_line(machine, (began, now), columns - 2)),
        columns,
    ));
    lines
}

/// One row before it is put into columns.
struct LiveRow {
    name: String,
    who: String,
    since: String,
    doing: String,
    right: String,
}

fn agent_row(machine: &Machine, t: TaskIx, activity: &EngineActivity, now: i64) -> LiveRow {
    let state = machine.tasks().get(t);
    let id = machine.graph().id(t).to_string();
    let current = state.current.as_ref();
    let since = current.and_then(|a| a.started_at).unwrap_or(state.since);
    let doing = match state.phase() {
        Phase::Preparing => "creating the workspace".to_owned(),
        Phase::Asking => {
            let open = machine.open_questions().iter().find(|q| q.task == t);
            open.map_or_else(String::new, |q| format!("asks: mainstem answer {}", q.name))
        }
        _ => activity.agents.get(&id).map(Progress::line).unwrap_or_default(),
    };
    let tokens = state.input_tokens + state.output_tokens;
    let mut right = Vec::new();
    if tokens > 0 {
        right.push(format!("{} tok", format_thousands(tokens)));
    }
    if state.cost_usd > 0.0 {
        right.push(format!("${:.2}", state.cost_usd));
    }
    LiveRow {
        name: id,
        who: current.map(|a| a.agent.clone()).unwrap_or_default(),
        since: format_stopwatch(now - since.0),
        doing,
        right: right.join("  "),
    }
}

fn check_row(gate: &GateActivity, waiting: usize, now: i64) -> LiveRow {
    let usually = gate.usually_ms.map(|ms| format!(" (usually {})", output::format_duration(ms)));
    let merging = gate.scope != GateScope::Task;
    LiveRow {
        name: if merging { "train".to_owned() } else { "check".to_owned() },
        who: match gate.scope {
            GateScope::Base => "target".to_owned(),
            GateScope::Task | GateScope::Train => gate.task.clone(),
        },
        since: format_stopwatch(now - gate.since.0),
        doing: format!("{}{}", gate.gate, usually.unwrap_or_default()),
        right: if merging && waiting > 0 { format!("{waiting} waiting") } else { String::new() },
    }
}

fn align_rows(rows: &[LiveRow], columns: usize) -> Vec<String> {
    let widest = |of: &dyn Fn(&LiveRow) -> &str, most: usize| {
        rows.iter().map(|row| output::visible_width(of(row))).max().unwrap_or(0).min(most)
    };
    let (name, who) = (widest(&|row| &row.name, 18), widest(&|row| &row.who, 14));
    let since = widest(&|row| &row.since, 10);
    let line = |row: &LiveRow| {
        let cell = |text: &str, width| {
            output::pad_to_width(&output::truncate_to_width(&collapse_to_line(text), width), width)
        };
        let left = format!(
            "  {}  {}  {}",
            cell(&row.name, name),
            cell(&row.who, who),
            cell(&row.since, since)
        );
        let room = columns.saturating_sub(output::visible_width(&left) + 2);
        let right = output::visible_width(&row.right);
        // What it costs stays visible as long as there is room for a word on what it does.
        let doing = if right > 0 && room > right + 12 { room - right - 2 } else { room };
        let mut text =
            format!("{left}  {}", output::truncate_to_width(&collapse_to_line(&row.doing), doing));
        if right > 0 && room > right + 12 {
            text = format!(
                "{}  {}",
                output::pad_to_width(&text, output::visible_width(&left) + 2 + doing),
                row.right
            );
        }
        output::truncate_to_width(text.trim_end(), columns)
    };
    rows.iter().map(line).collect()
}

fn collapse_to_line(text: &str) -> String {
    output::sanitize_text(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Minutes and seconds, so that a row does not move while it counts.
fn format_stopwatch(ms: i64) -> String {
    let seconds = u64::try_from(ms).unwrap_or(0) / 1000;
    match seconds {
        0..=3599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn format_thousands(n: u64) -> String {
    match n {
        0..=999 => n.to_string(),
        1_000..=999_999 => format!("{}k", n / 1_000),
        _ => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// The whole run in one line. Parts that matter least are left out until it fits.
fn run_line(machine: &Machine, (began, now): (i64, i64), columns: usize) -> String {
    let tasks = machine.tasks();
    let count = |phase| tasks.count_in_phase(phase);
    let total = machine.plan().tasks.len();
    let done = count(Phase::Landed) + count(Phase::Skipped);
    let working = count(Phase::Preparing) + count(Phase::Working);
    // In the order in which they stand, each with how much it matters.
    let mut parts: Vec<(u8, String)> = vec![(9, format!("{done}/{total} landed"))];
    let mut add = |weight: u8, n: u32, word: &str| {
        if n > 0 {
            parts.push((weight, format!("{n} {word}")));
        }
    };
    add(6, working, "working");
    add(8, count(Phase::Asking), "asking");
    add(4, count(Phase::Verifying) + count(Phase::Merging), "in the train");
    add(3, count(Phase::Ready), "ready");
    add(1, count(Phase::Waiting), "waiting");
    add(7, count(Phase::Failed) + count(Phase::Conflicted), "failed");
    add(2, count(Phase::Blocked), "blocked");
    if machine.stop_requested().is_some() {
        parts.push((9, "stopping".to_owned()));
    } else if machine.is_paused() {
        parts.push((9, "paused".to_owned()));
    }
    parts.extend(list_waits(machine, now).into_iter().map(|wait| (8, wait)));
    if machine.spent_usd() > 0.0 {
        let of = machine.settings().budget.usd.map(|usd| format!(" of ${usd:.0}"));
        parts.push((7, format!("${:.2}{}", machine.spent_usd(), of.unwrap_or_default())));
    }
    let elapsed = u64::try_from(now - began).unwrap_or(0);
    parts.push((5, output::format_duration(elapsed)));
    if done > 0 && usize::try_from(done).is_ok_and(|done| done < total) {
        let left = elapsed / u64::from(done) * (total as u64 - u64::from(done));
        parts.push((0, format!("about {} left", output::format_duration(left))));
    }
    let joined = |parts: &[(u8, String)]| {
        parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" · ")
    };
    while output::visible_width(&joined(&parts)) > columns && parts.len() > 1 {
        let least =
            parts.iter().enumerate().min_by_key(|(n, (weight, _))| (*weight, usize::MAX - n));
        let Some(at) = least.map(|(n, _)| n) else { break };
        parts.remove(at);
    }
    joined(&parts)
}

/// What is waited for, each with a countdown.
pub(crate) fn list_waits(machine: &Machine, now: i64) -> Vec<String> {
    let left = |until: Time| {
        let seconds = u64::try_from(until.0 - now).unwrap_or(0) / 1000;
        format!("{}:{:02}", seconds / 60, seconds % 60)
    };
    let auto_resume = machine.settings().limits.auto_resume;
    let mut waits = Vec::new();
    for (provider, known) in machine.providers() {
        match known.rests_until(Time(now), auto_resume) {
            Some(Some(until)) => waits.push(format!("{provider} rate-limited {}", left(until))),
            Some(None) => waits.push(format!("{provider} quota used up: mainstem resume")),
            None => {}
        }
    }
    waits.extend(machine.quiet_until().map(|until| format!("quiet hours {}", left(until))));
    waits
}
