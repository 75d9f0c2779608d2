-- Version 3. Leases of exec workers. They are no record: a row changes when its lease ends, which is final, and the oldest that
-- ended are forgotten. Verification does not look at them.

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    -- As the service's contract has it: 1 live, 2 left, 3 lapsed.
    standing INTEGER NOT NULL,
    registered_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER workers_end_is_final BEFORE UPDATE ON workers WHEN OLD.standing <> 1
BEGIN SELECT RAISE(IGNORE); END;
