//! `postern serve`: one service alone, by gRPC with health and reflection.

use std::path::{Path, PathBuf};

use postern_kit::{
    Clock,
    serve::{Admission, Listener, add, serve},
    task::Tasks,
    transport::Address,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use crate::{
    cli::{Serve, ServeExec},
    error::Error,
    net, output,
    project::Project,
    services::{self, SHUTDOWN_LIMIT},
    signals, worker,
};

/// Runs one service until it is told to end.
pub(crate) async fn run(service: Serve, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let mut routes = RoutesBuilder::default();
    let (role, address) = match service {
        Serve::Identity(arguments) => {
            let path = sqlite_path(&arguments.database)?;
            add(&mut routes, services::edge_identity(path, &clock).await?).await;
            ("identity", arguments.listen.listen)
        }
        Serve::Policy(arguments) => {
            add(&mut routes, services::policy(arguments.policies)?).await;
            ("policy", arguments.listen.listen)
        }
        Serve::Filesystem(arguments) => {
            let root = Project::open(&arguments.project)?.path;
            add(&mut routes, services::filesystem(&root, &clock)?).await;
            ("filesystem", arguments.listen.listen)
        }
        Serve::Ledger(arguments) => {
            let path = sqlite_path(&arguments.database)?;
            add(&mut routes, services::ledger(path, &clock, &tasks).await?).await;
            ("ledger", arguments.listen.listen)
        }
        Serve::Exec(arguments) => return exec(arguments, json, tasks, clock, stop).await,
    };
    let outcome = listen(role, &address, None, routes, json, stop).await;
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    outcome
}

async fn exec(
    arguments: ServeExec,
    json: bool,
    tasks: Tasks,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), Error> {
    let project = Project::open(&arguments.project)?.path;
    let sandbox = arguments.sandbox.sandbox();
    let config = worker::config(project, arguments.spool, arguments.capacity, sandbox)?;
    let service = postern_exec::Service::open(config, clock, tasks.clone());
    let service =
        service.map_err(|problem| Error::failed("the exec worker cannot start", problem))?;
    let mut routes = RoutesBuilder::default();
    add(&mut routes, service.clone().into_server()).await;
    let (asked, signalled) = (service.finished(), stop.clone());
    tasks.spawn("exec shutdown", async move {
        tokio::select! {
            () = asked.cancelled() => signalled.cancel(),
            () = signalled.cancelled() => {}
        }
    });
    // A command of its own is no caller of it.
    let admission = Some(postern_exec::Service::admits as fn(i32) -> bool);
    let outcome = listen(
        "exec",
        &arguments.listen.listen,
        admission,
        routes,
        json,
        stop,
    )
    .await;
    service.stop_all("the worker ends").await;
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    outcome
}

async fn listen(
    role: &str,
    address: &Address,
    admission: Admission,
    routes: RoutesBuilder,
    json: bool,
    stop: CancellationToken,
) -> Result<(), Error> {
    if let Address::Tcp(authority) = address {
        net::demand_loopback(authority, "a service")?;
    }
    let failed = |problem| Error::failed(format!("the {role} service"), problem);
    let listener = Listener::bind(address)
        .await
        .map_err(|problem| Error::Failed(problem.to_string()))?;
    let listener = match admission {
        Some(admits) => listener.admitting(admits),
        None => listener,
    };
    let url = listener
        .address()
        .map_err(|problem| Error::failed("cannot listen", problem))?
        .to_string();
    output::either(
        json,
        &json!({"event": "listening", "role": role, "url": url, "metrics": null}),
        &format!("{role} service on {url}"),
    );
    serve(listener, routes, stop).await.map_err(failed)
}

fn sqlite_path(url: &str) -> Result<PathBuf, Error> {
    url.strip_prefix("sqlite://")
        .map(Path::new)
        .filter(|path| path.is_absolute() && path.file_name().is_some())
        .map(Path::to_owned)
        .ok_or_else(|| {
            Error::Usage(format!(
                "'{url}' is no database; write sqlite:///path/to/file.db"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_absolute_sqlite_files() {
        assert_eq!(
            sqlite_path("sqlite:///a/b.db").expect("path"),
            Path::new("/a/b.db")
        );
        for bad in [
            "",
            "a.db",
            "/a.db",
            "sqlite://a.db",
            "sqlite:///",
            "mysql://x",
        ] {
            assert!(sqlite_path(bad).is_err(), "{bad}");
        }
    }
}
