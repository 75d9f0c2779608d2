//! Why the rules cannot be used.

use std::{io, path::PathBuf};

/// Something that stops the start: there is no decision without all of the rules.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory of the owner's rules cannot be read.
    #[error("the rules in {} cannot be read: {source}", path.display())]
    Unreadable {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the owner's rules is not usable.
    #[error("{}, line {line}: {problem}", path.display())]
    Rule {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// There are more rules than are kept.
    #[error("{} holds too much: {bound}", path.display())]
    TooMuch {
        /// File or directory.
        path: PathBuf,
        /// The bound.
        bound: &'static str,
    },
    /// The program's own rules are broken.
    #[error("the embedded rules are broken: {0}")]
    Embedded(String),
    /// The program's own catalogue is broken.
    #[error("the tool catalogue is broken: {0}")]
    Catalogue(String),
}
