//! The journal's SQLite file.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use postern_types::{Sha256, Timestamp};
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::{
        SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqliteRow, SqliteSynchronous,
    },
};

use super::{Failed, Key, Known, Sending};
use crate::error::Error;

/// Schema of this program.
const SCHEMA: i64 = 1;
/// Longest wait for another process that holds the file, such as the host before this one on its way out.
const BUSY: Duration = Duration::from_secs(5);
/// How long an answered call can be asked for again.
const KEEP_ANSWERED: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long an unanswered call keeps its session and intention.
const KEEP_OPEN: Duration = Duration::from_secs(90 * 24 * 3600);
/// Answered calls kept at most; the oldest go first.
const MAX_ANSWERED: i64 = 100_000;
/// Bytes of kept answers at most; the oldest go first.
const MAX_ANSWER_BYTES: i64 = 256 * 1024 * 1024;

/// Large columns stand last, so that a scan does not read through them.
const TABLE: &str = "
    CREATE TABLE call (
        number INTEGER PRIMARY KEY,
        call_id TEXT NOT NULL,
        token_id TEXT NOT NULL,
        workspace_id TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        session_id TEXT NOT NULL,
        opened_at INTEGER NOT NULL,
        answered_at INTEGER,
        answer_bytes INTEGER NOT NULL DEFAULT 0,
        intention TEXT NOT NULL,
        answer TEXT
    ) STRICT;
    CREATE UNIQUE INDEX call_key ON call (call_id, token_id, workspace_id);
    PRAGMA user_version = 1;
";
const FIND: &str = "
    SELECT fingerprint, session_id, intention, answer FROM call
    WHERE call_id = ?1 AND token_id = ?2 AND workspace_id = ?3";
const OPEN: &str = "
    INSERT INTO call (call_id, token_id, workspace_id, fingerprint, session_id, intention, opened_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT DO NOTHING";
const ANSWER: &str = "
    UPDATE call SET answered_at = ?4, answer = ?5, answer_bytes = ifnull(length(?5), 0)
    WHERE call_id = ?1 AND token_id = ?2 AND workspace_id = ?3 AND answered_at IS NULL";
const FREE: &str = "
    DELETE FROM call
    WHERE call_id = ?1 AND token_id = ?2 AND workspace_id = ?3 AND answered_at IS NULL";
const FORGET_OLD: &str = "
    DELETE FROM call WHERE opened_at < CASE WHEN answered_at IS NULL THEN ?2 ELSE ?1 END";
const FORGET_EXCESS: &str = "
    DELETE FROM call WHERE answered_at IS NOT NULL AND number <= (
        SELECT number FROM call WHERE answered_at IS NOT NULL
        ORDER BY number DESC LIMIT 1 OFFSET ?1)";
const FORGET_BYTES: &str = "
    UPDATE call SET answer = NULL, answer_bytes = 0 WHERE answer_bytes > 0 AND number <= (
        SELECT max(number) FROM (
            SELECT number, sum(answer_bytes) OVER (ORDER BY number DESC) AS newer
            FROM call WHERE answer_bytes > 0)
        WHERE newer > ?1)";

/// The one connection. It holds the file for itself: a second host on the same directory is refused.
pub(super) struct Store {
    connection: SqliteConnection,
}

impl Store {
    pub(super) async fn open(file: &Path, now: Timestamp) -> Result<Self, Error> {
        let private = file.to_owned();
        tokio::task::spawn_blocking(move || make_private(&private))
            .await
            .map_err(|_| Error::File(io::ErrorKind::Other.into()))?
            .map_err(Error::File)?;
        let options = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(BUSY)
            .locking_mode(SqliteLockingMode::Exclusive)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("journal_size_limit", "16777216")
            .disable_statement_logging();
        let cannot = |source| Error::Journal {
            path: file.to_owned(),
            source,
        };
        let connection = options.connect().await.map_err(cannot)?;
        let mut store = Self { connection };
        let found = store.migrate().await.map_err(cannot)?;
        if found != SCHEMA {
            return Err(Error::NewerJournal {
                found,
                known: SCHEMA,
            });
        }
        store.prune(now).await;
        Ok(store)
    }

    /// Makes the table in a new file. Tells which schema it has now.
    async fn migrate(&mut self) -> sqlx::Result<i64> {
        let found: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&mut self.connection)
            .await?;
        if found != 0 {
            return Ok(found);
        }
        let mut change = self.connection.begin().await?;
        sqlx::raw_sql(TABLE).execute(&mut *change).await?;
        change.commit().await?;
        Ok(SCHEMA)
    }

    pub(super) async fn begin(&mut self) -> Result<(), Failed> {
        let begun = sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut self.connection)
            .await;
        told(begun).map(drop)
    }

    pub(super) async fn commit(&mut self) -> Result<(), Failed> {
        let committed = sqlx::query("COMMIT").execute(&mut self.connection).await;
        if committed.is_err() {
            let _already = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
        }
        told(committed).map(drop)
    }

    pub(super) async fn find(&mut self, key: &Key) -> Result<Option<Known>, Failed> {
        let row = sqlx::query(FIND)
            .bind(&key.call_id)
            .bind(&key.token_id)
            .bind(&key.workspace_id)
            .fetch_optional(&mut self.connection)
            .await;
        told(row)?.map(|row| told(known(&row))).transpose()
    }

    pub(super) async fn open_call(
        &mut self,
        key: &Key,
        sending: &Sending,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let inserted = sqlx::query(OPEN)
            .bind(&key.call_id)
            .bind(&key.token_id)
            .bind(&key.workspace_id)
            .bind(sending.fingerprint.as_bytes().as_slice())
            .bind(&sending.session_id)
            .bind(&sending.intention)
            .bind(now.as_millis())
            .execute(&mut self.connection)
            .await;
        told(inserted).map(drop)
    }

    pub(super) async fn answer(&mut self, key: &Key, answer: Option<&str>, now: Timestamp) {
        postern_kit::fault_point!(crate::fault_points::KEEP_BEFORE);
        let updated = sqlx::query(ANSWER)
            .bind(&key.call_id)
            .bind(&key.token_id)
            .bind(&key.workspace_id)
            .bind(now.as_millis())
            .bind(answer)
            .execute(&mut self.connection)
            .await;
        postern_kit::fault_point!(crate::fault_points::KEEP_AFTER);
        let _logged = told(updated);
    }

    pub(super) async fn free(&mut self, key: &Key) {
        let deleted = sqlx::query(FREE)
            .bind(&key.call_id)
            .bind(&key.token_id)
            .bind(&key.workspace_id)
            .execute(&mut self.connection)
            .await;
        let _logged = told(deleted);
    }

    /// Forgets what is over the bounds. Unanswered calls younger than [`KEEP_OPEN`] stay, whatever their number: an edge
    /// that is away leaves a handful at most.
    pub(super) async fn prune(&mut self, now: Timestamp) {
        let before = |keep: Duration| {
            let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
            now.as_millis().saturating_sub(keep)
        };
        let old = sqlx::query(FORGET_OLD)
            .bind(before(KEEP_ANSWERED))
            .bind(before(KEEP_OPEN))
            .execute(&mut self.connection)
            .await;
        let _logged = told(old);
        for (statement, bound) in [
            (FORGET_EXCESS, MAX_ANSWERED),
            (FORGET_BYTES, MAX_ANSWER_BYTES),
        ] {
            let excess = sqlx::query(statement)
                .bind(bound)
                .execute(&mut self.connection)
                .await;
            let _logged = told(excess);
        }
    }

    pub(super) async fn close(self) {
        let _logged = told(self.connection.close().await);
    }
}

fn known(row: &SqliteRow) -> sqlx::Result<Known> {
    let fingerprint: &[u8] = row.try_get(0)?;
    let fingerprint =
        <[u8; 32]>::try_from(fingerprint).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Known {
        sending: Sending {
            fingerprint: Sha256::from_bytes(fingerprint),
            session_id: row.try_get(1)?,
            intention: row.try_get(2)?,
        },
        answer: row.try_get(3)?,
    })
}

fn told<T>(outcome: sqlx::Result<T>) -> Result<T, Failed> {
    outcome.map_err(|error| {
        tracing::error!(%error, "the call journal failed");
        Failed
    })
}

/// The file is its owner's alone, and so are the files that SQLite puts beside it, which take its mode.
fn make_private(file: &Path) -> io::Result<()> {
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(file)?;
    let mut permissions = opened.metadata()?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o600);
        opened.set_permissions(permissions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn key(id: &str) -> Key {
        Key {
            token_id: "t".to_owned(),
            workspace_id: "w".to_owned(),
            call_id: id.to_owned(),
        }
    }

    fn sending() -> Sending {
        Sending {
            fingerprint: Sha256::ZERO,
            session_id: "s".to_owned(),
            intention: "i".to_owned(),
        }
    }

    async fn store(directory: &tempfile::TempDir) -> Store {
        Store::open(
            &directory.path().join("journal.db"),
            Timestamp::from_millis(0),
        )
        .await
        .expect("store")
    }

    #[tokio::test]
    async fn forgets_old_answers_and_older_open_calls() {
        let directory = tempfile::tempdir().expect("directory");
        let mut store = store(&directory).await;
        let start = Timestamp::from_millis(0);
        for id in ["open", "answered"] {
            store
                .open_call(&key(id), &sending(), start)
                .await
                .expect("open");
        }
        store.answer(&key("answered"), Some("{}"), start).await;
        store
            .prune(start.after(KEEP_ANSWERED + Duration::from_secs(1)))
            .await;
        assert_eq!(store.find(&key("answered")).await.expect("find"), None);
        assert!(store.find(&key("open")).await.expect("find").is_some());
        store
            .prune(start.after(KEEP_OPEN + Duration::from_secs(1)))
            .await;
        assert_eq!(store.find(&key("open")).await.expect("find"), None);
    }

    #[tokio::test]
    async fn the_oldest_answers_go_when_there_are_too_many_bytes() {
        let directory = tempfile::tempdir().expect("directory");
        let mut store = store(&directory).await;
        let now = Timestamp::from_millis(0);
        for id in ["1", "2", "3"] {
            store
                .open_call(&key(id), &sending(), now)
                .await
                .expect("open");
            store.answer(&key(id), Some("12345"), now).await;
        }
        sqlx::query(FORGET_BYTES)
            .bind(10_i64)
            .execute(&mut store.connection)
            .await
            .expect("forget");
        sqlx::query(FORGET_EXCESS)
            .bind(3_i64)
            .execute(&mut store.connection)
            .await
            .expect("forget");
        let mut answers = Vec::new();
        for id in ["1", "2", "3"] {
            answers.push(
                store
                    .find(&key(id))
                    .await
                    .expect("find")
                    .expect("known")
                    .answer
                    .is_some(),
            );
        }
        assert_eq!(answers, [false, true, true]);
        sqlx::query(FORGET_EXCESS)
            .bind(1_i64)
            .execute(&mut store.connection)
            .await
            .expect("forget");
        assert!(store.find(&key("2")).await.expect("find").is_none());
        assert!(store.find(&key("3")).await.expect("find").is_some());
    }

    #[tokio::test]
    async fn a_damaged_file_is_named_with_what_to_do() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("journal.db");
        let text = "no database, and long enough to be seen as none".repeat(40);
        std::fs::write(&path, text).expect("written");
        let opened = Store::open(&path, Timestamp::from_millis(0)).await;
        let error = opened.err().expect("no journal");
        assert!(matches!(error, Error::Journal { .. }), "{error}");
        let (said, name) = (error.to_string(), path.display().to_string());
        assert!(
            said.contains(&name) && said.contains("move it away"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn the_file_is_private_and_a_newer_one_is_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let mut store = store(&directory).await;
        for name in ["journal.db", "journal.db-wal"] {
            let mode = std::fs::metadata(directory.path().join(name))
                .expect("file")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        sqlx::query("PRAGMA user_version = 9")
            .execute(&mut store.connection)
            .await
            .expect("version");
        store.close().await;
        let refused = Store::open(
            &directory.path().join("journal.db"),
            Timestamp::from_millis(0),
        )
        .await;
        assert!(matches!(
            refused,
            Err(Error::NewerJournal { found: 9, known: 1 })
        ));
    }
}
