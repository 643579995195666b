//! Prompts with everything and with nothing in them, to try templates on.

use mainstem_core::id::TaskId;
use mainstem_core::plan::Task;

use super::{EarlierWork, PROMPT_BYTES_MAX, PromptConflictSides, PromptInput, RetryContext};

/// The description of the sample with everything in it.
pub(super) const DESCRIPTION: &str = "What the sample task is about.";

/// Calls `then` with a sample.
pub(super) fn with_sample<T>(full: bool, then: impl FnOnce(&PromptInput<'_>) -> T) -> T {
    let some = |text: &str| if full { vec![text.to_owned()] } else { Vec::new() };
    let pairs: Vec<(String, String)> = some("q").into_iter().map(|q| (q, "a".to_owned())).collect();
    let landed: Vec<_> = some("Title").into_iter().map(|t| (TaskId::new("T-0"), t)).collect();
    let retry = RetryContext {
        attempt: 2,
        class: "gate_failed".to_owned(),
        reason: "reason".to_owned(),
        gate_output: Some("output".to_owned()),
        conflict_files: some("file"),
        other_tasks: landed.clone(),
        sides: Some(PromptConflictSides {
            landed_diff: "diff".to_owned(),
            ..PromptConflictSides::default()
        }),
        findings: some("finding"),
        kept: full.then(|| EarlierWork { attempt: 1, ..EarlierWork::default() }),
        started_over: false,
    };
    let task = Task {
        id: TaskId::new("T-1"),
        title: "Title".to_owned(),
        description: DESCRIPTION.to_owned(),
        acceptance: some("holds"),
        writes: some("src/**"),
        role: full.then(|| "coder".to_owned()),
        verify: some("true"),
        ..Task::empty()
    };
    then(&PromptInput {
        task: &task,
        epic_title: full.then_some("Epic"),
        landed_before: &landed,
        gates: &some("true"),
        retry: full.then_some(&retry),
        hint: full.then_some("hint"),
        answers: &pairs,
        lessons: &some("lesson"),
        bytes_max: PROMPT_BYTES_MAX,
    })
}
