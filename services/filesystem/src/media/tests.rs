//! Files that were changed at random, through the very function that a decoding process runs.
//!
//! They are decoded in a child, which may die as a decoding process may: of memory, of time, of its stack. It may not die of
//! a panic. The child is this test program, started again behind each file that ended it.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Cursor, Write as _},
    process::{Command, Stdio},
    time::Duration,
};

use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use pretty_assertions::assert_eq;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{
    PATIENCE, Task,
    answer::{Answer, Refusal},
    call_time, decode_time,
    worker::decode,
};
use crate::Config;

/// Changed files made of each fixture.
const ROUNDS: u64 = 2000;
/// Seconds of processor time that one child may take for all of its files.
const SECONDS: u64 = 60;
/// Bytes of address space.
const MEMORY: u64 = 1024 * 1024 * 1024;
/// Files that may end their child, of all. More would make limits the rule.
const DEATHS: usize = 20;
/// Variable that tells the child at which file to begin.
const BEGIN: &str = "POSTERN_TEST_BEGIN";

const PDF: &str = "%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Count 1/Kids[4 0 R]>>endobj
3 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>endobj
4 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 300]/Contents 5 0 R/Resources<</Font<</F 3 0 R>>/XObject<</X 7 0 R>>>>>>endobj
5 0 obj<</Length 61>>stream
q BT /F 12 Tf 20 200 Td [(Read)-300(me)] TJ ET Q /X Do (x) Tj
endstream endobj
6 0 obj<</Length 95>>stream
begincmap 1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <52> <6F22> endbfchar
endstream endobj
7 0 obj<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Length 33>>stream
BT /F 9 Tf 1 0 0 1 5 5 Tm (in) Tj
endstream endobj
trailer<</Root 1 0 R>>
";

fn fixtures() -> Vec<(Task, Vec<u8>)> {
    let pixels = RgbaImage::from_fn(24, 16, |x, y| {
        let shade = |value: u32| u8::try_from(value % 256).unwrap_or_default();
        Rgba([shade(x * 10), shade(y * 16), shade(x * y), shade(255 - x)])
    });
    let image = DynamicImage::ImageRgba8(pixels);
    let mut fixtures = Vec::new();
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Gif,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
    ] {
        let image = if format == ImageFormat::Jpeg {
            DynamicImage::ImageRgb8(image.to_rgb8())
        } else {
            image.clone()
        };
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, format).expect("encoded");
        fixtures.push((Task::Picture, file.into_inner()));
    }
    let page = Task::Document { page: 1 };
    fixtures.push((page, PDF.as_bytes().to_vec()));
    for file in ["owner-password.pdf", "user-password.pdf"] {
        let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
        fixtures.push((page, std::fs::read(path).expect("fixture")));
    }
    fixtures
}

/// A few changes of a file, the same ones for the same seed.
fn changed(original: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or_default() % below.max(1)
    };
    let mut bytes = original.to_vec();
    for _ in 0..=next(4) {
        let at = next(bytes.len());
        match next(6) {
            0 => bytes.truncate(at),
            1 => {
                let end = (at + next(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            2 => {
                let copied: Vec<u8> = bytes
                    .iter()
                    .skip(next(at))
                    .take(next(32))
                    .copied()
                    .collect();
                bytes.splice(at..at, copied);
            }
            3 => bytes
                .iter_mut()
                .skip(at)
                .take(4)
                .for_each(|byte| *byte = 0xFF),
            _ => {
                let change = u8::try_from(next(256)).unwrap_or_default();
                bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte = change);
            }
        }
    }
    bytes
}

/// Not a test: the child. It says each number before it decodes the file, and in the end what came of all.
#[test]
#[ignore = "run by the other test"]
fn decode_changed_files() {
    let begin: u64 = std::env::var(BEGIN)
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("where to begin");
    for (resource, limit) in [
        (Resource::Cpu, SECONDS),
        (Resource::As, MEMORY),
        (Resource::Core, 0),
    ] {
        let limits = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        setrlimit(resource, limits).expect("limited");
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut output = std::io::stdout().lock();
    let fixtures = fixtures();
    let all = ROUNDS * fixtures.len() as u64;
    let (mut shown, mut refused) = (0, 0);
    for number in begin..all {
        writeln!(output, "\nat {number}").expect("told");
        let index = usize::try_from(number / ROUNDS).expect("small");
        let (task, original) = &fixtures[index];
        match decode(changed(original, number), *task) {
            Answer::Refused(_) => refused += 1,
            answer @ (Answer::Picture(..) | Answer::Page { .. }) => {
                let frame = answer.to_frame().expect("an answer fits its frame");
                assert_eq!(Answer::from_frame(&frame), Some(answer));
                shown += 1;
            }
        }
    }
    writeln!(output, "\nend {shown} {refused}").expect("told");
}

#[test]
fn no_change_of_a_file_gets_past_the_limits() {
    let all = ROUNDS * fixtures().len() as u64;
    let mut begin = 0;
    let mut deaths = String::new();
    for _ in 0..=DEATHS {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1"])
            .arg("media::tests::decode_changed_files")
            .env(BEGIN, begin.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("spawned");
        let output = BufReader::new(child.stdout.take().expect("output"));
        let (mut last, mut ended) = (None, false);
        for line in output.lines().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("at ") {
                last = number.parse::<u64>().ok();
            }
            ended |= line.starts_with("end ");
        }
        let status = child.wait().expect("waited");
        if ended {
            assert!(status.success(), "{status}");
            return;
        }
        let last = last.expect("it began");
        let _ = writeln!(deaths, "file {last}: {status}");
        assert_eq!(status.code(), None, "not ended by a limit: {deaths}");
        begin = last + 1;
        assert!(begin <= all);
    }
    panic!("too many files end their process:\n{deaths}");
}

#[test]
fn a_panic_of_a_decoder_is_an_answer() {
    // Whatever unwinds is caught where the work is done, and what it carries is told.
    let told =
        std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(Refusal::TooMuchText)));
    let payload = told.expect_err("unwound");
    assert_eq!(super::worker::of_panic(payload), Refusal::TooMuchText);
    let panicked =
        std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new("index out of bounds")));
    assert_eq!(
        super::worker::of_panic(panicked.expect_err("unwound")),
        Refusal::Damaged
    );
}

/// A file that changes while it is decoded is decoded once more, in what is left of the time.
#[test]
fn a_call_answers_while_its_caller_waits() {
    let bounds = Config::new("/".into());
    assert!(call_time(&bounds) < postern_kit::transport::DEADLINE);
    assert_eq!(
        decode_time(&bounds, Duration::from_millis(500)),
        bounds.decode_time
    );
    let mut gone = Duration::ZERO;
    while gone < PATIENCE {
        let time = decode_time(&bounds, gone);
        assert!(gone + bounds.decode_wait + time < call_time(&bounds));
        assert!(time >= bounds.decode_time / 2, "enough to decode in");
        gone += Duration::from_millis(100);
    }
    assert_eq!(decode_time(&bounds, call_time(&bounds)), Duration::ZERO);
}
