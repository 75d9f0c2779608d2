//! Postern, a door that the owner of a project opens from the inside, so that an AI agent hosted elsewhere can work in it.
//!
//! This crate is the command line and the composition: it alone knows every other crate, opens what they need and hands
//! it to them. It decides nothing about calls.

mod certificates;
mod checkpoint;
mod cli;
mod command;
mod config;
mod data_dir;
mod entrance;
mod error;
#[cfg(feature = "fault-points")]
mod fault_points;
mod figures;
mod net;
mod notice;
mod output;
mod project;
mod remote;
mod services;
mod signals;
mod worker;

use std::process::ExitCode;

use crate::{
    config::{Parsed, Problem},
    error::Error,
};

/// Runs the program with the arguments of this process, to its end.
#[must_use]
pub fn run() -> ExitCode {
    // Processes around commands and files start often and must stay tiny: they never reach the argument parser.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == worker::WRAPPER => return postern_exec::wrapper_main(arguments),
        Some(first) if first == services::DECODER => {
            return postern_filesystem::decode_main(arguments);
        }
        _ => {}
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match config::parse(&arguments) {
        Ok(Parsed::Run(cli)) => cli,
        Ok(Parsed::Dump(text)) => {
            output::text_line(&text);
            return ExitCode::from(error::DONE);
        }
        Err(Problem::Config(problem)) => return fail(&problem),
        Err(Problem::CommandLine(problem)) => {
            let code = if problem.use_stderr() {
                error::USAGE
            } else {
                error::DONE
            };
            // A closed terminal leaves nowhere to say so.
            let _ = problem.print();
            return ExitCode::from(code);
        }
    };
    let log = cli.log.as_deref().or(cli.command.draws().then_some("off"));
    postern_kit::telemetry::init(cli.log_format.into(), log);
    // Dropped last, also while a panic unwinds: what waits to be exported is sent then.
    let _exporting = cli.command.service().map(postern_kit::telemetry::export);
    match command::run(*cli) {
        Ok(()) => ExitCode::from(error::DONE),
        Err(problem) => fail(&problem),
    }
}

/// As [`run`], with one command more: `fault-points` lists the fault points, one a line.
#[cfg(feature = "fault-points")]
#[must_use]
pub fn run_with_fault_points() -> ExitCode {
    if std::env::args_os().nth(1).as_deref() != Some("fault-points".as_ref()) {
        return run();
    }
    let tables = [
        fault_points::ALL,
        postern_edge::FAULT_POINTS,
        postern_exec::FAULT_POINTS,
        postern_filesystem::FAULT_POINTS,
        postern_host::FAULT_POINTS,
        postern_identity::FAULT_POINTS,
        postern_ledger::FAULT_POINTS,
        postern_policy::FAULT_POINTS,
    ];
    for point in tables.concat() {
        output::text_line(point);
    }
    ExitCode::from(error::DONE)
}

fn fail(problem: &Error) -> ExitCode {
    output::complain(problem);
    ExitCode::from(problem.exit_code())
}
