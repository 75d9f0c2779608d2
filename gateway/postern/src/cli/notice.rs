//! How the owner hears that something waits for him.

use clap::{Args, ValueEnum};

/// How the owner hears that something waits.
#[derive(Args, Debug)]
pub(crate) struct NoticeArgs {
    /// Tell that something waits for you: not at all, by the bell of this terminal, on the desktop by notify-send, or both
    #[arg(long, value_enum, env = "POSTERN_NOTIFY", default_value_t)]
    pub(crate) notify: Notify,
}

/// Ways of telling.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Notify {
    /// Not at all
    #[default]
    Off,
    /// The terminal's bell
    Bell,
    /// A notice on the desktop
    Desktop,
    /// Bell and desktop
    Both,
}

impl Notify {
    pub(crate) const fn bell(self) -> bool {
        matches!(self, Self::Bell | Self::Both)
    }

    pub(crate) const fn desktop(self) -> bool {
        matches!(self, Self::Desktop | Self::Both)
    }
}
