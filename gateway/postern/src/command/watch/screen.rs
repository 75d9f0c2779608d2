//! The terminal: taken whole, and given back as it was, whatever ends the view.

use std::{
    io::{self, IsTerminal as _, stdin, stdout},
    panic, thread,
};

use ratatui::{
    DefaultTerminal, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{DisableBracketedPaste, EnableBracketedPaste},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::Error;

/// The terminal in the view's hands. Dropped, it is as it was.
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
    /// Gives the terminal back even if the rest of the start fails.
    _taken: Taken,
}

struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Refuses to draw on what is no terminal.
pub(super) fn demand_terminal() -> Result<(), Error> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Error::Usage(
            "`postern watch` draws on a terminal, and its input or output is none; use `postern inbox` and `postern receipts list`"
                .to_owned(),
        ));
    }
    Ok(())
}

impl Screen {
    /// Takes the terminal. A panic gives it back before it says anything.
    pub(super) fn take() -> Result<Self, Error> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let failed = |problem: io::Error| Error::failed("cannot draw on this terminal", problem);
        let taken = Taken;
        enable_raw_mode().map_err(failed)?;
        // Pasted text comes as such, so that none of it is taken for keys.
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste).map_err(failed)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(failed)?;
        Ok(Self {
            terminal,
            _taken: taken,
        })
    }
}

/// A terminal that is gone has nothing to be given back.
fn give_back() {
    let _ = execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Calls `told` at the first signal that asks the process to end.
pub(super) fn on_signal(told: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let failed = |problem| Error::failed("cannot listen for signals", problem);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let mut signals = {
        let _here = runtime.enter();
        let listen = |kind| signal(kind).map_err(failed);
        (
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        )
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = signals.0.recv() => {}
                _ = signals.1.recv() => {}
                _ = signals.2.recv() => {}
            }
        });
        told();
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map(drop)
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Read as _,
        os::fd::OwnedFd,
        process::{Command, Stdio},
    };

    use pretty_assertions::assert_eq;
    use rustix::{
        pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
        termios::{Winsize, tcgetattr, tcsetwinsize},
    };

    use super::*;

    /// What the panic says.
    const SAID: &str = "on purpose";

    #[test]
    #[ignore = "ends in a panic: another test runs it in a terminal"]
    fn panics_on_a_terminal() {
        let _screen = Screen::take().expect("a terminal");
        panic!("{SAID}");
    }

    fn settings(line: &OwnedFd) -> String {
        format!("{:?}", tcgetattr(line).expect("settings"))
    }

    #[test]
    fn a_panic_is_told_on_a_terminal_that_is_as_it_was() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).expect("a pseudo-terminal");
        grantpt(&screen).expect("granted");
        unlockpt(&screen).expect("unlocked");
        let line = ioctl_tiocgptpeer(&screen, flags).expect("the other side");
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&line, size).expect("a size");
        let before = settings(&line);
        let end = || Stdio::from(line.try_clone().expect("a descriptor"));
        let name = "command::watch::screen::tests::panics_on_a_terminal";
        let ended = Command::new(std::env::current_exe().expect("a test knows its executable"))
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env("RUST_BACKTRACE", "0")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .status();
        assert_eq!(ended.expect("it runs").code(), Some(101));
        assert_eq!(settings(&line), before);
        drop(line);
        let mut written = Vec::new();
        // Once nobody has the other side any more, what is left is read, and then the read fails.
        let _ = File::from(screen).read_to_end(&mut written);
        let written = String::from_utf8_lossy(&written);
        let place = |part: &str| written.find(part).unwrap_or_else(|| panic!("{written:?}"));
        assert!(
            place("\u{1b}[?1049h") < place("\u{1b}[?1049l"),
            "{written:?}"
        );
        assert!(place("\u{1b}[?1049l") < place(SAID), "{written:?}");
    }
}
