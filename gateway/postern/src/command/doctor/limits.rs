//! How much this process may have.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Finding;

/// Processes below which nothing works: this program's threads and a few commands.
const FEWEST_PROCESSES: u64 = 64;
/// Processes below which builds and tests in commands fail.
const FEW_PROCESSES: u64 = 1024;
/// Handles that a worker needs for its default capacity: seven a command, and some for itself.
const HANDLES: u64 = 1024;

/// Limits of the number of processes; `None` when there is none or it is not told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Of this user (`ulimit -u`).
    user: Option<u64>,
    /// Of the whole machine.
    machine: Option<u64>,
    /// Of this process's control group and those around it.
    group: Option<u64>,
}

impl Found {
    pub(super) fn on_this_machine() -> Self {
        Self {
            user: getrlimit(Resource::Nproc).current,
            machine: number("/proc/sys/kernel/pid_max"),
            group: groups()
                .iter()
                .filter_map(|group| number(&format!("{group}/pids.max")))
                .min(),
        }
    }
}

/// The directories that limit this process, of both versions of control groups, from its own group upwards.
fn groups() -> Vec<String> {
    let told = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut groups = Vec::new();
    for line in told.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(mut path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let top = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|name| name == "pids") => "/sys/fs/cgroup/pids",
            _ => continue,
        };
        loop {
            groups.push(format!("{top}{path}"));
            match path.rsplit_once('/') {
                Some((above, _)) if !path.is_empty() => path = above,
                _ => break,
            }
        }
    }
    groups
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether there is room for the processes of commands.
pub(super) fn processes(found: Found) -> Finding {
    const CHECK: &str = "processes";
    let limits = [
        (found.user, "this user", "raise 'ulimit -u'"),
        (
            found.machine,
            "the machine",
            "raise /proc/sys/kernel/pid_max",
        ),
        (
            found.group,
            "the control group",
            "raise its pids.max, or the container's --pids-limit",
        ),
    ];
    let least = limits
        .into_iter()
        .filter_map(|(limit, whose, advice)| Some((limit?, whose, advice)))
        .min();
    let Some((limit, whose, advice)) = least else {
        return Finding::ok(CHECK, "without limit");
    };
    let detail = format!("{limit} at most, by {whose}");
    let advice = format!("Builds and tests in commands need more; {advice}");
    if limit < FEWEST_PROCESSES {
        Finding::fail(CHECK, detail, advice)
    } else if limit < FEW_PROCESSES {
        Finding::warn(CHECK, detail, advice)
    } else {
        Finding::ok(CHECK, detail)
    }
}

/// Handles that a process may have open; `None` without limit.
pub(super) fn handles_allowed() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Whether a worker can run as many commands as it takes by default.
pub(super) fn handles(allowed: Option<u64>) -> Finding {
    const CHECK: &str = "handles";
    match allowed {
        None => Finding::ok(CHECK, "without limit"),
        Some(allowed) if allowed >= HANDLES => Finding::ok(CHECK, format!("{allowed} a process")),
        Some(allowed) => Finding::warn(
            CHECK,
            format!("{allowed} a process"),
            format!("Raise 'ulimit -n' to {HANDLES}, or commands are refused before there are 64"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::{super::State, *};

    #[test]
    fn little_room_for_processes_is_told() {
        let found = |user, machine, group| Found {
            user,
            machine,
            group,
        };
        for (found, expected, part) in [
            (found(None, None, None), State::Ok, "without"),
            (
                found(Some(20), Some(32_768), None),
                State::Fail,
                "this user",
            ),
            (
                found(None, Some(32_768), Some(100)),
                State::Warn,
                "the control group",
            ),
            (
                found(Some(60_000), Some(32_768), None),
                State::Ok,
                "the machine",
            ),
        ] {
            let finding = processes(found);
            assert_eq!(finding.state, expected, "{found:?}");
            assert!(finding.detail.contains(part), "{}", finding.detail);
        }
    }

    #[test]
    fn few_handles_are_told() {
        assert_eq!(handles(Some(256)).state, State::Warn);
        assert_eq!(handles(Some(1024)).state, State::Ok);
        assert_eq!(handles(None).state, State::Ok);
    }

    #[test]
    fn the_own_groups_are_followed_upwards() {
        assert!(
            groups()
                .iter()
                .all(|group| group.starts_with("/sys/fs/cgroup"))
        );
    }
}
