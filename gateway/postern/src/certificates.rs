//! The certificates of this process: where it needs them, and where they may lie.

use std::path::Path;

use postern_kit::{
    task::Tasks,
    tls::{Role, Tls},
    transport::{self, Address, Transport},
};

use crate::{cli::TlsArg, data_dir, error::Error, net};

/// The certificates that an option names, followed until the end; none without one. `role` is whose they must be.
pub(crate) async fn open(
    option: &TlsArg,
    role: Option<Role>,
    tasks: &Tasks,
) -> Result<Option<Tls>, Error> {
    let Some(folder) = &option.tls_dir else {
        return Ok(None);
    };
    let opened = Tls::open(folder, role, tasks).await;
    opened
        .map(Some)
        .map_err(|problem| Error::failed(format!("'{}' cannot be used", folder.display()), problem))
}

/// Refuses certificates inside the project, where commands and tools could read the key.
pub(crate) fn demand_beyond(project: &Path, option: &TlsArg) -> Result<(), Error> {
    let Some(folder) = &option.tls_dir else {
        return Ok(());
    };
    data_dir::demand_beyond(
        project,
        folder,
        "the folder of certificates",
        "read the key in it",
        "--tls-dir",
    )
}

/// A client's transport to a service elsewhere: by TLS with certificates, in plaintext to this machine alone.
pub(crate) fn remote(address: &Address, role: Role, tls: Option<&Tls>) -> Result<Transport, Error> {
    let connected = match tls {
        Some(tls) => transport::connect_secured(address, tls, role),
        None => {
            demand_private(address, &format!("the {role} service"))?;
            transport::connect(address)
        }
    };
    connected.map_err(|problem| Error::failed(format!("'{address}' cannot be used"), problem))
}

/// Refuses an address that other machines reach, for what has no certificates.
pub(crate) fn demand_private(address: &Address, what: &str) -> Result<(), Error> {
    match address {
        Address::Tcp(authority) if !net::is_loopback(authority) => Err(Error::Usage(format!(
            "'{authority}' is not on this machine alone, and without certificates {what} speaks plaintext; give its folder of them with --tls-dir ('postern certs init --dir D' makes one for each service), or use 127.0.0.1 or unix:/path"
        ))),
        Address::Tcp(_) | Address::Unix(_) => Ok(()),
    }
}
