//! Frames that the fuzzer found worth keeping, read again.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

#[path = "../../fuzz/checks/frames.rs"]
mod frames;

#[test]
fn every_kept_frame_is_answered() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/frames");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).expect("corpus") {
        frames::check(&std::fs::read(file.expect("file").path()).expect("bytes"));
        count += 1;
    }
    assert!(count > 50, "{count} frames");
}
