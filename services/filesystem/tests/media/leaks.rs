//! What many files, good and bad, leave in the service's process: nothing.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use image::ImageFormat;
use pretty_assertions::assert_eq;
use rustix::{
    io::Errno,
    process::{WaitOptions, wait},
};

use crate::{
    pdf::Pdf,
    pictures::{encoded, halves},
    png::bomb,
    rig::Rig,
};

/// Rounds over all files.
const ROUNDS: usize = 8;
/// What decoding may add to the service's process, in KiB: answers, no pixels.
const MEMORY_KIB: u64 = 32 * 1024;

/// Not a test: the process in which nothing else opens files or starts processes.
#[tokio::test]
#[ignore = "run by the other test"]
async fn in_a_process_of_its_own() {
    let rig = Rig::new();
    let image = encoded(&halves(1200, 900), ImageFormat::Png);
    rig.put("cut.png", &image[..image.len() / 2]);
    rig.put("well.png", image);
    rig.put("well.pdf", Pdf::of_pages(&["Well"]));
    let mut grows = Pdf::new();
    let content = grows.stream("/Filter/FlateDecode", bomb(2048));
    grows.page_of(content, "", "");
    rig.put("grows.pdf", grows.finish());
    let killed = Rig::with(|config| {
        config.decoder = vec!["/bin/sh".into(), "-c".into(), "kill -9 $$".into()];
    });
    killed.put("a.png", "x");
    let hung = Rig::with(|config| {
        config.decoder = vec!["/bin/sh".into(), "-c".into(), "exec sleep 600".into()];
        config.decode_time = Duration::from_millis(50);
    });
    hung.put("a.png", "x");
    let round = async || {
        rig.image("well.png").await.expect("shown");
        rig.document("well.pdf", 1).await.expect("page");
        rig.image("cut.png").await.expect_err("refused");
        rig.document("grows.pdf", 1).await.expect_err("refused");
        killed.image("a.png").await.expect_err("refused");
        hung.image("a.png").await.expect_err("refused");
    };
    round().await;
    let (files, memory) = (open_files(), resident_kib());
    for _ in 1..ROUNDS {
        round().await;
    }
    assert_eq!(open_files(), files);
    assert_eq!(
        wait(WaitOptions::NOHANG).err(),
        Some(Errno::CHILD),
        "no process is left"
    );
    let added = resident_kib().saturating_sub(memory);
    assert!(added < MEMORY_KIB, "{added} KiB more");
}

#[test]
fn neither_process_nor_file_nor_memory_is_left_behind() {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "leaks::in_a_process_of_its_own"])
        .stdin(Stdio::null())
        .output()
        .expect("run");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("list").count()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let digits: String = line
        .expect("line")
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().expect("number")
}
