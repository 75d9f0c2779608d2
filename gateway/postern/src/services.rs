//! The services as this program opens them, and the files they use.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use postern_edge::Ground;
use postern_identity::{Database, InvalidDatabase};
use postern_kit::{
    Clock,
    root::Identity,
    task::Tasks,
    tls::{Role, Tls},
    transport::{Address, Transport},
};
use postern_proto::policy::v1::policy_server::PolicyServer;

use crate::{certificates::remote, error::Error, worker};

/// First argument of the process that decodes one image or document.
pub(crate) const DECODER: &str = "decode-worker";
/// Receipts of an edge, in its data directory.
pub(crate) const LEDGER_FILE: &str = "ledger.db";
/// Key that the worker of an edge demands of its callers.
pub(crate) const EXEC_KEY_FILE: &str = "exec-key";
/// What files were before changes of an edge.
pub(crate) const BEFORE_FOLDER: &str = "before";
/// Pins and sessions of an edge.
pub(crate) const EDGE_IDENTITY_FILE: &str = "edge-identity.db";
/// Organizations, workspaces and tokens of a host.
pub(crate) const HOST_IDENTITY_FILE: &str = "host-identity.db";
/// Token of an edge's owner API.
pub(crate) const OWNER_TOKEN_FILE: &str = "owner-token";
/// Token of a host's administrator.
pub(crate) const ADMIN_TOKEN_FILE: &str = "admin-token";
/// URL of a running edge's owner API.
pub(crate) const CONSOLE_URL_FILE: &str = "console-url";
/// Time that tasks have to end.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// A database, as the command line names it. What was written is not repeated: a password may be in it.
pub(crate) fn database(url: &str) -> Result<Database, Error> {
    url.parse()
        .map_err(|problem: InvalidDatabase| Error::Usage(problem.to_string()))
}

/// Pins and sessions.
pub(crate) async fn edge_identity(
    database: Database,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<postern_identity::edge::Service, Error> {
    use postern_identity::edge::{Config, Service};
    let service = Service::open(Config { database }, clock.clone(), tasks).await;
    service.map_err(|problem| Error::failed("the edge's identity store cannot be opened", problem))
}

/// Organizations, workspaces and tokens.
pub(crate) async fn host_identity(
    database: Database,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<postern_identity::host::Service, Error> {
    use postern_identity::host::{Config, Service};
    let service = Service::open(Config { database }, clock.clone(), tasks.clone()).await;
    service.map_err(|problem| Error::failed("the host's identity store cannot be opened", problem))
}

/// Permission, by the mode and the owner's rules.
pub(crate) fn policy(
    owner_policies: Option<PathBuf>,
    tasks: &Tasks,
) -> Result<PolicyServer<impl postern_proto::policy::v1::policy_server::Policy>, Error> {
    let config = postern_policy::Config { owner_policies };
    let service = postern_policy::Service::following(config, tasks);
    Ok(service
        .map_err(|problem| Error::failed("the policies cannot be used", problem))?
        .into_server())
}

/// Files. What they were before changes is kept in a folder of `keep_before` bytes, if one is named.
pub(crate) fn filesystem(
    root: &Path,
    before: Option<PathBuf>,
    keep_before: u64,
    clock: &Clock,
) -> Result<postern_filesystem::Service, Error> {
    let config = postern_filesystem::Config {
        decoder: vec![worker::program()?, DECODER.into()],
        before,
        keep_before,
        ..postern_filesystem::Config::new(root.to_owned())
    };
    let service = postern_filesystem::Service::open(config, clock.clone());
    service.map_err(|problem| Error::failed("the project cannot be opened", problem))
}

/// Receipts.
pub(crate) async fn ledger(
    database: Database,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<postern_ledger::Service, Error> {
    let config = postern_ledger::Config { database };
    let service = postern_ledger::Service::open(config, clock.clone(), tasks).await;
    service.map_err(|problem| Error::failed("the ledger cannot be opened", problem))
}

/// The exec workers of a ledger, those over the edge's own project, as one exec service.
pub(crate) fn workers_of(
    ledger: Transport,
    project: &Identity,
    tls: Option<Tls>,
) -> Result<Transport, Error> {
    let boot = postern_kit::boot_id();
    let own = Ground {
        boot_id: boot.map_err(|problem| Error::failed("the machine's boot", problem))?,
        root_device: project.device,
        root_inode: project.inode,
    };
    let reach = move |address: &Address| remote(address, Role::Exec, tls.as_ref()).ok();
    Ok(postern_edge::workers_of(ledger, Arc::new(reach), own))
}
