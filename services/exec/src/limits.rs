//! What one command may take of the machine, by control groups: memory, processes and processor time.
//!
//! A limit that was asked for and cannot be kept is refused when the worker is opened, not left out.

mod groups;

use std::io;

pub(crate) use groups::{Entrance, Group, Groups};

use crate::Error;

/// Limits of one command with everything that it starts. None of them by default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Memory in bytes, files that it has in the page cache included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Thousandths of one processor.
    pub millicpus: Option<u32>,
}

/// A resource that a control group limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processes.
    Processes,
    /// Processor time.
    Cpu,
}

/// A limit that a command ran into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reached {
    Memory,
    Processes,
}

impl Controller {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Processes, Self::Cpu];

    /// The kernel's name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// Whether limits of it can be set from here.
    #[must_use]
    pub fn is_there(self) -> bool {
        groups::is_there(self)
    }
}

impl Limits {
    /// The resources that are limited.
    pub(crate) fn controllers(self) -> Vec<Controller> {
        let wanted = |controller: &Controller| match controller {
            Controller::Memory => self.memory_bytes.is_some(),
            Controller::Processes => self.processes.is_some(),
            Controller::Cpu => self.millicpus.is_some(),
        };
        Controller::ALL.into_iter().filter(wanted).collect()
    }

    /// What keeps them; nothing when there are none.
    pub(crate) fn groups(self) -> Result<Option<Groups>, Error> {
        if self == Self::default() {
            return Ok(None);
        }
        Groups::open(self).map(Some).map_err(|error| {
            let names: Vec<_> = self.controllers().iter().map(|it| it.name()).collect();
            Error::Limits(names.join(", "), error)
        })
    }
}

impl Reached {
    /// What is added to the command's output.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::Memory => {
                "\npostern: the command reached its limit of memory, so processes of it were killed\n"
            }
            Self::Processes => {
                "\npostern: the command reached its limit of processes, so some were not started\n"
            }
        }
    }
}

/// What is missing for limits, as the error of opening them.
fn missing(controller: Controller) -> io::Error {
    let name = controller.name();
    io::Error::other(format!(
        "this process has no control group in which it can limit '{name}'"
    ))
}
