//! End-to-end harness and tests over the real binary.
