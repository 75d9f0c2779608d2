//! Handles that a decoding process inherited without knowing.

#![expect(
    unsafe_code,
    reason = "handles that were inherited have no owner in this process, so they can only be closed by number"
)]

use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
};

use rustix::fs::{Dir, Mode, OFlags, open};

/// Closes every handle but the standard three. What the service itself opens does not come here; this is for what the service
/// was started with by others. Called before this process has started a thread or opened anything.
pub(super) fn close() -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = open("/proc/self/fd", flags, Mode::empty())?;
    let own = listing.as_raw_fd();
    let mut inherited: Vec<RawFd> = Vec::new();
    for entry in Dir::new(listing)? {
        let entry = entry?;
        let number: Option<RawFd> = entry
            .file_name()
            .to_str()
            .ok()
            .and_then(|name| name.parse().ok());
        inherited.extend(number.filter(|number| *number > 2 && *number != own));
    }
    for number in inherited {
        // SAFETY: the numbers come from the kernel's own list of this process's open handles, without the listing's own, and
        // nothing else in this process has opened any, so none of them has an owner. No other thread runs that could have
        // closed one meanwhile.
        unsafe { rustix::io::close(number) };
    }
    Ok(())
}
