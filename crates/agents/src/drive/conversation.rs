//! A conversation with one tool: a protocol, and what is the same for all of them.
//!
//! Turns what a protocol says into a readable log, reports progress, and ends an agent that goes in
//! circles. Its log lines all begin with a bar, so that none can be taken for a line of the protocol.

use serde_json::Value;

use super::drive_line::DriveLine;
use super::failure_class::failure_line;
use super::loop_detector::{LoopAdvice, LoopDetector};
use super::{DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, find_protocol};
use crate::line_protocol::truncate_text;
use mainstem_core::fact::AgentFault;

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
pub enum DriveCommand {
    /// Write this line to the tool.
    Send(String),
    /// Close the tool's standard input.
    CloseInput,
    Print(String),
    /// The turn has ended; end the tool.
    End(TurnEnd),
}

pub struct ToolConversation {
    protocol: Box<dyn ToolProtocol>,
    repeats: LoopDetector,
    said_at: Option<u64>,
    doing: String,
    ended: bool,
    /// The tool tries again by itself: when its time is over, and what is said then.
    retries: Option<(u64, DriveLine)>,
    /// The line of its standard error that tells most.
    complained: String,
}

impl ToolConversation {
    /// A conversation as the spec has it; none if it names a protocol that there is not.
    pub fn new(spec: &DriveSpec, prompt: String) -> Option<Self> {
        Some(Self {
            protocol: find_protocol(spec, prompt)?,
            repeats: LoopDetector::default(),
            said_at: None,
            doing: String::new(),
            ended: false,
            retries: None,
            complained: String::new(),
        })
    }

    /// The tool has been started.
    pub fn handle_start(&mut self, now_ms: u64) -> Vec<DriveCommand> {
        let actions = self.protocol.handle_start();
        self.commands_for_actions(actions, now_ms)
    }

    /// A line of the tool's standard output. Anything that is not a JSON object is log.
    pub fn handle_stdout(&mut self, line: &[u8], now_ms: u64) -> Vec<DriveCommand> {
        let line = line.trim_ascii();
        if line.is_empty() || self.ended {
            return Vec::new();
        }
        let actions = match serde_json::from_slice::<Value>(line) {
            Ok(message @ Value::Object(_)) => self.protocol.handle_message(&message),
            _ => vec![ProtocolAction::Note(String::from_utf8_lossy(line).into_owned())],
        };
        let mut orders = self.commands_for_actions(actions, now_ms);
        if orders.is_empty() {
            // Lines that say nothing new still show that it lives.
            let doing = self.doing.clone();
            self.report_progress(&doing, "", now_ms, &mut orders);
        }
        orders
    }

    /// A line of the tool's standard error.
    pub fn handle_stderr(&mut self, line: &[u8], now_ms: u64) -> Vec<DriveCommand> {
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        if text.is_empty() || self.ended {
            return Vec::new();
        }
        self.keep_error_line(&text);
        let mut actions = self.protocol.handle_stderr(&text);
        actions.insert(0, ProtocolAction::Note(text));
        self.commands_for_actions(actions, now_ms)
    }

    /// Time has passed: a tool that only retries is not waited for without end.
    pub fn handle_tick(&mut self, now_ms: u64) -> Vec<DriveCommand> {
        let late = |(until, _): &mut (u64, DriveLine)| now_ms >= *until;
        match self.retries.take_if(late).filter(|_| !self.ended) {
            Some((_, line)) => self.commands_for_actions(
                vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)],
                now_ms,
            ),
            None => Vec::new(),
        }
    }

    /// Asks the tool to stop, if its protocol has a word for that.
    pub fn interrupt_turn(&mut self, now_ms: u64) -> Vec<DriveCommand> {
        let actions = self.protocol.interrupt_turn();
        self.commands_for_actions(actions, now_ms)
    }

    /// The tool is gone.
    pub fn handle_exit(&mut self, code: Option<i32>, now_ms: u64) -> Vec<DriveCommand> {
        if self.ended {
            return Vec::new();
        }
        let mut actions = self.protocol.handle_exit(code);
        for action in &mut actions {
            if let ProtocolAction::Emit(line) = action {
                self.add_error_line(line);
            }
        }
        if !actions.iter().any(|action| matches!(action, ProtocolAction::End(_))) {
            actions.push(ProtocolAction::End(TurnEnd::Failed));
        }
        self.commands_for_actions(actions, now_ms)
    }

    /// Of all that a tool complains about, the last line that is an error tells why it ended; the frames
    /// of a stack and closing brackets do not.
    fn keep_error_line(&mut self, text: &str) {
        let telling = text.len() > 2 && !text.starts_with(char::is_whitespace);
        let is_error = |text: &str| text.to_ascii_lowercase().contains("error");
        if telling && (is_error(text) || !is_error(&self.complained)) {
            truncate_text(text, COMPLAINT_BYTES).clone_into(&mut self.complained);
        }
    }

    /// A tool that ended in the middle of its turn: what it complained about is the reason.
    fn add_error_line(&self, line: &mut DriveLine) {
        let DriveLine::Failed { class, message, .. } = line else { return };
        if *class != AgentFault::Other || self.complained.is_empty() {
            return;
        }
        *message = format!("{message}: {}", self.complained);
        if REFUSED_OPTIONS.iter().any(|start| self.complained.starts_with(start)) {
            *class = AgentFault::Setup;
        }
    }

    fn commands_for_actions(
        &mut self,
        actions: Vec<ProtocolAction>,
        now_ms: u64,
    ) -> Vec<DriveCommand> {
        let mut orders = Vec::new();
        for action in actions {
            if self.ended {
                break;
            }
            self.command_for_action(action, now_ms, &mut orders);
        }
        orders
    }

    fn command_for_action(
        &mut self,
        action: ProtocolAction,
        now_ms: u64,
        orders: &mut Vec<DriveCommand>,
    ) {
        let usage = matches!(action, ProtocolAction::Emit(DriveLine::Usage { .. }));
        if usage
            || matches!(
                action,
                ProtocolAction::Text(_)
                    | ProtocolAction::Tool { .. }
                    | ProtocolAction::Outcome { .. }
            )
        {
            self.retries = None;
        }
        match action {
            ProtocolAction::Send(line) => orders.push(DriveCommand::Send(line)),
            ProtocolAction::CloseInput => orders.push(DriveCommand::CloseInput),
            ProtocolAction::Text(text) => {
                for line in text.trim_end().lines() {
                    orders.push(DriveCommand::Print(format!(
                        "{BAR}{}",
                        truncate_text(line, SAID_BYTES)
                    )));
                }
                self.report_progress(&text, "", now_ms, orders);
            }
            ProtocolAction::Tool { name, what } => {
                log_lines(orders, "", &format_tool_call(&name, &what), OUTCOME_LINES);
                self.report_progress(&what, &name, now_ms, orders);
            }
            ProtocolAction::Outcome { what, text, failed } => {
                let mark = if failed { "  ! " } else { "    " };
                log_lines(orders, mark, &text, OUTCOME_LINES);
                self.report_progress(&what, "", now_ms, orders);
                self.report_outcome(&what, &text, failed, orders);
            }
            ProtocolAction::Note(text) => log_lines(orders, "", &text, OUTCOME_LINES),
            ProtocolAction::Emit(line) => orders.push(DriveCommand::Print(line.to_json())),
            ProtocolAction::Retrying { line, patience_ms } => {
                let until = self.retries.take().map_or(now_ms + patience_ms, |(until, _)| until);
                self.retries = Some((until, line));
            }
            ProtocolAction::GotOn => self.retries = None,
            ProtocolAction::End(turn) => {
                self.ended = true;
                orders.push(DriveCommand::End(turn));
            }
        }
    }

    /// A word about what it does, as often as somebody may want to know.
    fn report_progress(
        &mut self,
        text: &str,
        tool: &str,
        now_ms: u64,
        orders: &mut Vec<DriveCommand>,
    ) {
        let text = truncate_text(text.lines().next().unwrap_or_default(), 200).to_owned();
        self.doing.clone_from(&text);
        if text.is_empty() || self.said_at.is_some_and(|at| now_ms.saturating_sub(at) < PROGRESS_MS)
        {
            return;
        }
        self.said_at = Some(now_ms);
        orders.push(DriveCommand::Print(
            DriveLine::Progress { text, tool: tool.to_owned() }.to_json(),
        ));
    }

    fn report_outcome(
        &mut self,
        what: &str,
        text: &str,
        bad: bool,
        orders: &mut Vec<DriveCommand>,
    ) {
        match self.repeats.record_outcome(what, text, bad) {
            LoopAdvice::GoOn => return,
            LoopAdvice::Nudge => {
                let words = self.protocol.send_guidance(NUDGE);
                if !words.is_empty() {
                    log_lines(orders, "", "the agent repeats itself; sent a warning", 1);
                    for action in words {
                        self.command_for_action(action, 0, orders);
                    }
                    return;
                }
            }
            LoopAdvice::GiveUp => {}
        }
        let message = format!("the agent repeated the same step: {}", truncate_text(what, 200));
        self.command_for_action(
            ProtocolAction::Emit(failure_line(AgentFault::Looping, &message)),
            0,
            orders,
        );
        self.command_for_action(ProtocolAction::End(TurnEnd::Failed), 0, orders);
    }
}

/// A call as it is shown: commands as in a shell, everything else by name.
fn format_tool_call(name: &str, what: &str) -> String {
    let shell = ["bash", "shell", "exec", "command", "run_shell_command"];
    let low = name.to_ascii_lowercase();
    if shell.iter().any(|word| low == *word || low.starts_with("exec") || low.ends_with("shell")) {
        format!("$ {what}")
    } else {
        format!("{name} {what}").trim_end().to_owned()
    }
}

fn log_lines(orders: &mut Vec<DriveCommand>, mark: &str, text: &str, lines_max: usize) {
    let mut lines = text.trim_end().lines();
    for line in lines.by_ref().take(lines_max) {
        orders
            .push(DriveCommand::Print(format!("{BAR}{mark}{}", truncate_text(line, SHOWN_BYTES))));
    }
    let more = lines.count();
    if more > 0 {
        orders.push(DriveCommand::Print(format!("{BAR}{mark}… {more} more lines")));
    }
}
