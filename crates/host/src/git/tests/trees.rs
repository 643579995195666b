use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstem_core::id::Oid;

use super::super::GitMergeOutcome;
use super::{KEEP, Scene, commit, git, plain, who, write};

const CARS: usize = 200;

/// Branches of all kinds from one base, made at once: edits, renames, deletions, modes, binary files,
/// and some that clash.
fn branches(scene: &Scene, base: &Oid) -> Vec<Oid> {
    let mut stream = String::new();
    let data = |text: &str| format!("data {}\n{text}\n", text.len());
    for n in 0..CARS {
        let file = n % 60;
        let edited = lines(file).replacen(&format!("line {}\n", n % 20), &format!("car {n}\n"), 1);
        let _ = write!(
            stream,
            "commit refs/heads/car-{n}\ncommitter Ada <ada@example.org> {} +0000\n{}from {base}\n",
            1_700_000_000 + n,
            data(&format!("car {n}"))
        );
        match n % 8 {
            0 => {
                let _ = write!(stream, "M 100644 inline f/{file}.txt\n{}", data(&edited));
            }
            1 => {
                let _ = writeln!(stream, "R f/{file}.txt g/{file}.txt");
            }
            2 => {
                let _ = writeln!(stream, "D f/{file}.txt");
            }
            3 => {
                let _ = write!(stream, "M 100755 inline f/{file}.txt\n{}", data(&lines(file)));
            }
            4 => {
                let _ =
                    write!(stream, "M 100644 inline new/{n}.bin\n{}", data(&format!("\0{n}\0")));
            }
            5 => {
                let _ = write!(
                    stream,
                    "M 100644 inline shared.txt\n{}",
                    data(&format!("{}\n", n / 80))
                );
            }
            6 => {
                let _ = writeln!(stream, "R f/{file}.txt h/{file}.txt");
                let _ = write!(stream, "M 100644 inline h/{file}.txt\n{}", data(&edited));
            }
            _ => {
                let text = format!("\0bin {}\0", n / 40);
                let _ = write!(stream, "M 100644 inline bin/{}.bin\n{}", n % 10, data(&text));
            }
        }
    }
    let place = scene.at("stream");
    fs::write(&place, stream).unwrap();
    let made = Command::new("git")
        .current_dir(scene.top())
        .args(["fast-import", "--quiet"])
        .stdin(fs::File::open(&place).unwrap())
        .status()
        .unwrap();
    assert!(made.success());
    (0..CARS).map(|n| scene.tip(&format!("car-{n}"))).collect()
}

fn lines(file: usize) -> String {
    (0..20).map(|n| format!("line {n}\n")).chain([format!("of {file}\n")]).collect()
}

#[test]
fn two_hundred_cars_come_to_the_trees_of_git_merge_in_the_same_order() {
    let scene = Scene::new();
    for n in 0..60 {
        write(&scene.top(), &format!("f/{n}.txt"), &lines(n));
    }
    for n in 0..10 {
        write(&scene.top(), &format!("bin/{n}.bin"), &format!("\0{n}\0"));
    }
    write(&scene.top(), "shared.txt", "0 of all\n");
    let base = commit(&scene.top(), "base");
    let cars = branches(&scene, &base);
    let (mut ours, mut clashed) = (base, 0);
    for (n, car) in cars.iter().enumerate() {
        let merge = format!("car-{n}");
        let theirs = plain(&scene.top(), &["merge", "-q", "--no-ff", "-m", "car", &merge]);
        match scene.repo.merge(&ours, car).unwrap() {
            GitMergeOutcome::Clean { tree } => {
                assert!(theirs.status.success(), "git does not merge car {n}");
                let parents = [ours, car.clone()];
                ours = scene.repo.commit_tree(&tree, &parents, "car", &who(), &who(), 0).unwrap();
                let head = scene.tip("HEAD");
                assert_eq!(scene.repo.tree_of(&head).unwrap(), tree, "car {n}");
            }
            GitMergeOutcome::Conflict { .. } => {
                assert!(!theirs.status.success(), "git merges car {n}");
                git(&scene.top(), &["merge", "--abort"]);
                clashed += 1;
            }
        }
    }
    assert!((5..CARS / 2).contains(&clashed), "{clashed} cars clash");
}

#[test]
fn sixteen_workspaces_at_once_and_an_agent_that_is_watched_meet_no_lock() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let place = |n: usize| scene.at(&format!("pool/{n}"));
    let branch = |n: usize| format!("mainstem/t-{n}");
    std::thread::scope(|scope| {
        for n in 0..16 {
            let (scene, base) = (&scene, &base);
            scope.spawn(move || {
                let (path, branch) = (place(n), branch(n));
                scene.repo.prepare_worktree(&path, &branch, base, &scene.trash(), KEEP).unwrap();
            });
        }
    });
    assert_eq!(scene.repo.list_worktrees().unwrap().len(), 17);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                scene.repo.take_quick_snapshot(&place(0), KEEP, "watching").unwrap();
                scene.repo.read_worktree_tip(&place(0)).unwrap();
            }
        });
        for n in 0..200 {
            write(&place(0), "work.txt", &format!("{n}\n"));
            for args in [&["add", "-A"][..], &["commit", "-q", "-m", "more"]] {
                let out = plain(&place(0), args);
                if !out.status.success() {
                    over.store(true, Ordering::Relaxed);
                    panic!("git {args:?} failed: {}", String::from_utf8_lossy(&out.stderr));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
