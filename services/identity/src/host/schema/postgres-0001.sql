-- Version 1 of the host's identity on PostgreSQL: what SQLite has in its version 2, and what several processes on one
-- database need. Instants are milliseconds since 1970 UTC; ids are UUIDs in lower case. `rowid` is the order of creation
-- (rows are inserted under one lock), by the name that SQLite has for it.

-- The first organization and its owner: one row, so that bootstrapping happens once.
CREATE TABLE host (
    "only" INTEGER PRIMARY KEY CHECK ("only" = 1),
    organization_id TEXT NOT NULL,
    principal_id TEXT NOT NULL
);

CREATE TABLE organizations (
    id TEXT NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL
);

-- Whoever acts. `organization_id` is the principal's own: where it creates when it names none.
CREATE TABLE principals (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    created_at BIGINT NOT NULL
);

-- An owner of an organization is owner of each of its workspaces; a member has the roles given to it.
CREATE TABLE memberships (
    principal_id TEXT NOT NULL REFERENCES principals (id),
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    role TEXT NOT NULL CHECK (role IN ('owner', 'member')),
    PRIMARY KEY (principal_id, organization_id)
);

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    version BIGINT NOT NULL,
    UNIQUE (organization_id, slug)
);

CREATE TABLE workspace_roles (
    principal_id TEXT NOT NULL REFERENCES principals (id),
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    role TEXT NOT NULL CHECK (role IN ('owner', 'editor', 'reviewer', 'viewer')),
    PRIMARY KEY (principal_id, workspace_id)
);

-- Of a secret only its SHA-256 is here. `workspace_id` and `role` are an agent's.
CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    kind TEXT NOT NULL CHECK (kind IN ('admin', 'agent', 'channel')),
    digest BYTEA NOT NULL UNIQUE CHECK (length(digest) = 32),
    principal_id TEXT NOT NULL REFERENCES principals (id),
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    workspace_id TEXT REFERENCES workspaces (id),
    role TEXT CHECK (role IN ('owner', 'editor', 'reviewer', 'viewer')),
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    CHECK ((kind = 'agent') = (workspace_id IS NOT NULL)),
    CHECK ((kind = 'agent') = (role IS NOT NULL))
);
CREATE INDEX tokens_by_organization ON tokens (organization_id, rowid);

CREATE TABLE launches (
    id TEXT NOT NULL PRIMARY KEY,
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    intention TEXT NOT NULL,
    token_id TEXT NOT NULL REFERENCES tokens (id),
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX launches_by_workspace ON launches (workspace_id, rowid);
CREATE INDEX launches_by_token ON launches (token_id);

-- What a request with an idempotency key asked, by the digest of its body, and the answer it got.
CREATE TABLE idempotency_keys (
    principal_id TEXT NOT NULL REFERENCES principals (id),
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    answer BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (principal_id, operation, key)
);

-- An empty key stands for the token itself.
CREATE TABLE conversations (
    token_id TEXT NOT NULL REFERENCES tokens (id),
    key TEXT NOT NULL,
    session_id TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (token_id, key)
);

-- Tokens that have changed, or whose launches have, in the order of their commits and without a gap. Other processes follow
-- it; old rows are taken away, and who misses one reads everything anew. `revoked` tells what watchers hear of: the token
-- itself, or its launch in a workspace.
CREATE TABLE changes (
    sequence BIGINT NOT NULL PRIMARY KEY,
    token_id TEXT NOT NULL,
    revoked TEXT NOT NULL CHECK (revoked IN ('nothing', 'token', 'launch')),
    workspace_id TEXT,
    CHECK ((revoked = 'launch') = (workspace_id IS NOT NULL))
);
