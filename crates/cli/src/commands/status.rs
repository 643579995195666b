//! `status`, `questions` and `train`: where a run stands, what waits for a person, what lands next.
//! Everything shown is folded from the journal; nothing is guessed.

mod table;

use std::fmt::Write as _;

use anstyle::Style;
use mainstem_api::status::{self as wire, RunState};
use mainstem_api::{exit_code, time};
use mainstem_core::config::LandMode;
use mainstem_core::fact::Fact;
use mainstem_core::id::Time;
use mainstem_core::phase::Phase;
use mainstem_engine::control;
use mainstem_engine::hub::upstream_ref;
use mainstem_engine::look::Look;
use mainstem_engine::paths::{Layout, UNSTORED};
use mainstem_engine::state_check::{self, LostLanding};
use mainstem_engine::survey::{self, Surveyor};
use mainstem_host::clock;
use mainstem_host::git::Repo;
use serde_json::{Value, json};

pub(crate) use self::table::table;
use crate::commands::history;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::{events, print};

/// Landings and evictions that `train` prints for people; JSON has all.
const TRAIN_SHOWN_MAX: usize = 10;

/// Where every task stands.
pub(crate) fn status(context: &Context, run: Option<&str>) -> Outcome {
    let (repo, layout, look) = context.look(run)?;
    let mut status = look.status();
    if matches!(status.state, RunState::Running | RunState::Paused) && !status.tasks.is_empty() {
        let wire::Activity { agents: mut doing, gates } = control::activity(&layout.socket());
        status.gates = gates;
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
    text.push_str(&table::tasks(
        &look.machine,
        &status.tasks,
        color,
        context.global.verbose > 0,
        now,
    ));
    text.push_str(&table::checks(&status, now));
    if !status.questions.is_empty() {
        text.push('\n');
        text.push_str(&inbox(&status.questions, now));
    }
    text.push_str(&other_items(&status.inbox, now));
    for limit in &status.limits {
        let _ = writeln!(text, "\n{}", limit_line(limit, now));
    }
    if !status.train.is_empty() {
        text.push('\n');
        text.push_str(&cars(&status.train));
    }
    text.push_str(&remarks(&look, &repo, &status.aside));
    print::out(&print::fit_screen(&text))?;
    Ok(exit_code::OK)
}

/// What people should know besides: a lost engine, a checkout that stayed behind, files that were kept.
fn remarks(look: &Look, repo: &Repo, aside: &[String]) -> String {
    let mut text = String::new();
    if look.state == RunState::Crashed {
        text.push_str(
            "\nThe run crashed or was killed. No work is lost; continue with: mainstem run\n",
        );
    }
    // Git's word, not the journal's: whether it still is so only the checkout itself can tell.
    for (place, way) in repo.left_behind(look.machine.target()).unwrap_or_default() {
        let place = print::harmless(&place.to_string_lossy());
        let _ = writeln!(
            text,
            "\nYour checkout {place} still shows an older commit; committing there now would revert \
             landed work. To update it, {}.",
            print::harmless(&way)
        );
    }
    if let Some(run) = &look.run {
        let lost = state_check::lost_landings(repo, run, &look.machine).unwrap_or_default();
        for line in lost_in_words(&lost, look.machine.target()) {
            let _ = writeln!(text, "\n{}", print::harmless(&line));
        }
        if state_check::is_of_another_repository(repo, &look.machine).unwrap_or(false) {
            text.push_str(
                "\nThe state in .git/mainstem belongs to another repository: none of its landed commits \
                 exist here.\n",
            );
        }
    }
    for (task, commit) in look.machine.landed_and_dropped() {
        let (commit, target) = (commit.as_str(), look.machine.target());
        let commit = commit.get(..7).unwrap_or(commit);
        let _ = writeln!(
            text,
            "\n{task} is no longer in the plan; the commit it landed ({commit}) stays on {target}."
        );
    }
    for path in aside {
        if let Some((_, whose)) = path.rsplit_once(UNSTORED) {
            let task = whose.rsplit_once('-').map_or(whose, |(task, _)| task);
            let (task, path) = (print::harmless(task), print::harmless(path));
            let _ = writeln!(
                text,
                "\nFiles of {task} that git could not store are kept in {path}. Delete the folder once \
                 you no longer need it."
            );
            continue;
        }
        let _ = writeln!(
            text,
            "\n{} was in the place of a workspace and was moved aside, in case you need the files. \
             Delete the folder once you have checked it.",
            print::harmless(path)
        );
    }
    text
}

/// Says which landings the target branch does not have any more.
pub(crate) fn tell_lost(lost: &[LostLanding], target: &str) {
    for line in lost_in_words(lost, target) {
        print::err(&line);
    }
}

fn lost_in_words(lost: &[LostLanding], target: &str) -> Vec<String> {
    let one = |lost: &LostLanding| {
        let (task, commit) = (&lost.task, short(lost.commit.as_str()));
        format!(
            "{task} landed as {commit}, which is no longer on {target}: the branch was reset. To land \
             {task} again: mainstem retry {task}, then mainstem run"
        )
    };
    lost.iter().map(one).collect()
}

/// Says that there is no run yet, if there is none.
fn nothing_yet(look: &Look) -> bool {
    if look.run.is_none() {
        print::err("no run in this repository yet; start one: mainstem run PLAN");
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
        n => format!(", {} waiting", print::count(n as u64, "task")),
    };
    let who = match limit.kind.as_str() {
        "quiet_hours" => "quiet hours: no agent starts".to_owned(),
        _ => format!("{} is rate-limited", print::harmless(&limit.provider)),
    };
    let how_long = match limit.until {
        Some(until) => {
            let left = print::duration(u64::try_from(until - now).unwrap_or(0));
            format!("for {left} ({})", events::clock(Time(until), now))
        }
        None => "until you run mainstem resume".to_owned(),
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
        format!("landing on {}", machine.target()),
        format!("{} at a time", status.jobs),
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
    let status = look.status();
    let questions = status.questions;
    if context.global.json {
        print::out_json(&questions)?;
    } else if !nothing_yet(&look) {
        let now = clock::now_ms();
        let (asked, others) = (inbox(&questions, now), other_items(&status.inbox, now));
        match (asked.is_empty(), others.is_empty()) {
            (true, true) => print::err("nothing needs you: no open questions"),
            (true, false) => print::out(others.trim_start_matches('\n'))?,
            (false, _) => print::out(&format!("{asked}{others}"))?,
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
            let _ = writeln!(text, "    answered automatically in {left}: {}", one_line(default));
        }
        let how = if q.options.is_empty() { "TEXT" } else { "NUMBER or TEXT" };
        let _ = writeln!(text, "    → mainstem answer {} {how}", q.id);
    }
    text
}

/// What else needs a person, with the command that helps. Questions and conflicts are listed with their options,
/// and failures with their tasks.
fn other_items(items: &[wire::InboxItem], now: i64) -> String {
    let told = ["question", "approval", "conflict", "failure"];
    let mut text = String::new();
    for item in items.iter().filter(|item| !told.contains(&item.kind.as_str())) {
        let age = print::duration(u64::try_from(now - item.since).unwrap_or(0));
        let task = item.task.as_deref().map(|task| format!("{task}  ")).unwrap_or_default();
        let _ = writeln!(text, "\n! {}  {task}{age} ago  {}", item.id, one_line(&item.text));
        if !item.holds_up.is_empty() {
            let _ = writeln!(text, "    holds up {}", one_line(&item.holds_up.join(", ")));
        }
        let _ = writeln!(text, "    → {}", one_line(&item.help));
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
            let words = format!("{}: {}", car.task, one_line(reason));
            let below = print::indented(&words, 2, print::columns());
            let _ = write!(text, "! {}", below.trim_start());
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
        text.push_str("the merge train is empty\n");
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
        format!("\nlikely conflicts\n{}", print::table(&rows))
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
            Fact::TaskQueued { task, tip, .. } => {
                tips.insert(task.to_string(), tip.to_string());
                continue;
            }
            Fact::TaskLanded { task, attempt, commit, old, empty } => {
                let reason = empty.then(|| "nothing to do".to_owned());
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
                let reason = "the target branch moved; merged again".to_owned();
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
