//! What a decoding process answers: one frame on its standard output, and nothing else.
//!
//! A frame is the length of its head and the length of its payload (4 bytes each, little endian), the head (JSON) and the
//! payload. The service believes no more of it than its types and lengths say: the process has read untrusted bytes.

use serde::{Deserialize, Serialize};

use super::{document::TEXT_LIMIT, picture::IMAGE_LIMIT};

/// Longest head, in bytes.
const HEAD_LIMIT: usize = 1024;
/// Bytes before the head.
const LENGTHS: usize = 8;
/// Longest payload, in bytes.
const PAYLOAD_LIMIT: usize = if IMAGE_LIMIT > TEXT_LIMIT {
    IMAGE_LIMIT
} else {
    TEXT_LIMIT
};
/// Longest frame, in bytes.
pub(crate) const FRAME_LIMIT: usize = LENGTHS + HEAD_LIMIT + PAYLOAD_LIMIT;

/// Formats that are decoded; of these, PNG and JPEG are encoded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Format {
    Png,
    Jpeg,
    Gif,
    WebP,
    Bmp,
    Tiff,
}

impl Format {
    pub(crate) const ALL: [Self; 6] = [
        Self::Png,
        Self::Jpeg,
        Self::Gif,
        Self::WebP,
        Self::Bmp,
        Self::Tiff,
    ];

    pub(crate) const fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Bmp => "image/bmp",
            Self::Tiff => "image/tiff",
        }
    }
}

/// What is told of an image beside its bytes. Sizes in pixels, those of the file with its orientation applied.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Picture {
    pub(crate) format: Format,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) original_format: Format,
    pub(crate) original_width: u32,
    pub(crate) original_height: u32,
}

/// Why a file is not decoded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Refusal {
    /// It has no bytes.
    Empty,
    /// It is of no format that is decoded here.
    OtherFormat,
    /// It is a PDF where an image was wanted.
    IsDocument,
    /// It is an image where a PDF was wanted.
    IsPicture,
    /// It begins like its format and does not go on like it.
    Damaged,
    /// It ends before its end.
    Truncated,
    /// It has more pixels than are decoded.
    TooManyPixels { width: u32, height: u32 },
    /// It has more bytes than are decoded.
    TooManyBytes,
    /// It opens by a password.
    Locked,
    /// It is encrypted in a way that is not known here.
    Encrypted,
    /// It has no such page.
    NoSuchPage { page_count: u32 },
    /// The page's text is longer than an answer may be.
    TooMuchText,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Head {
    /// The payload is an image.
    Picture(Picture),
    /// The payload is the text of a page.
    Page { page_count: u32 },
    /// There is no payload.
    Refused(Refusal),
}

/// What came of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Picture(Picture, Vec<u8>),
    Page { page_count: u32, text: String },
    Refused(Refusal),
}

impl Answer {
    /// As a frame; none when the answer outgrows one.
    pub(crate) fn to_frame(&self) -> Option<Vec<u8>> {
        let (head, payload) = match self {
            Self::Picture(picture, data) => (Head::Picture(*picture), data.as_slice()),
            Self::Page { page_count, text } => {
                let page_count = *page_count;
                (Head::Page { page_count }, text.as_bytes())
            }
            Self::Refused(refusal) => (Head::Refused(*refusal), [].as_slice()),
        };
        let head = serde_json::to_vec(&head).ok()?;
        if head.len() > HEAD_LIMIT || payload.len() > PAYLOAD_LIMIT {
            return None;
        }
        let mut frame = Vec::with_capacity(LENGTHS + head.len() + payload.len());
        for length in [head.len(), payload.len()] {
            frame.extend_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
        }
        frame.extend_from_slice(&head);
        frame.extend_from_slice(payload);
        Some(frame)
    }

    /// Reads a whole frame; none when it is not one to the byte, or says what cannot be.
    pub(crate) fn from_frame(frame: &[u8]) -> Option<Self> {
        let (head_length, rest) = length(frame)?;
        let (payload_length, rest) = length(rest)?;
        if head_length > HEAD_LIMIT || rest.len().checked_sub(head_length)? != payload_length {
            return None;
        }
        let (head, payload) = rest.split_at(head_length);
        match serde_json::from_slice(head).ok()? {
            Head::Picture(picture) => {
                let is_possible =
                    picture.is_possible() && (1..=IMAGE_LIMIT).contains(&payload.len());
                is_possible.then(|| Self::Picture(picture, payload.to_vec()))
            }
            Head::Page { page_count } if payload.len() <= TEXT_LIMIT => Some(Self::Page {
                page_count,
                text: String::from_utf8(payload.to_vec()).ok()?,
            }),
            Head::Refused(refusal) if payload.is_empty() => Some(Self::Refused(refusal)),
            Head::Page { .. } | Head::Refused(_) => None,
        }
    }
}

impl Picture {
    fn is_possible(&self) -> bool {
        let sides = 1..=super::picture::LONGEST_SIDE;
        matches!(self.format, Format::Png | Format::Jpeg)
            && sides.contains(&self.width)
            && sides.contains(&self.height)
            && self.original_width >= self.width
            && self.original_height >= self.height
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*length).try_into().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn picture(width: u32) -> Answer {
        let picture = Picture {
            format: Format::Png,
            width,
            height: 2,
            original_format: Format::Tiff,
            original_width: 8000,
            original_height: 10,
        };
        Answer::Picture(picture, vec![1, 2, 3])
    }

    #[test]
    fn answers_survive_their_frame() {
        for answer in [
            picture(1568),
            Answer::Page {
                page_count: 3,
                text: "中文\n".to_owned(),
            },
            Answer::Refused(Refusal::TooManyPixels {
                width: u32::MAX,
                height: u32::MAX,
            }),
        ] {
            let frame = answer.to_frame().expect("frame");
            assert_eq!(Answer::from_frame(&frame), Some(answer));
        }
    }

    #[test]
    fn what_is_no_frame_to_the_byte_is_no_answer() {
        let frame = picture(10).to_frame().expect("frame");
        for end in 0..frame.len() {
            assert_eq!(Answer::from_frame(&frame[..end]), None, "{end}");
        }
        let longer = [frame.as_slice(), b"x"].concat();
        assert_eq!(Answer::from_frame(&longer), None);
        assert_eq!(Answer::from_frame(b"running 1 test\n"), None);
        assert_eq!(Answer::from_frame(&[0xFF; 64]), None);
    }

    #[test]
    fn what_cannot_be_is_no_answer() {
        for width in [0, 1569, 9000] {
            let frame = picture(width).to_frame().expect("frame");
            assert_eq!(Answer::from_frame(&frame), None, "{width}");
        }
        let long = Answer::Page {
            page_count: 1,
            text: "x".repeat(TEXT_LIMIT + 1),
        };
        let frame = long.to_frame().expect("frame");
        assert_eq!(Answer::from_frame(&frame), None);
        let Answer::Picture(facts, _) = picture(10) else {
            panic!("a picture");
        };
        let larger = Answer::Picture(facts, vec![0; IMAGE_LIMIT + 1]);
        assert_eq!(larger.to_frame(), None);
    }
}
