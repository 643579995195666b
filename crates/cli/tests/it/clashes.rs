//! Work that does not merge: resolved by an agent, given up, kept.

use std::fs;
use std::time::Duration;

use mainstem_testkit::shell_plans::{log_of, meet, shell_plan};
use mainstem_testkit::{TestScene, wait_until};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// Two tasks that write the same line at the same time, and whatever is done about it in later attempts.
struct Pair {
    config: &'static str,
    later: String,
}

impl Pair {
    fn scene(&self) -> TestScene {
        let scene = TestScene::new(BIN);
        scene.repo().commit("same", &[("same.txt", "before\nbase\nafter\n")]);
        let both = meet(&scene.outside("log"), 2);
        let work = format!(
            "if [ $MAINSTEM_ATTEMPT = 1 ]; then {both}; sed -i \"s/base/$MAINSTEM_TASK/\" same.txt; \
             echo own > $MAINSTEM_TASK.txt; else {}; fi",
            self.later.replace("OUTSIDE", &scene.outside("").display().to_string())
        );
        let text =
            |task: &str| format!("title = \"Title of {task}\"\ndescription = \"Text of {task}.\"");
        let tasks = [("T-1", work.as_str(), text("T-1")), ("T-2", &work, text("T-2"))];
        let tasks: Vec<_> =
            tasks.iter().map(|(id, run, rest)| (*id, *run, rest.as_str())).collect();
        scene.config(self.config).plan(&shell_plan(&tasks))
    }
}

/// Who landed first, and who clashed with it.
fn winner_and_loser(scene: &TestScene) -> (&'static str, &'static str) {
    let clashed = scene.facts_of("car_conflicted");
    let loser = clashed.first().and_then(|fact| fact["task"].as_str()).expect("one clashes");
    if loser == "T-1" { ("T-2", "T-1") } else { ("T-1", "T-2") }
}

const AGENT: &str = "[run]\nretries = 1\n[land]\non_conflict = \"agent\"\n[gates]\nverify = [\"! grep -q '<<<<' same.txt\"]\n";

/// Notes what it finds, then resolves it.
const RESOLVES: &str = "cp same.txt OUTSIDE/seen-$MAINSTEM_ATTEMPT; git status --porcelain > OUTSIDE/status; \
    printf 'before\\nT-1\\nT-2\\nafter\\n' > same.txt; git add -A; \
    git -c user.name=a -c user.email=a@example.invalid commit -qm resolved";

#[test]
fn an_agent_resolves_the_merge_that_is_laid_out_for_it_and_that_lands() {
    let scene = Pair { config: AGENT, later: RESOLVES.to_owned() }.scene();
    scene.expect(0, &["run", "plan.toml", "-j", "2"]);
    let (winner, loser) = winner_and_loser(&scene);
    let seen = log_of(&scene.outside("seen-2"));
    let expected =
        [&format!("\n{winner}\n||||||| "), "\nbase\n=======\n", &format!("\n{loser}\n>>>>>>> ")];
    for part in expected {
        assert!(seen.contains(part), "{part:?} in {seen}");
    }
    assert!(seen.starts_with("before\n<<<<<<< ") && seen.ends_with("\nafter\n"), "{seen}");
    let status = log_of(&scene.outside("status"));
    assert!(status.contains("same.txt") && status.contains(&format!("{loser}.txt")), "{status}");
    let main = |path: &str| scene.repo().show("main", path);
    assert_eq!(main("same.txt").as_deref(), Some("before\nT-1\nT-2\nafter\n"));
    assert_eq!(main(&format!("{loser}.txt")).as_deref(), Some("own\n"), "the rest of its work");
    assert_eq!(scene.task(loser)["attempt"], 2);
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    let prompt =
        fs::read_to_string(scene.attempt_dir(loser, 2).join("prompt.md")).expect("a prompt");
    for part in [
        "- `same.txt`",
        "resolve this conflict",
        &format!("Text of {loser}."),
        &format!("The other side is task {winner}, which was asked to do this:"),
        &format!("> Text of {winner}."),
        &format!("+{winner}\n"),
        &format!("+{loser}\n"),
    ] {
        assert!(prompt.contains(part), "{part:?} in {prompt}");
    }
    scene.assert_nothing_left();
}

#[test]
fn a_merge_is_laid_out_in_a_clone_as_well() {
    let config = "[land]\non_conflict = \"agent\"\n[workspace]\nkind = \"clone\"\nsetup = [\"! grep -q '<<<' same.txt\"]\n";
    let scene = Pair { config, later: RESOLVES.to_owned() }.scene();
    scene.expect(0, &["run", "plan.toml", "-j", "2"]);
    assert!(log_of(&scene.outside("seen-2")).contains("\n||||||| "));
    let main = scene.repo().show("main", "same.txt");
    assert_eq!(main.as_deref(), Some("before\nT-1\nT-2\nafter\n"));
    scene.assert_nothing_left();
}

#[test]
fn whoever_redoes_it_is_told_both_sides_and_both_tasks() {
    let config = "[land]\non_conflict = \"rework\"\n";
    let later = "cp same.txt OUTSIDE/seen; printf 'before\\nT-1\\nT-2\\nafter\\n' > same.txt";
    let scene = Pair { config, later: later.to_owned() }.scene();
    scene.expect(0, &["run", "plan.toml", "-j", "2"]);
    let (winner, loser) = winner_and_loser(&scene);
    assert_eq!(
        log_of(&scene.outside("seen")),
        format!("before\n{winner}\nafter\n"),
        "what clashes is as it landed"
    );
    let own = scene.repo().show("main", &format!("{loser}.txt"));
    assert_eq!(own.as_deref(), Some("own\n"), "the rest of its work, which it did not do again");
    let prompt =
        fs::read_to_string(scene.attempt_dir(loser, 2).join("prompt.md")).expect("a prompt");
    for part in [
        "Redo your change in these files so that both changes work",
        &format!("> Text of {winner}."),
        &format!("+{winner}\n"),
        &format!("+{loser}\n"),
    ] {
        assert!(prompt.contains(part), "{part:?} in {prompt}");
    }
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    scene.assert_nothing_left();
}

#[test]
fn a_resolver_that_leaves_markers_is_asked_again_and_then_a_person_is() {
    let later = "echo tried >> OUTSIDE/tries; grep -q '^<<<<<<<' same.txt && echo more >> same.txt";
    let scene = Pair { config: AGENT, later: later.to_owned() }.scene();
    scene.expect(2, &["run", "plan.toml", "-j", "2"]);
    let (winner, loser) = winner_and_loser(&scene);
    scene.assert_phases(&[(winner, "landed"), (loser, "conflicted")]);
    assert_eq!(log_of(&scene.outside("tries")).lines().count(), 2, "as often as run.retries says");
    let task = scene.task(loser);
    let reason = task["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("same.txt") && reason.contains("conflict markers"), "{task:#}");
    assert!(task["next_action"].as_str().unwrap_or_default().contains("mainstem diff"), "{task:#}");
    let branch = task["branch"].as_str().expect("its branch is kept");
    assert!(scene.repo().show(branch, "same.txt").is_some_and(|text| text.contains("<<<<<<<")));
    // What it had made before anybody tried to merge it.
    let first = format!("refs/mainstem/snapshots/{loser}/1/");
    let kept = scene.repo().git(&["for-each-ref", "--format=%(refname)", &first]);
    let kept = kept.lines().last().expect("a snapshot of the first attempt");
    assert_eq!(scene.repo().show(kept, "same.txt"), Some(format!("before\n{loser}\nafter\n")));
}

#[test]
fn a_resolver_that_says_it_cannot_be_done_hands_it_to_a_person_at_once() {
    let later = "echo tried >> OUTSIDE/tries; \
        echo '{\"mainstem\":\"blocked\",\"reason\":\"both want the same line\"}'";
    let scene = Pair { config: AGENT, later: later.to_owned() }.scene();
    scene.expect(2, &["run", "plan.toml", "-j", "2"]);
    let (_, loser) = winner_and_loser(&scene);
    assert_eq!(scene.phase(loser), "conflicted");
    let reason = scene.task(loser)["reason"].to_string();
    assert!(reason.contains("both want the same line"), "{reason}");
    assert_eq!(log_of(&scene.outside("tries")).lines().count(), 1);
}

#[test]
fn another_agent_than_the_tasks_own_may_be_the_resolver() {
    let config = "[land]\non_conflict = \"agent\"\nresolver = \"mender\"\n\
        [agents.mender]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \
        \"echo mender > mender.txt; printf 'before\\nT-1\\nT-2\\nafter\\n' > same.txt\"]\n";
    let scene = Pair { config, later: "echo nobody >> OUTSIDE/tries; exit 1".to_owned() }.scene();
    scene.expect(0, &["run", "plan.toml", "-j", "2"]);
    let (_, loser) = winner_and_loser(&scene);
    let main = |path: &str| scene.repo().show("main", path);
    assert_eq!(main("same.txt").as_deref(), Some("before\nT-1\nT-2\nafter\n"));
    assert_eq!(main("mender.txt").as_deref(), Some("mender\n"));
    assert_eq!(log_of(&scene.outside("tries")), "", "its own agent was not asked again");
    let intended = scene.facts_of("attempt_intended");
    let agent = intended.iter().find(|f| f["task"] == loser && f["attempt"] == 2);
    assert_eq!(agent.map(|fact| fact["agent"].clone()), Some("mender".into()));
    scene.assert_nothing_left();
}

#[test]
fn a_resolver_that_is_nobody_is_refused_before_anything_runs() {
    let scene = TestScene::new(BIN).config("[land]\nresolver = \"nobody\"\n");
    let scene = scene.plan(&shell_plan(&[("T-1", "echo x > x", "")]));
    let output = scene.mainstem(&["run", "plan.toml"]);
    assert_ne!(output.code, 0);
    assert!(
        output.stderr.contains("land.resolver") && output.stderr.contains("nobody"),
        "{}",
        output.stderr
    );
}

#[test]
fn kill_9_in_mid_resolution_loses_nothing_and_resolves_once() {
    let later = format!(
        "echo x >> OUTSIDE/tries; until [ -e OUTSIDE/go ]; do sleep 0.02; done; {RESOLVES}"
    );
    let scene = Pair { config: AGENT, later }.scene();
    let running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
    wait_until(Duration::from_secs(60), "somebody resolves", || {
        !log_of(&scene.outside("tries")).is_empty()
    });
    running.kill9();
    fs::write(scene.outside("go"), "").expect("a file in a temporary folder");
    scene.expect(0, &["run", "-j", "2"]);
    let tries = log_of(&scene.outside("tries")).lines().count();
    assert_eq!(tries, 1, "it was found again: {:?}", scene.facts());
    let main = scene.repo().show("main", "same.txt");
    assert_eq!(main.as_deref(), Some("before\nT-1\nT-2\nafter\n"));
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    scene.assert_nothing_left();
}

#[test]
fn dying_when_the_merge_is_laid_out_lays_it_out_again() {
    let scene = Pair { config: AGENT, later: RESOLVES.to_owned() }.scene();
    let dies = [("MAINSTEM_CRASH_AT", "workspace.laid_out")];
    let died = scene.spawn_with(&["run", "plan.toml", "-j", "2"], &dies).wait();
    assert_ne!(died.code, 0, "{}", died.stderr);
    assert!(!scene.outside("seen-2").exists(), "no agent saw it");
    scene.expect(0, &["run", "-j", "2"]);
    assert!(log_of(&scene.outside("seen-2")).contains("\n||||||| "), "as it was to be");
    let main = scene.repo().show("main", "same.txt");
    assert_eq!(main.as_deref(), Some("before\nT-1\nT-2\nafter\n"));
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    scene.assert_nothing_left();
}

#[test]
fn what_is_kept_for_a_person_is_in_the_inbox_and_can_be_decided_there() {
    let config = "[land]\non_conflict = \"manual\"\n";
    let later = "printf 'before\\nT-1\\nT-2\\nafter\\n' > same.txt";
    let scene = Pair { config, later: later.to_owned() }.scene();
    scene.expect(2, &["run", "plan.toml", "-j", "2"]);
    let (_, loser) = winner_and_loser(&scene);
    let branch = scene.task(loser)["branch"].as_str().expect("its branch is kept").to_owned();
    let work = scene.repo().show(&branch, "same.txt");
    assert_eq!(work, Some(format!("before\n{loser}\nafter\n")));
    let inbox: serde_json::Value =
        serde_json::from_str(&scene.expect(0, &["questions", "--json"]).stdout).expect("JSON");
    let name = format!("C-{loser}");
    assert_eq!(
        (&inbox[0]["id"], &inbox[0]["task"]),
        (&name.as_str().into(), &loser.into()),
        "{inbox:#}"
    );
    let text = inbox[0]["question"].as_str().unwrap_or_default();
    assert!(text.contains("same.txt") && text.contains(&branch), "{text}");
    let odd = scene.mainstem(&["answer", &name, "perhaps"]);
    assert!(odd.code != 0 && odd.stderr.contains("retry, skip, cancel"), "{}", odd.stderr);
    scene.expect(0, &["answer", &name, "retry"]);
    scene.expect(0, &["run", "-j", "2"]);
    let main = scene.repo().show("main", "same.txt");
    assert_eq!(main.as_deref(), Some("before\nT-1\nT-2\nafter\n"));
    assert_eq!(scene.expect(0, &["questions", "--json"]).stdout.trim(), "[]");
    scene.assert_nothing_left();
}

#[test]
fn mergiraf_is_tried_where_the_user_has_it_and_its_merge_is_verified() {
    let config = "[run]\nretries = 0\n[land]\non_conflict = \"manual\"\n[gates]\nverify = [\"sh check.sh\"]\n";
    for (check, phase) in [("true\n", "landed"), ("! grep -q both same.rs\n", "conflicted")] {
        let scene = TestScene::new(BIN).config(config);
        scene.repo().commit("same", &[("same.rs", "base\n"), ("check.sh", check)]);
        let tools = scene.outside("tools");
        fs::create_dir_all(&tools).expect("a folder");
        let program = tools.join("mergiraf");
        // `merge --git BASE LEFT RIGHT …`: the result goes to LEFT.
        fs::write(&program, "#!/bin/sh\ntest \"$1\" = merge && echo both > \"$4\"\n")
            .expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("a file of ours");
        let path = std::env::var("PATH").unwrap_or_default();
        let scene = scene.env("PATH", format!("{}:{path}", tools.display()));
        let both = meet(&scene.outside("log"), 2);
        let work = format!("{both}; echo $MAINSTEM_TASK > same.rs");
        let scene = scene.plan(&shell_plan(&[("T-1", &work, ""), ("T-2", &work, "")]));
        scene.mainstem(&["run", "plan.toml", "-j", "2"]);
        let phases = [scene.phase("T-1"), scene.phase("T-2")];
        assert!(
            phases.contains(&"landed".to_owned()) && phases.contains(&phase.to_owned()),
            "{phases:?}"
        );
        let log = scene.repo().git(&["log", "main"]);
        assert_eq!(log.contains("Mainstem-Resolution: mergiraf"), phase == "landed", "{log}");
        let landed = scene.repo().show("main", "same.rs");
        assert_eq!(landed.as_deref() == Some("both\n"), phase == "landed", "{landed:?}");
    }
}

#[test]
fn the_repositorys_own_merge_drivers_decide_when_the_target_branch_names_them() {
    let scene = TestScene::new(BIN).config("[land]\non_conflict = \"fail\"\n");
    scene.repo().git(&["config", "merge.lines.driver", "git merge-file --union %A %O %B"]);
    scene
        .repo()
        .commit("same", &[("notes.txt", "base\n"), (".gitattributes", "*.txt merge=lines\n")]);
    let both = meet(&scene.outside("log"), 2);
    let work = format!("{both}; echo $MAINSTEM_TASK > notes.txt");
    let scene = scene.plan(&shell_plan(&[("T-1", &work, ""), ("T-2", &work, "")]));
    scene.expect(0, &["run", "plan.toml", "-j", "2"]);
    let landed = scene.repo().show("main", "notes.txt").unwrap_or_default();
    assert!(landed.contains("T-1") && landed.contains("T-2"), "{landed}");
    scene.assert_each_lands_once(&["T-1", "T-2"]);
}

/// `A` writes one line and lands; `B` began at the same time, writes another, and ends when `A` is there.
/// What `B` does after its first attempt is `later`.
fn one_after_the_other(scene: &TestScene, file: &str, names: (&str, &str), later: &str) {
    let (a, b) = names;
    let both = meet(&scene.outside(&format!("log-{a}")), 2);
    let first = format!("{both}; sed -i 's/base/of A/' same.txt");
    let landed = "until git show main:same.txt | grep -q 'of A'; do sleep 0.05; done";
    let second = format!(
        "if [ $MAINSTEM_ATTEMPT = 1 ]; then {both}; {landed}; sed -i 's/base/of B/' same.txt; echo {b} > {b}.txt; \
         else {later}; fi"
    );
    scene.repo().write(file, shell_plan(&[(a, &first, ""), (b, &second, "")]));
}

fn resolutions(scene: &TestScene) -> Vec<String> {
    let refs =
        scene.repo().git(&["for-each-ref", "--format=%(refname)", "refs/mainstem/resolutions"]);
    refs.lines().map(str::to_owned).collect()
}

const SAME: &str = "before\nbase\nafter\n";
const BOTH: &str = "before\nof A\nof B\nafter\n";

#[test]
fn a_conflict_that_was_resolved_before_is_resolved_the_same_way_while_that_holds() {
    let scene = TestScene::new(BIN).config(
        "[run]\nretries = 0\n[land]\non_conflict = \"agent\"\n[gates]\nverify = [\"sh check.sh\"]\n",
    );
    scene.repo().write(".git/info/exclude", "plan*.toml\nmainstem.toml\n");
    scene.repo().commit("same", &[("same.txt", SAME), ("check.sh", "true\n")]);
    let resolves = "printf 'before\\nof A\\nof B\\nafter\\n' > same.txt";
    one_after_the_other(&scene, "plan1.toml", ("A1", "B1"), resolves);
    scene.expect(0, &["run", "plan1.toml", "-j", "2"]);
    assert_eq!(scene.task("B1")["attempt"], 2);
    assert_eq!(scene.repo().show("main", "same.txt").as_deref(), Some(BOTH));
    assert_eq!(resolutions(&scene).len(), 1, "{:?}", resolutions(&scene));
    assert!(!scene.repo().git(&["log", "main"]).contains("Mainstem-Resolution"));

    // The same again: nobody is asked.
    scene.repo().commit("back", &[("same.txt", SAME)]);
    one_after_the_other(&scene, "plan2.toml", ("A2", "B2"), "exit 1");
    scene.expect(0, &["run", "--new", "plan2.toml", "-j", "2"]);
    assert_eq!(scene.task("B2")["attempt"], 1, "{:#}", scene.task("B2"));
    assert_eq!(scene.repo().show("main", "same.txt").as_deref(), Some(BOTH));
    assert_eq!(scene.repo().show("main", "B2.txt").as_deref(), Some("B2\n"));
    let log = scene.repo().git(&["log", "-1", "main"]);
    assert!(log.contains("Mainstem-Resolution: reused B1/"), "{log}");
    let formed = scene.facts_of("car_formed");
    assert!(formed.iter().any(|f| f["task"] == "B2" && f["reused"][0]["path"] == "same.txt"));

    // Another content on one side is another conflict.
    scene.repo().commit("other", &[("same.txt", "before\nbase\nafter\nmore\n")]);
    one_after_the_other(
        &scene,
        "plan3.toml",
        ("A3", "B3"),
        &format!("echo x >> {}; exit 1", scene.outside("asked").display()),
    );
    scene.expect(2, &["run", "--new", "plan3.toml", "-j", "2"]);
    assert_eq!(scene.phase("B3"), "conflicted");
    assert!(!log_of(&scene.outside("asked")).is_empty(), "somebody was asked");

    // What it comes to is red now: it is taken for the conflict that it is, and not used again.
    let check = "! grep -q 'of B' same.txt || test -e mended.txt\n";
    scene.repo().commit("stricter", &[("same.txt", SAME), ("check.sh", check)]);
    one_after_the_other(
        &scene,
        "plan4.toml",
        ("A4", "B4"),
        &format!("{resolves}; echo yes > mended.txt"),
    );
    scene.expect(0, &["run", "--new", "plan4.toml", "-j", "2"]);
    assert_eq!(scene.task("B4")["attempt"], 2);
    assert!(scene.facts_of("car_conflicted").iter().any(|fact| fact["task"] == "B4"));
    assert_eq!(scene.repo().show("main", "mended.txt").as_deref(), Some("yes\n"));
    let left = resolutions(&scene);
    assert!(left.iter().all(|name| !name.contains("/B1/")) && left.len() == 1, "{left:?}");
    // Kept no longer than snapshots are.
    let scene = scene.config("[snapshots]\nkeep = \"0s\"\n");
    scene.repo().write("plan5.toml", shell_plan(&[("C5", "echo c > c.txt", "")]));
    scene.expect(0, &["run", "--new", "plan5.toml"]);
    assert_eq!(resolutions(&scene), Vec::<String>::new());
}

#[test]
fn train_shows_who_would_clash_with_whom_while_they_work() {
    let scene = TestScene::new(BIN).config(
        "[run]\nretries = 0\n[snapshots]\nevery = \"1s\"\n[land]\non_conflict = \"manual\"\n",
    );
    scene.repo().commit("same", &[("same.txt", SAME)]);
    let log = scene.outside("log");
    let go = scene.outside("go");
    let waits = format!("until [ -e '{}' ]; do sleep 0.05; done", go.display());
    let both = meet(&log, 3);
    let clash = format!("{both}; sed -i \"s/base/$MAINSTEM_TASK/\" same.txt; {waits}");
    let free = format!("{both}; echo free > free.txt; {waits}");
    let plan = shell_plan(&[("T-1", &clash, ""), ("T-2", &clash, ""), ("T-3", &free, "")]);
    let scene = scene.plan(&plan);
    assert_eq!(train(&scene)["clashes"], serde_json::json!([]));
    let running = scene.spawn(&["run", "plan.toml", "-j", "3"]);
    let pair = serde_json::json!([{"a": "T-1", "b": "T-2", "paths": ["same.txt"]}]);
    let clashes = || train(&scene)["clashes"].clone();
    wait_until(Duration::from_secs(60), "the clash is seen", || clashes() == pair);
    let shown = scene.expect(0, &["train"]).stdout;
    assert!(shown.contains("T-1 ⚡ T-2") && shown.contains("same.txt"), "{shown}");
    running.kill9();
    assert_eq!(clashes(), pair, "without an engine it is found out anew");
    fs::write(&go, "").expect("a file in a temporary folder");
    scene.expect(2, &["run", "-j", "3"]);
    assert_eq!(scene.repo().show("main", "free.txt").as_deref(), Some("free\n"));
    assert_eq!(clashes(), serde_json::json!([]), "nobody is at work");
}

fn train(scene: &TestScene) -> serde_json::Value {
    let output = scene.expect(0, &["train", "--json"]);
    serde_json::from_str(&output.stdout).expect("train prints JSON")
}
