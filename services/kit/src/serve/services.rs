//! The services of one listener, and what `grpc.health.v1` says of them.

use std::{convert::Infallible, time::Duration};

use futures_util::future::join_all;
use tokio::sync::watch;
use tonic::{
    body::Body,
    codegen::Service,
    server::NamedService,
    service::{Routes, RoutesBuilder},
};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{DRAIN_LIMIT, ServeError};

/// Services of one listener.
#[derive(Debug, Default)]
pub struct Services {
    routes: RoutesBuilder,
    readiness: Vec<(&'static str, watch::Receiver<bool>)>,
    longest: Option<Duration>,
}

impl Services {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service that is ready as long as it runs.
    pub fn add<S>(&mut self, service: S)
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.add_when_ready(service, watch::channel(true).1);
    }

    /// Adds a service that is not always ready, such as one whose database can be away. The whole server is ready when all
    /// of its services are.
    pub fn add_when_ready<S>(&mut self, service: S, ready: watch::Receiver<bool>)
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.readiness.push((S::NAME, ready));
        self.routes.add_service(service);
    }

    /// Says how long a call of theirs may take, if that is not [`transport::DEADLINE`](crate::transport::DEADLINE): a server that
    /// ends waits as long for it.
    pub fn calls_last(&mut self, longest: Duration) {
        self.longest = Some(longest);
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest.unwrap_or(DRAIN_LIMIT)
    }

    /// The services with health and reflection, and what keeps health honest.
    pub(super) async fn into_parts(mut self) -> Result<(Routes, Health), ServeError> {
        let (reporter, service) = tonic_health::server::health_reporter();
        self.routes.add_service(service);
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(postern_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        self.routes.add_service(reflection);
        let health = Health {
            reporter,
            readiness: self.readiness,
        };
        health.tell().await;
        Ok((self.routes.routes(), health))
    }
}

/// What is told of the readiness of services.
pub(super) struct Health {
    reporter: HealthReporter,
    readiness: Vec<(&'static str, watch::Receiver<bool>)>,
}

impl Health {
    /// Tells of every change, without an end.
    pub(super) async fn follow(&self) -> std::convert::Infallible {
        let followed = self.readiness.iter().map(async |(_, ready)| {
            let mut ready = ready.clone();
            loop {
                self.tell().await;
                // Whoever is not heard of any more stays what it was.
                if ready.changed().await.is_err() {
                    return;
                }
            }
        });
        join_all(followed).await;
        std::future::pending().await
    }

    async fn tell(&self) {
        let mut all = true;
        for (name, ready) in &self.readiness {
            let is_ready = *ready.borrow();
            all &= is_ready;
            self.say(name, is_ready).await;
        }
        self.say("", all).await;
    }

    /// Says that nothing is ready any more.
    pub(super) async fn end(&self) {
        for (name, _) in &self.readiness {
            self.say(name, false).await;
        }
        self.say("", false).await;
    }

    async fn say(&self, name: &str, is_ready: bool) {
        let status = if is_ready {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.reporter.set_service_status(name, status).await;
    }
}
