//! The operations of the identity API as they are described.

use super::{
    SCOPE_AGENT, SCOPE_LAUNCH, SCOPE_TOKEN,
    body::{
        LaunchCreate, LaunchList as SomeLaunches, Revoke, TokenCreate, TokenList as AllTokens,
        WorkspaceCreate, WorkspaceList as AllWorkspaces,
    },
    view::{
        LaunchCreated, LaunchList, LaunchRevoked, TokenCreated, TokenList, TokenRevoked,
        WorkspaceCreated, WorkspaceList,
    },
};
use crate::{
    access,
    openapi::{Access, Content, Link, Method, Operation, Refusal},
};

/// How a request of the identity API is refused for its token.
pub(crate) const TOKEN_REFUSALS: &[Refusal] = &{
    let mut refusals =
        [Refusal::new(403, "missing_scope", "The token does not have the scope."); 4];
    let mut at = 0;
    while at < access::TOKEN_REFUSALS.len() {
        refusals[at + 1] = access::TOKEN_REFUSALS[at];
        at += 1;
    }
    refusals
};

/// How a request is refused for its body.
pub(crate) const BODY_REFUSALS: &[Refusal] = &[
    Refusal::new(
        400,
        "invalid_request",
        "The body does not have its form; the detail tells where.",
    ),
    Refusal::new(408, "body_too_slow", "The body did not arrive within 10 s."),
    Refusal::new(413, "body_too_large", "The body has more than 65536 bytes."),
    Refusal::new(
        415,
        "unsupported_media_type",
        "The Content-Type is not application/json.",
    ),
];

const INSUFFICIENT_ROLE: Refusal = Refusal::new(
    403,
    "insufficient_role",
    "The token's role only reads; this takes an owner or editor.",
);
const UNKNOWN_WORKSPACE: Refusal = Refusal::new(
    404,
    "unknown_workspace",
    "There is no such workspace, or the caller has no role in it.",
);
const UNKNOWN_TOKEN: Refusal = Refusal::new(
    404,
    "unknown_token",
    "There is no such token in the caller's organization, or it is over.",
);
const TOO_MANY_TOKENS: Refusal = Refusal::new(
    429,
    "too_many_tokens",
    "The host has as many valid tokens as it may; revoke some first.",
);

/// An operation as most of them are.
const fn operation(
    id: &'static str,
    path: &'static str,
    scope: &'static str,
    takes: Content,
    gives: Content,
) -> Operation {
    Operation {
        id,
        method: Method::Post,
        path,
        summary: "",
        access: Access::Scope(scope),
        takes: Some(takes),
        gives,
        refusals: &[],
        links: &[],
    }
}

pub(super) const LIST_WORKSPACES: Operation = Operation {
    summary: "The caller's workspaces, and the one that its token is for",
    ..operation(
        "listWorkspaces",
        "/identity-api/workspace/list",
        SCOPE_AGENT,
        Content::of::<AllWorkspaces>("What to tell of each.", r#"{"include_version": true}"#),
        Content::of::<WorkspaceList>(
            "The workspaces.",
            r#"{
                "active_workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                "workspaces": [{
                    "id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                    "slug": "app",
                    "name": "App",
                    "role": "editor",
                    "version": 1
                }]
            }"#,
        ),
    )
};

pub(super) const CREATE_WORKSPACE: Operation = Operation {
    summary: "Create a workspace, once for an idempotency key",
    refusals: &[
        INSUFFICIENT_ROLE,
        Refusal::new(
            403,
            "not_a_member",
            "The caller is no member of the organization.",
        ),
        Refusal::new(
            409,
            "idempotency_key_reused",
            "The key came with another body before.",
        ),
        Refusal::new(
            429,
            "too_many_workspaces",
            "The organization has as many workspaces as it may.",
        ),
    ],
    links: &[
        Link {
            name: "launch",
            to: "createLaunch",
            body: r#"{"workspace_id": "$response.body#/workspace/id", "intention": "Fix the tests"}"#,
        },
        Link {
            name: "agent",
            to: "createToken",
            body: r#"{"workspace_id": "$response.body#/workspace/id", "role": "editor"}"#,
        },
    ],
    ..operation(
        "createWorkspace",
        "/identity-api/workspace/create",
        SCOPE_AGENT,
        Content::of::<WorkspaceCreate>(
            "The workspace.",
            r#"{"name": "App", "idempotency_key": "2026-11-30/app"}"#,
        ),
        Content::of::<WorkspaceCreated>(
            "The new workspace, or the first answer to the idempotency key.",
            r#"{"workspace": {
                "id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                "organization_id": "b9d3a3cb-8f0e-4f5e-a0c2-6a2b1c0d9e8f",
                "slug": "app",
                "name": "App",
                "created_at": "2026-11-30T08:00:00Z"
            }}"#,
        ),
    )
};

pub(super) const CREATE_LAUNCH: Operation = Operation {
    summary: "Tie a workspace to an intention, and mint the channel token for it or add it to one",
    refusals: &[
        Refusal::new(
            400,
            "not_a_channel_token",
            "The token to add the workspace to is of another kind.",
        ),
        INSUFFICIENT_ROLE,
        UNKNOWN_WORKSPACE,
        UNKNOWN_TOKEN,
        TOO_MANY_TOKENS,
        Refusal::new(
            429,
            "too_many_workspaces",
            "The channel token carries as many workspaces as it may.",
        ),
    ],
    links: &[
        Link {
            name: "revoke",
            to: "revokeLaunch",
            body: r#"{"id": "$response.body#/launch/id"}"#,
        },
        Link {
            name: "revokeToken",
            to: "revokeToken",
            body: r#"{"id": "$response.body#/launch/token_id"}"#,
        },
    ],
    ..operation(
        "createLaunch",
        "/identity-api/launch/create",
        SCOPE_LAUNCH,
        Content::of::<LaunchCreate>(
            "The launch.",
            r#"{
                "workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                "intention": "Fix the tests",
                "expires_in": 86400
            }"#,
        ),
        Content::of::<LaunchCreated>(
            "The new launch.",
            r#"{"launch": {
                "id": "5d0f1a76-0e3b-4b62-8a3e-90c8a4a1f7d2",
                "workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                "intention": "Fix the tests",
                "endpoint": "wss://agents.example/api/ai-gateway/v1/workspaces/0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162/channel",
                "token_id": "e2f1c0b9-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
                "token": "the channel token's secret",
                "created_at": "2026-11-30T08:00:00Z",
                "expires_at": "2026-12-01T08:00:00Z"
            }}"#,
        ),
    )
};

pub(super) const LIST_LAUNCHES: Operation = Operation {
    summary: "Launches of the workspaces in which the caller may create some",
    refusals: &[INSUFFICIENT_ROLE, UNKNOWN_WORKSPACE],
    ..operation(
        "listLaunches",
        "/identity-api/launch/list",
        SCOPE_LAUNCH,
        Content::of::<SomeLaunches>(
            "Which launches.",
            r#"{"workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162"}"#,
        ),
        Content::of::<LaunchList>(
            "The newest 400 launches, valid or not.",
            r#"{"launches": [{
                "id": "5d0f1a76-0e3b-4b62-8a3e-90c8a4a1f7d2",
                "workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                "intention": "Fix the tests",
                "token_id": "e2f1c0b9-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
                "created_at": "2026-11-30T08:00:00Z",
                "expires_at": "2026-12-01T08:00:00Z",
                "revoked_at": null
            }]}"#,
        ),
    )
};

pub(super) const REVOKE_LAUNCH: Operation = Operation {
    summary: "Revoke a launch: its token opens the workspace no longer, unless by another launch",
    refusals: &[
        INSUFFICIENT_ROLE,
        Refusal::new(
            404,
            "unknown_launch",
            "There is no such launch, or the caller has no role in its workspace.",
        ),
    ],
    ..operation(
        "revokeLaunch",
        "/identity-api/launch/revoke",
        SCOPE_LAUNCH,
        Content::of::<Revoke>(
            "The launch.",
            r#"{"id": "5d0f1a76-0e3b-4b62-8a3e-90c8a4a1f7d2"}"#,
        ),
        Content::of::<LaunchRevoked>(
            "The launch. One that was revoked before stays as it was.",
            r#"{"launch": {
                "id": "5d0f1a76-0e3b-4b62-8a3e-90c8a4a1f7d2",
                "workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162",
                "intention": "Fix the tests",
                "token_id": "e2f1c0b9-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
                "created_at": "2026-11-30T08:00:00Z",
                "expires_at": null,
                "revoked_at": "2026-11-30T09:00:00Z"
            }}"#,
        ),
    )
};

pub(super) const CREATE_TOKEN: Operation = Operation {
    summary: "Mint an agent's token for a workspace",
    refusals: &[INSUFFICIENT_ROLE, UNKNOWN_WORKSPACE, TOO_MANY_TOKENS],
    links: &[Link {
        name: "revoke",
        to: "revokeToken",
        body: r#"{"id": "$response.body#/token/id"}"#,
    }],
    ..operation(
        "createToken",
        "/identity-api/token/create",
        SCOPE_TOKEN,
        Content::of::<TokenCreate>(
            "The token.",
            r#"{"workspace_id": "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162", "role": "editor"}"#,
        ),
        Content::of::<TokenCreated>(
            "The new token, with its secret.",
            r#"{"token": {
                "id": "e2f1c0b9-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
                "secret": "the token's secret",
                "kind": "agent",
                "scopes": ["agent:operate"],
                "principal_id": "7a6b5c4d-3e2f-4a1b-8c0d-9e8f7a6b5c4d",
                "organization_id": "b9d3a3cb-8f0e-4f5e-a0c2-6a2b1c0d9e8f",
                "workspace_ids": ["0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162"],
                "role": "editor",
                "created_at": "2026-11-30T08:00:00Z",
                "expires_at": null,
                "revoked_at": null
            }}"#,
        ),
    )
};

pub(super) const LIST_TOKENS: Operation = Operation {
    summary: "The organization's tokens, without their secrets",
    ..operation(
        "listTokens",
        "/identity-api/token/list",
        SCOPE_TOKEN,
        Content::of::<AllTokens>("Nothing to choose.", "{}"),
        Content::of::<TokenList>(
            "The newest 2000 tokens, valid or not.",
            r#"{"tokens": [{
                "id": "9c8b7a6f-5e4d-4c3b-8a29-1807f6e5d4c3",
                "kind": "admin",
                "scopes": ["agent:operate", "launch:create", "token:create"],
                "principal_id": "1f2e3d4c-5b6a-4978-8897-a6b5c4d3e2f1",
                "organization_id": "b9d3a3cb-8f0e-4f5e-a0c2-6a2b1c0d9e8f",
                "workspace_ids": [],
                "role": null,
                "created_at": "2026-11-30T08:00:00Z",
                "expires_at": null,
                "revoked_at": null
            }]}"#,
        ),
    )
};

pub(super) const REVOKE_TOKEN: Operation = Operation {
    summary: "Revoke a token of any kind, and cut what it has open",
    refusals: &[UNKNOWN_TOKEN],
    ..operation(
        "revokeToken",
        "/identity-api/token/revoke",
        SCOPE_TOKEN,
        Content::of::<Revoke>(
            "The token.",
            r#"{"id": "e2f1c0b9-1a2b-4c3d-8e4f-5a6b7c8d9e0f"}"#,
        ),
        Content::of::<TokenRevoked>(
            "The token. One that was revoked before stays as it was.",
            r#"{"token": {
                "id": "e2f1c0b9-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
                "kind": "agent",
                "scopes": ["agent:operate"],
                "principal_id": "7a6b5c4d-3e2f-4a1b-8c0d-9e8f7a6b5c4d",
                "organization_id": "b9d3a3cb-8f0e-4f5e-a0c2-6a2b1c0d9e8f",
                "workspace_ids": ["0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162"],
                "role": "editor",
                "created_at": "2026-11-30T08:00:00Z",
                "expires_at": null,
                "revoked_at": "2026-11-30T09:00:00Z"
            }}"#,
        ),
    )
};
