//! `postern doctor`: what this machine offers, and what to do about what it does not.
//!
//! Every check looks at one thing, takes what it looks at as an argument, and leaves nothing behind.

mod certificates;
mod configuration;
mod limits;
mod machine;
mod network;
mod project;
mod storage;
mod tools;

use std::{path::Path, time::Duration};

use postern_exec::{Controller, sandbox::Kernel};
use postern_kit::{task::Tasks, tls::Role};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{certificates::demand_beyond, cli::Doctor, data_dir, error::Error, output, signals};

/// Commands are run by this one.
const SHELL: &str = "/bin/sh";
/// Time for the task that listens for signals to end.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Width of the column with the checks' names.
const NAME_WIDTH: usize = 16;

/// How a check came out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// It works, with less.
    Warn,
    /// It does not work.
    Fail,
}

/// One check's outcome.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    /// What there is.
    detail: String,
    /// What to do; `None` when there is nothing to do.
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Ok,
            detail: detail.into(),
            advice: None,
        }
    }

    fn warn(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Warn,
            detail: detail.into(),
            advice: Some(advice.into()),
        }
    }

    fn fail(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Fail,
            detail: detail.into(),
            advice: Some(advice.into()),
        }
    }

    fn line(&self) -> String {
        let state = match self.state {
            State::Ok => "ok  ",
            State::Warn => "warn",
            State::Fail => "fail",
        };
        let said = format!("{state}  {:NAME_WIDTH$}  {}", self.check, self.detail);
        match &self.advice {
            Some(advice) => format!("{said}. {advice}."),
            None => said,
        }
    }
}

/// Runs every check and tells each; fails when one failed.
pub(crate) async fn run(arguments: Doctor, json: bool) -> Result<(), Error> {
    let findings = unless_stopped(examine(&arguments)).await?;
    for finding in &findings {
        output::either(json, &json!(finding), &finding.line());
    }
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.state == State::Fail)
        .map(|finding| finding.check)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "these checks failed: {}; what to do is told with each",
        failed.join(", ")
    )))
}

/// A signal ends the checks in order, so that what they tried goes with them.
async fn unless_stopped<T>(checks: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let (tasks, stop) = (Tasks::new(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let outcome = tokio::select! {
        outcome = checks => outcome,
        () = stop.cancelled() => Err(Error::Failed("stopped before every check was done".to_owned())),
    };
    tasks.shutdown(STOP_LIMIT).await;
    outcome
}

async fn examine(arguments: &Doctor) -> Result<Vec<Finding>, Error> {
    let (root, project) = project::check(&arguments.project);
    let data_dir = match (&arguments.data_dir, &root) {
        (Some(data_dir), _) => data_dir.clone(),
        (None, Some(root)) => data_dir::default_for(root)?,
        (None, None) => data_dir::default_for(&arguments.project)?,
    };
    let kernel = Kernel::probe();
    let mut limited = Controller::ALL.to_vec();
    limited.retain(|controller| controller.is_there());
    let mut findings = vec![
        machine::sandbox(kernel, arguments.sandbox.sandbox),
        machine::no_new_privileges(machine::try_no_new_privileges()),
        machine::user_namespaces(Path::new("/proc/sys")),
        machine::terminal(Path::new("/dev/ptmx")),
        machine::shell(Path::new(SHELL)),
        machine::control_groups(&limited),
        machine::clock(postern_kit::Clock::system().now()),
        limits::processes(limits::Found::on_this_machine()),
        limits::handles(limits::handles_allowed()),
    ];
    if let Some(root) = &root {
        findings.push(machine::sandbox_paths(
            &arguments.sandbox,
            kernel,
            root,
            &data_dir,
        ));
    }
    findings.extend(project);
    let (mut tls, mut role) = (arguments.tls.clone(), arguments.tls_role);
    if let Some(root) = &root {
        let configured = configuration::read(root, &data_dir);
        findings.extend(tools::check(configured.as_ref(), root));
        // The command line and the environment win over the file, which is an edge's.
        if let (None, Ok(configured)) = (&tls.tls_dir, configured) {
            tls = configured.tls;
            role = role.or(Some(Role::Edge));
        }
    }
    let ahead = certificates::days(arguments.within);
    if let Some(folder) = &tls.tls_dir {
        let outside = root.as_deref().map(|root| demand_beyond(root, &tls));
        let outside = outside.unwrap_or(Ok(()));
        findings.push(certificates::own(folder, outside, role, ahead).await);
    }
    if let Some(folder) = &arguments.certs_dir {
        findings.extend(certificates::authority(folder, ahead).await);
    }
    findings.extend(storage::check(&data_dir, root.as_deref()).await);
    findings.push(network::port("mcp-port", &arguments.listen, "--listen").await);
    findings.push(network::port("console-port", &arguments.console, "--console").await);
    // A service's variable may hold a SQLite URL; that disk was looked at.
    if let Some(url) = &arguments.database
        && !url.starts_with("sqlite:")
    {
        findings.push(network::database(url).await);
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_finding_is_one_line_for_people_and_for_programs() {
        let finding = Finding::warn("shell", "none", "Make one");
        assert_eq!(finding.line(), "warn  shell             none. Make one.");
        let expected =
            json!({"check": "shell", "state": "warn", "detail": "none", "advice": "Make one"});
        assert_eq!(json!(finding), expected);
    }

    #[tokio::test]
    async fn a_sound_machine_passes_and_nothing_is_left() {
        let home = tempfile::tempdir().expect("folder");
        let project = home.path().join("project");
        std::fs::create_dir(&project).expect("project");
        let arguments = Doctor {
            project: project.clone(),
            data_dir: Some(home.path().join("deep/data")),
            listen: "127.0.0.1:0".to_owned(),
            console: "127.0.0.1:0".to_owned(),
            database: None,
            tls: crate::cli::TlsArg::default(),
            tls_role: None,
            certs_dir: None,
            within: 30,
            sandbox: crate::cli::SandboxArgs::default(),
        };
        let findings = examine(&arguments).await.expect("examined");
        let failed: Vec<String> = findings
            .iter()
            .filter(|finding| finding.state == State::Fail)
            .map(Finding::line)
            .collect();
        assert_eq!(failed, [""; 0]);
        let mut names: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "each check is named once");
        assert!(names.contains(&"sandbox-paths"));
        let left = |path: &Path| std::fs::read_dir(path).expect("folder").count();
        assert_eq!((left(home.path()), left(&project)), (1, 0));
    }
}
