//! When the machine has room, and what a shortage holds up.

use mainstem_core::capacity::{CapacityShortage, HostVitals, judge_capacity};
use mainstem_core::config::LimitSettings;
use mainstem_core::fact::Fact;
use mainstem_core::machine::Input;
use mainstem_core::phase::Phase;

use crate::drive::exited_well;
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

const GIB: u64 = 1 << 30;

fn limits() -> LimitSettings {
    LimitSettings {
        disk_floor: GIB,
        memory_floor: GIB,
        pressure_ceiling: 20.0,
        load_ceiling: 8.0,
        ..settings().limits
    }
}

fn healthy() -> HostVitals {
    HostVitals {
        disks: vec![("workspaces are".to_owned(), GIB), ("the state is".to_owned(), 9 * GIB)],
        load: Some(8.0),
        memory_available: Some(GIB),
        memory_pressure: Some(20.0),
    }
}

#[test]
fn what_is_exactly_at_its_limit_or_unknown_is_enough() {
    assert_eq!(judge_capacity(&limits(), &healthy()), Ok(()));
    assert_eq!(judge_capacity(&limits(), &HostVitals::default()), Ok(()));
    let none = LimitSettings {
        disk_floor: 0,
        memory_floor: 0,
        pressure_ceiling: 0.0,
        load_ceiling: 0.0,
        ..settings().limits
    };
    let exhausted = HostVitals {
        disks: vec![("x".to_owned(), 0)],
        load: Some(900.0),
        memory_available: Some(0),
        memory_pressure: Some(100.0),
    };
    assert_eq!(judge_capacity(&none, &exhausted), Ok(()), "0 is no limit");
}

#[test]
fn a_shortage_names_the_setting_and_only_a_full_disk_stops_everybody() {
    let disk = |n: usize| {
        let mut vitals = healthy();
        vitals.disks[n].1 = GIB - 1;
        vitals
    };
    let roomy = LimitSettings { memory_per_agent: 4 * GIB, ..limits() };
    for (limits, vitals, words, nobody) in [
        (limits(), disk(0), ["1023M free where workspaces are", "disk_floor is 1G"], true),
        (limits(), disk(1), ["1023M free where the state is", "disk_floor is 1G"], true),
        (
            limits(),
            HostVitals { memory_available: Some(GIB - 1), ..healthy() },
            ["1023M available", "memory_floor is 1G"],
            false,
        ),
        (
            roomy,
            HostVitals { memory_available: Some(2 * GIB), ..healthy() },
            ["2G available", "memory_per_agent is 4G"],
            false,
        ),
        (
            limits(),
            HostVitals { memory_pressure: Some(41.7), ..healthy() },
            ["42%", "pressure_ceiling is 20"],
            false,
        ),
        (
            limits(),
            HostVitals { load: Some(8.1), ..healthy() },
            ["8.1", "load_ceiling is 8.0"],
            false,
        ),
    ] {
        let short = judge_capacity(&limits, &vitals).unwrap_err();
        assert_eq!(short.nobody, nobody, "{short:?}");
        assert!(words.iter().all(|word| short.why.contains(word)), "{short:?}");
    }
}

#[test]
fn a_strained_machine_runs_one_agent_at_a_time_and_a_full_disk_none() {
    for (short, most) in [
        (CapacityShortage::for_one_more("memory"), 1),
        (CapacityShortage::for_everyone("disk space"), 0),
    ] {
        let tasks = ["A", "B", "C"].map(|id| task(id, &[]));
        let mut lab = Lab::resting(&settings(), plan(tasks.to_vec()));
        lab.put(Input::CapacityMeasured(Err(short.clone())));
        lab.begin(None);
        assert_eq!(lab.started().len(), most, "{short:?}");
        let ready = lab.all(Phase::Ready).first().map(|id| lab.ix(id)).unwrap();
        assert!(lab.machine.task_view(ready).waiting_for.contains(&short.why));
        assert_eq!(lab.machine.rest_reason(), None, "it waits for room");
        lab.put(Input::Tick);
        assert_eq!(lab.started().len(), most, "nobody sneaks in: {short:?}");
        if most == 1 {
            let first = lab.started()[0].to_owned();
            lab.work(&first);
            lab.put(Input::Tick);
            assert_eq!(lab.started().len(), 1);
            lab.end(&first, exited_well());
            lab.collect(&first);
            assert_eq!(lab.started().len(), 2, "its slot is free, so the next one may");
        }
        lab.put(Input::CapacityMeasured(Ok(())));
        assert_eq!(lab.started().len(), 3, "{short:?}");
        let told = lab.facts.iter().filter(|(_, fact)| matches!(fact, Fact::Noticed { .. }));
        assert_eq!(told.count(), 2, "once when it began, once when it ended");
    }
}
