//! GSD: `.planning/phases/NN-x/NN-MM-PLAN.md`, one plan per file. A plan is done when its summary is
//! there; the roadmap has a box for each, which a push ticks.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::plan::doc::Node;

use super::{At, Entry, Mark, Place, Reading, Refused, State};
use crate::source::{File, Source};
use crate::tree::{front_matter, get, list, text, texts, yaml_part};

const TAKEN: [&str; 8] =
    ["phase", "plan", "type", "wave", "depends_on", "files_modified", "autonomous", "must_haves"];

struct Plan {
    id: String,
    phase: String,
    wave: i64,
    entry: Entry,
}

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let mut plans: Vec<Plan> = Vec::new();
    for file in source.files.iter().filter(|file| file.path.ends_with("-PLAN.md")) {
        let Some((yaml, body)) = front_matter(&file.text) else {
            let place = Place { file: file.path.clone(), line: 1 };
            reading.notice(&place, "no front matter; the file is ignored");
            continue;
        };
        let node =
            yaml_part(&file.text, yaml).map_err(|faults| Refused::new(source, file, faults))?;
        plans.push(plan(source, file, &node, body, &mut reading));
    }
    phases(&mut reading, &plans);
    waves(&mut plans);
    reading.entries.extend(plans.into_iter().map(|plan| plan.entry));
    Ok(reading)
}

/// `01-02` of `01-02-PLAN.md`; in one folder phases and plans may also be named in words.
fn id_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.trim_end_matches("-PLAN.md").to_owned()
}

fn plan(source: &Source, file: &File, node: &Node<'_>, body: usize, reading: &mut Reading) -> Plan {
    let whole = file.text.as_str();
    let at = At::new(file);
    let place = at.place(node.span.start);
    let id = id_of(&file.path);
    reading.lose_keys(node, &TAKEN, "", &place);
    let body = whole[body..].trim();
    let objective = between(body, "<objective>", "</objective>").next().unwrap_or(body);
    let title =
        objective.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let musts = get(node, "must_haves");
    let mut acceptance = texts(musts.and_then(|m| get(m, "truths")), whole);
    for artifact in list(musts.and_then(|m| get(m, "artifacts"))) {
        let path = text(get(artifact, "path").or(Some(artifact)), whole).unwrap_or_default();
        let what = text(get(artifact, "provides"), whole).map(|what| format!(": {what}"));
        acceptance.push(format!("{path} exists{}", what.unwrap_or_default()));
    }
    if musts.and_then(|m| get(m, "key_links")).is_some() {
        reading.lose("must_haves.key_links", &place);
    }
    if text(get(node, "autonomous"), whole).as_deref() == Some("false") {
        reading.notice(&place, format!("{id} is not autonomous: needs a person's review"));
    }
    let summary = file.path.replace("-PLAN.md", "-SUMMARY.md");
    let boxed = roadmap(source, &id);
    // A push ticks the box and writes no summary: either says that it is done.
    let done = source.file(&summary).is_some() || boxed.as_ref().is_some_and(|(_, ticked)| *ticked);
    let needs = texts(get(node, "depends_on"), whole);
    let phase = file.path.rsplit('/').nth(1).map(str::to_owned);
    let phase = phase.or_else(|| text(get(node, "phase"), whole)).unwrap_or_default();
    let wave = crate::tree::int(get(node, "wave")).unwrap_or(1);
    let entry = Entry {
        id: id.clone(),
        parent: Some(format!("phase {phase}")),
        title: title.unwrap_or(&id).to_owned(),
        description: body.to_owned(),
        acceptance,
        needs: needs.iter().map(|name| name.trim_end_matches("-PLAN.md").to_owned()).collect(),
        writes: texts(get(node, "files_modified"), whole),
        state: if done { State::Done } else { State::Open },
        marks: boxed.into_iter().map(|(mark, _)| mark).collect(),
        commands: between(body, "<automated>", "</automated>")
            .map(|c| c.trim().to_owned())
            .collect(),
        place,
        ..Entry::default()
    };
    Plan { id, phase, wave, entry }
}

fn between<'t>(text: &'t str, open: &'t str, close: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split_once(close)).map(|(inner, _)| inner)
}

/// The box of `- [ ] 01-02-PLAN.md — …` in the roadmap, and whether it is ticked.
fn roadmap(source: &Source, id: &str) -> Option<(Mark, bool)> {
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
            let words = vec![(State::Done, "x".to_owned()), (State::Open, " ".to_owned())];
            return Some((Mark { file: file.path.clone(), span, words }, ticked));
        }
    }
    None
}

/// Phases follow each other by name.
fn phases(reading: &mut Reading, plans: &[Plan]) {
    let names: BTreeSet<&str> = plans.iter().map(|plan| plan.phase.as_str()).collect();
    let mut before: Option<String> = None;
    for name in names {
        let id = format!("phase {name}");
        let first = plans.iter().find(|plan| plan.phase == name);
        reading.entries.push(Entry {
            id: id.clone(),
            group: true,
            title: name.to_owned(),
            order: before.replace(id).into_iter().collect(),
            place: first.map(|plan| plan.entry.place.clone()).unwrap_or_default(),
            ..Entry::default()
        });
    }
}

/// A plan of a later wave that names nothing waits for the wave before it.
fn waves(plans: &mut [Plan]) {
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
