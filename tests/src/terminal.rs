//! A terminal in which the binary under test runs: what it shows, and what is typed.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};
use tokio::process::{Child, Command};

use crate::{process, program::Ended, wait_for};

/// Columns and rows of a new terminal.
const SIZE: (u16, u16) = (100, 30);
/// For something to appear that needs a process to start or an edge to answer.
const SHOW_LIMIT: Duration = Duration::from_secs(30);

/// Where a program's standard error goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Complaints {
    File,
    Screen,
}

/// A program in a terminal of its own. Dropping it kills the program and hangs up.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    pid: i32,
    /// What types; taken at a hang-up.
    keyboard: File,
    /// The program's side, kept to ask for its settings.
    line: OwnedFd,
    screen: Arc<Mutex<Screen>>,
    stderr: PathBuf,
}

impl Terminal {
    /// Starts a program whose terminal this becomes, and whose complaints go to a file.
    pub(crate) fn start(command: Command, stderr: PathBuf) -> Self {
        Self::begin(command, stderr, Complaints::File)
    }

    /// Starts a program whose terminal this becomes, its complaints included.
    pub(crate) fn start_whole(command: Command, stderr: PathBuf) -> Self {
        Self::begin(command, stderr, Complaints::Screen)
    }

    fn begin(mut command: Command, stderr: PathBuf, complaints: Complaints) -> Self {
        let ends = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(ends).expect("a pseudo-terminal");
        grantpt(&keyboard).expect("granted");
        unlockpt(&keyboard).expect("unlocked");
        let line = ioctl_tiocgptpeer(&keyboard, ends).expect("the other side");
        resize(&line, SIZE);
        let end = || Stdio::from(line.try_clone().expect("a descriptor"));
        if complaints == Complaints::Screen {
            command.stderr(end());
        }
        let child = command.stdin(end()).stdout(end()).spawn();
        let child = child.expect("the binary under test starts");
        let screen = Arc::new(Mutex::new(Screen::new(SIZE)));
        let keyboard = File::from(keyboard);
        let mut reader = keyboard.try_clone().expect("a descriptor");
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // The read fails once nobody has the program's side any more.
            while let Ok(length @ 1..) = reader.read(&mut piece) {
                lock(&shown).take_in(&piece[..length]);
            }
        });
        Self {
            pid: i32::try_from(child.id().expect("it has just started")).expect("a process id"),
            child,
            keyboard,
            line,
            screen,
            stderr,
        }
    }

    /// Types keys.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn type_keys(&self, keys: &str) {
        let typed = (&self.keyboard).write_all(keys.as_bytes());
        typed.expect("the terminal takes keys");
    }

    /// What is on the screen, a line a row.
    #[must_use]
    pub fn text(&self) -> String {
        lock(&self.screen).text()
    }

    /// Whether the screen that scrolls is put away.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        lock(&self.screen).taken
    }

    /// Everything that was ever written to the terminal.
    #[must_use]
    pub fn written(&self) -> Vec<u8> {
        lock(&self.screen).written.clone()
    }

    /// Waits until the screen shows `part`.
    ///
    /// # Panics
    /// When it does not within half a minute.
    pub async fn shows(&self, part: &str) {
        let what = format!("`{part}` on the screen");
        let waited = wait_for(&what, SHOW_LIMIT, || async {
            self.text().contains(part).then_some(())
        });
        if tokio::time::timeout(SHOW_LIMIT / 2, waited).await.is_err() {
            let stderr = std::fs::read_to_string(&self.stderr).unwrap_or_default();
            panic!("no `{part}` on the screen:\n{}\n{stderr}", self.text());
        }
    }

    /// Makes the window so many columns wide and rows high.
    pub fn resize(&self, columns: u16, rows: u16) {
        lock(&self.screen).resize((columns, rows));
        resize(&self.line, (columns, rows));
    }

    /// The terminal's settings.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn settings(&self) -> Termios {
        tcgetattr(&self.line).expect("a terminal's settings")
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid, signal);
    }

    /// Waits for the end of the program, at most `limit`.
    ///
    /// # Panics
    /// When it is still running then.
    pub async fn ended(&mut self, limit: Duration) -> Ended {
        let status = tokio::time::timeout(limit, self.child.wait()).await;
        let Ok(status) = status else {
            panic!("still running after {limit:?}:\n{}", self.text());
        };
        Ended {
            code: status.expect("a child can be waited for").code(),
            stdout: self.text(),
            stderr: std::fs::read_to_string(&self.stderr).unwrap_or_default(),
        }
    }
}

fn resize(line: &OwnedFd, (columns, rows): (u16, u16)) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(line, size).expect("a terminal has a size");
}

fn lock(screen: &Mutex<Screen>) -> std::sync::MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As much of a terminal as is needed to see what a program that draws on all of it shows (ECMA-48: cursor position, erasure).
#[derive(Debug)]
struct Screen {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    taken: bool,
    /// What came and is not a whole character or sequence yet.
    rest: Vec<u8>,
    written: Vec<u8>,
}

impl Screen {
    fn new(size: (u16, u16)) -> Self {
        let mut screen = Self {
            cells: Vec::new(),
            row: 0,
            column: 0,
            taken: false,
            rest: Vec::new(),
            written: Vec::new(),
        };
        screen.resize(size);
        screen
    }

    fn resize(&mut self, (columns, rows): (u16, u16)) {
        self.cells = vec![vec![' '; columns.into()]; rows.into()];
    }

    fn text(&self) -> String {
        let rows = self.cells.iter().map(|row| row.iter().collect::<String>());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    fn take_in(&mut self, piece: &[u8]) {
        self.written.extend(piece);
        self.rest.extend(piece);
        let bytes = std::mem::take(&mut self.rest);
        let whole = match std::str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            Err(problem) => problem.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
        let mut left = text.as_str();
        while let Some(c) = left.chars().next() {
            match c {
                '\u{1b}' => match self.sequence(left) {
                    Some(length) => left = &left[length..],
                    None => break,
                },
                _ => {
                    self.put(c);
                    left = &left[c.len_utf8()..];
                }
            }
        }
        self.rest = [left.as_bytes(), &bytes[whole..]].concat();
    }

    /// Does what a sequence says; its length, or `None` while it is not whole.
    fn sequence(&mut self, text: &str) -> Option<usize> {
        let Some(body) = text.strip_prefix("\u{1b}[") else {
            return (text.len() > 1).then_some(2);
        };
        let end = body.find(|c: char| ('@'..='~').contains(&c))?;
        let (parameters, last) = (&body[..end], &body[end..=end]);
        let number = |index: usize| {
            let part = parameters.split(';').nth(index);
            part.and_then(|part| part.parse::<usize>().ok())
        };
        match (last, parameters) {
            ("H", _) => {
                let place = |index| number(index).unwrap_or(1).saturating_sub(1);
                (self.row, self.column) = (place(0), place(1));
            }
            ("J", _) => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            ("h", "?1049") => self.taken = true,
            ("l", "?1049") => self.taken = false,
            _ => {}
        }
        Some("\u{1b}[".len() + end + 1)
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => self.column = 0,
            '\n' => self.row += 1,
            c => {
                let row = self.cells.get_mut(self.row);
                if let Some(cell) = row.and_then(|row| row.get_mut(self.column)) {
                    *cell = c;
                }
                self.column += 1;
            }
        }
    }
}
