//! The program. Everything is in the library, so that the fault suite can have the same program under another name.

use std::process::ExitCode;

fn main() -> ExitCode {
    postern::run()
}
