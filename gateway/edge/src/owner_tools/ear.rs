//! What a server says by itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
    },
    service::NotificationContext,
};
use serde::Serialize;
use tokio::sync::Notify;

use super::text;

/// Listens to one server. It offers a server nothing: no roots, no sampling, no questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Ear {
    pub(super) list_changed: Arc<Notify>,
    /// A call ran out of time: the server may hang.
    pub(super) suspect: Arc<Notify>,
    /// The server knows the session no more.
    pub(super) session_over: Arc<Notify>,
    running: Arc<Mutex<HashMap<ProgressToken, Running>>>,
}

/// A call under way, as the owner is told.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Running {
    /// The tool's name on its own server.
    pub(crate) tool: String,
    /// How far it is, if it says so.
    pub(crate) progress: Option<f64>,
    /// How far it goes, if it says so.
    pub(crate) total: Option<f64>,
    /// What it says of it.
    pub(crate) message: Option<String>,
}

/// Stands for a call under way until it is dropped.
pub(super) struct Listening<'a>(&'a Ear, ProgressToken);

impl Ear {
    /// Notes a call; as many as are in flight.
    pub(super) fn listen(&self, token: ProgressToken, tool: &str) -> Listening<'_> {
        let running = Running {
            tool: tool.to_owned(),
            progress: None,
            total: None,
            message: None,
        };
        self.calls().insert(token.clone(), running);
        Listening(self, token)
    }

    /// Calls under way.
    pub(super) fn running(&self) -> Vec<Running> {
        self.calls().values().cloned().collect()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ProgressToken, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.calls().remove(&self.1);
    }
}

impl ClientHandler for Ear {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("postern", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        if let Some(running) = self.calls().get_mut(&params.progress_token) {
            running.progress = Some(params.progress);
            running.total = params.total;
            running.message = params
                .message
                .map(|message| text::shown(message.as_bytes(), text::TOLD));
        }
    }
}
