//! The statement of one page of receipts.

use sqlx::{Postgres, QueryBuilder};

use crate::{
    page::{end_of, lowest_of},
    receipt::State,
    store::Filter,
};

/// One page of receipts, and how large each is. Of each state the newest are one look into an index (0001.sql), and the newest
/// of those are the page. The same filters make the same text, which keeps its prepared statement.
pub(super) fn list(filter: &Filter) -> QueryBuilder<Postgres> {
    let all = State::LISTED.as_slice();
    let states = filter.state.as_ref().map_or(all, std::slice::from_ref);
    let limit = i64::from(filter.limit) + 1;
    let mut query = QueryBuilder::new(
        "SELECT p.id, (SELECT sum(octet_length(e.body) + coalesce(octet_length(e.plan), 0) + \
         coalesce(octet_length(e.proposal), 0) + coalesce(octet_length(e.answer), 0)) \
         FROM events e WHERE e.receipt = p.id)::BIGINT FROM (SELECT id FROM (",
    );
    for (index, state) in states.iter().enumerate() {
        if index > 0 {
            query.push(" UNION ALL ");
        }
        of_state(&mut query, filter, *state, limit);
    }
    query
        .push(") newest ORDER BY id DESC LIMIT ")
        .push_bind(limit)
        .push(") p ORDER BY p.id DESC");
    query
}

fn of_state(query: &mut QueryBuilder<Postgres>, filter: &Filter, state: State, limit: i64) {
    query.push("(SELECT r.id FROM receipts r WHERE r.state = ");
    query.push(state as i16);
    if let Some(workspace) = &filter.workspace {
        query
            .push(" AND r.workspace = (SELECT number FROM workspaces WHERE id = ")
            .push_bind(workspace.as_str().to_owned())
            .push(")");
    }
    if let Some(session) = &filter.session {
        query
            .push(" AND r.session = ")
            .push_bind(session.as_str().to_owned());
    }
    if let Some(tool) = &filter.tool {
        query
            .push(" AND r.tool = ")
            .push_bind(tool.as_bytes().to_vec());
    }
    query
        .push(" AND r.id < ")
        .push_bind(end_of(filter))
        .push(" AND r.id >= ")
        .push_bind(lowest_of(filter))
        .push(" ORDER BY r.id DESC LIMIT ")
        .push_bind(limit)
        .push(")");
}
