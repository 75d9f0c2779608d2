#![no_main]

use std::sync::LazyLock;

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("folder"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    postern_exec::fuzzing::check_pages(FOLDER.path(), data);
});
