//! What others do while files change places.

use std::{
    fs::{self, File},
    path::Path,
};

use postern_kit::Clock;
use pretty_assertions::assert_eq;

use super::*;
use crate::Config;

/// Projects on a file system of this machine, and on one that renames plainly alone.
fn projects(check: impl Fn(&Path, &Project)) {
    for renames_plainly in [false, true] {
        let home = tempfile::tempdir().expect("directory");
        let config = Config::new(home.path().to_owned());
        let project = Project::open(config, Clock::system()).expect("root");
        project.disk.trial.lock().expect("trial").renames_plainly = renames_plainly;
        check(home.path(), &project);
        let beside = ["f", "f.aside"];
        for entry in fs::read_dir(home.path()).expect("directory") {
            let name = entry.expect("an entry").file_name();
            assert!(beside.iter().any(|it| name == *it), "{name:?} is left");
        }
    }
}

/// A file that is to be `new` instead of `old`, ready to change places.
pub(in crate::restore) fn ready(root: &Path, name: &str) -> Move {
    let aside = format!("{name}.aside");
    fs::write(root.join(name), "old").expect("file");
    fs::write(root.join(&aside), "new").expect("staged");
    let stamp = |name: &str| {
        let file = File::open(root.join(name)).expect("open");
        Stamp::of_file(&file).expect("a stamp")
    };
    Move {
        path: name.to_owned(),
        directory: PathBuf::new(),
        name: name.into(),
        seen: Some(Seen {
            stamp: stamp(name),
            sha256: postern_types::Sha256::of(b"old"),
            mode: 0o644,
        }),
        placed: Some(stamp(&aside)),
        aside,
        named: true,
    }
}

fn text(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(name)).expect("a file")
}

fn save(root: &Path, content: &str) {
    fs::write(root.join("saved"), content).expect("written");
    fs::rename(root.join("saved"), root.join("f")).expect("saved");
}

#[test]
fn places_are_changed_and_changed_back() {
    projects(|root, project| {
        let mut one = ready(root, "f");
        assert!(change_place(project, &mut one).is_ok());
        assert_eq!(
            (text(root, "f"), text(root, "f.aside")),
            ("new".into(), "old".into())
        );
        change_back(project, &mut one).expect("changed back");
        assert_eq!(
            (text(root, "f"), text(root, "f.aside")),
            ("old".into(), "new".into())
        );
    });
}

#[test]
fn what_somebody_saved_meanwhile_stays_when_places_are_changed_back() {
    projects(|root, project| {
        let mut one = ready(root, "f");
        assert!(change_place(project, &mut one).is_ok());
        save(root, "his");
        change_back(project, &mut one).expect_err("it is his now");
        assert_eq!(text(root, "f"), "his");
        assert_eq!(text(root, "f.aside"), "old");
    });
}

#[test]
fn a_file_that_was_made_and_edited_since_is_not_moved_away() {
    projects(|root, project| {
        let mut one = ready(root, "f");
        fs::remove_file(root.join("f")).expect("removed");
        one.seen = None;
        assert!(change_place(project, &mut one).is_ok());
        save(root, "his");
        change_back(project, &mut one).expect_err("it is his now");
        assert_eq!(text(root, "f"), "his");
    });
}

#[test]
fn what_somebody_saved_right_before_goes_back_to_its_place() {
    projects(|root, project| {
        let mut one = ready(root, "f");
        save(root, "his");
        assert!(matches!(
            change_place(project, &mut one),
            Err(Stop::Hindered(_))
        ));
        assert_eq!(text(root, "f"), "his");
        assert!(one.named, "what is staged is to be removed");
    });
}

#[test]
fn a_file_that_is_to_go_and_one_that_is_to_come_change_places_and_back() {
    projects(|root, project| {
        let mut one = ready(root, "f");
        fs::remove_file(root.join("f.aside")).expect("removed");
        (one.placed, one.named) = (None, false);
        assert!(change_place(project, &mut one).is_ok());
        assert!(!root.join("f").exists() && one.named);
        change_back(project, &mut one).expect("changed back");
        assert_eq!(text(root, "f"), "old");
        let mut new = ready(root, "f");
        fs::remove_file(root.join("f")).expect("removed");
        new.seen = None;
        assert!(change_place(project, &mut new).is_ok());
        assert_eq!(text(root, "f"), "new");
        change_back(project, &mut new).expect("changed back");
        assert!(!root.join("f").exists());
    });
}
