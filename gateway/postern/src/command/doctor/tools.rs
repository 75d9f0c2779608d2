//! The owner's tool servers: whether their programs are there.

use std::{
    env,
    path::{Path, PathBuf},
};

use postern_edge::ToolServer;
use rustix::fs::Access;

use super::{Finding, configuration::Configured};

const CHECK: &str = "tool-servers";

/// The servers that are configured for this project; nothing when there is none.
pub(super) fn check(configured: Result<&Configured, &String>, project: &Path) -> Option<Finding> {
    let path = env::var_os("PATH").unwrap_or_default();
    match configured.map(|configured| &configured.tools) {
        Ok(servers) if servers.is_empty() => None,
        Ok(servers) => Some(programs(servers, project, &path)),
        Err(problem) => Some(Finding::fail(
            CHECK,
            problem,
            "Mend it, or `postern up` does not start",
        )),
    }
}

fn programs(servers: &[ToolServer], project: &Path, path: &std::ffi::OsStr) -> Finding {
    let enabled = || servers.iter().filter(|server| server.enabled);
    let missing: Vec<String> = enabled()
        .filter_map(|server| {
            let program = server.command.first()?;
            let is_there = find(program, &project.join(&server.cwd), path);
            (!is_there).then(|| {
                let [name, program] =
                    [&server.name, program].map(|it| postern_types::printable(it));
                format!("'{program}' of '{name}'")
            })
        })
        .collect();
    if missing.is_empty() {
        let count = enabled().count();
        return Finding::ok(
            CHECK,
            format!("{count} are configured, and their programs are there"),
        );
    }
    Finding::warn(
        CHECK,
        format!("these programs cannot be found: {}", missing.join(", ")),
        "Install them, or write their whole path in postern.toml",
    )
}

/// Whether a program would be found: by its path, or by name in the folders of `PATH`.
fn find(program: &str, directory: &Path, path: &std::ffi::OsStr) -> bool {
    let can_run =
        |file: PathBuf| file.is_file() && rustix::fs::access(&file, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return can_run(directory.join(program));
    }
    env::split_paths(path).any(|folder| can_run(folder.join(program)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use pretty_assertions::assert_eq;

    use super::{
        super::{State, configuration},
        *,
    };

    #[test]
    fn programs_are_looked_for_where_they_would_be_started() {
        let home = tempfile::tempdir().expect("folder");
        let (project, folder) = (home.path().join("project"), home.path().join("bin"));
        let make = |path: PathBuf, mode: u32| {
            fs::create_dir_all(path.parent().expect("a parent")).expect("folder");
            fs::write(&path, "").expect("file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
        };
        make(folder.join("there"), 0o755);
        make(folder.join("unexecutable"), 0o644);
        make(project.join("tools/own"), 0o755);
        let data = home.path().join("data");
        fs::create_dir(&data).expect("data");
        let text = |servers: &[&str]| -> String {
            let table = |(number, rest): (usize, &&str)| {
                format!("[[tools]]\nname = \"s{number}\"\n{rest}\n")
            };
            servers.iter().enumerate().map(table).collect()
        };
        let checked = |servers: &[&str]| {
            let file = data.join("postern.toml");
            fs::write(&file, text(servers)).expect("file");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("mode");
            let found = configuration::read(&project, &data).expect("read");
            programs(&found.tools, &project, folder.as_os_str())
        };
        let good = checked(&[
            "command = [\"there\"]",
            "command = [\"./own\"]\ncwd = \"tools\"",
            "url = \"https://tools.example/mcp\"",
            "command = [\"gone\"]\nenabled = false",
        ]);
        assert_eq!(
            (good.state, good.advice),
            (State::Ok, None),
            "{}",
            good.detail
        );
        let bad = checked(&[
            "command = [\"gone\"]",
            "command = [\"unexecutable\", \"x\"]",
        ]);
        assert_eq!(bad.state, State::Warn);
        assert!(
            bad.detail
                .ends_with("'gone' of 's0', 'unexecutable' of 's1'"),
            "{}",
            bad.detail
        );
        fs::write(data.join("postern.toml"), "tools = 1\n").expect("file");
        let found = configuration::read(&project, &data);
        let broken = check(found.as_ref(), &project).expect("a finding");
        assert_eq!(broken.state, State::Fail);
    }
}
