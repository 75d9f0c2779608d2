//! A writer of PNGs that no encoder would write, and of streams that grow.

use flate2::{Compress, Compression, Crc, FlushCompress};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A PNG of these header fields, chunks and compressed pixels.
pub(crate) fn png(
    (width, height): (u32, u32),
    (depth, colour): (u8, u8),
    chunks: &[(&[u8; 4], &[u8])],
    pixels: &[u8],
) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend_from_slice(&width.to_be_bytes());
    header.extend_from_slice(&height.to_be_bytes());
    header.extend_from_slice(&[depth, colour, 0, 0, 0]);
    let mut file = SIGNATURE.to_vec();
    chunk(&mut file, b"IHDR", &header);
    for (name, data) in chunks {
        chunk(&mut file, name, data);
    }
    chunk(&mut file, b"IDAT", pixels);
    chunk(&mut file, b"IEND", b"");
    file
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    let length = u32::try_from(data.len()).expect("short");
    let mut sum = Crc::new();
    sum.update(name);
    sum.update(data);
    file.extend_from_slice(&length.to_be_bytes());
    file.extend_from_slice(name);
    file.extend_from_slice(data);
    file.extend_from_slice(&sum.sum().to_be_bytes());
}

/// Bytes as a zlib stream.
pub(crate) fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::with_capacity(bytes.len() + 1024);
    Compress::new(Compression::fast(), true)
        .compress_vec(bytes, &mut stream, FlushCompress::Finish)
        .expect("compressed");
    stream
}

/// A zlib stream that grows to so many MiB of zeros: one compressed MiB over and over. It has no end.
pub(crate) fn bomb(mebibytes: usize) -> Vec<u8> {
    let mut first = Vec::with_capacity(64 * 1024);
    let mut again = Vec::with_capacity(64 * 1024);
    let zeros = vec![0; 1024 * 1024];
    let mut compress = Compress::new(Compression::best(), true);
    for part in [&mut first, &mut again] {
        compress
            .compress_vec(&zeros, part, FlushCompress::Full)
            .expect("compressed");
    }
    let mut stream = first;
    for _ in 1..mebibytes {
        stream.extend_from_slice(&again);
    }
    stream
}
