//! Who would clash with whom, seen ahead: real git, real commits.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Instant;

use mainstem_core::conflict::ConflictForecast;
use mainstem_core::id::{Oid, TaskId};
use mainstem_engine::conflict_forecast::{ConflictForecaster, ForecastWork};
use mainstem_host::git::Repo;
use mainstem_testkit::TestRepo as Scene;

const TARGET: &str = "refs/heads/main";

/// A commit on `base` with these files, on no branch.
fn commit(scene: &Scene, base: &str, files: &[(&str, &str)]) -> Oid {
    scene.git(&["checkout", "-q", "--detach", base]);
    let made = scene.commit("work", files);
    scene.git(&["checkout", "-q", "main"]);
    Oid::new(made.trim())
}

fn work(task: &str, base: &str, commit: &Oid) -> ForecastWork {
    let (task, base, commit) = (TaskId::new(task), Oid::new(base), commit.clone());
    ForecastWork { task, attempt: 1, base, commit }
}

fn pairs(outlook: &ConflictForecast) -> Vec<(String, Option<String>, Vec<String>)> {
    let pairs = outlook.pairs.iter();
    pairs
        .map(|p| (p.a.to_string(), p.b.as_ref().map(ToString::to_string), p.paths.clone()))
        .collect()
}

fn objects(scene: &Scene) -> String {
    scene.git(&["count-objects", "-v"])
}

#[test]
fn work_that_clashes_is_found_and_looking_leaves_nothing_behind() {
    let scene = Scene::new();
    let base = scene.commit("base", &[("a.txt", "1\n2\n3\n"), ("b.txt", "b\n"), ("c.txt", "c\n")]);
    let base = base.trim();
    let one = commit(&scene, base, &[("a.txt", "one\n2\n3\n")]);
    let two = commit(&scene, base, &[("a.txt", "two\n2\n3\n"), ("b.txt", "two\n")]);
    let three = commit(&scene, base, &[("a.txt", "1\n2\nthree\n")]);
    let four = commit(&scene, base, &[("c.txt", "four\n")]);
    scene.commit("somebody", &[("c.txt", "somebody\n")]);
    let repo = Repo::discover(scene.path()).unwrap();
    let works: Vec<ForecastWork> = [("T-1", &one), ("T-2", &two), ("T-3", &three), ("T-4", &four)]
        .map(|(task, tip)| work(task, base, tip))
        .to_vec();
    let before = objects(&scene);
    let mut surveyor = ConflictForecaster::default();
    let seen = surveyor.forecast_conflicts(&repo, TARGET, &works).unwrap();
    assert!(seen.complete);
    let a = |path: &str| vec![path.to_owned()];
    let expected = [
        ("T-1".to_owned(), Some("T-2".to_owned()), a("a.txt")),
        ("T-4".to_owned(), None, a("c.txt")),
    ];
    assert_eq!(pairs(&seen), expected, "the same file is no clash by itself");
    assert_eq!(seen.work_of(&TaskId::new("T-2")).unwrap().paths, ["a.txt", "b.txt"]);
    assert_eq!(objects(&scene), before, "nothing was written");
    let tmp = repo.common_dir().join("mainstem/tmp");
    assert_eq!(std::fs::read_dir(tmp).unwrap().count(), 0);
    // Known pairs cost nothing: even without their commits the answer is the same.
    assert_eq!(surveyor.forecast_conflicts(&repo, TARGET, &works).unwrap(), seen);
}

#[test]
fn one_look_is_bounded_and_the_next_one_goes_on_from_there() {
    let scene = Scene::new();
    let base = scene.commit("base", &[("a.txt", "base\n")]);
    let base = base.trim();
    // 14 × 13 ÷ 2 pairs, more than one look does.
    let works: Vec<ForecastWork> = (0..14)
        .map(|n| {
            let tip = commit(&scene, base, &[("a.txt", &format!("{n}\n"))]);
            work(&format!("T-{n}"), base, &tip)
        })
        .collect();
    let repo = Repo::discover(scene.path()).unwrap();
    let mut surveyor = ConflictForecaster::default();
    let first = surveyor.forecast_conflicts(&repo, TARGET, &works).unwrap();
    assert!(!first.complete && first.pairs.len() <= 60, "{}", first.pairs.len());
    let mut seen = first;
    for _ in 0..50 {
        if seen.complete {
            break;
        }
        seen = surveyor.forecast_conflicts(&repo, TARGET, &works).unwrap();
    }
    assert!(seen.complete);
    assert_eq!(seen.pairs.len(), 91);
}

#[test]
fn sixteen_workspaces_in_a_repository_of_thousands_of_files_are_compared_quickly() {
    let scene = Scene::new();
    for n in 0..3_000 {
        scene.write(&format!("src/{}/{n}.txt", n % 50), format!("file {n}\n1\n2\n3\n"));
    }
    scene.git(&["add", "-A"]);
    scene.git(&["commit", "-q", "-m", "many"]);
    let base = scene.commit_of("HEAD");
    let base = base.trim();
    let works: Vec<ForecastWork> = (0..16)
        .map(|n| {
            let own = (0..20).map(|k| format!("src/{}/{}.txt", (n * 20 + k) % 50, n * 20 + k));
            // Each has twenty files of its own, and every fourth shares one with the next.
            let mut paths: Vec<String> = own.collect();
            paths.extend(
                (n % 4 == 0).then(|| format!("src/{}/{}.txt", ((n + 1) * 20) % 50, (n + 1) * 20)),
            );
            let text = format!("work of {n}\n");
            let files: Vec<(&str, &str)> =
                paths.iter().map(|p| (p.as_str(), text.as_str())).collect();
            work(&format!("T-{n}"), base, &commit(&scene, base, &files))
        })
        .collect();
    let repo = Repo::discover(scene.path()).unwrap();
    let mut surveyor = ConflictForecaster::default();
    let began = Instant::now();
    let seen = surveyor.forecast_conflicts(&repo, TARGET, &works).unwrap();
    let first = began.elapsed();
    assert_eq!(seen.pairs.len(), 4, "{:?}", pairs(&seen));
    let began = Instant::now();
    surveyor.forecast_conflicts(&repo, TARGET, &works).unwrap();
    println!("first look {first:?}, with nothing changed {:?}", began.elapsed());
}
