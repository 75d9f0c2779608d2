//! `postern serve exec`: one worker, alone or among others.

use std::time::Duration;

use postern_exec::Registration;
use postern_kit::{
    Clock,
    serve::{Listener, Services},
    task::Tasks,
    tls::{Role, Tls},
    transport::{Address, Transport},
};
use tokio_util::sync::CancellationToken;

use super::{Bound, bind_with, listen};
use crate::{
    certificates,
    cli::{RegisteredArgs, ServeExec},
    error::Error,
    net,
    project::Project,
    services::SHUTDOWN_LIMIT,
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
    let tls = certificates::open(&arguments.listen.tls, Some(Role::Exec), &tasks).await?;
    let reach = |address| certificates::remote(address, Role::Ledger, tls.as_ref());
    let ledger = registered.ledger.as_ref().map(reach).transpose()?;
    let drain = Duration::from_secs(registered.drain);
    let service = open(&arguments, clock, &tasks)?;
    let mut routes = Services::new();
    routes.add_when_ready(service.clone().into_server(), service.readiness());
    let outcome = match bound(&arguments, tls).await {
        Ok((listener, page)) => {
            let ended = CancellationToken::new();
            let ending = Ending {
                stop,
                drain,
                ended: ended.clone(),
            };
            tasks.spawn("exec end", ending.run(service.clone()));
            match register(&service, &listener, registered, ledger.as_ref()) {
                Ok(()) => listen(Role::Exec, (listener, page), routes, &tasks, json, ended).await,
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
    certificates::demand_beyond(&project, &arguments.listen.tls)?;
    let mut wishes = arguments.sandbox.clone();
    // Its key. What a command could do with it is little (`postern_kit::callers`), and still it is not for commands.
    let folder = &arguments.listen.tls.tls_dir;
    wishes.sandbox_hide.extend(folder.clone());
    let sandbox = wishes.sandbox();
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

async fn bound(arguments: &ServeExec, tls: Option<Tls>) -> Result<Bound, Error> {
    let key = arguments
        .key_file
        .as_deref()
        .map(worker::key_of)
        .transpose()?;
    let (listener, page) = bind_with(&arguments.listen, Role::Exec, tls).await?;
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
struct Ending {
    stop: CancellationToken,
    drain: Duration,
    ended: CancellationToken,
}

impl Ending {
    async fn run(self, service: postern_exec::Service) {
        let asked = service.finished();
        tokio::select! {
            () = asked.cancelled() => {}
            () = self.stop.cancelled() => {
                tokio::select! {
                    () = asked.cancelled() => {}
                    stopped = service.drain(self.drain) => {
                        tracing::info!(stopped, "the worker has drained");
                    }
                }
            }
        }
        // Their streams would keep the listener open.
        service.end_programs();
        self.ended.cancel();
    }
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
