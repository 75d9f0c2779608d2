//! Files that earlier versions of the program have written.

use postern_identity::secret::{self, Kind};
use pretty_assertions::assert_eq;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::harness::{Host, Place, START};

/// "PoHI" in ASCII, and the version.
const STAMP: &str = "PRAGMA application_id = 1349470281; PRAGMA user_version = 1";
const CONTENT: &str = "
    INSERT INTO organizations VALUES ('o', 1);
    INSERT INTO principals VALUES ('p', 'o', 1);
    INSERT INTO memberships VALUES ('p', 'o', 'owner');
    INSERT INTO host VALUES (1, 'o', 'p');
    INSERT INTO workspaces VALUES ('w', 'o', 'work', 'Work', 1, 1);
    INSERT INTO workspace_roles VALUES ('p', 'w', 'owner')";

async fn database(path: &std::path::Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    options.connect().await.expect("database")
}

#[tokio::test]
async fn a_file_of_version_1_goes_on_with_all_that_is_in_it() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("identity.db");
    let mut old = database(&path).await;
    for script in [
        include_str!("../../src/host/schema/sqlite-0001.sql"),
        STAMP,
        CONTENT,
    ] {
        sqlx::raw_sql(script).execute(&mut old).await.expect("made");
    }
    let admin = secret::mint(Kind::Admin).expect("secret");
    let channel = secret::mint(Kind::Channel).expect("secret");
    for (id, kind, secret) in [("a", "admin", &admin), ("c", "channel", &channel)] {
        sqlx::query("INSERT INTO tokens VALUES (?1, ?2, ?3, 'p', 'o', NULL, NULL, 1, NULL, NULL)")
            .bind(id)
            .bind(kind)
            .bind(secret.digest().as_bytes().as_slice())
            .execute(&mut old)
            .await
            .expect("token");
    }
    sqlx::query("INSERT INTO launches VALUES ('l', 'w', 'look', 'c', 1, NULL)")
        .execute(&mut old)
        .await
        .expect("launch");
    old.close().await.expect("closed");

    let mut host = Host::over(Place::Sqlite(directory)).await;
    let token = host.authenticate(channel.expose()).await.expect("channel");
    assert_eq!(token.workspace_ids, ["w"]);
    let acting = host.authenticate(admin.expose()).await.expect("admin");
    let mut launches = host.launches(&acting, "").await.expect("launches");
    assert_eq!(launches[0].revoked_at_ms, None);
    let revoked = host.revoke_launch(&acting, "l").await.expect("revoked");
    launches[0].revoked_at_ms = Some(START);
    assert_eq!(launches, [revoked]);
    host.restart().await;
    let listed = host.launches(&acting, "").await.expect("launches");
    assert_eq!(listed, launches);
}
