//! What the kernel offers.

use landlock::{AccessFs, LandlockStatus, Ruleset, RulesetAttr as _, RulesetError};

/// One protection, and the version of Landlock's interface that brought it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Protection {
    /// Short name.
    pub name: &'static str,
    /// Interface version.
    pub since_abi: u32,
}

/// In the order in which kernels got them.
const PROTECTIONS: [Protection; 6] = [
    Protection {
        name: "files",
        since_abi: 1,
    },
    Protection {
        name: "truncation",
        since_abi: 3,
    },
    Protection {
        name: "devices",
        since_abi: 5,
    },
    Protection {
        name: "signals",
        since_abi: 6,
    },
    Protection {
        name: "abstract-sockets",
        since_abi: 6,
    },
    Protection {
        name: "path-sockets",
        since_abi: 9,
    },
];

/// What the kernel offers for a sandbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kernel {
    /// Version of Landlock's interface; 0 without Landlock.
    pub abi: u32,
}

impl Kernel {
    /// Asks the kernel, by confining a thread that then ends: a version that is told but refused counts as none.
    #[must_use]
    pub fn probe() -> Self {
        let confined = std::thread::Builder::new()
            .name("sandbox probe".to_owned())
            .spawn(|| -> Result<LandlockStatus, RulesetError> {
                let ruleset = Ruleset::default()
                    .handle_access(AccessFs::Execute)?
                    .create()?;
                Ok(ruleset.restrict_self()?.landlock)
            })
            .map(std::thread::JoinHandle::join);
        match confined {
            Ok(Ok(Ok(LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            }))) => {
                let abi = kernel_abi.unwrap_or(effective_abi as i32);
                Self {
                    abi: u32::try_from(abi).unwrap_or(0),
                }
            }
            _ => Self { abi: 0 },
        }
    }

    /// Protections that this kernel does not have.
    #[must_use]
    pub fn missing(self) -> Vec<Protection> {
        PROTECTIONS
            .into_iter()
            .filter(|protection| protection.since_abi > self.abi)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn what_is_missing_follows_from_the_version() {
        let names = |abi| -> Vec<&str> {
            let missing = Kernel { abi }.missing();
            missing.into_iter().map(|missing| missing.name).collect()
        };
        assert_eq!(names(0).len(), PROTECTIONS.len());
        assert_eq!(names(5), ["signals", "abstract-sockets", "path-sockets"]);
        assert_eq!(names(9), [""; 0]);
    }

    #[test]
    fn a_probe_leaves_this_thread_free() {
        let kernel = Kernel::probe();
        assert!(kernel.abi > 0, "the tests need Landlock");
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
        assert!(status.contains("NoNewPrivs:\t0"), "{status}");
        std::process::Command::new("/bin/true")
            .status()
            .expect("executed");
    }
}
