//! Contents that are no text, as git's binary patch: both of them, whole and compressed, so that it applies both ways.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};

/// Bytes in one line.
const LINE: usize = 52;
/// Digits to the base of 85, in git's order.
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

pub(super) fn write(text: &mut Vec<u8>, before: &[u8], after: &[u8]) {
    text.extend_from_slice(b"GIT binary patch\n");
    for side in [after, before] {
        text.extend_from_slice(format!("literal {}\n", side.len()).as_bytes());
        for line in compressed(side).chunks(LINE) {
            text.push(length_digit(line.len()));
            line.chunks(4).for_each(|bytes| digits(text, bytes));
            text.push(b'\n');
        }
        text.push(b'\n');
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // A vector takes whatever is written to it.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// A for 1 to Z for 26, then a for 27 to z for 52.
fn length_digit(length: usize) -> u8 {
    let length = u8::try_from(length).unwrap_or_default();
    if length <= 26 {
        b'A' + length - 1
    } else {
        b'a' + length - 27
    }
}

/// Up to four bytes as five digits, what is missing taken as zero.
fn digits(text: &mut Vec<u8>, bytes: &[u8]) {
    let mut whole = [0; 4];
    whole[..bytes.len()].copy_from_slice(bytes);
    let mut number = u32::from_be_bytes(whole);
    let mut written = [0; 5];
    for digit in written.iter_mut().rev() {
        *digit = DIGITS[(number % 85) as usize];
        number /= 85;
    }
    text.extend_from_slice(&written);
}
