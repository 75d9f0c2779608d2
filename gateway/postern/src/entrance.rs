//! Where the console listens, and the name that it has to itself.
//!
//! Browsers send a cookie to every port of a host, so under `127.0.0.1` or `localhost` the console's cookie would go to any
//! other program of this machine that the owner looks at, an agent's development server among them. So the console has a
//! random name below `localhost`, which browsers resolve to this machine by themselves
//! (docs/adr/0013-the-console-comes-under-a-name-of-its-own.md).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::net::TcpListener;

use crate::{data_dir::DataDir, error::Error};

/// The file in the data directory that holds the name.
const NAME_FILE: &str = "console-name";
/// Random bits of the name, in bytes.
const NAME_BYTES: usize = 12;

/// Where the console listens.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// The address that was asked for.
    pub(crate) address: SocketAddr,
    /// Every listener: the one that was asked for, and the other loopback's on the same port.
    pub(crate) listeners: Vec<TcpListener>,
    /// The name below `localhost`, when nobody else can be asked under it.
    pub(crate) label: Option<String>,
}

impl Entrance {
    /// Takes the other loopback address, too: a browser may try it first under the console's name, and whoever listened
    /// there would be given links and cookies.
    pub(crate) fn open(data: &DataDir, listener: TcpListener) -> Result<Self, Error> {
        let address = listener
            .local_addr()
            .map_err(|problem| Error::failed("cannot listen", problem))?;
        let mut listeners = vec![listener];
        let is_alone = match twin(address) {
            Ok(twin) => {
                listeners.extend(twin);
                true
            }
            Err(problem) => {
                tracing::warn!(%problem, "the console has no name of its own: the same port of the other loopback address cannot be had");
                false
            }
        };
        let label = match is_alone {
            true => Some(name(data)?),
            false => None,
        };
        Ok(Self {
            address,
            listeners,
            label,
        })
    }
}

/// A listener on the same port of the other loopback address; `None` when this machine has no such address.
fn twin(address: SocketAddr) -> io::Result<Option<TcpListener>> {
    let other: IpAddr = match address.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
        // No name below `localhost` leads there.
        IpAddr::V4(_) | IpAddr::V6(_) => return Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    let bound = std::net::TcpListener::bind(SocketAddr::new(other, address.port()));
    match bound {
        Ok(listener) => {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Some)
        }
        Err(problem)
            if problem.kind() == io::ErrorKind::AddrNotAvailable
                || problem.kind() == io::ErrorKind::Unsupported
                || problem.raw_os_error()
                    == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(problem) => Err(problem),
    }
}

/// The name: made once, kept in the data directory.
fn name(data: &DataDir) -> Result<String, Error> {
    let is_name = |name: &String| {
        name.len() == 2 * NAME_BYTES
            && name
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if let Some(name) = data.read_private(NAME_FILE)?.filter(is_name) {
        return Ok(name);
    }
    let mut bytes = [0; NAME_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|problem| Error::failed("there is no randomness for a name", problem))?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    data.write_private(NAME_FILE, &format!("{name}\n"))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[tokio::test]
    async fn the_name_is_kept_and_both_loopbacks_are_taken() {
        let home = tempfile::tempdir().expect("directory");
        let data = DataDir::open(home.path()).expect("data");
        let open = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
            Entrance::open(&data, listener).expect("entrance")
        };
        let (one, other) = (open().await, open().await);
        let label = one.label.expect("a name");
        assert_eq!(Some(&label), other.label.as_ref());
        assert_eq!(label.len(), 2 * NAME_BYTES);
        let port = one.address.port();
        for taken in ["127.0.0.1", "::1"] {
            let address = SocketAddr::new(taken.parse().expect("address"), port);
            let squatter = TcpListener::bind(address).await;
            assert!(squatter.is_err(), "{address} is the console's");
        }
    }

    #[tokio::test]
    async fn where_another_holds_the_other_loopback_there_is_no_name() {
        let home = tempfile::tempdir().expect("directory");
        let data = DataDir::open(home.path()).expect("data");
        let squatter = TcpListener::bind("[::1]:0").await.expect("squatter");
        let port = squatter.local_addr().expect("address").port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let entrance = Entrance::open(&data, listener.expect("listener")).expect("entrance");
        assert_eq!((entrance.label, entrance.listeners.len()), (None, 1));
    }
}
