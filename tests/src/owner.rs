//! The owner: the HTTP API of the edge.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http_client::{Http, NoReply, Reply};

/// Receipts asked for at a time.
const PAGE: usize = 100;

/// An owner with a token.
#[derive(Clone, Debug)]
pub struct Owner {
    http: Http,
    origin: String,
    token: String,
}

impl Owner {
    /// The owner of the edge whose console is at `console_url`.
    ///
    /// # Panics
    /// When the address is no URL.
    #[must_use]
    pub fn new(console_url: &str, token: &str) -> Self {
        let url: http::Uri = console_url.parse().expect("the console's address is a URL");
        let authority = url.authority().expect("with a host").as_str();
        Self {
            http: Http::default(),
            origin: format!("http://{authority}"),
            token: token.to_owned(),
        }
    }

    /// Sends a request to the API and answers what came, whatever it is.
    ///
    /// # Panics
    /// When nothing comes.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        self.try_send(method, path, body)
            .await
            .unwrap_or_else(|lost| panic!("{path}: {}", lost.0))
    }

    /// As [`Owner::send`], from an edge that may be gone.
    ///
    /// # Errors
    /// When nothing comes.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, NoReply> {
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![("authorization", bearer.as_str())];
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let bytes = body.map_or_else(Vec::new, |value| value.to_string().into_bytes());
        self.http
            .send(
                method,
                &format!("{}{path}", self.origin),
                &headers,
                bytes,
                |_| true,
            )
            .await
    }

    /// A GET that succeeds.
    ///
    /// # Panics
    /// When it does not.
    pub async fn get(&self, path: &str) -> Value {
        let reply = self.send(Method::GET, path, None).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.json);
        reply.json
    }

    /// Sets the mode.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn set_mode(&self, mode: &str) {
        let body = json!({"mode": mode});
        let reply = self.send(Method::PUT, "/owner/v1/mode", Some(&body)).await;
        assert!(
            reply.status.is_success(),
            "{}: {}",
            reply.status,
            reply.json
        );
    }

    /// What waits for the owner.
    pub async fn inbox(&self) -> Vec<Value> {
        let list = self.get("/owner/v1/inbox").await;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Decides on an item of the inbox.
    pub async fn decide(&self, receipt_id: &str, decision: &Value) -> Reply {
        let path = format!("/owner/v1/inbox/{receipt_id}/decision");
        self.send(Method::POST, &path, Some(decision)).await
    }

    /// Every receipt, page by page.
    pub async fn receipts(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("/owner/v1/receipts?limit={PAGE}{after}");
            let page = self.get(&path).await;
            all.extend(page["items"].as_array().cloned().unwrap_or_default());
            let next = &page["next"];
            if next.is_null() {
                return all;
            }
            let cursor = next
                .as_str()
                .map_or_else(|| next.to_string(), str::to_owned);
            after = format!("&after={cursor}");
        }
    }

    /// The receipts of one call id.
    pub async fn receipts_of(&self, call_id: &str) -> Vec<Value> {
        let mut all = self.receipts().await;
        all.retain(|receipt| receipt["callId"] == call_id);
        all
    }
}
