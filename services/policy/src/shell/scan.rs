//! Commands: which word is a program's name, and what is redirected.

use std::collections::BTreeSet;

use super::{
    Script,
    word::{Reader, Word, quoted, word as read_word},
};

/// Programs that start what their arguments name. Each argument of theirs counts as a name.
const STARTERS: &[&str] = &[
    "builtin", "busybox", "chroot", "command", "coproc", "doas", "env", "exec", "flock", "ionice",
    "nice", "nohup", "nsenter", "parallel", "pkexec", "runuser", "script", "setpriv", "setsid",
    "stdbuf", "strace", "su", "sudo", "taskset", "time", "timeout", "toybox", "unshare", "watch",
    "xargs",
];
/// Shells, which run the text that follows `-c`.
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];
/// Arguments of `find` after which a program's name comes.
const FIND_STARTS: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// Built-ins that run text which nobody can know beforehand.
const OPAQUE: &[&str] = &["alias", "eval", "trap"];
/// Keywords after which a command comes.
const OPENING: &[&str] = &[
    "!", "do", "elif", "else", "if", "then", "until", "while", "{",
];
/// Keywords after which no command comes before the next operator.
const CLOSING: &[&str] = &["done", "fi", "}"];

/// Where a list of commands ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Text,
    Parenthesis,
}

/// What the next word is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// A program, a keyword or an assignment.
    Command,
    /// An argument that means nothing here.
    Argument,
    /// An argument that may be a program.
    Started,
    /// Arguments of a shell, before its `-c` and after.
    Shell,
    ShellText,
    /// Arguments of `find`.
    Find,
    /// The variable of `for`, and what comes after it.
    For,
    ForList,
    /// The word of `case` and its `in`, and a pattern.
    Case,
    Pattern,
}

/// What is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Open {
    Subshell,
    Case,
}

/// A here-document whose body comes after the line.
#[derive(Debug)]
struct Here {
    delimiter: String,
    strips_tabs: bool,
    is_literal: bool,
}

/// Reads a text of its own.
pub(super) fn whole(text: &str, script: &mut Script, depth: usize) {
    inner(&mut Reader::new(text), script, depth, End::Text);
}

/// Reads commands up to `end`, which is taken.
pub(super) fn inner(reader: &mut Reader<'_>, script: &mut Script, depth: usize, end: End) {
    let Some(depth) = depth.checked_sub(1) else {
        script.is_open = true;
        return;
    };
    let mut list = List {
        reader,
        script,
        depth,
        place: Place::Command,
        heres: Vec::new(),
        open: Vec::new(),
    };
    list.run(end);
}

struct List<'r, 'a> {
    reader: &'r mut Reader<'a>,
    script: &'r mut Script,
    depth: usize,
    place: Place,
    heres: Vec<Here>,
    open: Vec<Open>,
}

impl List<'_, '_> {
    fn run(&mut self, end: End) {
        while let Some(byte) = self.reader.peek() {
            match byte {
                b' ' | b'\t' => self.reader.skip_blanks(),
                b'\\' if self.reader.take("\\\n") => {}
                b'\n' => {
                    self.reader.next();
                    self.bodies();
                    self.next_command();
                }
                b'#' => self.reader.skip_comment(),
                b';' => {
                    let ends_case = [";;&", ";;", ";&"]
                        .iter()
                        .any(|operator| self.reader.take(operator));
                    if ends_case && self.open.last() == Some(&Open::Case) {
                        self.place = Place::Pattern;
                    } else {
                        self.reader.take(";");
                        self.next_command();
                    }
                }
                b'&' | b'|' => {
                    self.reader.next();
                    self.next_command();
                }
                b'(' => self.opened(),
                b')' => {
                    self.reader.next();
                    if self.place == Place::Pattern {
                        self.place = Place::Command;
                    } else if self.open.last() == Some(&Open::Subshell) {
                        self.open.pop();
                        self.place = Place::Argument;
                    } else if end == End::Parenthesis && self.open.is_empty() {
                        self.script.is_open |= !self.heres.is_empty();
                        return;
                    } else {
                        self.script.is_open = true;
                        self.place = Place::Command;
                    }
                }
                b'<' | b'>' => self.redirection(),
                _ => {
                    let word = read_word(self.reader, self.script, self.depth);
                    self.word(&word);
                }
            }
        }
        let is_unfinished = end == End::Parenthesis || !self.open.is_empty();
        self.script.is_open |= is_unfinished || !self.heres.is_empty();
    }

    /// After an operator: a command, but where a pattern is looked for.
    fn next_command(&mut self) {
        if !matches!(self.place, Place::Case | Place::Pattern) {
            self.place = Place::Command;
        }
    }

    fn opened(&mut self) {
        self.reader.next();
        if self.place == Place::Pattern {
            return;
        }
        if self.place != Place::Command {
            self.reader.skip_blanks();
            if self.reader.take(")") {
                // A function: what it runs follows, and its name counts as a program where it is called.
                self.place = Place::Command;
                return;
            }
            // An array, or an error. What stands inside is read as commands, so nothing is missed.
            self.script.is_open = true;
        }
        self.place = Place::Command;
        self.open.push(Open::Subshell);
    }

    fn word(&mut self, word: &Word) {
        if word.is_absent() {
            return;
        }
        // The number of a descriptor belongs to the redirection after it.
        if matches!(self.reader.peek(), Some(b'<' | b'>'))
            && !word.is_quoted()
            && !word.is_expanded
            && word.text.bytes().all(|byte| byte.is_ascii_digit())
        {
            return;
        }
        match self.place {
            Place::Command => self.command(word),
            Place::Argument => {}
            Place::Started => self.started(word),
            Place::Shell => {
                let is_option = word.text.starts_with(['-', '+']);
                if word.literal().is_none() {
                    self.script.is_open = true;
                } else if is_option && !word.text.starts_with("--") && word.text.contains('c') {
                    self.place = Place::ShellText;
                }
            }
            Place::ShellText => {
                // More options may come between `-c` and the text.
                if word.literal().is_none() {
                    self.script.is_open = true;
                } else if !word.text.starts_with('-') {
                    whole(&word.text, self.script, self.depth);
                    self.place = Place::Argument;
                }
            }
            Place::Find => {
                if FIND_STARTS.contains(&word.text.as_str()) {
                    self.place = Place::Started;
                } else {
                    self.script.is_open |= word.is_expanded;
                }
            }
            Place::For => self.place = Place::ForList,
            Place::ForList => {
                self.place = match word.text.as_str() {
                    "do" => Place::Command,
                    _ => Place::Argument,
                }
            }
            Place::Case => {
                if word.text == "in" && !word.is_quoted() {
                    self.place = Place::Pattern;
                }
            }
            Place::Pattern => {
                if word.text == "esac" && !word.is_quoted() {
                    self.open.pop();
                    self.place = Place::Argument;
                }
            }
        }
    }

    /// A word where a command starts.
    fn command(&mut self, word: &Word) {
        let text = word.text.as_str();
        if !word.is_quoted() && !word.is_expanded {
            if OPENING.contains(&text) {
                return;
            }
            match text {
                "for" | "select" => {
                    self.place = Place::For;
                    return;
                }
                "case" => {
                    self.open.push(Open::Case);
                    self.place = Place::Case;
                    // The word itself may be anything, even "in".
                    self.reader.skip_blanks();
                    let _subject = read_word(self.reader, self.script, self.depth);
                    return;
                }
                "esac" if self.open.last() == Some(&Open::Case) => {
                    self.open.pop();
                    self.place = Place::Argument;
                    return;
                }
                "function" => self.script.is_open = true,
                _ if CLOSING.contains(&text) => {
                    self.place = Place::Argument;
                    return;
                }
                _ => {}
            }
        }
        if word.is_assignment() {
            return;
        }
        self.name(word);
    }

    /// An argument that a program may start.
    fn started(&mut self, word: &Word) {
        if word.text.starts_with('-') || word.is_assignment() {
            // `env -S 'a b'` and the like hold a command in one word.
            self.script.is_open |= word.is_expanded || word.text.contains(char::is_whitespace);
            return;
        }
        self.name(word);
        // The words after it may be names as well: how many options come first, each program knows for itself.
        if self.place == Place::Argument {
            self.place = Place::Started;
        }
    }

    fn name(&mut self, word: &Word) {
        let Some(text) = word.literal() else {
            // An expanded argument after a name that was found says nothing new.
            self.script.is_open = true;
            self.place = Place::Argument;
            return;
        };
        self.script.program(text);
        let name = text.rsplit('/').next().unwrap_or(text);
        self.script.is_open |= OPAQUE.contains(&name) || text.contains(char::is_whitespace);
        self.place = match name {
            "find" => Place::Find,
            _ if SHELLS.contains(&name) => Place::Shell,
            _ if STARTERS.contains(&name) => Place::Started,
            _ => Place::Argument,
        };
    }

    fn redirection(&mut self) {
        let reader = &mut *self.reader;
        if reader.take("<<<") {
            let _text = self.target();
        } else if reader.take("<<") {
            let strips_tabs = reader.take("-");
            let delimiter = self.target();
            self.script.is_open |= delimiter.is_expanded;
            self.heres.push(Here {
                is_literal: delimiter.is_quoted(),
                delimiter: delimiter.text,
                strips_tabs,
            });
        } else if reader.take("<(") || reader.take(">(") {
            inner(self.reader, self.script, self.depth, End::Parenthesis);
        } else if reader.take("<&") || reader.take(">&") {
            let target = self.target();
            if !target
                .text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-')
            {
                self.file(&target, |script| &mut script.writes);
            }
            self.script.is_open |= target.is_expanded;
        } else if reader.take("<>") || reader.take(">>") || reader.take(">|") || reader.take(">") {
            let target = self.target();
            self.file(&target, |script| &mut script.writes);
        } else {
            reader.take("<");
            let target = self.target();
            self.file(&target, |script| &mut script.reads);
        }
    }

    fn target(&mut self) -> Word {
        self.reader.skip_blanks();
        let target = read_word(self.reader, self.script, self.depth);
        self.script.is_open |= target.is_absent();
        target
    }

    fn file(&mut self, target: &Word, into: fn(&mut Script) -> &mut BTreeSet<String>) {
        match target.literal() {
            Some(text) => self.script.keep(text, into),
            None => self.script.is_open = true,
        }
    }

    /// The bodies of the here-documents that the line before announced.
    fn bodies(&mut self) {
        for here in std::mem::take(&mut self.heres) {
            let mut body = String::new();
            loop {
                let Some(line) = self.reader.line() else {
                    self.script.is_open = true;
                    break;
                };
                let line = if here.strips_tabs {
                    line.trim_start_matches('\t')
                } else {
                    line
                };
                if line == here.delimiter {
                    break;
                }
                body.push_str(line);
                body.push('\n');
            }
            if !here.is_literal {
                let mut content = Word::default();
                quoted(
                    &mut Reader::new(&body),
                    self.script,
                    self.depth,
                    &mut content,
                    None,
                );
            }
        }
    }
}
