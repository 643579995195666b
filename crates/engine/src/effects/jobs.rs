//! Ending jobs that nobody waits for any more: those of earlier lives, attempts and cars. Knows where
//! jobs are, not why they ran.

use std::io;
use std::path::Path;

use mainstem_core::id::{RunId, TaskId};
use mainstem_host::process;

use crate::repo_layout::RepoLayout;

/// Ends every job of a task: agents, gates and setup commands up to this attempt, and its cars' gates.
pub fn end_task_jobs(
    layout: &RepoLayout,
    run: &RunId,
    task: &TaskId,
    attempt: u32,
) -> io::Result<()> {
    for attempt in 1..=attempt {
        let place = layout.attempt_dir(run, task, attempt);
        end_jobs_in(&place, &|name| {
            name == "agent"
                || name.starts_with("gate-")
                || name.starts_with("setup-")
                || name.starts_with("answer-")
        })?;
    }
    let attempts = layout.attempt_dir(run, task, attempt);
    let Some(place) = attempts.parent() else { return Ok(()) };
    end_jobs_in(place, &|name| name.starts_with("train-"))
}

fn end_jobs_in(place: &Path, ours: &dyn Fn(&str) -> bool) -> io::Result<()> {
    let jobs = match std::fs::read_dir(place) {
        Ok(jobs) => jobs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for job in jobs {
        let job = job?;
        let name = job.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("review-") {
            end_jobs_in(&job.path(), &|name| name == "agent")?;
        } else if name.ends_with(".setup") {
            // The setup commands of a car's gates, one folder each.
            end_jobs_in(&job.path(), &|name| name.starts_with("setup-"))?;
        } else if ours(&name) {
            process::end_job(&job.path())?;
        }
    }
    Ok(())
}
