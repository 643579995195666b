//! Ten thousand planned tasks of a hundred epics made one plan, over reading the same answers as JSON, which
//! is the least that has to be done with them.

use std::fmt::Write as _;

use mainstem_planner::draft::{DraftPart, find_answer as read};
use mainstem_planner::plan_assembly::{AssemblyOptions, assemble_plan};
use mainstem_planner::schema::{EpicBreakdown, EpicPart, EpicTasks, TaskDraft};

use super::table::{Table, judge};
use super::{Context, proc};
use crate::Verdict;

const EPICS: usize = 100;
const TASKS: usize = 100;
const ROUNDS: usize = 5;

/// Prints what gathering costs, and over what.
pub(super) fn run(_context: &Context) -> Result<Verdict, String> {
    let (breakdown, answers) = input();
    let texts: Vec<String> = answers
        .iter()
        .map(|answer| serde_json::to_string(answer).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let prd = document();
    let options = AssemblyOptions { start_id: 1, prd: Some(&prd), drop_circles: false };
    let (mut gathering, mut reading, mut judging) = (f64::MAX, f64::MAX, f64::MAX);
    let known = breakdown.epics.iter().map(|epic| epic.id.clone()).collect();
    for _ in 0..ROUNDS {
        // The fastest: whatever else the machine did only adds.
        let (gathered, took) = proc::cost(|| assemble_plan(&breakdown, &answers, &options));
        let tasks = gathered.map_err(|error| error.to_string())?.plan.tasks.len();
        if tasks != EPICS * TASKS {
            return Err(format!("{tasks} tasks were gathered"));
        }
        gathering = gathering.min(took.as_secs_f64());
        let (read_back, took) =
            proc::cost(|| texts.iter().all(|text| serde_json::from_str::<EpicTasks>(text).is_ok()));
        reading = reading.min(took.as_secs_f64());
        let (judged, took) = proc::cost(|| {
            let parts = breakdown.epics.iter().map(|epic| DraftPart::Epic(epic.id.clone()));
            parts.zip(&texts).all(|(part, text)| read(&part, &known, Some(text), "").is_ok())
        });
        judging = judging.min(took.as_secs_f64());
        if !read_back || !judged {
            return Err("the answers cannot be read".to_owned());
        }
    }
    let mut table = Table::new(&["10,000 tasks of 100 epics", "CPU ms", "÷ reading"]);
    for (name, took) in
        [("read as JSON", reading), ("judge the answers", judging), ("gather", gathering)]
    {
        table.row(&[
            name.to_owned(),
            format!("{:.1}", took * 1e3),
            format!("{:.1}", took / reading),
        ]);
    }
    table.print();
    judge("CPU of gather", gathering, 1.0, " s");
    Ok(Verdict::Clean)
}

/// Chains inside epics, references to the epic before by words of the title, files that several name.
fn input() -> (EpicBreakdown, Vec<EpicTasks>) {
    let id = |e: usize| format!("E-{:03}", e + 1);
    let temp = |e: usize, t: usize| format!("E{:03}-T{t:02}", e + 1);
    let epics = (0..EPICS).map(|e| EpicPart {
        id: id(e),
        title: format!("Part {e}"),
        description: "What belongs to it.".to_owned(),
        prd_sections: vec![(e + 1).to_string()],
        estimated_task_count: TASKS as u64,
        dependencies_on_epics: (e > 0).then(|| id(e - 1)).into_iter().collect(),
    });
    let task = |e: usize, t: usize| TaskDraft {
        temp_id: temp(e, t),
        title: format!("Build handler number {t} of part {e}"),
        description: format!(
            "Write src/part{e}/handler{}.rs and say so in docs/part{e}.md.",
            t / 2
        ),
        acceptance_criteria: vec!["it works".to_owned(), format!("test {t} passes")],
        local_dependencies: (t > 0).then(|| temp(e, t - 1)).into_iter().collect(),
        cross_epic_dependencies: (e > 0)
            .then(|| format!("{}:handler number {t}", id(e - 1)))
            .into_iter()
            .collect(),
        effort: "small".to_owned(),
        priority: "must-have".to_owned(),
        ..TaskDraft::default()
    };
    let answers = (0..EPICS)
        .map(|e| EpicTasks { epic_id: id(e), tasks: (0..TASKS).map(|t| task(e, t)).collect() })
        .collect();
    (EpicBreakdown { epics: epics.collect() }, answers)
}

fn document() -> String {
    let mut text = "# Everything\n".to_owned();
    for e in 1..=EPICS {
        let _ = write!(text, "\n## {e}. Part {e}\n\nWhat it must do.\n");
    }
    text
}
