//! One module a command; this one chooses.

mod certs;
mod doctor;
mod edge;
mod healthcheck;
mod host;
mod host_api;
mod ledger;
mod mcp;
mod owner;
mod policy;
mod receipts;
mod reference;
mod serve;
mod session;
mod up;
mod watch;

use std::future::Future;

use crate::{
    cli::{Cli, Command, Serve},
    error::Error,
};

/// Runs the command.
pub(crate) fn run(cli: Cli) -> Result<(), Error> {
    let json = cli.json;
    match cli.command {
        Command::Up(arguments) => block_on(Threads::Several, up::run(arguments, json)),
        Command::Host(arguments) => block_on(Threads::Several, host::run(arguments, json)),
        Command::Edge(arguments) => block_on(Threads::Several, edge::run(*arguments, json)),
        // A worker spends its time in threads of its own; its process stays small.
        Command::Serve(service @ Serve::Exec(_)) => {
            block_on(Threads::One, serve::run(service, json))
        }
        Command::Serve(service) => block_on(Threads::Several, serve::run(service, json)),
        Command::Certs(action) => certs::run(action, json),
        Command::Healthcheck(arguments) => {
            block_on(Threads::One, healthcheck::run(arguments, json))
        }
        Command::Workspace(arguments) => host_api::workspace(arguments),
        Command::Launch(arguments) => host_api::launch(arguments),
        Command::Token(arguments) => host_api::token(arguments),
        Command::Mcp(arguments) => block_on(Threads::Several, mcp::run(arguments)),
        Command::Console(arguments) => owner::console(&arguments, json),
        Command::Inbox(arguments) => owner::inbox(arguments, json),
        Command::Receipts(arguments) => block_on(Threads::One, receipts::run(arguments, json)),
        Command::Ledger(arguments) => block_on(Threads::One, ledger::run(arguments, json)),
        Command::Session(arguments) => session::run(arguments, json),
        Command::Mode(arguments) => owner::mode(&arguments, json),
        Command::Watch(arguments) => watch::run(&arguments, json),
        Command::Policy(arguments) => policy::run(&arguments, json),
        Command::Reference(arguments) => reference::run(&arguments),
        Command::Doctor(arguments) => block_on(Threads::One, doctor::run(arguments, json)),
    }
}

/// Threads that run tasks.
#[derive(Clone, Copy)]
enum Threads {
    One,
    Several,
}

fn block_on(
    threads: Threads,
    future: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Several => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|problem| Error::failed("cannot start", problem))?;
    let outcome = runtime.block_on(future);
    // What still blocks here (a console read, a slow disk) must not hold the exit.
    runtime.shutdown_background();
    outcome
}
