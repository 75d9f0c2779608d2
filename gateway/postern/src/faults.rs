//! The program with its fault points, for the fault suite alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    postern::run_with_fault_points()
}
