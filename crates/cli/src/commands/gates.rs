//! `gates import`: prints another tool's gate file as gates of ours.

use std::fmt::Write as _;

use mainstem_api::exit_code;
use mainstem_core::plan::doc::Format;
use mainstem_planner::gates::{GateFile, GateFileError, GateOptions, read};

use crate::args::{GatesCommand, GatesImportArgs};
use crate::commands::formats::files::read_text;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

/// `gates`
pub(crate) fn gates(context: &Context, command: &GatesCommand) -> Outcome {
    match command {
        GatesCommand::Import(args) => import(context, args),
    }
}

fn import(context: &Context, args: &GatesImportArgs) -> Outcome {
    let path = context.path(&args.file);
    let name = path.display().to_string();
    let format = Format::from_path(&name).ok_or_else(|| {
        Failure::usage(format!("{name}: unknown file format"))
            .hint("use a .yaml, .json or .toml file")
    })?;
    let source = read_text(&path, &name)?;
    let options = GateOptions {
        commands: args.accept_commands,
        recommended: args.recommended,
        metrics: args.metrics.as_deref(),
        phase: args.phase.as_deref(),
    };
    let file = read(&source, format, &options).map_err(|error| refused(&name, &error))?;
    if context.global.json {
        let taken: Vec<_> = file
            .taken
            .iter()
            .map(|(check, gate)| serde_json::json!({ "check": check, "gate": gate }))
            .collect();
        print::out_json(&serde_json::json!({
            "name": file.name, "verify": file.gates, "taken": taken,
            "by_hand": file.by_hand, "left_out": file.left_out,
        }))?;
        return Ok(exit_code::OK);
    }
    print::out(&as_toml(&file))?;
    if !context.global.quiet {
        print::err(report(&file).trim_end());
    }
    Ok(exit_code::OK)
}

fn refused(name: &str, error: &GateFileError) -> Failure {
    let failure = Failure::new(format!("{name}: {error}"));
    match error {
        GateFileError::Syntax(faults) => match faults.first() {
            Some(fault) => failure.hint(format!("line {}: {}", fault.line, fault.message)),
            None => failure,
        },
        GateFileError::NoGates | GateFileError::NoPhase(_) => failure,
    }
}

fn as_toml(file: &GateFile) -> String {
    let mut text = format!("# From {}\n[gates]\nverify = [\n", print::harmless(&file.name));
    for gate in &file.gates {
        let _ = writeln!(text, "    {},", toml::Value::String(gate.clone()));
    }
    text.push_str("]\n");
    text
}

fn report(file: &GateFile) -> String {
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
    text.lines().map(|line| format!("{}\n", print::harmless(line))).collect()
}
