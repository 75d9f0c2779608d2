//! The other end of the channel, played by the test: an edge for a real host, a host for a real edge.

use std::{net::SocketAddr, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, accept_hdr_async, connect_async,
    tungstenite::{
        Error, Message, Utf8Bytes,
        client::IntoClientRequest as _,
        handshake::server::{ErrorResponse, Request, Response},
        protocol::CloseFrame,
    },
};

use crate::raw::{FIN, RawHost, TEXT, read_head};

/// Longest wait for the other end's next frame.
const FRAME_LIMIT: Duration = Duration::from_secs(30);

/// Path of a workspace's channel.
fn channel_path(workspace_id: &str) -> String {
    format!("/api/ai-gateway/v1/workspaces/{workspace_id}/channel")
}

async fn next_text<S>(socket: &mut WebSocketStream<S>) -> Result<Value, Option<CloseFrame>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let text = next_frame(socket).await?;
    Ok(serde_json::from_str(&text).expect("frames are JSON"))
}

async fn next_frame<S>(socket: &mut WebSocketStream<S>) -> Result<Utf8Bytes, Option<CloseFrame>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let read = async {
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Text(text) => return Ok(text),
                Message::Close(frame) => return Err(frame),
                Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
            }
        }
        Err(None)
    };
    timeout(FRAME_LIMIT, read)
        .await
        .unwrap_or_else(|_| panic!("no frame within {FRAME_LIMIT:?}"))
}

/// An edge for a real host.
#[derive(Debug)]
pub struct FakeEdge(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl FakeEdge {
    /// Opens the channel and takes the ready frame.
    ///
    /// # Errors
    /// The status of a refusal before the upgrade.
    ///
    /// # Panics
    /// When the connection fails otherwise or the first frame is not `ready`.
    pub async fn connect(
        host_url: &str,
        workspace_id: &str,
        token: &str,
    ) -> Result<Self, StatusCode> {
        let url = format!(
            "{}{}",
            host_url.replacen("http", "ws", 1).trim_end_matches('/'),
            channel_path(workspace_id)
        );
        let mut request = url.into_client_request().expect("a URL");
        let bearer = format!("Bearer {token}").parse().expect("a header");
        request.headers_mut().insert("authorization", bearer);
        let mut socket = match connect_async(request).await {
            Ok((socket, _)) => socket,
            Err(Error::Http(refusal)) => return Err(refusal.status()),
            Err(error) => panic!("the channel does not open: {error}"),
        };
        let ready = next_text(&mut socket).await.expect("a first frame");
        assert_eq!(ready, json!({"type": "ready", "protocol": 1}));
        Ok(Self(socket))
    }

    /// The next call.
    ///
    /// # Errors
    /// The close frame when the host closed the channel.
    pub async fn next_call(&mut self) -> Result<Value, Option<CloseFrame>> {
        let call = next_text(&mut self.0).await?;
        assert_eq!(call["type"], "call", "the host sends calls");
        Ok(call)
    }

    /// Answers a call with structured content.
    ///
    /// # Panics
    /// When the channel is gone.
    pub async fn answer(&mut self, call: &Value, structured: &Value) {
        let frame = json!({
            "type": "result",
            "id": call["id"],
            "sessionId": call["sessionId"],
            "result": {
                "content": [{"type": "text", "text": structured.to_string()}],
                "structuredContent": structured,
            },
        });
        self.0
            .send(Message::text(frame.to_string()))
            .await
            .expect("the channel is open");
    }
}

/// A host for a real edge, listening on a free loopback port.
#[derive(Debug)]
pub struct FakeHost {
    listener: TcpListener,
    url: String,
}

impl FakeHost {
    /// Listens.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn listen() -> Self {
        Self::listen_at(([127, 0, 0, 1], 0).into()).await
    }

    /// Listens at an address.
    ///
    /// # Panics
    /// When it is taken.
    pub async fn listen_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        Self {
            listener,
            url: format!("http://{address}"),
        }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The next connection.
    ///
    /// # Panics
    /// When no edge comes.
    pub async fn connection(&self) -> TcpStream {
        let (stream, _) = timeout(FRAME_LIMIT, self.listener.accept())
            .await
            .unwrap_or_else(|_| panic!("no edge within {FRAME_LIMIT:?}"))
            .expect("a connection");
        stream
    }

    /// Whether nobody knocks for `time`.
    pub async fn is_left_alone(&self, time: Duration) -> bool {
        timeout(time, self.listener.accept()).await.is_err()
    }

    /// Answers the next request with these bytes; tells the head of the request.
    ///
    /// # Panics
    /// When no edge comes.
    pub async fn refuse(&self, response: &str) -> String {
        let mut stream = self.connection().await;
        let head = read_head(&mut stream).await;
        stream
            .write_all(response.as_bytes())
            .await
            .expect("the answer is taken");
        let _gone = stream.shutdown().await;
        head
    }

    /// Waits for the edge, upgrades, and says `ready`; from there on byte by byte.
    ///
    /// # Panics
    /// When no edge comes.
    pub async fn accept_raw(&self) -> RawHost {
        let mut channel = self.upgrade_raw().await;
        channel
            .frame(FIN | TEXT, br#"{"type":"ready","protocol":1}"#)
            .await;
        channel
    }

    /// Waits for the edge and upgrades, without a word.
    ///
    /// # Panics
    /// When no edge comes.
    pub async fn upgrade_raw(&self) -> RawHost {
        RawHost::upgrade(self.connection().await).await
    }

    /// Waits for the edge, checks where it knocks and with which token, and says `ready`.
    ///
    /// # Panics
    /// When no edge comes or it knocks elsewhere.
    pub async fn accept(&self, workspace_id: &str, token: &str) -> HostSide {
        let stream = self.connection().await;
        let expected = channel_path(workspace_id);
        let bearer = format!("Bearer {token}");
        #[expect(
            clippy::result_large_err,
            reason = "the signature of the WebSocket library's callback"
        )]
        let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.uri().to_string(), expected);
            let authorization = request.headers().get("authorization");
            assert!(
                authorization.is_some_and(|value| *value == *bearer),
                "the token travels as a bearer token only"
            );
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, check).await.expect("an upgrade");
        socket
            .send(Message::text(r#"{"type":"ready","protocol":1}"#))
            .await
            .expect("the channel is open");
        HostSide(socket)
    }
}

/// An open channel of a fake host.
#[derive(Debug)]
pub struct HostSide(WebSocketStream<TcpStream>);

impl HostSide {
    /// Sends a frame.
    ///
    /// # Panics
    /// When the channel is gone.
    pub async fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string()).await;
    }

    /// Sends a frame as it is written.
    ///
    /// # Panics
    /// When the channel is gone.
    pub async fn send_text(&mut self, frame: &str) {
        self.0
            .send(Message::text(frame))
            .await
            .expect("the channel is open");
    }

    /// Closes the channel with a code.
    ///
    /// # Panics
    /// When the channel is gone.
    pub async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code: code.into(),
            reason: "".into(),
        };
        let close = self.0.send(Message::Close(Some(frame)));
        close.await.expect("the channel is open");
    }

    /// Reads to the edge's close frame: its code and reason.
    ///
    /// # Panics
    /// When a result comes first or the channel ends without one.
    pub async fn closed(&mut self) -> (u16, String) {
        let frame = self.next_result().await.expect_err("a close frame");
        let frame = frame.expect("closed in order");
        (frame.code.into(), frame.reason.to_string())
    }

    /// The text of the next frame, for measuring when it came: reading 64 KiB of JSON takes its time as well.
    ///
    /// # Errors
    /// The close frame when the edge closed the channel.
    pub async fn next_frame(&mut self) -> Result<Utf8Bytes, Option<CloseFrame>> {
        next_frame(&mut self.0).await
    }

    /// The next result.
    ///
    /// # Errors
    /// The close frame when the edge closed the channel.
    pub async fn next_result(&mut self) -> Result<Value, Option<CloseFrame>> {
        let result = next_text(&mut self.0).await?;
        assert_eq!(result["type"], "result", "the edge sends results");
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_fakes_speak_to_each_other() {
        let host = FakeHost::listen().await;
        let call = json!({"type": "call", "id": "1", "sessionId": "s"});
        let (mut inside, edge) = tokio::join!(
            host.accept("w", "token"),
            FakeEdge::connect(host.url(), "w", "token")
        );
        let mut edge = edge.expect("no refusal");
        inside.send(&call).await;
        let received = edge.next_call().await.expect("a call");
        assert_eq!(received, call);
        edge.answer(&received, &json!({"done": true})).await;
        let result = inside.next_result().await.expect("a result");
        assert_eq!(result["result"]["structuredContent"], json!({"done": true}));
        drop(edge);
        assert_eq!(inside.next_result().await, Err(None));
    }
}
