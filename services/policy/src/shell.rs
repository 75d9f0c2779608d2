//! What a command's text starts and where it redirects, for rules to speak of.
//!
//! This is no shell. It reads plain commands, chained, grouped, looped and substituted, and collects every word that may stand where a
//! program's name stands; a word too many does no harm. Of anything else (a name out of a variable, `case`, `eval`, functions,
//! what shells read differently, programs that start others in ways of their own) it says that it did not understand, and
//! rules then count it as a question. What a program starts by itself is not in the text and not here. The sandbox, not
//! this, is what holds a command.
//!
//! Invariants:
//! - One pass, in time linear in the text for each of at most [`MAX_DEPTH`] levels of nesting.
//! - Never panics and never gives up in silence: what is left out makes `is_open` true. `tests/shell.rs` holds it against real
//!   shells.

mod names;
mod scan;
mod word;

use std::collections::BTreeSet;

/// Levels of `$(…)`, backquotes and `sh -c` that are followed.
const MAX_DEPTH: usize = 12;
/// Programs, and files of redirections, that are kept of one text.
const MAX_NAMES: usize = 256;

/// What is known of a command's text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Script {
    /// Names of programs, without their directories.
    pub(crate) programs: BTreeSet<String>,
    /// Files that redirections write, as written.
    pub(crate) writes: BTreeSet<String>,
    /// Files that redirections read, as written.
    pub(crate) reads: BTreeSet<String>,
    /// Whether a program is named by its path, a variable is set for it, or it is known to run others that its settings name.
    pub(crate) is_particular: bool,
    /// Whether something may run or be redirected that is not named here.
    pub(crate) is_open: bool,
}

impl Script {
    /// Reads a text as `sh -c` gets it.
    pub(crate) fn read(text: &str) -> Self {
        let mut script = Self::default();
        scan::whole(text, &mut script, MAX_DEPTH);
        script
    }

    fn program(&mut self, word: &str) {
        let name = word.rsplit('/').next().unwrap_or(word);
        self.is_particular |= name.len() != word.len();
        if !name.is_empty() {
            self.keep(name, |script| &mut script.programs);
        }
    }

    fn keep(&mut self, name: &str, into: fn(&mut Self) -> &mut BTreeSet<String>) {
        if into(self).len() < MAX_NAMES {
            into(self).insert(name.to_owned());
        } else {
            self.is_open = true;
        }
    }
}

#[cfg(test)]
mod tests;
