//! Messages between a worker and a wrapper, over a `SOCK_SEQPACKET` pair: one message, one packet, whole or not at all.

use std::{
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
        recvmsg, sendmsg, shutdown, socketpair,
    },
};

use crate::config::COMMAND_BYTES;

/// Handles in one message: a directory and a program's three.
const HANDLES: usize = 4;
/// Bytes of the largest message: the shell text or the program, its directory's path and a few numbers. Below the smallest
/// default send buffer of Linux, so that a message is never refused for its size.
const MESSAGE_BYTES: usize = COMMAND_BYTES + 1 + PATH_BYTES + 16;
/// Bytes of the longest path that Linux knows.
const PATH_BYTES: usize = 4096;

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// A command to run.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Job {
    /// Its time limit in milliseconds.
    pub(crate) timeout_ms: u32,
    /// Path of its directory, for `PWD`; the directory itself comes as a handle.
    pub(crate) directory: PathBuf,
    /// Shell text.
    pub(crate) command: String,
}

/// A program to run with pipes, without a time limit. Its directory, input, output and errors come as handles, in that order.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Program {
    /// Path of its directory, for `PWD`.
    pub(crate) directory: PathBuf,
    /// The program and its arguments.
    pub(crate) argv: Vec<OsString>,
    /// Variables besides those of the wrapper.
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// What a worker says.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// Run this, once.
    Run(Job),
    /// Run this with pipes, once.
    Pipe(Program),
    /// End everything that the command started.
    End,
    /// Tell how many processes are left.
    Count,
}

/// Why a command's shell is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// By itself.
    Itself,
    /// The time limit.
    Timeout,
    /// An order, or the end of the worker.
    Stop,
}

/// What a wrapper says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Report {
    /// The terminal and the output's pipe come with this, in that order.
    Ready {
        /// Paths beside what the sandbox hides that are out of reach, too, since there are too many.
        left_out: u32,
    },
    /// The sandbox could not be taken, and no command will run: the system's error number.
    Unconfined(i32),
    /// The shell runs.
    Started,
    /// The shell could not be started: the system's error number.
    Failed(i32),
    /// The shell is gone.
    Exited {
        /// Why.
        cause: Cause,
        /// The raw status by `waitpid`.
        status: i32,
        /// Processes left.
        survivors: u32,
    },
    /// Nothing is left; the wrapper goes when the worker hangs up.
    Empty,
    /// Processes left.
    Count(u32),
    /// The process table cannot be read, by this error number: what the command started is being ended as far as it is
    /// known, and looked for again and again.
    Blind(i32),
}

/// A message with its handles.
pub(crate) struct Message {
    bytes: Vec<u8>,
    /// Handles that came with it.
    pub(crate) handles: Vec<OwnedFd>,
}

impl Socket {
    /// A connected pair.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Takes an end that was inherited.
    pub(crate) fn from_handle(handle: OwnedFd) -> Self {
        Self(handle)
    }

    /// Gives the handle away, to be inherited.
    pub(crate) fn into_handle(self) -> OwnedFd {
        self.0
    }

    /// Tells the other side that nobody speaks here any more.
    pub(crate) fn hang_up(&self) {
        // It fails only when the other side is gone already.
        let _gone = shutdown(&self.0, Shutdown::Both);
    }

    /// Gives an order, with the directory's handle for [`Order::Run`] and the program's behind it for [`Order::Pipe`]. Never
    /// waits.
    pub(crate) fn order(&self, order: &Order, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(&order.encode(), handles)
    }

    /// Reports, with the handles for [`Report::Ready`]. Never waits.
    pub(crate) fn report(&self, report: Report, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(&report.encode(), handles)
    }

    fn send(&self, bytes: &[u8], handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !handles.is_empty() && !control.push(SendAncillaryMessage::ScmRights(handles)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::io::retry_on_intr(|| {
            sendmsg(&self.0, &[io::IoSlice::new(bytes)], &mut control, flags)
        })?;
        Ok(())
    }

    /// Waits for the next message; `None` when the other side is gone.
    pub(crate) fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let iov = &mut [io::IoSliceMut::new(&mut bytes)];
            recvmsg(&self.0, iov, &mut control, RecvFlags::CMSG_CLOEXEC)
        });
        let received = match received {
            Err(Errno::CONNRESET) => return Ok(None),
            other => other?,
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        if received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(received.bytes);
        let mut handles = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                handles.extend(rights);
            }
        }
        Ok(Some(Message { bytes, handles }))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Message {
    /// Reads an order.
    pub(crate) fn order(&self) -> io::Result<Order> {
        Order::decode(&self.bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads a report.
    pub(crate) fn report(&self) -> io::Result<Report> {
        Report::decode(&self.bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Order {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Run(job) => {
                let directory = job.directory.as_os_str().as_bytes();
                let length = u32::try_from(directory.len()).unwrap_or(u32::MAX);
                let mut bytes = vec![b'R'];
                bytes.extend(job.timeout_ms.to_le_bytes());
                bytes.extend(length.to_le_bytes());
                bytes.extend(directory);
                bytes.extend(job.command.as_bytes());
                bytes
            }
            Self::Pipe(program) => program.encode(),
            Self::End => vec![b'E'],
            Self::Count => vec![b'C'],
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match tag {
            b'R' => {
                let (timeout, rest) = rest.split_first_chunk()?;
                let (length, rest) = rest.split_first_chunk()?;
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                let (directory, command) = rest.split_at_checked(length)?;
                Some(Self::Run(Job {
                    timeout_ms: u32::from_le_bytes(*timeout),
                    directory: Path::new(OsStr::from_bytes(directory)).to_owned(),
                    command: String::from_utf8(command.to_vec()).ok()?,
                }))
            }
            b'P' => Program::decode(rest).map(Self::Pipe),
            b'E' => Some(Self::End),
            b'C' => Some(Self::Count),
            _ => None,
        }
    }
}

impl Program {
    /// Whether an order for it can be sent.
    pub(crate) fn fits(&self) -> bool {
        self.encode().len() <= MESSAGE_BYTES
    }

    /// The directory, how many arguments there are, those, and then a name and a value in turn.
    fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.argv.len()).unwrap_or(u32::MAX);
        let mut bytes = vec![b'P'];
        bytes.extend(count.to_le_bytes());
        let env = self.env.iter().flat_map(|(name, value)| [name, value]);
        let texts = std::iter::once(self.directory.as_os_str())
            .chain(self.argv.iter().chain(env).map(OsString::as_os_str));
        for text in texts {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            bytes.extend(length.to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (count, mut rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let mut texts = Vec::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (text, after) = after.split_at_checked(length)?;
            texts.push(OsStr::from_bytes(text).to_owned());
            rest = after;
        }
        let mut texts = texts.into_iter();
        let directory = texts.next()?.into();
        let argv: Vec<OsString> = texts.by_ref().take(count).collect();
        let mut env = Vec::new();
        while let Some(name) = texts.next() {
            env.push((name, texts.next()?));
        }
        (argv.len() == count).then_some(Self {
            directory,
            argv,
            env,
        })
    }
}

impl Report {
    fn encode(self) -> Vec<u8> {
        match self {
            Self::Ready { left_out } => [&b"r"[..], &left_out.to_le_bytes()].concat(),
            Self::Unconfined(errno) => [&b"u"[..], &errno.to_le_bytes()].concat(),
            Self::Started => vec![b's'],
            Self::Failed(errno) => [&b"f"[..], &errno.to_le_bytes()].concat(),
            Self::Exited {
                cause,
                status,
                survivors,
            } => [
                &[b'x', cause.encode()][..],
                &status.to_le_bytes(),
                &survivors.to_le_bytes(),
            ]
            .concat(),
            Self::Empty => vec![b'e'],
            Self::Count(count) => [&b"c"[..], &count.to_le_bytes()].concat(),
            Self::Blind(errno) => [&b"b"[..], &errno.to_le_bytes()].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        Some(match tag {
            b'r' => Self::Ready {
                left_out: u32::from_le_bytes(rest.try_into().ok()?),
            },
            b'u' => Self::Unconfined(i32::from_le_bytes(rest.try_into().ok()?)),
            b's' => Self::Started,
            b'f' => Self::Failed(i32::from_le_bytes(rest.try_into().ok()?)),
            b'x' => {
                let (cause, rest) = rest.split_first()?;
                let (status, survivors) = rest.split_first_chunk()?;
                Self::Exited {
                    cause: Cause::decode(*cause)?,
                    status: i32::from_le_bytes(*status),
                    survivors: u32::from_le_bytes(survivors.try_into().ok()?),
                }
            }
            b'e' => Self::Empty,
            b'c' => Self::Count(u32::from_le_bytes(rest.try_into().ok()?)),
            b'b' => Self::Blind(i32::from_le_bytes(rest.try_into().ok()?)),
            _ => return None,
        })
    }
}

impl Cause {
    const fn encode(self) -> u8 {
        match self {
            Self::Itself => 0,
            Self::Timeout => 1,
            Self::Stop => 2,
        }
    }

    const fn decode(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Itself),
            1 => Some(Self::Timeout),
            2 => Some(Self::Stop),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn orders_and_the_largest_job_pass_whole_with_their_handle() {
        let (worker, wrapper) = Socket::pair().expect("pair");
        let directory = std::fs::File::open("/").expect("root");
        let job = Order::Run(Job {
            timeout_ms: 600_000,
            directory: PathBuf::from("/".repeat(PATH_BYTES)),
            command: "x".repeat(COMMAND_BYTES),
        });
        worker
            .order(&job, &[directory.as_fd()])
            .expect("one packet");
        worker.order(&Order::End, &[]).expect("end");
        worker.order(&Order::Count, &[]).expect("count");
        let message = wrapper.receive().expect("receive").expect("message");
        assert_eq!(message.order().expect("order"), job);
        assert_eq!(message.handles.len(), 1);
        for expected in [Order::End, Order::Count] {
            let message = wrapper.receive().expect("receive").expect("message");
            assert_eq!(message.order().expect("order"), expected);
        }
        worker.hang_up();
        assert!(wrapper.receive().expect("receive").is_none());
    }

    #[test]
    fn a_program_passes_whole_with_its_handles() {
        let (worker, wrapper) = Socket::pair().expect("pair");
        let handle = std::fs::File::open("/").expect("root");
        let program = |env| Program {
            directory: PathBuf::from("/p"),
            argv: vec!["node".into(), "".into(), "a\nb".into()],
            env,
        };
        for env in [
            Vec::new(),
            vec![("A".into(), "".into()), ("B".into(), "=x".into())],
        ] {
            let order = Order::Pipe(program(env));
            worker.order(&order, &[handle.as_fd(); 4]).expect("sent");
            let message = wrapper.receive().expect("receive").expect("message");
            assert_eq!(message.order().expect("order"), order);
            assert_eq!(message.handles.len(), 4);
        }
        let bytes = program(Vec::new()).encode();
        for cut in 1..bytes.len() {
            assert_eq!(Order::decode(&bytes[..cut]), None, "{cut}");
        }
        let huge = Program {
            argv: vec!["x".repeat(MESSAGE_BYTES).into()],
            ..program(Vec::new())
        };
        assert!(!huge.fits());
    }

    #[test]
    fn reports_are_read_as_written() {
        let (worker, wrapper) = Socket::pair().expect("pair");
        let reports = [
            Report::Ready { left_out: 5 },
            Report::Unconfined(1),
            Report::Started,
            Report::Failed(2),
            Report::Exited {
                cause: Cause::Timeout,
                status: 9,
                survivors: 3,
            },
            Report::Empty,
            Report::Count(7),
            Report::Blind(23),
        ];
        for report in reports {
            wrapper.report(report, &[]).expect("send");
            let message = worker.receive().expect("receive").expect("message");
            assert_eq!(message.report().expect("report"), report);
        }
        wrapper.send(b"?", &[]).expect("send");
        let message = worker.receive().expect("receive").expect("message");
        assert!(message.report().is_err());
    }
}
