//! The door: lines that come in beside the output, and the answers that go out.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use mainstem_host::process::{self, JobSpec, ToolSocketSpec};
use serde_json::{Value, json};

use super::{PATIENCE, Place, exited, kill9, wait_for};

const KINDS: [&str; 3] = ["ask", "progress", "issue"];

/// A job that stays until its file `end` is there, with a door.
fn staying(place: &Place) -> (JobSpec, ToolSocketSpec) {
    let door = ToolSocketSpec::new(place.file("d.sock"), &KINDS).unwrap();
    let script = "while [ ! -e end ]; do sleep 0.02; done; echo bye";
    (JobSpec { door: Some(door.clone()), ..place.spec(script) }, door)
}

fn let_end(place: &Place) {
    std::fs::write(place.file("end"), "").unwrap();
}

struct Guest {
    lines: BufReader<UnixStream>,
}

impl Guest {
    fn enter(door: &ToolSocketSpec) -> Self {
        let mut guest = Self::knock(&door.path);
        guest.send(&json!({"token": door.token}));
        assert_eq!(guest.hear(), json!({"ok": true}));
        guest
    }

    fn knock(path: &Path) -> Self {
        let stream = wait_for("the door", || UnixStream::connect(path).ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { lines: BufReader::new(stream) }
    }

    fn send(&mut self, value: &Value) {
        let line = format!("{value}\n");
        self.lines.get_mut().write_all(line.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    fn ask(&mut self, reference: &str) {
        self.send(&json!({"mainstem": "ask", "question": "which?", "ref": reference}));
        assert_eq!(self.hear(), json!({"ok": true}));
    }

    fn answer_to(&mut self, reference: &str) -> Value {
        let said = self.hear();
        assert_eq!(said["ref"], reference, "{said}");
        said["answer"].clone()
    }
}

#[test]
fn lines_come_into_the_log_and_only_those_of_allowed_kinds() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&spec);
    let mut guest = Guest::enter(&door);
    guest.send(&json!({"mainstem": "progress", "text": "half\nway"}));
    assert_eq!(guest.hear(), json!({"ok": true}));
    guest.send(&json!({"mainstem": "usage", "input_tokens": 1}));
    assert!(guest.hear()["error"].is_string());
    // A key said twice must not mean one thing here and another one to who reads the log.
    guest
        .lines
        .get_mut()
        .write_all(b"{\"mainstem\":\"usage\",\"mainstem\":\"progress\",\"text\":\"x\"}\n")
        .unwrap();
    assert_eq!(guest.hear(), json!({"ok": true}));
    guest.send(&json!("text"));
    assert!(guest.hear()["error"].is_string());
    let_end(&place);
    assert_eq!(place.end().ending, exited(0));
    let lines = place.stdout();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], r#"{"mainstem":"progress","text":"half\nway"}"#);
    assert_eq!(lines[1], r#"{"mainstem":"progress","text":"x"}"#);
    assert!(!door.path.exists(), "the socket goes with the job");
}

#[test]
fn without_the_token_nothing_comes_in() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&spec);
    for wrong in [json!({"token": "x"}), json!({"mainstem": "progress"}), json!({"token": null})] {
        let mut guest = Guest::knock(&door.path);
        guest.send(&wrong);
        assert!(guest.hear()["error"].is_string());
        assert_eq!(guest.hear(), Value::Null, "it is shown out");
    }
    Guest::enter(&door);
    let_end(&place);
    place.end();
    assert_eq!(place.stdout(), ["bye"]);
}

#[test]
fn a_line_too_long_and_too_many_questions_are_refused() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&spec);
    let mut guest = Guest::enter(&door);
    for n in 0..32 {
        guest.ask(&format!("r{n}"));
    }
    guest.send(&json!({"mainstem": "ask", "question": "?", "ref": "more"}));
    assert!(guest.hear()["error"].as_str().unwrap().contains("too many"));
    guest.send(&json!({"mainstem": "ask", "question": " ", "ref": "blank"}));
    assert!(guest.hear()["error"].is_string());
    guest.send(&json!({"mainstem": "ask", "question": "nameless?"}));
    assert!(guest.hear()["error"].is_string());
    let long = "x".repeat(process::TOOL_LINE_BYTES_MAX + 100_000);
    // It may be shown out before it has said all of it.
    let _ = guest.lines.get_mut().write_all(long.as_bytes());
    let_end(&place);
    place.end();
    assert_eq!(place.lines().iter().filter(|l| process::is_question_line(&l.text)).count(), 32);
}

#[test]
fn answers_go_to_who_asked_whatever_order_they_come_in() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&spec);
    let (mut one, mut two) = (Guest::enter(&door), Guest::enter(&door));
    one.ask("a");
    two.ask("b");
    one.ask("c");
    process::answer_question(&place.dir(), 3, r#"{"text":"third"}"#).unwrap();
    process::answer_question(&place.dir(), 2, r#"{"text":"second"}"#).unwrap();
    assert_eq!(one.answer_to("c")["text"], "third");
    assert_eq!(two.answer_to("b")["text"], "second");
    process::answer_question(&place.dir(), 1, r#"{"text":"first"}"#).unwrap();
    assert_eq!(one.answer_to("a")["text"], "first");
    let_end(&place);
    place.end();
}

#[test]
fn who_comes_back_gets_the_answer_and_the_question_is_asked_once() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&spec);
    let mut first = Guest::enter(&door);
    first.ask("same");
    drop(first);
    process::answer_question(&place.dir(), 1, r#"{"text":"kept"}"#).unwrap();
    let mut again = Guest::enter(&door);
    again.ask("same");
    assert_eq!(again.answer_to("same")["text"], "kept");
    let_end(&place);
    place.end();
    assert_eq!(place.lines().iter().filter(|l| process::is_question_line(&l.text)).count(), 1);
}

#[test]
fn questions_on_stdout_and_through_the_door_are_counted_together() {
    let place = Place::new();
    let door = ToolSocketSpec::new(place.file("d.sock"), &KINDS).unwrap();
    let ask = r#"echo '{"mainstem":"ask","question":"which?"}'"#;
    let script =
        format!("while [ ! -e go ]; do sleep 0.02; done; {ask}; read -r a; echo \"got $a\"");
    let spec = JobSpec { door: Some(door.clone()), ..place.talking(b"", &script) };
    place.start(&spec);
    let mut guest = Guest::enter(&door);
    guest.ask("first");
    std::fs::write(place.file("go"), "").unwrap();
    let asks = || place.lines().iter().filter(|l| process::is_question_line(&l.text)).count();
    wait_for("both questions", || (asks() == 2).then_some(()));
    process::answer_question(&place.dir(), 2, "stdin").unwrap();
    assert_eq!(place.end().ending, exited(0), "only the question on stdout was waited for");
    assert!(place.stdout().contains(&"got stdin".to_owned()));
}

#[test]
fn time_does_not_pass_while_a_question_is_open() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&JobSpec { idle_ms: Some(500), ..spec });
    let mut guest = Guest::enter(&door);
    guest.ask("slow");
    std::thread::sleep(Duration::from_millis(1500));
    process::answer_question(&place.dir(), 1, "late").unwrap();
    assert_eq!(guest.answer_to("slow"), "late");
    let_end(&place);
    assert_eq!(place.end().ending, exited(0));
}

#[test]
fn a_path_too_long_for_a_socket_gets_a_private_folder_that_goes_with_the_job() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let near = place.file(&"long".repeat(30)).join("d.sock");
    let door = ToolSocketSpec::new(near, &KINDS).unwrap();
    assert!(door.own_folder && door.path.as_os_str().len() <= 100, "{door:?}");
    let (spec, _) = staying(&place);
    place.start(&JobSpec { door: Some(door.clone()), ..spec });
    drop(Guest::enter(&door));
    let folder = door.path.parent().unwrap();
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // Also if nobody could tidy up.
    kill9(place.pids().pid);
    wait_for("the end", || process::kill_job_leftovers(&place.dir()).ok());
    assert!(!folder.exists());
}

#[test]
fn a_flood_through_the_door_is_slowed_down_and_loses_nothing() {
    let place = Place::new();
    let (spec, door) = staying(&place);
    place.start(&spec);
    let mut guest = Guest::enter(&door);
    let begun = std::time::Instant::now();
    for n in 0..150 {
        guest.send(&json!({"mainstem": "progress", "text": n}));
    }
    for _ in 0..150 {
        assert_eq!(guest.hear(), json!({"ok": true}));
    }
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
    let_end(&place);
    place.end();
    let told = place.stdout().iter().filter(|l| l.contains("progress")).count();
    assert_eq!(told, 150);
}
