//! Receipts: once, whatever is sent again, and what is known afterwards.

use pretty_assertions::assert_eq;

use postern_kit::task::Tasks;
use postern_proto::exec::v1::{EffectKind, Finding, InputResponse, Status};
use postern_types::ErrorCode;

use crate::harness::{SESSION, Worker, code, receipt, start_request};

/// B51: equal requests at once run one command.
#[tokio::test]
async fn a_receipt_runs_once_however_often_it_is_sent() {
    let worker = Worker::open();
    let id = receipt();
    let request = start_request(&id, "echo ran >> log");
    let many = (0..20).map(|_| {
        let (client, request) = (worker.client.clone(), request.clone());
        async move { client.try_start(request).await }
    });
    let together = Tasks::new();
    let tasks: Vec<_> = many.map(|one| together.spawn("start", one)).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("task").expect("started"));
    }
    worker.client.finish(&id).await;
    answers.push(worker.client.try_start(request).await.expect("again"));
    assert!(answers.iter().all(|answer| answer == &answers[0]));
    let log = std::fs::read_to_string(worker.project.join("log")).expect("log");
    assert_eq!(log, "ran\n");
}

#[tokio::test]
async fn a_start_that_was_looked_for_can_never_happen() {
    let worker = Worker::open();
    let id = receipt();
    for _ in 0..2 {
        let found = worker.client.inspect(EffectKind::Start, &id, "").await;
        assert_eq!(found.finding(), Finding::NotApplied);
    }
    let late = worker
        .client
        .try_start(start_request(&id, "touch ran"))
        .await;
    assert_eq!(code(late), ErrorCode::NotApplied);
    assert!(!worker.project.join("ran").exists());
    let polled = worker.client.try_poll(SESSION, &id, 0, 0).await;
    assert_eq!(code(polled), ErrorCode::UnknownCommand);
}

#[tokio::test]
async fn a_start_that_happened_is_found() {
    let worker = Worker::open();
    let id = receipt();
    let started = worker
        .client
        .try_start(start_request(&id, "read x"))
        .await
        .expect("started");
    let found = worker.client.inspect(EffectKind::Start, &id, "").await;
    assert_eq!(
        (found.finding(), found.start.as_ref()),
        (Finding::Applied, Some(&started))
    );
    worker.client.stop(&id).await;
    let found = worker.client.inspect(EffectKind::Start, &id, "").await;
    assert_eq!(
        (found.finding(), found.start),
        (Finding::Applied, Some(started))
    );
}

#[tokio::test]
async fn what_is_older_than_the_spool_is_unknown() {
    let old = receipt();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let worker = Worker::open();
    for id in [old.as_str(), "3e1f7c1e-5f5c-4b43-9d3c-0a6f6a1d9b11"] {
        for _ in 0..2 {
            let found = worker.client.inspect(EffectKind::Start, id, "").await;
            assert_eq!(found.finding(), Finding::Unknown);
        }
        let late = worker
            .client
            .try_start(start_request(id, "touch ran"))
            .await;
        assert_eq!(code(late), ErrorCode::NotApplied);
    }
    assert!(!worker.project.join("ran").exists());
}

#[tokio::test]
async fn an_input_is_typed_once_and_remembered() {
    let worker = Worker::open();
    let id = worker.client.start("cat").await;
    let typed = receipt();
    assert_eq!(worker.client.try_input(&typed, &id, "once\n").await, Ok(5));
    assert_eq!(worker.client.try_input(&typed, &id, "once\n").await, Ok(5));
    let never = receipt();
    let found = worker.client.inspect(EffectKind::Input, &never, &id).await;
    assert_eq!(found.finding(), Finding::NotApplied);
    let late = worker.client.try_input(&never, &id, "late\n").await;
    assert_eq!(code(late), ErrorCode::NotApplied);
    worker.client.input(&id, "\u{4}").await;
    assert_eq!(worker.client.finish(&id).await.output, "once\n");
    let expected = InputResponse {
        command_id: id.clone(),
        bytes: 5,
    };
    for _ in 0..2 {
        let found = worker.client.inspect(EffectKind::Input, &typed, &id).await;
        assert_eq!(
            (found.finding(), found.input),
            (Finding::Applied, Some(expected.clone()))
        );
        assert_eq!(worker.client.try_input(&typed, &id, "once\n").await, Ok(5));
    }
    let found = worker
        .client
        .inspect(EffectKind::Input, &receipt(), &id)
        .await;
    assert_eq!(found.finding(), Finding::NotApplied);
}

#[tokio::test]
async fn a_stop_is_found_by_its_receipt() {
    let worker = Worker::open();
    let id = worker.client.start("sleep 300").await;
    let never = receipt();
    let found = worker.client.inspect(EffectKind::Stop, &never, &id).await;
    assert_eq!(found.finding(), Finding::NotApplied);
    let late = worker.client.try_stop(&never, &id).await;
    assert_eq!(code(late), ErrorCode::NotApplied);
    let page = worker
        .client
        .try_poll(SESSION, &id, 0, 0)
        .await
        .expect("polled");
    assert_eq!(
        page.state.expect("state").status(),
        Status::Running,
        "not stopped"
    );
    let stop = receipt();
    let state = worker.client.try_stop(&stop, &id).await.expect("stopped");
    let found = worker.client.inspect(EffectKind::Stop, &stop, &id).await;
    assert_eq!(found.finding(), Finding::Applied);
    assert_eq!(found.stop.expect("stop").state, Some(state));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_half_done() {
    let worker = Worker::open();
    for _ in 0..10 {
        let id = receipt();
        let start = worker.client.try_start(start_request(&id, "echo whole"));
        // Dropped at its first wait.
        let gone = tokio::time::timeout(std::time::Duration::ZERO, start).await;
        drop(gone);
        let again = worker
            .client
            .try_start(start_request(&id, "echo whole"))
            .await;
        assert_eq!(again.expect("started").command_id, id);
        assert_eq!(worker.client.finish(&id).await.output, "whole\n");
    }
}
