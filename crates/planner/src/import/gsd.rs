//! GSD: `.planning/phases/NN-x/NN-MM-PLAN.md`, one plan per file. A plan is done when its summary is
//! there; the roadmap has a box for each, which a push ticks.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::plan::document::DocumentNode;

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocation, SourceLocator, SourceStatusMark,
    SourceTaskState,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{
    front_matter, get_key, list_items, scalar_text, scalar_texts, yaml_part,
};

const TAKEN: [&str; 8] =
    ["phase", "plan", "type", "wave", "depends_on", "files_modified", "autonomous", "must_haves"];

struct GsdPlan {
    id: String,
    phase: String,
    wave: i64,
    entry: ImportEntry,
}

pub(super) fn read_gsd(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let mut plans: Vec<GsdPlan> = Vec::new();
    for file in source.files.iter().filter(|file| file.path.ends_with("-PLAN.md")) {
        let Some((yaml, body)) = front_matter(&file.text) else {
            let place = SourceLocation { file: file.path.clone(), line: 1 };
            reading.add_notice(&place, "no front matter; the file is ignored");
            continue;
        };
        let node = yaml_part(&file.text, yaml)
            .map_err(|faults| PlanImportError::new(source, file, faults))?;
        plans.push(read_plan(source, file, &node, body, &mut reading));
    }
    order_phases(&mut reading, &plans);
    order_waves(&mut plans);
    reading.entries.extend(plans.into_iter().map(|plan| plan.entry));
    Ok(reading)
}

/// `01-02` of `01-02-PLAN.md`; in one folder phases and plans may also be named in words.
fn plan_id(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.trim_end_matches("-PLAN.md").to_owned()
}

fn read_plan(
    source: &ImportSource,
    file: &SourceFile,
    node: &DocumentNode<'_>,
    body: usize,
    reading: &mut ImportReading,
) -> GsdPlan {
    let whole = file.text.as_str();
    let at = SourceLocator::new(file);
    let place = at.location_at(node.span.start);
    let id = plan_id(&file.path);
    reading.add_lost_keys(node, &TAKEN, "", &place);
    let body = whole[body..].trim();
    let objective = texts_between(body, "<objective>", "</objective>").next().unwrap_or(body);
    let title =
        objective.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let musts = get_key(node, "must_haves");
    let mut acceptance = scalar_texts(musts.and_then(|m| get_key(m, "truths")), whole);
    for artifact in list_items(musts.and_then(|m| get_key(m, "artifacts"))) {
        let path =
            scalar_text(get_key(artifact, "path").or(Some(artifact)), whole).unwrap_or_default();
        let what =
            scalar_text(get_key(artifact, "provides"), whole).map(|what| format!(": {what}"));
        acceptance.push(format!("{path} exists{}", what.unwrap_or_default()));
    }
    if musts.and_then(|m| get_key(m, "key_links")).is_some() {
        reading.add_lost_field("must_haves.key_links", &place);
    }
    if scalar_text(get_key(node, "autonomous"), whole).as_deref() == Some("false") {
        reading.add_notice(&place, format!("{id} is not autonomous: needs a person's review"));
    }
    let summary = file.path.replace("-PLAN.md", "-SUMMARY.md");
    let boxed = find_roadmap_mark(source, &id);
    // A push ticks the box and writes no summary: either says that it is done.
    let done = source.file(&summary).is_some() || boxed.as_ref().is_some_and(|(_, ticked)| *ticked);
    let needs = scalar_texts(get_key(node, "depends_on"), whole);
    let phase = file.path.rsplit('/').nth(1).map(str::to_owned);
    let phase = phase.or_else(|| scalar_text(get_key(node, "phase"), whole)).unwrap_or_default();
    let wave = crate::lenient_tree::scalar_int(get_key(node, "wave")).unwrap_or(1);
    let entry = ImportEntry {
        id: id.clone(),
        parent: Some(format!("phase {phase}")),
        title: title.unwrap_or(&id).to_owned(),
        description: body.to_owned(),
        acceptance,
        needs: needs.iter().map(|name| name.trim_end_matches("-PLAN.md").to_owned()).collect(),
        writes: scalar_texts(get_key(node, "files_modified"), whole),
        state: if done { SourceTaskState::Done } else { SourceTaskState::Open },
        marks: boxed.into_iter().map(|(mark, _)| mark).collect(),
        commands: texts_between(body, "<automated>", "</automated>")
            .map(|c| c.trim().to_owned())
            .collect(),
        place,
        ..ImportEntry::default()
    };
    GsdPlan { id, phase, wave, entry }
}

fn texts_between<'t>(
    text: &'t str,
    open: &'t str,
    close: &'t str,
) -> impl Iterator<Item = &'t str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split_once(close)).map(|(inner, _)| inner)
}

/// The box of `- [ ] 01-02-PLAN.md — …` in the roadmap, and whether it is ticked.
fn find_roadmap_mark(source: &ImportSource, id: &str) -> Option<(SourceStatusMark, bool)> {
    let file = source.files.iter().find(|file| file.path.ends_with("ROADMAP.md"))?;
    let name = format!("{id}-PLAN.md");
    let mut offset = 0;
    for line in file.text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let named = line.contains(&name) || line.contains(&format!("{id}:"));
        let boxes = ["[ ]", "[x]", "[X]"].into_iter();
        let first = boxes.filter_map(|text| Some((line.find(text)?, text != "[ ]"))).min();
        if let Some((at, ticked)) = first.filter(|_| named) {
            let span = start + at + 1..start + at + 2;
            let words = vec![
                (SourceTaskState::Done, "x".to_owned()),
                (SourceTaskState::Open, " ".to_owned()),
            ];
            return Some((SourceStatusMark { file: file.path.clone(), span, words }, ticked));
        }
    }
    None
}

/// Phases follow each other by name.
fn order_phases(reading: &mut ImportReading, plans: &[GsdPlan]) {
    let names: BTreeSet<&str> = plans.iter().map(|plan| plan.phase.as_str()).collect();
    let mut before: Option<String> = None;
    for name in names {
        let id = format!("phase {name}");
        let first = plans.iter().find(|plan| plan.phase == name);
        reading.entries.push(ImportEntry {
            id: id.clone(),
            group: true,
            title: name.to_owned(),
            order: before.replace(id).into_iter().collect(),
            place: first.map(|plan| plan.entry.place.clone()).unwrap_or_default(),
            ..ImportEntry::default()
        });
    }
}

/// A plan of a later wave that names nothing waits for the wave before it.
fn order_waves(plans: &mut [GsdPlan]) {
    let mut members: BTreeMap<(String, i64), Vec<String>> = BTreeMap::new();
    for plan in plans.iter() {
        members.entry((plan.phase.clone(), plan.wave)).or_default().push(plan.id.clone());
    }
    for plan in plans.iter_mut().filter(|plan| plan.entry.needs.is_empty()) {
        let earlier =
            members.range((plan.phase.clone(), i64::MIN)..(plan.phase.clone(), plan.wave));
        if let Some((_, ids)) = earlier.last() {
            plan.entry.order.extend(ids.iter().cloned());
        }
    }
}
