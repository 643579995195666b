//! The first page of help: commands in groups, and what is said to whoever types nothing or something unknown.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use mainstem_api::actions::VersionReport;
use mainstem_api::exit_code;

use crate::args::CliArgs;
use crate::output;

/// Groups of commands, in the order in which a new user needs them. What is in none is listed with the last.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["demo", "init", "plan", "run", "do", "add"]),
    (
        "Look",
        &[
            "status", "watch", "show", "logs", "diff", "train", "graph", "history", "runs", "cost",
            "report", "explain", "lessons", "top", "serve",
        ],
    ),
    (
        "Steer",
        &[
            "questions",
            "answer",
            "tell",
            "pause",
            "resume",
            "stop",
            "cancel",
            "skip",
            "jobs",
            "proposals",
            "accept",
            "reject",
            "land",
            "merge",
        ],
    ),
    ("Recover", &["retry", "shell", "open", "attach", "restore", "undo"]),
    ("Maintain", &["doctor", "agents", "config", "clean", "gates", "worker", "completions", "man"]),
];

/// The command line with grouped help.
pub(crate) fn build_command() -> clap::Command {
    let command = CliArgs::command();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\
         \nOptions:\n{{options}}{{after-help}}",
        grouped_commands(&command)
    );
    command.help_template(template)
}

/// Reads the command line; prints help, version or what is wrong with it and gives the exit code otherwise.
pub(crate) fn parse_args(args: impl Iterator<Item = OsString>) -> Result<CliArgs, u8> {
    let parsed = build_command()
        .try_get_matches_from(args)
        .and_then(|matches| CliArgs::from_arg_matches(&matches));
    parsed.map_err(|error| {
        match error.kind() {
            // Nothing was asked for: what there is to ask for is the answer.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
                if std::env::args_os().len() < 2 =>
            {
                let _ = output::write_stdout(&build_command().render_help().to_string());
                return exit_code::OK;
            }
            ErrorKind::InvalidSubcommand => {
                if let Some(better) = suggest_command(&error) {
                    output::write_stderr(&better);
                    return exit_code::USAGE;
                }
            }
            ErrorKind::DisplayVersion if std::env::args_os().any(|arg| arg == "--json") => {
                let version = VersionReport {
                    name: env!("CARGO_PKG_NAME").to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                };
                let _ = output::write_json(&version);
                return exit_code::OK;
            }
            _ => {}
        }
        let _ = error.print();
        // Help and version are data, not errors.
        if error.use_stderr() { exit_code::USAGE } else { exit_code::OK }
    })
}

/// Commands of other tools, and ours for the same thing.
const ELSEWHERE: &[(&str, &str)] = &[
    ("start", "run"),
    ("kill", "stop"),
    ("abort", "cancel"),
    ("tail", "logs -f"),
    ("edit", "open"),
    ("ssh", "shell"),
    ("exec", "shell"),
    ("queue", "train"),
    ("revert", "undo"),
    ("uninstall", "clean --everything"),
    ("check", "plan check"),
    ("new", "init"),
];

fn suggest_command(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (_, ours) = ELSEWHERE.iter().find(|(theirs, _)| theirs == typed)?;
    Some(format!("error: unknown command `{typed}`\n  help: did you mean `mainstem {ours}`?"))
}

fn grouped_commands(command: &clap::Command) -> String {
    let listed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let visible = |sub: &&clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
    let mut text = String::new();
    for (n, (title, names)) in GROUPS.iter().enumerate() {
        let mut subs: Vec<&clap::Command> =
            names.iter().filter_map(|name| command.find_subcommand(name)).filter(visible).collect();
        if n + 1 == GROUPS.len() {
            subs.extend(
                command.get_subcommands().filter(visible).filter(|s| !listed(s.get_name())),
            );
        }
        let _ = writeln!(text, "{title}:");
        for sub in subs {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let about = about.trim_end_matches('.');
            let _ = writeln!(text, "  {:<12} {about}", sub.get_name());
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_once_in_a_group_and_internal_ones_in_none() {
        let command = CliArgs::command();
        let text = grouped_commands(&command);
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let line = format!("\n  {:<12} ", sub.get_name());
            let times = text.matches(&line).count();
            assert_eq!(times, usize::from(!sub.is_hide_set()), "{}", sub.get_name());
        }
    }

    #[test]
    fn summaries_fit_a_narrow_terminal() {
        for line in grouped_commands(&CliArgs::command()).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
