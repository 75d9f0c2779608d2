//! `postern mcp`: MCP over standard input and output, for clients that start their servers themselves.
//!
//! It is a bridge to the host's `/mcp`: each line is one JSON-RPC message, sent on as it came, and each answer is one line.
//! Nothing but protocol is written to standard output. The process is one conversation, also across restarts of the host,
//! and ends with its client: at the end of standard input, when standard output is closed, or at a signal.

mod bridge;
mod config;
mod events;
mod host;
mod lines;
mod message;
mod upload;

use std::{
    io::{Write as _, stdout},
    path::Path,
    sync::Arc,
};

use postern_kit::{root::Root, task::Tasks};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::{bridge::Bridge, host::Host};
use crate::{cli::Mcp, error::Error, net, output, remote, signals};

/// Answers that wait for the client to read them.
const MAX_WAITING_ANSWERS: usize = 64;

/// Runs the bridge until its client is gone.
pub(crate) async fn run(arguments: Mcp) -> Result<(), Error> {
    if let Some(client) = arguments.print_config {
        let text = config::for_client(client, &arguments)?;
        output::text_line(&text);
        return Ok(());
    }
    net::demand_private_url(&arguments.access.host, arguments.access.allow_plaintext)?;
    let token = remote::read_token(&arguments.access.token_file)?;
    let host = Host::new(&arguments.access.host, arguments.profile, &token)?;
    let upload_root = arguments
        .upload_root
        .as_deref()
        .map(open_root)
        .transpose()?;
    let (tasks, stop) = (Tasks::new(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let (answers, written) = mpsc::channel(MAX_WAITING_ANSWERS);
    let writer = std::thread::Builder::new()
        .name("stdout".to_owned())
        .spawn({
            let stop = stop.clone();
            move || write(written, &stop)
        })
        .map_err(|problem| Error::failed("cannot start", problem))?;
    let bridge = Arc::new(Bridge::new(host, upload_root, answers, tasks, stop));
    bridge.run().await;
    drop(bridge);
    // Every answer that there is has been handed over by now; what the client does not read any more is not waited for.
    let _ = tokio::time::timeout(
        bridge::LEAVING,
        tokio::task::spawn_blocking(move || writer.join()),
    )
    .await;
    Ok(())
}

fn open_root(path: &Path) -> Result<Root, Error> {
    Root::open(path).map_err(|problem| {
        Error::Usage(format!(
            "the upload root '{}' cannot be opened: {problem}",
            path.display()
        ))
    })
}

/// Writes lines until there are no more, or nobody reads them.
fn write(mut lines: mpsc::Receiver<String>, stop: &CancellationToken) {
    while let Some(line) = lines.blocking_recv() {
        let mut out = stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            stop.cancel();
            return;
        }
    }
}
