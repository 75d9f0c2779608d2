//! A stream cut into what is passed on in one piece: the HTTP head, then WebSocket frames (RFC 6455, section 5.2).

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// Longest HTTP head, in bytes.
const MAX_HEAD_BYTES: u64 = 64 * 1024;
/// Largest frame that is carried, in bytes: more than a channel allows.
const MAX_FRAME_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of anything else that are passed on at once.
const RAW_BYTES: usize = 64 * 1024;
/// Opcode of the first frame of a text message.
const TEXT: u8 = 1;

/// One piece.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Unit {
    /// The first frame of a text message.
    Message(Vec<u8>),
    /// Anything else: the head, further and control frames, and what is no WebSocket.
    Other(Vec<u8>),
}

/// What the stream is at now.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Head,
    Frames,
    Raw,
}

/// One side's stream.
#[derive(Debug)]
pub(super) struct Reader<R> {
    stream: BufReader<R>,
    stage: Stage,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self {
            stream: BufReader::new(stream),
            stage: Stage::Head,
        }
    }

    /// Of what is no WebSocket: pieces as they come.
    pub(super) fn of_anything(stream: R) -> Self {
        Self {
            stream: BufReader::new(stream),
            stage: Stage::Raw,
        }
    }

    /// The next piece; `None` at the end of the stream, also when that comes in the middle of a piece.
    pub(super) async fn next(&mut self) -> io::Result<Option<Unit>> {
        match self.stage {
            Stage::Head => self.head().await,
            Stage::Frames => self.frame().await.map(Some),
            Stage::Raw => self.raw().await,
        }
    }

    async fn head(&mut self) -> io::Result<Option<Unit>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut line = (&mut self.stream).take(MAX_HEAD_BYTES);
            if line.read_until(b'\n', &mut head).await? == 0 {
                return Ok(None);
            }
            if head.len() as u64 > MAX_HEAD_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let upgraded = text.starts_with("http/1.1 101") || text.contains("\r\nupgrade: websocket");
        self.stage = if upgraded { Stage::Frames } else { Stage::Raw };
        Ok(Some(Unit::Other(head)))
    }

    async fn frame(&mut self) -> io::Result<Unit> {
        let mut frame = vec![0; 2];
        self.stream.read_exact(&mut frame).await?;
        let (opcode, masked) = (frame[0] & 0x0f, frame[1] & 0x80 != 0);
        let extended = match frame[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mut length = u64::from(frame[1] & 0x7f);
        if extended > 0 {
            self.append(&mut frame, extended).await?;
            let bytes = &frame[2..];
            length = bytes
                .iter()
                .fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        }
        if length > MAX_FRAME_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let rest = length + if masked { 4 } else { 0 };
        self.append(&mut frame, rest).await?;
        Ok(match opcode {
            TEXT => Unit::Message(frame),
            _ => Unit::Other(frame),
        })
    }

    async fn append(&mut self, frame: &mut Vec<u8>, bytes: u64) -> io::Result<()> {
        let start = frame.len();
        let more = usize::try_from(bytes).map_err(io::Error::other)?;
        frame.resize(start + more, 0);
        self.stream.read_exact(&mut frame[start..]).await.map(drop)
    }

    async fn raw(&mut self) -> io::Result<Option<Unit>> {
        let mut bytes = vec![0; RAW_BYTES];
        let count = self.stream.read(&mut bytes).await?;
        bytes.truncate(count);
        Ok((count > 0).then_some(Unit::Other(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_of_every_length_are_told_apart() {
        let head = b"GET / HTTP/1.1\r\nUpgrade: WebSocket\r\n\r\n".to_vec();
        let short = b"\x81\x82mask..".to_vec();
        let mut medium = b"\x82\x7e\x00\x80".to_vec();
        medium.extend([7; 128]);
        let mut long = b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00".to_vec();
        long.extend([8; 65_536]);
        let stream = [&head[..], &short, &medium, &long, b"\x81\x05cut"].concat();
        let mut reader = Reader::new(&stream[..]);
        for expected in [
            Unit::Other(head),
            Unit::Message(short),
            Unit::Other(medium),
            Unit::Message(long),
        ] {
            let unit = reader.next().await.expect("whole");
            assert_eq!(unit, Some(expected));
        }
        assert!(reader.next().await.is_err(), "the last frame is cut off");
    }
}
