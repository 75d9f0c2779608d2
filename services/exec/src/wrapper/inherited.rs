//! What the wrapper inherited without knowing: handles, and signals that are ignored.

#![expect(
    unsafe_code,
    reason = "handles that were inherited have no owner in this process, so they can only be named by number; and no safe call sets what a signal does"
)]

use std::{fs, io, os::fd::BorrowedFd};

use rustix::io::{FdFlags, fcntl_setfd};

/// Marks every handle but the standard three, so that the command does not get it. What the worker itself opens is marked
/// already; this is for what the worker was started with by others.
pub(super) fn close_on_exec() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number @ 3..) = number {
            // SAFETY: the number comes from the kernel's own list of this process's open handles, and no other thread runs
            // that could close it meanwhile. The one that may be closed by now is the listing's own, which is dropped
            // after the loop. The borrow does not outlive this statement, and only a flag of the handle is changed.
            let handle = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(handle, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Gives signals back what they do by themselves. Whoever was started in the background of a script, or by `nohup`, ignores
/// some, and so would every command: an interrupt that is typed would do nothing, and could not even be trapped.
pub(super) fn default_signals() {
    for number in 1..=libc::SIGSYS {
        // The runtime's own; it is set right for whatever this process starts.
        if number != libc::SIGPIPE {
            // SAFETY: no handler is installed, so nothing runs in a signal's context. The kernel refuses the two that
            // cannot be changed.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
}
