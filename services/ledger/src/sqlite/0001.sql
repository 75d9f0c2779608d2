-- Version 1. Events are the record; `receipts` is an index over them, kept by a trigger so that it is derived in one place
-- and could be built again from the events alone. It is there so that finding a call by its ids, the open receipts and a
-- page of the newest are each one look into a small tree rather than a walk of the chain.

CREATE TABLE workspaces (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE incarnations (
    workspace INTEGER NOT NULL REFERENCES workspaces (number),
    incarnation INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace, incarnation)
) STRICT, WITHOUT ROWID;

-- One row an event: its canonical JSON, and beside it the bytes whose digests it holds.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL REFERENCES workspaces (number),
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

CREATE TABLE receipts (
    position INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    workspace INTEGER NOT NULL,
    session TEXT NOT NULL,
    call TEXT NOT NULL,
    tool TEXT NOT NULL,
    keyed INTEGER NOT NULL,
    state INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX receipts_key ON receipts (workspace, session, call) WHERE keyed = 1;
CREATE INDEX receipts_open ON receipts (state, workspace) WHERE state IN (1, 2);

CREATE TRIGGER events_first AFTER INSERT ON events WHEN NEW.body ->> 'sessionId' IS NOT NULL
BEGIN
    INSERT INTO receipts (position, id, workspace, session, call, tool, keyed, state)
    VALUES (
        NEW.position, NEW.receipt, NEW.workspace, NEW.body ->> 'sessionId', NEW.body ->> 'callId', NEW.body ->> 'tool',
        NEW.body ->> 'unkeyed' IS NOT 1,
        CASE NEW.body ->> 'kind'
            WHEN 'awaiting' THEN 1 WHEN 'executing' THEN 2 WHEN 'completed' THEN 3 WHEN 'refused' THEN 4
        END
    );
END;

CREATE TRIGGER events_further AFTER INSERT ON events
WHEN NEW.body ->> 'sessionId' IS NULL AND NEW.body ->> 'kind' NOT IN ('decided', 'adopted')
BEGIN
    UPDATE receipts
    SET state = CASE NEW.body ->> 'kind'
            WHEN 'executing' THEN 2 WHEN 'completed' THEN 3 WHEN 'refused' THEN 4
            WHEN 'uncertain' THEN 5 WHEN 'abandoned' THEN 6
        END,
        keyed = iif(NEW.body ->> 'kind' = 'abandoned', 0, keyed)
    WHERE id = NEW.receipt;
END;

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
