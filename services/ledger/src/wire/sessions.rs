//! Pages of sessions.

use postern_proto::ledger::v1 as proto;

use super::{id, name, page_limit, state};
use crate::{
    Error,
    store::{Session, SessionFilter, SessionPage},
};

/// Tools that a request may name.
const TOOLS: usize = 100;

pub(crate) fn session_filter(request: proto::SessionsRequest) -> Result<SessionFilter, Error> {
    let before = match request.after.as_str() {
        "" => None,
        cursor => Some(cursor.parse().map_err(|_| Error::Invalid {
            field: "after",
            rule: "is the `next` of a page",
        })?),
    };
    if request.changing_tools.len() > TOOLS {
        return Err(Error::Invalid {
            field: "changing_tools",
            rule: "are at most 100",
        });
    }
    let tools = request.changing_tools.into_iter();
    Ok(SessionFilter {
        workspace: id("workspace_id", &request.workspace_id)?,
        before,
        limit: page_limit(request.limit),
        changing_tools: tools
            .map(|tool| name("changing_tools", tool))
            .collect::<Result<_, _>>()?,
    })
}

pub(crate) fn session_page(page: SessionPage) -> proto::SessionsResponse {
    proto::SessionsResponse {
        sessions: page.sessions.into_iter().map(session).collect(),
        next: page.next.map(|it| it.to_string()).unwrap_or_default(),
    }
}

fn session(session: Session) -> proto::Session {
    let states = session.states.iter();
    proto::Session {
        session_id: session.id.as_str().to_owned(),
        first_at_ms: session.first_ms,
        last_at_ms: session.last_ms,
        receipts: session.states.iter().map(|(_, count)| count).sum(),
        changes: session.changes,
        states: states
            .map(|(of, count)| proto::StateCount {
                state: state(*of).into(),
                count: *count,
            })
            .collect(),
    }
}
