//! Which commands there are, for the owner.

use postern_proto::exec::v1::{EffectKind, ListRequest, ListResponse, StartRequest, Status};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::harness::{Client, SESSION, Worker, code, receipt, start_request};

async fn list(client: &Client, request: ListRequest) -> ListResponse {
    let listed = client.0.clone().list(request).await;
    listed.expect("a page").into_inner()
}

fn part(after: &str, limit: u32) -> ListRequest {
    ListRequest {
        after: after.to_owned(),
        limit,
        ..ListRequest::default()
    }
}

#[tokio::test]
async fn commands_of_every_session_are_listed_newest_first_page_by_page() {
    let worker = Worker::open();
    let long = format!("echo {}", "é".repeat(3000));
    let mut ids = Vec::new();
    for (session, command) in [
        (SESSION, "exit 3"),
        ("session-2", "sleep 100"),
        (SESSION, long.as_str()),
    ] {
        let id = receipt();
        let request = StartRequest {
            session_id: session.to_owned(),
            ..start_request(&id, command)
        };
        worker.client.try_start(request).await.expect("started");
        ids.push(id);
    }
    worker.client.finish(&ids[0]).await;
    ids.reverse();

    let first = list(&worker.client, part("", 2)).await;
    let told: Vec<_> = first.commands.iter().map(|it| &it.command_id).collect();
    assert_eq!(told, ids[..2].iter().collect::<Vec<_>>());
    assert_eq!(first.next, ids[1]);
    let [cut, running] = &first.commands[..] else {
        panic!("{first:?}");
    };
    assert_eq!((cut.command.chars().count(), cut.cut), (2000, true));
    assert_eq!(running.session_id, "session-2");
    assert_eq!(
        (running.command.as_str(), running.cut),
        ("sleep 100", false)
    );
    let state = running.state.as_ref().expect("a state");
    assert_eq!(state.status(), Status::Running);

    let second = list(&worker.client, part(&first.next, 2)).await;
    assert_eq!(second.next, "");
    let [ended] = &second.commands[..] else {
        panic!("{second:?}");
    };
    let state = ended.state.as_ref().expect("a state");
    assert_eq!((state.status(), state.exit_code), (Status::Exited, Some(3)));

    let one = ListRequest {
        command_id: ids[1].clone(),
        ..ListRequest::default()
    };
    assert_eq!(
        &list(&worker.client, one).await.commands[..],
        std::slice::from_ref(running)
    );
}

#[tokio::test]
async fn what_never_ran_is_not_listed_and_what_is_no_id_is_refused() {
    let worker = Worker::open();
    let id = receipt();
    worker.client.inspect(EffectKind::Start, &id, "").await;
    assert_eq!(list(&worker.client, part("", 0)).await.commands, []);
    let unknown = ListRequest {
        command_id: id,
        ..ListRequest::default()
    };
    assert_eq!(list(&worker.client, unknown).await.commands, []);
    let refused = worker.client.0.clone().list(part("nothing", 0)).await;
    let refused = refused.map_err(postern_kit::Failure::from);
    assert_eq!(code(refused), ErrorCode::InvalidArguments);
}
