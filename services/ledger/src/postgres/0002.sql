-- Version 2: what a ledger has acknowledged and the database that took the place of another does not hold. A row is put down by
-- the ledger that notices, and no ledger writes while one is not accepted, whether or not it remembers anything itself.
CREATE TABLE lost (
    workspace TEXT COLLATE "C" NOT NULL,
    -- The newest incarnation, event and hash that were acknowledged; zero where there was none.
    incarnation BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    noticed_ms BIGINT NOT NULL,
    -- When the owner said to go on without it.
    accepted_ms BIGINT,
    PRIMARY KEY (workspace, incarnation, sequence, hash)
);
