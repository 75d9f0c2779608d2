//! Tests of the root.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    sync::atomic::{AtomicBool, Ordering},
};

use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use tempfile::TempDir;

use super::*;

struct Fixture {
    _home: TempDir,
    outside: PathBuf,
    project: PathBuf,
    root: Root,
}

fn fixture() -> Fixture {
    let home = tempfile::tempdir().expect("directory");
    let base = home.path().canonicalize().expect("real path");
    let project = base.join("proj");
    let outside = base.join("proj-evil");
    fs::create_dir_all(project.join("a/b")).expect("directories");
    fs::create_dir(&outside).expect("directory");
    fs::write(outside.join("s.txt"), "MARK").expect("file");
    fs::write(project.join("a/b/f.txt"), "inside").expect("file");
    let root = Root::open(&project).expect("root");
    Fixture {
        _home: home,
        outside,
        project,
        root,
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T, Failure>) -> ErrorCode {
    answer.expect_err("refused").code
}

fn place(shown: &str, path: &str) -> Place {
    Place {
        shown: shown.to_owned(),
        path: path.into(),
    }
}

#[test]
fn plain_paths_are_normalized() {
    let fixture = fixture();
    let absolute = fixture.project.join("a/b/f.txt");
    for path in [
        "a/b/f.txt",
        "./a/./b/f.txt",
        "a/b/../b/f.txt",
        absolute.to_str().expect("text"),
    ] {
        let found = fixture.root.find(path).expect(path);
        assert_eq!(found.place, place("a/b/f.txt", "a/b/f.txt"), "{path}");
        assert_eq!(found.place.resolved(), None);
    }
    for path in [
        "",
        ".",
        "./",
        "a/..",
        fixture.project.to_str().expect("text"),
    ] {
        let (_, shown) = fixture.root.open_dir(path).expect(path);
        assert_eq!(shown, ".", "{path}");
    }
    assert_eq!(fixture.root.open_dir("a/b/").expect("directory").1, "a/b");
    assert_eq!(fixture.root.name(), "proj");
}

#[test]
fn a_neighbour_with_the_same_prefix_is_outside() {
    let fixture = fixture();
    let absolute = fixture.outside.join("s.txt");
    let through = fixture.project.join("../proj-evil/s.txt");
    for path in [
        "../proj-evil/s.txt",
        "a/../../proj-evil/s.txt",
        "missing/../../proj-evil/s.txt",
        "../proj-evil/missing",
        "..",
        "/",
        "/etc/passwd",
        absolute.to_str().expect("text"),
        through.to_str().expect("text"),
    ] {
        let failures = [
            fixture.root.find(path).expect_err(path),
            fixture.root.find_entry(path).expect_err(path),
            fixture.root.locate(path).expect_err(path),
            fixture.root.open_dir(path).expect_err(path),
        ];
        for failure in failures {
            assert_eq!(failure.code, ErrorCode::PathEscapesProject, "{path}");
            assert!(!failure.message.contains("proj-evil"), "{path}");
        }
    }
}

#[test]
fn an_escaping_link_tells_nothing_of_its_target() {
    let fixture = fixture();
    let links = [
        ("abs", fixture.outside.join("s.txt")),
        ("abs-missing", fixture.outside.join("missing")),
        ("rel", "../proj-evil/s.txt".into()),
        ("rel-missing", "../proj-evil/missing".into()),
        ("a/up", "../../proj-evil/s.txt".into()),
        ("dir", fixture.outside.clone()),
        ("back", "../proj/a/b/f.txt".into()),
        ("magic", "/proc/self/root/etc/passwd".into()),
    ];
    let mut answers = Vec::new();
    for (name, target) in &links {
        symlink(target, fixture.project.join(name)).expect("link");
        answers.push(fixture.root.find(name).expect_err(name));
        answers.push(fixture.root.locate(name).expect_err(name));
        answers.push(fixture.root.find(&format!("{name}/")).expect_err(name));
    }
    answers.push(fixture.root.find("dir/s.txt").expect_err("outside"));
    answers.push(fixture.root.find("dir/missing").expect_err("outside"));
    answers.push(fixture.root.locate("dir/new.txt").expect_err("outside"));
    for answer in &answers {
        assert_eq!(answer, &answers[0]);
    }
    assert_eq!(answers[0].code, ErrorCode::PathEscapesProject);
}

#[test]
fn links_that_stay_inside_are_followed() {
    let fixture = fixture();
    for (name, target) in [
        ("rel", PathBuf::from("a/b/f.txt")),
        ("abs", fixture.project.join("a/b/f.txt")),
        ("a/up", "../rel".into()),
        ("dir", "a/b".into()),
        ("top", fixture.project.clone()),
    ] {
        symlink(target, fixture.project.join(name)).expect("link");
    }
    for path in ["rel", "abs", "a/up", "dir/f.txt", "top/dir/f.txt"] {
        let found = fixture.root.find(path).expect(path);
        assert_eq!(found.place, place(path, "a/b/f.txt"));
        assert_eq!(found.place.resolved(), Some("a/b/f.txt".to_owned()));
        let target = fixture.root.locate(path).expect(path);
        assert!(target.existing.is_some());
        assert_eq!((target.parent, target.name), ("a/b".into(), "f.txt".into()));
    }
    // `..` behind a link goes up from where the link led, as in the kernel.
    let found = fixture.root.find("dir/../b/f.txt").expect("found");
    assert_eq!(found.place, place("a/b/f.txt", "a/b/f.txt"));
    assert_eq!(fixture.root.open_dir("dir").expect("directory").1, "a/b");
    assert_eq!(fixture.root.open_dir("top").expect("directory").1, ".");
    let link = fixture.root.find_entry("rel").expect("link");
    assert_eq!(link.file_type(), FileType::Symlink);
    assert_eq!(link.place, place("rel", "rel"));
    let entry = fixture.root.find_entry("dir/f.txt").expect("file");
    assert_eq!(entry.place, place("dir/f.txt", "a/b/f.txt"));
}

#[test]
fn what_is_missing_is_told_from_where_it_would_be() {
    let fixture = fixture();
    symlink("a", fixture.project.join("dir")).expect("link");
    symlink("nowhere", fixture.project.join("dangling")).expect("link");
    assert_eq!(code(fixture.root.find("missing")), ErrorCode::NotFound);
    assert_eq!(code(fixture.root.find("dangling")), ErrorCode::NotFound);
    assert_eq!(code(fixture.root.locate("dangling")), ErrorCode::NotFound);
    assert_eq!(code(fixture.root.locate("dangling/x")), ErrorCode::NotFound);
    assert_eq!(code(fixture.root.locate("new/../x")), ErrorCode::NotFound);
    assert_eq!(
        code(fixture.root.locate("new/")),
        ErrorCode::InvalidArguments
    );
    assert_eq!(code(fixture.root.locate(".")), ErrorCode::NotAFile);
    let target = fixture.root.locate("dir/x/y/new.txt").expect("target");
    assert!(target.existing.is_none());
    assert_eq!(target.place, place("dir/x/y/new.txt", "a/x/y/new.txt"));
    assert_eq!(target.parent, PathBuf::from("a"));
    assert_eq!(target.missing, ["x", "y"]);
    assert_eq!(target.name, "new.txt");
}

#[test]
fn paths_that_cannot_be_are_refused_clearly() {
    let fixture = fixture();
    symlink("loop", fixture.project.join("loop")).expect("link");
    let long_name = "x".repeat(256);
    let long_path = "a/".repeat(3000);
    for (path, expected) in [
        ("a\0b", ErrorCode::InvalidArguments),
        ("a//b", ErrorCode::InvalidArguments),
        (long_name.as_str(), ErrorCode::InvalidArguments),
        (long_path.as_str(), ErrorCode::InvalidArguments),
        ("loop", ErrorCode::NotFound),
        ("loop/x", ErrorCode::NotFound),
        ("a/b/f.txt/", ErrorCode::NotADirectory),
        ("a/b/f.txt/x", ErrorCode::NotADirectory),
        ("a/b/f.txt/..", ErrorCode::NotADirectory),
    ] {
        assert_eq!(code(fixture.root.find(path)), expected, "{path:?}");
    }
    assert_eq!(
        code(fixture.root.open_dir("a/b/f.txt")),
        ErrorCode::NotADirectory
    );
}

#[test]
fn only_regular_files_are_opened() {
    let fixture = fixture();
    let _listener = UnixListener::bind(fixture.project.join("socket")).expect("socket");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.project.join("fifo"),
        FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .expect("fifo");
    for path in ["socket", "fifo", "a"] {
        let found = fixture.root.find(path).expect(path);
        assert_eq!(code(open_file(&found)), ErrorCode::NotAFile, "{path}");
    }
    let found = fixture.root.find("a/b/f.txt").expect("file");
    fs::rename(
        fixture.project.join("fifo"),
        fixture.project.join("a/b/f.txt"),
    )
    .expect("swap");
    let file = open_file(&found).expect("the file that was found");
    assert_eq!(io::read_to_string(file).expect("text"), "inside");
}

#[test]
fn swapping_a_directory_for_a_link_never_leads_outside() {
    let fixture = fixture();
    fs::write(fixture.outside.join("f.txt"), "MARK").expect("file");
    symlink(&fixture.outside, fixture.project.join("swap")).expect("link");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (fixture.project.join("a/b"), fixture.project.join("swap"));
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &one,
                    rustix::fs::CWD,
                    &other,
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .expect("exchange");
            }
        });
        let mut inside = 0;
        let mut refused = 0;
        while inside < 200 || refused < 200 {
            match fixture.root.find("a/b/f.txt") {
                Ok(found) => {
                    let file = open_file(&found).expect("file");
                    assert_eq!(io::read_to_string(file).expect("text"), "inside");
                    inside += 1;
                }
                Err(failure) => {
                    assert!(
                        matches!(
                            failure.code,
                            ErrorCode::PathEscapesProject | ErrorCode::Busy
                        ),
                        "{failure}"
                    );
                    refused += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_root_that_is_not_utf8_does_not_break_an_absolute_path() {
    use std::os::unix::ffi::OsStrExt as _;

    let real_root = Path::new(std::ffi::OsStr::from_bytes(b"/a\xC3"));
    let refused = path::Wanted::parse("/a\u{e9}/f", real_root).expect_err("outside");
    assert_eq!(refused.code, ErrorCode::PathEscapesProject);
}

#[test]
fn a_message_repeats_the_ends_of_a_long_path() {
    let long = format!("start{}end", "é/".repeat(2000));
    let failure = refusal(Errno::NOENT, &long);
    assert!(failure.message.len() < 1000);
    assert!(failure.message.contains("'start") && failure.message.contains("end'"));
}

#[test]
fn a_root_is_fit_where_it_was_and_nowhere_else() {
    let fixture = fixture();
    let (root, away) = (&fixture.root, fixture.project.with_file_name("away"));
    root.look().expect("as it was opened");
    fs::rename(&fixture.project, &away).expect("renamed");
    assert!(matches!(root.look(), Err(Displaced::Gone(_))));
    fs::create_dir(&fixture.project).expect("directory");
    assert!(matches!(root.look(), Err(Displaced::Replaced)));
    fs::remove_dir(&fixture.project).expect("removed");
    symlink(&away, &fixture.project).expect("link");
    root.look().expect("the same directory by a link");
    fs::remove_file(&fixture.project).expect("removed");
    fs::rename(&away, &fixture.project).expect("renamed");
    root.look().expect("back");
    fs::remove_dir_all(&fixture.project).expect("removed");
    assert!(matches!(root.look(), Err(Displaced::Gone(_))));
}
