//! `postern serve exec`: one worker, alone or among others.

use std::time::Duration;

use postern_exec::Registration;
use postern_kit::{
    Clock,
    serve::{Listener, add},
    task::Tasks,
    transport::{Address, Transport},
};
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use super::{Bound, bind, listen};
use crate::{
    cli::{RegisteredArgs, ServeExec},
    error::Error,
    net,
    project::Project,
    services::{self, SHUTDOWN_LIMIT},
    worker,
};

/// Runs a worker until it is told to end.
pub(super) async fn run(
    arguments: ServeExec,
    json: bool,
    tasks: Tasks,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), Error> {
    let registered = &arguments.registered;
    let ledger = registered.ledger.as_ref().map(services::remote);
    let ledger = ledger.transpose()?;
    let drain = Duration::from_secs(registered.drain);
    let service = open(&arguments, clock, &tasks)?;
    let mut routes = RoutesBuilder::default();
    add(&mut routes, service.clone().into_server()).await;
    let outcome = match bound(&arguments).await {
        Ok((listener, page)) => {
            let ended = CancellationToken::new();
            tasks.spawn("exec end", end(service.clone(), stop, drain, ended.clone()));
            match register(&service, &listener, registered, ledger.as_ref()) {
                Ok(()) => listen("exec", (listener, page), routes, &tasks, json, ended).await,
                Err(problem) => Err(problem),
            }
        }
        Err(problem) => Err(problem),
    };
    service.stop_all("the worker ends").await;
    if let Some(ledger) = ledger {
        service.leave(ledger).await;
    }
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    outcome
}

fn open(
    arguments: &ServeExec,
    clock: Clock,
    tasks: &Tasks,
) -> Result<postern_exec::Service, Error> {
    let project = Project::open(&arguments.project)?.path;
    let sandbox = arguments.sandbox.sandbox();
    let config = postern_exec::Config {
        // A worker that no edge started is not ended by the want of one.
        end_when_orphaned: arguments.key_file.is_some(),
        limits: arguments.limits.limits(),
        leased: arguments.registered.ledger.is_some(),
        ..worker::config(
            project,
            arguments.spool.clone(),
            arguments.capacity,
            sandbox,
        )?
    };
    let service = postern_exec::Service::open(config, clock, tasks.clone());
    service.map_err(|problem| Error::failed("the exec worker cannot start", problem))
}

async fn bound(arguments: &ServeExec) -> Result<Bound, Error> {
    let key = arguments
        .key_file
        .as_deref()
        .map(worker::key_of)
        .transpose()?;
    let (listener, page) = bind(&arguments.listen).await?;
    // A command of its own is no caller of it.
    let listener = listener.admitting(postern_exec::Service::admits);
    let listener = match key {
        Some(key) => listener.demanding(key),
        None => listener,
    };
    Ok((listener, page))
}

fn register(
    service: &postern_exec::Service,
    listener: &Listener,
    registered: &RegisteredArgs,
    ledger: Option<&Transport>,
) -> Result<(), Error> {
    let Some(ledger) = ledger else {
        return Ok(());
    };
    let address = match &registered.advertise {
        Some(address) => address.clone(),
        None => {
            let address = listener.address();
            reachable(address.map_err(|problem| Error::failed("cannot listen", problem))?)
        }
    };
    service.register(Registration {
        ledger: ledger.clone(),
        address: address.to_string(),
        lease: Duration::from_secs(registered.lease),
    });
    Ok(())
}

/// The address for others: one of no interface in particular is reached by this machine's name.
fn reachable(address: Address) -> Address {
    match address {
        Address::Tcp(authority) => match net::is_unspecified(&authority) {
            true => {
                let uname = rustix::system::uname();
                let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
                Address::Tcp(format!("{}:{port}", uname.nodename().to_string_lossy()))
            }
            false => Address::Tcp(authority),
        },
        unix @ Address::Unix(_) => unix,
    }
}

/// Ends the listener: at once when a caller asked for the worker's end, and after running commands had their time when a signal
/// did. Until then what they say can be read, and they can be written to and stopped.
async fn end(
    service: postern_exec::Service,
    stop: CancellationToken,
    drain: Duration,
    ended: CancellationToken,
) {
    let asked = service.finished();
    tokio::select! {
        () = asked.cancelled() => {}
        () = stop.cancelled() => {
            tokio::select! {
                () = asked.cancelled() => {}
                stopped = service.drain(drain) => {
                    tracing::info!(stopped, "the worker has drained");
                }
            }
        }
    }
    // Their streams would keep the listener open.
    service.end_programs();
    ended.cancel();
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn an_address_of_no_interface_is_told_by_the_machines_name() {
        let told = |text: &str| reachable(text.parse().expect(text)).to_string();
        for kept in [
            "127.0.0.1:7305",
            "exec-2:7305",
            "[::1]:1",
            "unix:/run/exec.sock",
        ] {
            assert_eq!(told(kept), kept);
        }
        for any in ["0.0.0.0:7305", "[::]:7305"] {
            let told = told(any);
            assert!(
                told.ends_with(":7305") && !told.contains("0.0.0.0"),
                "{told}"
            );
            assert!(!told.starts_with('[') && !told.starts_with(':'), "{told}");
        }
    }
}
