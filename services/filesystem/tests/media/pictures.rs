//! Images: what is shown of which file.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage, codecs::gif::GifEncoder};
use postern_proto::filesystem::v1::ImageResponse;
use postern_types::{ErrorCode, Sha256};
use pretty_assertions::assert_eq;

use crate::{
    pdf::Pdf,
    png::{deflated, png},
    rig::Rig,
};

/// Largest image that is shown, in bytes.
const LIMIT: usize = 1_100_000;

pub(crate) fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).expect("encoded");
    file.into_inner()
}

/// Left half red, right half blue.
pub(crate) fn halves(width: u32, height: u32) -> DynamicImage {
    RgbImage::from_fn(width, height, |x, _| {
        if x < width / 2 {
            Rgb([255, 0, 0])
        } else {
            Rgb([0, 0, 255])
        }
    })
    .into()
}

/// What no format can make small.
fn noise(width: u32, height: u32) -> DynamicImage {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    RgbImage::from_fn(width, height, |_, _| Rgb([next(), next(), next()])).into()
}

/// The image that was answered, which is of the format that its type says.
fn shown(answer: &ImageResponse) -> DynamicImage {
    let format = image::guess_format(&answer.data).expect("an image");
    assert_eq!(format.to_mime_type(), answer.mime_type);
    assert!(answer.data.len() <= LIMIT, "{}", answer.data.len());
    let image = image::load_from_memory(&answer.data).expect("an image");
    assert_eq!(
        (image.width(), image.height()),
        (answer.width, answer.height)
    );
    image
}

/// A colour that loss may have changed a little.
fn is_near(pixel: Rgba<u8>, colour: [u8; 3]) -> bool {
    pixel
        .0
        .iter()
        .zip(colour)
        .all(|(one, other)| one.abs_diff(other) < 40)
}

#[tokio::test]
async fn b65_the_format_is_told_by_the_content() {
    let rig = Rig::new();
    for (name, format) in [
        ("a.png", ImageFormat::Jpeg),
        ("b.jpg", ImageFormat::Png),
        ("c.png", ImageFormat::Gif),
        ("d.png", ImageFormat::WebP),
        ("e.gif", ImageFormat::Bmp),
        ("f.jpg", ImageFormat::Tiff),
        ("none", ImageFormat::Png),
    ] {
        let content = encoded(&halves(64, 32), format);
        rig.put(name, &content);
        let answer = rig.image(name).await.expect(name);
        let image = shown(&answer).into_rgba8();
        assert!(is_near(*image.get_pixel(8, 8), [255, 0, 0]), "{name}");
        assert!(is_near(*image.get_pixel(56, 8), [0, 0, 255]), "{name}");
        let facts = ImageResponse {
            data: answer.data.clone(),
            mime_type: answer.mime_type.clone(),
            path: name.to_owned(),
            resolved_path: None,
            width: 64,
            height: 32,
            original_width: 64,
            original_height: 32,
            original_mime_type: format.to_mime_type().to_owned(),
            scaled: false,
            sha256: Sha256::of(&content).to_string(),
        };
        assert_eq!(answer, facts);
    }
}

#[tokio::test]
async fn b65_what_is_no_whole_image_is_told_so() {
    let rig = Rig::new();
    let whole = encoded(&noise(64, 64), ImageFormat::Png);
    let jpeg = encoded(&noise(64, 64), ImageFormat::Jpeg);
    let gif = encoded(&noise(64, 64), ImageFormat::Gif);
    let webp = encoded(&noise(64, 64), ImageFormat::WebP);
    for (name, content, told) in [
        ("text.png", b"only text".to_vec(), "not an image"),
        ("page.jpg", b"<!doctype html><p>x".to_vec(), "not an image"),
        ("empty.png", Vec::new(), "empty"),
        ("document.png", Pdf::of_pages(&["x"]), "workspace_document"),
        ("cut.png", whole[..whole.len() / 2].to_vec(), "ends before"),
        ("short.png", whole[..20].to_vec(), ""),
        ("cut.jpg", jpeg[..jpeg.len() / 2].to_vec(), "ends before"),
        ("cut.gif", gif[..gif.len() / 2].to_vec(), ""),
        ("cut.webp", webp[..webp.len() / 2].to_vec(), ""),
    ] {
        rig.put(name, content);
        let refused = rig.image(name).await.expect_err(name);
        assert_eq!(refused.code, ErrorCode::UnsupportedFormat, "{name}");
        assert!(refused.message.contains(told), "{refused}");
        assert!(refused.message.contains(name), "{refused}");
    }
}

#[tokio::test]
async fn b66_large_pictures_are_made_to_fit_and_small_ones_left() {
    let rig = Rig::new();
    for (name, image, size) in [
        ("wide", halves(2162, 322), (1568, 234)),
        ("line", halves(8001, 10), (1568, 2)),
        ("pole", halves(1, 8001), (1, 1568)),
        ("telephone", halves(1170, 2532), (725, 1568)),
        ("dot", halves(1, 1), (1, 1)),
        ("exact", halves(1568, 20), (1568, 20)),
    ] {
        let content = encoded(&image, ImageFormat::Png);
        rig.put(name, &content);
        let answer = rig.image(name).await.expect(name);
        shown(&answer);
        assert_eq!((answer.width, answer.height), size, "{name}");
        let original = (image.width(), image.height());
        assert_eq!((answer.original_width, answer.original_height), original);
        assert_eq!(answer.scaled, original != size, "{name}");
        assert_eq!(std::fs::read(rig.root.join(name)).expect("file"), content);
    }
}

#[tokio::test]
async fn b66_a_picture_of_noise_is_made_small_in_bytes() {
    let rig = Rig::new();
    let content = encoded(&noise(1500, 1400), ImageFormat::Png);
    assert!(content.len() > 6_000_000);
    rig.put("noise.png", &content);
    let answer = rig.image("noise.png").await.expect("shown");
    shown(&answer);
    assert_eq!(answer.mime_type, "image/jpeg");
    assert_eq!(answer.sha256, Sha256::of(&content).to_string());
}

#[tokio::test]
async fn b66_rare_kinds_of_pixels_are_shown() {
    let rig = Rig::new();
    let deep = image::ImageBuffer::from_pixel(40, 20, Rgb([u16::MAX, 0, 0]));
    rig.put("deep.png", encoded(&deep.into(), ImageFormat::Png));
    let answer = rig.image("deep.png").await.expect("shown");
    let image = shown(&answer).into_rgba8();
    assert_eq!(image.get_pixel(5, 5).0, [255, 0, 0, 255]);

    // Two colours, the second one seen through.
    let palette = png(
        (2, 1),
        (8, 3),
        &[(b"PLTE", &[255, 0, 0, 0, 255, 0]), (b"tRNS", &[255, 64])],
        &deflated(&[0, 0, 1]),
    );
    rig.put("palette.png", palette);
    let answer = rig.image("palette.png").await.expect("shown");
    assert_eq!(answer.mime_type, "image/png");
    let image = shown(&answer).into_rgba8();
    assert_eq!(image.get_pixel(0, 0).0, [255, 0, 0, 255]);
    assert_eq!(image.get_pixel(1, 0).0, [0, 255, 0, 64]);

    let mut animation = Vec::new();
    {
        let mut encoder = GifEncoder::new(&mut animation);
        for colour in [[255, 0, 0, 255], [0, 0, 255, 255]] {
            let frame = image::Frame::new(RgbaImage::from_pixel(30, 30, Rgba(colour)));
            encoder.encode_frame(frame).expect("frame");
        }
    }
    rig.put("moving.gif", animation);
    let answer = rig.image("moving.gif").await.expect("shown");
    let image = shown(&answer).into_rgba8();
    assert!(
        is_near(*image.get_pixel(5, 5), [255, 0, 0]),
        "the first frame"
    );
}

#[tokio::test]
async fn what_a_camera_says_of_its_position_is_done() {
    let rig = Rig::new();
    let mut photo = encoded(&halves(400, 200), ImageFormat::Jpeg);
    // EXIF with one entry, orientation: 6 means that the camera was held turned.
    let note: &[u8] =
        b"\xFF\xE1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    assert_eq!(note.len(), 0x22 + 2);
    photo.splice(2..2, note.iter().copied());
    rig.put("photo.jpg", &photo);
    let answer = rig.image("photo.jpg").await.expect("shown");
    let image = shown(&answer).into_rgba8();
    let sizes = (
        (answer.width, answer.height),
        (answer.original_width, answer.original_height),
    );
    assert_eq!(sizes, ((200, 400), (200, 400)));
    assert!(!answer.scaled);
    assert!(is_near(*image.get_pixel(100, 50), [255, 0, 0]));
    assert!(is_near(*image.get_pixel(100, 350), [0, 0, 255]));
    let sent = memchr::memmem::find(&answer.data, b"Exif");
    assert_eq!(sent, None, "notes stay in the project");
}

#[tokio::test]
async fn a_link_is_followed_inside_and_its_target_named() {
    let rig = Rig::new();
    rig.put("real.png", encoded(&halves(4, 4), ImageFormat::Png));
    std::os::unix::fs::symlink("real.png", rig.root.join("link.png")).expect("link");
    let answer = rig.image("link.png").await.expect("shown");
    let places = (answer.path.as_str(), answer.resolved_path.as_deref());
    assert_eq!(places, ("link.png", Some("real.png")));
}
