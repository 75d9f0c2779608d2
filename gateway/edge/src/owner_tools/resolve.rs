//! Where names lead. `localhost` is this machine, whatever a resolver says (RFC 6761, section 6.3): plain http is spoken to it, and
//! a token goes along.

use std::{
    future::{Ready, ready},
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    task::{Context, Poll},
};

use futures_util::future::Either;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use tower::Service;

/// Asks the system for every name but `localhost`.
#[derive(Clone, Debug)]
pub(super) struct Resolver(GaiResolver);

/// Addresses of a name.
pub(super) enum Addresses {
    ThisMachine(std::array::IntoIter<SocketAddr, 2>),
    Found(GaiAddrs),
}

/// The look-up of a name, or that none is needed.
type Looking = Either<Ready<io::Result<Addresses>>, Found>;
type Found = futures_util::future::MapOk<GaiFuture, fn(GaiAddrs) -> Addresses>;

impl Resolver {
    pub(super) fn new() -> Self {
        Self(GaiResolver::new())
    }
}

impl Iterator for Addresses {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Self::ThisMachine(addresses) => addresses.next(),
            Self::Found(addresses) => addresses.next(),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = Addresses;
    type Error = io::Error;
    type Future = Looking;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Looking {
        use futures_util::TryFutureExt as _;
        if name.as_str().eq_ignore_ascii_case("localhost") {
            // The port is the URL's.
            let here = [
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
            ];
            return Either::Left(ready(Ok(Addresses::ThisMachine(here.into_iter()))));
        }
        Either::Right(
            self.0
                .call(name)
                .map_ok(Addresses::Found as fn(GaiAddrs) -> Addresses),
        )
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[tokio::test]
    async fn localhost_is_this_machine_and_nobody_is_asked() {
        for name in ["localhost", "LocalHost"] {
            let looking = Resolver::new().call(name.parse().expect("a name"));
            assert!(matches!(looking, Either::Left(_)), "no look-up");
            let found: Vec<_> = looking.await.expect("addresses").collect();
            assert!(found.iter().all(|it| it.ip().is_loopback()), "{found:?}");
            assert_eq!(found.len(), 2);
        }
        let other = Resolver::new().call("localhost.example".parse().expect("a name"));
        assert!(matches!(other, Either::Right(_)));
    }
}
