//! What is read of a command's text, held against real shells: whatever they start is named, or the text is not understood.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// Texts that are made, unless `FUZZ_TEXTS` says another number. Only those that seem to be understood and harmless are run: a
/// small part.
const TEXTS: u32 = 12_000;
/// The program that must not run unnamed.
const SOUGHT: &str = "pwn";
/// Programs that exist. They write their name down, nothing else.
const PROGRAMS: &[&str] = &[SOUGHT, "a", "b", "true", "false", "x"];
const PIECES: &[&str] = &[
    "pwn",
    "pwn",
    "a",
    "b",
    " ",
    "\n",
    ";",
    " ; ",
    "&&",
    "|",
    "(",
    ")",
    "{ ",
    "}",
    "if ",
    "then ",
    "else ",
    "fi",
    "while ",
    "do ",
    "done",
    "case x in ",
    "x)",
    ";;",
    "esac",
    "for i in 1",
    "!",
    "A=1 ",
    ">f ",
    "<<E",
    "\nE\n",
    "$(",
    ")",
    "`",
    "\"",
    "'",
    "\\",
    "\\\n",
    "#",
    "${x:-",
    "}",
    "$((",
    "))",
    "f()",
    "in ",
    "x",
    "$x",
    "x=a",
    "=",
    "<(",
    " ",
    "\"$(",
    ")\"",
    "elif ",
    "true ",
    "until ",
    "false ",
    "&",
    "env ",
    "command ",
    "exec ",
    "time ",
    "sh -c ",
    "$\\\n",
    "[ ",
    "2>f",
    "then",
    "-c",
    "\t",
];

/// A small generator of chances: the same texts each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn separator(&mut self) -> &'static str {
        self.of(&["; ", "\n", " ", " ; "])
    }

    /// A list of commands of some depth.
    fn list(&mut self, depth: usize) -> String {
        let mut text = self.command(depth);
        while self.below(3) == 0 {
            text += self.of(&[" && ", " || ", "; ", "\n", " | ", " & "]);
            text += &self.command(depth);
        }
        text
    }

    fn command(&mut self, depth: usize) -> String {
        let Some(depth) = depth.checked_sub(1) else {
            let simple = [
                "pwn", "a", "true", "a pwn", "A=1 pwn", ">f pwn", "pwn >f", "\"pwn\"", "p\\wn",
                "p\\\nwn", "env pwn",
            ];
            return self.of(&simple).to_owned();
        };
        let inner = self.list(depth);
        let (one, two) = (self.separator(), self.separator());
        match self.below(16) {
            0 => format!("({inner})"),
            1 => format!("{{ {inner}; }}"),
            2 => format!("if {}{one}then {inner}{two}fi", self.list(depth)),
            3 => format!(
                "case x in {} {inner};; esac",
                self.of(&["x)", "(x)", "x|y)", "(esac)", "*)", "(case|in)"])
            ),
            4 => format!("for i in 1{} do {inner}{one}done", self.of(&[";", "\n"])),
            5 => format!("while {}{one}do {inner}; break{two}done", self.list(depth)),
            6 => format!("! {inner}"),
            7 => format!("a $({inner})"),
            8 => format!("a \"`{}`\"", inner.replace(['`', '"'], "")),
            9 => format!("f() {{ {inner}; }}; f"),
            10 => format!("a <<E\n$({inner})\nE\n"),
            11 => format!("a ${{x:-$({inner})}}"),
            12 => format!("A=1 {inner}"),
            13 => format!(">f {inner}"),
            14 => format!("sh -c '{}'", inner.replace('\'', "")),
            _ => format!("x=\"$({inner})\" {}", self.command(0)),
        }
    }

    fn text(&mut self) -> String {
        let mut text = if self.below(4) > 0 {
            self.list(3)
        } else {
            let count = 3 + self.below(8);
            (0..count).map(|_| self.of(PIECES)).collect()
        };
        if self.below(3) == 0 {
            let mut at = self.below(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.insert_str(at, self.of(PIECES));
        }
        text
    }
}

fn programs(directory: &Path) {
    for name in PROGRAMS {
        let path = directory.join(name);
        fs::write(&path, "#!/bin/sh\necho \"${0##*/}\" >>\"$MARK\"\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    }
    for name in ["env", "sh"] {
        std::os::unix::fs::symlink(real(name), directory.join(name)).expect("link");
    }
}

/// A program of the machine.
fn real(name: &str) -> PathBuf {
    let places = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
    let found = places.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is needed"))
}

/// Whether the shell starts the sought program.
fn starts(shell: &str, text: &str, world: &TempDir) -> bool {
    let (mark, here) = (world.path().join("mark"), world.path().join("here"));
    let _before = fs::remove_file(&mark);
    let _before = fs::remove_dir_all(&here);
    fs::create_dir(&here).expect("folder");
    let mut child = Command::new(real("timeout"))
        .args(["-s", "KILL", "2", shell, "-c", text])
        .current_dir(&here)
        .env_clear()
        .env("PATH", world.path().join("bin"))
        .env("MARK", &mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    child.wait().expect("ended");
    fs::read_to_string(&mark).is_ok_and(|started| started.lines().any(|name| name == SOUGHT))
}

#[test]
fn whatever_a_shell_starts_is_named_or_the_text_is_open() {
    let world = tempfile::tempdir().expect("folder");
    fs::create_dir(world.path().join("bin")).expect("folder");
    programs(&world.path().join("bin"));
    assert!(
        starts("/bin/sh", "a; pwn", &world),
        "the programs are found"
    );
    let shells: Vec<&str> = ["/bin/sh", "/bin/bash"]
        .into_iter()
        .filter(|shell| Path::new(shell).exists())
        .collect();
    let texts = std::env::var("FUZZ_TEXTS").ok();
    let texts = texts.map_or(TEXTS, |texts| texts.parse().expect("a number"));
    let (mut chance, mut tried) = (Chance(u64::from(texts)), 0);
    for _ in 0..texts {
        let text = chance.text();
        let seen = postern_policy::Command::read(&text);
        if !seen.understood || seen.programs.contains(SOUGHT) || !text.contains('n') {
            continue;
        }
        tried += 1;
        for shell in &shells {
            assert!(
                !starts(shell, &text, &world),
                "{shell} starts it unseen: {text:?}, seen {seen:?}"
            );
        }
    }
    assert!(
        tried > 50,
        "texts that name it and do not seem to start it: {tried}"
    );
}
