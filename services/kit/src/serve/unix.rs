//! Unix sockets: where they lie, whose they are and who is let in.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use rustix::fs::{Mode, fchmod};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::incoming::Accept;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Mode bits by which group and others write, and the one by which they remove only what is theirs.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Listens where nobody else does, and where nothing but a socket lies.
pub(super) async fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        prepare(directory)?;
    }
    clear(path).await?;
    let socket = UnixSocket::new_stream()?;
    // Before it has a name: nobody else can connect in between.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

/// Makes the folder if it is missing, for its owner alone. One that is there is its owner's business, and he is told.
fn prepare(directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        return DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
    }
    let facts = fs::metadata(directory)?;
    let (mode, owner) = (facts.mode(), facts.uid());
    let is_open = mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0;
    let is_anothers = owner != 0 && owner != rustix::process::geteuid().as_raw();
    if is_open || is_anothers {
        tracing::warn!(
            "other users can put a socket of theirs in the place of this service's; use a folder that only its user can write to"
        );
    }
    Ok(())
}

/// Takes away a socket that nobody listens on any more; one whose owner is busy is not taken for that.
async fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(problem) => Err(problem),
        // To connect to a file that is no socket is refused as well.
        Ok(facts) if !facts.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "something that is no socket lies there, and is left alone",
        )),
        Ok(_) => match UnixStream::connect(path).await {
            Err(problem) if problem.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)
            }
            Ok(_) | Err(_) => Ok(()),
        },
    }
}

/// Which processes a Unix socket lets in, by the id that the kernel noted when they connected; all without one. It is asked
/// on the runtime and must not take long.
pub(super) type Admission = Option<fn(i32) -> bool>;

/// The connections of those that are let in.
pub(super) struct Admitted {
    pub(super) listener: UnixListener,
    pub(super) admits: Admission,
}

impl Accept for Admitted {
    type Connection = UnixStream;

    async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            if is_admitted(&stream, self.admits) {
                return Ok(stream);
            }
        }
    }
}

fn is_admitted(stream: &UnixStream, admission: Admission) -> bool {
    let Some(admits) = admission else {
        return true;
    };
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let admitted = peer.is_some_and(admits);
    if !admitted {
        tracing::warn!("a process that may not speak to this service was hung up on");
    }
    admitted
}
