//! Tokens: who holds one, and minting, listing and revoking them.

use std::sync::Arc;

use postern_types::Sha256;

use super::{
    Service,
    model::{Revocation, Role, Scope, Token, expiry},
    new_id,
    store::Founding,
};
use crate::{
    Error,
    secret::{self, Kind, Secret},
};

/// A token and the workspaces that it opens or is active in.
pub(super) type Holder = (Token, Vec<String>);

impl Service {
    /// Makes the first organization, its owner and the admin token, when there is none yet. The secret is told by the call
    /// that made it alone.
    pub(super) async fn bootstrap(&self) -> Result<(Founding, Option<Secret>), Error> {
        let service = self.clone();
        self.change(async move {
            let founding = Founding {
                organization_id: new_id(),
                principal_id: new_id(),
            };
            let (token, secret) = service.admin(&founding)?;
            postern_kit::fault_point!(crate::fault_points::BOOTSTRAP_BEFORE);
            if let Some(earlier) = service.0.store.bootstrap(&token).await? {
                return Ok((earlier, None));
            }
            postern_kit::fault_point!(crate::fault_points::BOOTSTRAP_AFTER);
            service.follow(&token.id).await?;
            Ok((founding, Some(secret)))
        })
        .await
    }

    /// Mints another admin token of the first organization's owner, for whoever has lost the secret and holds the store
    /// itself. Tokens minted before stay valid. Not a request: nobody reaches it over a network.
    ///
    /// # Errors
    /// When nothing was bootstrapped, or the store fails.
    pub async fn mint_admin(&self) -> Result<Secret, Error> {
        let service = self.clone();
        self.change(async move {
            service.index().must_be_fresh()?;
            let founding = service.0.store.founding().await?.ok_or_else(|| {
                Error::not_found("not_bootstrapped", "This host has no organization yet.")
            })?;
            let (token, secret) = service.admin(&founding)?;
            service.0.store.insert_token(&token).await?;
            service.follow(&token.id).await?;
            Ok(secret)
        })
        .await
    }

    fn admin(&self, founding: &Founding) -> Result<(Token, Secret), Error> {
        let secret = secret::mint(Kind::Admin)?;
        let now = self.0.clock.now();
        let mut index = self.index_mut();
        index.must_be_fresh()?;
        index.must_have_room(now)?;
        drop(index);
        let token = Token {
            id: new_id(),
            kind: Kind::Admin,
            digest: secret.digest(),
            principal_id: founding.principal_id.clone(),
            organization_id: founding.organization_id.clone(),
            active: None,
            created_at: now,
            expires_at: None,
            revoked_at: None,
        };
        Ok((token, secret))
    }

    /// Who holds a secret.
    pub(super) fn authenticate(&self, secret: &str) -> Result<(Arc<Token>, Vec<String>), Error> {
        secret::well_formed(secret).ok_or_else(Error::invalid_token)?;
        let digest = Sha256::of(secret.as_bytes());
        let now = self.0.clock.now();
        let index = self.index();
        index.must_be_fresh()?;
        let token = index
            .by_digest(&digest, now)
            .ok_or_else(Error::invalid_token)?;
        let workspaces = index.workspaces(&token, now);
        Ok((token, workspaces))
    }

    /// Mints an agent's token with a principal of its own, so that its idempotency keys and workspaces are its own too.
    pub(super) async fn create_token(
        &self,
        token_id: &str,
        workspace_id: String,
        role: Role,
        life_seconds: Option<u64>,
    ) -> Result<(Token, Secret), Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::TokenCreate)?;
        let now = self.0.clock.now();
        let expires_at = expiry(now, life_seconds)?;
        let organization_id = self.must_change(&acting, &workspace_id).await?;
        let service = self.clone();
        self.change(async move {
            let secret = secret::mint(Kind::Agent)?;
            service.index_mut().must_have_room(now)?;
            let token = Token {
                id: new_id(),
                kind: Kind::Agent,
                digest: secret.digest(),
                principal_id: new_id(),
                organization_id,
                active: Some((workspace_id, role)),
                created_at: now,
                expires_at,
                revoked_at: None,
            };
            service.0.store.insert_agent(&token).await?;
            service.follow(&token.id).await?;
            Ok((token, secret))
        })
        .await
    }

    /// The newest tokens of the caller's organization, each with what it opens now.
    pub(super) async fn list_tokens(&self, token_id: &str) -> Result<Vec<Holder>, Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::TokenCreate)?;
        let now = self.0.clock.now();
        self.0.store.tokens_of(&acting.organization_id, now).await
    }

    /// Revokes a token of the caller's organization. This process refuses it before this answers. Others on the same database
    /// do so when they next look, which is within half a second; when the database is too slow for that they trust what they
    /// saw for 5 s at most, and refuse everything then.
    pub(super) async fn revoke_token(
        &self,
        token_id: &str,
        revoke_id: String,
    ) -> Result<Holder, Error> {
        let acting = self.acting(token_id)?;
        acting.must_have(Scope::TokenCreate)?;
        let service = self.clone();
        self.change(async move {
            let now = service.0.clock.now();
            let revoked = service
                .0
                .store
                .revoke(&revoke_id, &acting.organization_id, now)
                .await?
                .ok_or_else(unknown_token)?;
            let followed = service.follow(&revoke_id).await;
            service.revoked(Revocation {
                token_id: revoke_id,
                workspace_id: None,
            });
            followed.map(|()| revoked)
        })
        .await
    }
}

/// There is no such token, or not in the caller's organization.
pub(super) fn unknown_token() -> Error {
    Error::not_found("unknown_token", "There is no such token.")
}
