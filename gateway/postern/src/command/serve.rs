//! `postern serve`: one service alone, by gRPC with health and reflection.

mod exec;

use postern_kit::{
    Clock,
    metrics::Page,
    serve::{Listener, add, add_when_ready, serve},
    task::Tasks,
    transport::Address,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use crate::{
    cli::{ListenArg, Serve},
    data_dir,
    error::Error,
    figures, net, output,
    project::Project,
    services::{self, SHUTDOWN_LIMIT},
    signals,
};

/// Runs one service until it is told to end.
pub(crate) async fn run(service: Serve, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let mut routes = RoutesBuilder::default();
    let (role, place) = match service {
        Serve::Identity(arguments) => {
            let database = services::database(&arguments.database)?;
            let service = services::edge_identity(database, &clock, &tasks).await?;
            let ready = service.readiness();
            add_when_ready(&mut routes, service.into_server(), ready, &tasks).await;
            ("identity", arguments.listen)
        }
        Serve::Policy(arguments) => {
            add(&mut routes, services::policy(arguments.policies, &tasks)?).await;
            ("policy", arguments.listen)
        }
        Serve::Filesystem(arguments) => {
            let root = Project::open(&arguments.project)?.path;
            if let Some(before) = &arguments.before {
                let what = "the folder of earlier states";
                data_dir::demand_beyond(&root, before, what, "change them", "--before")?;
            }
            let keep = arguments.keep.keep_before;
            let service = services::filesystem(&root, arguments.before, keep, &clock)?;
            add(&mut routes, service).await;
            ("filesystem", arguments.listen)
        }
        Serve::Ledger(arguments) => {
            let database = services::database(&arguments.database)?;
            let service = services::ledger(database, &clock, &tasks).await?;
            let ready = service.readiness();
            routes.add_service(service.workers_server());
            add_when_ready(&mut routes, service.into_server(), ready, &tasks).await;
            ("ledger", arguments.listen)
        }
        Serve::Exec(arguments) => return exec::run(*arguments, json, tasks, clock, stop).await,
    };
    let outcome = match bind(&place).await {
        Ok(bound) => listen(role, bound, routes, &tasks, json, stop).await,
        Err(problem) => Err(problem),
    };
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    outcome
}

/// The service's listener, and that of its figures.
type Bound = (Listener, Option<Page>);

async fn bind(place: &ListenArg) -> Result<Bound, Error> {
    let address = &place.listen;
    if let Address::Tcp(authority) = address {
        net::demand_loopback(authority, "a service")?;
    }
    let bound = Listener::bind(address).await;
    let listener = bound.map_err(|problem| Error::Failed(problem.to_string()))?;
    Ok((listener, figures::bind(&place.metrics).await?))
}

async fn listen(
    role: &str,
    (listener, page): Bound,
    routes: RoutesBuilder,
    tasks: &Tasks,
    json: bool,
    stop: CancellationToken,
) -> Result<(), Error> {
    let failed = |problem| Error::failed(format!("the {role} service"), problem);
    let url = listener
        .address()
        .map_err(|problem| Error::failed("cannot listen", problem))?
        .to_string();
    let metrics = figures::serve(page, tasks);
    output::either(
        json,
        &json!({"event": "listening", "role": role, "url": url, "metrics": metrics}),
        &format!("{role} service on {url}"),
    );
    serve(listener, routes, stop).await.map_err(failed)
}
