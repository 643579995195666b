//! What the program says about itself: completions, manual pages, reference pages.
//!
//! Everything comes from the definitions the program runs by, so it cannot be out of date.
//! `plan_keys` holds the one table that is written for people only; a test compares it with the
//! reader of plans.

mod plan_keys;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use mainstem_api::exit_code;
use mainstem_core::config::keys::{KeyDoc, SettingKind, all_keys};
use mainstem_core::phase::PHASES;
use mainstem_host::files::write_atomic;

use crate::args::{CliArgs, ManArgs};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;
use plan_keys::{EPIC, PLAN, PlanKeyHelp, STEPS, TASK};

const NAME: &str = "mainstem";
const GENERATED: &str =
    "<!-- Written by `cargo xtask gen` from the program itself. Do not edit. -->\n\n";

pub(crate) fn cmd_completions(shell: clap_complete::Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible_command(), NAME, &mut script);
    output::write_stdout(&String::from_utf8_lossy(&script))?;
    Ok(exit_code::OK)
}

/// The manual page, or all of them into a folder.
pub(crate) fn cmd_man(context: &CliContext, args: &ManArgs) -> CommandResult {
    let mut root = visible_command();
    root.build();
    let Some(dir) = &args.dir else {
        output::write_stdout(&man_page(&root, NAME)?)?;
        return Ok(exit_code::OK);
    };
    let dir = context.resolve_path(dir);
    fs::create_dir_all(&dir)
        .map_err(|error| CliError::io_error(format!("cannot create {}", dir.display()), &error))?;
    let mut written = 0;
    for (words, command) in list_commands(&root) {
        let name = words.join("-");
        save_page(&dir.join(format!("{name}.1")), &man_page(&command, &name)?)?;
        written += 1;
    }
    output::write_stderr(&format!("wrote {written} pages to {}", dir.display()));
    Ok(exit_code::OK)
}

/// All pages of `docs/reference`.
pub(crate) fn write_reference(dir: &Path) -> CommandResult {
    fs::create_dir_all(dir)
        .map_err(|error| CliError::io_error(format!("cannot create {}", dir.display()), &error))?;
    let pages = [
        ("commands.md", commands_page()),
        ("configuration.md", configuration_page()),
        ("exit-codes.md", exit_codes_page()),
        ("plan.md", plan_page()),
    ];
    for (name, text) in pages {
        save_page(&dir.join(name), &format!("{GENERATED}{text}"))?;
    }
    Ok(exit_code::OK)
}

fn save_page(path: &Path, text: &str) -> Result<(), CliError> {
    write_atomic(path, text.as_bytes())
        .map_err(|error| CliError::io_error(format!("cannot write {}", path.display()), &error))
}

fn man_page(command: &Command, name: &str) -> Result<String, CliError> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name)
        .render(&mut text)
        .map_err(|error| CliError::io_error("cannot create the manual page", &error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The command line without the commands that only the program itself uses.
fn visible_command() -> Command {
    let full = CliArgs::command();
    let shown = full.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut command = Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .args(full.get_arguments().cloned())
        .subcommands(shown);
    if let Some(about) = full.get_about() {
        command = command.about(about.clone());
    }
    if let Some(about) = full.get_long_about() {
        command = command.long_about(about.clone());
    }
    if let Some(help) = full.get_after_help() {
        command = command.after_help(help.clone());
    }
    command
}

/// Every command with the words that lead to it, parents first.
fn list_commands(root: &Command) -> Vec<(Vec<String>, Command)> {
    let mut found = Vec::new();
    let mut todo = vec![(vec![NAME.to_owned()], root.clone())];
    while let Some((words, command)) = todo.pop() {
        let inner: Vec<_> = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
            .map(|inner| {
                let mut words = words.clone();
                words.push(inner.get_name().to_owned());
                (words, inner.clone())
            })
            .collect();
        todo.extend(inner.into_iter().rev());
        found.push((words, command));
    }
    found
}

fn commands_page() -> String {
    let mut root = visible_command();
    root.build();
    let mut out = String::from("# Commands\n");
    for (words, command) in list_commands(&root) {
        let top = words.len() == 1;
        if !top {
            let _ = write!(out, "\n## `{}`\n", words.join(" "));
        }
        if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
            let _ = write!(out, "\n{}\n", help_paragraphs(&about.to_string()));
        }
        let _ = write!(out, "\n```text\n{}\n```\n", usage_text(&words, &command));
        let mut args: Vec<&Arg> = command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && (top || !arg.is_global_set()))
            .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
            .collect();
        args.sort_by_key(|arg| !arg.is_positional());
        if !args.is_empty() {
            let head = if top { "options of every command" } else { "argument" };
            let _ = write!(out, "\n| {head} | meaning |\n|---|---|\n");
            args.iter().for_each(|arg| out.push_str(&argument_text(arg)));
        }
    }
    out.push_str("\nSee also: [exit codes](exit-codes.md).\n");
    out
}

fn usage_text(words: &[String], command: &Command) -> String {
    let mut text = words.join(" ");
    for arg in command.get_arguments().filter(|arg| arg.is_positional()) {
        let name = value_name(arg);
        let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1)
            || matches!(arg.get_action(), clap::ArgAction::Append);
        let dots = if many { "…" } else { "" };
        let shown = if arg.is_required_set() {
            format!(" <{name}>{dots}")
        } else {
            format!(" [{name}]{dots}")
        };
        text.push_str(&shown);
    }
    let either = command.is_args_conflicts_with_subcommands_set();
    let commands = command.get_subcommands().any(|inner| inner.get_name() != "help");
    if commands && !either {
        text.push_str(" <command>");
    }
    let own = |arg: &&Arg| {
        !arg.is_positional()
            && !arg.is_global_set()
            && !["help", "version"].contains(&arg.get_id().as_str())
    };
    if words.len() == 1 || command.get_arguments().any(|arg| own(&arg)) {
        text.push_str(" [options]");
    }
    if commands && either {
        text.push_str(&format!("\n{} <command>", words.join(" ")));
    }
    text
}

fn value_name(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some([name, ..]) => name.to_string(),
        _ => arg.get_id().as_str().to_ascii_uppercase(),
    }
}

fn argument_text(arg: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut shown = names.join(", ");
    if arg.is_positional() {
        shown = value_name(arg);
    } else if arg.get_action().takes_values() {
        let _ = write!(shown, " {}", value_name(arg));
    }
    let mut meaning =
        arg.get_help().map(|help| help_paragraphs(&help.to_string())).unwrap_or_default();
    let choices = arg.get_possible_values();
    if arg.get_action().takes_values() && !choices.is_empty() {
        let words: Vec<String> = choices
            .iter()
            .filter(|choice| !choice.is_hide_set())
            .map(|choice| match choice.get_help() {
                Some(help) => format!("`{}` ({help})", choice.get_name()),
                None => format!("`{}`", choice.get_name()),
            })
            .collect();
        let _ = write!(meaning, " One of {}.", words.join(", "));
    }
    let default: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !default.is_empty() {
        let _ = write!(meaning, " Default: `{}`.", default.join(","));
    }
    format!("| `{shown}` | {} |\n", table_cell(&meaning))
}

/// Help as one paragraph per paragraph, whole sentences.
fn help_paragraphs(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?', ':']) || text.is_empty() {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

fn table_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn configuration_page() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         Settings are read from these places, highest precedence first: `--config KEY=VALUE`, \
         environment variables, `mainstem.toml` (in the current folder or the nearest parent inside \
         the repository), `$XDG_CONFIG_HOME/mainstem/config.toml`, and the defaults below. \
         `mainstem config` prints every value and where it was set.\n\n\
         The environment variable of a key is `MAINSTEM_` plus the key in capitals, with `_` for \
         `.`: `MAINSTEM_RUN_JOBS=4`. Separate list items with commas, or write lists as TOML.\n",
    );
    let mut section = "";
    for doc in all_keys() {
        let own = doc.key.rsplit_once('.').map_or("", |(section, _)| section);
        if own != section {
            section = own;
            let name = section.replace('*', "NAME");
            let _ = write!(
                out,
                "\n## `[{name}]`\n\n| key | takes | default | meaning |\n|---|---|---|---|\n"
            );
        }
        let key = doc.key.rsplit('.').next().unwrap_or(doc.key);
        let default =
            if doc.default.is_empty() { "–".to_owned() } else { format!("`{}`", doc.default) };
        let _ = writeln!(
            out,
            "| `{key}` | {} | {default} | {} |",
            table_cell(&accepted_values(doc)),
            table_cell(doc.doc)
        );
    }
    out
}

fn accepted_values(doc: &KeyDoc) -> String {
    match doc.kind {
        SettingKind::Choice => {
            doc.choices.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        SettingKind::Int { min, max } => format!("{min} to {max}"),
        SettingKind::IntOrAuto { min, max } => format!("{min} to {max}, or `auto`"),
        kind => kind.describe().to_owned(),
    }
}

fn exit_codes_page() -> String {
    let mut out = String::from(
        "# Exit codes\n\nEvery command exits with one of these codes.\n\n| code | meaning |\n|---|---|\n",
    );
    for (code, meaning) in exit_code::ALL {
        let _ = writeln!(out, "| {code} | {meaning} |");
    }
    out.push_str("\n## Task phases\n\nThe same words are used in messages and in JSON:\n");
    let words: Vec<String> = PHASES.iter().map(|phase| format!("`{}`", phase.as_str())).collect();
    let _ = writeln!(out, "{}.", words.join(", "));
    out
}

fn plan_page() -> String {
    let mut out = String::from(
        "# Plan\n\n\
         A plan is one TOML, YAML or JSON file, recognized by its extension. The keys are the same in \
         all three formats. An unknown key is an error. `mainstem plan check FILE` reports all errors \
         at once. The [guide](../guide/plans.md) explains how to write a plan.\n",
    );
    let mut table = |title: &str, keys: &[PlanKeyHelp]| {
        let _ =
            write!(out, "\n## {title}\n\n| key | takes | default | meaning |\n|---|---|---|---|\n");
        for help in keys {
            let default = if help.default.is_empty() {
                "–".to_owned()
            } else {
                format!("`{}`", help.default)
            };
            let _ = writeln!(
                out,
                "| `{}` | {} | {default} | {} |",
                help.key,
                table_cell(help.takes),
                table_cell(help.doc)
            );
        }
    };
    table("The file", PLAN);
    table("`[[epic]]`", EPIC);
    table("`[[task]]`", TASK);
    let _ = write!(
        out,
        "\n## Steps of `script`\n\nThe built-in script agent runs these steps in order. Each step is a table \
         such as `{{ write = \"a.txt\", text = \"hello\" }}`.\n\n| step | with | does |\n|---|---|---|\n"
    );
    for step in STEPS {
        let with = if step.takes.is_empty() { "–" } else { step.takes };
        let _ =
            writeln!(out, "| `{}` | {} | {} |", step.key, table_cell(with), table_cell(step.doc));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_hides_what_is_ours() {
        visible_command().debug_assert();
        CliArgs::command().debug_assert();
        let page = commands_page();
        assert!(page.contains("## `mainstem plan check`") && !page.contains("__"), "{page}");
    }

    #[test]
    fn pages_come_out_the_same_each_time() {
        assert_eq!(commands_page(), commands_page());
        assert!(all_keys().all(|doc| configuration_page().contains(doc.doc)));
    }
}
