//! Typing into a command's terminal.
//!
//! A terminal gathers a line before it passes it on, and loses what is over 4095 bytes of it. So a long line is passed on
//! in pieces, by the character that ends input: in the middle of a line it ends nothing, it only passes on what is there.
//! For the same reason one such character from the agent is typed twice when a line is unfinished: the agent means the
//! end of the input.

use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    termios::{LocalModes, SpecialCodeIndex, Termios, tcgetattr},
};

use crate::readiness::wait;

/// Bytes of a line after which it is passed on; less than the terminal's 4095, whatever was typed before.
const LINE_PIECE: usize = 3_000;
/// Time that a full terminal has to take more.
const FULL_LIMIT: Duration = Duration::from_secs(2);
/// Time after which a full terminal is tried again, should its readiness not be told.
const FULL_ROUND: Duration = Duration::from_millis(20);
/// Ends input.
const END: u8 = 0x04;

/// The typist's side of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: Arc<OwnedFd>,
    /// Bytes of the unfinished line that were not passed on.
    line: usize,
}

impl Terminal {
    pub(crate) fn new(master: Arc<OwnedFd>) -> Self {
        Self { master, line: 0 }
    }

    /// Types a text and tells how many of its bytes were taken: all, unless nobody reads for too long.
    pub(crate) fn type_text(&mut self, text: &str) -> io::Result<usize> {
        let until = Instant::now() + FULL_LIMIT;
        let bytes = text.as_bytes();
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let modes = tcgetattr(&self.master)?;
            let (wanted, got) = if !modes.local_modes.contains(LocalModes::ICANON) {
                (rest.len(), self.write(rest, until)?)
            } else if rest[0] == END {
                (1, self.type_end(&modes, until)?)
            } else {
                self.type_piece(rest, &modes, until)?
            };
            taken += got;
            if got < wanted {
                break;
            }
        }
        Ok(taken)
    }

    /// Types the end of the input.
    fn type_end(&mut self, modes: &Termios, until: Instant) -> io::Result<usize> {
        if self.line > 0 && !self.pass_on(modes, until)? {
            return Ok(0);
        }
        self.write(&[END], until)
    }

    /// Types as much as can be typed in one go; tells how much that is and how much was taken.
    fn type_piece(
        &mut self,
        rest: &[u8],
        modes: &Termios,
        until: Instant,
    ) -> io::Result<(usize, usize)> {
        let mut line = self.line;
        let mut length = 0;
        for byte in rest {
            if *byte == END || line >= LINE_PIECE {
                break;
            }
            length += 1;
            line = if ends_line(*byte, modes) { 0 } else { line + 1 };
        }
        let got = self.write(&rest[..length], until)?;
        for byte in &rest[..got] {
            self.line = if ends_line(*byte, modes) {
                0
            } else {
                self.line + 1
            };
        }
        if got == length && self.line >= LINE_PIECE && !self.pass_on(modes, until)? {
            // Nothing more may be typed before this is passed on, or it would be lost.
            return Ok((length + 1, got));
        }
        Ok((length, got))
    }

    fn pass_on(&mut self, modes: &Termios, until: Instant) -> io::Result<bool> {
        let passed = self.write(&[modes.special_codes[SpecialCodeIndex::VEOF]], until)? == 1;
        if passed {
            self.line = 0;
        }
        Ok(passed)
    }

    fn write(&self, bytes: &[u8], until: Instant) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::write(&*self.master, &bytes[written..]) {
                Ok(count) if count > 0 => written += count,
                Ok(_) | Err(Errno::AGAIN) => {
                    if until <= Instant::now() {
                        break;
                    }
                    let soon = until.min(Instant::now() + FULL_ROUND);
                    wait(
                        &mut [PollFd::new(&*self.master, PollFlags::OUT)],
                        Some(soon),
                    )?;
                }
                Err(Errno::INTR) => {}
                // Everybody who could read has gone.
                Err(Errno::IO) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written)
    }
}

/// Whether a byte ends the line, or the signal it stands for throws the line away.
fn ends_line(byte: u8, modes: &Termios) -> bool {
    let signals = [
        SpecialCodeIndex::VINTR,
        SpecialCodeIndex::VQUIT,
        SpecialCodeIndex::VSUSP,
    ];
    matches!(byte, b'\n' | b'\r')
        || (modes.local_modes.contains(LocalModes::ISIG)
            && byte != 0
            && signals
                .iter()
                .any(|signal| modes.special_codes[*signal] == byte))
}
