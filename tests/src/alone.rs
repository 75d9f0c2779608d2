//! The services of an edge as processes of their own.

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use rustix::process::Signal;

use crate::{
    program::{Ended, Program},
    world::{World, text_of},
};

/// For a service to be ready, and to end.
const LIMIT: Duration = Duration::from_secs(60);

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
        let program = self.program.take().expect("it runs");
        program.signal(Signal::TERM);
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
