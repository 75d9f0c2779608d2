//! `postern edge`: the owner's instance, and the part of `postern up` that is the same.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use postern_edge::{Edge, End, Event, Services, Token};
use postern_identity::Database;
use postern_kit::{
    Clock,
    task::Tasks,
    tls::{Role, Tls},
    transport::{self, Transport},
};
use postern_types::{Id, Intention};
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    certificates,
    checkpoint::{self, Keeping},
    cli::{self, ChannelTimes, ExecPlace, OwnerArgs, RemoteServices},
    data_dir::{self, DataDir},
    entrance::Entrance,
    error::Error,
    figures, net, notice, output,
    project::Project,
    remote,
    services::{
        self, BEFORE_FOLDER, CONSOLE_URL_FILE, EDGE_IDENTITY_FILE, LEDGER_FILE, OWNER_TOKEN_FILE,
        SHUTDOWN_LIMIT,
    },
    signals,
    worker::{self, Worker},
};

/// Events of an edge that wait to be told.
const EVENT_QUEUE: usize = 64;

/// Runs an edge until it ends.
pub(crate) async fn run(arguments: cli::Edge, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let project = Project::open(&arguments.project)?;
    let token = token(&arguments, &project)?;
    let tls = certificates::open(&arguments.remote.tls, Some(Role::Edge), &tasks).await?;
    let named = match &arguments.remote.policy {
        Some(address) => Some(certificates::remote(address, Role::Policy, tls.as_ref())?),
        None => named_rules(&arguments.owner, &project, &tasks)?,
    };
    let console = match arguments.listen_none {
        true => None,
        false => {
            arguments.owner.demand_private_console()?;
            Some(net::bind(&arguments.owner.console, "--console").await?)
        }
    };
    let page = figures::bind(&arguments.metrics).await?;
    let data = data(&arguments.data_dir, &arguments.owner)?;
    let policy = rules(named, &data, &tasks)?;
    let launch = Launch {
        host: arguments.host,
        workspace: arguments.workspace,
        intention: arguments.intention,
        token,
        allow_plaintext: arguments.allow_plaintext,
        times: arguments.times,
        repin: arguments.owner.repin,
    };
    let mut private = vec![arguments.token_file.as_path()];
    private.extend(arguments.remote.tls.tls_dir.as_deref());
    let parts = Parts {
        data: &data,
        project: &project,
        owner: &arguments.owner,
        private: &private,
        remote: &arguments.remote,
        tls: tls.as_ref(),
        policy,
        clock: &clock,
        tasks: &tasks,
    };
    let end = match parts.open(launch, console, &stop).await {
        Ok(Some(running)) => {
            let metrics = figures::serve(page, &tasks);
            running.tell_console(metrics.as_deref(), json);
            let (events, told) = mpsc::channel(EVENT_QUEUE);
            tasks.spawn("edge events", tell(told, json));
            running.run(events, stop).await
        }
        Ok(None) => Ok(()),
        Err(problem) => Err(problem),
    };
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    end
}

/// The data directory of an edge. A new one has a configuration to fill in, unless the owner's lies elsewhere.
pub(crate) fn data(path: &Path, owner: &OwnerArgs) -> Result<DataDir, Error> {
    let data = DataDir::open(path)?;
    if owner.config.is_none() {
        data.offer_config()?;
    }
    Ok(data)
}

/// The channel token, after everything was looked at that can be refused before anything is made.
fn token(arguments: &cli::Edge, project: &Project) -> Result<String, Error> {
    data_dir::demand_outside(&arguments.data_dir, &project.path)?;
    data_dir::demand_beyond(
        &project.path,
        &arguments.token_file,
        "the token file",
        "read it",
        "--token-file",
    )?;
    certificates::demand_beyond(&project.path, &arguments.remote.tls)?;
    let token = remote::read_token(&arguments.token_file)?;
    net::demand_private_url(&arguments.host, arguments.allow_plaintext)?;
    if let (Some(ExecPlace::Ledger), None) = (&arguments.remote.exec, &arguments.remote.ledger) {
        return Err(Error::Usage(
            "--exec ledger needs --ledger: workers register with a ledger that runs by itself"
                .to_owned(),
        ));
    }
    let wishes = &arguments.owner.sandbox;
    match arguments.remote.exec {
        Some(_) => wishes.demand_none()?,
        None => wishes.demand(&project.path, &arguments.data_dir)?,
    }
    Ok(token)
}

/// Permission by the rules that the owner named, if he named any: broken ones are refused before anything is made.
pub(crate) fn named_rules(
    owner: &cli::OwnerArgs,
    project: &Project,
    tasks: &Tasks,
) -> Result<Option<Transport>, Error> {
    let Some(folder) = &owner.policies else {
        return Ok(None);
    };
    data_dir::demand_beyond(
        &project.path,
        folder,
        "the folder of rules",
        "change them",
        "--policies",
    )?;
    local_policy(folder.clone(), tasks).map(Some)
}

/// What was named, or permission by the rules of the data directory.
pub(crate) fn rules(
    named: Option<Transport>,
    data: &DataDir,
    tasks: &Tasks,
) -> Result<Transport, Error> {
    named.map_or_else(|| local_policy(data.policies()?, tasks), Ok)
}

fn local_policy(folder: PathBuf, tasks: &Tasks) -> Result<Transport, Error> {
    Ok(transport::local(services::policy(Some(folder), tasks)?))
}

async fn tell(mut events: mpsc::Receiver<Event>, json: bool) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Connected => output::either(json, &json!({"event": "connected"}), "connected"),
            Event::Disconnected { reason } => {
                output::either(
                    json,
                    &json!({"event": "disconnected", "reason": reason}),
                    &format!("disconnected: {reason}"),
                );
            }
        }
    }
}

/// What an edge is opened for.
pub(crate) struct Launch {
    /// URL of the host.
    pub(crate) host: String,
    /// Workspace.
    pub(crate) workspace: Id,
    /// Intention.
    pub(crate) intention: Intention,
    /// Channel token.
    pub(crate) token: String,
    /// Whether the token may go over plain http beyond this machine.
    pub(crate) allow_plaintext: bool,
    /// The channel's times.
    pub(crate) times: ChannelTimes,
    /// Whether the workspace may be pinned anew.
    pub(crate) repin: bool,
}

/// What an edge is made of.
pub(crate) struct Parts<'a> {
    /// Data directory.
    pub(crate) data: &'a DataDir,
    /// Project.
    pub(crate) project: &'a Project,
    /// The owner's choices.
    pub(crate) owner: &'a OwnerArgs,
    /// Files outside the data directory that commands must not read.
    pub(crate) private: &'a [&'a Path],
    /// Services elsewhere.
    pub(crate) remote: &'a RemoteServices,
    /// What they are reached with.
    pub(crate) tls: Option<&'a Tls>,
    /// Policy service, loaded before anything else so that a broken rule leaves nothing behind.
    pub(crate) policy: Transport,
    /// Clock.
    pub(crate) clock: &'a Clock,
    /// Tasks of the services and of the owner's API.
    pub(crate) tasks: &'a Tasks,
}

/// An open edge.
pub(crate) struct Running {
    edge: Edge,
    checkpoints: Keeping,
    worker: Option<Worker>,
    console_url_file: PathBuf,
    /// URL of the owner API, when there is one.
    pub(crate) console_url: Option<String>,
    /// The owner API, when there is one.
    console: Option<postern_edge::owner::Api>,
    /// Token of the owner API.
    pub(crate) owner_token: String,
}

impl Parts<'_> {
    /// Opens the services, the edge and the owner API. `None` when `stop` came first.
    ///
    /// The worker comes last: whatever refuses the start does so while no process is there to be left behind.
    pub(crate) async fn open(
        &self,
        launch: Launch,
        console: Option<TcpListener>,
        stop: &CancellationToken,
    ) -> Result<Option<Running>, Error> {
        let place = match &self.remote.exec {
            Some(_) => None,
            None => Some(worker::Place::new(
                self.data,
                &self.project.path,
                &self.project.identity,
                &self.owner.sandbox,
                self.private,
            )?),
        };
        let (identity, filesystem, ledger) = self.in_process().await?;
        let exec = self.exec(&ledger, place.as_ref())?;
        let services = Services {
            identity,
            policy: self.policy.clone(),
            filesystem,
            exec,
            ledger,
        };
        let config = self.config(launch);
        let edge = tokio::select! {
            started = Edge::start(config, services.clone(), self.clock.clone(), self.tasks) => {
                started.map_err(|problem| Error::Failed(problem.to_string()))?
            }
            () = stop.cancelled() => return Ok(None),
        };
        let owner_token = owner_token(self.data)?;
        let (control, ledger) = (edge.handle(), services.ledger.clone());
        notice::start(self.owner.notice.notify, &control, &ledger, self.tasks);
        let checkpoints =
            checkpoint::keep(self.data, ledger, control, self.clock.clone(), self.tasks).await?;
        let worker = match place {
            Some(place) => Some(place.meet_or_start(self.tasks).await?),
            None => None,
        };
        let mut running = Running {
            edge,
            checkpoints,
            worker,
            console_url_file: self.data.join(CONSOLE_URL_FILE),
            console_url: None,
            console: None,
            owner_token,
        };
        if let Some(listener) = console
            && let Err(problem) = self.open_console(&mut running, listener, services)
        {
            running.end_worker().await;
            return Err(problem);
        }
        Ok(Some(running))
    }

    fn open_console(
        &self,
        running: &mut Running,
        listener: TcpListener,
        services: Services,
    ) -> Result<(), Error> {
        let url = net::url_of(&listener)?;
        self.data
            .write_private(CONSOLE_URL_FILE, &format!("{url}\n"))?;
        let entrance = Entrance::open(self.data, listener)?;
        let settings = postern_edge::owner::Settings {
            token: running.owner_token.clone(),
            address: entrance.address,
            label: entrance.label,
            trace_url: self.owner.trace_url.clone(),
        };
        let (control, clock) = (running.edge.handle(), self.clock.clone());
        let api = postern_edge::owner::Api::new(control, services, settings, clock);
        for listener in entrance.listeners {
            let serving = api.clone().serve(listener, self.tasks.stopping());
            self.tasks.spawn("owner api", serving);
        }
        running.console_url = Some(url);
        running.console = Some(api);
        Ok(())
    }

    /// The exec service: one worker, those of the ledger, or the edge's own.
    fn exec(&self, ledger: &Transport, place: Option<&worker::Place>) -> Result<Transport, Error> {
        match (&self.remote.exec, place) {
            (Some(ExecPlace::At(address)), _) => {
                certificates::remote(address, Role::Exec, self.tls)
            }
            (Some(ExecPlace::Ledger), _) => {
                let project = &self.project.identity;
                services::workers_of(ledger.clone(), project, self.tls.cloned())
            }
            (None, Some(place)) => Ok(place.transport()),
            (None, None) => Err(Error::Failed("there is no exec worker".to_owned())),
        }
    }

    async fn in_process(&self) -> Result<(Transport, Transport, Transport), Error> {
        let filesystem = match &self.remote.filesystem {
            Some(address) => certificates::remote(address, Role::Filesystem, self.tls)?,
            None => {
                let service = services::filesystem(
                    &self.project.path,
                    Some(self.data.join(BEFORE_FOLDER)),
                    self.owner.keep.keep_before,
                    self.clock,
                )?;
                transport::local(service.into_server())
            }
        };
        let identity = async {
            match &self.remote.identity {
                Some(address) => certificates::remote(address, Role::Identity, self.tls),
                None => {
                    let database = Database::Sqlite(self.data.join(EDGE_IDENTITY_FILE));
                    Ok(transport::local(
                        services::edge_identity(database, self.clock, self.tasks)
                            .await?
                            .into_server(),
                    ))
                }
            }
        };
        let ledger = async {
            match &self.remote.ledger {
                Some(address) => certificates::remote(address, Role::Ledger, self.tls),
                None => {
                    let database = Database::Sqlite(self.data.join(LEDGER_FILE));
                    Ok(transport::local(
                        services::ledger(database, self.clock, self.tasks)
                            .await?
                            .into_server(),
                    ))
                }
            }
        };
        let (identity, ledger) = tokio::try_join!(identity, ledger)?;
        Ok((identity, filesystem, ledger))
    }

    fn config(&self, launch: Launch) -> postern_edge::Config {
        let times = launch.times;
        let standard = postern_edge::Config::new(
            launch.host,
            launch.workspace,
            launch.intention,
            Token::new(&launch.token),
            &self.project.path,
            self.project.identity.device,
            self.project.identity.inode,
        );
        let given = |given: Option<u64>, standard| given.map_or(standard, Duration::from_millis);
        postern_edge::Config {
            ping_interval: given(times.ping_interval_ms, standard.ping_interval),
            silence_limit: given(times.silence_limit_ms, standard.silence_limit),
            ready_timeout: given(times.ready_timeout_ms, standard.ready_timeout),
            // A service elsewhere may see the project under another path.
            path_for_rules: (self.remote.filesystem.is_none() && self.remote.exec.is_none())
                .then(|| self.project.path.clone()),
            tools: self.owner.tools.clone(),
            mode: self.owner.mode,
            sessions: self.owner.sessions.into(),
            allow_plaintext: launch.allow_plaintext,
            approval_timeout: Duration::from_secs(self.owner.approval_timeout),
            repin: launch.repin,
            ..standard
        }
    }
}

/// The token of the owner API: made once, kept in the data directory.
fn owner_token(data: &DataDir) -> Result<String, Error> {
    if let Some(token) = data.read_private(OWNER_TOKEN_FILE)? {
        return Ok(token);
    }
    let secret = postern_identity::secret::mint(postern_identity::secret::Kind::Owner)
        .map_err(|problem| Error::failed("there is no randomness for a token", problem))?;
    let token = secret.into_exposed();
    data.write_private(OWNER_TOKEN_FILE, &format!("{token}\n"))?;
    Ok(token)
}

impl Running {
    /// A one-time link to the console, when there is one.
    pub(crate) fn console_link(&self) -> Option<postern_edge::owner::Link> {
        let made = self.console.as_ref()?.link();
        made.inspect_err(|problem| tracing::warn!(%problem, "no link to the console was made"))
            .ok()
    }

    fn tell_console(&self, metrics: Option<&str>, json: bool) {
        if let Some(url) = &self.console_url {
            output::either(
                json,
                &json!({"event": "listening", "role": "console", "url": url, "metrics": metrics}),
                &format!("console on {url}, for a browser: postern console"),
            );
        } else if let Some(url) = metrics {
            output::either(
                json,
                &json!({"event": "listening", "role": "metrics", "url": url}),
                &format!("metrics on {url}"),
            );
        }
    }

    /// Runs the edge until it ends or `stop` is signalled, then ends the worker.
    pub(crate) async fn run(
        self,
        events: mpsc::Sender<Event>,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let Self {
            edge,
            checkpoints,
            worker,
            console_url_file,
            ..
        } = self;
        let end = edge.run(events, stop).await;
        checkpoints.end().await;
        if let Some(worker) = &worker {
            worker.stop().await;
        }
        // A file that is gone already tells the same.
        let _ = std::fs::remove_file(&console_url_file);
        match end {
            End::Stopped => Ok(()),
            End::Unauthorized(why) => Err(Error::Refused(why)),
            End::Superseded(why) => Err(Error::Superseded(why)),
            End::Failed(why) => Err(Error::Failed(why)),
        }
    }

    async fn end_worker(&self) {
        if let Some(worker) = &self.worker {
            worker.stop().await;
        }
    }
}
