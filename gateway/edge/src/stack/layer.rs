//! One layer of the stack as a tower layer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use postern_kit::Failure;
use tower::{Layer, Service};

use crate::reply::{Answer, Reply};

/// What a layer does with a request: it answers by itself, or hands something inward.
pub(super) trait Stage<Request>: Send + Sync + 'static {
    /// What it hands inward.
    type Inner: Send + 'static;

    fn handle<I>(&self, request: Request, inner: I) -> impl Future<Output = Answer> + Send
    where
        I: Inner<Self::Inner>;
}

/// What stands further in. It is always ready: the bound on calls is the stack's own layer.
pub(super) trait Inner<Request>: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request) -> impl Future<Output = Answer> + Send;
}

impl<Request, S> Inner<Request> for S
where
    Request: Send + 'static,
    S: Service<Request, Response = Reply, Error = Failure> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn answer(&self, request: Request) -> impl Future<Output = Answer> + Send {
        self.clone().call(request)
    }
}

pub(super) fn stage<S>(stage: S) -> StageLayer<S> {
    StageLayer(Arc::new(stage))
}

#[derive(Debug)]
pub(super) struct StageLayer<S>(Arc<S>);

impl<S, I> Layer<I> for StageLayer<S> {
    type Service = Staged<S, I>;

    fn layer(&self, inner: I) -> Self::Service {
        Staged {
            stage: Arc::clone(&self.0),
            inner,
        }
    }
}

#[derive(Debug)]
pub(super) struct Staged<S, I> {
    stage: Arc<S>,
    inner: I,
}

impl<S, I: Clone> Clone for Staged<S, I> {
    fn clone(&self) -> Self {
        Self {
            stage: Arc::clone(&self.stage),
            inner: self.inner.clone(),
        }
    }
}

impl<Request, S, I> Service<Request> for Staged<S, I>
where
    Request: Send + 'static,
    S: Stage<Request>,
    I: Inner<S::Inner>,
{
    type Response = Reply;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Self { stage, inner } = self.clone();
        Box::pin(async move { stage.handle(request, inner).await })
    }
}
