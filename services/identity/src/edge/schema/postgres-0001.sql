-- Version 1 of an edge's identity on PostgreSQL. Instants are milliseconds since 1970 UTC.

-- What a workspace is tied to. Device and inode are 64-bit patterns: the integers here are signed.
CREATE TABLE pins (
    workspace_id TEXT NOT NULL PRIMARY KEY,
    intention TEXT NOT NULL,
    project_path TEXT NOT NULL,
    device BIGINT NOT NULL,
    inode BIGINT NOT NULL,
    pinned_at BIGINT NOT NULL
);

-- Sessions admitted under the present pin, in the order of their first call.
CREATE TABLE sessions (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES pins (workspace_id),
    session_id TEXT NOT NULL,
    admitted_at BIGINT NOT NULL,
    UNIQUE (workspace_id, session_id)
);
