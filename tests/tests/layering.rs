//! Dependencies point down only (ARCHITECTURE.md): types, proto, kit, then services and gateways side by side, then
//! the binary, then the tests. Read from cargo's own metadata, so a `Cargo.toml` cannot say one thing and mean another.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{collections::BTreeMap, env, process::Command};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// What each crate may stand on, of this workspace.
const MAY_USE: &[(&str, &[&str])] = &[
    ("postern-types", &[]),
    ("postern-proto", &["postern-types"]),
    ("postern-kit", FOUNDATIONS),
    // Databases of services, with no table of any: only those that keep something there stand on it.
    ("postern-database", FOUNDATIONS),
    ("postern-identity", STORES),
    ("postern-policy", FOUNDATIONS),
    ("postern-filesystem", FOUNDATIONS),
    ("postern-exec", FOUNDATIONS),
    ("postern-ledger", STORES),
    ("postern-edge", FOUNDATIONS),
    ("postern-host", FOUNDATIONS),
    ("postern", EVERYTHING),
    ("postern-tests", &["postern-types", "postern-proto"]),
    // A PostgreSQL for the tests of the crates below: it knows none of them.
    ("postern-test-postgres", &[]),
];

const FOUNDATIONS: &[&str] = &["postern-types", "postern-proto", "postern-kit"];

const STORES: &[&str] = &[
    "postern-types",
    "postern-proto",
    "postern-kit",
    "postern-database",
];

const EVERYTHING: &[&str] = &[
    "postern-types",
    "postern-proto",
    "postern-kit",
    "postern-database",
    "postern-identity",
    "postern-policy",
    "postern-filesystem",
    "postern-exec",
    "postern-ledger",
    "postern-edge",
    "postern-host",
];

/// Outside crates that belong in few places: a database, telemetry, the MCP library.
const KEPT_TO: &[(&str, &[&str])] = &[
    (
        "sqlx",
        &[
            "postern-database",
            "postern-ledger",
            "postern-identity",
            "postern-host",
        ],
    ),
    ("opentelemetry", &["postern-kit"]),
    ("prometheus", &["postern-kit"]),
    ("rmcp", &["postern-host", "postern-edge"]),
    ("clap", &["postern"]),
    ("cedar-policy", &["postern-policy"]),
    // Around commands, and around the decoders of files that were made to break them.
    ("landlock", &["postern-exec", "postern-filesystem"]),
];

/// Types are words only: nothing in them waits, serves or stores.
const NOT_IN_TYPES: &[&str] = &["tokio", "tonic", "sqlx", "hyper", "axum", "prost"];

/// What cargo tells of the workspace.
fn metadata() -> Value {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--locked",
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo speaks JSON")
}

/// The packages of the workspace.
fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("packages")
}

/// The names of the normal dependencies of every crate of the workspace.
fn normal_dependencies() -> BTreeMap<String, Vec<String>> {
    packages(&metadata()).iter().map(of_package).collect()
}

fn of_package(package: &Value) -> (String, Vec<String>) {
    let dependencies = package["dependencies"].as_array().expect("dependencies");
    let normal = dependencies
        .iter()
        // A build script of ours would count as well; `dev` alone is free.
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["name"].as_str())
        .map(str::to_owned)
        .collect();
    (
        package["name"].as_str().unwrap_or_default().to_owned(),
        normal,
    )
}

/// `cargo run` in the checkout, as the README has it, starts the program, whatever other programs are built beside it.
#[test]
fn cargo_run_means_the_program() {
    let metadata = metadata();
    let program = packages(&metadata)
        .iter()
        .find(|package| package["name"] == "postern")
        .expect("the program's package");
    assert_eq!(
        metadata["workspace_default_members"],
        json!([program["id"]])
    );
    assert_eq!(program["default_run"], "postern");
}

#[test]
fn every_crate_of_the_workspace_has_its_place() {
    let known: Vec<String> = normal_dependencies().into_keys().collect();
    let mut placed: Vec<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    placed.sort_unstable();
    assert_eq!(known, placed);
}

#[test]
fn dependencies_point_down_only() {
    let graph = normal_dependencies();
    let mut wrong = Vec::new();
    for (name, may_use) in MAY_USE {
        for dependency in graph.get(*name).into_iter().flatten() {
            let is_ours = graph.contains_key(dependency);
            if is_ours && !may_use.contains(&dependency.as_str()) {
                wrong.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn databases_and_telemetry_stay_in_their_places() {
    let mut wrong = Vec::new();
    for (name, dependencies) in normal_dependencies() {
        for dependency in dependencies {
            let is_misplaced = KEPT_TO.iter().any(|(kept, places)| {
                let is_of_family =
                    dependency == *kept || dependency.starts_with(&format!("{kept}-"));
                is_of_family && !places.contains(&name.as_str())
            });
            let is_too_low = name == "postern-types" && NOT_IN_TYPES.contains(&dependency.as_str());
            if is_misplaced || is_too_low {
                wrong.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
