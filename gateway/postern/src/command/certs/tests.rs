use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, path::PathBuf};

use postern_kit::{task::Tasks, tls::Tls};
use pretty_assertions::assert_eq;

use super::*;
use crate::cli::CertsDir;

pub(super) fn terms(hosts: &[&str]) -> CertsTerms {
    CertsTerms {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        days: 90,
    }
}

pub(super) fn init_in(dir: &Path, hosts: &[&str]) -> Result<(), Error> {
    let arguments = CertsInit {
        place: CertsDir {
            dir: dir.to_owned(),
        },
        terms: terms(hosts),
    };
    init(&arguments, true)
}

pub(super) fn renew_in(dir: &Path, within: Option<u64>) -> Result<(), Error> {
    let arguments = CertsRenew {
        place: CertsDir {
            dir: dir.to_owned(),
        },
        terms: terms(&[]),
        within,
    };
    renew(&arguments, true)
}

/// Every file below a folder.
pub(super) fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read_to_string(&path).expect("text"));
        }
    }
    found
}

#[tokio::test]
async fn every_role_has_a_folder_that_is_its_own_alone() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path().join("certs");
    init_in(&dir, &["ledger.example"]).expect("made");
    let tasks = Tasks::new();
    for role in Role::ALL {
        let place = dir.join(role.name());
        Tls::open(&place, Some(role), &tasks)
            .await
            .expect("its own");
        let other = if role == Role::Edge {
            Role::Exec
        } else {
            Role::Edge
        };
        let refused = Tls::open(&place, Some(other), &tasks).await;
        let told = refused.expect_err("another's").to_string();
        assert!(told.contains(&format!("not for '{other}'")), "{told}");
        assert!(!place.join(CA_KEY_FILE).exists());
        let facts = Facts::of(&read(&place, CERTIFICATE_FILE).expect("there")).expect("facts");
        assert_eq!(
            facts.names,
            [
                role.name(),
                "localhost",
                "127.0.0.1",
                "::1",
                "ledger.example"
            ]
        );
    }
    for path in files(&dir).keys().chain([&dir, &dir.join("exec")]) {
        let mode = fs::metadata(path).expect("there").permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{}", path.display());
    }
}

/// Names in certificates are compared without regard to capitals.
#[test]
fn the_name_of_another_service_is_not_kept_however_it_is_written() {
    let kept = ["LEDGER", "Edge", "edge", "edge.example"].map(str::to_owned);
    let given = names(Role::Exec, &terms(&["oPERATOR"]), &kept);
    assert_eq!(
        given,
        ["exec", "localhost", "127.0.0.1", "::1", "edge.example"]
    );
}

#[test]
fn nothing_is_overwritten() {
    let home = tempfile::tempdir().expect("folder");
    init_in(home.path(), &[]).expect("an empty folder is as good as none");
    let before = files(home.path());
    let refused = init_in(home.path(), &[]).expect_err("not empty");
    assert!(refused.to_string().contains("certs renew"), "{refused}");
    assert_eq!(files(home.path()), before);
}

#[test]
fn renewed_certificates_keep_their_names_and_their_authority() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path();
    init_in(dir, &["ledger.example"]).expect("made");
    let before = files(dir);
    renew_in(dir, Some(30)).expect("nothing is due");
    assert_eq!(files(dir), before);
    fs::remove_file(dir.join("exec").join(CERTIFICATE_FILE)).expect("removed");
    renew_in(dir, Some(30)).expect("one is due");
    assert_ne!(
        files(dir)[&dir.join("exec").join(KEY_FILE)],
        before[&dir.join("exec").join(KEY_FILE)]
    );
    renew_in(dir, None).expect("all");
    for (path, text) in files(dir) {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_authority = name == Some(CA_FILE) || name == Some(CA_KEY_FILE);
        assert_eq!(before[&path] == text, is_authority, "{}", path.display());
    }
    let place = dir.join("ledger");
    let facts = Facts::of(&read(&place, CERTIFICATE_FILE).expect("there")).expect("facts");
    assert!(facts.names.contains(&"ledger.example".to_owned()));
}

/// Killed before `ca.pem` was there, which comes last: nothing of it was ever used, and it is begun anew.
#[test]
fn an_interrupted_start_is_begun_anew() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path();
    init_in(dir, &[]).expect("made");
    assert!(!dir.join(UNFINISHED_FILE).exists());
    let refused = |what: &str| {
        let before = files(dir);
        init_in(dir, &[]).expect_err(what);
        assert_eq!(files(dir), before, "{what}");
    };
    fs::write(dir.join(UNFINISHED_FILE), "").expect("written");
    refused("it was finished, but for the mark");
    fs::remove_file(dir.join(UNFINISHED_FILE)).expect("removed");
    let before = files(dir);
    fs::remove_file(dir.join(CA_FILE)).expect("removed");
    refused("somebody took ca.pem away");
    fs::write(dir.join(UNFINISHED_FILE), "").expect("written");
    fs::remove_dir_all(dir.join("ledger")).expect("removed");
    fs::remove_file(dir.join("exec").join(CERTIFICATE_FILE)).expect("removed");
    init_in(dir, &[]).expect("begun anew");
    let after = files(dir);
    assert!(after.keys().eq(before.keys()), "whole, and nothing else");
    assert!(after.iter().all(|(path, text)| before[path] != *text));
    renew_in(dir, Some(30)).expect("good");
    assert_eq!(files(dir), after);
}

/// Killed between the two: the certificate lasts, and nothing starts with it.
#[test]
fn a_certificate_without_its_key_is_renewed_though_it_lasts() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path();
    init_in(dir, &["exec.example"]).expect("made");
    let (exec, edge) = (dir.join("exec"), dir.join("edge"));
    let before = files(dir);
    fs::copy(edge.join(KEY_FILE), exec.join(KEY_FILE)).expect("copied");
    renew_in(dir, Some(30)).expect("one is due");
    for (path, text) in files(dir) {
        let is_same = !path.starts_with(&exec) || path.ends_with(CA_FILE);
        assert_eq!(before[&path] == text, is_same, "{}", path.display());
    }
    let pem = read(&exec, CERTIFICATE_FILE).expect("there");
    assert!(is_whole(&exec, &pem));
    let names = Facts::of(&pem).expect("facts").names;
    assert!(names.contains(&"exec.example".to_owned()));
    // Nor does a key that is gone stay so.
    fs::remove_file(exec.join(KEY_FILE)).expect("removed");
    renew_in(dir, Some(30)).expect("one is due");
    assert!(exec.join(KEY_FILE).exists());
}

#[test]
fn a_folder_that_others_write_to_gets_no_key() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path().join("certs");
    fs::create_dir(&dir).expect("made");
    let mode = |mode| {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("mode");
    };
    mode(0o777);
    let refused = init_in(&dir, &[]).expect_err("open to all").to_string();
    assert!(refused.contains("chmod go-w"), "{refused}");
    assert_eq!(files(&dir), BTreeMap::new());
    mode(0o755);
    init_in(&dir, &[]).expect("its owner's");
    mode(0o775);
    let before = files(&dir);
    renew_in(&dir, None).expect_err("open to a group");
    assert_eq!(files(&dir), before);
}

#[test]
fn a_strange_key_signs_nothing() {
    let (home, other) = (
        tempfile::tempdir().expect("folder"),
        tempfile::tempdir().expect("folder"),
    );
    init_in(home.path(), &[]).expect("made");
    init_in(other.path(), &[]).expect("made");
    fs::copy(
        other.path().join(CA_KEY_FILE),
        home.path().join(CA_KEY_FILE),
    )
    .expect("copied");
    let before = files(home.path());
    let refused = renew_in(home.path(), None).expect_err("another's key");
    assert!(refused.to_string().contains("not that of"), "{refused}");
    assert_eq!(files(home.path()), before);
}
