//! The owner's rule files: `*.cedar` in one directory, each rule a `forbid`.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use cedar_policy::Schema;

use super::{
    examples::Example,
    text::{self, Rule},
};
use crate::Error;

/// Bytes of a rule file at most.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Rule files at most.
pub(crate) const MAX_FILES: usize = 64;
/// Rules at most: each is evaluated for each call.
const MAX_RULES: usize = 500;
/// Characters of an `@id` or `@reason` at most: both go into answers and receipts.
const MAX_ANNOTATION: usize = 300;

/// One file of the owner.
#[derive(Debug)]
pub struct RuleFile {
    /// The file.
    pub path: PathBuf,
    pub(super) rules: Vec<Named>,
    pub(super) text: String,
    /// What its examples came to, by its rules alone.
    pub examples: Vec<Example>,
}

/// A rule with the id that it is known by.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) rule: Rule,
    pub(super) shown: String,
}

impl RuleFile {
    /// Ids of its rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.shown.as_str())
    }

    /// The same rules.
    pub(super) fn without_examples(&self) -> Self {
        Self {
            path: self.path.clone(),
            rules: self.rules.clone(),
            text: String::new(),
            examples: Vec::new(),
        }
    }
}

/// The rules of every file, in the order of their names. Their examples are not looked at.
pub(super) fn read(directory: &Path, schema: &Schema) -> Result<Vec<RuleFile>, Error> {
    let mut read = Vec::new();
    let mut ids = HashSet::new();
    for path in files(directory)? {
        let file = one(path, schema)?;
        for Named { rule, shown } in &file.rules {
            if !ids.insert(shown.clone()) {
                return Err(Error::Rule {
                    path: file.path,
                    line: rule.line,
                    problem: "the @id is used twice".to_owned(),
                });
            }
        }
        if ids.len() > MAX_RULES {
            return Err(Error::TooMuch {
                path: directory.to_owned(),
                bound: "500 rules are read at most",
            });
        }
        read.push(file);
    }
    Ok(read)
}

fn one(path: PathBuf, schema: &Schema) -> Result<RuleFile, Error> {
    let text = content(&path)?;
    let wrong = |line: usize, problem: &str| Error::Rule {
        path: path.clone(),
        line,
        problem: problem.to_owned(),
    };
    let parsed =
        text::parse(&text, schema).map_err(|problem| wrong(problem.line, &problem.problem))?;
    if parsed.is_empty() {
        return Err(wrong(
            1,
            "the file holds no rule; write one, or take the file away",
        ));
    }
    let mut rules = Vec::with_capacity(parsed.len());
    for rule in parsed {
        if rule.permits() {
            return Err(wrong(
                rule.line,
                "rules can only narrow the mode: write forbid, not permit",
            ));
        }
        let annotations = rule.id.iter().chain(&rule.reason);
        if annotations
            .into_iter()
            .any(|text| text.chars().count() > MAX_ANNOTATION || text.contains(char::is_control))
        {
            return Err(wrong(
                rule.line,
                "an @id or @reason is at most 300 characters on one line",
            ));
        }
        let shown = shown(&path, &rule);
        rules.push(Named { rule, shown });
    }
    Ok(RuleFile {
        path,
        rules,
        text,
        examples: Vec::new(),
    })
}

/// `file#id`, or `file#L12` for a rule without an id. The file's name keeps it apart from the modes' own ids.
fn shown(path: &Path, rule: &Rule) -> String {
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    match &rule.id {
        Some(id) => format!("{file}#{id}"),
        None => format!("{file}#L{}", rule.line),
    }
}

/// Whether a file of that name holds rules.
pub(crate) fn is_rule_file(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "cedar")
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::Unreadable {
        path: directory.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_rule_file(&path) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Error::TooMuch {
                path: directory.to_owned(),
                bound: "64 rule files are read at most",
            });
        }
    }
    files.sort();
    Ok(files)
}

fn content(path: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Unreadable {
        path: path.to_owned(),
        source,
    };
    // Asked before it is opened: opening a named pipe would wait for its writer.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("it is not a file")));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(Error::TooMuch {
            path: path.to_owned(),
            bound: "a rule file has 256 KiB at most",
        });
    }
    fs::read_to_string(path).map_err(unreadable)
}
