//! HTTP as plain as it can be, so that tests see what is on the wire.

use std::collections::HashMap;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{World, described, soon};

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// Status and code of a problem, whose form is checked.
    pub(super) fn problem(&self) -> (u16, String) {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        (
            self.status,
            problem["code"].as_str().expect("code").to_owned(),
        )
    }

    /// The answer in the bytes of one.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .expect("a status");
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self {
            status: status.parse().expect("a number"),
            headers,
            body: body.to_owned(),
        }
    }
}

impl World {
    /// One request on a connection of its own.
    pub(super) async fn http(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let answer = Answer::parse(&soon(self.raw(request.as_bytes())).await);
        described::check(method, path, &answer);
        answer
    }

    /// Sends bytes and reads until the host closes the connection.
    pub(super) async fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).await.expect("connection");
        let mut answer = Vec::new();
        // The host may answer and close before it has read all.
        let _early = stream.write_all(bytes).await;
        let _reset = stream.read_to_end(&mut answer).await;
        answer
    }

    /// `POST` of JSON by a token.
    pub(super) async fn post(&self, path: &str, secret: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {secret}");
        self.http(
            "POST",
            path,
            &[
                ("Authorization", &bearer),
                ("Content-Type", "application/json"),
            ],
            body,
        )
        .await
    }
}
