//! `postern host`: the agent host alone.

use std::{path::Path, time::Duration};

use postern_host::Host;
use postern_identity::Database;
use postern_kit::{
    Clock,
    task::Tasks,
    transport::{self, Transport},
};
use postern_proto::identity::v1::{
    AuthenticateRequest, BootstrapRequest, Token, host_identity_client::HostIdentityClient,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::{
    cli,
    data_dir::DataDir,
    error::Error,
    figures, net, output,
    services::{self, ADMIN_TOKEN_FILE, HOST_IDENTITY_FILE, SHUTDOWN_LIMIT},
    signals,
};

/// Time before identity is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the host until it is told to end.
pub(crate) async fn run(arguments: cli::Host, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let listener = net::bind(&arguments.listen, "--listen").await?;
    let page = figures::bind(&arguments.metrics).await?;
    let data = DataDir::open(&arguments.data_dir)?;
    let database = match &arguments.database {
        Some(url) => services::database(url)?,
        None => Database::Sqlite(data.join(HOST_IDENTITY_FILE)),
    };
    let service = services::host_identity(database, &clock, &tasks).await?;
    let identity = transport::local(service.clone().into_server());
    let url = net::url_of(&listener)?;
    let public_url = arguments.public_url.unwrap_or_else(|| url.clone());
    let config = postern_host::Config {
        allowed_hosts: arguments.allowed_hosts,
        ..config(data.path(), public_url, &service)
    };
    let host = open(config, identity.clone(), &clock, &tasks).await?;
    let metrics = figures::serve(page, &tasks);
    let announced = async {
        let client = &mut HostIdentityClient::new(identity);
        // The database may be away. Who asks meanwhile is told to come again.
        let Some(made) = stop
            .run_until_cancelled(bootstrap_when_ready(&data, &service, client))
            .await
        else {
            return Ok(());
        };
        made.inspect_err(|_| stop.cancel())?;
        output::either(
            json,
            &json!({"event": "listening", "role": "host", "url": url, "metrics": metrics}),
            &format!(
                "agent host on {url}; the admin token is in {}",
                data.join(ADMIN_TOKEN_FILE).display()
            ),
        );
        Ok(())
    };
    let ((), announced) = tokio::join!(host.serve(listener, stop.clone()), announced);
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    announced
}

/// [`bootstrap`] once identity's database is there.
async fn bootstrap_when_ready(
    data: &DataDir,
    service: &postern_identity::host::Service,
    client: &mut HostIdentityClient<Transport>,
) -> Result<(), Error> {
    let mut readiness = service.readiness();
    loop {
        if readiness.wait_for(|is_ready| *is_ready).await.is_err() {
            return Err(Error::Failed("the identity service has ended".to_owned()));
        }
        match bootstrap(data, service, client).await {
            // It went away meanwhile, or did not answer: what was done is found again.
            Err(Error::Away(why)) => {
                tracing::warn!(why, "identity is away");
                tokio::time::sleep(RETRY).await;
            }
            done => return done,
        }
    }
}

/// The configuration of a host.
pub(crate) fn config(
    data_dir: &Path,
    public_url: String,
    identity: &postern_identity::host::Service,
) -> postern_host::Config {
    postern_host::Config {
        identity_ready: identity.readiness(),
        output_schemas: std::env::var("SOSOAPI_OUTPUT_SCHEMAS").is_ok_and(|value| value == "1"),
        ..postern_host::Config::new(data_dir.to_owned(), public_url)
    }
}

/// Opens a host over an identity service.
pub(crate) async fn open(
    config: postern_host::Config,
    identity: Transport,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<Host, Error> {
    Host::new(config, identity, clock.clone(), tasks.clone())
        .await
        .map_err(|problem| Error::failed("the host cannot start", problem))
}

/// Makes the first organization, and keeps an admin token that opens this host: a start that was killed between the two
/// finds none, and mints another.
pub(crate) async fn bootstrap(
    data: &DataDir,
    service: &postern_identity::host::Service,
    client: &mut HostIdentityClient<Transport>,
) -> Result<(), Error> {
    let answer = client.bootstrap(BootstrapRequest {}).await?.into_inner();
    let secret = match answer.admin_token {
        Some(secret) => secret,
        None if known_token(data, ADMIN_TOKEN_FILE, client).await?.is_some() => return Ok(()),
        None => {
            let minted = service.mint_admin().await;
            minted.map_err(tonic::Status::from)?.into_exposed()
        }
    };
    data.write_private(ADMIN_TOKEN_FILE, &format!("{secret}\n"))
}

/// The token whose secret is in a file, if it is still valid.
pub(crate) async fn known_token(
    data: &DataDir,
    file: &str,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<Option<(Token, String)>, Error> {
    let Some(secret) = data.read_private(file)? else {
        return Ok(None);
    };
    match identity
        .authenticate(AuthenticateRequest {
            secret: secret.clone(),
        })
        .await
    {
        Ok(answer) => Ok(answer.into_inner().token.map(|token| (token, secret))),
        Err(status) if status.code() == Code::Unauthenticated => Ok(None),
        Err(status) => Err(status.into()),
    }
}
