//! Every statement on the tables (the schema lies beside it).

use std::sync::{Arc, LazyLock};

/// Most rows of one batch.
pub(crate) const MAX_ROWS: usize = 256;
/// Columns of an event in a batch.
pub(super) const EVENT_COLUMNS: usize = 9;
/// Columns of a new receipt in a batch.
pub(super) const RECEIPT_COLUMNS: usize = 7;
/// Columns of a changed receipt in a batch.
pub(super) const CHANGE_COLUMNS: usize = 3;

macro_rules! receipt_columns {
    ($from:literal) => {
        concat!(
            "SELECT e.receipt, e.hash, e.body, e.plan, e.proposal, e.result, e.answer ",
            $from
        )
    };
}

/// Workspaces by id, with their newest incarnation and event.
pub(super) const SELECT_HEADS: &str = "SELECT w.id, w.number, \
     (SELECT max(incarnation) FROM incarnations i WHERE i.workspace = w.number), e.sequence, e.hash \
     FROM json_each(?) j CROSS JOIN workspaces w ON w.id = j.value \
     LEFT JOIN events e ON e.workspace = w.number \
     AND e.sequence = (SELECT max(sequence) FROM events l WHERE l.workspace = w.number)";
/// Events of the receipts that hold the given keys.
pub(super) const SELECT_BY_KEYS: &str = receipt_columns!(
    "FROM json_each(?) j CROSS JOIN workspaces w ON w.id = j.value ->> 0 \
     CROSS JOIN receipts r ON r.workspace = w.number AND r.session = j.value ->> 1 AND r.call = j.value ->> 2 \
     AND r.keyed = 1 CROSS JOIN events e ON e.receipt = r.id ORDER BY j.key, e.position"
);
/// Events of the given receipts.
pub(super) const SELECT_BY_IDS: &str = receipt_columns!(
    "FROM json_each(?) j CROSS JOIN events e ON e.receipt = unhex(j.value) ORDER BY j.key, e.position"
);
/// The same without results.
pub(super) const SELECT_PAGE: &str = "SELECT e.receipt, e.hash, e.body, e.plan, e.proposal, NULL, e.answer \
     FROM json_each(?) j CROSS JOIN events e ON e.receipt = unhex(j.value) ORDER BY j.key, e.position";
/// Makes a workspace known.
pub(super) const INSERT_WORKSPACE: &str =
    "INSERT INTO workspaces (id) VALUES (?) ON CONFLICT DO NOTHING";
/// Takes the next incarnation and counts what earlier ones left executing.
pub(super) const INSERT_INCARNATION: &str = "INSERT INTO incarnations (workspace, incarnation, at_ms) \
     SELECT w.number, coalesce((SELECT max(incarnation) FROM incarnations i WHERE i.workspace = w.number), 0) + 1, ? \
     FROM workspaces w WHERE w.id = ? RETURNING incarnation, \
     (SELECT count(*) FROM receipts r WHERE r.state IN (1, 2) AND r.state = 2 AND r.workspace = incarnations.workspace)";
macro_rules! list {
    ($also:literal) => {
        concat!(
            "SELECT r.id, (SELECT sum(length(e.body) + coalesce(length(e.plan), 0) + \
             coalesce(length(e.proposal), 0) + coalesce(length(e.answer), 0)) FROM events e WHERE e.receipt = r.id) \
             FROM receipts r WHERE (?1 IS NULL OR r.workspace = (SELECT number FROM workspaces WHERE id = ?1)) \
             AND (?2 IS NULL OR r.session = ?2) AND (?3 IS NULL OR r.tool = ?3) \
             AND (?4 IS NULL OR r.state = ?4) AND (?5 IS NULL OR r.id < ?5) AND ",
            $also,
            " ORDER BY r.id DESC LIMIT ?6"
        )
    };
}
/// One page of any receipts, and how large each is.
pub(super) const LIST: &str = list!("r.state <> 6");
/// The few open ones have an index of their own.
pub(super) const LIST_OPEN: &str = list!("r.state IN (1, 2) AND r.state = ?4");
/// Keys of the receipts after one, a line each, and the last of these receipts.
pub(super) const SELECT_KEYS: &str = "SELECT group_concat(line, char(10)), max(id) FROM (\
     SELECT w.id || ' ' || r.session || ' ' || r.call AS line, r.id FROM receipts r \
     CROSS JOIN workspaces w ON w.number = r.workspace WHERE r.id > ? ORDER BY r.id LIMIT ?)";
/// Every event, chain by chain.
pub(super) const SELECT_CHAIN: &str = "SELECT e.position, w.id, e.sequence, e.receipt, e.hash, e.body, e.plan, e.proposal, \
     e.result, e.answer FROM workspaces w CROSS JOIN events e ON e.workspace = w.number \
     WHERE (?1 IS NULL OR w.id = ?1) ORDER BY e.workspace, e.sequence";
/// Events without an entry, and entries that say something else than their events.
pub(super) const SELECT_MISINDEXED: &str = "SELECT e.receipt FROM events e \
     WHERE (?1 IS NULL OR e.workspace = (SELECT number FROM workspaces WHERE id = ?1)) \
     AND NOT EXISTS (SELECT 1 FROM receipts r WHERE r.id = e.receipt AND r.workspace = e.workspace) \
     UNION ALL SELECT r.id FROM receipts r LEFT JOIN events f ON f.receipt = r.id \
     AND f.body ->> 'sessionId' IS NOT NULL \
     LEFT JOIN events l ON l.position = (SELECT max(e.position) FROM events e WHERE e.receipt = r.id \
     AND e.body ->> 'kind' NOT IN ('decided', 'adopted')) \
     WHERE (?1 IS NULL OR r.workspace = (SELECT number FROM workspaces WHERE id = ?1)) \
     AND (r.session IS NOT f.body ->> 'sessionId' OR r.call IS NOT f.body ->> 'callId' OR r.tool IS NOT f.body ->> 'tool' \
     OR r.keyed IS NOT (f.body ->> 'unkeyed' IS NULL AND l.body ->> 'kind' <> 'abandoned') \
     OR r.state IS NOT CASE l.body ->> 'kind' WHEN 'awaiting' THEN 1 WHEN 'executing' THEN 2 WHEN 'completed' THEN 3 \
     WHEN 'refused' THEN 4 WHEN 'uncertain' THEN 5 WHEN 'abandoned' THEN 6 END) LIMIT 1";

/// The transaction of a batch, for 1, 2, 4 … [`MAX_ROWS`] events, as many new receipts and as many changed ones: unused rows
/// stay NULL and touch nothing, so that a handful of prepared statements serves every batch in one trip. Triggers on
/// INSERT would be shorter, but cost each row a detour through a temporary table.
pub(super) static APPENDS: LazyLock<Vec<Arc<str>>> = LazyLock::new(|| {
    (0..=MAX_ROWS.ilog2())
        .map(|power| {
            let rows = |columns: usize| {
                let row = format!("({})", vec!["?"; columns].join(","));
                vec![row; 1 << power].join(",")
            };
            format!(
                "BEGIN IMMEDIATE; \
                 INSERT INTO events (workspace, sequence, receipt, hash, body, plan, proposal, result, answer) \
                 SELECT * FROM (VALUES {}) WHERE column1 IS NOT NULL; \
                 UPDATE receipts SET keyed = changed.column2, state = changed.column3 \
                 FROM (VALUES {}) AS changed WHERE receipts.id = changed.column1; \
                 INSERT INTO receipts (id, workspace, session, call, tool, keyed, state) \
                 SELECT * FROM (VALUES {}) WHERE column1 IS NOT NULL; \
                 COMMIT",
                rows(EVENT_COLUMNS),
                rows(CHANGE_COLUMNS),
                rows(RECEIPT_COLUMNS)
            )
            .into()
        })
        .collect()
});
