//! The ordinary program has no fault points: neither their names are in it, nor does it do what they are ordered to.

use std::{fs, process::Command};

use memchr::memmem;
use postern_tests::{World, binary};
use pretty_assertions::assert_eq;

/// What only a program with fault points holds: the variable, the list's command and points of several crates.
const MARKS: &[&str] = &[
    "FAULT_POINTS",
    "fault-points",
    "edge.begin.before",
    "exec.claim.before",
    "ledger.end.after",
    "start.version.staged",
];

#[test]
fn the_ordinary_program_holds_no_fault_points() {
    let program = fs::read(binary()).expect("the program");
    for mark in MARKS {
        let found = memmem::find(&program, mark.as_bytes());
        assert!(found.is_none(), "`{mark}` is in the ordinary program");
    }
    let listed = Command::new(binary()).arg("fault-points").output();
    let code = listed.expect("it starts").status.code();
    assert_eq!(code, Some(2), "there is no such command");
}

#[tokio::test]
async fn the_ordinary_program_does_not_obey_them() {
    let mut world = World::new();
    let orders = world.outside().join("orders");
    for name in ["armed", "hit", "seen"] {
        fs::create_dir_all(orders.join(name)).expect("a directory");
    }
    fs::write(orders.join("armed/start.version.staged"), "kill").expect("an order");
    world.set("FAULT_POINTS", orders.clone());
    let door = world.up("full").await;
    assert_eq!(door.stop().await.code, Some(0));
    let seen = fs::read_dir(orders.join("seen")).expect("a directory");
    assert_eq!(seen.count(), 0, "nothing looked for an order");
}
