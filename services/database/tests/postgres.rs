//! Schemas on a real PostgreSQL.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use postern_database::{Database, Error, Pool, Schema};
use postern_test_postgres::Cluster;
use pretty_assertions::assert_eq;

const FIRST: &str = "CREATE TABLE one (a TEXT NOT NULL); INSERT INTO one VALUES ('kept')";
static OLD: Schema = Schema {
    name: "postern_try",
    application_id: 77,
    sqlite: &[],
    postgres: &[FIRST],
};
static NEW: Schema = Schema {
    postgres: &[
        FIRST,
        "ALTER TABLE one ADD COLUMN b TEXT NOT NULL DEFAULT 'added'",
    ],
    ..OLD
};

async fn open(url: &str, schema: &'static Schema) -> Pool {
    let database: Database = url.parse().expect("a URL");
    Pool::open(&database, schema)
        .await
        .expect("no server is asked yet")
}

async fn rows(pool: &Pool) -> Vec<(String, String)> {
    let rows = pool
        .fetch_all("SELECT a, b FROM one", &[])
        .await
        .expect("rows");
    let rows = rows
        .iter()
        .map(|row| (row.text("a").expect("text"), row.text("b").expect("text")));
    rows.collect()
}

#[tokio::test]
async fn tables_are_made_once_by_whoever_comes_first_and_migrated_from_the_version_before() {
    let url = Cluster::shared().database();
    for schema in [&OLD, &NEW] {
        let (one, other) = (open(&url, schema).await, open(&url, schema).await);
        let (first, second) = tokio::join!(one.prepare(), other.prepare());
        first.expect("prepared");
        second.expect("prepared");
        one.close().await;
        other.close().await;
    }
    let pool = open(&url, &NEW).await;
    pool.prepare().await.expect("prepared");
    assert_eq!(rows(&pool).await, [("kept".to_owned(), "added".to_owned())]);
    let older = open(&url, &OLD).await;
    let refused = older.prepare().await.expect_err("it is newer");
    assert!(
        matches!(refused, Error::NewerTables { found: 2, known: 1 }),
        "{refused}"
    );
    assert!(!refused.is_away(), "waiting would not help");
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused_with_what_to_do() {
    let cluster = Cluster::shared();
    let url = cluster.database();
    cluster.execute(
        &url,
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'",
    );
    let (_, query) = url.split_once('?').expect("a query");
    let latin = format!("postgres:///latin?{query}");
    let pool = open(&latin, &OLD).await;
    let refused = pool.prepare().await.expect_err("refused");
    assert!(refused.to_string().contains("UTF8"), "{refused}");
    assert!(!refused.is_away(), "waiting would not help");
}
