//! `gates import`: prints another tool's gate file as gates of ours.

use std::fmt::Write as _;

use mainstem_api::exit_code;
use mainstem_core::plan::document::DocumentFormat;
use mainstem_planner::gate_import::{GateFile, GateFileError, GateOptions, read_gate_file};

use crate::args::{GatesCommand, GatesImportArgs};
use crate::commands::plan_formats::files::read_text;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

pub(crate) fn cmd_gates(context: &CliContext, command: &GatesCommand) -> CommandResult {
    match command {
        GatesCommand::Import(args) => cmd_gates_import(context, args),
    }
}

fn cmd_gates_import(context: &CliContext, args: &GatesImportArgs) -> CommandResult {
    let path = context.resolve_path(&args.file);
    let name = path.display().to_string();
    let format = DocumentFormat::from_path(&name).ok_or_else(|| {
        CliError::usage_error(format!("{name}: unknown file format"))
            .with_hint("use a .yaml, .json or .toml file")
    })?;
    let source = read_text(&path, &name)?;
    let options = GateOptions {
        commands: args.accept_commands,
        recommended: args.recommended,
        metrics: args.metrics.as_deref(),
        phase: args.phase.as_deref(),
    };
    let file = read_gate_file(&source, format, &options)
        .map_err(|error| gate_file_error(&name, &error))?;
    if context.global.json {
        let taken: Vec<_> = file
            .taken
            .iter()
            .map(|(check, gate)| serde_json::json!({ "check": check, "gate": gate }))
            .collect();
        output::write_json(&serde_json::json!({
            "name": file.name, "verify": file.gates, "taken": taken,
            "by_hand": file.by_hand, "left_out": file.left_out,
        }))?;
        return Ok(exit_code::OK);
    }
    output::write_stdout(&gates_toml(&file))?;
    if !context.global.quiet {
        output::write_stderr(gates_report(&file).trim_end());
    }
    Ok(exit_code::OK)
}

fn gate_file_error(name: &str, error: &GateFileError) -> CliError {
    let failure = CliError::new(format!("{name}: {error}"));
    match error {
        GateFileError::Syntax(faults) => match faults.first() {
            Some(fault) => failure.with_hint(format!("line {}: {}", fault.line, fault.message)),
            None => failure,
        },
        GateFileError::NoGates | GateFileError::NoPhase(_) => failure,
    }
}

fn gates_toml(file: &GateFile) -> String {
    let mut text = format!("# From {}\n[gates]\nverify = [\n", output::sanitize_text(&file.name));
    for gate in &file.gates {
        let _ = writeln!(text, "    {},", toml::Value::String(gate.clone()));
    }
    text.push_str("]\n");
    text
}

fn gates_report(file: &GateFile) -> String {
    let mut text = String::new();
    for (check, gate) in &file.taken {
        let _ = writeln!(text, "imported  {check}: {gate}");
    }
    for check in &file.by_hand {
        let _ = writeln!(text, "manual    {check}");
    }
    for note in &file.left_out {
        let _ = writeln!(text, "skipped   {note}");
    }
    let _ =
        writeln!(text, "Copy these lines to [gates] in mainstem.toml, or to `verify` of a task.");
    text.lines().map(|line| format!("{}\n", output::sanitize_text(line))).collect()
}
