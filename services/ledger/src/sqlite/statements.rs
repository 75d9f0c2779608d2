//! Every statement on the tables (the schema lies beside it).

use std::sync::{Arc, LazyLock};

use crate::{
    receipt::State,
    store::{Filter, MAX_ROWS},
};

/// Columns of an event in a batch.
pub(super) const EVENT_COLUMNS: usize = 9;
/// Columns of a new receipt in a batch.
pub(super) const RECEIPT_COLUMNS: usize = 8;
/// Columns of a changed receipt in a batch.
pub(super) const CHANGE_COLUMNS: usize = 4;
/// Columns of an active session in a batch.
pub(super) const SESSION_COLUMNS: usize = 5;

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
     (SELECT count(*) FROM receipts r WHERE r.state = 2 AND r.workspace = incarnations.workspace)";
/// What is sought in the number of a workspace.
const WORKSPACE: &str = "(SELECT number FROM workspaces WHERE id = ?1)";
/// One page of receipts, and how large each is. ?1 is the workspace's id, ?2 the session, ?3 the tool, ?4 and ?5 bound the ids
/// from above and below, ?6 is how many. Of each state the newest are one look into an index (0002.sql), and the newest of
/// those are the page.
pub(super) fn list(filter: &Filter) -> String {
    let all = State::LISTED.as_slice();
    let states = filter.state.as_ref().map_or(all, std::slice::from_ref);
    let index = match (&filter.workspace, &filter.session, &filter.tool) {
        // Every workspace at once is nobody's page; the newest first is the table's own order.
        (None, ..) => "",
        (Some(_), Some(_), _) => " INDEXED BY receipts_session",
        (Some(_), None, Some(_)) => " INDEXED BY receipts_tool",
        (Some(_), None, None) => " INDEXED BY receipts_state",
    };
    let mut only = String::new();
    if filter.workspace.is_some() {
        only.push_str(&format!(" AND r.workspace = {WORKSPACE}"));
    }
    if filter.session.is_some() {
        only.push_str(" AND r.session = ?2");
    }
    if filter.tool.is_some() {
        only.push_str(" AND r.tool = ?3");
    }
    let of_state = |state: &State| {
        format!(
            "SELECT id FROM (SELECT r.id FROM receipts r{index} WHERE r.state = {}{only} \
             AND r.id < ?4 AND r.id >= ?5 ORDER BY r.id DESC LIMIT ?6)",
            *state as i64
        )
    };
    let newest: Vec<_> = states.iter().map(of_state).collect();
    format!(
        "SELECT p.id, (SELECT sum(length(e.body) + coalesce(length(e.plan), 0) + coalesce(length(e.proposal), 0) + \
         coalesce(length(e.answer), 0)) FROM events e WHERE e.receipt = p.id) \
         FROM (SELECT id FROM ({}) ORDER BY id DESC LIMIT ?6) p ORDER BY p.id DESC",
        newest.join(" UNION ALL ")
    )
}

/// One page of a workspace's sessions, a row for each state of its receipts. ?2 is the newest event that may be told, ?3 how
/// many, ?4 the changing tools as JSON.
pub(super) const SESSIONS: &str = "SELECT p.session, p.first_ms, p.last_ms, p.last_sequence, r.state, count(r.id), \
     sum(r.state = 3 AND r.ok AND r.tool IN (SELECT value FROM json_each(?4))) \
     FROM (SELECT * FROM sessions WHERE workspace = (SELECT number FROM workspaces WHERE id = ?1) AND last_sequence < ?2 \
     ORDER BY last_sequence DESC LIMIT ?3) p \
     CROSS JOIN receipts r INDEXED BY receipts_session ON r.workspace = p.workspace AND r.session = p.session \
     GROUP BY p.last_sequence, r.state ORDER BY p.last_sequence DESC, r.state";
/// Keys of the receipts after one, a line each, and the last of these receipts.
pub(super) const SELECT_KEYS: &str = "SELECT group_concat(line, char(10)), max(id) FROM (\
     SELECT w.id || ' ' || r.session || ' ' || r.call AS line, r.id FROM receipts r \
     CROSS JOIN workspaces w ON w.number = r.workspace WHERE r.id > ? ORDER BY r.id LIMIT ?)";
/// Hash of one event.
pub(super) const SELECT_HASH: &str = "SELECT hash FROM events \
     WHERE workspace = (SELECT number FROM workspaces WHERE id = ?1) AND sequence = ?2";
/// Every event, chain by chain.
pub(super) const SELECT_CHAIN: &str = "SELECT e.position, w.id, e.sequence, e.receipt, e.hash, CAST(e.body AS BLOB), e.plan, e.proposal, \
     e.result, e.answer FROM workspaces w CROSS JOIN events e ON e.workspace = w.number \
     WHERE (?1 IS NULL OR w.id = ?1) ORDER BY e.workspace, e.sequence";
macro_rules! misindexed {
    ($also:literal) => {
        concat!(
            "SELECT e.receipt FROM events e \
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
             WHEN 'refused' THEN 4 WHEN 'uncertain' THEN 5 WHEN 'abandoned' THEN 6 END",
            $also,
            ") LIMIT 1"
        )
    };
}
/// Events without an entry, and entries that say something else than their events.
pub(super) const SELECT_MISINDEXED: &str =
    misindexed!(" OR r.ok IS NOT (l.body ->> 'outcome' IS 'ok')");
/// The same in a file of version 1.
pub(super) const SELECT_MISINDEXED_1: &str = misindexed!("");
/// Sessions of which something else is told than their events say.
pub(super) const SELECT_MISTOLD_SESSION: &str = "SELECT coalesce(s.session, x.session) FROM (\
     SELECT r.workspace, r.session, min(e.sequence) AS first, max(e.sequence) AS last \
     FROM receipts r CROSS JOIN events e ON e.receipt = r.id GROUP BY r.workspace, r.session) x \
     FULL JOIN sessions s ON s.workspace = x.workspace AND s.session = x.session \
     LEFT JOIN events f ON f.workspace = x.workspace AND f.sequence = x.first \
     LEFT JOIN events l ON l.workspace = x.workspace AND l.sequence = x.last \
     WHERE (?1 IS NULL OR coalesce(s.workspace, x.workspace) = (SELECT number FROM workspaces WHERE id = ?1)) \
     AND (s.last_sequence IS NOT x.last OR s.first_ms IS NOT f.body ->> 'atMs' OR s.last_ms IS NOT l.body ->> 'atMs') LIMIT 1";

/// The transaction of a batch, for 1, 2, 4 … [`MAX_ROWS`] events, as many new receipts, changed ones and active sessions: unused rows
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
                 UPDATE receipts SET keyed = changed.column2, state = changed.column3, ok = changed.column4 \
                 FROM (VALUES {}) AS changed WHERE receipts.id = changed.column1; \
                 INSERT INTO receipts (id, workspace, session, call, tool, keyed, state, ok) \
                 SELECT * FROM (VALUES {}) WHERE column1 IS NOT NULL; \
                 INSERT INTO sessions (workspace, session, first_ms, last_sequence, last_ms) \
                 SELECT * FROM (VALUES {}) WHERE column1 IS NOT NULL ON CONFLICT (workspace, session) \
                 DO UPDATE SET last_sequence = excluded.last_sequence, last_ms = excluded.last_ms; \
                 COMMIT",
                rows(EVENT_COLUMNS),
                rows(CHANGE_COLUMNS),
                rows(RECEIPT_COLUMNS),
                rows(SESSION_COLUMNS)
            )
            .into()
        })
        .collect()
});

#[cfg(test)]
mod plans;
