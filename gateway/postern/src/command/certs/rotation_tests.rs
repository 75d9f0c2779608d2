use pretty_assertions::assert_eq;

use super::{
    super::{
        show::{Standing, issued, look},
        tests::{files, init_in, renew_in, terms},
    },
    *,
};
use crate::cli::CertsDir;

fn place(dir: &Path) -> CertsDir {
    CertsDir {
        dir: dir.to_owned(),
    }
}

fn switch_in(dir: &Path) -> Result<String, Error> {
    let arguments = RotateSwitch {
        place: place(dir),
        terms: terms(&[]),
    };
    switch(&arguments, true)
}

/// What each authority in the folder does, and by which of them certificates were issued.
fn standing(dir: &Path) -> (Vec<Standing>, Vec<usize>) {
    let found = look(dir).expect("looked");
    let names: Vec<&str> = found.authorities.iter().map(|it| &*it.name).collect();
    let by = |name: &str| names.iter().position(|it| *it == name).expect("known");
    let issued = issued(dir).expect("looked");
    let mut signed: Vec<usize> = issued.iter().map(|(_, it)| by(&it.issuer)).collect();
    signed.dedup();
    let standing = found.authorities.iter().map(|it| it.standing).collect();
    (standing, signed)
}

/// Every folder trusts what the authority's own does.
fn assert_trusted_alike(dir: &Path) {
    let trusted = read(dir, CA_FILE).expect("there");
    for (role, place) in folders(dir) {
        assert_eq!(read(&place, CA_FILE).expect("there"), trusted, "{role}");
    }
}

#[test]
fn one_authority_follows_another_in_three_steps() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path();
    init_in(dir, &["ledger.example"]).expect("made");
    let before = files(dir);
    assert_eq!(standing(dir), (vec![Standing::Signs], vec![0]));

    start(dir).expect("started");
    let started = files(dir);
    assert_eq!(
        standing(dir),
        (vec![Standing::Signs, Standing::Next], vec![0])
    );
    assert_trusted_alike(dir);
    for (path, text) in &before {
        let same = path.file_name().is_some_and(|name| name != CA_FILE);
        assert_eq!(started[path] == *text, same, "{}", path.display());
    }
    // Meanwhile certificates are renewed as ever.
    renew_in(dir, None).expect("renewed");
    assert_eq!(standing(dir).1, [0]);

    switch_in(dir).expect("switched");
    let both = vec![Standing::Retiring, Standing::Signs];
    assert_eq!(standing(dir), (both, vec![1]));
    assert_trusted_alike(dir);
    renew_in(dir, None).expect("renewed");
    assert_eq!(standing(dir).1, [1]);

    finish(dir).expect("finished");
    assert_eq!(standing(dir), (vec![Standing::Signs], vec![0]));
    assert_trusted_alike(dir);
    let after = files(dir);
    assert!(after.keys().eq(before.keys()), "nothing else is left");
    assert!(after.iter().all(|(path, text)| before[path] != *text));
    let place = dir.join("ledger");
    let facts = Facts::of(&read(&place, CERTIFICATE_FILE).expect("there")).expect("facts");
    assert!(facts.names.contains(&"ledger.example".to_owned()));
}

#[test]
fn no_step_is_done_before_the_one_before_it() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path();
    init_in(dir, &[]).expect("made");
    let refuses = |step: &dyn Fn() -> Result<String, Error>, says: &str| {
        let before = files(dir);
        let told = step().expect_err(says).to_string();
        assert!(told.contains(says), "{told}");
        assert_eq!(files(dir), before);
    };
    refuses(&|| switch_in(dir), "rotate-ca start");
    refuses(&|| finish(dir), "rotate-ca start");
    start(dir).expect("started");
    refuses(&|| finish(dir), "rotate-ca switch");
    switch_in(dir).expect("switched");
    refuses(&|| start(dir), "rotate-ca finish");
    finish(dir).expect("finished");
    start(dir).expect("and another");
}

#[test]
fn a_step_that_was_interrupted_is_done_again() {
    let home = tempfile::tempdir().expect("folder");
    let dir = home.path();
    init_in(dir, &[]).expect("made");
    let edge = dir.join("edge");

    // A key whose certificate nobody has seen; then everything but one folder.
    fs::write(dir.join(NEXT_KEY_FILE), "broken").expect("written");
    assert!(switch_in(dir).is_err());
    start(dir).expect("started");
    let both = read(dir, CA_FILE).expect("there");
    let old = read(dir, RETIRING_FILE).expect("there");
    fs::write(edge.join(CA_FILE), &old).expect("written");
    let told = switch_in(dir).expect_err("the edge would trust nobody");
    assert!(told.to_string().contains("interrupted"), "{told}");
    start(dir).expect("again");
    assert_eq!(read(dir, CA_FILE).expect("there"), both);
    assert_trusted_alike(dir);

    // The new authority signs, and one certificate is the old one's.
    let of_old = files(&edge);
    switch_in(dir).expect("switched");
    let issued = files(dir);
    for (path, text) in &of_old {
        fs::write(path, text).expect("written");
    }
    let told = finish(dir).expect_err("it would be trusted no more");
    assert!(told.to_string().contains("'edge'"), "{told}");
    switch_in(dir).expect("again");
    for (path, text) in files(dir) {
        let is_same = !path.starts_with(&edge) || path.ends_with(CA_FILE);
        assert_eq!(issued[&path] == text, is_same, "{}", path.display());
    }

    // The old authority is gone, and not everywhere.
    let both = read(dir, CA_FILE).expect("there");
    finish(dir).expect("finished");
    fs::write(dir.join(RETIRING_FILE), &old).expect("written");
    fs::write(edge.join(CA_FILE), &both).expect("written");
    finish(dir).expect("again");
    assert_trusted_alike(dir);
    assert_eq!(standing(dir), (vec![Standing::Signs], vec![0]));
}

/// One that the owner put there himself, for programs of his own.
#[test]
fn another_authority_that_is_trusted_stays() {
    let (home, other) = (
        tempfile::tempdir().expect("folder"),
        tempfile::tempdir().expect("folder"),
    );
    let dir = home.path();
    init_in(dir, &[]).expect("made");
    init_in(other.path(), &[]).expect("made");
    let own = read(dir, CA_FILE).expect("there");
    let theirs = read(other.path(), CA_FILE).expect("there");
    fs::write(
        dir.join(CA_FILE),
        format!("# theirs\n{theirs}\n# ours\n{own}"),
    )
    .expect("written");
    start(dir).expect("started");
    switch_in(dir).expect("switched");
    finish(dir).expect("finished");
    assert_eq!(
        standing(dir),
        (vec![Standing::Trusted, Standing::Signs], vec![1])
    );
    let left = read(dir, CA_FILE).expect("there");
    assert!(left.contains(&theirs) && left.contains("# ours"), "{left}");
    assert!(!left.contains(&own));
}
