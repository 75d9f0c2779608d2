//! Walks over what a ledger holds, by its service or by nobody but the one who asks.

use std::{ops::ControlFlow, path::Path};

use postern_database::{Database, Pool};
use postern_types::Id;

use crate::{
    Error, Verification, postgres, sqlite,
    store::{Read, SCHEMA},
    verify::{Checkpoint, Link, Walker},
};

/// Verifies a database file, whether or not a ledger runs on it. Changes nothing.
///
/// # Errors
/// When the file cannot be read; not when it does not hold, which is what [`Verification::fault`] tells.
pub async fn verify_file(path: &Path) -> Result<Verification, Error> {
    verify_file_past(path, Vec::new()).await
}

/// Verifies a database file as [`verify_file`] does, and that every one of `checkpoints` is still in its chain.
///
/// # Errors
/// As [`verify_file`].
pub async fn verify_file_past(
    path: &Path,
    checkpoints: Vec<Checkpoint>,
) -> Result<Verification, Error> {
    walk_file(path, checkpoints, |_| ControlFlow::Continue(())).await
}

/// Verifies a database file as [`verify_file_past`] does, and shows `visit` each event once it was found to hold. A visitor
/// that breaks ends the walk; the events after it are not looked at.
///
/// # Errors
/// As [`verify_file`].
pub async fn walk_file(
    path: &Path,
    checkpoints: Vec<Checkpoint>,
    visit: impl FnMut(Link<'_>) -> ControlFlow<()> + Send,
) -> Result<Verification, Error> {
    let opened = sqlite::open_read_only(path).await;
    let reader = opened.map_err(|error| error.at(path))?;
    verify(&reader, None, checkpoints, visit).await
}

/// Verifies what is on a database, whether or not a ledger runs on it, and that every one of `checkpoints` is still in its chain.
/// Changes nothing.
///
/// # Errors
/// When there is no ledger, or the database cannot be read; not when it does not hold.
pub async fn verify_database(
    database: &Database,
    checkpoints: Vec<Checkpoint>,
) -> Result<Verification, Error> {
    if let Database::Sqlite(path) = database {
        return verify_file_past(path, checkpoints).await;
    }
    let pool = Pool::open(database, &SCHEMA).await?;
    let reader = postgres::Reader::new(pool.clone());
    reader.check().await?;
    let all = |_: Link<'_>| ControlFlow::Continue(());
    let found = verify(&reader, None, checkpoints, all).await;
    pool.close().await;
    found
}

/// Verifies everything that a reader reads.
pub(crate) async fn verify_all<R: Read>(reader: &R) -> Result<Verification, Error> {
    verify(reader, None, Vec::new(), |_| ControlFlow::Continue(())).await
}

pub(super) async fn verify<R: Read>(
    reader: &R,
    workspace: Option<&Id>,
    checkpoints: Vec<Checkpoint>,
    mut visit: impl FnMut(Link<'_>) -> ControlFlow<()> + Send,
) -> Result<Verification, Error> {
    let mut walker = Walker::past(checkpoints);
    let step = |link: Link<'_>| match walker.step(link) {
        ControlFlow::Continue(()) => visit(link),
        ControlFlow::Break(()) => ControlFlow::Break(()),
    };
    reader.walk(workspace, step).await?;
    if !walker.failed()
        && let Some(id) = reader.misindexed(workspace).await?
    {
        let problem = "its events do not lead to what the index says, some are missing";
        walker.fail(id.to_string(), problem.to_owned());
    }
    if !walker.failed()
        && let Some(session) = reader.mistold_session(workspace).await?
    {
        let problem = format!("what is told of session {session} is not what its events say");
        walker.fail(String::new(), problem);
    }
    Ok(walker.finish())
}
