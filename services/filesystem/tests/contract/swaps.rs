//! A thread that swaps what a path names for a link out of the project, over and over, while every call goes through it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use postern_proto::filesystem::v1::{PlanWrite, plan_request::Change};
use pretty_assertions::assert_eq;
use rustix::fs::{CWD, RenameFlags};

use crate::{
    project::{Project, effect, planned_patch, sha},
    watch::{ANYTHING, Watch},
};

/// How long the calls go on.
const CALLING: Duration = Duration::from_secs(1);

/// What is swapped, and the path that leads through it.
struct Swap {
    inside: &'static str,
    outside: PathBuf,
    path: &'static str,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_swapped_for_a_link_never_leads_outside() {
    let project = Project::new();
    project.file("d/s.txt", "inside");
    let outside = project.outside.clone();
    calls_stay_inside(
        &project,
        &Swap {
            inside: "d",
            outside,
            path: "d/s.txt",
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_far_above_swapped_for_a_link_never_leads_outside() {
    let project = Project::new();
    project.file("a/b/c/s.txt", "inside");
    fs::create_dir_all(project.outside.join("b/c")).expect("directories");
    fs::write(project.outside.join("b/c/s.txt"), "MARK").expect("file");
    let outside = project.outside.clone();
    calls_stay_inside(
        &project,
        &Swap {
            inside: "a",
            outside,
            path: "a/b/c/s.txt",
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_swapped_for_a_link_never_leads_outside() {
    let project = Project::new();
    project.file("f", "inside");
    let outside = project.outside.join("s.txt");
    calls_stay_inside(
        &project,
        &Swap {
            inside: "f",
            outside,
            path: "f",
        },
    )
    .await;
}

async fn calls_stay_inside(project: &Project, swap: &Swap) {
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let deep = project.outside.join("b/c");
    let mut watched = vec![project.outside.as_path()];
    if deep.exists() {
        watched.push(&deep);
    }
    let watch = Watch::new(ANYTHING, &watched);
    let mut inside = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| swap_until(project, swap, &stop, &swaps));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let begun = Instant::now();
                let mut round = 0;
                while begun.elapsed() < CALLING {
                    inside += u64::from(every_call(project, swap.path, round).await);
                    round += 1;
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(watch.seen(), [""; 0], "something outside was touched");
    let swaps = swaps.load(Ordering::Relaxed);
    assert!(swaps > 100, "it was hardly swapped: {swaps}");
    assert!(inside > 0, "no read found the file");
}

/// Swaps two names, one of which is the link; one that a change has replaced is made again.
fn swap_until(project: &Project, swap: &Swap, stop: &AtomicBool, swaps: &AtomicU64) {
    let (one, other) = (project.root.join(swap.inside), project.root.join("swap"));
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_symlink());
    while !stop.load(Ordering::Relaxed) {
        if !is_link(&one) && !is_link(&other) {
            let _absent = fs::remove_file(&other);
            std::os::unix::fs::symlink(&swap.outside, &other).expect("link");
        }
        if !one.exists() {
            // A delete has met the file.
            fs::write(&one, "inside").expect("file");
        }
        rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("swapped");
        swaps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls everything that takes a path once; tells whether the file was found inside.
async fn every_call(project: &Project, path: &str, round: usize) -> bool {
    let mark = || Some(sha("MARK"));
    let found = match project.read(path).await {
        Ok(page) => {
            assert!(!page.content.contains("MARK"), "a byte of outside");
            page.content == "inside"
        }
        Err(_) => false,
    };
    assert!(project.write(path, "x", mark()).await.is_err());
    assert!(project.patch(path, "MARK", "x", mark()).await.is_err());
    assert!(project.delete(path, mark()).await.is_err());
    let plan = Change::Write(PlanWrite {});
    assert!(project.plan(path, plan, mark()).await.is_err());
    let plan = planned_patch("MARK", "x");
    assert!(project.plan(path, plan, mark()).await.is_err());
    if let Ok(now) = project.inspect(path, effect()).await {
        assert_ne!(now.sha256, mark());
    }
    drop(project.write(path, "inside", Some(sha("inside"))).await);
    drop(
        project
            .patch(path, "in", "on the in", Some(sha("inside")))
            .await,
    );
    drop(
        project
            .write(path, "inside", Some(sha("on the inside")))
            .await,
    );
    let (directory, _) = path.rsplit_once('/').unwrap_or((".", path));
    let new = format!("{directory}/new-{}.txt", round % 50);
    if project.write(&new, "x", None).await.is_ok() {
        drop(project.delete(&new, Some(sha("x"))).await);
    }
    if let Ok(listed) = project.list(directory, 0).await {
        let is_outside = |size: u64| directory != "." && size == 4;
        assert!(listed.entries.iter().all(|entry| !is_outside(entry.size)));
    }
    found
}
