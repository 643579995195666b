//! `status`, `questions` and `train`: where a run stands, what waits for a person, what lands next.
//! Everything shown is folded from the journal; nothing is guessed.

mod table;

use std::fmt::Write as _;

use anstyle::Style;
use mainstem_api::status::{self as wire, RunState};
use mainstem_api::train::{TrainDeparture, TrainReport};
use mainstem_api::{exit_code, time};
use mainstem_core::id::Time;
use mainstem_core::phase::Phase;
use mainstem_engine::query::RunReader;
use mainstem_engine::repo_layout::UNSTORED;
use mainstem_engine::state_check::{self, LostLanding};
use mainstem_host::clock;
use mainstem_host::git::Repo;

pub(crate) use self::table::task_table;
use crate::context::CliContext;
use crate::error::CommandResult;
use crate::{events, output};

/// Landings and evictions that `train` prints for people; JSON has all.
const TRAIN_SHOWN_MAX: usize = 10;

/// Where every task stands.
pub(crate) fn cmd_status(context: &CliContext, run: Option<&str>) -> CommandResult {
    let (repo, layout, look) = context.open_run(run)?;
    let status = look.live_status(&layout);
    if context.global.json {
        output::write_json(&status)?;
        return Ok(exit_code::OK);
    }
    if print_no_run(&look) {
        return Ok(exit_code::OK);
    }
    let now = clock::now_ms();
    let color = context.color_out;
    let mut text = status_header(&look, &status, color);
    text.push_str(&table::task_rows(
        &look.machine,
        &status.tasks,
        color,
        context.global.verbose > 0,
        now,
    ));
    text.push_str(&table::check_lines(&status, now));
    if !status.questions.is_empty() {
        text.push('\n');
        text.push_str(&question_lines(&status.questions, now));
    }
    text.push_str(&inbox_lines(&status.inbox, now));
    for limit in &status.limits {
        let _ = writeln!(text, "\n{}", rate_limit_line(limit, now));
    }
    if !status.train.is_empty() {
        text.push('\n');
        text.push_str(&candidate_table(&status.train));
    }
    text.push_str(&status_remarks(&look, &repo, &status.aside));
    output::write_stdout(&output::wrap_to_screen(&text))?;
    Ok(exit_code::OK)
}

/// What people should know besides: a lost engine, a checkout that stayed behind, files that were kept.
fn status_remarks(look: &RunReader, repo: &Repo, aside: &[String]) -> String {
    let mut text = String::new();
    if look.state == RunState::Crashed {
        text.push_str(
            "\nThe run crashed or was killed. No work is lost; continue with: mainstem run\n",
        );
    }
    // Git's word, not the journal's: whether it still is so only the checkout itself can tell.
    for (place, way) in
        repo.list_outdated_checkouts(look.machine.target_branch()).unwrap_or_default()
    {
        let place = output::sanitize_text(&place.to_string_lossy());
        let _ = writeln!(
            text,
            "\nYour checkout {place} still shows an older commit; committing there now would revert \
             landed work. To update it, {}.",
            output::sanitize_text(&way)
        );
    }
    if let Some(run) = &look.run {
        let lost = state_check::find_lost_landings(repo, run, &look.machine).unwrap_or_default();
        for line in lost_landing_lines(&lost, look.machine.target_branch()) {
            let _ = writeln!(text, "\n{}", output::sanitize_text(&line));
        }
        if state_check::belongs_to_another_repository(repo, &look.machine).unwrap_or(false) {
            text.push_str(
                "\nThe state in .git/mainstem belongs to another repository: none of its landed commits \
                 exist here.\n",
            );
        }
    }
    for (task, commit) in look.machine.landed_dropped_tasks() {
        let (commit, target) = (commit.as_str(), look.machine.target_branch());
        let commit = commit.get(..7).unwrap_or(commit);
        let _ = writeln!(
            text,
            "\n{task} is no longer in the plan; the commit it landed ({commit}) stays on {target}."
        );
    }
    for path in aside {
        if let Some((_, whose)) = path.rsplit_once(UNSTORED) {
            let task = whose.rsplit_once('-').map_or(whose, |(task, _)| task);
            let (task, path) = (output::sanitize_text(task), output::sanitize_text(path));
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
            output::sanitize_text(path)
        );
    }
    text
}

/// Says which landings the target branch does not have any more.
pub(crate) fn print_lost_landings(lost: &[LostLanding], target: &str) {
    for line in lost_landing_lines(lost, target) {
        output::write_stderr(&line);
    }
}

fn lost_landing_lines(lost: &[LostLanding], target: &str) -> Vec<String> {
    let one = |lost: &LostLanding| {
        let (task, commit) = (&lost.task, short_oid(lost.commit.as_str()));
        format!(
            "{task} landed as {commit}, which is no longer on {target}: the branch was reset. To land \
             {task} again: mainstem retry {task}, then mainstem run"
        )
    };
    lost.iter().map(one).collect()
}

/// Says that there is no run yet, if there is none.
fn print_no_run(look: &RunReader) -> bool {
    if look.run.is_none() {
        output::write_stderr("no run in this repository yet; start one: mainstem run PLAN");
    }
    look.run.is_none()
}

/// The word of a run's state.
pub(crate) fn run_state_word(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Paused => "paused",
        RunState::Resting => "resting",
        RunState::Crashed => "crashed",
    }
}

/// A wait with its countdown.
fn rate_limit_line(limit: &wire::StatusRateLimit, now: i64) -> String {
    let waiting = match limit.waiting.len() {
        0 => String::new(),
        n => format!(", {} waiting", output::count_noun(n as u64, "task")),
    };
    let who = match limit.kind.as_str() {
        "quiet_hours" => "quiet hours: no agent starts".to_owned(),
        _ => format!("{} is rate-limited", output::sanitize_text(&limit.provider)),
    };
    let how_long = match limit.until {
        Some(until) => {
            let left = output::format_duration(u64::try_from(until - now).unwrap_or(0));
            format!("for {left} ({})", events::clock_text(Time(until), now))
        }
        None => "until you run mainstem resume".to_owned(),
    };
    let why = match (limit.kind.as_str(), limit.reason.trim()) {
        ("quiet_hours", _) | (_, "") => String::new(),
        (kind, reason) => {
            format!("; {kind}: {}", output::truncate_to_width(&collapse_to_line(reason), 80))
        }
    };
    format!("limit  {who} {how_long}{waiting}{why}")
}

fn status_header(look: &RunReader, status: &wire::RunStatus, color: bool) -> String {
    let machine = &look.machine;
    let totals = &status.totals;
    let run = status.run.clone().unwrap_or_default();
    let mut parts = vec![
        output::paint_text(&run, Style::new().bold(), color),
        run_state_word(look.state).to_owned(),
        format!("landing on {}", machine.target_branch()),
        format!("{} at a time", status.jobs),
        format!("landed {}/{}", totals.landed, totals.tasks),
    ];
    if let Some(cost) = totals.cost_usd {
        parts.push(format!("${cost:.2}"));
    }
    parts.push(output::format_duration(totals.elapsed_ms));
    if machine.is_cancelled() {
        parts.push("cancelled".to_owned());
    }
    format!("{}\n", parts.join(" · "))
}

/// Text of plans and agents as part of a line.
pub(crate) fn collapse_to_line(text: &str) -> String {
    output::sanitize_text(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first letters of a commit.
pub(crate) fn short_oid(oid: &str) -> &str {
    oid.get(..9).unwrap_or(oid)
}

/// Questions that wait for an answer.
pub(crate) fn cmd_questions(context: &CliContext, run: Option<&str>) -> CommandResult {
    let (_, _, look) = context.open_run(run)?;
    let questions = look.questions();
    if context.global.json {
        output::write_json(&questions)?;
    } else if !print_no_run(&look) {
        let now = clock::now_ms();
        let (asked, others) = (question_lines(&questions, now), inbox_lines(&look.inbox(), now));
        match (asked.is_empty(), others.is_empty()) {
            (true, true) => output::write_stderr("nothing needs you: no open questions"),
            (true, false) => output::write_stdout(others.trim_start_matches('\n'))?,
            (false, _) => output::write_stdout(&format!("{asked}{others}"))?,
        }
    }
    Ok(exit_code::OK)
}

fn question_lines(questions: &[wire::StatusQuestion], now: i64) -> String {
    let mut text = String::new();
    for q in questions {
        let age = output::format_duration(u64::try_from(now - q.asked_at).unwrap_or(0));
        let task = q.task.as_deref().unwrap_or_default();
        let question = output::sanitize_text(&q.question).replace('\n', "\n      ");
        let _ = writeln!(text, "? {}  {task}  {age} ago  {question}", q.id);
        for (n, option) in q.options.iter().enumerate() {
            let _ = writeln!(text, "    [{}] {}", n + 1, collapse_to_line(option));
        }
        if let (Some(default), Some(deadline)) = (&q.default, q.deadline) {
            let left = output::format_duration(u64::try_from(deadline - now).unwrap_or(0));
            let _ = writeln!(
                text,
                "    answered automatically in {left}: {}",
                collapse_to_line(default)
            );
        }
        let how = if q.options.is_empty() { "TEXT" } else { "NUMBER or TEXT" };
        let _ = writeln!(text, "    → mainstem answer {} {how}", q.id);
    }
    text
}

/// What else needs a person, with the command that helps. Questions and conflicts are listed with their options,
/// and failures with their tasks.
fn inbox_lines(items: &[wire::StatusInboxItem], now: i64) -> String {
    let told = ["question", "approval", "conflict", "failure"];
    let mut text = String::new();
    for item in items.iter().filter(|item| !told.contains(&item.kind.as_str())) {
        let age = output::format_duration(u64::try_from(now - item.since).unwrap_or(0));
        let task = item.task.as_deref().map(|task| format!("{task}  ")).unwrap_or_default();
        let _ =
            writeln!(text, "\n! {}  {task}{age} ago  {}", item.id, collapse_to_line(&item.text));
        if !item.holds_up.is_empty() {
            let _ = writeln!(text, "    holds up {}", collapse_to_line(&item.holds_up.join(", ")));
        }
        let _ = writeln!(text, "    → {}", collapse_to_line(&item.help));
    }
    text
}

fn candidate_table(train: &[wire::StatusCandidate]) -> String {
    let mut rows = Vec::new();
    for car in train {
        let state = match car.state {
            wire::StatusCandidateState::Queued => "queued",
            wire::StatusCandidateState::Verifying => "verifying",
            wire::StatusCandidateState::Verified => "verified",
            wire::StatusCandidateState::Landed => "landed",
            wire::StatusCandidateState::Evicted => "evicted",
        };
        let merge = match (&car.candidate, &car.onto) {
            (Some(merge), Some(onto)) => format!("{} onto {}", short_oid(merge), short_oid(onto)),
            _ => car.tip.as_deref().map(short_oid).unwrap_or_default().to_owned(),
        };
        rows.push(vec![
            format!("train {}", car.place.unwrap_or(0)),
            car.task.clone(),
            format!("#{}", car.attempt),
            state.to_owned(),
            merge,
        ]);
    }
    let mut text = output::format_table(&rows);
    for car in train {
        if let Some(reason) = &car.reason {
            let words = format!("{}: {}", car.task, collapse_to_line(reason));
            let below = output::indent_block(&words, 2, output::stdout_columns());
            let _ = write!(text, "! {}", below.trim_start());
        }
    }
    text
}

/// A landing or an eviction as a row of a table.
fn departure_row(left: &TrainDeparture, color: bool) -> Vec<String> {
    let phase = match left.how.as_str() {
        "landed" => Phase::Landed,
        "conflict" => Phase::Conflicted,
        "evicted" => Phase::Failed,
        _ => Phase::Cancelled,
    };
    let clock = time::to_rfc3339(left.at);
    let words = match &left.candidate.reason {
        Some(reason) => collapse_to_line(reason),
        None => left.candidate.candidate.as_deref().map(short_oid).unwrap_or_default().to_owned(),
    };
    let sign = format!("{} {}", output::phase_sign(phase), left.how);
    vec![
        clock.get(11..19).unwrap_or_default().to_owned(),
        output::paint_text(&sign, output::phase_style(phase), color),
        left.candidate.task.clone(),
        format!("#{}", left.candidate.attempt),
        words,
    ]
}

/// The merge train: queued, verified, landed, evicted, and why.
pub(crate) fn cmd_train(context: &CliContext, run: Option<&str>) -> CommandResult {
    let (repo, layout, look) = context.open_run(run)?;
    let report = look.train(&repo, &layout)?;
    if context.global.json {
        output::write_json(&report)?;
        return Ok(exit_code::OK);
    }
    let TrainReport { train, clashes, landed, evicted, .. } = report;
    if print_no_run(&look) {
        return Ok(exit_code::OK);
    }
    let mut text = candidate_table(&train);
    if train.is_empty() {
        text.push_str("the merge train is empty\n");
    }
    text.push_str(&conflict_lines(&clashes, look.machine.target_branch()));
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
            left.iter().skip(skipped).map(|left| departure_row(left, context.color_out)).collect();
        text.push_str(&output::format_table(&rows));
    }
    output::write_stdout(&text)?;
    Ok(exit_code::OK)
}

fn conflict_lines(clashes: &[wire::StatusConflict], target: &str) -> String {
    let rows: Vec<Vec<String>> = clashes
        .iter()
        .map(|clash| {
            let other = clash.b.as_deref().unwrap_or(target);
            let paths = collapse_to_line(&clash.paths.join(", "));
            vec![format!("  {} ⚡ {other}", clash.a), paths]
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        format!("\nlikely conflicts\n{}", output::format_table(&rows))
    }
}
