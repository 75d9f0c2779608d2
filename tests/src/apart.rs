//! Every piece as a process of its own: a real host, the services over Unix sockets, and an edge between them.

use std::{collections::BTreeMap, ffi::OsString, fs, time::Duration};

use http::Method;

use crate::{
    Exposition, Http,
    agent::Agent,
    edge::edge_arguments,
    host::RealHost,
    owner::Owner,
    program::Program,
    world::{World, text_of},
};

/// From the start of a program to its ready line.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The services, in the order in which they are started.
pub const SERVICES: [&str; 5] = ["identity", "policy", "filesystem", "exec", "ledger"];

/// The running pieces. The project and its data are those of `host.world`.
#[derive(Debug)]
pub struct Apart {
    /// The host.
    pub host: RealHost,
    /// The services by their roles.
    pub services: BTreeMap<&'static str, Program>,
    /// The edge.
    pub edge: Program,
    /// The owner.
    pub owner: Owner,
    /// Pages of figures by role: those of the services, `host` and `edge`.
    pub metrics: BTreeMap<&'static str, String>,
}

impl Apart {
    /// Starts everything in a world and waits until the channel is open.
    ///
    /// # Panics
    /// When a piece does not start.
    pub async fn start(world: World) -> Self {
        let figures = ["--metrics", "127.0.0.1:0"];
        let (host, line) = RealHost::start_in(world, &figures).await;
        let mut metrics = BTreeMap::from([("host", text_of(&line, "metrics"))]);
        let sockets = host.world.outside().join("services");
        fs::create_dir(&sockets).expect("the test's directory is writable");
        let mut services = BTreeMap::new();
        let mut remote: Vec<String> = figures.map(str::to_owned).to_vec();
        for role in SERVICES {
            let address = format!("unix:{}", sockets.join(role).display());
            let mut arguments: Vec<OsString> = ["serve", role, "--json", "--listen", &address]
                .iter()
                .map(OsString::from)
                .collect();
            arguments.extend(figures.map(OsString::from));
            arguments.extend(further_of(role, &host.world));
            let mut program = host.world.start(&arguments);
            let line = program.event("listening", READY_LIMIT).await;
            metrics.insert(role, text_of(&line, "metrics"));
            services.insert(role, program);
            remote.extend([format!("--{role}"), address]);
        }
        let token = host
            .world
            .secret("token-of-the-channel", &host.channel_token);
        remote.extend(["--workspace".to_owned(), host.workspace.clone()]);
        remote.extend(["--token-file".to_owned(), token.display().to_string()]);
        remote.extend(["--console", "127.0.0.1:0"].map(str::to_owned));
        let remote: Vec<&str> = remote.iter().map(String::as_str).collect();
        let data = host.world.outside().join("edge");
        let arguments = edge_arguments(&host.world, &host.url, &data, &remote);
        let mut edge = host.world.start(&arguments);
        let line = edge.event("listening", READY_LIMIT).await;
        metrics.insert("edge", text_of(&line, "metrics"));
        edge.event("connected", READY_LIMIT).await;
        let token = fs::read_to_string(data.join("owner-token")).expect("the owner's token");
        let owner = Owner::new(&text_of(&line, "url"), token.trim());
        Self {
            host,
            services,
            edge,
            owner,
            metrics,
        }
    }

    /// An agent.
    #[must_use]
    pub fn agent(&self) -> Agent {
        self.host.agent()
    }

    /// The figures of a piece.
    ///
    /// # Panics
    /// When its page cannot be read.
    pub async fn figures(&self, role: &str) -> Exposition {
        figures_at(&self.metrics[role]).await
    }
}

/// The figures on a page.
///
/// # Panics
/// When it cannot be read.
pub async fn figures_at(url: &str) -> Exposition {
    let reply = Http::default()
        .send(Method::GET, url, &[], Vec::new(), |_| true)
        .await
        .expect("the page answers");
    let kind = reply.headers.get("content-type");
    assert_eq!(
        kind.map(|kind| kind.as_bytes()),
        Some(&b"text/plain; version=0.0.4"[..])
    );
    Exposition::read(std::str::from_utf8(&reply.body).expect("the page is text"))
}

fn further_of(role: &str, world: &World) -> Vec<OsString> {
    let file = |name: &str| format!("sqlite://{}", world.outside().join(name).display());
    match role {
        "identity" | "ledger" => vec!["--database".into(), file(&format!("{role}.db")).into()],
        "filesystem" => vec!["--project".into(), world.project().into()],
        "exec" => vec![
            "--project".into(),
            world.project().into(),
            "--spool".into(),
            world.outside().join("spool").into(),
        ],
        _ => Vec::new(),
    }
}
