-- Version 2. A page of receipts by session, tool or state is one look into an index a state, in order, without meeting a
-- receipt of another state: a chain of a hundred thousand receipts is paged as fast as one of a hundred.

-- Whether a receipt ended well.
ALTER TABLE receipts ADD COLUMN ok INTEGER NOT NULL DEFAULT 0;
UPDATE receipts SET ok = 1
WHERE EXISTS (SELECT 1 FROM events e WHERE e.receipt = receipts.id AND e.body ->> 'outcome' = 'ok');

CREATE INDEX receipts_session ON receipts (workspace, session, state, id, tool, ok);
CREATE INDEX receipts_tool ON receipts (workspace, tool, state, id);
CREATE INDEX receipts_state ON receipts (workspace, state, id);
-- The last one finds the open receipts as well.
DROP INDEX receipts_open;

-- Another index over the events, written in the same transaction: when each session began and what its newest event is.
CREATE TABLE sessions (
    workspace INTEGER NOT NULL,
    session TEXT NOT NULL,
    first_ms INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_activity ON sessions (workspace, last_sequence);

INSERT INTO sessions (workspace, session, first_ms, last_sequence, last_ms)
SELECT s.workspace, s.session, f.body ->> 'atMs', s.last, l.body ->> 'atMs'
FROM (
    SELECT r.workspace, r.session, min(e.sequence) AS first, max(e.sequence) AS last
    FROM receipts r CROSS JOIN events e ON e.receipt = r.id GROUP BY r.workspace, r.session
) s
CROSS JOIN events f ON f.workspace = s.workspace AND f.sequence = s.first
CROSS JOIN events l ON l.workspace = s.workspace AND l.sequence = s.last;

CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions
BEGIN SELECT RAISE(ABORT, 'sessions are append-only'); END;
