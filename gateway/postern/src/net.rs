//! Addresses of this program's listeners, and URLs of others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

use crate::error::Error;

/// Reads `host:port` for the command line.
pub(crate) fn parse_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() =>
        {
            Ok(text.to_owned())
        }
        _ => Err("write host:port, such as 127.0.0.1:7300".to_owned()),
    }
}

/// Reads a URL of a host for the command line. One with a user in it could pass for another host than it leads to.
pub(crate) fn parse_url(text: &str) -> Result<String, String> {
    let rest = ["http://", "https://", "ws://", "wss://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let sound = |rest: &str| {
        !rest.is_empty()
            && !rest.starts_with('/')
            && !rest.contains(|c: char| c.is_whitespace() || c == '@')
    };
    if rest.is_some_and(sound) {
        Ok(text.to_owned())
    } else {
        Err("write http://host:port or https://host".to_owned())
    }
}

/// Reads the URL of what shows traces for the command line.
pub(crate) fn parse_trace_url(text: &str) -> Result<String, String> {
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    if is_web && text.contains("{traceId}") {
        Ok(text.to_owned())
    } else {
        Err("write http://host:port/… with {traceId} where the trace's id goes".to_owned())
    }
}

/// The host of `host:port`, without the brackets of IPv6.
fn host_of(authority: &str) -> &str {
    authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
        .trim_matches(['[', ']'])
}

/// Whether `host:port` is of every interface of this machine.
pub(crate) fn is_unspecified(authority: &str) -> bool {
    let address = host_of(authority).parse::<IpAddr>();
    address.is_ok_and(|address| address.is_unspecified())
}

/// Whether `host:port` is on this machine alone.
pub(crate) fn is_loopback(authority: &str) -> bool {
    let host = host_of(authority);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Refuses an address that other machines reach, for what speaks plaintext.
pub(crate) fn demand_loopback(authority: &str, what: &str) -> Result<(), Error> {
    if is_loopback(authority) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "'{authority}' is not on this machine alone, and {what} speaks plaintext; use 127.0.0.1 instead"
    )))
}

/// Whether a token may be sent to a URL: by TLS anywhere, in plaintext to this machine alone.
pub(crate) fn demand_private_url(url: &str, allow_plaintext: bool) -> Result<(), Error> {
    let plain = ["http://", "ws://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = plain else {
        return Ok(());
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let authority = if authority.contains(':') {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    if allow_plaintext || is_loopback(&authority) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "'{url}' would carry the token in plaintext; use https:, or add --allow-plaintext if the network is yours"
    )))
}

/// Binds an address given by an option.
pub(crate) async fn bind(address: &str, option: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|problem| {
        Error::Failed(format!(
            "cannot listen on '{address}' ({problem}); choose another address with {option}"
        ))
    })
}

/// The URL by which this machine reaches a bound listener. One that listens everywhere is reached on loopback.
pub(crate) fn url_of(listener: &TcpListener) -> Result<String, Error> {
    let address = listener
        .local_addr()
        .map_err(|problem| Error::failed("cannot listen", problem))?;
    let reached = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    Ok(format!(
        "http://{}",
        SocketAddr::new(reached, address.port())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_urls_are_checked_before_anything_starts() {
        for (text, good) in [
            ("127.0.0.1:0", true),
            ("[::1]:80", true),
            ("a.example:1", true),
            ("nonsense", false),
            (":80", false),
            ("a:b", false),
            ("http://a:1", false),
        ] {
            assert_eq!(parse_address(text).is_ok(), good, "{text}");
        }
        for (text, good) in [
            ("http://a", true),
            ("https://a.example/x", true),
            ("wss://a", true),
            ("garbage", false),
            ("http://", false),
            ("http:///x", false),
            ("ftp://a", false),
            ("http://localhost:1@evil.example", false),
        ] {
            assert_eq!(parse_url(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn plaintext_stays_on_this_machine() {
        for (address, good) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("0.0.0.0:1", false),
            ("10.0.0.1:1", false),
            ("ledger:1", false),
            ("127.0.0.1.evil.example:1", false),
        ] {
            assert_eq!(demand_loopback(address, "this").is_ok(), good, "{address}");
            assert_eq!(
                demand_private_url(&format!("http://{address}/x"), false).is_ok(),
                good,
                "{address}"
            );
            assert!(demand_private_url(&format!("https://{address}"), false).is_ok());
            assert!(demand_private_url(&format!("http://{address}"), true).is_ok());
        }
        assert!(demand_private_url("http://localhost", false).is_ok());
        assert!(demand_private_url("http://evil.example", false).is_err());
        assert!(demand_private_url("ws://evil.example", false).is_err());
        assert!(demand_private_url("wss://evil.example", false).is_ok());
    }
}
