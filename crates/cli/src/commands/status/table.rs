//! The table of `status`: a row per task, those that need a person first, with the evidence of what failed below its
//! row; the checks that run now, and the one that holds up all landings.

use std::fmt::Write as _;

use mainstem_api::outlook::Progress;
use mainstem_api::status as wire;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::clock;

use super::{collapse_to_line, short_oid};
use crate::{events, output};

/// Runs with more tasks than this show landed and waiting ones as counts.
const TASKS_SHOWN_MAX: usize = 40;
/// Of other tasks that need nobody, such a run shows this many per phase.
const FOLDED_SHOWN_MAX: usize = 5;
/// Blocked tasks up to this many are listed one by one.
const BLOCKED_LISTED_MAX: usize = 5;
/// Failed checks whose output is shown, and how many lines of it.
const OUTPUTS_SHOWN_MAX: usize = 3;
const OUTPUT_LINES: usize = 10;
/// Narrowest column of reasons before other columns go, and the lines that a reason may take.
const NOTE_WIDTH_MIN: usize = 28;
const NOTE_LINES_MAX: usize = 4;
/// Widest title in the table.
const TITLE_WIDTH: usize = 34;

/// Phases by how much they need a person, then by how close they are to landing.
const BY_ATTENTION: [Phase; 13] = [
    Phase::Asking,
    Phase::Failed,
    Phase::Conflicted,
    Phase::Working,
    Phase::Preparing,
    Phase::Verifying,
    Phase::Merging,
    Phase::Ready,
    Phase::Waiting,
    Phase::Blocked,
    Phase::Cancelled,
    Phase::Skipped,
    Phase::Landed,
];

/// All tasks, those that need a person first.
pub(crate) fn task_table(machine: &Machine, color: bool) -> String {
    task_rows(machine, &[], color, false, clock::now_ms())
}

pub(super) fn task_rows(
    machine: &Machine,
    told: &[wire::TaskStatus],
    color: bool,
    all: bool,
    now: i64,
) -> String {
    let many = !all && machine.plan().tasks.len() > TASKS_SHOWN_MAX;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut folded = Vec::new();
    let mut outputs = 0;
    let grouped = !all && count_blocked(machine) > BLOCKED_LISTED_MAX;
    for phase in BY_ATTENTION {
        if phase == Phase::Blocked && grouped {
            folded.extend(blocked_groups(machine, color));
        }
        let shown = match phase {
            Phase::Blocked if grouped => 0,
            _ if many => rows_shown_max(phase),
            _ => usize::MAX,
        };
        let those = machine.tasks().all_tasks().filter(|t| machine.tasks().phase(*t) == phase);
        for t in those.take(shown) {
            let doing = told.get(t.index()).and_then(|task| task.progress.as_ref());
            let doing = doing.map(Progress::line);
            rows.push(task_row(machine, t, doing.as_deref(), color, now));
            let output = machine.failed_check(t).filter(|_| all || outputs < OUTPUTS_SHOWN_MAX);
            outputs += usize::from(output.is_some());
            notes.push((output, action_text(machine, t)));
        }
        let count = usize::try_from(machine.tasks().count_in_phase(phase)).unwrap_or(usize::MAX);
        if count > shown && !(grouped && phase == Phase::Blocked) {
            let more = if shown > 0 { " more" } else { "" };
            let words =
                format!("{} {}{more} {}", output::phase_sign(phase), count - shown, phase.as_str());
            folded.push(output::paint_text(&words, output::phase_style(phase), color));
        }
    }
    let columns = output::stdout_columns();
    let mut text = String::new();
    for (row, (output, action)) in fit_rows(&rows, columns).into_iter().zip(notes) {
        text.push_str(&row);
        if let Some(failed) = output {
            let how = failed.describe_ending(machine.target_branch());
            let head = format!("{}, {how}", collapse_to_line(&failed.gate));
            text.push_str(&output::indent_block(&head, 4, columns));
        }
        for line in
            output.map(|failed| events::output_block(failed, OUTPUT_LINES)).unwrap_or_default()
        {
            let line = columns.map_or(line.clone(), |columns| {
                output::truncate_to_width(&line, columns.saturating_sub(6))
            });
            let _ = writeln!(text, "    │ {line}");
        }
        if let Some(action) = action {
            let below = output::indent_block(&action, 6, columns);
            let _ = write!(text, "    → {}", below.trim_start());
        }
    }
    if !folded.is_empty() {
        folded.iter().for_each(|line| text.push_str(&output::indent_block(line, 0, columns)));
        text.push_str("(use -v to list all tasks)\n");
    }
    text
}

/// How many tasks wait in vain for others.
fn count_blocked(machine: &Machine) -> usize {
    let tasks = machine.tasks();
    let blocked = tasks.all_tasks().filter(|t| tasks.phase(*t) == Phase::Blocked);
    blocked.filter(|t| !tasks.get(*t).chain.is_empty()).count()
}

/// Blocked tasks under their causes.
fn blocked_groups(machine: &Machine, color: bool) -> Vec<String> {
    let groups = machine.tasks().all_tasks().filter_map(|root| {
        let blocked = machine.tasks_blocked_by(root);
        let (n, sign) = (blocked.len(), output::phase_sign(Phase::Blocked));
        let words = format!(
            "{sign} {n} blocked by {}: {}",
            machine.graph().id(root),
            events::join_names(&blocked)
        );
        (n > 0).then(|| output::paint_text(&words, output::phase_style(Phase::Blocked), color))
    });
    groups.collect()
}

/// Checks that run now, and the one that fails on the target branch itself.
pub(super) fn check_lines(status: &wire::RunStatus, now: i64) -> String {
    let columns = output::stdout_columns();
    let mut text = String::new();
    for gate in &status.gates {
        let since = output::format_duration(u64::try_from(now - gate.since).unwrap_or(0));
        let usually =
            gate.usually_ms.map(|ms| format!(", usually {}", output::format_duration(ms)));
        let place = match gate.scope.as_str() {
            "base" => "the target branch itself".to_owned(),
            "train" => format!("{}, merged", gate.task),
            _ => gate.task.clone(),
        };
        let line = format!(
            "check  {} for {since}{} ({place}): mainstem logs {} --gates -f",
            collapse_to_line(&gate.gate),
            usually.unwrap_or_default(),
            gate.task
        );
        let _ = write!(text, "\n{}", output::indent_block(&line, 0, columns));
    }
    if let Some(failed) = &status.red_target {
        let code = failed.exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
        let line = format!(
            "Merging is paused: {}{code}, {}",
            collapse_to_line(&failed.gate),
            failed.place
        );
        let _ = write!(text, "\n{}", output::indent_block(&line, 0, columns));
        for line in failed.output.iter().rev().take(OUTPUT_LINES).rev() {
            let line = output::sanitize_text(line);
            let line = columns.map_or(line.clone(), |columns| {
                output::truncate_to_width(&line, columns.saturating_sub(4))
            });
            let _ = writeln!(text, "  │ {line}");
        }
        if let Some(hint) = &failed.hint {
            text.push_str(&output::indent_block(hint, 2, columns));
        }
    }
    text
}

/// How many of a phase a large run lists: all that need a person or are under way.
fn rows_shown_max(phase: Phase) -> usize {
    match phase {
        Phase::Landed | Phase::Waiting => 0,
        Phase::Ready | Phase::Blocked | Phase::Cancelled | Phase::Skipped => FOLDED_SHOWN_MAX,
        _ => usize::MAX,
    }
}

fn task_row(
    machine: &Machine,
    t: TaskIx,
    doing: Option<&str>,
    color: bool,
    now: i64,
) -> Vec<String> {
    let view = machine.task_view(t);
    let task = &machine.plan().tasks[t.index()];
    let words = format!("{} {}", output::phase_sign(view.phase), view.phase.as_str());
    let attempt = if view.attempt > 0 { format!(" #{}", view.attempt) } else { String::new() };
    vec![
        output::paint_text(&words, output::phase_style(view.phase), color),
        task.id.to_string(),
        format!("{}{attempt}", output::truncate_to_width(&collapse_to_line(&view.agent), 16)),
        elapsed_text(machine, t, now),
        note_text(machine, t, doing),
        output::truncate_to_width(&collapse_to_line(&task.title), TITLE_WIDTH),
    ]
}

/// How long it has been at it, or how long its agents worked.
fn elapsed_text(machine: &Machine, t: TaskIx, now: i64) -> String {
    let state = machine.tasks().get(t);
    let phase = state.phase();
    if phase.is_active() {
        let since = if phase == Phase::Working {
            state.current.as_ref().and_then(|a| a.started_at).unwrap_or(state.since)
        } else {
            state.since
        };
        return output::format_duration(u64::try_from(now - since.0).unwrap_or(0));
    }
    if state.agent_ms > 0 { output::format_duration(state.agent_ms) } else { String::new() }
}

/// What it waits for, why it stands where it stands, or what it landed as.
fn note_text(machine: &Machine, t: TaskIx, doing: Option<&str>) -> String {
    let view = machine.task_view(t);
    if view.phase == Phase::Landed {
        let commit = view.commit.as_ref().map(|commit| short_oid(commit.as_str()).to_owned());
        let empty = machine.tasks().get(t).landed.as_ref().is_some_and(|landing| landing.empty);
        return if empty { "nothing to do".to_owned() } else { commit.unwrap_or_default() };
    }
    let mut parts = Vec::new();
    if let Some(lower) = machine.stacked_on(view.ix) {
        parts.push(format!("on {lower}"));
    }
    if !view.waiting_for.is_empty() && view.phase != Phase::Blocked {
        let shown = view.waiting_for.len().min(6);
        let more = match view.waiting_for.len() - shown {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        parts
            .push(format!("for {}{more}", collapse_to_line(&view.waiting_for[..shown].join(", "))));
    }
    let told = !matches!(view.phase, Phase::Working | Phase::Preparing | Phase::Merging)
        || machine.current_trouble(t).is_some()
        || machine.waits_for_target_fix(t);
    if told && !view.reason.is_empty() {
        parts.push(collapse_to_line(&view.reason));
    }
    parts.extend(doing.map(collapse_to_line));
    parts.join("; ")
}

fn action_text(machine: &Machine, t: TaskIx) -> Option<String> {
    let state = machine.tasks().get(t);
    let wanted = match state.phase() {
        Phase::Asking | Phase::Failed | Phase::Conflicted => true,
        // One blocked by others is helped by helping them.
        Phase::Blocked => state.chain.is_empty(),
        _ => false,
    };
    machine.task_view(t).next_action.filter(|_| wanted)
}

/// Rows as text. Where they do not fit, the title goes first, then the time, then the agent; the reason stays and is
/// folded below itself.
fn fit_rows(rows: &[Vec<String>], columns: Option<usize>) -> Vec<String> {
    let widest =
        |c: usize| rows.iter().map(|row| output::visible_width(&row[c])).max().unwrap_or(0);
    // Phase, id, agent, time: each with the blanks after it.
    let widths: Vec<usize> = (0..4).map(widest).collect();
    let taken = |shown: &[usize]| shown.iter().map(|c| widths[*c] + 2).sum::<usize>();
    let whole: [usize; 4] = [0, 1, 2, 3];
    let room = |shown: &[usize]| columns.map(|columns| columns.saturating_sub(taken(shown)));
    let ways: [&[usize]; 4] = [&whole, &[0, 1, 2], &[0, 1], &[0, 1]];
    let enough = |shown: &&&[usize]| room(shown).is_none_or(|room| room >= NOTE_WIDTH_MIN);
    let shown = ways.iter().find(enough).copied().unwrap_or(&[0, 1]);
    let titled = room(shown).is_none_or(|room| room >= widest(4) + 2 + widest(5));
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for c in shown {
                line.push_str(&row[*c]);
                line.push_str(&" ".repeat(widths[*c] + 2 - output::visible_width(&row[*c])));
            }
            let last = match (titled, row[4].is_empty()) {
                (true, _) => format!("{}  {}", output::pad_to_width(&row[4], widest(4)), row[5]),
                (false, true) => row[5].clone(),
                (false, false) => row[4].clone(),
            };
            let Some(room) = room(shown).filter(|_| !titled) else {
                return format!("{}\n", format!("{line}{last}").trim_end());
            };
            let folded = output::wrap_text(&last, room.max(20));
            let cut = folded.len() > NOTE_LINES_MAX;
            let mut text = String::new();
            for (n, part) in folded.iter().take(NOTE_LINES_MAX).enumerate() {
                let more = if cut && n + 1 == NOTE_LINES_MAX { "…" } else { "" };
                let lead = if n == 0 { line.clone() } else { " ".repeat(taken(shown)) };
                text.push_str(format!("{lead}{part}{more}").trim_end());
                text.push('\n');
            }
            text
        })
        .collect()
}
