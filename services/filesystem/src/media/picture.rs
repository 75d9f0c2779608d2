//! Images: any of the common formats in, a PNG or JPEG out that a model can look at.
//!
//! The format is told by the content, never by the name. Sizes are checked before anything is decoded. Animations give their
//! first frame, and EXIF's orientation is applied. What goes out is always encoded anew, so nothing that a camera or an
//! editor noted beside the pixels leaves the project with them.

use std::io::Cursor;

use fast_image_resize::{PixelType, ResizeOptions, Resizer, images::Image};
use image::{
    DynamicImage, ExtendedColorType, ImageDecoder as _, ImageError, ImageFormat, ImageReader,
    Limits, RgbImage, RgbaImage,
    codecs::{jpeg::JpegEncoder, png::PngEncoder},
    metadata::Orientation,
};
use memchr::memmem;

use super::answer::{Answer, Format, Picture, Refusal};

/// Largest file, in bytes.
pub(crate) const FILE_LIMIT: usize = 64 * 1024 * 1024;
/// Most pixels that are decoded.
pub(crate) const PIXEL_LIMIT: u64 = 30_000_000;
/// Most bytes that decoded pixels have: [`PIXEL_LIMIT`] of four floating-point channels.
const DECODED_LIMIT: u64 = PIXEL_LIMIT * 16;
/// Largest image that goes out, in bytes: with the base64 around it, it fits a frame together with its facts.
pub(crate) const IMAGE_LIMIT: usize = 1_100_000;
/// Longest side that goes out, in pixels: what models look at before they scale by themselves.
pub(crate) const LONGEST_SIDE: u32 = 1568;
/// Longest sides that are tried, until the image is small enough in bytes.
const SIDES: [u32; 4] = [LONGEST_SIDE, 1024, 768, 512];
/// Qualities of JPEG that are tried at each.
const QUALITIES: [u8; 4] = [85, 75, 60, 45];
/// Largest PNG of an image that a JPEG shows as well, in bytes.
const OPAQUE_PNG_LIMIT: usize = 300_000;

/// The format that bytes begin like.
pub(crate) fn format(bytes: &[u8]) -> Option<Format> {
    let guess = image::guess_format(bytes).ok()?;
    Format::ALL
        .into_iter()
        .find(|format| codec(*format) == guess)
}

/// Decodes an image and encodes it to be looked at.
pub(crate) fn decode(bytes: &[u8]) -> Result<Answer, Refusal> {
    let original_format = match format(bytes) {
        Some(format) => format,
        None if super::document::is_document(bytes) => return Err(Refusal::IsDocument),
        None => return Err(Refusal::OtherFormat),
    };
    let (image, orientation) = read(bytes, original_format)?;
    let (width, height) = (image.width(), image.height());
    let (original_width, original_height) = match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => (height, width),
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => (width, height),
    };
    // Turned once it is small.
    let mut image = opaque(fit(image, LONGEST_SIDE)?);
    image.apply_orientation(orientation);
    for side in SIDES {
        image = fit(image, side)?;
        if let Some((format, data)) = encode(&image, original_format)? {
            let picture = Picture {
                format,
                width: image.width(),
                height: image.height(),
                original_format,
                original_width,
                original_height,
            };
            return Ok(Answer::Picture(picture, data));
        }
    }
    Err(Refusal::TooManyBytes)
}

/// The pixels, eight bits a channel, as they are stored.
fn read(bytes: &[u8], format: Format) -> Result<(DynamicImage, Orientation), Refusal> {
    // Decoders make up what is missing at the end of a JPEG.
    if format == Format::Jpeg && !has_end(bytes) {
        return Err(Refusal::Truncated);
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), codec(format));
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(DECODED_LIMIT);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| refusal(&error))?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > PIXEL_LIMIT || decoder.total_bytes() > DECODED_LIMIT {
        return Err(Refusal::TooManyPixels { width, height });
    }
    if width == 0 || height == 0 {
        return Err(Refusal::Damaged);
    }
    // Notes that cannot be read are as good as none.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(|error| refusal(&error))?;
    let image = if image.color().has_alpha() {
        DynamicImage::ImageRgba8(image.into_rgba8())
    } else {
        DynamicImage::ImageRgb8(image.into_rgb8())
    };
    Ok((image, orientation))
}

const fn codec(format: Format) -> ImageFormat {
    match format {
        Format::Png => ImageFormat::Png,
        Format::Jpeg => ImageFormat::Jpeg,
        Format::Gif => ImageFormat::Gif,
        Format::WebP => ImageFormat::WebP,
        Format::Bmp => ImageFormat::Bmp,
        Format::Tiff => ImageFormat::Tiff,
    }
}

fn refusal(error: &ImageError) -> Refusal {
    match error {
        ImageError::Limits(_) => Refusal::TooManyBytes,
        ImageError::IoError(_) => Refusal::Truncated,
        ImageError::Decoding(_)
        | ImageError::Encoding(_)
        | ImageError::Parameter(_)
        | ImageError::Unsupported(_) => Refusal::Damaged,
    }
}

/// Whether a JPEG has its end marker behind its pixels. One that breaks off inside the notes before them has none.
fn has_end(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(2..).unwrap_or_default();
    while let [0xFF, marker, behind @ ..] = rest {
        rest = match marker {
            0xFF => &rest[1..],
            0x01 | 0xD0..=0xD8 => behind,
            0xD9 => return true,
            // The pixels hold no marker but those that separate their parts.
            0xDA => return memmem::find(behind, &[0xFF, 0xD9]).is_some(),
            _ => {
                let length = match behind {
                    [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
                    _ => return false,
                };
                behind.get(length..).unwrap_or_default()
            }
        };
    }
    // What is no marker where one must be is for the decoder to judge.
    rest.first().is_some_and(|first| *first != 0xFF)
}

/// An image without its alpha channel when that says nothing.
fn opaque(image: DynamicImage) -> DynamicImage {
    let says_nothing = image
        .as_rgba8()
        .is_some_and(|pixels| pixels.pixels().all(|pixel| pixel.0[3] == 0xFF));
    if says_nothing {
        DynamicImage::ImageRgb8(image.into_rgb8())
    } else {
        image
    }
}

/// An image whose sides are at most so long; never enlarged.
fn fit(image: DynamicImage, side: u32) -> Result<DynamicImage, Refusal> {
    let (width, height) = fitted(image.width(), image.height(), side);
    if (width, height) == (image.width(), image.height()) {
        return Ok(image);
    }
    let (before_width, before_height) = (image.width(), image.height());
    let has_alpha = image.color().has_alpha();
    let (kind, pixels) = if has_alpha {
        (PixelType::U8x4, image.into_rgba8().into_raw())
    } else {
        (PixelType::U8x3, image.into_rgb8().into_raw())
    };
    let source = Image::from_vec_u8(before_width, before_height, pixels, kind)
        .map_err(|_| Refusal::Damaged)?;
    let mut target = Image::new(width, height, kind);
    Resizer::new()
        .resize(&source, &mut target, &ResizeOptions::new())
        .map_err(|_| Refusal::Damaged)?;
    let pixels = target.into_vec();
    let image = if has_alpha {
        RgbaImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgba8)
    } else {
        RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8)
    };
    image.ok_or(Refusal::Damaged)
}

/// Sides of an image that keeps its shape, to the nearest pixel and one at least.
fn fitted(width: u32, height: u32, side: u32) -> (u32, u32) {
    let longest = u64::from(width.max(height));
    if longest <= u64::from(side) {
        return (width, height);
    }
    let scaled = |length: u32| {
        let rounded = (u64::from(length) * u64::from(side) + longest / 2) / longest;
        u32::try_from(rounded.max(1)).unwrap_or(side)
    };
    (scaled(width), scaled(height))
}

/// The image in the format that suits it, or none when it is too large in each.
fn encode(image: &DynamicImage, original: Format) -> Result<Option<(Format, Vec<u8>)>, Refusal> {
    // What was a JPEG gains nothing by a format without loss.
    let png_limit = if image.color().has_alpha() {
        IMAGE_LIMIT
    } else if original == Format::Jpeg {
        0
    } else {
        OPAQUE_PNG_LIMIT
    };
    if png_limit > 0 {
        let mut data = Vec::new();
        image
            .write_with_encoder(PngEncoder::new(&mut data))
            .map_err(|_| Refusal::Damaged)?;
        if data.len() <= png_limit {
            return Ok(Some((Format::Png, data)));
        }
    }
    let pixels = on_white(image);
    for quality in QUALITIES {
        let mut data = Vec::new();
        JpegEncoder::new_with_quality(&mut data, quality)
            .encode(
                &pixels,
                image.width(),
                image.height(),
                ExtendedColorType::Rgb8,
            )
            .map_err(|_| Refusal::Damaged)?;
        if data.len() <= IMAGE_LIMIT {
            return Ok(Some((Format::Jpeg, data)));
        }
    }
    Ok(None)
}

/// The pixels without alpha, as on white paper.
fn on_white(image: &DynamicImage) -> Vec<u8> {
    let DynamicImage::ImageRgba8(pixels) = image else {
        return image.as_bytes().to_vec();
    };
    let mut flat = Vec::with_capacity(pixels.len() / 4 * 3);
    for pixel in pixels.pixels() {
        let [red, green, blue, alpha] = pixel.0.map(u32::from);
        for colour in [red, green, blue] {
            let mixed = (colour * alpha + 255 * (255 - alpha) + 127) / 255;
            flat.push(u8::try_from(mixed).unwrap_or(u8::MAX));
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn sides_keep_their_shape_and_never_vanish() {
        for (before, after) in [
            ((2162, 322), (1568, 234)),
            ((8001, 10), (1568, 2)),
            ((1, 8001), (1, 1568)),
            ((30_000_000, 1), (1568, 1)),
            ((1170, 2532), (725, 1568)),
            ((1568, 1568), (1568, 1568)),
            ((1, 1), (1, 1)),
        ] {
            assert_eq!(
                fitted(before.0, before.1, LONGEST_SIDE),
                after,
                "{before:?}"
            );
        }
    }

    #[test]
    fn the_end_of_a_jpeg_is_looked_for_behind_its_pixels() {
        let start = [0xFF, 0xD8];
        // A note that holds a small picture with an end of its own.
        let note = [0xFF, 0xE1, 0, 6, 0xFF, 0xD8, 0xFF, 0xD9];
        let scan = [0xFF, 0xDA, 0, 2, 1, 2, 0xFF, 0, 3];
        let whole = [&start[..], &note, &scan, &[0xFF, 0xD9]].concat();
        assert!(has_end(&whole));
        for end in 0..whole.len() {
            assert!(!has_end(&whole[..end]), "{end}");
        }
        assert!(has_end(&[&whole[..], b"trailing"].concat()));
    }

    #[test]
    fn what_is_seen_through_is_white() {
        let pixels = RgbaImage::from_raw(2, 1, vec![10, 20, 30, 0, 10, 20, 30, 255]);
        let image = DynamicImage::ImageRgba8(pixels.expect("pixels"));
        assert_eq!(on_white(&image), [255, 255, 255, 10, 20, 30]);
    }
}
