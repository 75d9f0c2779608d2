//! Capabilities that lead around the sandbox. An ordinary user has none of them; a command of root loses them.

use std::io;

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
        set_capabilities,
    },
};

/// What a command of root may keep: to work with files and users as build and packaging scripts do, and to serve a low port.
/// Everything else goes, what a newer kernel may add included: raw sockets show the owner's token on its way over loopback,
/// and most of the rest leads around the sandbox.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Takes them from the calling thread and from whatever it starts.
pub(super) fn drop_dangerous() -> io::Result<()> {
    let held = capabilities(None)?;
    if KEPT.contains(held.permitted) && KEPT.contains(held.inheritable) {
        return Ok(());
    }
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match remove_capability_from_bounding_set(capability) {
            // A kernel that does not know it has nothing to take away; and who may not change the bound gains nothing
            // from it, since no program adds privileges any more.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let left = CapabilitySets {
        effective: held.effective & KEPT,
        permitted: held.permitted & KEPT,
        inheritable: held.inheritable & KEPT,
    };
    Ok(set_capabilities(None, left)?)
}
