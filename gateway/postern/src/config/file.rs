//! The file as it is written: keys, values, and the lines on which they stand.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, builder::ValueParser};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::tools;
use crate::error::Error;

/// Bytes of a file that is read.
const LIMIT: u64 = 1024 * 1024;
/// Mode bits by which group and others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A file that was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    named: bool,
    text: String,
}

/// One key of it, as arguments of the command line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The option's id.
    pub(super) id: String,
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The arguments; none for a flag that is off.
    pub(super) arguments: Vec<OsString>,
}

impl ConfigFile {
    /// Reads the file; none when it was not named and is not there.
    pub(super) fn read(path: &Path, named: bool) -> Result<Option<Self>, Error> {
        let shown = path.display();
        let unreadable = |problem: io::Error| {
            Error::Failed(format!(
                "the configuration '{shown}' cannot be read ({problem}); mend it, or name another file with --config"
            ))
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound && !named => return Ok(None),
            Err(problem) => return Err(unreadable(problem)),
        };
        demand_own(&file, path)?;
        let mut bytes = Vec::new();
        file.take(LIMIT + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        if bytes.len() as u64 > LIMIT {
            return Err(unreadable(io::ErrorKind::FileTooLarge.into()));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| unreadable(io::Error::other("it is not UTF-8")))?;
        Ok(Some(Self {
            path: path.to_owned(),
            named,
            text,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn is_named(&self) -> bool {
        self.named
    }

    /// The keys, each as arguments for the option of its name.
    pub(super) fn entries(&self, command: &str, options: &[&Arg]) -> Result<Vec<Entry>, Error> {
        let table = self.table()?;
        let mut entries = Vec::new();
        for (key, value) in table.get_ref() {
            let line = self.line(key.span().start);
            let known = options
                .iter()
                .find(|option| option.get_id().as_str() == key.get_ref().as_ref());
            let option = known
                .ok_or_else(|| self.problem_at(line, &unknown(command, key.get_ref(), options)))?;
            let arguments = self
                .arguments(option, value)
                .map_err(|problem| self.problem_at(line, &problem))?;
            let id = option.get_id().to_string();
            entries.push(Entry {
                id,
                line,
                arguments,
            });
        }
        Ok(entries)
    }

    fn table(&self) -> Result<Spanned<DeTable<'_>>, Error> {
        DeTable::parse(&self.text).map_err(|problem| {
            let line = problem.span().map_or(1, |span| self.line(span.start));
            self.problem_at(line, &problem.message().replace('\n', " "))
        })
    }

    /// What is wrong, and on which line.
    pub(super) fn problem_at(&self, line: usize, problem: &str) -> Error {
        Error::Usage(format!("{}:{line}: {problem}", self.path.display()))
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    fn arguments(
        &self,
        option: &Arg,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<OsString>, String> {
        let name = option.get_id().as_str();
        if name == tools::KEY {
            return tools::arguments(value, |path| self.absolute(path));
        }
        let flag = format!("--{}", option.get_long().unwrap_or(name));
        let one = |value: &Spanned<DeValue<'_>>| {
            let mut argument = OsString::from(format!("{flag}="));
            argument.push(self.text_of(option, value.get_ref())?);
            Ok::<_, String>(argument)
        };
        match (option.get_action(), value.get_ref()) {
            (ArgAction::SetTrue, DeValue::Boolean(true)) => Ok(vec![flag.into()]),
            (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
            (ArgAction::SetTrue, _) => Err(format!("`{name}` is true or false")),
            (ArgAction::Append, DeValue::Array(values)) => values.iter().map(one).collect(),
            (ArgAction::Append, _) => Err(format!("`{name}` is a list: [\"…\", \"…\"]")),
            (_, DeValue::Array(_)) => Err(format!("`{name}` is one value and no list")),
            _ => Ok(vec![one(value)?]),
        }
    }

    /// A value as it would stand on the command line. A relative path starts at the file's own folder.
    fn text_of(&self, option: &Arg, value: &DeValue<'_>) -> Result<OsString, String> {
        let name = option.get_id().as_str();
        let number = value
            .as_integer()
            .filter(|number| number.radix() == 10)
            // Without the underscores that TOML allows between digits.
            .map(|number| number.as_str().replace('_', ""));
        let text = value.as_str().map(str::to_owned).or(number);
        let text = text.ok_or_else(|| {
            let given = value.type_str();
            format!("`{name}` is a text or a whole number, and not this {given}")
        })?;
        if !is_path(option) {
            return Ok(text.into());
        }
        Ok(self.absolute(&text).into_os_string())
    }

    fn absolute(&self, text: &str) -> PathBuf {
        let home = text
            .strip_prefix("~/")
            .and_then(|below| Some(std::env::home_dir()?.join(below)));
        let folder = self.path.parent().unwrap_or(Path::new("."));
        home.unwrap_or_else(|| {
            let joined = folder.join(text);
            std::path::absolute(&joined).unwrap_or(joined)
        })
    }
}

/// Whether an option takes a path of the file system.
pub(super) fn is_path(option: &Arg) -> bool {
    option.get_value_parser().type_id() == ValueParser::path_buf().type_id()
}

fn unknown(command: &str, key: &str, options: &[&Arg]) -> String {
    let written = key.replace('-', "_");
    let names: Vec<&str> = options
        .iter()
        .filter(|option| !option.is_hide_set())
        .map(|option| option.get_id().as_str())
        .collect();
    if names.contains(&written.as_str()) {
        return format!("`{key}` is written `{written}`");
    }
    format!(
        "`{key}` is no option of 'postern {command}' that this file can set; there are {}",
        names.join(", ")
    )
}

/// Whoever can change the file decides what the owner permits.
fn demand_own(file: &File, path: &Path) -> Result<(), Error> {
    let shown = path.display();
    let facts = file
        .metadata()
        .map_err(|problem| Error::failed(format!("the configuration '{shown}'"), problem))?;
    if !facts.is_file() {
        return Err(Error::Failed(format!(
            "the configuration '{shown}' is not a file; name one with --config"
        )));
    }
    let own = rustix::process::geteuid().as_raw();
    if ![own, 0].contains(&facts.uid()) {
        return Err(Error::Failed(format!(
            "the configuration '{shown}' belongs to user {}; copy it, or name another file with --config",
            facts.uid()
        )));
    }
    if facts.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::Failed(format!(
            "the configuration '{shown}' can be written by other users; run chmod go-w on it"
        )));
    }
    Ok(())
}
