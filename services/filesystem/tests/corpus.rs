//! Paths and links that the fuzzer found worth keeping, tried again.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

#[path = "../../../fuzz/checks/paths.rs"]
mod paths;

#[test]
fn every_kept_path_leads_inside_or_nowhere() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/paths");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).expect("corpus") {
        paths::check(&std::fs::read(file.expect("file").path()).expect("bytes"));
        count += 1;
    }
    assert!(count > 50, "{count} paths");
}
