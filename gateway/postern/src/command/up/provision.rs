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
        }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct State {
    workspace_id: Id,
    intention: Intention,
}

/// Reads what earlier starts made, and makes what is missing.
pub(crate) async fn provision(
    data: &DataDir,
    project: &Path,
    arguments: &Up,
    service: &postern_identity::host::Service,
    identity: &Transport,
) -> Result<Provision, Error> {
    let mut identity = HostIdentityClient::new(identity.clone());
    bootstrap(data, service, &mut identity).await?;
    let admin = admin(data, &mut identity).await?;
    let mut state = read_state(data)?;
    let workspace_id = match &state {
        Some(state) => state.workspace_id.clone(),
        None => create_workspace(project, &admin, &mut identity).await?,
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
    let known = known_token(data, CHANNEL_TOKEN_FILE, &mut identity).await?;
    // The host says what was launched: a start that was killed half-way is mended by the next one.
    let launched = launched(&workspace_id, &mut identity).await?;
    let channel_token = match known {
        Some((_, secret)) if launched.as_deref() == Some(intention.as_str()) => secret,
        Some((token, secret)) => {
            create_launch(&admin, &workspace_id, &intention, &token.id, &mut identity).await?;
            secret
        }
        None => {
            let secret =
                create_launch(&admin, &workspace_id, &intention, "", &mut identity).await?;
            let secret = secret
                .ok_or_else(|| Error::Failed("the host minted no channel token".to_owned()))?;
            data.write_private(CHANNEL_TOKEN_FILE, &format!("{secret}\n"))?;
            secret
        }
    };
    let agent_token = match known_token(data, AGENT_TOKEN_FILE, &mut identity).await? {
        Some((_, secret)) => secret,
        None => create_agent_token(data, &admin, &workspace_id, &mut identity).await?,
    };
    if changed || state.is_none() {
        state = Some(State {
            workspace_id: workspace_id.clone(),
            intention: intention.clone(),
        });
        write_state(data, state.as_ref())?;
    }
    Ok(Provision {
        workspace: workspace_id,
        intention,
        channel_token,
        agent_token,
    })
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

fn write_state(data: &DataDir, state: Option<&State>) -> Result<(), Error> {
    let text = serde_json::to_string(&state)
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
