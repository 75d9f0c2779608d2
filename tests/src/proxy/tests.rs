use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::{FakeEdge, FakeHost, HostSide};

const WORKSPACE: &str = "w";
const TOKEN: &str = "token";
/// Long enough for something that must not come to have come.
const NOTHING_COMES: Duration = Duration::from_millis(50);

async fn channel(host: &FakeHost, proxy: &Proxy) -> (HostSide, FakeEdge) {
    let (inside, edge) = tokio::join!(
        host.accept(WORKSPACE, TOKEN),
        FakeEdge::connect(proxy.url(), WORKSPACE, TOKEN)
    );
    (inside, edge.expect("no refusal"))
}

fn cut(message: u64, moment: Moment, how: Break) -> Cut {
    Cut {
        direction: Direction::ToEdge,
        message,
        moment,
        how,
    }
}

#[tokio::test]
async fn a_cut_comes_at_its_message_and_no_other() {
    let host = FakeHost::listen().await;
    let proxy = Proxy::to(host.url()).await;
    let call = json!({"type": "call", "id": "1", "sessionId": "s"});
    for how in [Break::Close, Break::Reset] {
        for (moment, arrives) in [
            (Moment::Before, false),
            (Moment::Within, false),
            (Moment::After, true),
        ] {
            let (mut inside, mut edge) = channel(&host, &proxy).await;
            proxy.arm(cut(2, moment, how));
            inside.send(&call).await;
            assert_eq!(edge.next_call().await.expect("the first passes"), call);
            inside.send(&call).await;
            let second = edge.next_call().await;
            assert_eq!(second.is_ok(), arrives, "{moment:?} {how:?}");
            proxy.cut_made().await;
            assert!(inside.next_result().await.is_err(), "{moment:?} {how:?}");
        }
    }
    assert_eq!(proxy.connections(), 6);
}

#[tokio::test]
async fn a_black_hole_tells_nobody_and_gives_everything_back() {
    let host = FakeHost::listen().await;
    let proxy = Proxy::to(host.url()).await;
    let (mut inside, mut edge) = channel(&host, &proxy).await;
    let call = json!({"type": "call", "id": "1", "sessionId": "s"});
    proxy.arm(cut(1, Moment::Within, Break::BlackHole));
    inside.send(&call).await;
    proxy.cut_made().await;
    let nothing = timeout(NOTHING_COMES, edge.next_call()).await;
    assert!(nothing.is_err(), "the message is held back");
    proxy.open();
    assert_eq!(edge.next_call().await.expect("the message"), call);
    edge.answer(&call, &json!({})).await;
    inside.next_result().await.expect("the way back is open");
    assert_eq!(proxy.passed(Direction::ToHost), 1);
    // Ready and the call.
    assert_eq!(proxy.passed(Direction::ToEdge), 2);
}

#[tokio::test]
async fn what_is_lost_one_way_leaves_the_other_as_it_is() {
    let host = FakeHost::listen().await;
    let proxy = Proxy::to(host.url()).await;
    let (mut inside, mut edge) = channel(&host, &proxy).await;
    let call = |id: &str| json!({"type": "call", "id": id, "sessionId": "s"});
    proxy.cut(Break::OneWay(Direction::ToHost));
    inside.send(&call("1")).await;
    assert_eq!(edge.next_call().await.expect("the call"), call("1"));
    edge.answer(&call("1"), &json!({})).await;
    let nothing = timeout(NOTHING_COMES, inside.next_result()).await;
    assert!(nothing.is_err(), "the result is held back");
    proxy.open();
    inside.next_result().await.expect("the result");

    // Once a call has passed, what comes after it that way does not.
    proxy.arm(cut(1, Moment::After, Break::OneWay(Direction::ToEdge)));
    inside.send(&call("2")).await;
    assert_eq!(edge.next_call().await.expect("the call"), call("2"));
    edge.answer(&call("2"), &json!({})).await;
    inside.next_result().await.expect("its result");
    inside.send(&call("3")).await;
    let nothing = timeout(NOTHING_COMES, edge.next_call()).await;
    assert!(nothing.is_err(), "the call is held back");
    proxy.open();
    assert_eq!(edge.next_call().await.expect("the call"), call("3"));
}
