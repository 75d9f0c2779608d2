//! A PostgreSQL for tests: a private cluster on a Unix socket, in a folder of its own, that ends with the test process
//! however that ends. A shell looks after it: it holds one end of a pipe whose other end only the test process has.
//!
//! [`Cluster::shared`] is one cluster for a whole test process, where each test takes a database of its own.
//! [`Cluster::start`] is one for a test that stops and restarts the server, [`Cluster::replica`] one that follows it.
//!
//! Without PostgreSQL's programs a test fails with a message that tells what to install; it is never passed over.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod moving;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

pub use moving::Moving;

/// What looks after the server.
const KEEPER: &str = include_str!("keeper.sh");
/// Where Debian keeps the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The account that owns the databases. The server does not run as root.
const OWNER: &str = "postgres";

/// A server and its databases.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    directory: PathBuf,
    databases: AtomicU64,
    keeper: Mutex<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    child: Child,
    /// Taken away when it ends: that tells the shell.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Cluster {
    /// The cluster of this process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Another cluster, with a running server.
    ///
    /// # Panics
    /// When there is no PostgreSQL here, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::make(None, false)
    }

    /// Another one, whose commits reach the disk: for measurements.
    ///
    /// # Panics
    /// When there is no PostgreSQL here, or it does not start.
    #[must_use]
    pub fn durable() -> Self {
        Self::make(None, true)
    }

    /// A replica of this one, which streams from it and takes no writes until it is promoted.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self::make(Some(&self.directory), false)
    }

    /// The same database on a replica, or on the server that it follows.
    ///
    /// # Panics
    /// When the URL is none of a cluster's.
    #[must_use]
    pub fn same(&self, url: &str) -> String {
        let there = folder(url).expect("a folder").display().to_string();
        url.replace(&there, &self.directory.display().to_string())
    }

    /// The URL of a database for who reaches its server by `host:port`.
    ///
    /// # Panics
    /// When the URL is none of a cluster's.
    #[must_use]
    pub fn url_by(address: &str, url: &str) -> String {
        format!("postgres://{OWNER}@{address}/{}", name(url))
    }

    /// Has a replica take writes.
    ///
    /// # Panics
    /// When it does not.
    pub fn promote(&self) {
        self.order("promote");
    }

    fn make(primary: Option<&Path>, is_durable: bool) -> Self {
        let programs = programs();
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let owner = [format!("--reuid={OWNER}"), format!("--regid={OWNER}")];
            command
                .args(owner)
                .args(["--clear-groups", "--", "/bin/sh"]);
            command
        } else {
            Command::new("/bin/sh")
        };
        let mut child = command
            .args(["-c", KEEPER, "keeper"])
            .arg(&programs)
            .arg(OWNER)
            .arg(primary.unwrap_or(Path::new("")))
            .arg(if is_durable { "durable" } else { "" })
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What is typed at the terminal is not for it: it ends by the pipe alone.
            .process_group(0)
            .spawn()
            .expect("a shell to look after PostgreSQL");
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut keeper = Keeper {
            child,
            orders,
            answers,
        };
        let directory = PathBuf::from(keeper.answer());
        Self {
            programs,
            directory,
            databases: AtomicU64::new(0),
            keeper: Mutex::new(keeper),
        }
    }

    /// Makes a database and gives its URL.
    ///
    /// # Panics
    /// When the server does not run.
    #[must_use]
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.run("createdb", &[&name]);
        let directory = self.directory.display();
        format!("postgres:///{name}?host={directory}&user={OWNER}")
    }

    /// All that is in a database, as SQL.
    ///
    /// # Panics
    /// When the URL is none of this cluster's, or the server does not run.
    #[must_use]
    pub fn dump(&self, url: &str) -> String {
        self.run("pg_dump", &["--inserts", name(url)])
    }

    /// Runs SQL in a database.
    ///
    /// # Panics
    /// When that fails.
    pub fn execute(&self, url: &str, sql: &str) -> String {
        self.try_execute(url, sql).expect("the SQL is done")
    }

    /// Runs SQL in a database.
    ///
    /// # Errors
    /// What the server says when it refuses.
    ///
    /// # Panics
    /// When PostgreSQL's programs do not run.
    pub fn try_execute(&self, url: &str, sql: &str) -> Result<String, String> {
        let options = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"];
        let rest = ["--set=ON_ERROR_STOP=1", "--command", sql, name(url)];
        self.try_run("psql", &[&options[..], &rest[..]].concat())
    }

    /// Stops the server; connections break.
    ///
    /// # Panics
    /// When it does not stop.
    pub fn stop(&self) {
        self.order("stop");
    }

    /// Ends every process of the server where it is: connections break, what runs is lost, and the next start recovers.
    ///
    /// # Panics
    /// When it does not end.
    pub fn crash(&self) {
        self.order("crash");
    }

    /// Starts it again.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&self) {
        self.order("start");
    }

    /// Halts every process of the server where it is: connections stay, and nobody answers.
    ///
    /// # Panics
    /// When it cannot be halted.
    pub fn freeze(&self) {
        self.order("freeze");
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it does not.
    pub fn thaw(&self) {
        self.order("thaw");
    }

    fn order(&self, order: &str) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = keeper.orders.as_mut().expect("a keeper");
        writeln!(orders, "{order}").expect("the keeper reads");
        assert_eq!(keeper.answer(), "done", "{order}");
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let done = self.try_run(program, arguments);
        done.unwrap_or_else(|errors| panic!("{program}: {errors}"))
    }

    fn try_run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(self.programs.join(program))
            .arg(format!("--host={}", self.directory.display()))
            .arg(format!("--username={OWNER}"))
            .args(arguments)
            .output()
            .expect("PostgreSQL's programs run");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Keeper {
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the keeper's word");
        assert!(
            !line.is_empty(),
            "PostgreSQL does not start; what it says is above"
        );
        line.trim_end().to_owned()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It ends on its own; a zombie would be all that is left of it otherwise.
        drop(self.child.wait());
    }
}

/// The newest version of PostgreSQL here.
fn programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort();
    if let Some((_, programs)) = found.pop() {
        return programs;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .find(|folder| folder.join("initdb").exists())
        .expect(
            "these tests need PostgreSQL: install the Debian package `postgresql`, or put its `initdb` on the PATH",
        )
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// The database's name in a URL of [`Cluster::database`].
fn name(url: &str) -> &str {
    let path = url
        .strip_prefix("postgres:///")
        .expect("a URL of a cluster");
    path.split('?').next().expect("a database")
}

/// The socket of a server, in the folder that its URLs tell.
#[must_use]
pub fn socket(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

/// The folder of a cluster in one of its URLs.
#[must_use]
pub fn folder(url: &str) -> Option<&Path> {
    let (_, query) = url.split_once("?host=")?;
    query.split('&').next().map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_of_a_server_that_left_its_file_behind() {
        let cluster = Cluster::start();
        let directory = cluster.directory.clone();
        cluster.stop();
        // Of a process that cannot be: above the highest id that Linux gives.
        fs::write(directory.join("data/postmaster.pid"), "4194305\n").expect("written");
        drop(cluster);
        assert!(!directory.exists(), "{}", directory.display());
    }
}
