//! Workspaces, and conversations in them.

use std::sync::PoisonError;

use postern_proto::identity::v1 as pb;
use prost::Message as _;
use uuid::Uuid;

use super::{
    Service,
    model::{Idempotency, Scope, Token, Workspace, workspace_name},
    new_id,
    store::{Creation, NewWorkspace},
};
use crate::Error;

/// Characters of a conversation's key at most (CONTRACT.md, section 5).
const MAX_CONVERSATION_KEY: usize = 200;

impl Service {
    /// Creates a workspace in an organization of the caller, its own when none is named. With a key it acts once.
    pub(super) async fn create_workspace(
        &self,
        token_id: &str,
        name: String,
        organization_id: String,
        idempotency: Option<Idempotency>,
    ) -> Result<pb::Workspace, Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::AgentOperate)?;
        if let Some((_, role)) = &acting.active {
            role.must_change()?;
        }
        let new = NewWorkspace {
            id: new_id(),
            principal_id: acting.principal_id.clone(),
            organization_id: if organization_id.is_empty() {
                acting.organization_id.clone()
            } else {
                organization_id
            },
            name: workspace_name(name)?,
            now: self.0.clock.now(),
        };
        let encode = |workspace: &Workspace| pb::Workspace::from(workspace.clone()).encode_to_vec();
        let created = self
            .0
            .store
            .create_workspace(&new, idempotency.as_ref(), encode)
            .await?;
        match created {
            Creation::Created(workspace) => Ok(workspace.into()),
            Creation::Replayed(answer) => pb::Workspace::decode(answer.as_slice())
                .map_err(|_| Error::Corrupt("answer of an idempotency key")),
            Creation::KeyReused => Err(Idempotency::reused()),
            Creation::NotAMember => Err(Error::forbidden(
                "not_a_member",
                "You are not a member of that organization.",
            )),
            Creation::Full => Err(Error::exhausted(
                "too_many_workspaces",
                "The organization has as many workspaces as it may.",
            )),
        }
    }

    /// The caller's workspaces, and the one that its token is active in.
    pub(super) async fn list_workspaces(
        &self,
        token_id: &str,
    ) -> Result<(Option<String>, Vec<Workspace>), Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::AgentOperate)?;
        let workspaces = self.0.store.workspaces_of(&acting.principal_id).await?;
        let active = acting.active.as_ref().map(|(id, _)| id.clone());
        Ok((active, workspaces))
    }

    /// The organization of a workspace in which the caller may change things.
    pub(super) async fn must_change(
        &self,
        acting: &Token,
        workspace_id: &str,
    ) -> Result<String, Error> {
        let found = self
            .0
            .store
            .role_in(&acting.principal_id, workspace_id)
            .await?;
        let Some((organization_id, role)) = found else {
            return Err(Error::not_found(
                "unknown_workspace",
                "There is no such workspace, or you have no role in it.",
            ));
        };
        role.must_change()?;
        Ok(organization_id)
    }

    /// The wire session of a token's conversation: the same one for the same key, and nobody else's.
    pub(super) async fn resolve_conversation(
        &self,
        token_id: &str,
        key: String,
    ) -> Result<String, Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::AgentOperate)?;
        if key.len() > MAX_CONVERSATION_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid(
                "invalid_conversation_key",
                "A conversation's key is 1 to 200 visible ASCII characters.",
            ));
        }
        let remembered = &self.0.conversations;
        let place = (acting.id.clone(), key);
        let known = remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&place);
        if let Some(session) = known {
            return Ok(session);
        }
        let session = self
            .0
            .store
            .conversation(
                &place.0,
                &place.1,
                &Uuid::new_v4().to_string(),
                self.0.clock.now(),
            )
            .await?
            .ok_or_else(|| {
                Error::exhausted(
                    "too_many_conversations",
                    "This token has as many conversations as it may. Use another token.",
                )
            })?;
        remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(place, session.clone());
        Ok(session)
    }
}
