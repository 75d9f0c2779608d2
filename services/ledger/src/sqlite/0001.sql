-- Version 1. Events are the record; `receipts` is an index over them, written in the same transaction, which says nothing
-- that the events do not say and could be built again from them (verification compares the two). It is there so that
-- finding a call by its ids, the open receipts and a page of the newest are each one look into a small tree rather than a
-- walk of the chain.

CREATE TABLE workspaces (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE incarnations (
    workspace INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace, incarnation)
) STRICT, WITHOUT ROWID;

-- One row an event: its canonical JSON, and beside it the bytes whose digests it holds.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    receipt BLOB NOT NULL,
    hash BLOB NOT NULL,
    body TEXT NOT NULL,
    plan BLOB,
    proposal BLOB,
    result BLOB,
    answer BLOB,
    CONSTRAINT events_chain UNIQUE (workspace, sequence)
) STRICT;
CREATE INDEX events_receipt ON events (receipt);

-- Ids are UUIDs of version 7, so their order is that of time. The states are those of the service's contract, and 6 for
-- abandoned.
CREATE TABLE receipts (
    id BLOB PRIMARY KEY,
    workspace INTEGER NOT NULL,
    session TEXT NOT NULL,
    call TEXT NOT NULL,
    tool TEXT NOT NULL,
    keyed INTEGER NOT NULL,
    state INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX receipts_key ON receipts (workspace, session, call) WHERE keyed = 1;
CREATE INDEX receipts_open ON receipts (state, workspace) WHERE state IN (1, 2);

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER incarnations_no_update BEFORE UPDATE ON incarnations
BEGIN SELECT RAISE(ABORT, 'incarnations are append-only'); END;
CREATE TRIGGER incarnations_no_delete BEFORE DELETE ON incarnations
BEGIN SELECT RAISE(ABORT, 'incarnations are append-only'); END;
CREATE TRIGGER workspaces_no_update BEFORE UPDATE ON workspaces
BEGIN SELECT RAISE(ABORT, 'workspaces are append-only'); END;
CREATE TRIGGER workspaces_no_delete BEFORE DELETE ON workspaces
BEGIN SELECT RAISE(ABORT, 'workspaces are append-only'); END;
CREATE TRIGGER receipts_no_delete BEFORE DELETE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
