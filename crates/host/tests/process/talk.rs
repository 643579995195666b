//! Conversations: the prompt, its end, questions and answers.

use std::time::Duration;

use mainstem_host::process::{self, JobSpec};

use super::{PROGRAM, Place, exited, wait_for};

#[test]
fn a_program_that_reads_the_prompt_to_its_end_gets_the_end() {
    for prompt in [&b"one\ntwo\n"[..], b"", b"no newline"] {
        let place = Place::new();
        let exit = place.run(&place.talking(prompt, "cat; echo; echo eof"));
        assert_eq!(exit.ending, exited(0));
        assert_eq!(place.stdout().last().unwrap(), "eof");
        let text = String::from_utf8_lossy(prompt);
        assert!(place.stdout().join("\n").starts_with(text.trim_end()));
    }
}

#[test]
fn a_prompt_larger_than_a_pipe_arrives_whole() {
    let place = Place::new();
    let prompt = vec![b'p'; 700_000];
    place.run(&place.talking(&prompt, "sleep 0.1; cat | wc -c"));
    assert_eq!(place.stdout()[0].trim(), "700000");
}

#[test]
fn a_program_that_never_reads_its_prompt_ends_as_it_likes() {
    let place = Place::new();
    let exit = place.run(&place.talking(&vec![b'p'; 200_000], "echo bye"));
    assert_eq!(exit.ending, exited(0));
}

#[test]
fn a_program_that_polls_its_input_gets_prompt_and_end() {
    let place = Place::new();
    let script = format!("exec {PROGRAM} __poll");
    assert_eq!(place.run(&place.talking(b"polled", &script)).ending, exited(0));
    assert_eq!(place.stdout(), ["polled"]);
}

const ASK: &str = r#"echo '{"mainstem":"ask","question":"which?"}'"#;

fn asks(place: &Place) -> usize {
    place.lines().iter().filter(|l| process::is_question_line(&l.text)).count()
}

#[cfg(not(mainstem_portable))]
fn answer_when_asked(place: &Place, n: u32) {
    wait_for("a question", || (asks(place) >= n as usize).then_some(()));
    process::answer_question(&place.dir(), n, &format!("{{\"answer\":{n}}}")).unwrap();
}

// Holds where one can see who waits for input.
#[cfg(not(mainstem_portable))]
#[test]
fn a_question_is_answered_whether_or_not_the_prompt_was_read() {
    for before in ["", "cat >/dev/null;", "sleep 0.3;"] {
        let place = Place::new();
        let script = format!("{before} {ASK}; read -r a; echo \"got $a\"; cat; echo end");
        place.start(&place.talking(b"the prompt\nsecond line\n", &script));
        answer_when_asked(&place, 1);
        assert_eq!(place.end().ending, exited(0));
        assert_eq!(&place.stdout()[1..], ["got {\"answer\":1}", "end"], "{before:?}");
    }
}

// Holds where one can see who waits for input.
#[cfg(not(mainstem_portable))]
#[test]
fn a_program_that_asks_right_after_the_end_of_its_prompt_gets_the_answer() {
    let script = format!("exec {PROGRAM} __ask 39");
    let place = Place::new();
    place.start(&place.talking(b"prompt", &script));
    for n in 1..40 {
        process::answer_question(&place.dir(), n, &n.to_string()).unwrap();
    }
    let exit = place.end();
    assert_eq!(exit.ending, exited(0), "{:?}", place.lines());
    assert_eq!(asks(&place), 39);
}

#[test]
fn a_late_answer_is_waited_for_without_an_end_of_file() {
    let place = Place::new();
    let spec = JobSpec {
        idle_ms: Some(400),
        wall_ms: Some(5000),
        ..place.talking(b"p", &format!("{ASK}; read -r a || echo eof; echo \"got $a\""))
    };
    place.start(&spec);
    wait_for("a question", || (asks(&place) == 1).then_some(()));
    // Longer than the idle time-out, which does not run while a question is open.
    std::thread::sleep(Duration::from_millis(1200));
    process::answer_question(&place.dir(), 1, "late").unwrap();
    assert_eq!(place.end().ending, exited(0));
    assert_eq!(&place.stdout()[1..], ["got late"]);
}

#[test]
fn two_questions_at_once_and_one_after_are_answered_in_order() {
    let place = Place::new();
    let script = format!(
        "{ASK}; {ASK}; read -r a; read -r b; echo \"$a $b\"; {ASK}; read -r c; echo \"$c\"; cat"
    );
    place.start(&place.talking(b"prompt\n", &script));
    wait_for("two questions", || (asks(&place) == 2).then_some(()));
    process::answer_question(&place.dir(), 2, "second").unwrap();
    process::answer_question(&place.dir(), 1, "first").unwrap();
    wait_for("the third", || (asks(&place) == 3).then_some(()));
    process::answer_question(&place.dir(), 3, "third").unwrap();
    assert_eq!(place.end().ending, exited(0));
    assert_eq!(&place.stdout()[2..3], ["first second"]);
    assert_eq!(place.stdout().last().unwrap(), "third");
}

#[test]
fn an_answer_of_two_lines_is_refused() {
    let place = Place::new();
    assert!(process::answer_question(&place.dir(), 1, "a\nb").is_err());
}
