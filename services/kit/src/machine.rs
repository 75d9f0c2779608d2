//! The machine that this process runs on.

use std::{fs, io};

/// Id of the machine's present boot: processes that read the same one share a kernel, and so its devices and process ids.
///
/// # Errors
/// When the kernel does not tell it.
pub fn boot_id() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}
