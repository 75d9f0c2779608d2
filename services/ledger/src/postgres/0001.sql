-- Version 1: what version 3 of the SQLite file says, in PostgreSQL's types. Ids, hashes and what stands beside events are
-- bytes, so that an event copied from one to the other and back is the same to the last of them. Bodies are JSON text, which
-- holds no NUL; a tool's name comes from outside and may.

-- Who writes. Every writing statement checks that its epoch is this one, and holds the row until it is committed: who takes
-- the ledger over raises the number, and so waits for what is on its way and keeps out what comes later. Below zero
-- it is a copy's that goes on, or was left unfinished, and nobody serves from these tables.
CREATE TABLE leader (
    single BOOLEAN PRIMARY KEY DEFAULT true CHECK (single),
    epoch BIGINT NOT NULL
);
INSERT INTO leader (epoch) VALUES (0);

CREATE TABLE workspaces (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE incarnations (
    workspace BIGINT NOT NULL,
    incarnation BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (workspace, incarnation)
);

CREATE TABLE events (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    receipt BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    body TEXT NOT NULL,
    plan BYTEA,
    proposal BYTEA,
    result BYTEA,
    answer BYTEA,
    CONSTRAINT events_chain UNIQUE (workspace, sequence)
);
CREATE INDEX events_receipt ON events (receipt, position);

CREATE TABLE receipts (
    id BYTEA PRIMARY KEY,
    workspace BIGINT NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    call TEXT COLLATE "C" NOT NULL,
    tool BYTEA NOT NULL,
    keyed BOOLEAN NOT NULL,
    state SMALLINT NOT NULL,
    ok BOOLEAN NOT NULL
);
CREATE UNIQUE INDEX receipts_key ON receipts (workspace, session, call) WHERE keyed;
CREATE INDEX receipts_session ON receipts (workspace, session, state, id);
CREATE INDEX receipts_tool ON receipts (workspace, tool, state, id);
CREATE INDEX receipts_state ON receipts (workspace, state, id);

CREATE TABLE sessions (
    workspace BIGINT NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    first_ms BIGINT NOT NULL,
    last_sequence BIGINT NOT NULL,
    last_ms BIGINT NOT NULL,
    PRIMARY KEY (workspace, session)
);
CREATE INDEX sessions_activity ON sessions (workspace, last_sequence);

-- Leases of exec workers. They are no record: a row changes when its lease ends, which is final, and the oldest that ended are
-- forgotten. Verification does not look at them.
CREATE TABLE workers (
    id TEXT COLLATE "C" PRIMARY KEY,
    address TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    lease_ms BIGINT NOT NULL,
    -- As the service's contract has it: 1 live, 2 left, 3 lapsed.
    standing BIGINT NOT NULL,
    registered_ms BIGINT NOT NULL
);

CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% are append-only', TG_TABLE_NAME;
END
$$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events EXECUTE FUNCTION append_only();
CREATE TRIGGER incarnations_append_only BEFORE UPDATE OR DELETE ON incarnations
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER incarnations_no_truncate BEFORE TRUNCATE ON incarnations EXECUTE FUNCTION append_only();
CREATE TRIGGER workspaces_append_only BEFORE UPDATE OR DELETE ON workspaces
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER workspaces_no_truncate BEFORE TRUNCATE ON workspaces EXECUTE FUNCTION append_only();
CREATE TRIGGER receipts_append_only BEFORE DELETE ON receipts
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER receipts_no_truncate BEFORE TRUNCATE ON receipts EXECUTE FUNCTION append_only();
CREATE TRIGGER sessions_append_only BEFORE DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER sessions_no_truncate BEFORE TRUNCATE ON sessions EXECUTE FUNCTION append_only();
CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END
$$;
CREATE TRIGGER workers_end_is_final BEFORE UPDATE ON workers
    FOR EACH ROW WHEN (OLD.standing <> 1) EXECUTE FUNCTION stays();
CREATE TRIGGER leader_stays BEFORE DELETE ON leader
    FOR EACH ROW EXECUTE FUNCTION append_only();
