//! Every statement on the tables (the schema lies beside it), but for pages, whose text depends on what is filtered (`pages`).

/// What every writing statement stands on: a row while the epoch is still $1 and nothing is missed. It is held until the
/// statement is committed.
macro_rules! fence {
    () => {
        "fence AS MATERIALIZED ( \
             SELECT 1 FROM leader WHERE epoch = $1 AND NOT EXISTS (SELECT FROM lost WHERE accepted_ms IS NULL) FOR SHARE \
         )"
    };
}
pub(super) use fence;

macro_rules! receipt_columns {
    ($from:literal) => {
        concat!(
            "SELECT e.receipt, e.hash, e.body, e.plan, e.proposal, e.result, e.answer ",
            $from
        )
    };
}

/// Whether the server follows another one, or was told to take no writes.
pub(super) const IS_READ_ONLY: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::BOOLEAN";
/// Keeps every other ledger out for as long as the connection is there. The first number is the schema's, the second says what
/// is locked.
pub(super) const TRY_LOCK: &str = "SELECT pg_try_advisory_lock($1, 1)";
/// Raises the epoch: waits for what an earlier ledger is committing, and keeps out what it sends later. No row while the
/// tables hold an unfinished copy.
pub(super) const TAKE_OVER: &str =
    "UPDATE leader SET epoch = epoch + 1 WHERE epoch >= 0 RETURNING epoch";
/// The epoch.
pub(super) const SELECT_EPOCH: &str = "SELECT epoch FROM leader";
/// Whether the epoch still is $1 and nothing is missed.
pub(super) const LEADS: &str = "SELECT EXISTS (SELECT FROM leader WHERE epoch = $1) \
     AND NOT EXISTS (SELECT FROM lost WHERE accepted_ms IS NULL)";
/// About how many events there are.
pub(super) const COUNT: &str = "SELECT coalesce(max(position), 0) FROM events";

/// Workspaces by id, with their newest incarnation and event.
pub(super) const SELECT_HEADS: &str = "SELECT w.id, w.number, \
     (SELECT max(incarnation) FROM incarnations i WHERE i.workspace = w.number), e.sequence, e.hash \
     FROM workspaces w LEFT JOIN LATERAL (SELECT sequence, hash FROM events l WHERE l.workspace = w.number \
     ORDER BY sequence DESC LIMIT 1) e ON true WHERE w.id = ANY($1)";
/// Events of the receipts that hold the given keys.
pub(super) const SELECT_BY_KEYS: &str = receipt_columns!(
    "FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[]) WITH ORDINALITY j (workspace, session, call, n) \
     JOIN workspaces w ON w.id = j.workspace \
     JOIN receipts r ON r.workspace = w.number AND r.session = j.session AND r.call = j.call AND r.keyed \
     JOIN events e ON e.receipt = r.id ORDER BY j.n, e.position"
);
/// Events of the given receipts.
pub(super) const SELECT_BY_IDS: &str = receipt_columns!(
    "FROM unnest($1::BYTEA[]) WITH ORDINALITY j (id, n) JOIN events e ON e.receipt = j.id ORDER BY j.n, e.position"
);
/// The same without results.
pub(super) const SELECT_PAGE: &str = "SELECT e.receipt, e.hash, e.body, e.plan, e.proposal, NULL::BYTEA, e.answer \
     FROM unnest($1::BYTEA[]) WITH ORDINALITY j (id, n) JOIN events e ON e.receipt = j.id ORDER BY j.n, e.position";
/// Takes the next incarnation, of a workspace that is made known if it is not, and counts what earlier ones left executing.
/// No row when this ledger leads no more.
pub(super) const INSERT_INCARNATION: &str = concat!(
    "WITH ",
    fence!(),
    ", made AS ( \
         INSERT INTO workspaces (id) SELECT $2 WHERE EXISTS (SELECT FROM fence) ON CONFLICT DO NOTHING RETURNING number \
     ), workspace AS MATERIALIZED ( \
         SELECT number FROM made UNION ALL SELECT number FROM workspaces WHERE id = $2 AND EXISTS (SELECT FROM fence) \
     ) \
     INSERT INTO incarnations (workspace, incarnation, at_ms) \
     SELECT w.number, coalesce((SELECT max(incarnation) FROM incarnations i WHERE i.workspace = w.number), 0) + 1, $3 \
     FROM workspace w RETURNING incarnation, \
     (SELECT count(*) FROM receipts r WHERE r.state = 2 AND r.workspace = incarnations.workspace)"
);
/// Keys of the receipts after one, and the ids of these receipts, in order.
pub(super) const SELECT_KEYS: &str = "SELECT w.id, r.session, r.call, r.id FROM receipts r \
     JOIN workspaces w ON w.number = r.workspace WHERE r.id > $1 ORDER BY r.id LIMIT $2";
/// Hash of one event.
pub(super) const SELECT_HASH: &str = "SELECT e.hash FROM events e JOIN workspaces w ON w.number = e.workspace \
     WHERE w.id = $1 AND e.sequence = $2";
/// Hash of one event, by the workspace's number.
pub(super) const SELECT_HASH_IN: &str =
    "SELECT hash FROM events WHERE workspace = $1 AND sequence = $2";
/// The chains, or the one of a workspace.
pub(super) const SELECT_CHAINS: &str =
    "SELECT number, id FROM workspaces WHERE $1::TEXT IS NULL OR id = $1 ORDER BY number";
/// The next events of a chain.
pub(super) const SELECT_CHAIN: &str = "SELECT position, sequence, receipt, hash, body, plan, proposal, result, answer \
     FROM events WHERE workspace = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
/// An event among some after a place whose receipt has no entry, and the last place that was looked at.
pub(super) const SELECT_UNLISTED: &str = "SELECT max(e.position), \
     (array_agg(e.receipt) FILTER (WHERE NOT EXISTS \
     (SELECT FROM receipts r WHERE r.id = e.receipt AND r.workspace = e.workspace)))[1] \
     FROM (SELECT position, receipt, workspace FROM events WHERE position > $1 ORDER BY position LIMIT $2) e";
/// Entries of receipts after one.
pub(super) const SELECT_ENTRIES: &str = "SELECT r.id, w.id, r.session, r.call, r.tool, r.keyed, r.state, r.ok, \
     EXISTS (SELECT FROM sessions s WHERE s.workspace = r.workspace AND s.session = r.session) \
     FROM receipts r JOIN workspaces w ON w.number = r.workspace \
     WHERE r.id > $1 AND ($2::TEXT IS NULL OR w.id = $2) ORDER BY r.id LIMIT $3";
/// What is told of sessions after one, and the bodies of their first and newest events.
pub(super) const SELECT_TOLD_SESSIONS: &str = "SELECT s.workspace, s.session, s.first_ms, s.last_sequence, s.last_ms, \
     x.last, f.body, l.body \
     FROM (SELECT s.* FROM sessions s JOIN workspaces w ON w.number = s.workspace \
         WHERE (s.workspace, s.session) > ($1, $2) AND ($3::TEXT IS NULL OR w.id = $3) \
         ORDER BY s.workspace, s.session LIMIT $4) s \
     LEFT JOIN LATERAL (SELECT min(e.sequence) AS first, max(e.sequence) AS last FROM receipts r \
         JOIN events e ON e.receipt = r.id WHERE r.workspace = s.workspace AND r.session = s.session) x ON true \
     LEFT JOIN events f ON f.workspace = s.workspace AND f.sequence = x.first \
     LEFT JOIN events l ON l.workspace = s.workspace AND l.sequence = x.last \
     ORDER BY s.workspace, s.session";
/// One page of a workspace's sessions, a row for each state of its receipts. $2 is the newest event that may be told, $3 how
/// many, $4 the changing tools.
pub(super) const SESSIONS: &str = "SELECT p.session, p.first_ms, p.last_ms, p.last_sequence, r.state::BIGINT, count(*), \
     count(*) FILTER (WHERE r.state = 3 AND r.ok AND r.tool = ANY($4)) \
     FROM (SELECT * FROM sessions WHERE workspace = (SELECT number FROM workspaces WHERE id = $1) AND last_sequence < $2 \
     ORDER BY last_sequence DESC LIMIT $3) p \
     JOIN receipts r ON r.workspace = p.workspace AND r.session = p.session \
     GROUP BY p.session, p.first_ms, p.last_ms, p.last_sequence, r.state ORDER BY p.last_sequence DESC, r.state";

/// A batch in one statement, which is a transaction of its own. Told is whether this ledger still leads, and whether the events
/// follow the newest ones of their chains ($2 to $4); unless both hold, nothing is written. A receipt gives its key up before
/// another takes it: the new ones are counted on the changed ones.
pub(super) const APPEND: &str = concat!(
    "WITH ",
    fence!(),
    ", facts AS MATERIALIZED ( \
         SELECT EXISTS (SELECT FROM fence) AS leads, NOT EXISTS ( \
             SELECT FROM unnest($2::BIGINT[], $3::BIGINT[], $4::BYTEA[]) a (workspace, sequence, hash) \
             WHERE EXISTS (SELECT FROM events e WHERE e.workspace = a.workspace AND e.sequence > a.sequence) \
             OR (a.sequence > 0 AND NOT EXISTS (SELECT FROM events e \
                 WHERE e.workspace = a.workspace AND e.sequence = a.sequence AND e.hash = a.hash)) \
         ) AS follows \
     ), may AS MATERIALIZED ( \
         SELECT leads AND follows AS write FROM facts \
     ), appended AS ( \
         INSERT INTO events (workspace, sequence, receipt, hash, body, plan, proposal, result, answer) \
         SELECT r.workspace, r.sequence, r.receipt, r.hash, r.body, r.plan, r.proposal, r.result, r.answer \
         FROM unnest($5::BIGINT[], $6::BIGINT[], $7::BYTEA[], $8::BYTEA[], $9::TEXT[], \
             $10::BYTEA[], $11::BYTEA[], $12::BYTEA[], $13::BYTEA[]) \
             WITH ORDINALITY r (workspace, sequence, receipt, hash, body, plan, proposal, result, answer, n) \
         WHERE (SELECT write FROM may) ORDER BY r.n \
     ), changed AS ( \
         UPDATE receipts SET keyed = c.keyed, state = c.state, ok = c.ok \
         FROM unnest($14::BYTEA[], $15::BOOLEAN[], $16::SMALLINT[], $17::BOOLEAN[]) c (id, keyed, state, ok) \
         WHERE receipts.id = c.id AND (SELECT write FROM may) RETURNING 1 \
     ), begun AS ( \
         INSERT INTO receipts (id, workspace, session, call, tool, keyed, state, ok) \
         SELECT * FROM unnest($18::BYTEA[], $19::BIGINT[], $20::TEXT[], $21::TEXT[], $22::BYTEA[], \
             $23::BOOLEAN[], $24::SMALLINT[], $25::BOOLEAN[]) \
         WHERE (SELECT write FROM may) AND (SELECT count(*) FROM changed) >= 0 \
     ), active AS ( \
         INSERT INTO sessions (workspace, session, first_ms, last_sequence, last_ms) \
         SELECT * FROM unnest($26::BIGINT[], $27::TEXT[], $28::BIGINT[], $29::BIGINT[], $30::BIGINT[]) \
         WHERE (SELECT write FROM may) ON CONFLICT (workspace, session) \
         DO UPDATE SET last_sequence = excluded.last_sequence, last_ms = excluded.last_ms \
     ) SELECT leads, follows FROM facts"
);
