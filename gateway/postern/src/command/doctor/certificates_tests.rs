use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use pretty_assertions::assert_eq;
use rcgen::{
    CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

use super::{super::State, *};
use crate::cli::{Certs, CertsDir, CertsInit, CertsTerms, Doctor, RotateCa, TlsArg};

const AHEAD: Duration = Duration::from_secs(30 * SECONDS_PER_DAY);

/// A folder of certificates that the program made, which last so many days.
fn made(home: &Path, days: u64) -> PathBuf {
    let dir = home.join("certs");
    let arguments = CertsInit {
        place: CertsDir { dir: dir.clone() },
        terms: CertsTerms {
            hosts: Vec::new(),
            days,
        },
    };
    certs::run(Certs::Init(arguments), true).expect("made");
    dir
}

/// A folder with a certificate of another authority, for a name and so many days.
fn foreign(folder: &Path, name: &str, days: i64) {
    fs::create_dir_all(folder).expect("made");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let by = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key"));
    let by = by.expect("authority");
    let key = KeyPair::generate().expect("key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("name");
    params.not_before = OffsetDateTime::now_utc() - time::Duration::days(9);
    params.not_after = OffsetDateTime::now_utc() + time::Duration::days(days);
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, &by).expect("signed");
    for (file, text) in [
        (tls::CA_FILE, by.pem()),
        (CERTIFICATE_FILE, certificate.pem()),
        (KEY_FILE, key.serialize_pem()),
    ] {
        let file = folder.join(file);
        fs::write(&file, text).expect("written");
        set_mode(&file, 0o600);
    }
}

fn set_mode(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("mode");
}

/// What is found of a folder outside the project.
async fn own_of(folder: &Path, role: Option<Role>, ahead: Duration) -> Finding {
    own(folder, Ok(()), role, ahead).await
}

/// A finding's state, with words that must be in what it says.
fn assert_told(finding: &Finding, state: State, words: &[&str]) {
    let line = finding.line();
    assert_eq!(finding.state, state, "{line}");
    for word in words {
        assert!(line.contains(word), "'{word}' in: {line}");
    }
}

#[tokio::test]
async fn the_certificates_of_a_process_are_looked_at() {
    let home = tempfile::tempdir().expect("folder");
    let dir = made(home.path(), 90);
    let ledger = dir.join("ledger");
    let good = own_of(&ledger, None, AHEAD).await;
    assert_told(&good, State::Ok, &["for ledger, until 2"]);
    let long = own_of(&ledger, None, AHEAD * 4).await;
    assert_told(&long, State::Warn, &["less than 120 days", "certs renew"]);

    // Its folder says whose it should be, and an option does so better.
    let other = own_of(&ledger, Some(Role::Exec), AHEAD).await;
    assert_told(
        &other,
        State::Fail,
        &["'ledger' and not for 'exec'", "--tls-dir"],
    );
    let moved = home.path().join("exec");
    fs::rename(&ledger, &moved).expect("moved");
    let other = own_of(&moved, None, AHEAD).await;
    assert_told(&other, State::Fail, &["'ledger' and not for 'exec'"]);
    let neutral = home.path().join("tls");
    fs::rename(&moved, &neutral).expect("moved");
    assert_told(
        &own_of(&neutral, None, AHEAD).await,
        State::Ok,
        &["for ledger"],
    );

    let key = neutral.join(KEY_FILE);
    for (mode, state, who) in [
        (0o640, State::Warn, "its group"),
        (0o604, State::Fail, "everybody"),
        (0o400, State::Ok, "for ledger"),
    ] {
        set_mode(&key, mode);
        let open = own_of(&neutral, None, AHEAD).await;
        assert_told(&open, state, &[who]);
        assert_eq!(open.line().contains("chmod 600"), state != State::Ok);
    }
    fs::copy(dir.join("exec").join(KEY_FILE), home.path().join("other")).expect("copied");
    fs::rename(home.path().join("other"), &key).expect("moved");
    let broken = own_of(&neutral, None, AHEAD).await;
    assert_told(&broken, State::Fail, &["not the key of cert.pem", "again"]);
    fs::remove_file(&key).expect("removed");
    let missing = own_of(&neutral, None, AHEAD).await;
    assert_told(&missing, State::Fail, &["key.pem", "whole"]);
}

#[tokio::test]
async fn what_has_ended_or_is_nobodys_is_told() {
    let home = tempfile::tempdir().expect("folder");
    let folder = home.path().join("tls");
    foreign(&folder, "ledger", -1);
    let ended = own_of(&folder, Some(Role::Ledger), AHEAD).await;
    assert_told(&ended, State::Fail, &["not valid any more", "certs renew"]);
    let other = own_of(&folder, Some(Role::Edge), AHEAD).await;
    assert_told(&other, State::Fail, &["not for 'edge'"]);
    foreign(&folder, "elsewhere.example", 90);
    let nobody = own_of(&folder, None, AHEAD).await;
    assert_told(&nobody, State::Warn, &["names no service"]);
    foreign(&folder, "ledger", 90);
    let theirs = fs::read(folder.join(tls::CA_FILE)).expect("read");
    foreign(&folder, "ledger", 90);
    fs::write(folder.join(tls::CA_FILE), theirs).expect("written");
    let stranger = own_of(&folder, None, AHEAD).await;
    assert_told(
        &stranger,
        State::Fail,
        &["no authority there", "same authority"],
    );
}

#[tokio::test]
async fn an_authority_and_what_it_issued_are_looked_at() {
    let home = tempfile::tempdir().expect("folder");
    let dir = made(home.path(), 40);
    let look = async || authority(&dir, AHEAD).await;
    let [own, issued] = &look().await[..] else {
        panic!("two findings");
    };
    assert_told(own, State::Ok, &["lasts until 2"]);
    assert_told(issued, State::Ok, &["8 certificates are good"]);

    set_mode(&dir.join("exec").join(KEY_FILE), 0o644);
    fs::remove_file(dir.join("edge").join(CERTIFICATE_FILE)).expect("removed");
    let told = &look().await[1];
    assert_told(
        told,
        State::Fail,
        &["exec: ", "edge: ", "certs renew --dir"],
    );
    assert!(!told.line().contains("ledger"), "{}", told.line());
    let soon = &authority(&dir, AHEAD * 2).await[1];
    assert_told(soon, State::Fail, &["ledger: for ledger, until 2"]);

    let step = RotateCa::Start(CertsDir { dir: dir.clone() });
    certs::run(Certs::RotateCa(step), true).expect("started");
    let told = &look().await[0];
    assert_told(
        told,
        State::Warn,
        &["taking over", "rotate-ca switch --dir"],
    );
    set_mode(&dir.join("ca-key.pem"), 0o640);
    assert_told(&look().await[0], State::Warn, &["ca-key.pem", "its group"]);
    // It may lie elsewhere, as it should.
    fs::remove_file(dir.join("ca-key.pem")).expect("removed");
    fs::write(dir.join("ca.pem"), "").expect("written");
    assert_told(&look().await[0], State::Fail, &["no authority"]);
    let nowhere = authority(home.path(), AHEAD).await;
    assert_eq!(nowhere.len(), 1);
    assert_told(&nowhere[0], State::Fail, &["certs init", "--certs-dir"]);
}

#[test]
fn an_authority_that_ends_is_told_before_it_does() {
    let whole_of = |days: i64, next_step| {
        let found = Look {
            authorities: vec![Trusted {
                standing: Standing::Signs,
                name: "ours".to_owned(),
                not_after: OffsetDateTime::now_utc() + time::Duration::days(days),
            }],
            key: None,
            next_step,
        };
        whole(Path::new("certs"), &found)
    };
    assert!(whole_of(91, None).is_ok());
    for (days, next_step, gravity, step) in [
        (80, None, Gravity::Warns, "rotate-ca start"),
        (-1, None, Gravity::Fails, "rotate-ca start"),
        (-1, Some("switch"), Gravity::Fails, "rotate-ca switch"),
    ] {
        let (found, _, advice) = whole_of(days, next_step).expect_err("it ends");
        assert_eq!(found, gravity, "{days}");
        assert!(advice.contains(step), "{advice}");
    }
}

/// What is looked at is what the options say, or else the edge's configuration.
#[tokio::test]
async fn the_configuration_of_an_edge_names_its_certificates() {
    let home = tempfile::tempdir().expect("folder");
    let dir = made(home.path(), 90);
    let (project, data) = (home.path().join("project"), home.path().join("data"));
    for folder in [&project, &data] {
        fs::create_dir(folder).expect("made");
        set_mode(folder, 0o700);
    }
    let configure = |folder: &Path| {
        let file = data.join("postern.toml");
        fs::write(&file, format!("tls_dir = \"{}\"\n", folder.display())).expect("written");
        set_mode(&file, 0o600);
    };
    let examined = async |tls_dir: Option<PathBuf>| {
        let arguments = Doctor {
            project: project.clone(),
            data_dir: Some(data.clone()),
            listen: "127.0.0.1:0".to_owned(),
            console: "127.0.0.1:0".to_owned(),
            database: None,
            tls: TlsArg { tls_dir },
            tls_role: None,
            certs_dir: None,
            within: 30,
            sandbox: crate::cli::SandboxArgs::default(),
        };
        let findings = super::super::examine(&arguments).await.expect("examined");
        let mut own = findings.into_iter().filter(|it| it.check == OWN);
        own.next()
    };
    assert!(examined(None).await.is_none(), "nothing names any");
    configure(&dir.join("edge"));
    let told = examined(None).await.expect("named");
    assert_told(&told, State::Ok, &["for edge"]);
    let told = examined(Some(dir.join("exec"))).await.expect("named");
    assert_told(&told, State::Ok, &["for exec"]);
    let inside = project.join("edge");
    fs::rename(dir.join("edge"), &inside).expect("moved");
    configure(&inside);
    let told = examined(None).await.expect("named");
    assert_told(&told, State::Fail, &["inside the project", "anew"]);
}
