//! A conversation with one tool: a protocol, and what is the same for all of them.
//!
//! Turns what a protocol says into a readable log, reports progress, and ends an agent that goes in
//! circles. Its log lines all begin with a bar, so that none can be taken for a line of the protocol.

use serde_json::Value;

use super::blame::failed;
use super::line::Line;
use super::repeats::{Advice, Repeats};
use super::{Action, DriveSpec, Protocol, Turn, protocol};
use crate::lines::cut;
use mainstem_core::fact::Fault;

/// What every line of the log begins with.
const BAR: &str = "│ ";
/// Between two reports of progress that say nothing new.
const PROGRESS_MS: u64 = 10_000;
/// Lines of one outcome that are shown.
const OUTCOME_LINES: usize = 12;
/// Bytes of one line that are shown.
const SHOWN_BYTES: usize = 4_000;
/// Bytes of one line of what the model itself says: a planner's answer may be one long line of JSON.
const SAID_BYTES: usize = 512 * 1024;

/// Bytes of a complaint that are kept.
const COMPLAINT_BYTES: usize = 500;
/// How tools begin when they do not know an option that they were given: no further try helps.
const REFUSED_OPTIONS: [&str; 4] =
    ["error: option ", "error: unknown option", "error: unexpected argument", "Unknown argument"];

const NUDGE: &str = "You have done the same thing several times in a row with the same outcome. Stop repeating it: look at the problem from another side, or say what blocks you and finish.";

/// What the loop around a conversation has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Write this line to the tool.
    Send(String),
    /// Close the tool's standard input.
    CloseInput,
    /// Print this line.
    Print(String),
    /// The turn has ended; end the tool.
    End(Turn),
}

/// One conversation.
pub struct Talk {
    protocol: Box<dyn Protocol>,
    repeats: Repeats,
    said_at: Option<u64>,
    doing: String,
    ended: bool,
    /// The tool tries again by itself: when its time is over, and what is said then.
    retries: Option<(u64, Line)>,
    /// The line of its standard error that tells most.
    complained: String,
}

impl Talk {
    /// A conversation as the spec has it; none if it names a protocol that there is not.
    pub fn new(spec: &DriveSpec, prompt: String) -> Option<Self> {
        Some(Self {
            protocol: protocol(spec, prompt)?,
            repeats: Repeats::default(),
            said_at: None,
            doing: String::new(),
            ended: false,
            retries: None,
            complained: String::new(),
        })
    }

    /// The tool has been started.
    pub fn begin(&mut self, now_ms: u64) -> Vec<Order> {
        let actions = self.protocol.begin();
        self.orders(actions, now_ms)
    }

    /// A line of the tool's standard output. Anything that is not a JSON object is log.
    pub fn line(&mut self, line: &[u8], now_ms: u64) -> Vec<Order> {
        let line = line.trim_ascii();
        if line.is_empty() || self.ended {
            return Vec::new();
        }
        let actions = match serde_json::from_slice::<Value>(line) {
            Ok(message @ Value::Object(_)) => self.protocol.line(&message),
            _ => vec![Action::Note(String::from_utf8_lossy(line).into_owned())],
        };
        let mut orders = self.orders(actions, now_ms);
        if orders.is_empty() {
            // Lines that say nothing new still show that it lives.
            let doing = self.doing.clone();
            self.progress(&doing, "", now_ms, &mut orders);
        }
        orders
    }

    /// A line of the tool's standard error.
    pub fn complaint(&mut self, line: &[u8], now_ms: u64) -> Vec<Order> {
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        if text.is_empty() || self.ended {
            return Vec::new();
        }
        self.keep_complaint(&text);
        let mut actions = self.protocol.complaint(&text);
        actions.insert(0, Action::Note(text));
        self.orders(actions, now_ms)
    }

    /// Time has passed: a tool that only retries is not waited for without end.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Order> {
        let late = |(until, _): &mut (u64, Line)| now_ms >= *until;
        match self.retries.take_if(late).filter(|_| !self.ended) {
            Some((_, line)) => {
                self.orders(vec![Action::Emit(line), Action::End(Turn::Ill)], now_ms)
            }
            None => Vec::new(),
        }
    }

    /// Asks the tool to stop, if its protocol has a word for that.
    pub fn interrupt(&mut self, now_ms: u64) -> Vec<Order> {
        let actions = self.protocol.interrupt();
        self.orders(actions, now_ms)
    }

    /// The tool is gone.
    pub fn gone(&mut self, code: Option<i32>, now_ms: u64) -> Vec<Order> {
        if self.ended {
            return Vec::new();
        }
        let mut actions = self.protocol.gone(code);
        for action in &mut actions {
            if let Action::Emit(line) = action {
                self.explain(line);
            }
        }
        if !actions.iter().any(|action| matches!(action, Action::End(_))) {
            actions.push(Action::End(Turn::Ill));
        }
        self.orders(actions, now_ms)
    }

    /// Of all that a tool complains about, the last line that is an error tells why it ended; the frames
    /// of a stack and closing brackets do not.
    fn keep_complaint(&mut self, text: &str) {
        let telling = text.len() > 2 && !text.starts_with(char::is_whitespace);
        let is_error = |text: &str| text.to_ascii_lowercase().contains("error");
        if telling && (is_error(text) || !is_error(&self.complained)) {
            cut(text, COMPLAINT_BYTES).clone_into(&mut self.complained);
        }
    }

    /// A tool that ended in the middle of its turn: what it complained about is the reason.
    fn explain(&self, line: &mut Line) {
        let Line::Failed { class, message, .. } = line else { return };
        if *class != Fault::Other || self.complained.is_empty() {
            return;
        }
        *message = format!("{message}: {}", self.complained);
        if REFUSED_OPTIONS.iter().any(|start| self.complained.starts_with(start)) {
            *class = Fault::Setup;
        }
    }

    fn orders(&mut self, actions: Vec<Action>, now_ms: u64) -> Vec<Order> {
        let mut orders = Vec::new();
        for action in actions {
            if self.ended {
                break;
            }
            self.order(action, now_ms, &mut orders);
        }
        orders
    }

    fn order(&mut self, action: Action, now_ms: u64, orders: &mut Vec<Order>) {
        let usage = matches!(action, Action::Emit(Line::Usage { .. }));
        if usage || matches!(action, Action::Text(_) | Action::Tool { .. } | Action::Outcome { .. })
        {
            self.retries = None;
        }
        match action {
            Action::Send(line) => orders.push(Order::Send(line)),
            Action::CloseInput => orders.push(Order::CloseInput),
            Action::Text(text) => {
                for line in text.trim_end().lines() {
                    orders.push(Order::Print(format!("{BAR}{}", cut(line, SAID_BYTES))));
                }
                self.progress(&text, "", now_ms, orders);
            }
            Action::Tool { name, what } => {
                log(orders, "", &call(&name, &what), OUTCOME_LINES);
                self.progress(&what, &name, now_ms, orders);
            }
            Action::Outcome { what, text, failed } => {
                let mark = if failed { "  ! " } else { "    " };
                log(orders, mark, &text, OUTCOME_LINES);
                self.progress(&what, "", now_ms, orders);
                self.outcome(&what, &text, failed, orders);
            }
            Action::Note(text) => log(orders, "", &text, OUTCOME_LINES),
            Action::Emit(line) => orders.push(Order::Print(line.to_json())),
            Action::Retrying { line, patience_ms } => {
                let until = self.retries.take().map_or(now_ms + patience_ms, |(until, _)| until);
                self.retries = Some((until, line));
            }
            Action::GotOn => self.retries = None,
            Action::End(turn) => {
                self.ended = true;
                orders.push(Order::End(turn));
            }
        }
    }

    /// A word about what it does, as often as somebody may want to know.
    fn progress(&mut self, text: &str, tool: &str, now_ms: u64, orders: &mut Vec<Order>) {
        let text = cut(text.lines().next().unwrap_or_default(), 200).to_owned();
        self.doing.clone_from(&text);
        if text.is_empty() || self.said_at.is_some_and(|at| now_ms.saturating_sub(at) < PROGRESS_MS)
        {
            return;
        }
        self.said_at = Some(now_ms);
        orders.push(Order::Print(Line::Progress { text, tool: tool.to_owned() }.to_json()));
    }

    fn outcome(&mut self, what: &str, text: &str, bad: bool, orders: &mut Vec<Order>) {
        match self.repeats.outcome(what, text, bad) {
            Advice::GoOn => return,
            Advice::Nudge => {
                let words = self.protocol.steer(NUDGE);
                if !words.is_empty() {
                    log(orders, "", "the agent repeats itself; sent a warning", 1);
                    for action in words {
                        self.order(action, 0, orders);
                    }
                    return;
                }
            }
            Advice::GiveUp => {}
        }
        let message = format!("the agent repeated the same step: {}", cut(what, 200));
        self.order(Action::Emit(failed(Fault::Looping, &message)), 0, orders);
        self.order(Action::End(Turn::Ill), 0, orders);
    }
}

/// A call as it is shown: commands as in a shell, everything else by name.
fn call(name: &str, what: &str) -> String {
    let shell = ["bash", "shell", "exec", "command", "run_shell_command"];
    let low = name.to_ascii_lowercase();
    if shell.iter().any(|word| low == *word || low.starts_with("exec") || low.ends_with("shell")) {
        format!("$ {what}")
    } else {
        format!("{name} {what}").trim_end().to_owned()
    }
}

fn log(orders: &mut Vec<Order>, mark: &str, text: &str, lines_max: usize) {
    let mut lines = text.trim_end().lines();
    for line in lines.by_ref().take(lines_max) {
        orders.push(Order::Print(format!("{BAR}{mark}{}", cut(line, SHOWN_BYTES))));
    }
    let more = lines.count();
    if more > 0 {
        orders.push(Order::Print(format!("{BAR}{mark}… {more} more lines")));
    }
}
