//! What `grpc.health.v1` says of a service elsewhere.

use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::transport::Transport;

/// Whether a service is ready, by its full name; the whole server with an empty one.
///
/// # Errors
/// When nobody answers, or nobody there knows the service (`NOT_FOUND`).
pub async fn is_serving(transport: Transport, service: &str) -> Result<bool, Status> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(transport).check(request).await?;
    match answer.into_inner().status() {
        ServingStatus::Serving => Ok(true),
        ServingStatus::NotServing => Ok(false),
        ServingStatus::ServiceUnknown | ServingStatus::Unknown => {
            Err(Status::new(Code::NotFound, "there is no such service"))
        }
    }
}
