//! What one test has for itself: a project, a data directory, and whatever it starts.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    agent::{Agent, Era},
    browser::{Browser, Look},
    client,
    fault::FaultPoints,
    owner::Owner,
    process::{self, Process},
    program::{Ended, Program, Surroundings, binary, binary_with_fault_points, command, surround},
    stdio::Bridge,
    terminal::Terminal,
};

/// From the start of the program to its ready line, on a loaded machine and unoptimised.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// From SIGTERM to the end: running effects get 10 s, and the workers end their commands.
const END_LIMIT: Duration = Duration::from_secs(30);
/// How long a command line that does one thing may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The intention that a test works under, unless it says another.
pub const INTENTION: &str = "Try the door from outside";

/// A test's own corner of the machine. When it goes, everything that was started in it is killed.
#[derive(Debug)]
pub struct World {
    base: TempDir,
    mark: String,
    variables: Vec<(OsString, OsString)>,
    faults: Option<FaultPoints>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world with an empty home and a git project with `AGENTS.md`, a test script and one commit.
    ///
    /// # Panics
    /// When the temporary directory cannot be written or git is missing.
    #[must_use]
    pub fn new() -> Self {
        let mut world = Self {
            base: TempDir::with_prefix("postern-tests-").expect("a temporary directory"),
            mark: Uuid::new_v4().to_string(),
            variables: Vec::new(),
            faults: None,
        };
        fs::create_dir(world.home()).expect("home");
        fs::create_dir(world.temporary()).expect("temporary");
        fs::create_dir(world.project()).expect("project");
        world.set("TMPDIR", world.temporary());
        world.write("AGENTS.md", AGENTS);
        world.write("check.sh", CHECK);
        world.write("greeting.txt", "hello\n");
        for arguments in [
            &["init", "--quiet"][..],
            &["add", "--all"],
            &["commit", "--quiet", "--message", "Start"],
        ] {
            world.git(arguments);
        }
        world
    }

    /// The temporary directory of what is started.
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.base.path().join("tmp")
    }

    /// A world in which everything runs with fault points.
    #[must_use]
    pub fn with_fault_points() -> (Self, FaultPoints) {
        let mut world = Self::new();
        let faults = FaultPoints::new(world.outside().join("fault-points"));
        world.set(FaultPoints::variable(), faults.directory());
        world.faults = Some(faults.clone());
        (world, faults)
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"];
        let status = Command::new("git")
            .args(identity)
            .args(arguments)
            .current_dir(self.project())
            .env("HOME", self.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .status();
        assert!(status.is_ok_and(|status| status.success()), "git is needed");
    }

    /// Sets a variable for every program started from now on.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.push((name.into(), value.into()));
    }

    /// The directory around the project; siblings of the project go here.
    #[must_use]
    pub fn outside(&self) -> &Path {
        self.base.path()
    }

    /// The project's root.
    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.base.path().join("project")
    }

    /// The data directory of `up`. It does not exist before the first start.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.base.path().join("data")
    }

    /// The home directory of what is started.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.base.path().join("home")
    }

    /// Writes a file of the project.
    ///
    /// # Panics
    /// When it cannot.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.project().join(path), content).expect("the project is writable");
    }

    /// Writes a file beside the project that the owner alone can read, as for a token.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn secret(&self, name: &str, content: &str) -> PathBuf {
        let path = self.base.path().join(name);
        fs::write(&path, content).expect("the test's directory is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        path
    }

    /// Reads a file of the project.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Every living process that was started here.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        process::marked(&self.mark)
    }

    /// The exec workers: processes that run `serve exec`.
    #[must_use]
    pub fn workers(&self) -> Vec<Process> {
        let mut found = self.processes();
        found.retain(|process| process.has_argument("serve") && process.has_argument("exec"));
        found
    }

    /// Starts the binary under test, in the project.
    #[must_use]
    pub fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Program {
        self.start_below::<&str, S>(&[], arguments)
    }

    /// Starts the binary under test by another program, which comes first on the command line and becomes it.
    #[must_use]
    pub fn start_below<B: AsRef<OsStr>, S: AsRef<OsStr>>(
        &self,
        before: &[B],
        arguments: &[S],
    ) -> Program {
        let before: Vec<&OsStr> = before.iter().map(AsRef::as_ref).collect();
        let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        self.surrounded(&before, |around| Program::start(&arguments, around))
    }

    /// Starts the binary under test in a terminal that is its own, as from a shell, but for its complaints, which go to a file.
    #[must_use]
    pub fn in_terminal<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Terminal {
        self.in_a_terminal(arguments, Terminal::start)
    }

    /// Starts the binary under test in a terminal that is its own, its complaints included.
    #[must_use]
    pub fn wholly_in_terminal<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Terminal {
        self.in_a_terminal(arguments, Terminal::start_whole)
    }

    fn in_a_terminal<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        start: fn(tokio::process::Command, PathBuf) -> Terminal,
    ) -> Terminal {
        let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        let before = ["setsid", "--ctty"].map(OsStr::new);
        self.surrounded(&before, |around| {
            let mut command = command(&arguments, &around);
            command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
            start(command, around.stderr)
        })
    }

    /// Starts `postern mcp` with an agent's token towards the host of a door, and further arguments.
    #[must_use]
    pub fn bridge(&self, ready: &Ready, further: &[&str]) -> Bridge {
        self.bridge_by(&binary(), &self.bridge_arguments(ready, further))
    }

    /// Starts `postern mcp` by a command line, as a client does.
    #[must_use]
    pub fn bridge_by(&self, program: &Path, arguments: &[String]) -> Bridge {
        let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        self.surrounded(&[], |mut around| {
            program.clone_into(&mut around.binary);
            Bridge::start(&arguments, &around)
        })
    }

    /// The arguments of `postern mcp` with an agent's token towards the host of a door, and further ones.
    ///
    /// # Panics
    /// When the token cannot be written.
    #[must_use]
    pub fn bridge_arguments(&self, ready: &Ready, further: &[&str]) -> Vec<String> {
        let token = self.secret("agent-token", &ready.agent_token);
        let host = ready.mcp_url.trim_end_matches("/mcp");
        let token = token.to_str().expect("a path of text");
        let mut arguments = vec!["mcp", "--host", host, "--token-file", token];
        arguments.extend(further);
        arguments.into_iter().map(str::to_owned).collect()
    }

    fn surrounded<T>(&self, before: &[&OsStr], start: impl FnOnce(Surroundings<'_>) -> T) -> T {
        start(Surroundings {
            before,
            binary: match self.faults {
                Some(_) => binary_with_fault_points(),
                None => binary(),
            },
            mark: &self.mark,
            stderr: self.base.path().join(format!("{}.log", Uuid::new_v4())),
            home: &self.home(),
            here: &self.project(),
            variables: &self.variables,
        })
    }

    /// A browser that looks at pages so.
    pub async fn browser(&self, look: Look) -> Browser {
        let profile = self.base.path().join(format!("profile-{}", Uuid::new_v4()));
        let surround = |command: &mut tokio::process::Command| {
            self.surrounded(&[], |around| surround(command, &around));
        };
        Browser::start(surround, &profile, look).await
    }

    /// Runs a client of others in this world to its end, at most for `limit` (see [`crate::client`]).
    pub async fn run_client(&self, mut command: tokio::process::Command, limit: Duration) -> Ended {
        self.surrounded(&[], |around| surround(&mut command, &around));
        client::run(&mut command, limit).await
    }

    /// Runs the binary under test to its end.
    pub async fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ended {
        self.start(arguments).ended(COMMAND_LIMIT).await
    }

    /// The arguments of `up` for this world, with `mode`, on free ports, and further ones.
    #[must_use]
    pub fn up_arguments(&self, mode: &str, further: &[&str]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["up", "--json", "--mode", mode, "--project"]
            .iter()
            .map(OsString::from)
            .collect();
        arguments.push(self.project().into());
        arguments.push("--data-dir".into());
        arguments.push(self.data().into());
        arguments.extend(["--intention", INTENTION].map(OsString::from));
        for option in ["--listen", "--console"] {
            if !further.contains(&option) {
                arguments.extend([option, "127.0.0.1:0"].map(OsString::from));
            }
        }
        arguments.extend(further.iter().map(OsString::from));
        arguments
    }

    /// `postern up`, waited for until it is ready.
    pub async fn up(&self, mode: &str) -> Door {
        self.up_with(mode, &[]).await
    }

    /// `postern up` with further arguments.
    pub async fn up_with(&self, mode: &str, further: &[&str]) -> Door {
        self.up_of(&self.up_arguments(mode, further)).await
    }

    /// `postern up` with these arguments, as [`Self::up_arguments`] makes them.
    pub async fn up_of(&self, arguments: &[OsString]) -> Door {
        let mut program = self.start(arguments);
        let line = program.event("ready", READY_LIMIT).await;
        Door {
            ready: Ready::from_line(line),
            program,
        }
    }

    /// `postern up`; `None` when it ends before it is ready.
    pub async fn try_up(&self, mode: &str) -> Option<Door> {
        let mut program = self.start(&self.up_arguments(mode, &[]));
        let line = program.event_or_end("ready", READY_LIMIT).await?;
        Some(Door {
            ready: Ready::from_line(line),
            program,
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        process::kill_marked(&self.mark);
    }
}

/// The ready line of `up`.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The line as it came.
    pub line: Value,
    /// Where agents speak MCP.
    pub mcp_url: String,
    /// Token of an agent.
    pub agent_token: String,
    /// Where the owner looks.
    pub console_url: String,
    /// Token of the owner.
    pub owner_token: String,
    /// The workspace.
    pub workspace_id: String,
}

impl Ready {
    /// A link for the owner's browser, which works once.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn console_link(&self) -> String {
        text_of(&self.line, "consoleLink")
    }

    /// The endpoint as clients are told of it in their configurations.
    #[must_use]
    pub fn client_configuration(&self) -> Value {
        let authorization = format!("Bearer {}", self.agent_token);
        json!({"type": "http", "url": self.mcp_url, "headers": {"Authorization": authorization}})
    }

    fn from_line(line: Value) -> Self {
        Self {
            mcp_url: text_of(&line, "mcpUrl"),
            agent_token: text_of(&line, "agentToken"),
            console_url: text_of(&line, "consoleUrl"),
            owner_token: text_of(&line, "ownerToken"),
            workspace_id: text_of(&line, "workspaceId"),
            line,
        }
    }
}

/// A text field of a JSON object.
///
/// # Panics
/// When it is absent or not a text.
#[must_use]
pub fn text_of(object: &Value, field: &str) -> String {
    object[field]
        .as_str()
        .unwrap_or_else(|| panic!("no text in `{field}` of {object}"))
        .to_owned()
}

/// A running `postern up`.
#[derive(Debug)]
pub struct Door {
    /// The program.
    pub program: Program,
    /// What it said when it was ready.
    pub ready: Ready,
}

impl Door {
    /// An agent of the newest protocol.
    #[must_use]
    pub fn agent(&self) -> Agent {
        Agent::modern(&self.ready.mcp_url, &self.ready.agent_token)
    }

    /// An agent of either era.
    pub async fn agent_of(&self, era: Era) -> Agent {
        Agent::of_era(era, &self.ready.mcp_url, &self.ready.agent_token).await
    }

    /// An agent of the newest protocol with a token from before.
    #[must_use]
    pub fn agent_with(&self, token: &str) -> Agent {
        Agent::modern(&self.ready.mcp_url, token)
    }

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(&self.ready.console_url, &self.ready.owner_token)
    }

    /// SIGTERM, and the end.
    pub async fn stop(self) -> Ended {
        self.program.signal(Signal::TERM);
        self.program.ended(END_LIMIT).await
    }
}

const AGENTS: &str = "# Working here\n\nRun `sh check.sh` before you say that you are done. Ünïcödé 漢字 🙂 is welcome.\n";

/// The project's own tests: they pass once `greeting.txt` says more than hello.
const CHECK: &str = "\
echo 'running 2 tests'
test -f AGENTS.md && echo 'ok 1 - instructions are there'
if grep -q world greeting.txt; then echo 'ok 2 - the greeting is complete'
else echo 'not ok 2 - the greeting is not complete'; exit 1
fi
";
