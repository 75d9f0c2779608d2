//! Pages are of one size, however much the ledger holds.

use futures_util::future::join_all;
use pretty_assertions::assert_eq;

use super::*;

/// Receipts, each of a session of its own: more than any page shows of either.
const RECEIPTS: u64 = 120;
/// Rows of a table on one page at most.
const ROWS: usize = 50;
/// Largest page, in bytes.
const PAGE_BYTES: usize = 64 * 1024;

#[tokio::test]
async fn a_page_shows_so_many_rows_and_leads_to_the_rest() {
    let world = World::new().await;
    join_all((0..RECEIPTS).map(|number| world.record(number, RECEIPTS))).await;
    while world.recorded_behind(RECEIPTS).await {}
    for (path, rows) in [("/sessions", 25), ("/receipts", 50), ("/", 8)] {
        let reply = world.page(path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        let shown = reply.text.matches("<tr").count();
        assert!(shown <= ROWS + 2, "{path}: {shown} rows");
        let leads_to = |word: &str| reply.text.matches(word).count();
        let sessions = leads_to("src/file-").max(leads_to("/sessions/session-"));
        assert!(sessions >= rows, "{path} shows {sessions}");
        assert!(
            reply.text.len() <= PAGE_BYTES,
            "{path}: {}",
            reply.text.len()
        );
    }
    let mut path = "/sessions".to_owned();
    let mut seen = 0;
    loop {
        let text = world.page(&path).await.text;
        seen += text.matches("<td class=\"name\"").count();
        let Some((_, rest)) = text.split_once("href=\"/sessions?after=") else {
            break;
        };
        let after = rest.split('"').next().expect("an address");
        path = format!("/sessions?after={after}");
    }
    assert_eq!(seen as u64, RECEIPTS, "every session is on some page");
}
