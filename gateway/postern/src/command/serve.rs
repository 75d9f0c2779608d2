//! `postern serve`: one service alone, by gRPC with health and reflection.

mod exec;

use postern_kit::{
    Clock,
    metrics::Page,
    serve::{Listener, Services, serve},
    task::Tasks,
    tls::{Role, Tls},
    transport::LONG_DEADLINE,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    certificates,
    cli::{ListenArg, Serve},
    data_dir,
    error::Error,
    figures, output,
    project::Project,
    services::{self, SHUTDOWN_LIMIT},
    signals,
};

/// Runs one service until it is told to end.
pub(crate) async fn run(service: Serve, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let mut routes = Services::new();
    let (role, place) = match service {
        Serve::Identity(arguments) => {
            let database = services::database(&arguments.database)?;
            let service = services::edge_identity(database, &clock, &tasks).await?;
            let ready = service.readiness();
            routes.add_when_ready(service.into_server(), ready);
            (Role::Identity, arguments.listen)
        }
        Serve::Policy(arguments) => {
            // While the owner's rules are broken it answers no to every effect, which is an answer.
            routes.add(services::policy(arguments.policies, &tasks)?);
            (Role::Policy, arguments.listen)
        }
        Serve::Filesystem(arguments) => {
            let root = Project::open(&arguments.project)?.path;
            certificates::demand_beyond(&root, &arguments.listen.tls)?;
            if let Some(before) = &arguments.before {
                let what = "the folder of earlier states";
                data_dir::demand_beyond(&root, before, what, "change them", "--before")?;
            }
            let keep = arguments.keep.keep_before;
            let service = services::filesystem(&root, arguments.before, keep, &clock)?;
            let ready = service.readiness(&tasks);
            routes.add_when_ready(service.into_server(), ready);
            routes.calls_last(LONG_DEADLINE);
            (Role::Filesystem, arguments.listen)
        }
        Serve::Ledger(arguments) => {
            let database = services::database(&arguments.database)?;
            let service = services::ledger(database, &clock, &tasks).await?;
            let ready = service.readiness();
            routes.add_when_ready(service.workers_server(), ready.clone());
            routes.add_when_ready(service.into_server(), ready);
            (Role::Ledger, arguments.listen)
        }
        Serve::Exec(arguments) => return exec::run(*arguments, json, tasks, clock, stop).await,
    };
    let outcome = match bind(&place, role, &tasks).await {
        Ok(bound) => listen(role, bound, routes, &tasks, json, stop).await,
        Err(problem) => Err(problem),
    };
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    outcome
}

/// The service's listener, and that of its figures.
type Bound = (Listener, Option<Page>);

async fn bind(place: &ListenArg, role: Role, tasks: &Tasks) -> Result<Bound, Error> {
    let tls = certificates::open(&place.tls, Some(role), tasks).await?;
    bind_with(place, role, tls).await
}

/// Binds what is spoken to by these certificates, if there are any.
async fn bind_with(place: &ListenArg, role: Role, tls: Option<Tls>) -> Result<Bound, Error> {
    if tls.is_none() {
        certificates::demand_private(&place.listen, &format!("the {role} service"))?;
    }
    let bound = Listener::bind(&place.listen).await;
    let listener = bound.map_err(|problem| Error::Failed(problem.to_string()))?;
    let listener = match tls {
        Some(tls) => listener.secured(tls),
        None => listener,
    };
    Ok((listener, figures::bind(&place.metrics).await?))
}

async fn listen(
    role: Role,
    (listener, page): Bound,
    routes: Services,
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
        &json!({"event": "listening", "role": role.name(), "url": url, "metrics": metrics}),
        &format!("{role} service on {url}"),
    );
    serve(listener, routes, stop).await.map_err(failed)
}
