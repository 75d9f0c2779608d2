//! What an image and a page of a document cost, from a client in the same process to the decoding process and back.
#![expect(clippy::expect_used, reason = "a benchmark that fails should stop")]

use std::{
    ffi::OsString, fmt::Write as _, fs, hint::black_box, io::Cursor, path::Path, process::ExitCode,
};

use criterion::Criterion;
use image::{ImageFormat, Rgb, RgbImage};
use postern_filesystem::{Config, Service};
use postern_kit::{Clock, transport};
use postern_proto::filesystem::v1::{
    DocumentRequest, ImageRequest, filesystem_client::FilesystemClient,
};
use tokio::runtime::Runtime;

/// First argument of the process that decodes.
const DECODER: &str = "decode-process";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == DECODER) {
        return postern_filesystem::decode_main(args.collect::<Vec<OsString>>());
    }
    let mut criterion = Criterion::default().configure_from_args();
    media(&mut criterion);
    criterion.final_summary();
    ExitCode::SUCCESS
}

fn media(criterion: &mut Criterion) {
    let home = tempfile::tempdir().expect("directory");
    fill(home.path());
    let mut config = Config::new(home.path().to_owned());
    let program = std::env::current_exe().expect("this program");
    config.decoder = vec![program.into(), DECODER.into()];
    let service = Service::open(config, Clock::system()).expect("root");
    let client = FilesystemClient::new(transport::local(service.into_server()))
        .max_decoding_message_size(transport::MESSAGE_LIMIT);
    let runtime = Runtime::new().expect("runtime");
    for name in ["icon.png", "screen.png", "photo.jpg"] {
        criterion.bench_function(name, |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                let path = name.to_owned();
                let answer = client
                    .clone()
                    .image(ImageRequest { path, place: None })
                    .await;
                black_box(answer.expect("shown"));
            });
        });
    }
    criterion.bench_function("page of 2000", |bencher| {
        bencher.to_async(&runtime).iter(|| async {
            let request = DocumentRequest {
                path: "long.pdf".to_owned(),
                page: 1900,
                place: None,
            };
            black_box(client.clone().document(request).await.expect("page"));
        });
    });
}

fn fill(root: &Path) {
    let picture = |width, height, coarse: u32| {
        RgbImage::from_fn(width, height, |x, y| {
            let shade = |value: u32| u8::try_from(value % 256).unwrap_or_default();
            Rgb([
                shade(x / coarse * 7),
                shade(y / coarse * 5),
                shade((x ^ y) / coarse),
            ])
        })
    };
    for (name, image, format) in [
        ("icon.png", picture(64, 64, 1), ImageFormat::Png),
        ("screen.png", picture(2560, 1440, 64), ImageFormat::Png),
        ("photo.jpg", picture(4000, 3000, 3), ImageFormat::Jpeg),
    ] {
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, format).expect("encoded");
        fs::write(root.join(name), file.into_inner()).expect("file");
    }
    fs::write(root.join("long.pdf"), document(2000)).expect("file");
}

/// A PDF of so many pages. It has no table of its objects, so they are looked for.
fn document(pages: usize) -> String {
    let mut kids = String::new();
    let mut objects = String::new();
    for page in 0..pages {
        let (number, content) = (10 + 2 * page, 11 + 2 * page);
        let text = format!("BT /F 12 Tf 20 200 Td (This is page {page}) Tj ET");
        let _ = write!(kids, "{number} 0 R ");
        let _ = write!(
            objects,
            "{number} 0 obj\n<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 300]/Contents {content} 0 R/Resources<</Font<</F 3 0 R>>>>>>\nendobj\n{content} 0 obj\n<</Length {}>>\nstream\n{text}\nendstream\nendobj\n",
            text.len()
        );
    }
    format!(
        "%PDF-1.7\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj\n<</Type/Pages/Count {pages}/Kids[{kids}]>>\nendobj\n3 0 obj\n<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>\nendobj\n{objects}trailer\n<</Root 1 0 R>>\n"
    )
}
