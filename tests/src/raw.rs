//! One end of a channel byte by byte, for what no WebSocket library would send.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Longest wait for the other end.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest head of a request in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// First byte of a frame: the last of its message.
pub const FIN: u8 = 0x80;
/// Continues a message.
pub const CONTINUATION: u8 = 0;
/// A text message.
pub const TEXT: u8 = 1;
/// A binary message.
pub const BINARY: u8 = 2;
/// A close frame.
pub const CLOSE: u8 = 8;
/// A ping.
pub const PING: u8 = 9;
/// A pong.
pub const PONG: u8 = 10;

/// What the other end sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RawFrame {
    /// Flags and opcode.
    pub first: u8,
    /// Whether it was masked.
    pub masked: bool,
    /// Payload, unmasked.
    pub payload: Vec<u8>,
}

/// The head of a request, up to the empty line.
///
/// # Panics
/// When none comes.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let reading = async {
        while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
            head.push(stream.read_u8().await.expect("a request"));
        }
    };
    timeout(LIMIT, reading).await.expect("a request in time");
    String::from_utf8(head).expect("a head is text")
}

/// The host's end of an open channel.
#[derive(Debug)]
pub struct RawHost(pub TcpStream);

impl RawHost {
    /// Answers the upgrade, without saying ready.
    ///
    /// # Panics
    /// When no upgrade is asked for.
    pub async fn upgrade(mut stream: TcpStream) -> Self {
        let head = read_head(&mut stream).await;
        let key = head
            .lines()
            .find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("sec-websocket-key")
                    .then(|| value.trim().to_owned())
            })
            .expect("a key");
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            derive_accept_key(key.as_bytes())
        );
        let mut host = Self(stream);
        host.bytes(response.as_bytes()).await;
        host
    }

    /// Sends bytes as they are. That the edge has hung up is seen by whoever reads.
    pub async fn bytes(&mut self, bytes: &[u8]) -> bool {
        timeout(LIMIT, self.0.write_all(bytes))
            .await
            .is_ok_and(|written| written.is_ok())
    }

    /// Sends a frame, not masked, as a server must.
    pub async fn frame(&mut self, first: u8, payload: &[u8]) -> bool {
        self.bytes(&frame_bytes(first, None, payload)).await
    }

    /// The next frame that the edge sends; `None` when the connection ends.
    ///
    /// # Panics
    /// When nothing comes.
    pub async fn next(&mut self) -> Option<RawFrame> {
        timeout(LIMIT, read_frame(&mut self.0))
            .await
            .expect("a frame in time")
    }

    /// The edge's next frame that is no ping.
    pub async fn next_but_ping(&mut self) -> Option<RawFrame> {
        loop {
            let frame = self.next().await?;
            if frame.first != FIN | PING {
                return Some(frame);
            }
        }
    }

    /// Reads to the edge's close frame: its code and reason.
    pub async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            let frame = self.next().await?;
            if frame.first == FIN | CLOSE {
                assert!(frame.masked, "a client masks what it sends");
                let (code, reason) = frame.payload.split_at_checked(2)?;
                let code = u16::from_be_bytes(code.try_into().ok()?);
                let reason = String::from_utf8(reason.to_vec()).expect("a reason is UTF-8");
                return Some((code, reason));
            }
        }
    }
}

/// A frame's bytes, masked with `mask` if there is one.
#[must_use]
pub fn frame_bytes(first: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let flag = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..=125 => bytes.push(flag | short as u8),
        medium @ 126..=0xffff => {
            bytes.push(flag | 126);
            bytes.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(flag | 127);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    let start = bytes.len() + mask.map_or(0, |mask| mask.len());
    bytes.extend(mask.into_iter().flatten());
    bytes.extend_from_slice(payload);
    apply(mask, &mut bytes[start..]);
    bytes
}

fn apply(mask: Option<[u8; 4]>, payload: &mut [u8]) {
    if let Some(mask) = mask {
        for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
    }
}

async fn read_frame(stream: &mut TcpStream) -> Option<RawFrame> {
    let first = stream.read_u8().await.ok()?;
    let second = stream.read_u8().await.ok()?;
    let length = match second & 0x7f {
        126 => usize::from(stream.read_u16().await.ok()?),
        127 => usize::try_from(stream.read_u64().await.ok()?).ok()?,
        short => usize::from(short),
    };
    let masked = second & 0x80 != 0;
    let mut mask = [0; 4];
    if masked {
        stream.read_exact(&mut mask).await.ok()?;
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.ok()?;
    apply(masked.then_some(mask), &mut payload);
    Some(RawFrame {
        first,
        masked,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_of_every_length_are_read_back() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut near, mut far) = (near.expect("connected"), far.expect("accepted").0);
        for length in [0, 125, 126, 65_535, 65_536] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let payload = vec![b'x'; length];
                let bytes = frame_bytes(FIN | TEXT, mask, &payload);
                let (written, read) = tokio::join!(near.write_all(&bytes), read_frame(&mut far));
                written.expect("written");
                let expected = RawFrame {
                    first: FIN | TEXT,
                    masked: mask.is_some(),
                    payload,
                };
                assert_eq!(read, Some(expected));
            }
        }
    }
}
