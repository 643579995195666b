//! Watching: every line, in order, then the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use mainstem_host::process::{self, JobSpec, JobWatch, OutputBatch, WatchEvent};

use super::{PATIENCE, Place, exited, kill9, supervisor, wait_for};

fn watch() -> (JobWatch, mpsc::Receiver<WatchEvent>) {
    let (tx, rx) = mpsc::channel();
    (JobWatch::start(move |event| drop(tx.send(event))).unwrap(), rx)
}

#[test]
fn watching_delivers_every_line_then_the_end_and_resumes_from_an_offset() {
    let place = Place::new();
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done";
    place.start(&place.spec(script));
    let (first, events) = watch();
    first.watch_job(7, place.dir(), 0);
    let (mut texts, mut resume) = (Vec::new(), 0);
    let mut take = |texts: &mut Vec<String>, lines: OutputBatch| {
        for line in lines {
            resume = line.offset;
            texts.push(String::from_utf8(line.text).unwrap());
        }
        resume
    };
    let WatchEvent::Lines { key: 7, lines } = events.recv_timeout(PATIENCE).unwrap() else {
        panic!("lines come first");
    };
    let from = take(&mut texts, lines);
    drop(first);
    let (second, events) = watch();
    second.watch_job(8, place.dir(), from);
    loop {
        match events.recv_timeout(PATIENCE).unwrap() {
            WatchEvent::Lines { key: 8, lines } => drop(take(&mut texts, lines)),
            WatchEvent::Ended { key: 8, exit } => {
                assert_eq!(exit.ending, exited(0));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let expected: Vec<String> = (0..3000).map(|i| format!("line {i}")).collect();
    assert_eq!(texts, expected);
}

#[test]
fn watching_tells_that_a_job_vanished_and_of_dropped_output() {
    let place = Place::new();
    let spec = JobSpec { output_bytes: 8192, ..place.spec("seq 1 100000; echo last; sleep 300") };
    place.start(&spec);
    wait_for("the last line", || place.stdout().last().is_some_and(|l| l == "last").then_some(()));
    let (watch, events) = watch();
    watch.watch_job(1, place.dir(), 0);
    let (mut gap, mut last) = (0, Vec::new());
    while last != b"last" {
        match events.recv_timeout(PATIENCE).unwrap() {
            WatchEvent::Gap { key: 1, bytes } => gap += bytes,
            WatchEvent::Lines { key: 1, lines } => last = lines.last().unwrap().text.clone(),
            other => panic!("{other:?}"),
        }
    }
    assert!(gap > 100_000, "{gap}");
    kill9(place.pids().pid);
    assert_eq!(events.recv_timeout(PATIENCE).unwrap(), WatchEvent::Vanished { key: 1 });
}

#[test]
fn two_hundred_jobs_are_watched_at_once() {
    let root = tempfile::tempdir().unwrap();
    let place = Place::new();
    let (watch, events) = watch();
    let jobs: u64 = 200;
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (root, place, watch) = (&root, &place, &watch);
            scope.spawn(move || {
                for key in (part..jobs).step_by(4) {
                    let dir = root.path().join(key.to_string());
                    let script = format!("echo one {key}; sleep 0.2; echo two {key}");
                    process::start_job(&dir, &place.spec(&script), &supervisor()).unwrap();
                    watch.watch_job(key, dir, 0);
                }
            });
        }
    });
    let mut texts: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    while ended.len() < usize::try_from(jobs).unwrap() {
        match events.recv_timeout(PATIENCE).unwrap() {
            WatchEvent::Lines { key, lines } => {
                assert!(!ended.contains(&key));
                let texts = texts.entry(key).or_default();
                texts.extend(lines.into_iter().map(|l| String::from_utf8(l.text).unwrap()));
            }
            WatchEvent::Ended { key, exit } => {
                assert_eq!(exit.ending, exited(0));
                assert!(ended.insert(key));
            }
            other => panic!("{other:?}"),
        }
    }
    for key in 0..jobs {
        assert_eq!(texts[&key], [format!("one {key}"), format!("two {key}")]);
    }
}

#[test]
fn a_listener_that_does_not_read_holds_a_bounded_backlog_and_misses_nothing_that_is_kept() {
    let place = Place::new();
    let spec =
        JobSpec { output_bytes: 512 << 20, ..place.spec("yes 0123456789 | head -n 3000000") };
    let (watch, events) = watch();
    place.start(&spec);
    watch.watch_job(1, place.dir(), 0);
    place.end();
    let (mut held, mut ended, mut most) = (Vec::new(), false, 0);
    let weight = |lines: &OutputBatch| lines.iter().map(|l| l.text.len() + 96).sum::<usize>();
    let mut hold = |most: &mut usize, event| match event {
        WatchEvent::Lines { key: 1, lines } => {
            *most += weight(&lines);
            held.push(lines);
        }
        other => panic!("{other:?}: the backlog must be full before the end is reached"),
    };
    while most < 16 << 20 {
        hold(&mut most, events.recv_timeout(PATIENCE).unwrap());
    }
    // What is held is never given back: nothing more may come.
    while let Ok(event) = events.recv_timeout(Duration::from_secs(1)) {
        hold(&mut most, event);
    }
    assert!(most < 20 << 20, "{most} bytes are held");
    let mut count: usize = held.drain(..).map(|lines| lines.len()).sum();
    while !ended {
        match events.recv_timeout(PATIENCE).unwrap() {
            WatchEvent::Lines { key: 1, lines } => count += lines.len(),
            WatchEvent::Ended { key: 1, .. } => ended = true,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count, 3_000_000);
}
