//! Pages of files.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    time::Duration,
};

use postern_filesystem::Config;
use postern_kit::Failure;
use postern_proto::filesystem::v1::{DescribeRequest, LineEnding, ReadRequest, ReadResponse};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::project::{Project, client, code, sha};

#[tokio::test]
async fn a_page_tells_the_whole_file() {
    let project = Project::new();
    let content = "\u{feff}one\r\ntwo\r\n漢";
    project.file("dir/f", content);
    let page = project.read_page("./dir/f", 0, 8).await.expect("read");
    assert_eq!(
        page,
        ReadResponse {
            path: "dir/f".to_owned(),
            content: "\u{feff}one\r\n".to_owned(),
            offset: 0,
            bytes: 8,
            next_offset: Some(8),
            size: 16,
            sha256: sha(content),
            line_ending: LineEnding::Crlf.into(),
            bom: true,
            resolved_path: None,
        }
    );
    let last = project.read_page("dir/f", 8, 0).await.expect("read");
    assert_eq!(
        (last.content.as_str(), last.next_offset),
        ("two\r\n漢", None)
    );
    let end = project.read_page("dir/f", 16, 0).await.expect("read");
    assert_eq!(
        (end.content.as_str(), end.bytes, end.next_offset),
        ("", 0, None)
    );
    let past = project.read_page("dir/f", 17, 0).await.expect_err("past");
    assert_eq!(past.code, ErrorCode::InvalidArguments);
    assert_eq!(past.details["size"], 16);
    assert_eq!(
        code(project.read_page("dir/f", u64::MAX, 1).await),
        ErrorCode::InvalidArguments
    );
    assert_eq!(
        code(project.read_page("dir/f", 0, 131_073).await),
        ErrorCode::InvalidArguments
    );
    let small = project.read_page("dir/f", 13, 2).await.expect_err("small");
    assert_eq!(
        (small.code, &small.details["least"]),
        (ErrorCode::InvalidArguments, &3.into())
    );
    let inside = project
        .read_page("dir/f", 14, 100)
        .await
        .expect_err("inside");
    assert_eq!(inside.details["boundary"], 13);
}

#[tokio::test]
async fn an_empty_file_is_one_empty_page() {
    let project = Project::new();
    project.file("empty", "");
    let page = project.read("empty").await.expect("read");
    assert_eq!(
        (page.content.as_str(), page.size, page.next_offset),
        ("", 0, None)
    );
    assert_eq!(page.sha256, sha(""));
    assert_eq!(page.line_ending(), LineEnding::None);
}

#[tokio::test]
async fn bytes_that_are_not_text_are_told_by_their_offset() {
    let project = Project::new();
    project.file("latin", b"caf\xE9\n");
    let failure = project.read("latin").await.expect_err("not utf-8");
    assert_eq!(failure.code, ErrorCode::NotUtf8);
    assert_eq!(failure.details["firstBadOffset"], 3);
    assert_eq!(
        project
            .read_page("latin", 0, 3)
            .await
            .expect("before")
            .content,
        "caf"
    );
}

#[tokio::test]
async fn a_change_shows_on_the_next_page() {
    let project = Project::new();
    // Large enough that pages are read without the rest.
    let mut content = "0123456789abcdef".repeat(200_000);
    let path = project.file("big", &content);
    let first = project.read_page("big", 0, 4096).await.expect("read");
    assert_eq!(first.sha256, sha(&content));
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(b"more"))
        .expect("appended");
    content.push_str("more");
    let next = project.read_page("big", 3_200_000, 0).await.expect("read");
    assert_eq!(
        (next.content.as_str(), next.sha256),
        ("more", sha(&content))
    );
    File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(5))
        .expect("cut");
    let cut = project.read_page("big", 0, 0).await.expect("read");
    assert_eq!((cut.content.as_str(), cut.sha256), ("01234", sha("01234")));
    assert_eq!(
        code(project.read_page("big", 4096, 0).await),
        ErrorCode::InvalidArguments
    );
}

#[tokio::test]
async fn a_same_size_change_within_the_clocks_tick_is_seen() {
    let project = Project::new();
    for round in 0..200 {
        let content = format!("{round:04}");
        project.file("f", &content);
        let page = project.read("f").await.expect("read");
        assert_eq!((page.sha256, page.content), (sha(&content), content));
    }
}

#[tokio::test]
async fn the_project_is_described_by_its_name_and_instructions() {
    let project = Project::new();
    let describe = || async {
        let answer = project.client.clone().describe(DescribeRequest {}).await;
        answer.expect("described").into_inner()
    };
    assert_eq!(describe().await.name, "proj");
    assert_eq!(describe().await.instructions, []);
    let long = "é".repeat(70_000);
    project.file("AGENTS.md", &long);
    project.file("CLAUDE.md", b"\xFF");
    let described = describe().await;
    assert_eq!(described.instructions.len(), 1);
    let instruction = &described.instructions[0];
    assert_eq!(
        (instruction.path.as_str(), instruction.size),
        ("AGENTS.md", 140_000)
    );
    assert_eq!(instruction.sha256, sha(&long));
    assert_eq!(instruction.content, "é".repeat(65_536));
}

#[tokio::test]
async fn instructions_that_cannot_be_read_now_are_not_left_out() {
    let project = Project::new();
    project.file("AGENTS.md", "Do not touch the roof.");
    project.link("CLAUDE.md", "nowhere");
    let mut config = Config::new(project.root.clone());
    let describe = |config| async move {
        let answer = client(config).describe(DescribeRequest {}).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(Failure::from)
    };
    let described = describe(config.clone()).await.expect("described");
    assert_eq!(described.instructions.len(), 1, "a link to nothing is none");
    (config.jobs, config.waiting) = (0, 0);
    assert_eq!(code(describe(config).await), ErrorCode::Busy);
}

#[tokio::test]
async fn a_page_waits_for_its_revision_unless_the_file_is_a_giant() {
    let project = Project::new();
    let content = "0123456789abcdef".repeat(400_000);
    project.file("big", &content);
    let mut config = Config::new(project.root.clone());
    config.revision_wait = Duration::ZERO;
    let request = ReadRequest {
        path: "big".to_owned(),
        offset: 0,
        limit: 16,
        place: None,
    };
    let page = client(config.clone()).read(request.clone()).await;
    assert_eq!(page.expect("read").into_inner().sha256, sha(&content));
    config.giant = 1024 * 1024;
    let page = client(config)
        .read(request)
        .await
        .expect("read")
        .into_inner();
    assert_eq!(
        (page.content.as_str(), page.sha256.as_str()),
        ("0123456789abcdef", "")
    );
}
