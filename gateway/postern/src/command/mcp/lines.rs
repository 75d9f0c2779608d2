//! Lines of standard input, bounded.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Longest line that is a message, in bytes: what the host's endpoint takes.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// What some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What came.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Line {
    /// One line without its end, not empty.
    Text(Vec<u8>),
    /// A line over [`MAX_LINE_BYTES`], read to its end and thrown away.
    TooLong,
    /// Nothing comes any more.
    End,
}

/// The next line that is not empty. Cancelling it loses what was read of the line.
///
/// # Errors
/// When reading fails.
pub(super) async fn next(source: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Line> {
    loop {
        let (mut line, too_long, ended) = whole(source).await?;
        if too_long {
            return Ok(Line::TooLong);
        }
        if line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            let text = text.to_vec();
            return Ok(Line::Text(text));
        }
        if ended {
            return Ok(Line::End);
        }
    }
}

/// A line, whether it was too long, and whether the input ended with it.
async fn whole(source: &mut (impl AsyncBufRead + Unpin)) -> io::Result<(Vec<u8>, bool, bool)> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let buffer = source.fill_buf().await?;
        if buffer.is_empty() {
            return Ok((line, too_long, true));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        if line.len() + part.len() > MAX_LINE_BYTES {
            too_long = true;
            line = Vec::new();
        }
        if !too_long {
            line.extend_from_slice(part);
        }
        let taken = end.map_or(buffer.len(), |end| end + 1);
        source.consume(taken);
        if end.is_some() {
            return Ok((line, too_long, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    async fn all(input: &[u8]) -> Vec<Line> {
        let mut source = tokio::io::BufReader::with_capacity(7, input);
        let mut lines = Vec::new();
        loop {
            let line = next(&mut source).await.expect("line");
            let ended = line == Line::End;
            lines.push(line);
            if ended {
                return lines;
            }
        }
    }

    fn text(text: &str) -> Line {
        Line::Text(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_end_in_any_way_and_empty_ones_are_none() {
        assert_eq!(
            all(b"\xef\xbb\xbf{\"a\":1}\r\n\n  \n{\"b\":2}\nlast without an end").await,
            [
                text("{\"a\":1}"),
                text("{\"b\":2}"),
                text("last without an end"),
                Line::End
            ]
        );
        assert_eq!(all(b"").await, [Line::End]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_told_and_the_next_one_is_read() {
        let mut input = vec![b'x'; MAX_LINE_BYTES + 1];
        input.extend_from_slice(b"\nnext\n");
        assert_eq!(all(&input).await, [Line::TooLong, text("next"), Line::End]);
        let longest = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(
            all(&longest).await,
            [Line::Text(longest.clone()), Line::End]
        );
    }
}
