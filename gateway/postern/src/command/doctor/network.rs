//! Ports of this machine and the database elsewhere.

use std::{net::Ipv6Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::Finding;

/// Time in which a database answers.
const DATABASE_LIMIT: Duration = Duration::from_secs(3);
/// Asks a Postgres server whether it speaks TLS, before any sign-in: length 8, code 80877103.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// Port of Postgres when the URL has none.
const POSTGRES_PORT: u16 = 5432;

/// Whether an address can be listened on.
pub(super) async fn port(check: &'static str, address: &str, option: &str) -> Finding {
    match TcpListener::bind(address).await {
        Ok(_) => Finding::ok(check, format!("{address} is free")),
        Err(problem) => Finding::fail(
            check,
            format!("{address} cannot be listened on ({problem})"),
            format!(
                "Stop what listens there (a postern that runs does), or choose another with {option}"
            ),
        ),
    }
}

/// Whether a database server answers at a URL. It is not signed in to, so the URL's password is not used.
pub(super) async fn database(url: &str) -> Finding {
    const CHECK: &str = "postgres";
    let address = match address_of(url) {
        Ok(address) => address,
        Err(problem) => {
            return Finding::fail(
                CHECK,
                problem,
                "Write postgres://user:password@host:5432/name, with '/' in a password as %2F, '?' as %3F, '#' as %23 and '@' as %40",
            );
        }
    };
    let answer = timeout(DATABASE_LIMIT, ask(&address)).await;
    let problem = match answer {
        Ok(Ok(b'S')) => {
            return Finding::ok(
                CHECK,
                format!("{address} answers, with TLS; sign-in is not tried"),
            );
        }
        Ok(Ok(b'N')) => {
            return Finding::ok(
                CHECK,
                format!("{address} answers, without TLS; sign-in is not tried"),
            );
        }
        Ok(Ok(_)) => "what answers is no Postgres".to_owned(),
        Ok(Err(problem)) => problem.to_string(),
        Err(_) => format!("no answer in {} s", DATABASE_LIMIT.as_secs()),
    };
    Finding::fail(
        CHECK,
        format!("{address}: {problem}"),
        "Start the server, or correct host and port in the URL",
    )
}

async fn ask(address: &str) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&TLS_REQUEST).await?;
    stream.read_u8().await
}

/// `host:port` of a URL, and nothing that may be part of a user or password; else what is wrong with the URL, in words that
/// show none of it.
fn address_of(url: &str) -> Result<String, &'static str> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or("the URL is none of a Postgres server")?;
    let (authority, further) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // With an `@` behind it, the first of these signs may be in a password, and the host with it.
    if further.contains('@') {
        return Err(
            "the URL cannot be told apart: a '/', '?' or '#' comes before an '@'; nothing was looked up",
        );
    }
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let port = match port {
        None => POSTGRES_PORT,
        Some(port) => port.parse().map_err(|_| "the URL's port is none")?,
    };
    if is_host(name) {
        Ok(format!("{name}:{port}"))
    } else {
        Err("the URL names no host by name or address")
    }
}

/// Whether this is written as a host's name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(name: &str) -> bool {
    match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !name.is_empty() && name.bytes().all(plain)
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::{super::State, *};

    #[tokio::test]
    async fn an_occupied_port_fails() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = taken.local_addr().expect("address").to_string();
        let finding = port("mcp-port", &address, "--listen").await;
        assert_eq!(finding.state, State::Fail);
        assert!(finding.line().contains("--listen"), "{}", finding.line());
        drop(taken);
        assert_eq!(
            port("mcp-port", &address, "--listen").await.state,
            State::Ok
        );
    }

    #[tokio::test]
    async fn a_database_that_is_not_there_fails_and_its_password_is_not_told() {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = free.local_addr().expect("address").to_string();
        drop(free);
        let url = format!("postgres://user:MARK@{address}/name");
        for url in [&*url, "mysql://user:MARK@127.0.0.1/name", "postgres://"] {
            let finding = database(url).await;
            assert_eq!(finding.state, State::Fail, "{url}");
            assert!(!finding.line().contains("MARK"), "{}", finding.line());
        }
    }

    #[tokio::test]
    async fn what_answers_is_told() {
        for (says, expected) in [(b'N', State::Ok), (b'S', State::Ok), (b'H', State::Fail)] {
            let server = TcpListener::bind("127.0.0.1:0").await.expect("bound");
            let url = format!("postgresql://{}", server.local_addr().expect("address"));
            let answer = async {
                let (mut stream, _) = server.accept().await.expect("accepted");
                let mut asked = [0; TLS_REQUEST.len()];
                stream.read_exact(&mut asked).await.expect("asked");
                assert_eq!(asked, TLS_REQUEST);
                stream.write_all(&[says]).await.expect("answered");
            };
            let (finding, ()) = tokio::join!(database(&url), answer);
            assert_eq!(finding.state, expected, "{}", finding.line());
        }
    }

    #[test]
    fn addresses_are_read_from_urls() {
        for (url, expected) in [
            ("postgres://u:p@db/x", Some("db:5432")),
            ("postgresql://db:1?a=b", Some("db:1")),
            ("postgresql://db#x", Some("db:5432")),
            ("postgres://u:p%40@[::1]:7/x", Some("[::1]:7")),
            ("postgres://[::1]/x", Some("[::1]:5432")),
            ("postgres://u:p@ss@db/x", Some("db:5432")),
            ("postgres://u:p%2Fss@db/x", Some("db:5432")),
            ("sqlite:///x", None),
            ("postgres://db:x/n", None),
            ("postgres://db:70000/n", None),
            ("postgres://u@/n", None),
            ("postgres://u@[x]/n", None),
        ] {
            assert_eq!(address_of(url).ok().as_deref(), expected, "{url}");
        }
    }

    /// A password that is not escaped ends the authority early: neither told nor looked up, wherever its pieces would stand.
    #[tokio::test]
    async fn a_password_with_signs_of_urls_is_never_told() {
        for password in [
            "MARK/x", "MARK?x", "MARK#x", "1/MARK", "1?MARK", "1#MARK", "x/MARK@y", "/MARK",
            "MARK\\x/",
        ] {
            let url = format!("postgres://user:{password}@127.0.0.1:1/name");
            let finding = database(&url).await;
            assert_eq!(finding.state, State::Fail, "{url}");
            let line = finding.line();
            assert!(!line.contains("MARK") && !line.contains("user:1"), "{line}");
            assert!(line.contains("%2F"), "{line}");
        }
        // What has no end that is a host is no host.
        for url in ["postgres://user:MARK", "postgres://user:MARK/name"] {
            let finding = database(url).await;
            assert!(!finding.line().contains("MARK"), "{}", finding.line());
        }
    }
}
