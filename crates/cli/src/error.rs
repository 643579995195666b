//! Errors as people and scripts see them: what, where, the command that helps, an exit code.

use std::fmt::Write as _;

use annotate_snippets::{AnnotationKind, Group, Level, Origin as SnippetOrigin, Renderer, Snippet};
use mainstem_api::actions::{ErrorDiagnostic, ErrorReport};
use mainstem_api::exit_code;
use mainstem_core::diagnostic::Diagnostic;
use mainstem_core::machine::CommandRefusal;
use mainstem_engine::accepted_files::AcceptedFilesError;
use mainstem_engine::branch_landing::BranchLandingError;
use mainstem_engine::client::ClientError;
use mainstem_engine::instance::EngineError;
use mainstem_engine::maintenance::UndoError;
use mainstem_engine::prompt_template::PromptTemplateLoadError;
use mainstem_engine::query::RunLookupError;
use mainstem_host::git::GitError;

/// Something went wrong, ready to be shown.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) code: u8,
    /// What, in one sentence.
    pub(crate) message: String,
    /// Why, from near to far.
    pub(crate) causes: Vec<String>,
    /// Lines shown as they are, between the message and what helps.
    pub(crate) detail: Vec<String>,
    pub(crate) hints: Vec<String>,
    /// Places in a text that a person wrote.
    pub(crate) places: Box<[CliErrorSource]>,
}

/// Everything wrong with one text.
#[derive(Debug)]
pub(crate) struct CliErrorSource {
    pub(crate) file: String,
    pub(crate) source: String,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// What every command returns.
pub(crate) type CommandResult = Result<u8, CliError>;

impl CliError {
    /// One more place in a text that a person wrote.
    pub(crate) fn add_source(&mut self, place: CliErrorSource) {
        let mut places = std::mem::take(&mut self.places).into_vec();
        places.push(place);
        self.places = places.into_boxed_slice();
    }

    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            code: exit_code::ERROR,
            message: message.into(),
            causes: Vec::new(),
            detail: Vec::new(),
            hints: Vec::new(),
            places: Box::default(),
        }
    }

    pub(crate) fn usage_error(message: impl Into<String>) -> Self {
        Self { code: exit_code::USAGE, ..Self::new(message) }
    }

    /// The same with a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// A text with something wrong in it.
    pub(crate) fn source_error(
        file: impl Into<String>,
        source: String,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        let file = file.into();
        let count = diagnostics.len();
        let errors = if count == 1 { "1 error" } else { &format!("{count} errors") };
        let mut failure = Self::new(format!("{file}: {errors}"));
        failure.add_source(CliErrorSource { file, source, diagnostics });
        failure
    }

    /// Something the system refused.
    pub(crate) fn io_error(what: impl Into<String>, error: &std::io::Error) -> Self {
        let mut failure = Self::new(what);
        failure.causes.push(error.to_string());
        failure
    }

    pub(crate) fn render(&self, color: bool) -> String {
        let mut out = String::new();
        for place in &self.places {
            out.push_str(&place.render(color));
        }
        let (red, off) = if color { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(out, "{red}error{off}: {}", self.message);
        for cause in &self.causes {
            let _ = writeln!(out, "  cause: {cause}");
        }
        if !self.detail.is_empty() {
            let _ = writeln!(out);
            for line in &self.detail {
                let _ = writeln!(
                    out,
                    "{}",
                    format!("  {}", crate::output::sanitize_text(line)).trim_end()
                );
            }
            let _ = writeln!(out);
        }
        for hint in &self.hints {
            let _ = writeln!(out, "  help: {hint}");
        }
        out
    }

    /// The error for programs.
    pub(crate) fn report(&self) -> ErrorReport {
        let diagnostics = self
            .places
            .iter()
            .flat_map(|place| place.diagnostics.iter().map(|d| (&place.file, d)))
            .map(|(file, d)| ErrorDiagnostic {
                file: file.clone(),
                line: d.line as u64,
                column: d.column as u64,
                code: d.code.to_owned(),
                message: d.message.clone(),
                help: d.help.clone(),
            })
            .collect();
        ErrorReport {
            error: self.message.clone(),
            exit_code: self.code,
            causes: self.causes.clone(),
            detail: self.detail.clone(),
            help: self.hints.clone(),
            diagnostics,
        }
    }
}

/// Diagnostics drawn one below the other before the rest is only listed.
const DRAWN_MAX: usize = 50;

impl CliErrorSource {
    fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for d in self.diagnostics.iter().take(DRAWN_MAX) {
            let title = Level::ERROR.primary_title(d.message.as_str()).id(d.code);
            let span = drawable_span(&self.source, &d.span);
            let mut group = if span.is_empty() || self.source.is_empty() {
                Group::with_title(title)
                    .element(SnippetOrigin::path(self.file.as_str()).line(d.line))
            } else {
                let snippet = Snippet::source(self.source.as_str())
                    .path(self.file.as_str())
                    .annotation(AnnotationKind::Primary.span(span));
                Group::with_title(title).element(snippet)
            };
            if let Some(help) = &d.help {
                group = group.element(Level::HELP.message(help.as_str()));
            }
            out.push_str(&renderer.render(&[group]));
            out.push('\n');
        }
        if self.diagnostics.len() > DRAWN_MAX {
            let rest = self.diagnostics.len() - DRAWN_MAX;
            let _ = writeln!(out, "… and {rest} more in {}; --json lists them all", self.file);
        }
        out
    }
}

/// A span that can be drawn: inside the text, on character boundaries, on one line.
fn drawable_span(source: &str, span: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    let mut start = span.start.min(source.len());
    while !source.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = span.end.clamp(start, source.len());
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
    start..end.min(line_end).max(start)
}

impl From<GitError> for CliError {
    fn from(error: GitError) -> Self {
        let hint = match &error {
            GitError::NotARepo { .. } => Some("run git init, or use mainstem -C DIR"),
            GitError::NewerRepository { .. } => {
                Some("put a newer git first in PATH (a reftable needs git 2.45)")
            }
            _ => None,
        };
        let failure = Self::new(error.to_string());
        match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl From<CommandRefusal> for CliError {
    fn from(refusal: CommandRefusal) -> Self {
        let failure = Self::new(refusal.message);
        match refusal.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::Git(error) => error.into(),
            EngineError::Prompt(error) => error.into(),
            EngineError::Hub(ref hub) => {
                let failure = Self::new(error.to_string());
                hub.hint().into_iter().fold(failure, Self::with_hint)
            }
            EngineError::Upstream(ref upstream) => {
                let failure = Self::new(error.to_string());
                upstream.hint().into_iter().fold(failure, Self::with_hint)
            }
            EngineError::Target(ref target) => {
                let failure = Self::new(error.to_string());
                target.hint().into_iter().fold(failure, Self::with_hint)
            }
            EngineError::OtherRepository(ref state) => Self::new(error.to_string()).with_hint(format!(
                "restore this repository's own state, or move the folder away: mv '{0}' '{0}.other'",
                state.display()
            )),
            EngineError::RepositoryMoved(_) => {
                Self::new(error.to_string()).with_hint("continue at the new path: mainstem run")
            }
            EngineError::UnknownAgents(ref agents) => {
                let pids: Vec<String> =
                    agents.iter().filter_map(|a| a.pid).map(|pid| pid.to_string()).collect();
                let failure = Self::new(error.to_string())
                    .with_hint("restore the journal, or wait until these agents have ended");
                match pids.as_slice() {
                    [] => failure,
                    pids => failure.with_hint(format!("or stop these agents: kill {}", pids.join(" "))),
                }
            }
            EngineError::Owned { .. } => Self::new(error.to_string())
                .with_hint("watch that run: mainstem watch; stop it: mainstem stop")
                .with_hint("pause, cancel, retry, jobs and answer work while a run is active"),
            EngineError::Wall(error) => Self::new(error.to_string()).with_hint(error.help()),
            EngineError::Copied { ref state, .. } => {
                let folder = state.parent().unwrap_or(state).display();
                Self::new(error.to_string())
                    .with_hint("use the original, or delete the copied state to start over here:")
                    .with_hint(format!("rm -rf '{folder}'/mainstem '{folder}'/worktrees/mainstem-*"))
            }
            EngineError::Interrupted => {
                Self { code: exit_code::INTERRUPTED, ..Self::new(error.to_string()) }
            }
            EngineError::Unsigned(_) => Self::new(error.to_string())
                .with_hint("test signing: git commit-tree -S -m test HEAD^{tree}")
                .with_hint("unlock a key with a passphrase in gpg-agent or ssh-agent first")
                .with_hint("set land.sign = \"auto\" to land unsigned commits when signing fails"),
            EngineError::Unfinished(_) => Self::new(error.to_string())
                .with_hint("finish them: mainstem run; or drop them: mainstem cancel, then mainstem run"),
            EngineError::NoRun => Self::new(error.to_string())
                .with_hint("start one: mainstem run PLAN; or take a tour: mainstem demo"),
            EngineError::DropsStarted(ref tasks) => {
                let tasks = tasks.join(" ");
                Self::new(error.to_string())
                    .with_hint("to start a separate run with this plan: mainstem run --new PLAN")
                    .with_hint(format!("to drop them: mainstem cancel {tasks}, then mainstem run PLAN"))
            }
            other => Self::new(other.to_string()),
        }
    }
}

impl From<PromptTemplateLoadError> for CliError {
    fn from(error: PromptTemplateLoadError) -> Self {
        Self::new(error.to_string())
            .with_hint("see docs/guide/prompts.md for the template variables")
    }
}

impl From<AcceptedFilesError> for CliError {
    fn from(error: AcceptedFilesError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<RunLookupError> for CliError {
    fn from(error: RunLookupError) -> Self {
        match error {
            RunLookupError::Git(error) => error.into(),
            RunLookupError::Draft(error) => error.into(),
            other => Self::new(other.to_string()),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NoAnswer(ref cause) => {
                Self::io_error(error.to_string(), cause).with_hint("try again in a moment")
            }
            ClientError::Engine(error) => error.into(),
            ClientError::Refused { message, hint, .. } => {
                hint.into_iter().fold(Self::new(message), Self::with_hint)
            }
            ClientError::Journal(error) => Self::new(error.to_string()),
        }
    }
}

impl From<BranchLandingError> for CliError {
    fn from(error: BranchLandingError) -> Self {
        match error {
            BranchLandingError::Session(error) => error.into(),
            BranchLandingError::Git(error) => error.into(),
            other => {
                let failure = Self::new(other.to_string());
                other.hint().into_iter().fold(failure, Self::with_hint)
            }
        }
    }
}

impl From<UndoError> for CliError {
    fn from(error: UndoError) -> Self {
        match error {
            UndoError::Session(error) => error.into(),
            UndoError::Git(error) => error.into(),
            UndoError::Upstream(ref upstream) => {
                let failure = Self::new(error.to_string());
                upstream.hint().into_iter().fold(failure, Self::with_hint)
            }
            other => Self::new(other.to_string()),
        }
    }
}
