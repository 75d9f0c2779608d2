//! Capabilities that lead around the sandbox. An ordinary user has none of them; a command of root loses them.

use std::io;

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
        set_capabilities,
    },
};

/// Tracing what is not to be traced, disks and memory as raw bytes, devices of any kind, the kernel itself, files by
/// handle instead of path, and everything that hides behind "administration".
const DANGEROUS: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE);

/// Takes them from the calling thread and from whatever it starts.
pub(super) fn drop_dangerous() -> io::Result<()> {
    let held = capabilities(None)?;
    if !held.permitted.intersects(DANGEROUS) && !held.inheritable.intersects(DANGEROUS) {
        return Ok(());
    }
    for capability in DANGEROUS.iter() {
        match remove_capability_from_bounding_set(capability) {
            // A kernel that does not know it has nothing to take away; and who may not change the bound gains nothing
            // from it, since no program adds privileges any more.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let left = CapabilitySets {
        effective: held.effective - DANGEROUS,
        permitted: held.permitted - DANGEROUS,
        inheritable: held.inheritable - DANGEROUS,
    };
    Ok(set_capabilities(None, left)?)
}
