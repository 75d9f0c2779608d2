//! What `deploy/kubernetes` builds: every object is what the API's schemas say, runs with no more rights than it needs, and
//! only the arrows of ARCHITECTURE.md are let through.

#![expect(
    clippy::expect_used,
    reason = "what the tests share fails them by panicking"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Stdio,
};

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
    // What the autoscaler decides, a new look at these files must not.
    for deployment in of_kind(&objects, "Deployment") {
        let is_scaled = name(deployment) == "exec";
        let says = deployment["spec"]["replicas"].is_number();
        assert_ne!(says, is_scaled, "{}", name(deployment));
    }
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
}

/// Whether a policy does nothing but let pods of one name reach pods of others, on named ports.
fn is_arrow(policy: &Value) -> bool {
    let is_of_one_name = |peer: &Value| {
        let only = |value: &Value, key: &str| {
            let object = value.as_object();
            object.is_some_and(|object| object.len() == 1 && object.contains_key(key))
        };
        only(peer, "podSelector")
            && only(&peer["podSelector"], "matchLabels")
            && only(
                &peer["podSelector"]["matchLabels"],
                "app.kubernetes.io/name",
            )
    };
    let is_narrow = |rule: &Value, peers: &str| {
        let peers = rule[peers].as_array();
        peers.is_some_and(|peers| !peers.is_empty() && peers.iter().all(is_of_one_name))
            && rule["ports"].is_array()
    };
    [("ingress", "from"), ("egress", "to")]
        .iter()
        .all(|(direction, peers)| {
            let mut rules = policy["spec"][direction].as_array().into_iter().flatten();
            rules.all(|rule| is_narrow(rule, peers))
        })
        && (name(policy).starts_with("from-") || name(policy).starts_with("to-"))
}

/// What is let through beside the arrows, to the letter.
fn other_ways() -> [(&'static str, Value); 5] {
    let of = |name: &str| json!({"matchLabels": {"app.kubernetes.io/name": name}});
    let from = |label: &str| json!([{"namespaceSelector": {"matchLabels": {label: "true"}}}]);
    let no_service = json!([{
        "key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["postgres", "jaeger"],
    }]);
    let names = json!([{
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }]);
    let private = json!([
        "10.0.0.0/8",
        "100.64.0.0/10",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
    ]);
    [
        (
            "nothing",
            json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        ),
        (
            "names",
            json!({
                "podSelector": {"matchExpressions": no_service},
                "policyTypes": ["Egress"],
                "egress": [{"to": names, "ports": [
                    {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"},
                ]}],
            }),
        ),
        (
            "metrics",
            json!({
                "podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "postern"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": from("postern.dev/metrics"), "ports": [{"port": 9464}]}],
            }),
        ),
        (
            "agents",
            json!({
                "podSelector": of("host"),
                "policyTypes": ["Ingress"],
                "ingress": [{"from": from("postern.dev/agents"), "ports": [{"port": 7300}]}],
            }),
        ),
        (
            "commands",
            json!({
                "podSelector": of("exec"),
                "policyTypes": ["Egress"],
                "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": private}}]}],
            }),
        ),
    ]
}

#[tokio::test]
async fn beside_the_arrows_there_are_four_ways_and_all_else_is_closed() {
    let objects = objects().await;
    let others = of_kind(&objects, "NetworkPolicy").filter(|policy| !is_arrow(policy));
    let others: BTreeMap<&str, Value> = others.map(|it| (name(it), it["spec"].clone())).collect();
    assert_eq!(others, BTreeMap::from(other_ways()));
}

/// Which services of docker-compose.yml share a network: those between which there is an arrow, and whoever else is on it.
#[tokio::test]
async fn in_compose_a_worker_shares_its_networks_with_those_alone_whom_it_speaks_to() {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let file = std::fs::File::open(root().join("docker-compose.yml")).expect("there");
    let read = Command::new(client::python())
        .args(["-c", script])
        .stdin(file)
        .output()
        .await
        .expect("python runs");
    let stack: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let services = stack["services"].as_object().expect("services");
    let networks = |name: &str| -> BTreeSet<&str> {
        let named = services[name]["networks"].as_array().into_iter().flatten();
        named.filter_map(Value::as_str).collect()
    };
    let reached_from = |name: &str| -> BTreeSet<&str> {
        let own = networks(name);
        let others = services.keys().filter(|other| *other != name);
        let shared = others.filter(|other| !networks(other).is_disjoint(&own));
        shared.map(String::as_str).collect()
    };
    assert_eq!(
        reached_from("exec"),
        BTreeSet::from(["edge", "jaeger", "ledger"])
    );
    assert_eq!(
        reached_from("postgres"),
        BTreeSet::from(["host", "identity", "ledger"])
    );
    for (name, network) in stack["networks"].as_object().expect("networks") {
        let is_open = ["published", "outside"].contains(&name.as_str());
        assert_ne!(network["internal"] == true, is_open, "{name}");
    }
    for (name, service) in services {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
        assert_eq!(
            service["security_opt"],
            json!(["no-new-privileges:true"]),
            "{name}"
        );
        let is_root = service["user"]
            .as_str()
            .is_some_and(|user| user.starts_with("0:"));
        assert_eq!(is_root, name == "setup", "{name}");
    }
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
