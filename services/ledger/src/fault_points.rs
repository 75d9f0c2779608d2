//! Where the fault suite may end the ledger: around the commit of what matters most in a batch.

postern_kit::fault_points! {
    /// An incarnation is about to be taken.
    OPEN_BEFORE = "ledger.open.before";
    /// The incarnation is durable and not told.
    OPEN_AFTER = "ledger.open.after";
    /// An executing receipt is about to be committed.
    BEGIN_BEFORE = "ledger.begin.before";
    /// It is durable and not told.
    BEGIN_AFTER = "ledger.begin.after";
    /// A receipt that awaits the owner is about to be committed.
    AWAIT_BEFORE = "ledger.await.before";
    /// It is durable and not told.
    AWAIT_AFTER = "ledger.await.after";
    /// A decision, a start or an adoption is about to be committed.
    CHANGE_BEFORE = "ledger.change.before";
    /// It is durable and not told.
    CHANGE_AFTER = "ledger.change.after";
    /// A result is about to be committed.
    END_BEFORE = "ledger.end.before";
    /// It is durable and not told.
    END_AFTER = "ledger.end.after";
}

use crate::{
    receipt::State,
    store::{Entry, Row},
};

/// What matters most in a commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Commit {
    Begin,
    Await,
    End,
    Change,
}

impl Commit {
    pub(crate) fn of(rows: &[Row]) -> Self {
        let mut commit = Self::Change;
        for row in rows {
            commit = match &row.entry {
                Entry::New(_, standing) => match standing.state {
                    State::Executing => return Self::Begin,
                    State::Awaiting => return Self::Await,
                    State::Completed | State::Refused | State::Uncertain | State::Abandoned => {
                        continue;
                    }
                },
                Entry::Changed(standing) => match standing.state {
                    State::Executing | State::Awaiting => commit,
                    State::Completed | State::Refused | State::Uncertain | State::Abandoned => {
                        Self::End
                    }
                },
            };
        }
        commit
    }

    pub(crate) const fn before(self) -> &'static str {
        match self {
            Self::Begin => BEGIN_BEFORE,
            Self::Await => AWAIT_BEFORE,
            Self::End => END_BEFORE,
            Self::Change => CHANGE_BEFORE,
        }
    }

    pub(crate) const fn after(self) -> &'static str {
        match self {
            Self::Begin => BEGIN_AFTER,
            Self::Await => AWAIT_AFTER,
            Self::End => END_AFTER,
            Self::Change => CHANGE_AFTER,
        }
    }
}
