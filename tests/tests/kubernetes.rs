//! What `deploy/kubernetes` builds: every object is what the API's schemas say, runs with no more rights than it needs, and
//! only the arrows of ARCHITECTURE.md are let through.

#![expect(
    clippy::expect_used,
    reason = "what the tests share fails them by panicking"
)]

use std::{collections::BTreeSet, path::Path, process::Stdio};

use postern_tests::client;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

const OWN: [&str; 7] = [
    "edge",
    "exec",
    "filesystem",
    "host",
    "identity",
    "ledger",
    "policy",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Every object, validated strictly.
async fn objects() -> Vec<Value> {
    let built = Command::new(client::tool("kustomize"))
        .args(["build", "deploy/kubernetes"])
        .current_dir(root())
        .output()
        .await
        .expect("kustomize runs");
    let problem = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "kustomize: {problem}");
    let mut validator = Command::new(client::python())
        .arg("tests/kubernetes/check.py")
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the validator runs");
    let mut input = validator.stdin.take().expect("its input");
    let write = async {
        input.write_all(&built.stdout).await.expect("taken");
        drop(input);
    };
    let ((), ended) = tokio::join!(write, validator.wait_with_output());
    let ended = ended.expect("it ends");
    let problem = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "not valid: {problem}");
    serde_json::from_slice(&ended.stdout).expect("a list")
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn names<'a>(objects: &'a [Value], kind: &'a str) -> BTreeSet<&'a str> {
    of_kind(objects, kind).map(name).collect()
}

#[tokio::test]
async fn every_object_is_valid_and_every_piece_is_there() {
    let objects = objects().await;
    let own = BTreeSet::from(OWN);
    assert!(names(&objects, "Deployment").is_superset(&own));
    assert_eq!(names(&objects, "PodDisruptionBudget"), own);
    let scaled: Vec<&Value> = of_kind(&objects, "HorizontalPodAutoscaler").collect();
    assert_eq!(scaled.len(), 1);
    assert_eq!(scaled[0]["spec"]["scaleTargetRef"]["name"], "exec");
    let metric = &scaled[0]["spec"]["metrics"][0]["pods"]["metric"]["name"];
    assert_eq!(*metric, "postern_exec_running");
    let budgets = of_kind(&objects, "PodDisruptionBudget")
        .map(|budget| &budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]);
    assert!(budgets.zip(OWN).all(|(selected, name)| selected == name));
}

#[tokio::test]
async fn pods_have_probes_bounds_and_no_more_rights_than_they_need() {
    let objects = objects().await;
    for deployment in of_kind(&objects, "Deployment").filter(|one| OWN.contains(&name(one))) {
        let (name, pod) = (name(deployment), &deployment["spec"]["template"]["spec"]);
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        let containers = pod["containers"].as_array().expect("containers");
        assert_eq!(containers.len(), 1, "{name}");
        let container = &containers[0];
        let rights = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], rights, "{name}");
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert!(container[probe].is_object(), "{name} has no {probe}");
        }
        // What asks for more would restart a service, and end its commands, for what is wrong elsewhere (docs/adr/0018). The
        // edge's console listens for its own pod alone, and what it is asked asks nobody.
        let liveness = &container["livenessProbe"];
        assert_eq!(liveness["tcpSocket"].is_object(), name != "edge", "{name}");
        assert!(
            container["resources"]["limits"]["memory"].is_string(),
            "{name}"
        );
    }
}

/// (from, to, port) of every policy that lets pods reach pods.
fn arrows<'a>(
    objects: &'a [Value],
    direction: &str,
    peers: &str,
) -> BTreeSet<(&'a str, &'a str, u64)> {
    let label = "app.kubernetes.io/name";
    let mut found = BTreeSet::new();
    for policy in of_kind(objects, "NetworkPolicy") {
        let own = policy["spec"]["podSelector"]["matchLabels"][label].as_str();
        for rule in policy["spec"][direction].as_array().into_iter().flatten() {
            for peer in rule[peers].as_array().into_iter().flatten() {
                let other = peer["podSelector"]["matchLabels"][label].as_str();
                for port in rule["ports"].as_array().into_iter().flatten() {
                    if let (Some(own), Some(other), Some(port)) =
                        (own, other, port["port"].as_u64())
                    {
                        let (from, to) = if direction == "egress" {
                            (own, other)
                        } else {
                            (other, own)
                        };
                        found.insert((from, to, port));
                    }
                }
            }
        }
    }
    found
}

#[tokio::test]
async fn only_the_drawn_arrows_are_let_through() {
    let objects = objects().await;
    let mut drawn = BTreeSet::from([
        ("edge", "identity", 7302),
        ("edge", "policy", 7303),
        ("edge", "filesystem", 7304),
        ("edge", "exec", 7305),
        ("edge", "ledger", 7306),
        ("edge", "host", 7300),
        ("exec", "ledger", 7306),
        ("identity", "postgres", 5432),
        ("ledger", "postgres", 5432),
        ("host", "postgres", 5432),
    ]);
    drawn.extend(OWN.map(|name| (name, "jaeger", 4317)));
    assert_eq!(arrows(&objects, "egress", "to"), drawn);
    assert_eq!(arrows(&objects, "ingress", "from"), drawn);
    let closed = of_kind(&objects, "NetworkPolicy").any(|policy| {
        policy["spec"] == json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
    });
    assert!(closed, "what no policy names is closed");
}

/// The rules that the cluster starts with are the program's own.
#[test]
fn the_rules_to_start_with_are_those_of_the_program() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    assert_eq!(
        read("deploy/kubernetes/rules/defaults.cedar"),
        read("services/policy/src/rules/defaults.cedar")
    );
}
