//! A store that fails between a change and the look at what came of it.

use postern_identity::Database;
use pretty_assertions::assert_eq;
use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tonic::Code;

use crate::harness::{Host, Place, becomes, launching, refused};

/// A connection of somebody else to the service's file.
async fn behind(host: &Host) -> SqliteConnection {
    let Database::Sqlite(path) = host.place.database() else {
        unreachable!("it is a file");
    };
    let options = SqliteConnectOptions::new().filename(path);
    options.connect().await.expect("connected")
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(connection).await;
    done.expect("executed");
}

#[tokio::test]
async fn a_token_whose_change_could_not_be_read_back_is_not_lost() {
    let mut host = Host::over(Place::sqlite()).await;
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let made = host.launch(launching(&admin, &workspace, "look")).await;
    let (launch, secret) = (made.launch.expect("launch"), made.secret.expect("secret"));

    // The next launch is written, and what it opens cannot be read: its workspace's id is no text.
    let mut behind = behind(&host).await;
    let fail = "INSERT INTO workspaces SELECT CAST(x'ff' AS TEXT), organization_id, 'x', 'x', 1, 1 FROM host; \
        CREATE TRIGGER fail AFTER INSERT ON launches BEGIN \
        UPDATE launches SET workspace_id = CAST(x'ff' AS TEXT) WHERE id = NEW.id; END";
    execute(&mut behind, fail).await;
    let mut request = launching(&admin, &workspace, "more");
    request.channel_token_id.clone_from(&launch.token_id);
    refused(
        host.client.create_launch(request).await,
        Code::Internal,
        "internal",
    );

    // What the token opens is not known, so nothing is said of it: neither that it opens something nor that it is invalid.
    becomes(&host.service, false).await;
    for secret in [&secret, &admin.secret] {
        let answer = host.authenticate(secret).await;
        refused(answer, Code::Unavailable, "unavailable");
    }

    // It comes back by itself once the store can be read.
    let mend = "DROP TRIGGER fail; DELETE FROM launches WHERE intention = 'more'";
    execute(&mut behind, mend).await;
    becomes(&host.service, true).await;
    let token = host.authenticate(&secret).await.expect("token");
    assert_eq!(token.workspace_ids, [&*workspace.id]);
    let mut request = launching(&admin, &workspace, "again");
    request.channel_token_id.clone_from(&launch.token_id);
    host.launch(request).await;
}
