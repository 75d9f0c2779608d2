//! SQLite: the file of one service, made for its owner alone, brought to the present schema, and refused when a newer program
//! wrote it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    Connection as _, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{Error, Schema};

/// How long a request waits for its turn at the store: within the hop's deadline of 10 s.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement waits for another process that holds the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(4);
/// Prepared statements kept: above the number of statements of a store.
const STATEMENTS: usize = 48;

/// Starts a transaction that takes the write lock at once: one that began by reading could find the lock taken later, and
/// SQLite then fails it without waiting.
pub(crate) const WRITE: &str = "BEGIN IMMEDIATE";

/// Opens the file, making it when it is missing. One connection: SQLite writes one at a time anyway, the work here is short,
/// and an idle service then keeps one page cache of 2 MiB at most.
pub(crate) async fn open(path: &Path, schema: &'static Schema) -> Result<SqlitePool, Error> {
    let owned = path.to_owned();
    tokio::task::spawn_blocking(move || make_private(&owned))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", "-2048")
        .statement_cache_capacity(STATEMENTS);
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_lazy_with(options);
    let migrated = async { migrate(&mut *pool.acquire().await?, path, schema).await };
    migrated.await.map_err(|error| error.at(path))?;
    Ok(pool)
}

/// Makes the file, readable by its owner alone from its first byte on, and its folder, when they are missing, and takes what
/// others may do with it away. SQLite gives its companions the same mode. Blocks.
///
/// # Errors
/// When the system does.
pub fn make_private(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent()
        && !directory.as_os_str().is_empty()
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The version of the schema that a file has: 0 when nothing is in it yet.
///
/// # Errors
/// [`Error::Foreign`] for the file of something else, [`Error::NewerSchema`] for one that a newer program wrote, and
/// [`Error::Store`] when it cannot be read.
pub async fn version(
    connection: &mut SqliteConnection,
    path: &Path,
    schema: &Schema,
) -> Result<i64, Error> {
    let (found, application, tables): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT user_version FROM pragma_user_version), \
         (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)",
    )
    .fetch_one(connection)
    .await?;
    if application == 0 && found == 0 && tables == 0 {
        return Ok(0);
    }
    if application != schema.application_id {
        return Err(Error::Foreign {
            path: PathBuf::from(path),
        });
    }
    let known = Schema::newest(schema.sqlite);
    if found > known {
        return Err(Error::NewerSchema {
            path: PathBuf::from(path),
            found,
            known,
        });
    }
    Ok(found)
}

/// Brings a file to the present schema, all of it or nothing.
///
/// # Errors
/// As [`version`].
pub async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
    schema: &Schema,
) -> Result<(), Error> {
    let mut transaction = connection.begin_with(WRITE).await?;
    let found = version(&mut transaction, path, schema).await?;
    let pending = Schema::pending(schema.sqlite, found).unwrap_or_default();
    if pending.is_empty() {
        return Ok(());
    }
    for script in pending {
        sqlx::raw_sql(*script).execute(&mut *transaction).await?;
    }
    let stamp = format!(
        "PRAGMA application_id = {}; PRAGMA user_version = {}",
        schema.application_id,
        Schema::newest(schema.sqlite)
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(stamp))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    static OLD: Schema = Schema {
        name: "one",
        application_id: 77,
        postgres: &[],
        sqlite: &["CREATE TABLE one (a TEXT) STRICT"],
    };
    static NEW: Schema = Schema {
        name: "one",
        application_id: 77,
        postgres: &[],
        sqlite: &[
            "CREATE TABLE one (a TEXT) STRICT",
            "CREATE TABLE two (b TEXT) STRICT; INSERT INTO two VALUES ('migrated')",
        ],
    };
    static OTHER: Schema = Schema {
        name: "other",
        application_id: 78,
        postgres: &[],
        sqlite: &["CREATE TABLE one (a TEXT) STRICT"],
    };

    #[tokio::test]
    async fn old_files_are_migrated_once_and_newer_ones_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("deep/file.db");
        open(&path, &OLD).await.expect("made").close().await;
        for _ in 0..2 {
            let pool = open(&path, &NEW).await.expect("migrated");
            let rows: Vec<String> = sqlx::query_scalar("SELECT b FROM two")
                .fetch_all(&pool)
                .await
                .expect("rows");
            assert_eq!(rows, ["migrated"]);
            pool.close().await;
        }
        let error = open(&path, &OLD).await.expect_err("newer");
        assert!(
            matches!(
                error,
                Error::NewerSchema {
                    found: 2,
                    known: 1,
                    ..
                }
            ),
            "{error}"
        );
        let error = open(&path, &OTHER)
            .await
            .expect_err("another service's file");
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }

    #[tokio::test]
    async fn the_file_and_its_companions_are_private() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("file.db");
        fs::write(&path, "").expect("file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
        let pool = open(&path, &OLD).await.expect("made");
        for entry in fs::read_dir(directory.path()).expect("entries") {
            let entry = entry.expect("entry");
            let mode = entry.metadata().expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        }
        pool.close().await;
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_named_and_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("file.db");
        fs::write(
            &path,
            "this is not a database, and long enough to be seen as none".repeat(40),
        )
        .expect("file");
        let error = open(&path, &OLD).await.expect_err("no database");
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        let (said, name) = (error.to_string(), path.display().to_string());
        assert!(
            said.contains(&name) && said.contains("move it away"),
            "{said}"
        );
    }
}
