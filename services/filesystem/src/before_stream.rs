//! The bytes of a revision, a part at a time.

use std::{
    io::{self, Write},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use postern_kit::{Failure, root::open_file};
use postern_proto::filesystem::v1::BeforeResponse;
use postern_types::{ErrorCode, Sha256};
use sha2::Digest as _;
use tokio::sync::mpsc;
use tonic::{
    Status,
    codegen::{BoxStream, tokio_stream::Stream},
};

use crate::{project::Project, refusal, revision::read_range, spot::Spot, store};

/// Bytes sent at a time.
const CHUNK: usize = 1024 * 1024;
/// Parts that wait to be taken.
const QUEUE: usize = 2;

type Part = Result<BeforeResponse, Status>;

/// The parts. Dropped, the work on them ends.
struct Chunks(mpsc::Receiver<Part>);

impl Stream for Chunks {
    type Item = Part;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Part>> {
        self.0.poll_recv(context)
    }
}

/// Sends what is written to it in parts.
struct Parts {
    sender: mpsc::Sender<Part>,
    full: Vec<u8>,
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(CHUNK - self.full.len());
        self.full.extend_from_slice(&bytes[..length]);
        if self.full.len() == CHUNK {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.full.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.full).into();
        let sent = self.sender.blocking_send(Ok(BeforeResponse { chunk }));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Project {
    /// The bytes of a revision: kept ones, or the file's own while it is at that revision.
    pub(crate) fn bytes_of(
        self: &Arc<Self>,
        sha256: Sha256,
        path: Option<String>,
    ) -> Result<BoxStream<BeforeResponse>, Failure> {
        let permit = Arc::clone(&self.readers)
            .try_acquire_owned()
            .map_err(|_| refusal::busy("Too many earlier states are being read. Try again."))?;
        let (sender, parts) = mpsc::channel(QUEUE);
        let project = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let mut into = Parts {
                sender: sender.clone(),
                full: Vec::new(),
            };
            let told = project.tell(&sha256, path.as_deref(), &mut into);
            if let Err(failure) = told {
                // Who went away needs no answer.
                let _ = sender.blocking_send(Err(failure.into()));
            }
            drop(permit);
        });
        Ok(Box::pin(Chunks(parts)))
    }

    fn tell(&self, sha256: &Sha256, path: Option<&str>, into: &mut Parts) -> Result<(), Failure> {
        let kept = match &self.store {
            Some(store) => store.tell(sha256, into),
            None => Err(store::Error::Gone),
        };
        let told = match kept {
            Err(store::Error::Gone) => self.tell_file(sha256, path, into),
            told => told.map(drop),
        };
        told.and_then(|()| Ok(into.flush()?)).map_err(|error| {
            let (code, message) = match error {
                store::Error::Gone => (
                    ErrorCode::NotFound,
                    "These bytes are not kept, or not any more.",
                ),
                store::Error::Damaged | store::Error::Changed | store::Error::Io(_) => (
                    ErrorCode::Unavailable,
                    "These bytes could not be read whole. Try again.",
                ),
            };
            Failure::new(code, message)
        })
    }

    /// The file itself, if it is at that revision.
    fn tell_file(
        &self,
        sha256: &Sha256,
        path: Option<&str>,
        into: &mut Parts,
    ) -> Result<(), store::Error> {
        let spot = path.and_then(|path| Spot::of_target(&self.root, path).ok());
        let found = spot.as_ref().and_then(|spot| spot.existing.as_ref());
        let file = found
            .and_then(|found| open_file(found).ok())
            .ok_or(store::Error::Gone)?;
        // Looked at before anything is sent: most files that are not at that revision are small.
        let mut hash = sha2::Sha256::new();
        for pass in [Pass::Look, Pass::Send] {
            let mut offset = 0;
            loop {
                let bytes = read_range(&file, offset, CHUNK)?;
                if bytes.is_empty() {
                    break;
                }
                offset += bytes.len() as u64;
                hash.update(&bytes);
                if pass == Pass::Send {
                    into.write_all(&bytes)?;
                }
                if offset > store::LARGEST {
                    return Err(store::Error::Gone);
                }
            }
            let told = Sha256::from_bytes(hash.finalize_reset().into());
            match pass {
                Pass::Look if told != *sha256 => return Err(store::Error::Gone),
                Pass::Send if told != *sha256 => return Err(store::Error::Changed),
                Pass::Look | Pass::Send => {}
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Pass {
    Look,
    Send,
}
