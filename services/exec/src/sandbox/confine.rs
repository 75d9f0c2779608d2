//! Taking the rights.

use std::{fmt, io, os::fd::AsFd};

use landlock::{
    Access as _, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};

use super::{Confinement, capability, grants};

/// The sandbox could not be taken; nothing ran.
#[derive(Debug)]
pub(crate) struct Unconfined(pub(crate) i32);

impl fmt::Display for Unconfined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.0);
        write!(formatter, "the sandbox could not be taken: {error}")
    }
}

impl std::error::Error for Unconfined {}

/// Confines the calling thread, and whatever it starts, for good. The terminal is the command's own.
pub(crate) fn confine(confinement: &Confinement, terminal: impl AsFd) -> io::Result<()> {
    capability::drop_dangerous()?;
    let status = ruleset(confinement, terminal)?
        .restrict_self()
        .map_err(io::Error::other)?;
    if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

fn ruleset(confinement: &Confinement, terminal: impl AsFd) -> io::Result<RulesetCreated> {
    let abi = grants::abi(confinement);
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .map_err(io::Error::other)?;
    let scope = Scope::from_all(abi);
    if !scope.is_empty() {
        ruleset = ruleset.scope(scope).map_err(io::Error::other)?;
    }
    let mut ruleset = ruleset.create().map_err(io::Error::other)?;
    for grant in grants::grants(confinement) {
        // What went away meanwhile, or cannot be opened, is not reached either.
        if let Ok(handle) = PathFd::new(&grant.path) {
            let rule = PathBeneath::new(handle, grant.rights);
            ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
        }
    }
    let own = PathBeneath::new(terminal, grants::device_rights(abi));
    ruleset.add_rule(own).map_err(io::Error::other)
}
