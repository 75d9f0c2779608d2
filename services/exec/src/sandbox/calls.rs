//! System calls that Landlock does not see. Limits are set by process id: an ordinary user may take a process of his own
//! its files or its processor time, and so end or cripple the wrapper that watches a command, the worker, or the edge.

use std::{collections::BTreeMap, env::consts::ARCH, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// `setpriority` and `ioprio_set` count every process of a user under these.
const PRIORITY_OF_USER: u64 = libc::PRIO_USER as u64;
const IO_PRIORITY_OF_USER: u64 = 3;
/// Marks a call of the x32 interface, which x86-64 kernels may offer beside their own under the same architecture.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// Takes from the calling thread, and from whatever it starts, what reaches the limits of other processes, or the
/// priorities of all of them. It needs `no_new_privs`. Programs of another architecture end where they use any call.
pub(super) fn refuse_dangerous() -> io::Result<()> {
    apply_filter(&program()?).map_err(io::Error::other)
}

fn program() -> io::Result<BpfProgram> {
    let is = |index: u8, operator, value: u64| {
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]));
        condition.map_err(io::Error::other)
    };
    let another = is(0, SeccompCmpOp::Ne, 0)?;
    let calls = [
        (libc::SYS_prlimit64, another),
        (
            libc::SYS_setpriority,
            is(0, SeccompCmpOp::Eq, PRIORITY_OF_USER)?,
        ),
        (
            libc::SYS_ioprio_set,
            is(0, SeccompCmpOp::Eq, IO_PRIORITY_OF_USER)?,
        ),
    ];
    let mut rules = BTreeMap::new();
    for (call, rule) in calls {
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | X32, vec![rule.clone()]);
        rules.insert(call, vec![rule]);
    }
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = ARCH
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, architecture);
    filter
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_program_for_this_machine() {
        assert!(!program().expect("program").is_empty());
    }
}
