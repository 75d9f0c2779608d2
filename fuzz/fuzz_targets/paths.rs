#![no_main]

#[path = "../checks/paths.rs"]
mod paths;

libfuzzer_sys::fuzz_target!(|data: &[u8]| paths::check(data));
