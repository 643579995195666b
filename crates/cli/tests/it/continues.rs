//! Work goes on where it stopped, whatever stopped it. The agents here do not repeat a step: they have a
//! memory of their own outside the workspace, as a resumed session has, and what an earlier attempt did and
//! the workspace lost would be missing in the end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use mainstem_testkit::shell_plans::log_of;
use mainstem_testkit::{TestScene, TestSceneProcess, wait_until};
use rustix::process::Signal;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// Begins every agent: counts its steps, notes how many parts it found, does one part more, and commits
/// only every other one.
const STEP: &str = r#"
n=$(cat "$OUT/step" 2>/dev/null || echo 0); n=$((n+1)); echo $n > "$OUT/step"
echo '{"mainstem":"session","id":"s1"}'
echo "$(ls part-*.txt 2>/dev/null | wc -l)" > "$OUT/found-$n"
cp "$MAINSTEM_PROMPT" "$OUT/prompt-$n"
echo "part $n" > part-$n.txt
if [ $((n % 2)) = 0 ]; then
  git add -A; git -c user.name=a -c user.email=a@example.invalid commit -qm "part $n"
fi
beat() { echo '{"mainstem":"progress","text":"still here"}'; sleep 0.1; }
"#;

/// Eleven parts, eleven ends.
const TEN_WAYS: &str = r#"
case $n in
1) echo '{"mainstem":"rate_limited","retry_after":1}'; exit 1;;
2) echo "{\"mainstem\":\"quota_exhausted\",\"reset_at\":$(($(date +%s)+2))}"; exit 1;;
3) echo '{"mainstem":"failed","class":"transient","message":"connection lost"}'; exit 1;;
4) while :; do beat; done;;
5) sleep 600;;
6) kill -9 $$;;
7) touch "$OUT/at-7"; until [ -e "$OUT/go-7" ]; do beat; done; exit 3;;
8) touch "$OUT/at-8"; while :; do beat; done;;
9) exit 0;;
10) echo '{"mainstem":"blocked","reason":"a person must look"}'; exit 0;;
11) echo '{"mainstem":"ask","question":"Which color?"}'; read -r answer; echo "$answer" > answer.txt;;
esac
"#;

fn scene(config: &str, ends: &str, task: &str) -> TestScene {
    let scene = TestScene::new(BIN);
    let out = scene.outside("");
    let agent = scene.outside("agent.sh");
    let text = format!("OUT='{}'\n{STEP}\n{ends}", out.display());
    fs::write(&agent, text).expect("a file");
    let config = format!(
        "{config}\n[agents.steps]\nkind = \"command\"\ncommand = [\"sh\", \"{}\"]\n",
        agent.display()
    );
    let plan = format!(
        "version = 1\n[[task]]\nid = \"A\"\nagent = \"steps\"\ntitle = \"T\"\ndescription = \"All parts.\"\n{task}\n"
    );
    scene.config(&config).plan(&plan)
}

fn wait_for(scene: &TestScene, file: &str) {
    let file = scene.outside(file);
    wait_until(Duration::from_secs(90), &format!("{}", file.display()), || file.exists());
}

fn interrupt(mut running: TestSceneProcess) {
    running.signal(Signal::INT);
    running.wait().expect_code(3);
}

/// Every step found all parts of the steps before it, and all of them landed.
fn assert_whole(scene: &TestScene, parts: usize) {
    for n in 1..=parts {
        let found = log_of(&scene.outside(&format!("found-{n}")));
        assert_eq!(found.trim(), (n - 1).to_string(), "what step {n} found");
        let part = scene.repo().show("main", &format!("part-{n}.txt"));
        assert_eq!(part, Some(format!("part {n}\n")), "what landed of step {n}");
    }
    assert_eq!(log_of(&scene.outside("step")).trim(), parts.to_string(), "no step twice");
    scene.assert_each_lands_once(&["A"]);
}

fn interrupted_in_ten_ways(workspace: &str) {
    let config = format!(
        "[run]\nretries = 20\ntimeout = \"12s\"\nidle_timeout = \"5s\"\nstall_restarts = 5\ngrace = \"2s\"\n\
         [limits]\nrate_limit_wait = \"1s\"\n[workspace]\n{workspace}\n"
    );
    let gate = "verify = [\"[ $(ls part-*.txt | wc -l) -ge 10 ]\"]";
    let scene = scene(&config, TEN_WAYS, gate);
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_for(&scene, "at-7");
    running.kill9();
    fs::write(scene.outside("go-7"), "").expect("a file");
    let running = scene.spawn(&["run"]);
    wait_for(&scene, "at-8");
    interrupt(running);
    // The ninth is judged by its gate, and red; the tenth gives up.
    scene.expect(2, &["run"]);
    scene.assert_phases(&[("A", "blocked")]);
    scene.expect(0, &["retry", "A", "-m", "I looked: go on."]);
    let running = scene.spawn(&["run"]);
    scene.wait_for_phase("A", "asking");
    scene.expect(0, &["answer", "Q1", "blue"]);
    running.wait().expect_code(0);
    assert_whole(&scene, 11);
    let answer = scene.repo().show("main", "answer.txt").unwrap_or_default();
    assert!(answer.contains("blue"), "{answer}");
    let classes: Vec<_> = scene.facts_of("attempt_failed");
    let classes: Vec<_> = classes.iter().filter_map(|fact| fact["class"].as_str()).collect();
    let expected = [
        "rate_limited",
        "quota_exhausted",
        "transient",
        "timed_out",
        "timed_out",
        "agent_failed",
        "agent_failed",
        "interrupted",
        "gate_failed",
        "blocked",
    ];
    assert_eq!(classes, expected);
    let prompt = log_of(&scene.outside("prompt-11"));
    assert!(prompt.contains("Your workspace contains the work of attempt 10"), "{prompt}");
    assert!(prompt.contains("Changes: 10 files, +10 -0"), "{prompt}");
    assert!(prompt.contains("- part-1.txt +1 -0") && prompt.contains(" part 2\n"), "{prompt}");
    assert!(prompt.contains("> I looked: go on."), "{prompt}");
    scene.assert_nothing_left();
}

#[test]
fn an_agent_interrupted_in_ten_ways_lands_the_whole_from_a_worktree() {
    interrupted_in_ten_ways("");
}

#[test]
fn an_agent_interrupted_in_ten_ways_lands_the_whole_from_a_clone() {
    interrupted_in_ten_ways("kind = \"clone\"");
}

/// Two parts: the first ends with a rate limit.
const LIMIT_THEN_DONE: &str = r#"
if [ $n = 1 ]; then echo '{"mainstem":"rate_limited","retry_after":1}'; exit 1; fi
"#;

#[test]
fn work_goes_on_in_a_shared_workspace_and_in_one_that_is_always_kept() {
    for workspace in ["unit = \"none\"", "unit = \"epic\"", "keep = \"always\""] {
        let config = format!("[workspace]\n{workspace}\n");
        let scene = scene(&config, LIMIT_THEN_DONE, "");
        scene.expect(0, &["run", "plan.toml"]);
        assert_whole(&scene, 2);
    }
}

#[test]
fn work_that_an_agent_adds_nothing_to_is_judged_by_the_gates() {
    let ends = r#"
if [ $n = 1 ]; then echo '{"mainstem":"rate_limited","retry_after":1}'; exit 1; fi
git reset -q --hard HEAD~1
"#;
    let scene = scene("", ends, "verify = [\"test -e part-1.txt\"]");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().show("main", "part-1.txt").as_deref(), Some("part 1\n"));
    assert_eq!(scene.repo().show("main", "part-2.txt"), None);
    scene.assert_each_lands_once(&["A"]);
}

#[test]
fn a_limit_is_not_refuted_by_what_an_earlier_attempt_left() {
    let ends = r#"
if [ $n = 1 ]; then echo '{"mainstem":"rate_limited","retry_after":1}'; exit 1; fi
if [ $n = 2 ]; then git reset -q --hard HEAD~1; echo '{"mainstem":"rate_limited","retry_after":1}'; exit 0; fi
"#;
    let scene = scene("", ends, "");
    scene.expect(0, &["run", "plan.toml"]);
    let failed = scene.facts_of("attempt_failed");
    let classes: Vec<_> = failed.iter().filter_map(|fact| fact["class"].as_str()).collect();
    assert_eq!(classes, ["rate_limited", "rate_limited"]);
    for part in ["part-1.txt", "part-3.txt"] {
        assert!(scene.repo().show("main", part).is_some(), "{part}");
    }
}

#[test]
fn starting_over_is_a_choice_and_what_is_put_aside_stays_on_its_snapshot() {
    let ends = "[ $n = 1 ] && exit 1; exit 0";
    let config = "[run]\nretries = 1\nstart_over = [\"agent_failed\"]\n";
    let scene = scene(config, ends, "");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(log_of(&scene.outside("found-2")).trim(), "0", "it started over");
    assert_eq!(scene.repo().show("main", "part-1.txt"), None);
    let attempts = scene.facts_of("attempt_intended");
    assert_eq!(attempts[1]["fresh"], true, "{attempts:#?}");
    assert!(attempts[1].get("session").is_none(), "{attempts:#?}");
    let refs =
        scene.repo().git(&["for-each-ref", "--format=%(refname)", "refs/mainstem/snapshots/A/1"]);
    let kept = refs.lines().last().expect("a snapshot");
    assert_eq!(scene.repo().show(kept, "part-1.txt").as_deref(), Some("part 1\n"));
    let prompt = log_of(&scene.outside("prompt-2"));
    assert!(prompt.contains("You start over from the current state"), "{prompt}");
}

#[test]
fn an_outcome_that_does_not_exist_is_named_with_the_nearest() {
    let scene = scene("[run]\nstart_over = [\"agent_fialed\"]\n", "", "");
    let said = scene.expect(1, &["run", "plan.toml"]).stderr;
    assert!(said.contains("unknown outcome `agent_fialed`"), "{said}");
    assert!(said.contains("did you mean `agent_failed`?"), "{said}");
}

#[test]
fn a_retry_goes_on_or_starts_over_as_the_person_says() {
    let ends = "[ $n -lt 3 ] && exit 1; exit 0";
    let scene = scene("[run]\nretries = 0\n", ends, "");
    scene.expect(2, &["run", "plan.toml"]);
    let said = scene.expect(0, &["retry", "A"]).stderr;
    assert!(said.contains("from where attempt 1 stopped"), "{said}");
    scene.expect(2, &["run"]);
    assert_eq!(log_of(&scene.outside("found-2")).trim(), "1");
    let said = scene.expect(0, &["retry", "A", "--fresh"]).stderr;
    assert!(said.contains("the work of attempt 2 stays on refs/mainstem/snapshots/A/2"), "{said}");
    scene.expect(0, &["run"]);
    assert_eq!(log_of(&scene.outside("found-3")).trim(), "0");
    assert_eq!(scene.repo().show("main", "part-3.txt").as_deref(), Some("part 3\n"));
    assert_eq!(scene.repo().show("main", "part-1.txt"), None);
}

#[test]
fn a_retry_is_for_all_of_its_tasks_or_for_none() {
    let scene = scene("[run]\nretries = 0\n", "exit 1", "");
    scene.expect(2, &["run", "plan.toml"]);
    let said = scene.expect(1, &["retry", "A", "nonsense"]).stderr;
    assert!(said.contains("unknown task nonsense"), "{said}");
    assert!(scene.facts_of("task_retried").is_empty());
    scene.assert_phases(&[("A", "failed")]);
    let said = scene.expect(1, &["retry", "A", "--agent", "stesp"]).stderr;
    assert!(said.contains("unknown agent stesp") && said.contains("did you mean steps?"), "{said}");
    assert!(scene.facts_of("task_retried").is_empty());
    let said = scene.expect(0, &["--json", "retry", "--all", "-m", "try", "--agent", "command"]);
    assert!(said.stdout.contains("\"ok\""), "{}", said.stdout);
    let fact = &scene.facts_of("task_retried")[0];
    assert_eq!((&fact["hint"], &fact["agent"]), (&"try".into(), &"command".into()), "{fact:#}");
}

#[test]
fn what_conflicts_with_new_landings_stays_on_its_base_and_that_is_told() {
    let ends = r#"
if [ $n = 1 ]; then echo mine > same.txt; touch "$OUT/at-1"; until [ -e "$OUT/go" ]; do beat; done
  echo '{"mainstem":"rate_limited","retry_after":1}'; exit 1; fi
if [ $n = 2 ]; then cat same.txt > "$OUT/same-2"; exit 0; fi
echo both > same.txt; cat other.txt > "$OUT/other-3"
"#;
    let scene = scene("", ends, "");
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_for(&scene, "at-1");
    scene.repo().commit("somebody else", &[("same.txt", "theirs\n"), ("other.txt", "new\n")]);
    fs::write(scene.outside("go"), "").expect("a file");
    running.wait().expect_code(0);
    assert_eq!(log_of(&scene.outside("same-2")), "mine\n", "the second goes on on its own base");
    let prompt = log_of(&scene.outside("prompt-2"));
    assert!(prompt.contains("conflicts with this work in the files below"), "{prompt}");
    assert!(prompt.contains("- `same.txt`"), "{prompt}");
    // Then the train finds the conflict, and the third has everything else of it on the new base.
    let prompt = log_of(&scene.outside("prompt-3"));
    assert!(prompt.contains("In your workspace they are as they landed"), "{prompt}");
    assert_eq!(log_of(&scene.outside("other-3")), "new\n");
    assert_eq!(scene.repo().show("main", "same.txt").as_deref(), Some("both\n"));
    assert_whole(&scene, 3);
}

/// A PATH with a git that fails as long as the file exists.
fn path_with_a_git_that_fails_while(scene: &TestScene, broken: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = scene.outside("bin");
    fs::create_dir(&folder).expect("a folder in a temporary folder");
    let script = format!(
        "#!/bin/sh\nif [ -e '{}' ]; then echo 'fatal: unable to read tree' >&2; exit 128; fi\n\
         PATH='{path}' exec git \"$@\"\n",
        broken.display()
    );
    let git = folder.join("git");
    fs::write(&git, script).expect("a file in a temporary folder");
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).expect("our own file");
    format!("{}:{path}", folder.display())
}

fn unreadable_work_goes_on(last_step: &str) {
    // The first part is on a snapshot when the second is made.
    let ends = format!(
        "if [ $n = 1 ]; then\n\
         until git for-each-ref refs/mainstem/snapshots/A/1 | grep -q .; do beat; done\n\
         echo 'part 2' > part-2.txt; echo 2 > \"$OUT/step\"; echo 1 > \"$OUT/found-2\"\n\
         {last_step}\ntouch \"$OUT/broken\"; exit 0\nfi"
    );
    let scene = scene("[run]\nretries = 20\n[snapshots]\nevery = \"1s\"\n", &ends, "");
    let broken = scene.outside("broken");
    let path = path_with_a_git_that_fails_while(&scene, &broken);
    let running = scene.spawn_with(&["run", "plan.toml"], &[("PATH", path.as_str())]);
    wait_for(&scene, "broken");
    wait_until(Duration::from_secs(90), "an attempt whose work cannot be read", || {
        !scene.facts_of("attempt_failed").is_empty()
    });
    fs::remove_file(&broken).expect("the agent has made it");
    running.wait().expect_code(0);
    assert_whole(&scene, 3);
}

#[test]
fn work_that_could_not_be_read_goes_on_with_all_that_was_there() {
    unreadable_work_goes_on("");
}

#[test]
fn work_on_the_branch_of_an_agent_that_deleted_its_folder_goes_on() {
    unreadable_work_goes_on(
        "git add -A; git -c user.name=a -c user.email=a@example.invalid commit -qm 'part 2'\n\
         rm -rf \"$PWD\"",
    );
}

#[test]
fn a_red_candidate_in_the_train_sends_its_agent_back_to_its_work() {
    let config =
        "[run]\nretries = 1\n[gates]\nverify = [\"test -e part-2.txt || ! test -e part-1.txt\"]\n";
    let scene = scene(config, "exit 0", "");
    scene.expect(0, &["run", "plan.toml"]);
    assert_whole(&scene, 2);
    assert!(!scene.facts_of("car_evicted").is_empty(), "it failed in the train");
}

#[test]
fn work_that_must_not_land_comes_back_as_edits_to_be_corrected() {
    let ends = r#"
if [ $n = 1 ]; then printf '<<<<<<< a\n=======\n>>>>>>> b\n' > bad.txt
  git add -A; git -c user.name=a -c user.email=a@example.invalid commit -qm bad; exit 0; fi
git log --format=%s "$MAINSTEM_BASE..HEAD" > "$OUT/log"; rm bad.txt
"#;
    let scene = scene("[run]\nretries = 1\n", ends, "");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(log_of(&scene.outside("log")), "part 2\n", "the bad commit is not in its history");
    let prompt = log_of(&scene.outside("prompt-2"));
    assert!(prompt.contains("The work is uncommitted, because"), "{prompt}");
    assert_eq!(scene.repo().show("main", "bad.txt"), None);
    assert_whole(&scene, 2);
}
