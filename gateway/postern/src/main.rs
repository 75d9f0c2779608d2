//! Postern: composition and command line.
fn main() {}
