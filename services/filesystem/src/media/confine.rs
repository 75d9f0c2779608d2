//! What a decoding process takes from itself before it looks at a byte of the file.

use std::io;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use super::Task;

/// Bytes of address space for a document.
const DOCUMENT_MEMORY: u64 = 512 * 1024 * 1024;
/// Bytes of address space for an image: thirty million pixels of four floating-point channels, and their scaled copies.
const PICTURE_MEMORY: u64 = 1024 * 1024 * 1024;
/// Seconds of processor time for a document.
const DOCUMENT_SECONDS: u64 = 5;
/// Seconds of processor time for an image.
const PICTURE_SECONDS: u64 = 10;
/// Open files: the standard three.
const FILES: u64 = 3;

/// Bytes of address space that decoding has.
pub(crate) const fn memory_bytes(task: Task) -> u64 {
    match task {
        Task::Picture => PICTURE_MEMORY,
        Task::Document { .. } => DOCUMENT_MEMORY,
    }
}

/// Limits this process for good: memory and time, no file opened or written, no process started, no privilege gained, no
/// core left behind, and an end with the service that started it.
pub(crate) fn confine(task: Task) -> io::Result<()> {
    let seconds = match task {
        Task::Picture => PICTURE_SECONDS,
        Task::Document { .. } => DOCUMENT_SECONDS,
    };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
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
