//! Why the ledger could not be opened, or did not do what it was asked.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use postern_kit::{Effect, Failure};
use postern_types::ErrorCode;
use tonic::{Code, Status};

/// The newest of a chain that was acknowledged and is not on record any more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lost {
    /// Workspace of the chain.
    pub workspace_id: String,
    /// Newest incarnation.
    pub incarnation: u64,
    /// Newest event; 0 when there was none.
    pub sequence: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workspace_id,
            incarnation,
            sequence,
        } = self;
        write!(
            formatter,
            "event {sequence} or incarnation {incarnation} of workspace {workspace_id}"
        )
    }
}

/// What two exec workers do not share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Apart {
    /// The spool.
    Spool,
    /// The project's directory.
    Project,
}

impl fmt::Display for Apart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Spool => "this exec worker has another spool (--spool)",
            Self::Project => "this exec worker has another project (--project)",
        })
    }
}

/// Everything that can go wrong in a ledger. Cheap to clone, since one failed batch answers many callers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another ledger has the database open.
    #[error("another ledger uses this database; stop it, or give this one another data directory")]
    InUse,
    /// A newer program wrote the database.
    #[error(
        "the ledger's database has version {found} and this program knows versions up to {known}; use a newer program"
    )]
    NewerVersion {
        /// Version in the file.
        found: i64,
        /// Newest version that this program knows.
        known: i64,
    },
    /// The file is a database of something else.
    #[error("the file is a database, but not of a ledger")]
    Foreign,
    /// The file or its directory cannot be used.
    #[error("the ledger's file cannot be used: {0}")]
    File(#[source] Arc<io::Error>),
    /// The database cannot be opened.
    #[error(
        "the ledger's database {} cannot be read: {source}; if it is damaged, put a copy of it back, or move it away with \
         its -wal and -shm files to begin with an empty one",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<sqlx::Error>,
    },
    /// The database failed.
    #[error("the ledger's database failed: {0}")]
    Database(#[source] Arc<sqlx::Error>),
    /// The database is away, or cannot be used as it is; nothing was asked of it.
    #[error("the ledger's database cannot be used now: {0}")]
    Away(#[source] Arc<postern_database::Error>),
    /// The database went away while it was to commit, and it cannot be found out now whether it has.
    #[error(
        "the ledger's database went away during a commit, and does not tell whether that happened"
    )]
    Unconfirmed,
    /// The database went away before it committed.
    #[error("the ledger's database went away before a commit; nothing was recorded")]
    NotCommitted,
    /// Another ledger writes to the same database.
    #[error("another ledger has this database; this one stands by until that one is gone")]
    Standby,
    /// Another ledger, or somebody, has written to the database since this one began to.
    #[error("another ledger has written to this database since; nothing was recorded")]
    Superseded,
    /// The server that answers takes no writes.
    #[error(
        "the ledger's database takes no writes, as a replica of another server or because it was told so; it is used once it is \
         promoted, or `default_transaction_read_only` is off again"
    )]
    Replica,
    /// The database lacks what a ledger has acknowledged: another server, or an older state, was put in its place.
    #[error(
        "the ledger's database went back: it lacks {0}, which was acknowledged, so another server or an older state of it must have \
         been put in its place. Nothing is written to it. Put the one back that has it; or, when that is lost for good, run \
         `postern ledger accept-loss --database URL`, and have done again or look after what those receipts stood for"
    )]
    WentBack(Lost),
    /// A copy may go into an empty database only, or go on where it stopped.
    #[error("the database that is copied to holds receipts of its own; name an empty one")]
    NotEmpty,
    /// There is no ledger to copy from or to look at.
    #[error("there is no ledger in this database")]
    Missing,
    /// A copy of receipts does not hold, or what is copied does not.
    #[error("{place} does not hold: {problem}")]
    Unsound {
        /// Which of the two.
        place: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A copy into the database was begun and did not end.
    #[error(
        "the database holds a copy that was not finished; run `postern ledger copy` again to finish it"
    )]
    UnfinishedCopy,
    /// There is no room on the disk.
    #[error("the disk is full")]
    DiskFull,
    /// What the database holds cannot be read as receipts.
    #[error("the ledger's database holds something that is no receipt event: {0}")]
    Corrupt(String),
    /// A field of a request is not valid.
    #[error("{field}: {rule}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What it has to be.
        rule: &'static str,
    },
    /// There is no such receipt.
    #[error("there is no such receipt")]
    NotFound,
    /// The caller's incarnation is not the workspace's newest.
    #[error(
        "a newer instance has taken this workspace over, or this one was never opened; it may not act for it any more"
    )]
    Fenced,
    /// The receipt's state does not allow the step.
    #[error("the receipt's state does not allow this: {0}")]
    WrongState(&'static str),
    /// More requests wait than may.
    #[error("too many requests wait for the ledger; try again")]
    QueueFull,
    /// A watcher was too slow and missed changes.
    #[error("changes came faster than they were read; watch again and read the list afresh")]
    Lagged,
    /// The exec workers on disk were not read yet.
    #[error("the ledger does not know its exec workers yet; try again")]
    WorkersUnread,
    /// An exec worker of another project, or with another spool, is registered.
    #[error(
        "{apart} than the exec worker at {address} of the same ledger has; all workers of a ledger share one project and one spool. \
         Start this one over theirs, or with a ledger of its own, or end theirs first"
    )]
    OtherGround {
        /// What they do not share.
        apart: Apart,
        /// Where the other one is.
        address: String,
    },
    /// As many exec workers are registered as may.
    #[error(
        "{0} exec workers are registered with this ledger, which is the most; end one of them first"
    )]
    TooManyWorkers(usize),
    /// The ledger is shutting down.
    #[error("the ledger is shutting down")]
    Closed,
}

impl Error {
    /// The error of opening that file.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Database(source) = self else {
            return self;
        };
        let path = path.to_owned();
        Self::Unreadable { path, source }
    }

    /// Code of the public contract.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } | Self::OtherGround { .. } => ErrorCode::InvalidArguments,
            Self::NotFound => ErrorCode::NotFound,
            Self::DiskFull => ErrorCode::DiskFull,
            Self::InUse
            | Self::File(_)
            | Self::Unreadable { .. }
            | Self::Database(_)
            | Self::Away(_)
            | Self::Unconfirmed
            | Self::NotCommitted
            | Self::Standby
            | Self::Superseded
            | Self::Replica
            | Self::WentBack(_)
            | Self::UnfinishedCopy
            | Self::QueueFull
            | Self::Lagged
            | Self::WorkersUnread
            | Self::TooManyWorkers(_)
            | Self::Closed => ErrorCode::Unavailable,
            Self::NewerVersion { .. }
            | Self::Foreign
            | Self::Corrupt(_)
            | Self::NotEmpty
            | Self::Missing
            | Self::Unsound { .. }
            | Self::Fenced
            | Self::WrongState(_) => ErrorCode::Internal,
        }
    }

    /// Whether the refused step may be on record all the same.
    #[must_use]
    pub const fn effect(&self) -> Effect {
        match self {
            Self::Database(_) | Self::Unconfirmed => Effect::Unknown,
            Self::InUse
            | Self::Away(_)
            | Self::NotCommitted
            | Self::Standby
            | Self::Superseded
            | Self::Replica
            | Self::WentBack(_)
            | Self::UnfinishedCopy
            | Self::NotEmpty
            | Self::Missing
            | Self::Unsound { .. }
            | Self::NewerVersion { .. }
            | Self::Foreign
            | Self::File(_)
            | Self::Unreadable { .. }
            | Self::DiskFull
            | Self::Corrupt(_)
            | Self::Invalid { .. }
            | Self::OtherGround { .. }
            | Self::NotFound
            | Self::Fenced
            | Self::WrongState(_)
            | Self::QueueFull
            | Self::Lagged
            | Self::WorkersUnread
            | Self::TooManyWorkers(_)
            | Self::Closed => Effect::None,
        }
    }

    /// The word that callers tell refusals of one code apart by (`details.reason`, see the service's contract).
    const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Fenced => Some("fenced"),
            Self::WrongState(_) => Some("wrong-state"),
            Self::Lagged => Some("lagged"),
            Self::InUse
            | Self::NewerVersion { .. }
            | Self::Foreign
            | Self::File(_)
            | Self::Unreadable { .. }
            | Self::Database(_)
            | Self::Away(_)
            | Self::Unconfirmed
            | Self::NotCommitted
            | Self::Standby
            | Self::Superseded
            | Self::Replica
            | Self::WentBack(_)
            | Self::UnfinishedCopy
            | Self::NotEmpty
            | Self::Missing
            | Self::Unsound { .. }
            | Self::DiskFull
            | Self::Corrupt(_)
            | Self::Invalid { .. }
            | Self::OtherGround { .. }
            | Self::NotFound
            | Self::QueueFull
            | Self::WorkersUnread
            | Self::TooManyWorkers(_)
            | Self::Closed => None,
        }
    }

    /// What callers are told: the error's own words, but nothing of the database's or the system's.
    fn public_text(&self) -> String {
        match self {
            Self::Database(_)
            | Self::Away(_)
            | Self::Unconfirmed
            | Self::NotCommitted
            | Self::Superseded
            | Self::Unreadable { .. }
            | Self::File(_) => {
                "The ledger's database does not answer. Send the call again with the same id."
                    .to_owned()
            }
            Self::DiskFull => {
                "The ledger's disk is full. Make room and send the call again with the same id."
                    .to_owned()
            }
            Self::Corrupt(_) => {
                "The ledger holds something unreadable. `postern receipts verify` tells where."
                    .to_owned()
            }
            Self::InUse
            | Self::Standby
            | Self::Replica
            | Self::WentBack(_)
            | Self::UnfinishedCopy
            | Self::NotEmpty
            | Self::Missing
            | Self::Unsound { .. }
            | Self::NewerVersion { .. }
            | Self::Foreign
            | Self::Invalid { .. }
            | Self::OtherGround { .. }
            | Self::NotFound
            | Self::Fenced
            | Self::WrongState(_)
            | Self::QueueFull
            | Self::Lagged
            | Self::WorkersUnread
            | Self::TooManyWorkers(_)
            | Self::Closed => self.to_string(),
        }
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        if postern_database::is_full(&error) {
            Self::DiskFull
        } else {
            Self::Database(Arc::new(error))
        }
    }
}

impl From<postern_database::Error> for Error {
    fn from(error: postern_database::Error) -> Self {
        use postern_database::Error as Told;
        match error {
            Told::Store(source) => source.into(),
            Told::Foreign { .. } => Self::Foreign,
            Told::NewerSchema { found, known, .. } | Told::NewerTables { found, known } => {
                Self::NewerVersion { found, known }
            }
            Told::Open { source, .. } => source.into(),
            Told::Unreadable { path, source } => Self::Unreadable {
                path,
                source: Arc::new(source),
            },
            Told::Silent | Told::Encoding(_) => Self::Away(Arc::new(error)),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::File(Arc::new(error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut failure = Self::new(error.code(), error.public_text());
        failure.effect = error.effect();
        match error.reason() {
            Some(reason) => failure.with("reason", reason),
            None => failure,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let refused = matches!(error, Error::Fenced | Error::WrongState(_));
        let failure = Failure::from(error);
        if refused {
            failure.into_status(Code::FailedPrecondition)
        } else {
            failure.into()
        }
    }
}
