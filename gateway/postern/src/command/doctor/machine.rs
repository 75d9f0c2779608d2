//! The kernel and what comes with it.

use std::{fs, path::Path, process::Stdio};

use postern_exec::{
    Controller,
    sandbox::{Kernel, Level, Sandbox},
};
use postern_types::Timestamp;
use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, unlockpt},
    thread::{no_new_privs, set_no_new_privs},
};

use super::Finding;
use crate::cli::SandboxArgs;

/// 2026-01-01: no clock of a machine that runs this program is before it.
const EARLIEST_MS: i64 = 1_767_225_600_000;

/// Landlock, and what its version holds.
pub(super) fn sandbox(kernel: Kernel, level: Level) -> Finding {
    const CHECK: &str = "sandbox";
    let wish = Sandbox {
        level,
        ..Sandbox::new(kernel)
    };
    if let Err(problem) = wish.demand() {
        let detail = format!(
            "required, and Landlock's interface is at version {}",
            kernel.abi
        );
        return Finding::fail(CHECK, detail, problem.to_string());
    }
    let missing: Vec<&str> = kernel
        .missing()
        .iter()
        .map(|missing| missing.name)
        .collect();
    let detail = match (kernel.abi, missing.is_empty()) {
        (0, _) => "no Landlock: commands reach whatever you reach".to_owned(),
        (abi, true) => format!("Landlock, interface version {abi}, with everything"),
        (abi, false) => format!(
            "Landlock, interface version {abi}, without: {}",
            missing.join(", ")
        ),
    };
    if wish.in_force() == Level::Off && level != Level::Off {
        return Finding::warn(
            CHECK,
            detail,
            "Use Linux 6.12 or newer with 'landlock' among its security modules (lsm=… on its command line), or keep commands in a container or a virtual machine",
        );
    }
    if kernel.abi < 6 {
        return Finding::warn(CHECK, detail, "Linux 6.12 or newer holds more");
    }
    Finding::ok(CHECK, detail)
}

/// Whether the paths that commands may and may not reach go together, as `postern up` would find.
pub(super) fn sandbox_paths(
    wishes: &SandboxArgs,
    kernel: Kernel,
    root: &Path,
    data_dir: &Path,
) -> Finding {
    const CHECK: &str = "sandbox-paths";
    let sandbox = Sandbox {
        kernel,
        ..wishes.sandbox()
    };
    // Whether the kernel holds it is a check of its own.
    if sandbox.demand().is_err() {
        return Finding::ok(CHECK, "not looked at: the sandbox cannot be held");
    }
    match sandbox.check(root, data_dir) {
        Ok(()) => Finding::ok(
            CHECK,
            "what commands may reach and what is hidden go together",
        ),
        Err(problem) => Finding::fail(
            CHECK,
            problem.to_string(),
            "Choose other paths with --sandbox-write, --sandbox-hide and --sandbox-show, or another --project or --data-dir",
        ),
    }
}

/// Whether a thread can give up gaining privileges. The thread ends with the attempt.
pub(super) fn try_no_new_privileges() -> bool {
    let tried =
        std::thread::spawn(|| set_no_new_privs(true).is_ok() && no_new_privs().unwrap_or(false));
    tried.join().unwrap_or(false)
}

/// What the attempt came to.
pub(super) fn no_new_privileges(works: bool) -> Finding {
    if works {
        return Finding::ok(
            "no-new-privileges",
            "set-user-id programs gain nothing in commands",
        );
    }
    Finding::fail(
        "no-new-privileges",
        "the kernel refuses it",
        "Without it no command can start; look whether a container's seccomp profile forbids prctl",
    )
}

/// Whether commands can make user namespaces, by the settings below `/proc/sys`.
pub(super) fn user_namespaces(settings: &Path) -> Finding {
    const CHECK: &str = "user-namespaces";
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(settings.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let refused = number("user/max_user_namespaces").unwrap_or(0) == 0
        || number("kernel/unprivileged_userns_clone") == Some(0)
        || number("kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    if refused {
        return Finding::warn(
            CHECK,
            "not for unprivileged users",
            "Postern does not need them; browsers and other programs with a sandbox of their own may, in commands",
        );
    }
    Finding::ok(CHECK, "available")
}

/// Whether a terminal can be made through this device.
pub(super) fn terminal(device: &Path) -> Finding {
    let make = || -> rustix::io::Result<()> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = open(device, flags, Mode::empty())?;
        grantpt(&master)?;
        unlockpt(&master)?;
        ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        Ok(())
    };
    match make() {
        Ok(()) => Finding::ok("terminal", "commands have one to read from"),
        Err(problem) => Finding::fail(
            "terminal",
            format!("none can be made ({problem})"),
            "Mount devpts on /dev/pts (mount -t devpts devpts /dev/pts), or free terminals: /proc/sys/kernel/pty/max limits them",
        ),
    }
}

/// Whether the shell of commands runs.
pub(super) fn shell(path: &Path) -> Finding {
    let ran = std::process::Command::new(path)
        .args(["-c", "exit 7"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let problem = match ran {
        Ok(status) if status.code() == Some(7) => {
            return Finding::ok("shell", format!("{} runs", path.display()));
        }
        Ok(status) => format!("it ended with {status}"),
        Err(problem) => problem.to_string(),
    };
    Finding::fail(
        "shell",
        format!("{} does not run ({problem})", path.display()),
        "Install a POSIX shell there; commands are run by it",
    )
}

/// Which limits of commands (`serve exec --memory`, `--processes`, `--cpus`) can be kept here.
pub(super) fn control_groups(there: &[Controller]) -> Finding {
    const CHECK: &str = "control-groups";
    let names = |has: bool| {
        let all = Controller::ALL.iter();
        let named = all.filter(|controller| there.contains(controller) == has);
        let names: Vec<_> = named.map(|controller| controller.name()).collect();
        names.join(", ")
    };
    if there.len() == Controller::ALL.len() {
        return Finding::ok(CHECK, format!("commands can be limited: {}", names(true)));
    }
    let detail = match there.is_empty() {
        true => "commands cannot be limited".to_owned(),
        false => format!(
            "commands can be limited: {}; not: {}",
            names(true),
            names(false)
        ),
    };
    Finding::warn(
        CHECK,
        detail,
        "Process trees are followed without; to limit what each command uses, give Postern a control group that it may write to (systemd: Delegate=yes), or limit it as a whole",
    )
}

/// Whether the clock can be right: tokens and certificates end by it.
pub(super) fn clock(now: Timestamp) -> Finding {
    if now.as_millis() >= EARLIEST_MS {
        return Finding::ok("clock", format!("{now}"));
    }
    Finding::fail(
        "clock",
        format!("it says {now}"),
        "Set it (timedatectl set-ntp true); tokens and certificates end by it",
    )
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::{super::State, *};

    #[test]
    fn a_kernel_that_holds_less_is_told() {
        for (abi, level, expected) in [
            (0, Level::Project, State::Warn),
            (0, Level::Required, State::Fail),
            (5, Level::Required, State::Fail),
            (5, Level::Project, State::Warn),
            (0, Level::Off, State::Warn),
            (7, Level::Required, State::Ok),
        ] {
            let finding = sandbox(Kernel { abi }, level);
            assert_eq!(finding.state, expected, "{abi} {level}");
            assert_eq!(finding.advice.is_some(), expected != State::Ok);
        }
    }

    #[test]
    fn refused_privileges_fail() {
        assert_eq!(no_new_privileges(false).state, State::Fail);
        assert_eq!(no_new_privileges(try_no_new_privileges()).state, State::Ok);
        assert!(
            !no_new_privs().expect("read"),
            "this thread stays as it was"
        );
    }

    #[test]
    fn paths_that_do_not_go_together_are_told() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("project")).expect("project");
        let look = |wishes: &SandboxArgs, abi| {
            sandbox_paths(wishes, Kernel { abi }, &path("project"), &path("data"))
        };
        let plain = SandboxArgs::default();
        assert_eq!(look(&plain, 7).state, State::Ok);
        let [mut show, mut write, mut hide] = [plain.clone(), plain.clone(), plain];
        show.sandbox_show = vec![path("no-store")];
        write.sandbox_write = vec![path("data")];
        hide.sandbox_hide = vec![path("project")];
        for wishes in [show, write, hide] {
            let finding = look(&wishes, 7);
            assert_eq!(finding.state, State::Fail, "{wishes:?}: {}", finding.line());
            assert_eq!(look(&wishes, 0).state, State::Ok, "nothing is hidden then");
        }
    }

    #[test]
    fn closed_user_namespaces_are_told() {
        let settings = tempfile::tempdir().expect("folder");
        assert_eq!(user_namespaces(settings.path()).state, State::Warn);
        for folder in ["user", "kernel"] {
            fs::create_dir(settings.path().join(folder)).expect("folder");
        }
        fs::write(settings.path().join("user/max_user_namespaces"), "100\n").expect("write");
        assert_eq!(user_namespaces(settings.path()).state, State::Ok);
        let restricted = "kernel/apparmor_restrict_unprivileged_userns";
        fs::write(settings.path().join(restricted), "1\n").expect("write");
        assert_eq!(user_namespaces(settings.path()).state, State::Warn);
    }

    #[test]
    fn a_missing_terminal_or_shell_fails() {
        assert_eq!(terminal(Path::new("/dev/null")).state, State::Fail);
        assert_eq!(terminal(Path::new("/nowhere")).state, State::Fail);
        for bad in ["/nowhere/sh", "/bin/true", "/etc/hostname"] {
            let finding = shell(Path::new(bad));
            assert_eq!(finding.state, State::Fail, "{bad}");
            assert!(finding.detail.contains(bad), "{}", finding.detail);
        }
    }

    #[test]
    fn missing_control_groups_are_told() {
        let told = |there: &[Controller]| {
            let finding = control_groups(there);
            (finding.state, finding.detail)
        };
        let all = told(&Controller::ALL);
        assert_eq!(
            all,
            (
                State::Ok,
                "commands can be limited: memory, pids, cpu".to_owned()
            )
        );
        let some = told(&[Controller::Processes]);
        let detail = "commands can be limited: pids; not: memory, cpu".to_owned();
        assert_eq!(some, (State::Warn, detail));
        assert_eq!(
            told(&[]),
            (State::Warn, "commands cannot be limited".to_owned())
        );
    }

    #[test]
    fn a_clock_that_was_never_set_fails() {
        let unset = Timestamp::from_millis(86_400_000);
        assert_eq!(clock(unset).state, State::Fail);
    }
}
