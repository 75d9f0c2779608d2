//! Words: quotes, escapes and expansions.

use super::{
    Script,
    scan::{self, End},
};

/// One word of the text.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// What it says once quotes are taken away.
    pub(super) text: String,
    /// Whether the shell puts something in that is not in the text.
    pub(super) is_expanded: bool,
    /// Whether it has characters that the shell may expand to names of files, or to several words.
    pub(super) is_pattern: bool,
    /// Where in the text the first quoted character or the first expansion comes.
    changed_from: Option<usize>,
    is_quoted: bool,
}

impl Word {
    /// The text, when that is all there is to the word.
    pub(super) fn literal(&self) -> Option<&str> {
        (!self.is_expanded && !self.is_pattern).then_some(self.text.as_str())
    }

    pub(super) fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// Whether it stands in the text as it is: only such a word can be a keyword.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_quoted && !self.is_expanded && !self.is_pattern
    }

    /// Whether there is nothing of it, as after a line that goes on.
    pub(super) fn is_absent(&self) -> bool {
        self.text.is_empty() && !self.is_quoted && !self.is_expanded
    }

    /// The variable of `name=value` and `name+=value`.
    pub(super) fn assigned(&self) -> Option<&str> {
        let end = self.text.find('=')?;
        let name = &self.text[..end];
        let name = name.strip_suffix('+').unwrap_or(name);
        let mut bytes = name.bytes();
        let is_assignment = self.changed_from.is_none_or(|from| from > end)
            && bytes.next().is_some_and(is_name_start)
            && bytes.all(is_name);
        is_assignment.then_some(name)
    }

    fn quote(&mut self) {
        self.is_quoted = true;
        self.changed_from.get_or_insert(self.text.len());
    }

    fn expand(&mut self) {
        self.is_expanded = true;
        self.changed_from.get_or_insert(self.text.len());
    }
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn is_name(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit()
}

/// Reads text from left to right.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Whether `word` comes next; if so it is taken.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let comes = self.text[self.at..].starts_with(word);
        if comes {
            self.at += word.len();
        }
        comes
    }

    /// Takes blanks, and the ends of lines that go on.
    pub(super) fn skip_blanks(&mut self) {
        while self.take(" ") || self.take("\t") || self.take("\\\n") {}
    }

    /// The next character, taken.
    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.text[self.at..].chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Takes what comes before `stop`, and `stop`. Nothing when it does not come: then all is taken.
    fn until(&mut self, stop: char) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let Some(length) = rest.find(stop) else {
            self.at = self.text.len();
            return None;
        };
        self.at += length + stop.len_utf8();
        Some(&rest[..length])
    }

    /// The rest of the line, taken with its end.
    pub(super) fn line(&mut self) -> Option<&'a str> {
        if self.at == self.text.len() {
            return None;
        }
        let rest = &self.text[self.at..];
        let length = rest.find('\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.text.len());
        Some(&rest[..length])
    }

    /// Takes a comment, up to the end of its line.
    pub(super) fn skip_comment(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').unwrap_or(rest.len());
    }
}

/// Reads a word that starts here.
pub(super) fn word(reader: &mut Reader<'_>, script: &mut Script, depth: usize) -> Word {
    let (mut word, mut has_brace, mut has_bracket) = (Word::default(), false, false);
    while let Some(byte) = reader.peek() {
        match byte {
            b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => break,
            b'\'' => {
                reader.take("'");
                word.quote();
                match reader.until('\'') {
                    Some(text) => word.text.push_str(text),
                    None => script.is_open = true,
                }
            }
            b'"' => {
                reader.take("\"");
                word.quote();
                quoted(reader, script, depth, &mut word, Some('"'));
            }
            b'\\' => escape(reader, script, &mut word),
            b'$' => dollar(reader, script, depth, &mut word),
            b'`' => backquotes(reader, script, depth, &mut word),
            byte => {
                word.is_pattern |=
                    matches!(byte, b'*' | b'?') || (byte == b'~' && word.text.is_empty());
                has_bracket |= byte == b'[';
                has_brace |= byte == b'{';
                word.text.extend(reader.next());
            }
        }
    }
    // Some shells make several words of `{a,b}`.
    word.is_pattern |= has_bracket && word.text != "[";
    word.is_pattern |= has_brace && !matches!(word.text.as_str(), "{" | "{}");
    word
}

/// Reads what is inside double quotes up to `end`, or the body of a here-document, which has no end in the text.
pub(super) fn quoted(
    reader: &mut Reader<'_>,
    script: &mut Script,
    depth: usize,
    word: &mut Word,
    end: Option<char>,
) {
    while let Some(byte) = reader.peek() {
        match byte {
            b'\\' => {
                reader.take("\\");
                match reader.next() {
                    Some('\n') => {}
                    Some(next @ ('$' | '`' | '"' | '\\')) => word.text.push(next),
                    Some(next) => word.text.extend(['\\', next]),
                    None => word.text.push('\\'),
                }
            }
            b'$' => dollar(reader, script, depth, word),
            b'`' => backquotes(reader, script, depth, word),
            _ => match reader.next() {
                next if next.is_some() && next == end => return,
                Some(next) => word.text.push(next),
                None => {}
            },
        }
    }
    script.is_open |= end.is_some();
}

fn escape(reader: &mut Reader<'_>, script: &mut Script, word: &mut Word) {
    reader.take("\\");
    match reader.next() {
        Some('\n') => {}
        Some(next) => {
            word.quote();
            word.text.push(next);
        }
        None => script.is_open = true,
    }
}

/// `$name`, `${…}`, `$(…)`, `$((…))`, or a dollar that stands for itself.
fn dollar(reader: &mut Reader<'_>, script: &mut Script, depth: usize, word: &mut Word) {
    reader.take("$");
    if reader.take("((") {
        word.expand();
        arithmetic(reader, script, depth);
    } else if reader.take("(") {
        word.expand();
        scan::inner(reader, script, depth, End::Parenthesis);
    } else if reader.take("{") {
        word.expand();
        braces(reader, script, depth);
    } else {
        match reader.peek() {
            Some(byte) if is_name(byte) || b"@*#?-$!".contains(&byte) => {
                word.expand();
                reader.next();
                while is_name_start(byte) && reader.peek().is_some_and(is_name) {
                    reader.next();
                }
            }
            // Quotes and computations that not every shell has, and a line that goes on in the middle of an expansion.
            Some(b'\'' | b'"' | b'[' | b'\\') => script.is_open = true,
            _ => word.text.push('$'),
        }
    }
}

/// `${name…}` from after its brace to its end.
fn braces(reader: &mut Reader<'_>, script: &mut Script, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        script.is_open = true;
        return;
    };
    reader.take("#");
    while reader.peek().is_some_and(is_name) {
        reader.next();
    }
    // What else may follow a name differs from shell to shell, and some of it runs what the variable holds.
    script.is_open |= !matches!(
        reader.peek(),
        Some(b'}' | b':' | b'-' | b'+' | b'=' | b'?' | b'%' | b'#')
    );
    let mut inside = Word::default();
    while let Some(byte) = reader.peek() {
        match byte {
            b'}' => {
                reader.take("}");
                return;
            }
            b'\'' => {
                // In double quotes a single one is a character; which of both holds here is not looked at.
                reader.take("'");
                script.is_open = true;
            }
            b'"' => {
                reader.take("\"");
                quoted(reader, script, depth, &mut inside, Some('"'));
            }
            b'\\' => escape(reader, script, &mut inside),
            b'$' => dollar(reader, script, depth, &mut inside),
            b'`' => backquotes(reader, script, depth, &mut inside),
            _ => {
                reader.next();
            }
        }
    }
    script.is_open = true;
}

/// `$((…))` from after its parentheses to its end. With a name in it some shells run what the variable holds.
fn arithmetic(reader: &mut Reader<'_>, script: &mut Script, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        script.is_open = true;
        return;
    };
    let (mut open, mut inside) = (0_usize, Word::default());
    while let Some(byte) = reader.peek() {
        match byte {
            b')' if open == 0 => {
                // One parenthesis alone: it was a command in a subshell after all.
                script.is_open |= !reader.take("))");
                return;
            }
            b'(' | b')' => {
                open = if byte == b'(' { open + 1 } else { open - 1 };
                reader.next();
            }
            b'$' => {
                script.is_open = true;
                dollar(reader, script, depth, &mut inside);
            }
            b'`' => {
                script.is_open = true;
                backquotes(reader, script, depth, &mut inside);
            }
            byte => {
                script.is_open |= !(byte.is_ascii_digit() || b" +-*/%<>=!&|^~?:,".contains(&byte));
                reader.next();
            }
        }
    }
    script.is_open = true;
}

fn backquotes(reader: &mut Reader<'_>, script: &mut Script, depth: usize, word: &mut Word) {
    reader.take("`");
    word.expand();
    let mut inside = String::new();
    loop {
        match reader.next() {
            Some('`') => break,
            Some('\\') => {
                // What it stands for differs inside double quotes and outside.
                script.is_open = true;
                match reader.next() {
                    Some(next @ ('`' | '\\' | '$')) => inside.push(next),
                    Some(next) => inside.extend(['\\', next]),
                    None => inside.push('\\'),
                }
            }
            Some(next) => inside.push(next),
            None => {
                script.is_open = true;
                break;
            }
        }
    }
    match depth.checked_sub(1) {
        Some(depth) => scan::whole(&inside, script, depth),
        None => script.is_open = true,
    }
}
