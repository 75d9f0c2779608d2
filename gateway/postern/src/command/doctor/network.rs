//! Ports of this machine and the database elsewhere.

use std::time::Duration;

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
    let Some(address) = address_of(url) else {
        return Finding::fail(
            CHECK,
            "the URL is none of a Postgres server",
            "Write postgres://user:password@host:5432/name",
        );
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

/// `host:port` of a URL, without whatever else is in it.
fn address_of(url: &str) -> Option<String> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))?;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match host {
        "" => None,
        host if has_port => Some(host.to_owned()),
        host => Some(format!("{host}:{POSTGRES_PORT}")),
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
            ("postgres://u:p%40@[::1]:7/x", Some("[::1]:7")),
            ("sqlite:///x", None),
        ] {
            assert_eq!(address_of(url).as_deref(), expected, "{url}");
        }
    }
}
