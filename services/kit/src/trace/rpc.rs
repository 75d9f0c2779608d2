//! Spans of calls between services, and the header by which a trace goes on in the next process.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::LazyLock,
    task::{Context as Poller, Poll},
};

use futures_util::future::Either;
use opentelemetry::{
    Context,
    trace::{SpanKind, TraceContextExt as _},
};
use prost::Message as _;
use tonic::{Code, Status, body::Body, codegen::Service};
use tower::Layer;

use super::{CANCELLED, Place, Span, child, header};

/// Which end of a call between services this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// The caller, whose server is another process.
    Caller,
    /// The server, whose caller is another process.
    Server,
    /// Both: caller and server are one process.
    Both,
}

/// A service with spans around its calls; as a layer, that which puts them there.
#[derive(Clone, Debug)]
pub(crate) struct Traced<S> {
    inner: S,
    side: Side,
}

impl<S> Traced<S> {
    pub(crate) const fn new(inner: S, side: Side) -> Self {
        Self { inner, side }
    }
}

impl Traced<()> {
    /// The layer of a server.
    pub(crate) const SERVER: Self = Self::new((), Side::Server);

    /// The path of a method of ours, as a text of the program's own.
    pub(crate) fn known(path: &str) -> Option<&'static str> {
        METHODS.get_key_value(path).map(|(path, _)| path.as_str())
    }
}

impl<S> Layer<S> for Traced<()> {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced::new(inner, self.side)
    }
}

/// A method of a service of ours.
#[derive(Clone, Copy, Debug)]
struct Method {
    service: &'static str,
    method: &'static str,
}

/// Every method by its path. They are read once and kept, so that what a span is called is none of its caller's text.
static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
    let files = prost_types::FileDescriptorSet::decode(postern_proto::DESCRIPTORS);
    let mut methods = HashMap::new();
    for file in files.unwrap_or_default().file {
        for service in &file.service {
            let name: &'static str = format!("{}.{}", file.package(), service.name()).leak();
            for method in &service.method {
                let path = format!("/{name}/{}", method.name());
                let method: &'static str = method.name().to_owned().leak();
                let service = name;
                methods.insert(path, Method { service, method });
            }
        }
    }
    methods
});

type Answer<S> = Result<http::Response<Body>, <S as Service<http::Request<Body>>>::Error>;

impl<S> Service<http::Request<Body>> for Traced<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer<S>> + Send>>>;

    fn poll_ready(&mut self, context: &mut Poller<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        // What the caller of another process is in. Without it there is nothing to go on with here.
        let sender = match self.side {
            Side::Server => header::of(request.headers()),
            Side::Caller | Side::Both => None,
        };
        let place = Place(sender.map(Box::new));
        let span = match &place.0 {
            Some(sender) => {
                let _within = Context::new()
                    .with_remote_span_context(sender.as_ref().clone())
                    .attach();
                self.span(request.uri().path())
            }
            None if self.side == Side::Server => Span::default(),
            None => self.span(request.uri().path()),
        };
        if self.side == Side::Caller {
            let from = span.place().0.or_else(|| Place::here().0);
            if let Some(from) = from {
                header::write(request.headers_mut(), &from);
            }
        }
        let answer = self.inner.call(request);
        if span.0.is_none() {
            return match place.0 {
                None => Either::Left(answer),
                // For log lines alone.
                Some(_) => Either::Right(Box::pin(place.run(answer))),
            };
        }
        let side = self.side;
        Either::Right(Box::pin(async move {
            let mut unfinished = Unfinished {
                span,
                is_finished: false,
            };
            let answer = unfinished.span.run(answer).await;
            unfinished.finish(side, &answer);
            answer
        }))
    }
}

impl<S> Traced<S> {
    fn span(&self, path: &str) -> Span {
        let Some(Method { service, method }) = METHODS.get(path) else {
            return Span::default();
        };
        let kind = match self.side {
            Side::Caller => SpanKind::Client,
            Side::Server | Side::Both => SpanKind::Server,
        };
        child(
            format!("{service}/{method}"),
            kind,
            &[
                ("rpc.system", "grpc".into()),
                ("rpc.service", (*service).into()),
                ("rpc.method", (*method).into()),
            ],
        )
    }
}

/// The span of a call that may be left before its answer is there, by a deadline or by a caller that went away.
struct Unfinished {
    span: Span,
    is_finished: bool,
}

impl Unfinished {
    fn finish<E>(&mut self, side: Side, answer: &Result<http::Response<Body>, E>) {
        self.is_finished = true;
        let code = match answer {
            Ok(answer) => {
                Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code())
            }
            Err(_) => Code::Unavailable,
        };
        self.span
            .note("rpc.grpc.status_code", i64::from(i32::from(code)));
        if is_failure(side, code) {
            self.span.fail(name(code));
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            self.span.fail(CANCELLED);
        }
    }
}

/// A refusal is an answer to a server, and a failure to its caller (semantic conventions for gRPC).
fn is_failure(side: Side, code: Code) -> bool {
    match side {
        Side::Caller => code != Code::Ok,
        Side::Server | Side::Both => matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ),
    }
}

const fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
