//! Files that are made to break who decodes them. Each ends in a clear error of its own call, and nothing else.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use image::{DynamicImage, GrayImage, ImageFormat};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::{
    pdf::{Pdf, lines},
    pictures::{encoded, halves},
    png::{bomb, deflated, png},
    rig::Rig,
};

/// Longest that a file may keep its own call waiting, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(50);

impl Rig {
    /// A page after the bomb shows that the service goes on.
    async fn refuses(&self, name: &str, code: ErrorCode) -> postern_kit::Failure {
        let begun = Instant::now();
        let refused = if name.ends_with(".pdf") {
            self.document(name, 1).await.expect_err(name)
        } else {
            self.image(name).await.expect_err(name)
        };
        assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", begun.elapsed());
        assert_eq!(refused.code, code, "{name}: {refused}");
        assert!(refused.message.contains(name), "{refused}");
        self.put("well.png", encoded(&halves(4, 4), ImageFormat::Png));
        self.image("well.png")
            .await
            .expect("the next call is served");
        refused
    }
}

/// A GIF of one pixel that claims to stand on this canvas.
fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut file = encoded(&halves(1, 1), ImageFormat::Gif);
    file[6..8].copy_from_slice(&width.to_le_bytes());
    file[8..10].copy_from_slice(&height.to_le_bytes());
    file
}

#[tokio::test]
async fn pictures_of_too_many_pixels_are_not_decoded() {
    let rig = Rig::new();
    rig.put("wide.png", png((30_000, 30_000), (8, 2), &[], &bomb(4)));
    rig.put(
        "largest.png",
        png((0x7FFF_FFFF, 0x7FFF_FFFF), (8, 2), &[], b""),
    );
    rig.put("canvas.gif", gif(65_535, 65_535));
    rig.put("bitmap.bmp", {
        let mut file = encoded(&halves(4, 4), ImageFormat::Bmp);
        file[18..22].copy_from_slice(&60_000_u32.to_le_bytes());
        file[22..26].copy_from_slice(&60_000_u32.to_le_bytes());
        file
    });
    for (name, width) in [
        ("wide.png", 30_000),
        ("canvas.gif", 65_535),
        ("bitmap.bmp", 60_000),
    ] {
        let refused = rig.refuses(name, ErrorCode::TooLarge).await;
        assert_eq!(
            refused.details.get("width"),
            Some(&width.into()),
            "{refused:?}"
        );
        assert_eq!(refused.details["limit"], 30_000_000);
    }
    rig.refuses("largest.png", ErrorCode::TooLarge).await;
}

#[tokio::test]
async fn a_picture_of_millions_of_pixels_is_shown() {
    let rig = Rig::new();
    let plain = GrayImage::from_pixel(2400, 2000, image::Luma([200]));
    rig.put(
        "plain.png",
        encoded(&DynamicImage::from(plain), ImageFormat::Png),
    );
    let shown = rig.image("plain.png").await.expect("shown");
    assert_eq!((shown.width, shown.height), (1568, 1307));
}

#[tokio::test]
async fn a_note_that_grows_is_not_let_grow() {
    let rig = Rig::new();
    let profile = [b"profile\0\0", bomb(600).as_slice()].concat();
    let file = png(
        (2, 1),
        (8, 3),
        &[(b"iCCP", &profile), (b"PLTE", &[1, 2, 3])],
        &deflated(&[0, 0, 0]),
    );
    rig.put("note.png", file);
    // A decoder that leaves the note out is as good as one that refuses it.
    match rig.image("note.png").await {
        Ok(shown) => assert_eq!((shown.width, shown.height), (2, 1)),
        Err(refused) => assert_eq!(refused.code, ErrorCode::TooLarge, "{refused}"),
    }
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_read() {
    let rig = Rig::new();
    for (name, size, limit) in [
        ("huge.png", 65 << 20, 64 << 20),
        ("huge.pdf", 129 << 20, 128 << 20),
    ] {
        rig.put(name, encoded(&halves(4, 4), ImageFormat::Png));
        let file = fs::File::options().write(true).open(rig.root.join(name));
        file.expect("file").set_len(size).expect("sparse");
        let refused = rig.refuses(name, ErrorCode::TooLarge).await;
        assert_eq!(refused.details["limit"], limit);
        assert_eq!(refused.details["size"], size);
    }
}

#[tokio::test]
async fn a_document_that_grows_meets_the_limit_of_its_memory() {
    let rig = Rig::new();
    let mut pdf = Pdf::new();
    let content = pdf.stream("/Filter/FlateDecode", bomb(2048));
    pdf.page_of(content, "", "");
    rig.put("bomb.pdf", pdf.finish());
    let refused = rig.refuses("bomb.pdf", ErrorCode::TooLarge).await;
    assert_eq!(refused.details["memoryBytes"], 512 << 20);
}

/// A page whose forms each draw the next one twice, `depth` deep, with this text in the last one.
fn forms(depth: usize, last: &str) -> Vec<u8> {
    let mut pdf = Pdf::new();
    let font = pdf.add("<</Type/Font/Subtype/Type1/BaseFont/Courier>>");
    let resources = format!("/Font<</F {font} 0 R>>");
    let form = |resources: &str| {
        format!("/Type/XObject/Subtype/Form/BBox[0 0 400 300]/Resources<<{resources}>>")
    };
    let mut next = pdf.stream(&form(&resources), last);
    for _ in 0..depth {
        let inner = format!("/XObject<</X {next} 0 R>>");
        next = pdf.stream(&form(&inner), "/X Do /X Do");
    }
    pdf.page("/X Do", &format!("/XObject<</X {next} 0 R>>"), "");
    pdf.finish()
}

#[tokio::test]
async fn a_document_that_never_ends_is_ended() {
    let rig = Rig::with(|config| config.decode_time = Duration::from_secs(1));
    rig.put("loop.pdf", forms(40, ""));
    let refused = rig.refuses("loop.pdf", ErrorCode::TooLarge).await;
    assert!(refused.message.contains("more time"), "{refused}");
    assert_eq!(refused.details["timeMs"], 1000);
}

#[tokio::test]
async fn a_document_that_never_ends_meets_the_limit_of_its_processor_time() {
    // The clock alone would let it go on for ten minutes.
    let rig = Rig::with(|config| config.decode_time = Duration::from_secs(600));
    rig.put("loop.pdf", forms(40, ""));
    let ended = tokio::time::timeout(2 * PATIENCE, rig.document("loop.pdf", 1));
    let refused = ended.await.expect("in time").expect_err("ended");
    assert_eq!(refused.code, ErrorCode::TooLarge, "{refused}");
}

#[tokio::test]
async fn text_that_never_ends_is_too_much() {
    let rig = Rig::new();
    rig.put("loop.pdf", forms(40, &lines("again and again")));
    let refused = rig.refuses("loop.pdf", ErrorCode::TooLarge).await;
    assert_eq!(refused.details["limit"], 262_144);
}

#[tokio::test]
async fn depth_without_end_harms_nobody() {
    let rig = Rig::new();
    let deep = "[".repeat(200_000);
    let mut content = Pdf::new();
    content.page(&deep, "", "");
    rig.put("content.pdf", content.finish());
    let mut object = Pdf::new();
    let array = object.add(format!("{deep}{}", "]".repeat(200_000)));
    object.page("/X Do", &format!("/XObject {array} 0 R"), "");
    rig.put("object.pdf", object.finish());
    let mut dictionaries = Pdf::new();
    let many = "<</A".repeat(100_000);
    dictionaries.page("BT ET", &many, "");
    rig.put("dictionaries.pdf", dictionaries.finish());
    // Pages in pages in pages, and at last in themselves.
    let mut tree = Pdf::new();
    tree.page("", "", "");
    let mut tree = String::from_utf8(tree.finish()).expect("text");
    tree = tree.replace("/Count 1/Kids[4 0 R ]", "/Count 1/Kids[2 0 R ]");
    rig.put("tree.pdf", tree);
    for name in ["content.pdf", "object.pdf", "dictionaries.pdf", "tree.pdf"] {
        match rig.document(name, 1).await {
            Ok(page) => assert_eq!(page.text, "", "{name}"),
            Err(refused) => assert!(
                matches!(
                    refused.code,
                    ErrorCode::TooLarge | ErrorCode::UnsupportedFormat | ErrorCode::NoSuchPage
                ),
                "{name}: {refused}"
            ),
        }
    }
    rig.put("well.pdf", Pdf::of_pages(&["Well"]));
    assert_eq!(
        rig.document("well.pdf", 1).await.expect("page").text,
        "Well"
    );
}

#[tokio::test]
async fn a_process_that_answers_nonsense_is_an_error_of_its_call() {
    let script = |text: &str| -> Vec<OsString> { vec!["/bin/sh".into(), "-c".into(), text.into()] };
    for (what, program, code) in [
        ("silent", "exit 0", ErrorCode::UnsupportedFormat),
        ("failing", "exit 7", ErrorCode::UnsupportedFormat),
        (
            "chatty",
            "echo running 1 test",
            ErrorCode::UnsupportedFormat,
        ),
        (
            "babbling",
            "exec cat /dev/zero",
            ErrorCode::UnsupportedFormat,
        ),
        ("killed", "kill -9 $$", ErrorCode::TooLarge),
        ("aborted", "kill -6 $$", ErrorCode::TooLarge),
        ("hung", "exec sleep 600", ErrorCode::TooLarge),
    ] {
        let rig = Rig::with(|config| {
            config.decoder = script(program);
            config.decode_time = Duration::from_secs(1);
        });
        rig.put("a.png", encoded(&halves(4, 4), ImageFormat::Png));
        let refused = rig.image("a.png").await.expect_err(what);
        assert_eq!(refused.code, code, "{what}: {refused}");
    }
}

#[tokio::test]
async fn calls_wait_for_their_turn_and_not_for_ever() {
    let rig = Rig::with(|config| {
        config.decoder = vec!["/bin/sh".into(), "-c".into(), "exec sleep 600".into()];
        config.decoders = 1;
        config.decode_wait = Duration::from_millis(200);
        config.decode_time = Duration::from_secs(2);
    });
    rig.put("a.png", encoded(&halves(4, 4), ImageFormat::Png));
    rig.put("text", "still here");
    let begun = Instant::now();
    let (one, other) = tokio::join!(rig.image("a.png"), async {
        let answer = rig.image("a.png").await;
        (answer, begun.elapsed(), rig.read("text").await)
    });
    let (refused, waited, page) = other;
    let mut codes = [
        one.expect_err("ended").code,
        refused.expect_err("refused").code,
    ];
    codes.sort_by_key(|code| code.as_str());
    assert_eq!(codes, [ErrorCode::Busy, ErrorCode::TooLarge]);
    assert!(waited < PATIENCE);
    assert_eq!(page.expect("page").content, "still here");
}

#[tokio::test]
async fn a_decoding_process_has_neither_environment_nor_a_file_of_ours() {
    let rig = Rig::with(|config| {
        let look = "{ env; ls -l /proc/self/fd; pwd; } > \"$0\"; exit 1";
        let told = config.root.join("told").into_os_string();
        config.decoder = vec!["/bin/sh".into(), "-c".into(), look.into(), told];
    });
    rig.put("a.png", encoded(&halves(4, 4), ImageFormat::Png));
    rig.image("a.png").await.expect_err("no answer");
    let told = fs::read_to_string(rig.root.join("told")).expect("told");
    let mut names = String::new();
    for line in told.lines().filter(|line| line.contains('=')) {
        let _ = write!(names, "{} ", line.split('=').next().unwrap_or_default());
    }
    // These are the shell's own.
    let foreign = names
        .split_whitespace()
        .find(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"));
    assert_eq!(foreign, None);
    // Whatever else is open was handed to this program by those who started it, who meant it to be handed on.
    let ours = |line: &&str| {
        ["socket:", "anon_inode:", "/proj"]
            .iter()
            .any(|kind| line.contains(kind))
    };
    let files: Vec<_> = told.lines().filter(ours).collect();
    assert_eq!(files.len(), 2, "{told}");
    assert!(
        files[0].contains(" 0 -> ") && files[0].ends_with("/a.png"),
        "{told}"
    );
    assert!(
        files[1].contains(" 1 -> ") && files[1].ends_with("/told"),
        "{told}"
    );
    assert!(told.ends_with("\n/\n"), "{told}");
}
