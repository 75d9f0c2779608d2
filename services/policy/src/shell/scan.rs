//! Commands: which word is a program's name, and what is redirected.

use std::{collections::BTreeSet, mem};

use super::{
    Script,
    names::{self, Role},
    word::{Reader, Word, quoted, word as read_word},
};

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
    /// The same after an assignment or a redirection, where no word is a keyword.
    Name,
    /// An argument that means nothing here.
    Argument,
    /// After `)`, `}`, `done` or `fi`: a keyword, or nothing.
    Closed,
    /// Arguments of a program that starts others. Each may be a name; whether one was found.
    Starter {
        found: bool,
        takes_options: bool,
    },
    /// Arguments of a shell, before its `-c` and right after.
    Shell,
    ShellText,
    /// Arguments of `find`, before the first that starts something and after.
    Find,
    FindStarts,
    /// Arguments of a program that runs what stands behind one of these options.
    Options(&'static [&'static str]),
    /// The variable of `for`, and what comes after it.
    For,
    ForList,
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
        subshells: 0,
    };
    list.run(end);
}

struct List<'r, 'a> {
    reader: &'r mut Reader<'a>,
    script: &'r mut Script,
    depth: usize,
    place: Place,
    heres: Vec<Here>,
    /// Open parentheses of subshells.
    subshells: usize,
}

impl List<'_, '_> {
    fn run(&mut self, end: End) {
        while let Some(byte) = self.reader.peek() {
            match byte {
                b' ' | b'\t' => self.reader.skip_blanks(),
                b'\\' if self.reader.take("\\\n") => {}
                b'\n' => {
                    self.reader.next();
                    self.end_command();
                    self.bodies();
                }
                b'#' => self.reader.skip_comment(),
                b';' | b'&' | b'|' => {
                    self.reader.next();
                    self.end_command();
                }
                b'(' => self.opened(),
                b')' => {
                    self.reader.next();
                    self.end_command();
                    self.place = Place::Closed;
                    match (self.subshells, end) {
                        (0, End::Parenthesis) => {
                            self.script.is_open |= !self.heres.is_empty();
                            return;
                        }
                        // A pattern, or an error. What follows is read as commands, so nothing is missed.
                        (0, End::Text) => {
                            self.script.is_open = true;
                            self.place = Place::Command;
                        }
                        (open, _) => self.subshells = open - 1,
                    }
                }
                b'<' | b'>' => self.redirection(),
                _ => {
                    let word = read_word(self.reader, self.script, self.depth);
                    self.word(&word);
                }
            }
        }
        self.end_command();
        let is_unfinished = end == End::Parenthesis || self.subshells > 0;
        self.script.is_open |= is_unfinished || !self.heres.is_empty();
    }

    /// A command is over, and another may begin.
    fn end_command(&mut self) {
        // A shell without a text reads its commands from its input; other starters do as well, or start a shell.
        let runs_elsewhere = matches!(
            self.place,
            Place::Shell | Place::ShellText | Place::Starter { found: false, .. } | Place::For
        );
        self.script.is_open |= runs_elsewhere;
        self.place = Place::Command;
    }

    fn opened(&mut self) {
        self.reader.next();
        // A function, an array, a computation or an error.
        self.script.is_open |= self.place != Place::Command || self.reader.peek() == Some(b'(');
        self.place = Place::Command;
        self.subshells += 1;
    }

    fn word(&mut self, word: &Word) {
        if word.is_absent() {
            return;
        }
        // The number of a descriptor belongs to the redirection after it.
        if matches!(self.reader.peek(), Some(b'<' | b'>'))
            && word.is_plain()
            && word.text.bytes().all(|byte| byte.is_ascii_digit())
        {
            // Shells differ in how many digits that may be.
            self.script.is_open |= word.text.len() > 1;
            return;
        }
        match self.place {
            Place::Command => self.command(word),
            Place::Name => self.name(word),
            Place::Argument => {}
            Place::Options(options) => {
                self.script.is_open |= word.is_expanded || names::is_option(options, &word.text);
            }
            Place::Closed => {
                self.script.is_open |= !(word.is_plain() && names::is_flow(&word.text));
                self.command(word);
            }
            Place::Starter { takes_options, .. } => self.started(word, takes_options),
            Place::Shell => self.shell(word),
            Place::ShellText => match word.literal() {
                Some(text) if !text.starts_with(['-', '+']) => {
                    whole(text, self.script, self.depth);
                    self.place = Place::Argument;
                }
                _ => self.script.is_open = true,
            },
            Place::Find => {
                self.script.is_open |= word.literal().is_none();
                if names::FIND_STARTS.contains(&word.text.as_str()) {
                    self.place = Place::FindStarts;
                }
            }
            Place::FindStarts => {
                if !matches!(word.text.as_str(), "{}" | ";" | "+") && !word.text.starts_with('-') {
                    self.candidate(word);
                }
                self.script.is_open |= word.is_expanded;
            }
            Place::For => {
                self.script.is_open |= !word.is_plain();
                self.place = Place::ForList;
            }
            Place::ForList => {
                self.place = match word.text.as_str() {
                    "in" => Place::Argument,
                    "do" => Place::Command,
                    _ => {
                        self.script.is_open = true;
                        Place::Command
                    }
                }
            }
        }
    }

    /// A word where a command starts.
    fn command(&mut self, word: &Word) {
        if !word.is_plain() {
            self.name(word);
            return;
        }
        match word.text.as_str() {
            "for" => self.place = Place::For,
            text if names::OPENING.contains(&text) => self.place = Place::Command,
            text if names::CLOSING.contains(&text) => self.place = Place::Closed,
            _ => self.name(word),
        }
    }

    /// A program, or an assignment before one.
    fn name(&mut self, word: &Word) {
        if let Some(variable) = word.assigned() {
            self.script.is_open |= names::STEERING.contains(&variable);
            self.script.is_particular = true;
            self.place = Place::Name;
            return;
        }
        self.place = Place::Argument;
        let Some(text) = word.literal() else {
            self.script.is_open = true;
            return;
        };
        self.script.program(text);
        self.script.is_open |= text.contains(char::is_whitespace);
        self.place = match names::role(text) {
            Role::Plain => Place::Argument,
            Role::Opaque => {
                self.script.is_open = true;
                // What it names is kept all the same: a rule that denies a name sees it.
                Place::Starter {
                    found: true,
                    takes_options: true,
                }
            }
            Role::Starter { takes_options } => Place::Starter {
                found: false,
                takes_options,
            },
            Role::Shell => Place::Shell,
            Role::Find => Place::Find,
            Role::Options(options) => {
                // By its settings and files it runs others too, of which its text says nothing.
                self.script.is_particular = true;
                Place::Options(options)
            }
        };
    }

    /// An argument of a program that starts others.
    fn started(&mut self, word: &Word, takes_options: bool) {
        if word.text.starts_with('-') && word.text.len() > 1 {
            self.script.is_open |= !takes_options || word.literal().is_none();
        } else if let Some(variable) = word.assigned() {
            self.script.is_open |= names::STEERING.contains(&variable);
            self.script.is_particular = true;
        } else {
            self.candidate(word);
            // Where an option may take a word, any later one may be the name.
            self.place = match takes_options {
                true => Place::Starter {
                    found: true,
                    takes_options,
                },
                false => Place::Argument,
            };
        }
    }

    /// A word that may be a program's name. One that is more than a name, or the name of what starts others in its turn, is
    /// not followed.
    fn candidate(&mut self, word: &Word) {
        let Some(text) = word.literal() else {
            self.script.is_open = true;
            return;
        };
        self.script.program(text);
        let is_name = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_./+@%:,=-".contains(&byte));
        self.script.is_open |= !is_name || names::role(text) != Role::Plain;
    }

    /// An argument of a shell before its text.
    fn shell(&mut self, word: &Word) {
        let Some(text) = word.literal() else {
            self.script.is_open = true;
            return;
        };
        match text.strip_prefix('-') {
            // Letters that take no word of their own, and `c`.
            Some(letters)
                if letters.ends_with('c')
                    && letters
                        .bytes()
                        .all(|letter| b"abcefhklmnuvx".contains(&letter)) =>
            {
                self.place = Place::ShellText;
            }
            Some(letters)
                if !letters.is_empty()
                    && letters
                        .bytes()
                        .all(|letter| b"abefhkmnuvx".contains(&letter)) => {}
            None if !text.starts_with('+') && !text.is_empty() => self.place = Place::Argument,
            _ => self.script.is_open = true,
        }
    }

    fn redirection(&mut self) {
        let reader = &mut *self.reader;
        if reader.take("<<") {
            let strips_tabs = reader.take("-");
            let delimiter = self.target();
            let is_plain = delimiter.literal().is_some_and(|text| {
                text.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            });
            // Also `<<<`, which not every shell has.
            self.script.is_open |= !is_plain;
            self.heres.push(Here {
                is_literal: delimiter.is_quoted(),
                delimiter: delimiter.text,
                strips_tabs,
            });
        } else if reader.take("<(") || reader.take(">(") {
            inner(self.reader, self.script, self.depth, End::Parenthesis);
        } else if reader.take("<&") || reader.take(">&") {
            let target = self.target();
            let is_descriptor = |byte: u8| byte.is_ascii_digit() || byte == b'-';
            if !target.text.bytes().all(is_descriptor) {
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
        if self.place == Place::Command {
            self.place = Place::Name;
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
        for here in mem::take(&mut self.heres) {
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
                // A line that goes on may hide the end, or make a substitution out of two halves.
                self.script.is_open |= body.contains('\\');
                let mut content = Word::default();
                let mut reader = Reader::new(&body);
                quoted(&mut reader, self.script, self.depth, &mut content, None);
            }
        }
    }
}
