//! `postern healthcheck`: one look at a service, for probes.

use std::time::Duration;

use postern_kit::{
    health,
    task::Tasks,
    transport::{self, Address, InvalidAddress},
};
use serde_json::json;
use tonic::Code;

use crate::{certificates, cli::Healthcheck, error::Error, output};

/// Where a host and a console say whether they are well.
const HEALTH_PATH: &str = "/healthz";
/// Most of an answer that is read, in bytes.
const ANSWER_LIMIT: u64 = 64 * 1024;

/// Succeeds when what is asked is ready.
pub(crate) async fn run(arguments: Healthcheck, json: bool) -> Result<(), Error> {
    let limit = Duration::from_millis(arguments.timeout_ms);
    let is_url = ["http://", "https://"]
        .iter()
        .any(|scheme| arguments.address.starts_with(scheme));
    let is_ready = if is_url {
        by_http(&arguments, limit)?
    } else {
        by_grpc(&arguments, limit).await?
    };
    let status = if is_ready { "SERVING" } else { "NOT_SERVING" };
    output::either(
        json,
        &json!({"address": arguments.address, "service": arguments.service, "status": status}),
        status,
    );
    if is_ready {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "'{}' answers and is not ready; its log tells why",
        arguments.address
    )))
}

async fn by_grpc(arguments: &Healthcheck, limit: Duration) -> Result<bool, Error> {
    let address: Address = arguments
        .address
        .parse()
        .map_err(|problem: InvalidAddress| Error::Usage(problem.to_string()))?;
    let tasks = Tasks::new();
    let tls = certificates::open(&arguments.tls, None, &tasks).await?;
    if tls.is_none() {
        certificates::demand_private(&address, "a health check")?;
    }
    let probe = transport::probe(&address, tls.as_ref(), limit)
        .map_err(|problem| Error::failed(format!("'{address}' cannot be used"), problem))?;
    let told = health::is_serving(probe, &arguments.service).await;
    told.map_err(|status| {
        let (code, told) = (status.code(), status.message());
        let what = if code == Code::NotFound {
            format!("knows no service '{}'", arguments.service)
        } else if code == Code::Unauthenticated {
            "answers those alone who have its key".to_owned()
        } else if arguments.tls.tls_dir.is_some() {
            format!("does not answer ({told})")
        } else {
            format!("does not answer ({told}); if it has certificates, ask with --tls-dir")
        };
        Error::Failed(format!("'{address}' {what}"))
    })
}

fn by_http(arguments: &Healthcheck, limit: Duration) -> Result<bool, Error> {
    if !arguments.service.is_empty() {
        return Err(Error::Usage(
            "--service is for services by gRPC; a URL stands for itself".to_owned(),
        ));
    }
    let url = with_path(&arguments.address);
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(limit))
        .build();
    let answer = ureq::Agent::from(config).get(&url).call();
    let mut answer =
        answer.map_err(|problem| Error::failed(format!("'{url}' does not answer"), problem))?;
    // To the end, so that its log has no broken connection of ours.
    let _ = answer
        .body_mut()
        .with_config()
        .limit(ANSWER_LIMIT)
        .read_to_vec();
    match answer.status().as_u16() {
        200..=299 => Ok(true),
        503 => Ok(false),
        status => Err(Error::Failed(format!("'{url}' answered {status}"))),
    }
}

/// The URL, at the path where health is told unless it has one.
fn with_path(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    match rest.split_once('/') {
        None | Some((_, "")) => format!("{scheme}://{}{HEALTH_PATH}", rest.trim_end_matches('/')),
        Some(_) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_is_asked_for_its_health() {
        for (url, asked) in [
            ("http://a:1", "http://a:1/healthz"),
            ("https://a/", "https://a/healthz"),
            ("http://a/ready", "http://a/ready"),
        ] {
            assert_eq!(with_path(url), asked);
        }
    }
}
