//! The trash is emptied while the run goes on, never holds it up, and never holds up the person at the prompt.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// A small disk of its own, if we may make one.
struct Disk(PathBuf);

impl Disk {
    #[expect(clippy::disallowed_methods, reason = "a disk is no scene's")]
    fn mount(place: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&place).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&place);
        let made = mount.output().is_ok_and(|output| output.status.success());
        made.then_some(Self(place))
    }
}

impl Drop for Disk {
    #[expect(clippy::disallowed_methods, reason = "a disk is no scene's")]
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_run_never_waits_for_space_that_its_own_trash_takes() {
    let scene = TestScene::new(BIN);
    let Some(_disk) = Disk::mount(scene.repo().place().join("repo.mainstem"), "140m") else {
        return println!("left out: nothing can be mounted here");
    };
    scene.repo().commit("ignored", &[(".gitignore", "/target\n")]);
    let works: Vec<(String, String)> = (0..8)
        .map(|n| {
            let build = "mkdir target && head -c 20000000 /dev/zero > target/blob";
            (format!("T-{n}"), format!("{build} && echo {n} > {n}.txt"))
        })
        .collect();
    let tasks: Vec<(&str, &str, &str)> =
        works.iter().map(|(id, work)| (id.as_str(), work.as_str(), "")).collect();
    // Eight workspaces of twenty megabytes do not fit: the trash has to go while the run works. A few may wait for
    // that, because a machine under load removes them late.
    let scene =
        scene.config("[run]\njobs = 1\n[limits]\ndisk_floor = \"50M\"\n").plan(&shell_plan(&tasks));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.landings("main").len(), 8);
}

#[test]
fn what_is_left_of_the_trash_is_in_nobodys_way() {
    let scene = TestScene::new(BIN);
    scene.repo().commit("ignored", &[(".gitignore", "/target\n")]);
    let work = "mkdir target && cd target && seq 3000 | xargs touch && cd .. && echo x > x.txt";
    let scene = scene.plan(&shell_plan(&[("T", work, "")]));
    scene.expect(0, &["run", "plan.toml"]);
    // Whoever empties the trash by now holds no lock.
    scene.expect(0, &["run"]);
    scene.expect(0, &["clean"]);
    scene.assert_each_lands_once(&["T"]);
    scene.assert_nothing_left();
    assert!(!scene.repo().place().join("repo.mainstem").exists());
}
