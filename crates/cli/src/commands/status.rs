//! `status`, `questions` and `train`: where a run stands, what waits for a person, what lands next.
//! Everything shown is folded from the journal; nothing is guessed.

use std::fmt::Write as _;
use std::io::IsTerminal;

use anstyle::Style;
use mainstem_api::status::{self as wire, RunState};
use mainstem_api::{exit_code, time};
use mainstem_core::config::LandMode;
use mainstem_core::fact::Fact;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::control;
use mainstem_engine::hub::upstream_ref;
use mainstem_engine::look::Look;
use mainstem_engine::paths::Layout;
use mainstem_engine::survey::{self, Surveyor};
use mainstem_host::clock;
use mainstem_host::git::Repo;
use serde_json::{Value, json};

use crate::commands::history;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

/// Runs with more tasks than this show landed and waiting ones as counts.
const TASKS_SHOWN_MAX: usize = 40;
/// Of other tasks that need nobody, such a run shows this many per phase.
const FOLDED_SHOWN_MAX: usize = 5;
/// Landings and evictions that `train` prints for people; JSON has all.
const TRAIN_SHOWN_MAX: usize = 10;
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
    Phase::Boarding,
    Phase::Ready,
    Phase::Waiting,
    Phase::Blocked,
    Phase::Cancelled,
    Phase::Skipped,
    Phase::Landed,
];

/// Where every task stands.
pub(crate) fn status(context: &Context, run: Option<&str>) -> Outcome {
    let (repo, layout, look) = context.look(run)?;
    let mut status = look.status();
    if matches!(status.state, RunState::Running | RunState::Paused) && !status.tasks.is_empty() {
        let mut doing = control::seen_doing(&layout.socket());
        for task in status.tasks.iter_mut().filter(|task| task.phase == wire::Phase::Working) {
            task.progress = doing.remove(&task.id);
        }
    }
    let aside = layout.kept_aside();
    status.aside = aside.iter().map(|path| path.display().to_string()).collect();
    if context.global.json {
        print::out_json(&status)?;
        return Ok(exit_code::OK);
    }
    if nothing_yet(&look) {
        return Ok(exit_code::OK);
    }
    let now = clock::now_ms();
    let color = context.color_out;
    let mut text = header(&look, &status, color);
    text.push_str(&tasks(&look.machine, &status.tasks, color, context.global.verbose > 0, now));
    if !status.questions.is_empty() {
        text.push('\n');
        text.push_str(&inbox(&status.questions, now));
    }
    for limit in &status.limits {
        let _ = writeln!(text, "\n{}", limit_line(limit, now));
    }
    if !status.train.is_empty() {
        text.push('\n');
        text.push_str(&cars(&status.train));
    }
    if look.state == RunState::Crashed {
        text.push_str("\nThe engine went away without coming to rest. Nothing is lost: mainstem run goes on.\n");
    }
    // Git's word, not the journal's: whether it still is so only the checkout itself can tell.
    for (place, way) in repo.left_behind(look.machine.target()).unwrap_or_default() {
        let place = print::harmless(&place.to_string_lossy());
        let _ = writeln!(
            text,
            "\nYour checkout {place} still shows an older commit, and a commit there with its old files \
             would take landings back. To bring it along, {}.",
            print::harmless(&way)
        );
    }
    for path in &status.aside {
        let _ = writeln!(
            text,
            "\n{} stood in a workspace's place and was moved aside, because it may be somebody's. \
             Remove it once you have looked at it.",
            print::harmless(path)
        );
    }
    print::out(&text)?;
    Ok(exit_code::OK)
}

/// Says that there is no run yet, if there is none.
fn nothing_yet(look: &Look) -> bool {
    if look.run.is_none() {
        print::err("there is no run in this repository yet; mainstem run PLAN starts one");
    }
    look.run.is_none()
}

fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Paused => "paused",
        RunState::Resting => "resting",
        RunState::Crashed => "crashed",
    }
}

/// A wait with its countdown.
fn limit_line(limit: &wire::Limit, now: i64) -> String {
    let waiting = match limit.waiting.len() {
        0 => String::new(),
        n => format!(", {n} waiting for it"),
    };
    let who = match limit.kind.as_str() {
        "quiet_hours" => "quiet hours: nothing starts".to_owned(),
        _ => format!("provider {} rests", print::harmless(&limit.provider)),
    };
    let how_long = match limit.until {
        Some(until) => {
            let left = print::duration(u64::try_from(until - now).unwrap_or(0));
            format!("for another {left}")
        }
        None => "until you say mainstem resume".to_owned(),
    };
    let why = match (limit.kind.as_str(), limit.reason.trim()) {
        ("quiet_hours", _) | (_, "") => String::new(),
        (kind, reason) => format!("; {kind}: {}", print::clip(&one_line(reason), 80)),
    };
    format!("limit  {who} {how_long}{waiting}{why}")
}

fn header(look: &Look, status: &wire::Status, color: bool) -> String {
    let machine = &look.machine;
    let totals = &status.totals;
    let run = status.run.clone().unwrap_or_default();
    let mut parts = vec![
        print::paint(&run, Style::new().bold(), color),
        state_word(look.state).to_owned(),
        format!("onto {}", machine.target()),
        format!("{} at once", status.jobs),
        format!("landed {}/{}", totals.landed, totals.tasks),
    ];
    if let Some(cost) = totals.cost_usd {
        parts.push(format!("${cost:.2}"));
    }
    parts.push(print::duration(totals.elapsed_ms));
    if machine.is_cancelled() {
        parts.push("cancelled".to_owned());
    }
    format!("{}\n", parts.join(" · "))
}

/// All tasks, those that need a person first.
pub(crate) fn table(machine: &Machine, color: bool) -> String {
    tasks(machine, &[], color, false, clock::now_ms())
}

fn tasks(machine: &Machine, told: &[wire::TaskStatus], color: bool, all: bool, now: i64) -> String {
    let many = !all && machine.plan().tasks.len() > TASKS_SHOWN_MAX;
    let mut rows = Vec::new();
    let mut actions = Vec::new();
    let mut folded = Vec::new();
    for phase in BY_ATTENTION {
        let shown = if many { shown_max(phase) } else { usize::MAX };
        let all = machine.tasks().all().filter(|t| machine.tasks().phase(*t) == phase);
        for t in all.take(shown) {
            let doing = told.get(t.ix()).and_then(|task| task.progress.as_deref());
            rows.push(row(machine, t, doing, color, now));
            actions.push(action(machine, t));
        }
        let count = usize::try_from(machine.tasks().count(phase)).unwrap_or(usize::MAX);
        if count > shown {
            let more = if shown > 0 { " more" } else { "" };
            let words = format!("{} {}{more} {}", print::sign(phase), count - shown, phase.word());
            folded.push(print::paint(&words, print::style(phase), color));
        }
    }
    fit(&mut rows);
    let mut text = String::new();
    for (line, action) in print::table(&rows).lines().zip(actions) {
        text.push_str(line);
        text.push('\n');
        if let Some(action) = action {
            let _ = writeln!(text, "    → {action}");
        }
    }
    if !folded.is_empty() {
        let _ = writeln!(text, "{}   (-v lists them)", folded.join(" · "));
    }
    text
}

/// How many of a phase a large run lists: all that need a person or are under way.
fn shown_max(phase: Phase) -> usize {
    match phase {
        Phase::Landed | Phase::Waiting => 0,
        Phase::Ready | Phase::Blocked | Phase::Cancelled | Phase::Skipped => FOLDED_SHOWN_MAX,
        _ => usize::MAX,
    }
}

fn row(machine: &Machine, t: TaskIx, doing: Option<&str>, color: bool, now: i64) -> Vec<String> {
    let view = machine.view(t);
    let task = &machine.plan().tasks[t.ix()];
    let words = format!("{} {}", print::sign(view.phase), view.phase.word());
    vec![
        print::paint(&words, print::style(view.phase), color),
        task.id.to_string(),
        print::clip(&one_line(&task.title), TITLE_WIDTH),
        if view.attempt > 0 { format!("#{}", view.attempt) } else { String::new() },
        print::clip(&one_line(&view.agent), 16),
        elapsed(machine, t, now),
        note(machine, t, doing),
    ]
}

/// How long it has been at it, or how long its agents worked.
fn elapsed(machine: &Machine, t: TaskIx, now: i64) -> String {
    let state = machine.tasks().get(t);
    let phase = state.phase();
    if phase.is_active() {
        let since = if phase == Phase::Working {
            state.current.as_ref().and_then(|a| a.started_at).unwrap_or(state.since)
        } else {
            state.since
        };
        return print::duration(u64::try_from(now - since.0).unwrap_or(0));
    }
    if state.agent_ms > 0 { print::duration(state.agent_ms) } else { String::new() }
}

/// What it waits for, why it stands where it stands, or what it landed as.
fn note(machine: &Machine, t: TaskIx, doing: Option<&str>) -> String {
    let view = machine.view(t);
    if view.phase == Phase::Landed {
        let commit = view.commit.as_ref().map(|commit| short(commit.as_str()).to_owned());
        let empty = machine.tasks().get(t).landed.as_ref().is_some_and(|landing| landing.empty);
        return if empty {
            "there was nothing to do".to_owned()
        } else {
            commit.unwrap_or_default()
        };
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
        parts.push(format!("for {}{more}", one_line(&view.waiting_for[..shown].join(", "))));
    }
    let told = !matches!(view.phase, Phase::Working | Phase::Preparing | Phase::Boarding)
        || machine.trouble(t).is_some()
        || machine.is_held_up(t);
    if told && !view.reason.is_empty() {
        parts.push(one_line(&view.reason));
    }
    parts.extend(doing.map(one_line));
    parts.join("; ")
}

fn action(machine: &Machine, t: TaskIx) -> Option<String> {
    let state = machine.tasks().get(t);
    let wanted = match state.phase() {
        Phase::Asking | Phase::Failed | Phase::Conflicted => true,
        // One blocked by others is helped by helping them.
        Phase::Blocked => state.chain.is_empty(),
        _ => false,
    };
    machine.view(t).next_action.filter(|_| wanted)
}

/// Cuts the last column to what is left of a terminal's line; a pipe gets it whole.
fn fit(rows: &mut [Vec<String>]) {
    if !std::io::stdout().is_terminal() {
        return;
    }
    let visible = |cell: &String| {
        let plain = anstream::adapter::strip_str(cell).to_string();
        unicode_width::UnicodeWidthStr::width(plain.as_str())
    };
    let columns = rows.first().map_or(0, Vec::len);
    let used: usize = (0..columns.saturating_sub(1))
        .map(|c| rows.iter().map(|row| visible(&row[c])).max().unwrap_or(0) + 2)
        .sum();
    let left = print::width().saturating_sub(used).max(12);
    for row in rows {
        if let Some(last) = row.last_mut() {
            *last = print::clip(last, left);
        }
    }
}

/// Text of plans and agents as part of a line.
pub(crate) fn one_line(text: &str) -> String {
    print::harmless(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first letters of a commit.
pub(crate) fn short(oid: &str) -> &str {
    oid.get(..9).unwrap_or(oid)
}

/// Questions that wait for an answer.
pub(crate) fn questions(context: &Context, run: Option<&str>) -> Outcome {
    let (_, _, look) = context.look(run)?;
    let questions = look.status().questions;
    if context.global.json {
        print::out_json(&questions)?;
    } else if !nothing_yet(&look) {
        if questions.is_empty() {
            print::err("no question is open");
        } else {
            print::out(&inbox(&questions, clock::now_ms()))?;
        }
    }
    Ok(exit_code::OK)
}

fn inbox(questions: &[wire::Question], now: i64) -> String {
    let mut text = String::new();
    for q in questions {
        let age = print::duration(u64::try_from(now - q.asked_at).unwrap_or(0));
        let task = q.task.as_deref().unwrap_or_default();
        let question = print::harmless(&q.question).replace('\n', "\n      ");
        let _ = writeln!(text, "? {}  {task}  {age} ago  {question}", q.id);
        for (n, option) in q.options.iter().enumerate() {
            let _ = writeln!(text, "    [{}] {}", n + 1, one_line(option));
        }
        if let (Some(default), Some(deadline)) = (&q.default, q.deadline) {
            let left = print::duration(u64::try_from(deadline - now).unwrap_or(0));
            let _ = writeln!(text, "    in {left} it takes: {}", one_line(default));
        }
        let how = if q.options.is_empty() { "TEXT" } else { "NUMBER or TEXT" };
        let _ = writeln!(text, "    → mainstem answer {} {how}", q.id);
    }
    text
}

fn cars(train: &[wire::Car]) -> String {
    let mut rows = Vec::new();
    for car in train {
        let state = match car.state {
            wire::CarState::Queued => "queued",
            wire::CarState::Verifying => "verifying",
            wire::CarState::Verified => "verified",
            wire::CarState::Landed => "landed",
            wire::CarState::Evicted => "evicted",
        };
        let merge = match (&car.candidate, &car.onto) {
            (Some(merge), Some(onto)) => format!("{} onto {}", short(merge), short(onto)),
            _ => car.tip.as_deref().map(short).unwrap_or_default().to_owned(),
        };
        rows.push(vec![
            format!("train {}", car.place.unwrap_or(0)),
            car.task.clone(),
            format!("#{}", car.attempt),
            state.to_owned(),
            merge,
        ]);
    }
    let mut text = print::table(&rows);
    for car in train {
        if let Some(reason) = &car.reason {
            let _ = writeln!(text, "! {}: {}", car.task, one_line(reason));
        }
    }
    text
}

/// What left the train, as read from the journal.
struct Left {
    car: wire::Car,
    at: i64,
    /// `landed`, `undone`, `conflict`, `evicted` or `refused`.
    how: &'static str,
    files: Vec<String>,
    empty: bool,
}

impl Left {
    fn json(&self) -> Result<Value, Failure> {
        let mut value = serde_json::to_value(&self.car)
            .map_err(|error| Failure::new(format!("BUG: a car is plain data: {error}")))?;
        value["at"] = time::to_rfc3339(self.at).into();
        value["how"] = self.how.into();
        if self.car.state == wire::CarState::Landed {
            value["commit"] = self.car.candidate.clone().into();
            value["empty"] = self.empty.into();
        } else {
            value["files"] = self.files.clone().into();
        }
        Ok(value)
    }

    fn row(&self, color: bool) -> Vec<String> {
        let phase = match self.how {
            "landed" => Phase::Landed,
            "conflict" => Phase::Conflicted,
            "evicted" => Phase::Failed,
            _ => Phase::Cancelled,
        };
        let clock = time::to_rfc3339(self.at);
        let words = match &self.car.reason {
            Some(reason) => one_line(reason),
            None => self.car.candidate.as_deref().map(short).unwrap_or_default().to_owned(),
        };
        let sign = format!("{} {}", print::sign(phase), self.how);
        vec![
            clock.get(11..19).unwrap_or_default().to_owned(),
            print::paint(&sign, print::style(phase), color),
            self.car.task.clone(),
            format!("#{}", self.car.attempt),
            words,
        ]
    }
}

/// The merge train: queued, verified, landed, evicted, and why.
pub(crate) fn train(context: &Context, run: Option<&str>) -> Outcome {
    let (repo, layout, look) = context.look(run)?;
    let train = look.status().train;
    let clashes = clashes(&repo, &layout, &look);
    let (landed, evicted) = departures(&look)?;
    if context.global.json {
        let all = |left: &[Left]| left.iter().map(Left::json).collect::<Result<Vec<_>, _>>();
        print::out_json(&json!({
            "run": look.run.as_ref().map(ToString::to_string),
            "train": train, "clashes": clashes,
            "landed": all(&landed)?, "evicted": all(&evicted)?,
        }))?;
        return Ok(exit_code::OK);
    }
    if nothing_yet(&look) {
        return Ok(exit_code::OK);
    }
    let mut text = cars(&train);
    if train.is_empty() {
        text.push_str("the train is empty\n");
    }
    text.push_str(&clash_lines(&clashes, look.machine.target()));
    let shown = if context.global.verbose > 0 { usize::MAX } else { TRAIN_SHOWN_MAX };
    for (what, left) in [("landings", &landed), ("evictions", &evicted)] {
        if left.is_empty() {
            continue;
        }
        let skipped = left.len().saturating_sub(shown);
        let _ = match skipped {
            0 => writeln!(text, "\n{what}"),
            _ => writeln!(text, "\n{what}, the last {shown} of {}", left.len()),
        };
        let rows: Vec<Vec<String>> =
            left.iter().skip(skipped).map(|left| left.row(context.color_out)).collect();
        text.push_str(&print::table(&rows));
    }
    print::out(&text)?;
    Ok(exit_code::OK)
}

/// Which work at hand would clash: as the engine has seen it, or, where none runs, as it is now.
fn clashes(repo: &Repo, layout: &Layout, look: &Look) -> Vec<wire::Clash> {
    if matches!(look.state, RunState::Running | RunState::Paused)
        && let Some(seen) = control::seen_clashes(&layout.socket())
    {
        return seen;
    }
    let works = survey::works(&look.machine);
    if works.is_empty() {
        return Vec::new();
    }
    let target = match look.machine.settings().land.mode {
        LandMode::Pr => upstream_ref(look.machine.target()),
        _ => format!("refs/heads/{}", look.machine.target()),
    };
    // Only a view: what cannot be seen is not shown.
    let seen = Surveyor::default().look(repo, &target, &works);
    seen.map(|outlook| control::clashes_of(&outlook)).unwrap_or_default()
}

fn clash_lines(clashes: &[wire::Clash], target: &str) -> String {
    let rows: Vec<Vec<String>> = clashes
        .iter()
        .map(|clash| {
            let other = clash.b.as_deref().unwrap_or(target);
            let paths = one_line(&clash.paths.join(", "));
            vec![format!("  {} ⚡ {other}", clash.a), paths]
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        format!("\nclashes ahead\n{}", print::table(&rows))
    }
}

fn departures(look: &Look) -> Result<(Vec<Left>, Vec<Left>), Failure> {
    let (mut landed, mut evicted): (Vec<Left>, Vec<Left>) = (Vec::new(), Vec::new());
    let mut tips = std::collections::BTreeMap::new();
    for (record, fact) in history::facts(look, None)? {
        let left = |task: &str, attempt, how, state, reason: Option<String>| {
            let car = wire::Car {
                task: task.to_owned(),
                attempt,
                state,
                place: None,
                tip: None,
                onto: None,
                candidate: None,
                reason,
            };
            Left { car, at: record.at_ms, how, files: Vec::new(), empty: false }
        };
        let out = wire::CarState::Evicted;
        let mut gone = match fact {
            Fact::TaskBoarded { task, tip, .. } => {
                tips.insert(task.to_string(), tip.to_string());
                continue;
            }
            Fact::TaskLanded { task, attempt, commit, old, empty } => {
                let reason = empty.then(|| "there was nothing to do".to_owned());
                let mut left =
                    left(task.as_str(), attempt, "landed", wire::CarState::Landed, reason);
                left.car.onto = Some(old.to_string());
                left.car.candidate = Some(commit.to_string());
                left.empty = empty;
                left
            }
            Fact::LandingUndone { task, commit, .. } => {
                let undone = landed.iter_mut().rev().find(|left| {
                    left.car.task == task.as_str()
                        && left.car.candidate.as_deref() == Some(commit.as_str())
                });
                if let Some(undone) = undone {
                    undone.how = "undone";
                }
                continue;
            }
            Fact::CarConflicted { task, attempt, onto, files } => {
                let reason = format!("conflict in {}", files.join(", "));
                let mut left = left(task.as_str(), attempt, "conflict", out, Some(reason));
                left.car.onto = Some(onto.to_string());
                left.files = files;
                left
            }
            Fact::CarEvicted { task, attempt, reason } => {
                left(task.as_str(), attempt, "evicted", out, Some(reason))
            }
            Fact::LandingRefused { task, attempt, expected, .. } => {
                let reason = "the branch was moved meanwhile; merged again".to_owned();
                let mut left = left(task.as_str(), attempt, "refused", out, Some(reason));
                left.car.onto = Some(expected.to_string());
                left
            }
            _ => continue,
        };
        gone.car.tip = tips.get(&gone.car.task).cloned();
        let list =
            if gone.car.state == wire::CarState::Landed { &mut landed } else { &mut evicted };
        list.push(gone);
    }
    Ok((landed, evicted))
}
