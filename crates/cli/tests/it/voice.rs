//! The whole voice of the product, for people to read: every help text and the answer to many mistakes, each in one
//! file under `snapshots`. The lines of a run are beside them; `src/voice.rs` renders those from `voice/facts.jsonl`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
/// Words and phrases that mean something here only, or nothing without a noun. No help text has them.
const PRIVATE_WORDS: [&str; 18] = [
    "wall",
    "walls",
    "somebody",
    "whoever",
    "nobody",
    "colour",
    "colours",
    "rests",
    "settle",
    "mend",
    "cure",
    "goes on",
    "go on",
    "call off",
    "called off",
    "take back",
    "taken back",
    "stand still",
];
/// Lengths at which commits are printed.
const COMMIT_LENGTHS: [usize; 3] = [7, 9, 40];

fn assert_voice(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn help(scene: &TestScene, command: &[String], flag: &str) -> String {
    let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
    args.push(flag);
    scene.expect(0, &args).stdout
}

/// The commands that a help text lists: lines of two blanks, a name, more blanks and a summary, before the options.
fn listed(help: &str) -> Vec<String> {
    let before = help.split("\nOptions:").next().unwrap_or_default();
    let names = before.lines().filter_map(|line| {
        let (name, summary) = line.strip_prefix("  ")?.split_once("  ")?;
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (plain && !name.is_empty() && !summary.trim().is_empty()).then(|| name.to_owned())
    });
    names.filter(|name| name != "help").collect()
}

/// A line without its columns, which differ from one command to the next.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A help text without the options that every command has.
fn own_part(help: &str, common: &[String]) -> String {
    let own = help.lines().filter(|line| line.is_empty() || !common.contains(&words(line)));
    let mut lines: Vec<&str> = own.collect();
    // In the long form each option is followed by an empty line.
    lines.dedup_by(|a, b| a.is_empty() && b.is_empty());
    let text = lines.join("\n").trim_end().to_owned();
    text.strip_suffix("Options:").map(|text| text.trim_end().to_owned()).unwrap_or(text)
}

fn add_help(scene: &TestScene, command: &[String], common: &[String], out: &mut String) {
    let (long, short) = (help(scene, command, "--help"), help(scene, command, "-h"));
    let _ = writeln!(out, "\n==== mainstem {}\n{}", command.join(" "), own_part(&long, common));
    if long != short {
        let _ = writeln!(out, "---- -h\n{}", own_part(&short, common));
    }
    let about = long.lines().next().unwrap_or_default();
    let words = about.chars().count();
    assert!(words < 60, "the summary of `{}` has {words} characters: {about}", command.join(" "));
    if long.contains("\nCommands:\n") {
        for name in listed(&long) {
            let below: Vec<String> = command.iter().cloned().chain([name]).collect();
            add_help(scene, &below, common, out);
        }
    }
}

#[test]
fn every_help_text_can_be_read_in_one_file() {
    let scene = TestScene::new(BIN).env("COLUMNS", "80");
    let top = help(&scene, &[], "--help");
    let options = top.split_once("\nOptions:\n").map(|(_, options)| options).unwrap_or_default();
    let short = help(&scene, &[], "-h");
    let common = [options, short.split_once("\nOptions:\n").map_or("", |(_, options)| options)];
    let mut common: Vec<String> =
        common.iter().flat_map(|options| options.lines().map(words)).collect();
    // The help option itself names the other form only where there are two.
    common.push("-h, --help Print help".to_owned());
    let mut text = format!("{}\n---- -h\n{short}", top.trim_end());
    let commands = listed(&top);
    assert!(commands.len() > 30, "{commands:?}");
    for name in commands {
        add_help(&scene, &[name], &common, &mut text);
    }
    let spoken =
        format!(" {} ", words(&text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ")));
    for word in PRIVATE_WORDS {
        assert!(!spoken.contains(&format!(" {word} ")), "a help text says \"{word}\"");
    }
    assert!(!text.contains('!'), "a help text has an exclamation mark");
    assert_voice("voice_help", &text);
}

/// What differs from one machine and one run to the next, under names that do not.
fn steady(scene: &TestScene, text: &str) -> String {
    let history = scene.mainstem(&["history", "--json"]).stdout;
    let facts = history.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let runs: BTreeSet<String> =
        facts.filter_map(|fact| fact["run"].as_str().map(str::to_owned)).collect();
    let mut text = text.replace(&*scene.repo().root().to_string_lossy(), "/tmp/demo");
    for run in runs {
        text = text.replace(&run, "RUN");
    }
    let mut out = String::new();
    for line in text.lines() {
        let lead = line.len() - line.trim_start().len();
        let words: Vec<String> = line.split_whitespace().filter_map(steady_word).collect();
        let _ = writeln!(out, "{}{}", &line[..lead], words.join(" "));
    }
    out
}

/// None for the minutes of a duration, which has seconds as well.
fn steady_word(word: &str) -> Option<String> {
    if let Some((from, to)) = word.split_once("..").filter(|(from, _)| !from.is_empty()) {
        return Some(format!("{}..{}", steady_word(from)?, steady_word(to)?));
    }
    let inner = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    if inner.chars().all(|c| c.is_ascii_hexdigit()) && COMMIT_LENGTHS.contains(&inner.len()) {
        return Some(word.replace(inner, "COMMIT"));
    }
    if inner.strip_suffix('s').is_some_and(is_number) {
        return Some(word.replace(inner, "1.0s"));
    }
    // The number of a snapshot, or of what has landed.
    if inner.split_once('/').is_some_and(|(a, b)| is_number(a) && is_number(b)) {
        return Some(word.replace(inner, "N/N"));
    }
    if inner.split(':').count() == 3 && inner.split(':').all(is_number) {
        return Some(word.replace(inner, "12:00:00"));
    }
    (!word.strip_suffix('m').is_some_and(is_number)).then(|| word.to_owned())
}

/// Runs commands and shows what each prints, as on a terminal.
fn tell(scene: &TestScene, title: &str, commands: &[&str], out: &mut String) {
    let _ = writeln!(out, "\n==== {title}");
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().collect();
        let ran = scene.mainstem(&args);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        let _ = writeln!(out, "\n$ mainstem {command}    [exit code {}]", ran.code);
        out.push_str(&steady(scene, said.trim_end()));
    }
}

#[test]
fn the_answers_to_mistakes_can_be_read_in_one_file() {
    let mut text = String::new();
    // Without a width nothing is folded, so that no line depends on how long a path or a name is.
    let fresh = TestScene::new(BIN);
    fresh.repo().write("notes.md", "buy milk\n");
    fresh.repo().write("empty.md", "\n");
    fresh.repo().write("checks.txt", "\n");
    fresh.repo().write(
        "plan.toml",
        "version = 1\n[[task]]\nid = \"a\"\nrun = \"true\"\nneeds = [\"b\", \"nope\"]\n\
         [[task]]\nid = \"b\"\nrun = \"true\"\nneeds = [\"a\"]\ntimeout = \"soon\"\n",
    );
    tell(
        &fresh,
        "before the first run",
        &[
            "status",
            "questions",
            "train",
            "show T",
            "logs T",
            "diff T",
            "history",
            "lessons",
            "lessons show cooking",
            "runs",
            "watch",
            "stop",
            "pause",
            "cancel",
            "retry T",
            "answer Q1 yes",
            "proposals",
            "shell T",
            "merge",
            "cost",
            "restore T",
            "restore --list",
            "undo",
            "land",
            "clean",
            "config nope",
            "config accept",
            "config set run.jobz 3",
            "config set run.jobs many",
            "--config run.jobs status",
            "-C nowhere status",
            "run",
            "run nowhere.toml",
            "run notes.md",
            "start",
            "frobnicate",
            "plan check plan.toml",
            "plan empty.md",
            "plan nowhere.md",
            "plan import auto gone.md",
            "plan import spekit notes.md",
            "plan import auto notes.md",
            "plan export raven",
            "plan push auto -",
            "gates import checks.txt",
            "worker list --state LATE",
        ],
        &mut text,
    );
    let plan = shell_plan(&[
        ("good", "echo good > good.txt", ""),
        ("bad", "echo half > half.txt; exit 7", "retries = 1\nneeds = [\"good\"]"),
        ("late", "echo late > late.txt", "needs = [\"bad\"]"),
    ]);
    let ran = TestScene::new(BIN).config("[gates]\nverify = [\"test -e good.txt\"]\n").plan(&plan);
    tell(
        &ran,
        "a run with a failure, and after it",
        &[
            "run plan.toml -j 1",
            "run",
            "status",
            "questions",
            "train",
            "show bad --prompt --attempt 9",
            "logs good --attempt 9",
            "logs bad --gates",
            "logs late",
            "diff bad --stat",
            "diff late",
            "shell good",
            "restore bad",
            "restore bad --branch main",
            "restore nope",
            "answer Q1 yes",
            "accept P1",
            "skip nope",
            "retry good",
            "cancel good",
            "jobs 2",
            "pause",
            "resume",
            "merge",
            "land",
            "run --task nope",
            "plan export raven",
            "undo --dry-run",
            "undo",
            "undo",
        ],
        &mut text,
    );
    assert_voice("voice_answers", &text);
}
