-- Version 1 of the host's identity. Instants are milliseconds since 1970 UTC; ids are UUIDs in lower case.

-- The first organization and its owner: one row, so that bootstrapping happens once.
CREATE TABLE host (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    organization_id TEXT NOT NULL,
    principal_id TEXT NOT NULL
) STRICT;

CREATE TABLE organizations (
    id TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT;

-- Whoever acts. `organization_id` is the principal's own: where it creates when it names none.
CREATE TABLE principals (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    created_at INTEGER NOT NULL
) STRICT;

-- An owner of an organization is owner of each of its workspaces; a member has the roles given to it.
CREATE TABLE memberships (
    principal_id TEXT NOT NULL REFERENCES principals (id),
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    role TEXT NOT NULL CHECK (role IN ('owner', 'member')),
    PRIMARY KEY (principal_id, organization_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (organization_id, slug)
) STRICT;

CREATE TABLE workspace_roles (
    principal_id TEXT NOT NULL REFERENCES principals (id),
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    role TEXT NOT NULL CHECK (role IN ('owner', 'editor', 'reviewer', 'viewer')),
    PRIMARY KEY (principal_id, workspace_id)
) STRICT, WITHOUT ROWID;

-- Of a secret only its SHA-256 is here. `workspace_id` and `role` are an agent's.
CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('admin', 'agent', 'channel')),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    principal_id TEXT NOT NULL REFERENCES principals (id),
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    workspace_id TEXT REFERENCES workspaces (id),
    role TEXT CHECK (role IN ('owner', 'editor', 'reviewer', 'viewer')),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    CHECK ((kind = 'agent') = (workspace_id IS NOT NULL)),
    CHECK ((kind = 'agent') = (role IS NOT NULL))
) STRICT;
CREATE INDEX tokens_by_organization ON tokens (organization_id);

CREATE TABLE launches (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    intention TEXT NOT NULL,
    token_id TEXT NOT NULL REFERENCES tokens (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;
CREATE INDEX launches_by_workspace ON launches (workspace_id);
CREATE INDEX launches_by_token ON launches (token_id);

-- What a request with an idempotency key asked, by the digest of its body, and the answer it got.
CREATE TABLE idempotency_keys (
    principal_id TEXT NOT NULL REFERENCES principals (id),
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    answer BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (principal_id, operation, key)
) STRICT, WITHOUT ROWID;

-- An empty key stands for the token itself.
CREATE TABLE conversations (
    token_id TEXT NOT NULL REFERENCES tokens (id),
    key TEXT NOT NULL,
    session_id TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (token_id, key)
) STRICT, WITHOUT ROWID;
