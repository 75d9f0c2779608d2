//! The worker as its callers see it: real shells, real processes, real signals.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod attacker;
mod attacks;
mod blind;
mod endings;
mod harness;
mod limits;
mod listing;
mod output;
mod pipe;
mod receipts;
mod sandbox;
mod sandbox_limits;
mod sandbox_workers;
mod starting;
mod typing;
mod workers;

use std::{ffi::OsString, process::exit};

/// Not a test: the process that the tests' workers run as their wrapper.
#[test]
#[ignore = "run by the other tests"]
fn wrapper_process() {
    let args = std::env::args_os().skip_while(|arg| arg != "--").skip(1);
    let code = postern_exec::wrapper_main(args.collect::<Vec<OsString>>());
    exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

/// Not a test: a wrapper in as many sandboxes as the kernel nests, so that it cannot take another.
#[test]
#[ignore = "run by the other tests"]
fn nested_wrapper_process() {
    sandbox_limits::nest();
    wrapper_process();
}

/// Not a test: a worker in a process of its own, for the tests that kill it.
#[test]
#[ignore = "run by the other tests"]
fn worker_process() {
    workers::serve();
}

/// Not a test: what a command runs that attacks by system calls.
#[test]
#[ignore = "run by the other tests"]
fn attack_process() {
    attacker::attack();
}
