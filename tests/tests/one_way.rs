//! Between an edge and its host one direction alone is lost, in the middle of a call that changes something: the agent is told the
//! outcome, the effect happens once, and the channel is back without a restart of either end.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::Duration;

use postern_tests::{
    Agent, Program, RealHost, World, edge_arguments,
    proxy::{Break, Cut, Direction, Moment, Proxy},
    wait_for,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For what must come, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A host and an edge with a proxy between them. The edge knows within a second that it hears nothing.
struct Between {
    host: RealHost,
    world: World,
    proxy: Proxy,
    edge: Program,
    agent: Agent,
}

impl Between {
    async fn start() -> Self {
        let (host, world) = (RealHost::start().await, World::new());
        let proxy = Proxy::to(&host.url).await;
        let token = world.secret("token", &host.channel_token);
        let token = token.display().to_string();
        let further = [
            "--listen-none",
            "--workspace",
            &host.workspace,
            "--token-file",
            &token,
            "--ping-interval-ms",
            "200",
            "--silence-limit-ms",
            "800",
        ];
        let arguments = edge_arguments(&world, proxy.url(), &world.data(), &further);
        let mut edge = world.start(&arguments);
        edge.event("connected", LIMIT).await;
        let agent = host.agent();
        Self {
            host,
            world,
            proxy,
            edge,
            agent,
        }
    }

    /// Makes a call during which a direction is lost, until the edge has noticed. Answers what the agent is told.
    async fn lost(&mut self, cut: Cut, id: &str, tool: &str, arguments: &Value) -> Value {
        self.proxy.arm(cut);
        let (agent, proxy, edge) = (&self.agent, &self.proxy, &mut self.edge);
        let healed = async {
            proxy.cut_made().await;
            let told = edge.event("disconnected", LIMIT).await;
            let reason = told["reason"].as_str().expect("a reason");
            assert!(reason.contains("heard"), "{told}");
            proxy.open();
            edge.event("connected", LIMIT).await;
        };
        let (answer, ()) = tokio::join!(agent.call_as(id, tool, arguments), healed);
        let told = answer.ok();
        let again = agent.call_as(id, tool, arguments).await;
        assert_eq!(again.ok(), told, "{cut:?}");
        told
    }
}

/// Of a call, on its way or back: which part of it arrives, and what is lost from then on.
fn losses() -> [(Cut, &'static str); 4] {
    use Direction::{ToEdge, ToHost};
    let cut = |direction, moment, lost| Cut {
        direction,
        message: 1,
        moment,
        how: Break::OneWay(lost),
    };
    [
        (cut(ToEdge, Moment::Within, ToEdge), "call"),
        (cut(ToEdge, Moment::After, ToEdge), "what-follows-the-call"),
        (cut(ToEdge, Moment::After, ToHost), "result"),
        (cut(ToHost, Moment::Within, ToHost), "half-a-result"),
    ]
}

#[tokio::test]
async fn a_change_of_which_one_direction_was_lost_is_done_once_and_told() {
    let mut between = Between::start().await;
    for (cut, name) in losses() {
        let path = format!("{name}.txt");
        // A second time it would be refused: the file is there then.
        let write = json!({"path": path, "content": "done\n", "expectedSha256": null});
        let id = format!("write-{name}");
        let told = between.lost(cut, &id, "workspace_write", &write).await;
        assert_eq!(told["created"], true, "{cut:?}");
        assert_eq!(between.world.read(&path), b"done\n", "{cut:?}");

        let lines = format!("{name}.log");
        let exec = json!({"command": format!("echo done >> {lines}")});
        let id = format!("exec-{name}");
        let told = between.lost(cut, &id, "workspace_exec", &exec).await;
        let command = told["commandId"].as_str().expect("an id");
        wait_for("the end of the command", LIMIT, async || {
            let page = between.agent.poll(command, 0).await;
            (page["status"] == "exited").then_some(())
        })
        .await;
        assert_eq!(between.world.read(&lines), b"done\n", "{cut:?}");
    }
    assert!(between.edge.runs() && between.host.program.runs());
}
