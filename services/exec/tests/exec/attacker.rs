//! Attacks that no shell can make.

use std::{
    io::{Read as _, Write as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    time::Duration,
};

/// Runs the attack that the arguments name and tells how it went.
pub(crate) fn attack() {
    let mut args = std::env::args().skip_while(|arg| arg != "--").skip(1);
    let kind = args.next().expect("kind");
    let target = args.next().expect("target");
    let outcome = match kind.as_str() {
        "abstract" => connect_abstract(&target),
        "worker" => speak_to_worker(&target),
        other => panic!("no attack {other}"),
    };
    writeln!(std::io::stdout(), "\nattack: {outcome}").expect("told");
}

fn connect_abstract(name: &str) -> &'static str {
    let address = SocketAddr::from_abstract_name(name).expect("address");
    match UnixStream::connect_addr(&address) {
        Ok(_) => "connected",
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => "refused",
        Err(_) => "failed",
    }
}

/// Begins to speak HTTP/2, which a server answers at once with its settings.
fn speak_to_worker(path: &str) -> &'static str {
    let Ok(mut stream) = UnixStream::connect(path) else {
        return "not heard";
    };
    let limit = Some(Duration::from_secs(5));
    stream.set_read_timeout(limit).expect("limit");
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut answer = [0; 9];
    let heard = stream
        .write_all(hello)
        .and_then(|()| stream.read_exact(&mut answer));
    match heard {
        Ok(()) => "heard",
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => "open",
        Err(_) => "not heard",
    }
}
