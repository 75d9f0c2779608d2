//! What a decoding process takes from itself before it looks at a byte of the file.

use std::io;

use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, Scope};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use super::{Task, inherited};

/// Bytes of address space for a document.
const DOCUMENT_MEMORY: u64 = 512 * 1024 * 1024;
/// Bytes of address space for an image: thirty million pixels of four floating-point channels, and their scaled copies.
const PICTURE_MEMORY: u64 = 1024 * 1024 * 1024;
/// Seconds of processor time for a document.
const DOCUMENT_SECONDS: u64 = 5;
/// Seconds of processor time for an image.
const PICTURE_SECONDS: u64 = 10;
/// Handles that can be opened: none, not even in the place of one that was closed. Those that are open go on working.
const FILES: u64 = 0;
/// Newest Landlock interface that is known here; an older kernel gives what it has.
const LANDLOCK: ABI = ABI::V9;

/// Bytes of address space that decoding has.
pub(crate) const fn memory_bytes(task: Task) -> u64 {
    match task {
        Task::Picture => PICTURE_MEMORY,
        Task::Document { .. } => DOCUMENT_MEMORY,
    }
}

/// Limits this process for good: memory and time, no file opened or written, no program started, no privilege gained, no
/// core left behind, and an end with the service that started it. It has three handles: its input, its output, and nothing.
///
/// The limit on processes does not bind root, nor do modes of files; where the kernel has Landlock, it does.
pub(crate) fn confine(task: Task) -> io::Result<()> {
    let seconds = match task {
        Task::Picture => PICTURE_SECONDS,
        Task::Document { .. } => DOCUMENT_SECONDS,
    };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Before the process is no longer its own to look at.
    inherited::close()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    // Before no handle can be opened: the rules are one for a moment.
    deny_everything()?;
    for (resource, limit) in [
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
        (Resource::Nofile, FILES),
        (Resource::Cpu, seconds),
        (Resource::As, memory_bytes(task)),
    ] {
        lower(resource, limit)?;
    }
    Ok(())
}

/// Takes every right that Landlock knows and grants none: no path is read, written, run or connected to, no port is reached, and
/// no process outside is signalled. A kernel that has less of it, or none, takes less; the limits hold all the same.
fn deny_everything() -> io::Result<()> {
    let rules = || -> Result<_, landlock::RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .restrict_self()
    };
    rules().map(|_| ()).map_err(io::Error::other)
}

/// Sets a limit, or keeps the one that is lower already.
fn lower(resource: Resource, limit: u64) -> io::Result<()> {
    let present = getrlimit(resource);
    let limit = present.maximum.map_or(limit, |maximum| maximum.min(limit));
    let limits = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    Ok(setrlimit(resource, limits)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{ErrorKind, pipe},
        os::unix::process::CommandExt as _,
        process::{Command, exit},
    };

    use pretty_assertions::assert_eq;
    use rustix::{
        io::{Errno, dup, ioctl_fionbio, read},
        stdio::{dup2_stderr, dup2_stdin, stderr, stdin},
    };

    use super::*;

    /// Not a test: the process that is confined, and then does what one does whose decoder was taken over.
    #[test]
    #[ignore = "run by the other test"]
    fn confined_and_taken_over() {
        let mark = std::env::var_os("MARK").expect("a path");
        let (reader, writer) = pipe().expect("pipe");
        ioctl_fionbio(&reader, true).expect("not blocking");
        dup2_stdin(&reader).expect("input");
        drop(reader);
        assert_eq!(read(stdin(), &mut [0; 1]), Err(Errno::AGAIN));
        // As if whoever started the service had left it open.
        std::mem::forget(writer);
        let lives = landlock::Ruleset::default()
            .handle_access(AccessFs::Execute)
            .and_then(Ruleset::create)
            .is_ok_and(|rules| Option::<std::os::fd::OwnedFd>::from(rules).is_some());
        confine(Task::Picture).expect("confined");

        assert_eq!(
            read(stdin(), &mut [0; 1]),
            Ok(0),
            "the other end is closed: nobody holds it"
        );
        File::open("/etc/passwd").expect_err("no file is opened");
        assert_eq!(dup(stderr()).err(), Some(Errno::MFILE));
        assert_eq!(
            dup2_stderr(stdin()),
            Err(Errno::BADF),
            "nor in the place of another"
        );
        if lives {
            let denied = Some(ErrorKind::PermissionDenied);
            let kind = |result: io::Result<()>| result.err().map(|problem| problem.kind());
            assert_eq!(kind(std::fs::remove_file(mark)), denied);
            assert_eq!(kind(Err(Command::new("/bin/true").exec())), denied);
            eprintln!("held by Landlock");
        }
        eprintln!("held");
        // Handles of this test program were closed with the others.
        exit(0);
    }

    #[test]
    fn who_takes_a_decoder_over_reaches_nothing() {
        let folder = tempfile::tempdir().expect("folder");
        let mark = folder.path().join("mark");
        std::fs::write(&mark, "").expect("written");
        let child = "media::confine::tests::confined_and_taken_over";
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "--nocapture", child])
            .env("MARK", &mark)
            .output()
            .expect("run");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("held"), "{told}");
        assert!(mark.exists());
    }
}
