//! Where the channel goes, and whether the token may go there.

use std::{fmt::Write as _, net::IpAddr};

use http::Uri;
use postern_types::Id;

/// The channel's endpoint of one workspace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Endpoint {
    /// `ws:` or `wss:` URL.
    pub(crate) url: String,
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Whether the connection must turn out to be one on loopback, because it is in plaintext.
    pub(crate) loopback_only: bool,
}

/// The host's URL cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum InvalidUrl {
    #[error("the host's URL is no URL; write https://host or https://host:port")]
    Malformed,
    #[error("the host's URL holds more than scheme, host, port and path")]
    Surplus,
    #[error(
        "the channel token would travel in plaintext; use https:, or --allow-plaintext if the network is yours"
    )]
    Plaintext,
}

impl Endpoint {
    /// The endpoint at a host's URL.
    pub(crate) fn new(
        host_url: &str,
        workspace_id: &Id,
        allow_plaintext: bool,
    ) -> Result<Self, InvalidUrl> {
        if host_url.contains(['#', '@']) {
            return Err(InvalidUrl::Surplus);
        }
        let uri: Uri = host_url.parse().map_err(|_| InvalidUrl::Malformed)?;
        if uri.query().is_some() {
            return Err(InvalidUrl::Surplus);
        }
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http" | "ws") => ("ws", 80),
            Some("https" | "wss") => ("wss", 443),
            _ => return Err(InvalidUrl::Malformed),
        };
        let authority = uri.authority().ok_or(InvalidUrl::Malformed)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(InvalidUrl::Malformed);
        }
        let plaintext = scheme == "ws";
        if plaintext && !allow_plaintext && !may_be_loopback(&host) {
            return Err(InvalidUrl::Plaintext);
        }
        let port = authority.port_u16().unwrap_or(default_port);
        let prefix = uri.path().trim_end_matches('/');
        let id = percent_encoded(workspace_id.as_str());
        Ok(Self {
            url: format!(
                "{scheme}://{authority}{prefix}/api/ai-gateway/v1/workspaces/{id}/channel"
            ),
            host,
            port,
            loopback_only: plaintext && !allow_plaintext,
        })
    }

    /// Where the channel goes, for people.
    pub(crate) fn authority(&self) -> String {
        let (host, port) = (&self.host, self.port);
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

/// A name can be looked at only once it is resolved; `localhost` is checked again when it is.
fn may_be_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Everything but RFC 3986's unreserved characters, escaped: an id is one segment of the path, whatever it holds.
fn percent_encoded(id: &str) -> String {
    let mut encoded = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') || byte == b'.' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    // A segment of dots alone would be walked instead of sent.
    match encoded.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => encoded,
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn endpoint(url: &str, allow_plaintext: bool) -> Result<Endpoint, InvalidUrl> {
        Endpoint::new(url, &"a/b?c".parse().expect("id"), allow_plaintext)
    }

    #[test]
    fn http_becomes_websocket() {
        assert_eq!(
            endpoint("https://host.example/base/", false),
            Ok(Endpoint {
                url: "wss://host.example/base/api/ai-gateway/v1/workspaces/a%2Fb%3Fc/channel"
                    .to_owned(),
                host: "host.example".to_owned(),
                port: 443,
                loopback_only: false,
            })
        );
        let local = endpoint("http://[::1]:7300", false).expect("loopback");
        assert_eq!((local.host.as_str(), local.port), ("::1", 7300));
        assert!(local.loopback_only && local.url.starts_with("ws://[::1]:7300/api/"));
    }

    #[test]
    fn plaintext_stays_on_loopback_unless_allowed() {
        for url in [
            "http://127.0.0.1:1",
            "ws://127.9.9.9:1",
            "http://localhost:1",
            "http://LOCALHOST:1",
        ] {
            assert!(endpoint(url, false).is_ok(), "{url}");
        }
        for url in [
            "http://host.example",
            "ws://10.0.0.1:80",
            "http://127.0.0.1.example",
            "http://0.0.0.0:1",
        ] {
            assert_eq!(endpoint(url, false), Err(InvalidUrl::Plaintext), "{url}");
            assert!(endpoint(url, true).is_ok(), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "",
            "host",
            "host:80",
            "ftp://host",
            "https://",
            "https:///x",
            "file:///etc/passwd",
        ] {
            assert_eq!(endpoint(url, true), Err(InvalidUrl::Malformed), "{url}");
        }
        for url in [
            "https://user:secret@host",
            "https://host?token=x",
            "https://host/#x",
        ] {
            assert_eq!(endpoint(url, true), Err(InvalidUrl::Surplus), "{url}");
        }
    }

    #[test]
    fn a_workspace_of_dots_stays_a_segment() {
        let url = Endpoint::new("https://h", &"..".parse().expect("id"), false)
            .expect("endpoint")
            .url;
        assert!(url.ends_with("/workspaces/%2E%2E/channel"), "{url}");
    }
}
