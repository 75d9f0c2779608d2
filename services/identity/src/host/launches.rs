//! Launches: a workspace tied to an intention, and the channel token that opens it.

use std::sync::{Arc, MutexGuard, PoisonError};

use postern_types::Intention;

use super::{
    Service,
    model::{Launch, Scope, Token, expiry, is_before},
    new_id,
    tokens::unknown_token,
};
use crate::{
    Error,
    recent::Recent,
    secret::{self, Kind, Secret},
};

/// Workspaces whose current launch is remembered without a look into the store.
const REMEMBERED_LAUNCHES: usize = 256;

/// The current launches of workspaces as last read. Every change of launches or tokens empties it.
#[derive(Debug)]
pub(super) struct LaunchMemory {
    /// Counts changes, so that what was read before one is not remembered after it.
    generation: u64,
    recent: Recent<String, Option<Launch>>,
}

impl LaunchMemory {
    pub(super) fn new() -> Self {
        Self {
            generation: 0,
            recent: Recent::new(REMEMBERED_LAUNCHES),
        }
    }
}

impl Service {
    /// Creates a launch. It gets a channel token of its own, or is added to the given one.
    pub(super) async fn create_launch(
        &self,
        token_id: &str,
        workspace_id: String,
        intention: Intention,
        life_seconds: Option<u64>,
        channel_token_id: String,
    ) -> Result<(Launch, Option<Secret>), Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::LaunchCreate)?;
        let now = self.0.clock.now();
        let expires_at = expiry(now, life_seconds)?;
        let organization_id = self.must_change(&acting, &workspace_id).await?;
        let mut launch = Launch {
            id: new_id(),
            workspace_id,
            intention,
            token_id: channel_token_id,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        let service = self.clone();
        self.change(async move {
            if !launch.token_id.is_empty() {
                let token = service.channel_token(&launch, &organization_id)?;
                // A launch does not outlive the token that opens it.
                launch.expires_at = match (launch.expires_at, token.expires_at) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                postern_kit::fault_point!(crate::fault_points::LAUNCH_BEFORE);
                service.0.store.insert_launch(&launch, None).await?;
                postern_kit::fault_point!(crate::fault_points::LAUNCH_AFTER);
                service.follow(&launch.token_id).await?;
                return Ok((launch, None));
            }
            let secret = secret::mint(Kind::Channel)?;
            service.index_mut().must_have_room(now)?;
            let token = Token {
                id: new_id(),
                kind: Kind::Channel,
                digest: secret.digest(),
                principal_id: acting.principal_id.clone(),
                organization_id,
                active: None,
                created_at: now,
                expires_at,
                revoked_at: None,
            };
            launch.token_id.clone_from(&token.id);
            postern_kit::fault_point!(crate::fault_points::LAUNCH_BEFORE);
            service.0.store.insert_launch(&launch, Some(&token)).await?;
            postern_kit::fault_point!(crate::fault_points::LAUNCH_AFTER);
            service.follow(&launch.token_id).await?;
            Ok((launch, Some(secret)))
        })
        .await
    }

    /// The valid channel token of the organization that a launch is to be added to.
    fn channel_token(&self, launch: &Launch, organization_id: &str) -> Result<Arc<Token>, Error> {
        let index = self.index();
        let token = index
            .by_id(&launch.token_id, self.0.clock.now())
            .filter(|token| token.organization_id == organization_id)
            .ok_or_else(unknown_token)?;
        if token.kind != Kind::Channel {
            return Err(Error::invalid(
                "not_a_channel_token",
                "A launch is added to a channel token. Leave the token out to mint one.",
            ));
        }
        index.must_have_door(&token.id, &launch.workspace_id)?;
        Ok(token)
    }

    /// The newest launches of the workspaces in which the caller may create some, or of one of these.
    pub(super) async fn list_launches(
        &self,
        token_id: &str,
        workspace_id: Option<String>,
    ) -> Result<Vec<Launch>, Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::LaunchCreate)?;
        if let Some(workspace_id) = &workspace_id {
            self.must_change(&acting, workspace_id).await?;
        }
        self.0
            .store
            .launches_of(&acting.principal_id, workspace_id.as_deref())
            .await
    }

    /// Revokes a launch of a workspace in which the caller may create some. It is in force in this process before this answers,
    /// and in others on the same database as a revoked token is.
    pub(super) async fn revoke_launch(
        &self,
        token_id: &str,
        launch_id: String,
    ) -> Result<Launch, Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::LaunchCreate)?;
        let launch = self.0.store.launch(&launch_id).await?;
        let launch = launch.ok_or_else(unknown_launch)?;
        let seen = self
            .0
            .store
            .role_in(&acting.principal_id, &launch.workspace_id)
            .await?;
        let (_, role) = seen.ok_or_else(unknown_launch)?;
        role.must_change()?;
        let service = self.clone();
        self.change(async move {
            let now = service.0.clock.now();
            let revoked = service.0.store.revoke_launch(&launch_id, now).await?;
            let (launch, revocation) = revoked.ok_or_else(unknown_launch)?;
            let followed = service.follow(&launch.token_id).await;
            service.revoked(revocation);
            followed.map(|()| launch)
        })
        .await
    }

    /// The newest launch of a workspace that is valid, and whose token is.
    pub(super) async fn current_launch(&self, workspace_id: &str) -> Result<Option<Launch>, Error> {
        self.index().must_be_fresh()?;
        let now = self.0.clock.now();
        let generation = {
            let mut memory = self.launch_memory();
            if let Some(known) = memory.recent.get(workspace_id)
                && known
                    .as_ref()
                    .is_none_or(|launch| is_before(now, launch.expires_at))
            {
                return Ok(known);
            }
            memory.generation
        };
        let launch = self.0.store.current_launch(workspace_id, now).await?;
        let mut memory = self.launch_memory();
        if memory.generation == generation {
            memory
                .recent
                .insert(workspace_id.to_owned(), launch.clone());
        }
        Ok(launch)
    }

    /// Forgets which launches are current, after a change.
    pub(super) fn forget_launches(&self) {
        let mut memory = self.launch_memory();
        memory.generation += 1;
        memory.recent.clear();
    }

    fn launch_memory(&self) -> MutexGuard<'_, LaunchMemory> {
        self.0
            .launches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no such launch, or not in a workspace that the caller sees.
fn unknown_launch() -> Error {
    Error::not_found("unknown_launch", "There is no such launch.")
}
