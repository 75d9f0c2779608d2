//! What comes of the others when a file cannot change places.

use std::fs;

use postern_kit::Clock;
use postern_proto::filesystem::v1::HindranceKind;
use pretty_assertions::assert_eq;

use super::*;
use crate::{Config, restore::places::tests::ready};

#[test]
fn all_change_back_but_what_somebody_changed_since() {
    let home = tempfile::tempdir().expect("directory");
    let root = home.path();
    let project = Project::open(Config::new(root.to_owned()), Clock::system()).expect("root");
    let mut all = Ready {
        project: &project,
        moves: ["a", "b", "c"].map(|name| ready(root, name)).into(),
        made: BTreeSet::new(),
        held: Vec::new(),
        images: Vec::new(),
        changed_back: false,
    };
    for one in &mut all.moves {
        assert!(change_place(&project, one).is_ok());
    }
    let save = root.join("saved");
    fs::write(&save, "his").expect("written");
    fs::rename(&save, root.join("b")).expect("saved");
    let Stop::Hindered(told) = all.change_all_back(3, stale("d")) else {
        panic!("nothing is torn");
    };
    let told: Vec<_> = told
        .iter()
        .map(|one| (one.path.as_str(), one.kind()))
        .collect();
    let stale = HindranceKind::Stale;
    assert_eq!(told, [("d", stale), ("b", stale)]);
    drop(all);
    let text = |name| fs::read_to_string(root.join(name)).expect("a file");
    assert_eq!([text("a"), text("b"), text("c")], ["old", "his", "old"]);
    assert_eq!(
        fs::read_dir(root).expect("root").count(),
        3,
        "nothing is left beside them"
    );
}
