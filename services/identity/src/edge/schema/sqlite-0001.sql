-- Version 1 of an edge's identity. Instants are milliseconds since 1970 UTC.

-- What a workspace is tied to. Device and inode are 64-bit patterns: SQLite's integers are signed.
CREATE TABLE pins (
    workspace_id TEXT NOT NULL PRIMARY KEY,
    intention TEXT NOT NULL,
    project_path TEXT NOT NULL,
    device INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    pinned_at INTEGER NOT NULL
) STRICT;

-- Sessions admitted under the present pin, in the order of their first call.
CREATE TABLE sessions (
    position INTEGER PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES pins (workspace_id),
    session_id TEXT NOT NULL,
    admitted_at INTEGER NOT NULL,
    UNIQUE (workspace_id, session_id)
) STRICT;
