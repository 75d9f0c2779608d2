use pretty_assertions::assert_eq;
use tonic::{body::Body, codegen::Service as _};

use super::*;

#[tokio::test]
async fn while_nothing_is_exported_a_call_still_has_its_ids() {
    let id = "0193a0e4-5b1c-7000-8000-00000000abcd";
    let span = answer(id, "workspace_read");
    let (trace, root) = span.run(async { log_ids() }).await.expect("ids");
    assert_eq!(trace.to_string(), "0193a0e45b1c7000800000000000abcd");
    assert_eq!(root.to_bytes(), postern_types::root_span_id(id));
    assert_eq!(log_ids(), None);
    // A task of its own goes on in the same trace.
    let place = span.run(async { Place::here() }).await;
    let there = place.run(async { log_ids() }).await;
    assert_eq!(there.map(|(there, _)| there), Some(trace));
    assert!(database("sqlite", "ledger", "SELECT").0.is_none());
}

/// What a server was sent, and the trace that it answered in.
async fn sent(side: Side, sender: Option<&str>) -> (Option<String>, Option<String>) {
    let inner = tower::service_fn(async |request: http::Request<Body>| {
        let header = request.headers().get("traceparent").cloned();
        let mut response = http::Response::new(Body::empty());
        if let Some(header) = header {
            response.headers_mut().insert("sent", header);
        }
        if let Some((trace, _)) = log_ids() {
            let trace = trace.to_string().try_into().expect("a header");
            response.headers_mut().insert("trace", trace);
        }
        Ok::<_, std::convert::Infallible>(response)
    });
    let mut request = http::Request::new(Body::empty());
    *request.uri_mut() = "/postern.ledger.v1.Ledger/Begin".parse().expect("a path");
    if let Some(sender) = sender {
        let sender = sender.parse().expect("a header");
        request.headers_mut().insert("traceparent", sender);
    }
    let response = Traced::new(inner, side)
        .call(request)
        .await
        .expect("answered");
    let told = |name: &str| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    (told("sent"), told("trace"))
}

#[tokio::test]
async fn a_trace_goes_on_in_the_next_process_for_its_log_alone() {
    let call_id = "0193a0e4-5b1c-7000-8000-00000000abcd";
    let trace = "0193a0e45b1c7000800000000000abcd".to_owned();
    let span = answer(call_id, "workspace_read");
    let (header, _) = span.run(sent(Side::Caller, None)).await;
    let header = header.expect("sent");
    assert!(header.starts_with(&format!("00-{trace}-")), "{header}");
    assert!(header.ends_with("-00"), "nothing is kept of it: {header}");
    let (_, there) = sent(Side::Server, Some(&header)).await;
    assert_eq!(there, Some(trace));
    // What goes on by itself is in none, and a server takes no place of the process's own.
    assert_eq!(sent(Side::Caller, None).await, (None, None));
    assert_eq!(sent(Side::Server, None).await, (None, None));
    assert_eq!(sent(Side::Server, Some("nonsense")).await.1, None);
}

#[test]
fn every_method_has_a_name_of_its_own() {
    let is_known = |path: &str| Traced::known(path).is_some_and(|known| known == path);
    assert!(is_known("/postern.ledger.v1.Ledger/Begin"));
    assert!(is_known("/postern.identity.v1.EdgeIdentity/Admit"));
    assert!(!is_known("/grpc.health.v1.Health/Check"));
    assert!(!is_known("/postern.ledger.v1.Ledger/canary"));
}
