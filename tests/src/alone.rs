//! The services of an edge as processes of their own.

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    program::{Ended, Program},
    wait_for,
    world::{World, text_of},
};

/// For a service to be ready, and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// What a probe is told of a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Health {
    /// It can be given work.
    Serving,
    /// It answers, and cannot be given work.
    NotServing,
    /// It does not answer.
    Away,
}

impl Health {
    /// Asks once, as a probe does.
    ///
    /// # Panics
    /// When the program tells something else.
    pub async fn of(world: &World, address: &str) -> Self {
        let ended = world.run(&["healthcheck", "--json", address]).await;
        let told = ended.stdout.lines().next().map(|line| {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            text_of(&line, "status")
        });
        match (ended.code, told.as_deref()) {
            (Some(0), Some("SERVING")) => Self::Serving,
            (Some(1), Some("NOT_SERVING")) => Self::NotServing,
            (Some(1), None) => Self::Away,
            _ => panic!("no answer of a probe: {ended:?}"),
        }
    }

    /// Waits until a service is told of so.
    ///
    /// # Panics
    /// When it is not in time.
    pub async fn becomes(self, world: &World, address: &str) {
        let what = format!("{address} to be {self:?}");
        wait_for(&what, LIMIT, async || {
            (Self::of(world, address).await == self).then_some(())
        })
        .await;
    }
}

/// A service as a process of its own.
#[derive(Debug)]
pub struct Alone {
    role: &'static str,
    further: Vec<OsString>,
    address: String,
    program: Option<Program>,
}

impl Alone {
    /// The services that an edge has.
    pub const ROLES: [&'static str; 5] = ["identity", "policy", "filesystem", "exec", "ledger"];

    /// Starts a service over the world's project, on `listen`, with further arguments. Its database is a file unless they name one.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(
        world: &World,
        role: &'static str,
        listen: &str,
        further: &[OsString],
    ) -> Self {
        let outside = |name: &str| world.outside().join(name);
        let database = |name: &str| OsString::from(format!("sqlite://{}", outside(name).display()));
        let has_database = further.iter().any(|argument| argument == "--database");
        let mut arguments: Vec<OsString> = match role {
            "identity" | "ledger" if !has_database => {
                vec!["--database".into(), database(&format!("{role}.db"))]
            }
            "filesystem" => vec!["--project".into(), world.project().into()],
            "exec" => vec![
                "--project".into(),
                world.project().into(),
                "--spool".into(),
                outside("spool").into(),
            ],
            _ => Vec::new(),
        };
        arguments.extend_from_slice(further);
        let mut service = Self {
            role,
            further: arguments,
            address: listen.to_owned(),
            program: None,
        };
        service.begin(world).await;
        service
    }

    /// Starts it, or starts it again where it was.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn begin(&mut self, world: &World) {
        let mut arguments: Vec<OsString> = ["serve", self.role, "--json", "--listen"]
            .iter()
            .map(OsString::from)
            .collect();
        arguments.push((&self.address).into());
        arguments.extend_from_slice(&self.further);
        let mut program = world.start(&arguments);
        let line = program.event("listening", LIMIT).await;
        assert_eq!(line["role"], self.role);
        self.address = text_of(&line, "url");
        self.program = Some(program);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    ///
    /// # Panics
    /// When it was ended.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.program.as_ref().expect("it runs")
    }

    /// Ends it in order, and waits for that.
    ///
    /// # Panics
    /// When it does not run, or does not end.
    pub async fn end(&mut self) -> Ended {
        self.program().signal(Signal::TERM);
        self.ended().await
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it was ended, or does not end.
    pub async fn ended(&mut self) -> Ended {
        let program = self.program.take().expect("it runs");
        program.ended(LIMIT).await
    }
}

/// Certificates for every role, made by the program itself: the folder that holds a folder for each.
///
/// # Panics
/// When they cannot be made.
pub async fn certificates(world: &World) -> PathBuf {
    let folder = world.outside().join("certs");
    let arguments: [OsString; 4] = [
        "certs".into(),
        "init".into(),
        "--dir".into(),
        folder.clone().into(),
    ];
    let made = world.run(&arguments).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::canonicalize(&folder).expect("it was made")
}
