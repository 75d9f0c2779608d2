//! `postern host`: the agent host alone.

use std::path::Path;

use postern_host::Host;
use postern_kit::{
    Clock,
    task::Tasks,
    transport::{self, Transport},
};
use postern_proto::identity::v1::{
    BootstrapRequest, BootstrapResponse, host_identity_client::HostIdentityClient,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    cli,
    data_dir::DataDir,
    error::Error,
    output,
    services::{self, ADMIN_TOKEN_FILE, HOST_IDENTITY_FILE, SHUTDOWN_LIMIT},
    signals,
};

/// Runs the host until it is told to end.
pub(crate) async fn run(arguments: cli::Host, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let listener = bind(&arguments.listen, "--listen").await?;
    let data = DataDir::open(&arguments.data_dir)?;
    let identity = transport::local(
        services::host_identity(data.join(HOST_IDENTITY_FILE), &clock, &tasks).await?,
    );
    bootstrap(&data, &mut HostIdentityClient::new(identity.clone())).await?;
    let url = url_of(&listener)?;
    let public_url = arguments.public_url.unwrap_or_else(|| url.clone());
    let host = open(data.path(), public_url, identity, &clock, &tasks).await?;
    output::either(
        json,
        &json!({"event": "listening", "role": "host", "url": url}),
        &format!(
            "agent host on {url}; the admin token is in {}",
            data.join(ADMIN_TOKEN_FILE).display()
        ),
    );
    host.serve(listener, stop).await;
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    Ok(())
}

/// Opens a host over an identity service.
pub(crate) async fn open(
    data_dir: &Path,
    public_url: String,
    identity: Transport,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<Host, Error> {
    let config = postern_host::Config {
        output_schemas: std::env::var("SOSOAPI_OUTPUT_SCHEMAS").is_ok_and(|value| value == "1"),
        ..postern_host::Config::new(data_dir.to_owned(), public_url)
    };
    Host::new(config, identity, clock.clone(), tasks.clone())
        .await
        .map_err(|problem| Error::failed("the host cannot start", problem))
}

/// Makes the first organization and keeps the admin token.
pub(crate) async fn bootstrap(
    data: &DataDir,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<BootstrapResponse, Error> {
    let answer = identity.bootstrap(BootstrapRequest {}).await?.into_inner();
    if let Some(secret) = &answer.admin_token {
        data.write_private(ADMIN_TOKEN_FILE, &format!("{secret}\n"))?;
    }
    Ok(answer)
}

/// Binds an address given by an option.
pub(crate) async fn bind(address: &str, option: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|problem| {
        Error::Failed(format!(
            "cannot listen on '{address}' ({problem}); choose another address with {option}"
        ))
    })
}

/// The URL of a bound listener.
pub(crate) fn url_of(listener: &TcpListener) -> Result<String, Error> {
    let address = listener
        .local_addr()
        .map_err(|problem| Error::failed("cannot listen", problem))?;
    Ok(format!("http://{address}"))
}
