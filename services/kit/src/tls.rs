//! Mutual TLS between services: the files of one process, followed while it runs.
//!
//! A folder holds `ca.pem` (one or several authorities), `cert.pem` (this process's chain) and `key.pem`. Whoever is on the
//! other end shows a certificate of one of these authorities, or is hung up on before a byte of a request is read.
//!
//! Invariants:
//! - What a certificate is for (its *role*) is a DNS name in it, such as `ledger`. A client goes by the role and not by the
//!   address, so workers come and go under addresses that no certificate could have named; a server goes by it as well
//!   (`callers`).
//! - New files are taken within [`RELOAD_INTERVAL`]; those that are not whole, or do not fit each other, change nothing.

mod accept;
mod material;
mod role;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ServerConfig, pki_types::UnixTime};
use tokio::{sync::watch, time::Instant};

use crate::task::Tasks;

use self::material::{Files, Material, settled};
pub(crate) use self::{accept::Handshakes, role::Expected};
pub use self::{
    material::{Inspected, Lifetime, TlsError, inspect},
    role::{Peer, Role},
};

/// The authorities.
pub const CA_FILE: &str = "ca.pem";
/// The certificate of a process.
pub const CERTIFICATE_FILE: &str = "cert.pem";
/// Its key.
pub const KEY_FILE: &str = "key.pem";
/// Time between two looks at the files. A third of the time that the contract gives (CONTRACT.md, section 8).
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(3);
/// Time before the end of a certificate from which on the log tells of it.
pub const EXPIRY_NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// Time between two notices of one certificate.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The certificates that a process shows and goes by. Clones follow the same files.
#[derive(Clone)]
pub struct Tls {
    current: watch::Receiver<Arc<Material>>,
}

impl Tls {
    /// Reads the files of a folder and follows them until `tasks` stop. `role` is what the certificate must be for; none is
    /// demanded of those that only ask.
    ///
    /// # Errors
    /// When the files are missing, broken, expired, do not fit each other or are another role's.
    pub async fn open(folder: &Path, role: Option<Role>, tasks: &Tasks) -> Result<Self, TlsError> {
        let (files, material) = settled(folder, |files| Material::new(files, role)).await?;
        let (sender, current) = watch::channel(Arc::new(material));
        let following = Following {
            folder: folder.to_owned(),
            role,
            seen: files,
            sender,
        };
        let stopping = tasks.stopping();
        tasks.spawn("certificates", async move {
            stopping.run_until_cancelled(following.run()).await;
        });
        Ok(Self { current })
    }

    /// What a server answers the next connection with.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.borrow().server)
    }

    /// What a client begins the next connection with.
    pub(crate) fn client(&self, expected: Expected) -> Arc<ClientConfig> {
        let current = self.current.borrow();
        Arc::clone(match expected {
            Expected::One(_) => &current.client,
            Expected::Any => &current.client_of_any,
        })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls(…)")
    }
}

/// The files of a folder as they were last seen.
struct Following {
    folder: PathBuf,
    role: Option<Role>,
    seen: Files,
    sender: watch::Sender<Arc<Material>>,
}

impl Following {
    async fn run(mut self) {
        let mut notice = Instant::now();
        let mut last_problem = String::new();
        loop {
            if Instant::now() >= notice {
                self.tell_of_expiry();
                notice = Instant::now() + NOTICE_INTERVAL;
            }
            tokio::time::sleep(RELOAD_INTERVAL).await;
            match self.look().await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::info!("new certificates are in use");
                    notice = Instant::now();
                    last_problem.clear();
                }
                // Once a problem, not every few seconds.
                Err(problem) => {
                    let problem = problem.to_string();
                    if problem != last_problem {
                        tracing::warn!(
                            problem,
                            "the new certificates are not used, the old ones stay"
                        );
                        last_problem = problem;
                    }
                }
            }
        }
    }

    /// Takes what is new. Tells whether there was something.
    async fn look(&mut self) -> Result<bool, TlsError> {
        let files = Files::read(&self.folder).await?;
        if files == self.seen {
            return Ok(false);
        }
        let material = Material::new(&files, self.role)?;
        self.seen = files;
        self.sender.send_replace(Arc::new(material));
        Ok(true)
    }

    fn tell_of_expiry(&self) {
        match self
            .sender
            .borrow()
            .lifetime(UnixTime::now(), EXPIRY_NOTICE)
        {
            Lifetime::Good => {}
            Lifetime::EndsSoon => tracing::warn!(
                days = EXPIRY_NOTICE.as_secs() / (24 * 60 * 60),
                "the certificate of this service ends soon; renew it with: postern certs renew"
            ),
            Lifetime::Ended => tracing::error!(
                "the certificate of this service is not valid any more, so nobody speaks to it; renew it with: postern certs renew"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
