//! What is opened for both tools, and what never is.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    time::{Duration, Instant},
};

use image::ImageFormat;
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::{
    pdf::Pdf,
    pictures::{encoded, halves},
    rig::Rig,
};

#[tokio::test]
async fn b02_a_link_out_of_the_project_shows_nothing() {
    let rig = Rig::new();
    let outside = rig.outside();
    let image = encoded(&halves(9, 9), ImageFormat::Png);
    fs::write(outside.join("secret.png"), &image).expect("file");
    fs::write(outside.join("secret.pdf"), Pdf::of_pages(&["SECRET"])).expect("file");
    for kind in ["png", "pdf"] {
        let link = format!("leak.{kind}");
        symlink(outside.join(format!("secret.{kind}")), rig.root.join(&link)).expect("link");
        for failure in rig.both_refuse(&link, ErrorCode::PathEscapesProject).await {
            assert!(!failure.to_json().to_string().contains("secret"));
        }
    }
    symlink(&outside, rig.root.join("folder")).expect("link");
    rig.both_refuse("folder/secret.png", ErrorCode::PathEscapesProject)
        .await;
    rig.both_refuse("../out/secret.pdf", ErrorCode::PathEscapesProject)
        .await;
    assert_eq!(fs::read(outside.join("secret.png")).expect("file"), image);
}

#[tokio::test]
async fn b09_pipes_sockets_and_devices_are_never_opened() {
    let rig = Rig::new();
    let fifo = rig.root.join("p");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("fifo");
    let _socket = UnixListener::bind(rig.root.join("s")).expect("socket");
    symlink("/dev/zero", rig.root.join("z")).expect("link");
    symlink("p", rig.root.join("link")).expect("link");
    fs::create_dir(rig.root.join("d.png")).expect("directory");
    for round in 0..100 {
        for (path, code) in [
            ("p", ErrorCode::NotAFile),
            ("s", ErrorCode::NotAFile),
            ("link", ErrorCode::NotAFile),
            ("d.png", ErrorCode::NotAFile),
            ("z", ErrorCode::PathEscapesProject),
            ("missing.png", ErrorCode::NotFound),
        ] {
            let begun = Instant::now();
            rig.both_refuse(path, code).await;
            assert!(begun.elapsed() < Duration::from_secs(1), "{path} {round}");
        }
    }
    rig.put("a.png", encoded(&halves(4, 4), ImageFormat::Png));
    rig.image("a.png").await.expect("shown");
}

#[tokio::test]
async fn names_of_changes_under_way_are_kept() {
    let rig = Rig::new();
    let name = format!(".postern-{}.tmp", postern_types::ReceiptId::generate());
    rig.put(&name, encoded(&halves(4, 4), ImageFormat::Png));
    rig.both_refuse(&name, ErrorCode::InvalidArguments).await;
}

#[tokio::test]
async fn without_a_decoder_both_tools_are_unavailable() {
    let rig = Rig::with(|config| config.decoder = Vec::new());
    rig.put("a.png", encoded(&halves(4, 4), ImageFormat::Png));
    rig.both_refuse("a.png", ErrorCode::Unavailable).await;
    let rig = Rig::with(|config| config.decoder = vec!["/does/not/exist".into()]);
    rig.put("a.png", encoded(&halves(4, 4), ImageFormat::Png));
    for failure in rig.both_refuse("a.png", ErrorCode::Unavailable).await {
        assert!(!failure.message.contains("/does"), "{failure}");
    }
}
