//! The workspace, the launch and the tokens of one project: made at the first start and kept.

use std::path::Path;

use postern_kit::transport::Transport;
use postern_proto::identity::v1::{
    CreateLaunchRequest, CreateTokenRequest, CreateWorkspaceRequest, CurrentLaunchRequest, Role,
    host_identity_client::HostIdentityClient,
};
use postern_types::{Id, Intention};
use serde::{Deserialize, Serialize};

use crate::{
    cli::{ChannelTimes, Up},
    command::{
        edge::Launch,
        host::{bootstrap, known_token},
    },
    data_dir::DataDir,
    error::Error,
    project::Project,
    services::ADMIN_TOKEN_FILE,
};

const STATE_FILE: &str = "up.json";
/// The file in the data directory that holds the agent token.
pub(super) const AGENT_TOKEN_FILE: &str = "agent-token";
const CHANNEL_TOKEN_FILE: &str = "channel-token";
const DEFAULT_INTENTION: &str = "Work in this project as its owner asks.";
/// Longest name of a workspace, in characters.
const NAME_LIMIT: usize = 120;

/// What one start of `postern up` works with.
pub(crate) struct Provision {
    /// Workspace.
    pub(crate) workspace: Id,
    /// Intention.
    pub(crate) intention: Intention,
    /// Secret of the channel token.
    pub(crate) channel_token: String,
    /// Secret of the agent token.
    pub(crate) agent_token: String,
    /// Whether the edge may pin the workspace anew: the owner says so, or said so to a start that was killed before it did.
    pub(crate) repin: bool,
    state: State,
}

impl Provision {
    /// What the edge is opened for, at the host of the same program.
    pub(crate) fn launch(&self, url: &str) -> Launch {
        Launch {
            host: url.to_owned(),
            workspace: self.workspace.clone(),
            intention: self.intention.clone(),
            token: self.channel_token.clone(),
            allow_plaintext: false,
            times: ChannelTimes::default(),
            repin: self.repin,
        }
    }

    /// Notes that the edge has pinned what this start wanted.
    pub(crate) fn pinned(&self, data: &DataDir) -> Result<(), Error> {
        if self.state.repinning.is_none() {
            return Ok(());
        }
        write_state(
            data,
            &State {
                repinning: None,
                ..self.state.clone()
            },
        )
    }
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct State {
    workspace_id: Id,
    intention: Intention,
    /// The project for which the owner wanted another intention, until the edge has pinned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repinning: Option<Root>,
}

/// What tells a project from another.
#[derive(Clone, Copy, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Root {
    device: u64,
    inode: u64,
}

/// Reads what earlier starts made, and makes what is missing.
pub(crate) async fn provision(
    data: &DataDir,
    project: &Project,
    arguments: &Up,
    service: &postern_identity::host::Service,
    identity: &Transport,
) -> Result<Provision, Error> {
    let mut identity = HostIdentityClient::new(identity.clone());
    bootstrap(data, service, &mut identity).await?;
    let admin = admin(data, &mut identity).await?;
    let state = read_state(data)?;
    let workspace_id = match &state {
        Some(state) => state.workspace_id.clone(),
        None => create_workspace(&project.path, &admin, &mut identity).await?,
    };
    let wished = arguments.intention.clone();
    let intention = match (wished, &state) {
        (Some(wished), _) => wished,
        (None, Some(state)) => state.intention.clone(),
        (None, None) => default_intention()?,
    };
    let changed = state
        .as_ref()
        .is_some_and(|state| state.intention != intention);
    if changed && !arguments.owner.repin {
        return Err(Error::Usage(
            "this project is pinned to another intention; leave --intention out to keep that one, or add --repin to change it".to_owned(),
        ));
    }
    let channel_token =
        channel_token(data, &admin, &workspace_id, &intention, &mut identity).await?;
    let agent_token = match known_token(data, AGENT_TOKEN_FILE, &mut identity).await? {
        Some((_, secret)) => secret,
        None => create_agent_token(data, &admin, &workspace_id, &mut identity).await?,
    };
    let root = Root {
        device: project.identity.device,
        inode: project.identity.inode,
    };
    let state = match state {
        Some(state) if !changed => state,
        before => {
            let state = State {
                workspace_id,
                intention,
                // The pin is the edge's, and comes later. A start that is killed in between leaves word of it here.
                repinning: before.is_some().then_some(root),
            };
            write_state(data, &state)?;
            state
        }
    };
    Ok(Provision {
        workspace: state.workspace_id.clone(),
        intention: state.intention.clone(),
        channel_token,
        agent_token,
        repin: arguments.owner.repin || state.repinning == Some(root),
        state,
    })
}

/// The secret of the channel token, with a launch of this intention as the workspace's newest.
async fn channel_token(
    data: &DataDir,
    admin: &str,
    workspace: &Id,
    intention: &Intention,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<String, Error> {
    let known = known_token(data, CHANNEL_TOKEN_FILE, identity).await?;
    // The host says what was launched: a start that was killed half-way is mended by the next one.
    let launched = launched(workspace, identity).await?;
    match known {
        Some((_, secret)) if launched.as_deref() == Some(intention.as_str()) => Ok(secret),
        Some((token, secret)) => {
            create_launch(admin, workspace, intention, &token.id, identity).await?;
            Ok(secret)
        }
        None => {
            let secret = create_launch(admin, workspace, intention, "", identity).await?;
            let secret = secret
                .ok_or_else(|| Error::Failed("the host minted no channel token".to_owned()))?;
            data.write_private(CHANNEL_TOKEN_FILE, &format!("{secret}\n"))?;
            Ok(secret)
        }
    }
}

fn read_state(data: &DataDir) -> Result<Option<State>, Error> {
    data.read_private(STATE_FILE)?
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|problem| {
            Error::failed(
                format!("'{}' cannot be read", data.join(STATE_FILE).display()),
                problem,
            )
        })
}

fn write_state(data: &DataDir, state: &State) -> Result<(), Error> {
    let text = serde_json::to_string(state)
        .map_err(|problem| Error::failed("the state cannot be written", problem))?;
    data.write_private(STATE_FILE, &text)
}

fn default_intention() -> Result<Intention, Error> {
    DEFAULT_INTENTION
        .parse()
        .map_err(|problem| Error::failed("the default intention", problem))
}

async fn admin(
    data: &DataDir,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<String, Error> {
    match known_token(data, ADMIN_TOKEN_FILE, identity).await? {
        Some((token, _)) => Ok(token.id),
        None => Err(Error::Failed(format!(
            "the admin token in '{}' is missing or not valid any more; restore it from a backup, or choose another --data-dir",
            data.join(ADMIN_TOKEN_FILE).display()
        ))),
    }
}

async fn create_workspace(
    project: &Path,
    admin: &str,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<Id, Error> {
    let name: String = project
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .chars()
        .take(NAME_LIMIT)
        .collect();
    let name = if name.is_empty() {
        "project".to_owned()
    } else {
        name
    };
    // The key ties the workspace to this data directory's first start: a start that was killed half-way finds it again.
    let idempotency_key = "postern-up-first-start".to_owned();
    let body_sha256 = postern_types::Sha256::of(b"postern up").to_string();
    let request = CreateWorkspaceRequest {
        token_id: admin.to_owned(),
        name,
        organization_id: String::new(),
        idempotency_key,
        body_sha256,
    };
    let workspace = identity
        .create_workspace(request)
        .await?
        .into_inner()
        .workspace;
    let id = workspace.map(|workspace| workspace.id).unwrap_or_default();
    id.parse()
        .map_err(|problem| Error::failed("the host made no workspace", problem))
}

/// The intention of the workspace's current launch.
async fn launched(
    workspace: &Id,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<Option<String>, Error> {
    let request = CurrentLaunchRequest {
        workspace_id: workspace.to_string(),
    };
    let answer = identity.current_launch(request).await?.into_inner();
    Ok(answer.launch.map(|launch| launch.intention))
}

async fn create_launch(
    admin: &str,
    workspace: &Id,
    intention: &Intention,
    channel_token_id: &str,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<Option<String>, Error> {
    let request = CreateLaunchRequest {
        token_id: admin.to_owned(),
        workspace_id: workspace.to_string(),
        intention: intention.to_string(),
        expires_in_seconds: None,
        channel_token_id: channel_token_id.to_owned(),
    };
    Ok(identity.create_launch(request).await?.into_inner().secret)
}

async fn create_agent_token(
    data: &DataDir,
    admin: &str,
    workspace: &Id,
    identity: &mut HostIdentityClient<Transport>,
) -> Result<String, Error> {
    let request = CreateTokenRequest {
        token_id: admin.to_owned(),
        workspace_id: workspace.to_string(),
        role: Role::Owner.into(),
        expires_in_seconds: None,
    };
    let secret = identity.create_token(request).await?.into_inner().secret;
    data.write_private(AGENT_TOKEN_FILE, &format!("{secret}\n"))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;
    use postern_identity::Database;
    use postern_kit::{Clock, task::Tasks, transport};
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::cli::{Cli, Command};

    /// What one start of `up` is provided with, up to where the edge pins.
    async fn start(home: &Path, project: &str, options: &[&str]) -> Result<Provision, Error> {
        let folder = home.join(project);
        fs::create_dir_all(&folder).expect("project");
        let words = ["postern", "up"].iter().chain(options);
        let Command::Up(arguments) = Cli::try_parse_from(words).expect("options").command else {
            panic!("up was written");
        };
        let data = DataDir::open(&home.join("data")).expect("data");
        let (tasks, clock) = (Tasks::new(), Clock::system());
        let file = data.join(crate::services::HOST_IDENTITY_FILE);
        let service =
            crate::services::host_identity(Database::Sqlite(file), &clock, &tasks).await?;
        let identity = transport::local(service.clone().into_server());
        let project = Project::open(&folder)?;
        provision(&data, &project, &arguments, &service, &identity).await
    }

    /// The launch is made, the state written, and the start killed before its edge has pinned anything.
    #[tokio::test]
    async fn a_change_of_intention_that_was_killed_is_carried_on_by_the_next_start() {
        let home = tempfile::tempdir().expect("folder");
        let wish = |provided: &Provision| (provided.intention.to_string(), provided.repin);
        let first = start(home.path(), "one", &["--intention", "old"]).await;
        assert_eq!(wish(&first.expect("started")), ("old".to_owned(), false));
        let killed = start(home.path(), "one", &["--intention", "new", "--repin"]).await;
        assert_eq!(wish(&killed.expect("started")), ("new".to_owned(), true));
        for options in [&[][..], &["--intention", "new"]] {
            let next = start(home.path(), "one", options).await.expect("started");
            assert_eq!(wish(&next), ("new".to_owned(), true), "{options:?}");
        }
        // What the owner allowed was for that project.
        let other = start(home.path(), "two", &[]).await.expect("provided");
        assert_eq!(wish(&other), ("new".to_owned(), false));
        let next = start(home.path(), "one", &[]).await.expect("started");
        let data = DataDir::open(&home.path().join("data")).expect("data");
        next.pinned(&data).expect("noted");
        drop(data);
        let settled = start(home.path(), "one", &[]).await.expect("started");
        assert_eq!(wish(&settled), ("new".to_owned(), false));
    }
}
