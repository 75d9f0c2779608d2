//! The exec worker of an edge: a process of its own that outlives a killed edge and is met again over its socket.

mod key;
mod process;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use postern_kit::{
    metrics,
    root::Identity,
    task::Tasks,
    transport::{Address, Transport, connect, with_key},
};
use postern_proto::exec::v1::{
    FiguresRequest, HeartbeatRequest, HeartbeatResponse, ShutdownRequest, exec_client::ExecClient,
};
use tokio::{
    net::UnixStream,
    process::Child,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::{cli::SandboxArgs, data_dir::DataDir, error::Error};

use key::KeyFile;
pub(crate) use key::key_of;
pub(crate) use process::{SOCKET_PATH_LIMIT, WRAPPER, config, program};

/// Time in which a worker answers one look at it.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Time in which a worker that is met again, and listens, answers at last.
const MEET_LIMIT: Duration = Duration::from_secs(20);
/// Time between two looks at a worker that is no child of this process.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two looks at a worker that is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Time in which a worker ends its commands and itself.
const STOP_LIMIT: Duration = Duration::from_secs(8);
/// Life of a worker after which its death is no sign that the next one dies as well.
const STEADY: Duration = Duration::from_secs(1);
/// Waits between two attempts to start a worker again.
const RESTART_WAITS: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// The worker of a data directory: where it is met, and how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    socket: PathBuf,
    spool: PathBuf,
    log: PathBuf,
    project: PathBuf,
    root: Identity,
    wishes: SandboxArgs,
    key: KeyFile,
    transport: Transport,
    /// The same without the key.
    keyless: Transport,
}

/// A worker that runs, and is started again when it dies.
#[derive(Debug)]
pub(crate) struct Worker {
    place: Place,
    ending: CancellationToken,
}

/// What a look at a worker came to.
#[derive(Debug)]
enum Look {
    /// It answered.
    There(HeartbeatResponse),
    /// It listens, and was too busy to answer. It is no less there: its commands run, and no other can take its place.
    Silent,
    /// It answered that the key is not its own.
    Locked,
    /// It answered, and would have answered anybody.
    Unlocked,
    /// Nobody listens.
    Gone,
}

impl Place {
    /// Where the worker of this data directory is met, and the key to it. Nothing is started.
    pub(crate) fn new(
        data: &DataDir,
        project: &Path,
        root: &Identity,
        wishes: &SandboxArgs,
        private: &[&Path],
    ) -> Result<Self, Error> {
        let socket = process::socket_path(data)?;
        let mut wishes = wishes.clone();
        // Its tokens, its receipts and its socket.
        wishes.sandbox_hide.push(data.path().to_owned());
        wishes
            .sandbox_hide
            .extend(private.iter().map(|path| (*path).to_owned()));
        let key = KeyFile::open(data)?;
        let transport = connect(&Address::Unix(socket.clone()))
            .map_err(|problem| Error::failed("the exec worker's socket cannot be used", problem))?;
        Ok(Self {
            transport: with_key(transport.clone(), &key.key),
            keyless: transport,
            key,
            socket,
            spool: data.join("spool"),
            log: data.join("exec-worker.log"),
            project: project.to_owned(),
            root: root.clone(),
            wishes,
        })
    }

    /// What a client stands on. It connects when it is used.
    pub(crate) fn transport(&self) -> Transport {
        self.transport.clone()
    }

    /// Has the worker's figures on the page of this process.
    fn show_figures(&self) {
        let transport = self.transport.clone();
        metrics::include("exec", move || {
            let mut client = ExecClient::new(transport.clone());
            Box::pin(async move {
                let told = client.figures(FiguresRequest {}).await;
                told.ok().map(|answer| answer.into_inner().text)
            })
        });
    }

    /// Meets the worker that still runs, or starts one, and keeps one running from then on.
    pub(crate) async fn meet_or_start(self, tasks: &Tasks) -> Result<Worker, Error> {
        let child = match self.meet().await {
            Look::There(worker) if self.is_ours(&worker) => None,
            // A worker over another project must not run this project's commands, nor these commands that one's. One that was
            // started without a key takes commands from whoever reaches its socket.
            Look::There(_) | Look::Unlocked => {
                self.shut_down("another project or sandbox, or no key")
                    .await;
                self.gone().await;
                Some(process::start(&self).await?)
            }
            Look::Silent => {
                return Err(Error::Failed(format!(
                    "the exec worker of this data directory runs and has not answered in {} s; try again, or end the process 'serve exec' over it",
                    MEET_LIMIT.as_secs()
                )));
            }
            Look::Locked => return Err(self.locked_out().await),
            Look::Gone => Some(process::start(&self).await?),
        };
        let ending = CancellationToken::new();
        let worker = Worker {
            place: self.clone(),
            ending: ending.clone(),
        };
        self.show_figures();
        tasks.spawn("exec worker", keep_running(self, child, ending));
        Ok(worker)
    }

    /// Looks until the worker has answered or is gone, and whether it answers without the key as well.
    async fn meet(&self) -> Look {
        let found = self.look_until(&self.transport).await;
        if !matches!(found, Look::There(_)) {
            return found;
        }
        match self.look_until(&self.keyless).await {
            Look::Locked => found,
            Look::There(_) => Look::Unlocked,
            other @ (Look::Silent | Look::Unlocked | Look::Gone) => other,
        }
    }

    async fn look_until(&self, transport: &Transport) -> Look {
        let until = Instant::now() + MEET_LIMIT;
        loop {
            let found = self.look_by(transport).await;
            if !matches!(found, Look::Silent) || Instant::now() >= until {
                return found;
            }
        }
    }

    async fn look(&self) -> Look {
        self.look_by(&self.transport).await
    }

    async fn look_by(&self, transport: &Transport) -> Look {
        // An edge tells its incarnation with its own heartbeats; this one only asks.
        let sign = HeartbeatRequest::default();
        let mut client = ExecClient::new(transport.clone());
        match timeout(LOOK_LIMIT, client.heartbeat(sign)).await {
            Ok(Ok(answer)) => Look::There(answer.into_inner()),
            Ok(Err(status)) if status.code() == Code::Unauthenticated => Look::Locked,
            failed => {
                if !self.listens().await {
                    return Look::Gone;
                }
                // One that fails at once must not be asked without a pause.
                if failed.is_ok() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Look::Silent
            }
        }
    }

    /// Whether somebody has the socket open: the kernel says so, however busy that one is.
    async fn listens(&self) -> bool {
        match timeout(LOOK_LIMIT, UnixStream::connect(&self.socket)).await {
            Ok(Ok(_)) | Err(_) => true,
            Ok(Err(problem)) => !matches!(
                problem.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ),
        }
    }

    /// What is told of a worker that cannot be spoken to: it runs, and only its owner can say what is to become of its
    /// commands.
    async fn locked_out(&self) -> Error {
        let peer = match timeout(LOOK_LIMIT, UnixStream::connect(&self.socket)).await {
            Ok(Ok(stream)) => stream.peer_cred().ok().and_then(|peer| peer.pid()),
            Ok(Err(_)) | Err(_) => None,
        };
        let process = peer.map_or_else(
            || "'serve exec' over it".to_owned(),
            |process| process.to_string(),
        );
        Error::Failed(format!(
            "the exec worker of this data directory runs and does not take the key in '{}', which was replaced or removed since it was started; put the old file back, or end that process ({process}), which ends its commands, and start again",
            self.key.path().display()
        ))
    }

    /// Whether it is over this project and under these wishes for the sandbox: those of an edge that was killed may have
    /// been others.
    fn is_ours(&self, worker: &HeartbeatResponse) -> bool {
        worker.root_device == self.root.device
            && worker.root_inode == self.root.inode
            && worker.sandbox_wishes == self.wishes.sandbox().fingerprint()
    }

    async fn shut_down(&self, reason: &str) {
        let mut client = ExecClient::new(self.transport());
        let wish = client.shutdown(ShutdownRequest {
            reason: reason.to_owned(),
        });
        match timeout(STOP_LIMIT, wish).await {
            Ok(Ok(answer)) => tracing::info!(
                stopped = answer.into_inner().stopped,
                "the exec worker ends"
            ),
            Ok(Err(status)) => {
                tracing::warn!(code = ?status.code(), "the exec worker did not answer");
            }
            Err(_) => tracing::warn!("the exec worker is slow to end"),
        }
    }

    /// Waits until the worker answers no more, at most its time to end.
    async fn gone(&self) {
        let waited = timeout(STOP_LIMIT, async {
            while !matches!(self.look().await, Look::Gone) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        if waited.await.is_err() {
            tracing::warn!("the exec worker still answers");
        }
    }
}

/// Waits for the worker's death and starts another, until told that its end is wanted. What ran in the dead one is lost, and
/// the new one says so.
async fn keep_running(place: Place, mut child: Option<Child>, ending: CancellationToken) {
    let mut attempts = 0;
    loop {
        let started = Instant::now();
        let died = async {
            match &mut child {
                Some(child) => drop(child.wait().await),
                None => {
                    while !matches!(place.look().await, Look::Gone) {
                        tokio::time::sleep(LOOK_INTERVAL).await;
                    }
                }
            }
        };
        tokio::select! {
            () = ending.cancelled() => break,
            () = died => tracing::warn!("the exec worker is gone; another is started"),
        }
        if started.elapsed() >= STEADY {
            attempts = 0;
        }
        child = loop {
            let wait = RESTART_WAITS[attempts.min(RESTART_WAITS.len() - 1)];
            attempts += 1;
            tokio::select! {
                () = ending.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            match process::start(&place).await {
                Ok(child) => break Some(child),
                Err(problem) => {
                    tracing::error!(%problem, "the exec worker cannot be started again");
                }
            }
        };
    }
    // A child of this process is reaped here, so that it does not stay in the process table.
    if let Some(mut child) = child {
        let _ = timeout(STOP_LIMIT, child.wait()).await;
    }
}

impl Worker {
    /// Ends the worker and its commands.
    pub(crate) async fn stop(&self) {
        self.ending.cancel();
        self.place.shut_down("the edge ended").await;
    }
}

#[cfg(test)]
mod tests {
    use postern_kit::{
        Key,
        serve::{Listener, Services, serve},
    };
    use pretty_assertions::assert_eq;
    use tokio::net::UnixListener;

    use super::*;

    fn place(home: &Path) -> Place {
        let data = DataDir::open(&home.join("data")).expect("data");
        let root = Identity {
            real_path: home.to_owned(),
            device: 1,
            inode: 1,
        };
        Place::new(&data, home, &root, &SandboxArgs::default(), &[]).expect("place")
    }

    /// A worker that a busy machine keeps from answering is there all the same: another could not take its place.
    #[tokio::test]
    async fn a_worker_that_listens_and_is_slow_is_not_gone() {
        let home = tempfile::tempdir().expect("folder");
        let place = place(home.path());
        let looked = async || std::mem::discriminant(&place.look().await);
        let [silent, gone] = [Look::Silent, Look::Gone].map(|look| std::mem::discriminant(&look));
        assert_eq!(looked().await, gone);
        let listener = UnixListener::bind(&place.socket).expect("bound");
        assert_eq!(looked().await, silent);
        drop(listener);
        // What a killed worker leaves.
        assert!(place.socket.exists());
        assert_eq!(looked().await, gone);
    }

    /// A worker whose key is not in its file any more: it is neither replaced nor left alone without a word.
    #[tokio::test]
    async fn a_worker_with_another_key_is_told_with_what_to_do() {
        let home = tempfile::tempdir().expect("folder");
        let place = place(home.path());
        let address = Address::Unix(place.socket.clone());
        let listener = Listener::bind(&address).await.expect("bound");
        let other = Key::generate().expect("random bytes");
        let tasks = Tasks::new();
        let serving = serve(listener.demanding(other), Services::new(), tasks.stopping());
        tasks.spawn("worker", serving);
        let met = place.meet_or_start(&tasks).await;
        let told = met.expect_err("locked out").to_string();
        let own = std::process::id().to_string();
        for part in ["exec-key", "put the old file back", own.as_str()] {
            assert!(told.contains(part), "{told}");
        }
    }
}
