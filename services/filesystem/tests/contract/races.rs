//! Calls that meet each other, and trees that change under them.

use std::sync::atomic::{AtomicBool, Ordering};

use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::project::{Project, sha};

/// B17: two writers, one winner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_patches_with_one_revision_exactly_one_wins() {
    let project = Project::new();
    let lines: String = (1..=100).map(|line| format!("<{line}>\n")).collect();
    project.file("f", &lines);
    project.link("link", "f");
    let expected = sha(&lines);
    let calls = (1..=20).map(|line| {
        let path = if line % 2 == 0 { "f" } else { "link" };
        let (old, new) = (format!("<{line}>"), format!("<{line}!>"));
        let (project, expected) = (&project, Some(expected.clone()));
        async move { (line, project.patch(path, &old, &new, expected).await) }
    });
    let mut won = None;
    for (line, answer) in join_all(calls).await {
        match answer {
            Ok(_) => assert_eq!(won.replace(line), None, "two won"),
            Err(failure) => assert_eq!(failure.code, ErrorCode::StaleRevision),
        }
    }
    let line = won.expect("one won");
    let after = lines.replace(&format!("<{line}>"), &format!("<{line}!>"));
    assert_eq!(project.content("f"), after.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_creations_exactly_one_wins() {
    let project = Project::new();
    let calls = (0..20).map(|number| {
        let project = &project;
        async move { project.write("new/dir/f", &number.to_string(), None).await }
    });
    let mut won = Vec::new();
    for answer in join_all(calls).await {
        match answer {
            Ok(written) => won.push(written.sha256),
            Err(failure) => assert_eq!(failure.code, ErrorCode::AlreadyExists),
        }
    }
    assert_eq!(won, [sha(project.content("new/dir/f"))]);
}

/// B17: what was told to be done is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_patch_that_succeeds_is_in_the_file() {
    let project = Project::new();
    let lines: String = (1..=100).map(|line| format!("<{line}>\n")).collect();
    project.file("f", &lines);
    let calls = (1..=20).map(|line| {
        let project = &project;
        async move {
            loop {
                let (old, new) = (format!("<{line}>"), format!("<{line}!>"));
                match project.patch_now("f", &old, &new).await {
                    Ok(_) => return,
                    Err(failure) => assert_eq!(failure.code, ErrorCode::StaleRevision),
                }
            }
        }
    });
    join_all(calls).await;
    let mut expected = lines;
    for line in 1..=20 {
        expected = expected.replace(&format!("<{line}>"), &format!("<{line}!>"));
    }
    assert_eq!(project.content("f"), expected.as_bytes());
    assert_eq!(project.names(), ["f"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_a_whole_file_whatever_writers_do() {
    let project = Project::new();
    let version = |number: usize| format!("{number}\n").repeat(20_000);
    project.file("f", version(0));
    let done = AtomicBool::new(false);
    let writer = async {
        for number in 1..30 {
            let expected = Some(sha(version(number - 1)));
            project
                .write("f", &version(number), expected)
                .await
                .expect("written");
        }
        done.store(true, Ordering::Relaxed);
    };
    let reader = async {
        while !done.load(Ordering::Relaxed) {
            let page = project.read("f").await.expect("read");
            let number: usize = page
                .content
                .lines()
                .next()
                .expect("line")
                .parse()
                .expect("number");
            assert_eq!(page.content, version(number));
            assert_eq!(page.sha256, sha(version(number)));
        }
    };
    tokio::join!(writer, reader);
}

async fn join_all<F: Future>(calls: impl Iterator<Item = F>) -> Vec<F::Output> {
    futures_util::future::join_all(calls).await
}
