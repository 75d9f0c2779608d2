//! Taking the rights.

use std::{error::Error, fmt, io, os::fd::AsFd};

use landlock::{
    Access as _, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

use super::{
    Confinement, calls, capability,
    grants::{self, Grant},
};

/// The sandbox could not be taken; nothing ran.
#[derive(Debug)]
pub(crate) struct Unconfined(pub(crate) i32);

impl fmt::Display for Unconfined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.0);
        write!(formatter, "the sandbox could not be taken: {error}")
    }
}

impl Error for Unconfined {}

/// Confines the calling thread, and whatever it starts, for good. The terminal is the command's own. Tells how many paths
/// beside what is hidden are out of reach, too, at least.
pub(crate) fn confine(confinement: &Confinement, terminal: impl AsFd) -> io::Result<u32> {
    capability::drop_dangerous()?;
    let grants = grants::grants(confinement);
    let status = ruleset(confinement, &grants.all, terminal)?
        .restrict_self()
        .map_err(system)?;
    if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
        return Err(io::ErrorKind::Unsupported.into());
    }
    calls::refuse_dangerous()?;
    Ok(u32::try_from(grants.left_out).unwrap_or(u32::MAX))
}

fn ruleset(
    confinement: &Confinement,
    grants: &[Grant],
    terminal: impl AsFd,
) -> io::Result<RulesetCreated> {
    let abi = grants::abi(confinement);
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .map_err(system)?;
    let scope = Scope::from_all(abi);
    if !scope.is_empty() {
        ruleset = ruleset.scope(scope).map_err(system)?;
    }
    let mut ruleset = ruleset.create().map_err(system)?;
    for grant in grants {
        // What went away meanwhile, or cannot be opened, is not reached either.
        if let Ok(handle) = PathFd::new(&grant.path) {
            let rule = PathBeneath::new(handle, grant.rights);
            ruleset = ruleset.add_rule(rule).map_err(system)?;
        }
    }
    let own = PathBeneath::new(terminal, grants::device_rights(abi));
    ruleset.add_rule(own).map_err(system)
}

/// The error that the system gave, with its number.
fn system(error: RulesetError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        let given = error.downcast_ref::<io::Error>();
        if let Some(number) = given.and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(number);
        }
        cause = error.source();
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use pretty_assertions::assert_eq;
    use rustix::io::Errno;

    use super::*;

    /// A thread can be confined sixteen times.
    #[test]
    fn the_systems_error_number_is_kept() {
        let confinement = Confinement {
            abi: 1,
            project: PathBuf::from("/"),
            temporary: std::env::temp_dir().join("x"),
            write: Vec::new(),
            hidden: Vec::new(),
        };
        let refused = std::thread::spawn(move || {
            let nothing = std::fs::File::open("/dev/null").expect("device");
            (0..17).find_map(|_| confine(&confinement, &nothing).err())
        });
        let refused = refused.join().expect("no panic").expect("refused");
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::TOOBIG));
    }
}
