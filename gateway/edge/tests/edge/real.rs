//! The edge on the real ledger, identity and filesystem: what the scripted ones promise, these keep.

use std::{fs, sync::Arc};

use postern_edge::{Config, Edge, Error, Event, Services};
use postern_kit::{
    Clock,
    task::Tasks,
    transport::{Transport, local},
};
use postern_proto::{
    exec::v1::exec_server::ExecServer,
    ledger::v1::{
        BeginRequest, Call, DecideRequest, Decision, ListRequest, OpenIncarnationRequest, Receipt,
        State, ledger_client::LedgerClient,
    },
    policy::v1::policy_server::PolicyServer,
};
use postern_types::{Mode, args_sha256, trace_id};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    host::{Channel, Host, call, code},
    rig::ask,
    services::{World, sha256},
};

pub(crate) struct Real {
    pub(crate) directory: tempfile::TempDir,
    host: Host,
    pub(crate) services: Services,
    pub(crate) tasks: Tasks,
    /// Policy and commands, in memory.
    pub(crate) world: Arc<World>,
}

pub(crate) struct Running {
    pub(crate) control: postern_edge::Control,
    stop: CancellationToken,
    end: JoinHandle<postern_edge::End>,
}

impl Real {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let (clock, tasks) = (Clock::system(), Tasks::new());
        fs::create_dir(directory.path().join("project")).expect("project");
        let ledger = postern_ledger::Service::open(
            postern_ledger::Config {
                database: postern_ledger::Database::Sqlite(directory.path().join("ledger.db")),
            },
            clock.clone(),
            &tasks,
        );
        let identity = postern_identity::edge::Service::open(
            postern_identity::edge::Config {
                database: postern_identity::Database::Sqlite(directory.path().join("identity.db")),
            },
            clock.clone(),
            &tasks,
        );
        let project = postern_filesystem::Config {
            before: Some(directory.path().join("before")),
            ..postern_filesystem::Config::new(directory.path().join("project"))
        };
        let filesystem = postern_filesystem::Service::open(project, clock).expect("filesystem");
        let world = World::new();
        let services = Services {
            identity: local(identity.await.expect("identity").into_server()),
            policy: local(PolicyServer::from_arc(Arc::clone(&world))),
            filesystem: local(filesystem.into_server()),
            exec: local(ExecServer::from_arc(Arc::clone(&world))),
            ledger: local(ledger.await.expect("ledger").into_server()),
        };
        Self {
            directory,
            host: Host::listen().await,
            services,
            tasks,
            world,
        }
    }

    fn config(&self, mode: Mode) -> Config {
        let root = postern_filesystem::root_identity(&self.directory.path().join("project"))
            .expect("root");
        let mut config = Config::new(
            self.host.url.clone(),
            "work".parse().expect("id"),
            "Mend the roof".parse().expect("intention"),
            "token".to_owned(),
            root.real_path,
            root.device,
            root.inode,
        );
        config.mode = mode;
        config
    }

    pub(crate) async fn start(&self, mode: Mode) -> (Running, Channel) {
        self.start_with(self.config(mode)).await
    }

    async fn start_with(&self, config: Config) -> (Running, Channel) {
        let edge = Edge::start(config, self.services.clone(), Clock::system(), &self.tasks)
            .await
            .expect("start");
        let control = edge.handle();
        let (events, mut told) = mpsc::channel(4);
        let stop = CancellationToken::new();
        let end = self.tasks.spawn("edge", edge.run(events, stop.clone()));
        let channel = self.host.ready().await;
        assert_eq!(told.recv().await, Some(Event::Connected));
        let running = Running { control, stop, end };
        (running, channel)
    }

    pub(crate) fn ledger(&self) -> LedgerClient<Transport> {
        LedgerClient::new(self.services.ledger.clone())
    }

    pub(crate) async fn receipts(&self) -> Vec<Receipt> {
        let listed = self.ledger().list(ListRequest::default()).await;
        listed.expect("list").into_inner().receipts
    }

    /// Decides on the one item of the inbox, once it is there.
    async fn decide(&self, decision: Decision) {
        loop {
            let waiting = self
                .receipts()
                .await
                .into_iter()
                .find(|receipt| receipt.state() == State::AwaitingOwner);
            if let Some(receipt) = waiting {
                let request = DecideRequest {
                    receipt_id: receipt.id,
                    decision: decision.into(),
                    answer: "yes".to_owned(),
                    decided_by: "test".to_owned(),
                };
                self.ledger().decide(request).await.expect("decide");
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn content(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.directory.path().join("project").join(path)).ok()
    }
}

fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content, "expectedSha256": null})
}

#[tokio::test]
async fn a_file_is_written_read_patched_and_deleted_under_receipts() {
    let real = Real::new().await;
    let (_running, mut channel) = real.start(Mode::Full).await;
    channel
        .call(&call("1", "workspace_write", write("src/a.txt", "one two")))
        .await;
    let first = channel.frame().await;
    channel
        .call(&call("1", "workspace_write", write("src/a.txt", "one two")))
        .await;
    assert_eq!(channel.frame().await, first);
    let page = ask(
        &mut channel,
        "2",
        "workspace_read",
        json!({"path": "src/a.txt"}),
    )
    .await;
    assert_eq!(page["content"], "one two");
    let patch = json!({"path": "src/a.txt", "oldText": "two", "newText": "2", "expectedSha256": page["sha256"]});
    let patched = ask(&mut channel, "3", "workspace_patch", patch).await;
    assert_eq!(
        (&patched["offset"], &patched["line"]),
        (&json!(4), &json!(1))
    );
    assert_eq!(real.content("src/a.txt").as_deref(), Some("one 2"));
    let listed = ask(&mut channel, "4", "workspace_list", json!({"path": "src"})).await;
    assert_eq!(listed["entries"][0]["name"], "a.txt");
    let delete = json!({"path": "src/a.txt", "expectedSha256": patched["sha256"]});
    assert_eq!(
        ask(&mut channel, "5", "workspace_delete", delete).await["deleted"],
        true
    );
    let escape = ask(
        &mut channel,
        "6",
        "workspace_read",
        json!({"path": "../ledger.db"}),
    )
    .await;
    assert_eq!(code(&escape), "PATH_ESCAPES_PROJECT");
    let reused = ask(&mut channel, "1", "workspace_write", write("b", "x")).await;
    assert_eq!(code(&reused), "ID_REUSED");
    assert_eq!(real.content("b"), None);
}

#[tokio::test]
async fn refusals_and_foreign_calls_leave_their_receipts() {
    let real = Real::new().await;
    let (running, mut channel) = real.start(Mode::ReadOnly).await;
    channel
        .call(&call("1", "workspace_write", write("a", "x")))
        .await;
    let refused = channel.frame().await;
    assert!(refused.contains("PERMISSION_DENIED"));
    running.control.set_mode(Mode::Full);
    channel
        .call(&call("1", "workspace_write", write("a", "x")))
        .await;
    assert_eq!(channel.frame().await, refused);
    let mut foreign = call("2", "workspace_write", write("a", "x"));
    foreign["workspaceId"] = json!("other");
    channel.call(&foreign).await;
    assert_eq!(code(&channel.content().await), "WRONG_WORKSPACE");
    let mut foreign = call("2", "workspace_write", write("a", "x"));
    foreign["intention"] = json!("Burn the house");
    channel.call(&foreign).await;
    assert_eq!(code(&channel.content().await), "WRONG_INTENTION");
    let receipts = real.receipts().await;
    let told: Vec<_> = receipts
        .iter()
        .map(|receipt| (receipt.workspace_id.as_str(), receipt.outcome.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("work", "WRONG_INTENTION"),
            ("work", "WRONG_WORKSPACE"),
            ("work", "PERMISSION_DENIED")
        ]
    );
    assert_eq!(real.content("a"), None);
    assert_eq!(
        ask(&mut channel, "2", "workspace_write", write("a", "x")).await["created"],
        true
    );
}

#[tokio::test]
async fn approvals_and_questions_go_through_the_inbox() {
    let real = Real::new().await;
    let (_running, mut channel) = real.start(Mode::Ask).await;
    channel
        .call(&call("1", "workspace_write", write("a", "x")))
        .await;
    real.decide(Decision::Approve).await;
    assert_eq!(channel.content().await["created"], true);
    channel
        .call(&call("2", "workspace_ask", json!({"question": "May I?"})))
        .await;
    real.decide(Decision::Answer).await;
    assert_eq!(channel.content().await["answer"], "yes");
    channel
        .call(&call("3", "workspace_write", write("b", "x")))
        .await;
    real.decide(Decision::Deny).await;
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
    assert_eq!(real.content("b"), None);
    let states: Vec<_> = real.receipts().await.iter().map(Receipt::state).collect();
    assert_eq!(states, [State::Refused, State::Completed, State::Completed]);
}

#[tokio::test]
async fn orphans_are_resolved_by_what_the_disk_tells() {
    let real = Real::new().await;
    fs::write(real.directory.path().join("project/there"), "new").expect("write");
    let opened = real
        .ledger()
        .open_incarnation(OpenIncarnationRequest {
            workspace_id: "work".to_owned(),
        })
        .await
        .expect("incarnation")
        .into_inner();
    for (id, path) in [("1", "there"), ("2", "missing")] {
        let plan = json!({"path": path, "before": null, "after": sha256("new")});
        let request = BeginRequest {
            call: Some(Call {
                workspace_id: "work".to_owned(),
                session_id: "session".to_owned(),
                call_id: id.to_owned(),
                intention: "Mend the roof".to_owned(),
                tool: "workspace_write".to_owned(),
                args_sha256: args_sha256(&write(path, "new").to_string())
                    .expect("digest")
                    .to_string(),
                trace_id: trace_id(id),
                summary: path.to_owned(),
            }),
            incarnation: opened.incarnation,
            plan_json: plan.to_string().into(),
            question: None,
            policy_id: "mode".to_owned(),
        };
        real.ledger().begin(request).await.expect("begin");
    }
    let (_running, mut channel) = real.start(Mode::Full).await;
    let applied = ask(&mut channel, "1", "workspace_write", write("there", "new")).await;
    assert_eq!(
        (&applied["created"], &applied["bytes"]),
        (&json!(true), &json!(3))
    );
    for _ in 0..2 {
        let missing = ask(
            &mut channel,
            "2",
            "workspace_write",
            write("missing", "new"),
        )
        .await;
        assert_eq!(code(&missing), "NOT_APPLIED");
    }
    assert_eq!(real.content("missing"), None);
}

#[tokio::test]
async fn a_later_edge_ends_the_earlier_one_and_another_project_does_not_start() {
    let real = Real::new().await;
    let (earlier, mut channel) = real.start(Mode::Full).await;
    real.ledger()
        .open_incarnation(OpenIncarnationRequest {
            workspace_id: "work".to_owned(),
        })
        .await
        .expect("incarnation");
    let late = ask(&mut channel, "1", "workspace_write", write("a", "x")).await;
    assert_eq!(code(&late), "UNAVAILABLE");
    assert!(matches!(
        earlier.end.await.expect("end"),
        postern_edge::End::Failed(_)
    ));
    assert!(!earlier.stop.is_cancelled());
    assert_eq!(real.content("a"), None);

    let mut config = real.config(Mode::Full);
    config.intention = "Burn the house".parse().expect("intention");
    let refused = Edge::start(config, real.services.clone(), Clock::system(), &real.tasks).await;
    assert!(matches!(refused, Err(Error::Pin(_))));
}

#[tokio::test]
async fn names_that_no_tool_can_have_are_refused_under_a_receipt() {
    let real = Real::new().await;
    let (_running, mut channel) = real.start(Mode::Full).await;
    let long = "x".repeat(300_000);
    let names = ["", "workspace_read\n", "\u{202e}", &long];
    for (number, name) in names.into_iter().enumerate() {
        let id = format!("unknown-{number}");
        let told = ask(&mut channel, &id, name, json!({})).await;
        assert_eq!(code(&told), "UNKNOWN_TOOL");
        let mut foreign = call(&id, name, json!({}));
        foreign["workspaceId"] = json!("other");
        channel.call(&foreign).await;
        assert_eq!(code(&channel.content().await), "WRONG_WORKSPACE");
        foreign = call(&id, name, json!({}));
        foreign["intention"] = json!("Burn the house");
        channel.call(&foreign).await;
        assert_eq!(code(&channel.content().await), "WRONG_INTENTION");
    }
    let receipts = real.receipts().await;
    assert_eq!(receipts.len(), 3 * names.len());
    for receipt in receipts {
        assert_eq!(receipt.state(), State::Refused);
        assert!((1..1000).contains(&receipt.tool.len()));
    }
}

#[tokio::test]
async fn an_item_that_nobody_waits_for_any_more_is_refused_once_its_time_is_over() {
    let real = Real::new().await;
    let mut config = real.config(Mode::Ask);
    config.approval_timeout = std::time::Duration::from_millis(500);
    let (running, mut channel) = real.start_with(config).await;
    channel
        .call(&call("1", "workspace_write", write("a", "x")))
        .await;
    while real.receipts().await.is_empty() {
        tokio::task::yield_now().await;
    }
    running.stop.cancel();
    running.end.await.expect("end");
    let end = real.receipts().await[0].expires_at_ms.expect("an end");
    while Clock::system().now().as_millis() <= end {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (_running, mut channel) = real.start(Mode::Ask).await;
    let refused = loop {
        let receipt = real.receipts().await.remove(0);
        if receipt.state() != State::AwaitingOwner {
            break receipt;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (refused.state(), refused.outcome.as_str()),
        (State::Refused, "APPROVAL_TIMEOUT")
    );
    let late = ask(&mut channel, "1", "workspace_write", write("a", "x")).await;
    assert_eq!(code(&late), "APPROVAL_TIMEOUT");
    assert_eq!(real.content("a"), None);
}
