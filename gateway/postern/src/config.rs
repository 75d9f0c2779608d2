//! `postern.toml`: the owner's choices for one data directory, as options of `postern up` and `postern edge`.
//!
//! A key is an option's name, with `_` for `-`. What the file says becomes arguments behind those of the command line, so there
//! is one reading and one check of every value; what the command line or the environment says is left out, for they win.
//! A file that cannot be read as a whole stops the start: half of an owner's choices would be another's.

mod dump;
mod file;
mod secrets;
mod tools;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, error::ErrorKind,
    parser::ValueSource,
};

use crate::{cli::Cli, data_dir, error::Error, project::Project};

use file::{ConfigFile, Entry};

/// Name of the file in the data directory.
pub(crate) const FILE: &str = "postern.toml";
/// What a new data directory starts with: every option, as a comment.
pub(crate) const COMMENTED: &str = include_str!("config/postern.toml");

/// Commands that read the file.
const COMMANDS: [&str; 2] = ["up", "edge"];
/// Options that make no sense in it: what tells where it lies, what is said once, and how a terminal is spoken to.
const NOT_HERE: [&str; 6] = ["config", "dump_config", "help", "json", "repin", "version"];

/// What the arguments of the process come to.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A command to run.
    Run(Box<Cli>),
    /// The configuration in force, to be printed.
    Dump(String),
}

/// Why they come to nothing.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The command line: wrong, or it asks for help.
    CommandLine(clap::Error),
    /// The configuration.
    Config(Error),
}

impl From<clap::Error> for Problem {
    fn from(problem: clap::Error) -> Self {
        Self::CommandLine(problem)
    }
}

impl From<Error> for Problem {
    fn from(problem: Error) -> Self {
        Self::Config(problem)
    }
}

/// Reads the arguments, and behind them the configuration of the commands that have one.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Parsed, Problem> {
    let whole = Cli::command();
    let Some(looked) = Look::at(&whole, arguments) else {
        return Ok(Parsed::Run(Box::new(read(&whole, arguments)?.0)));
    };
    // Before the file is looked at, so that none of this is taken for a fault of it.
    if let Err(problem) = read(&whole, arguments)
        && problem.kind() != ErrorKind::MissingRequiredArgument
    {
        return Err(problem.into());
    }
    let file = match looked.file()? {
        Some((path, named)) => ConfigFile::read(&path, named)?,
        None => None,
    };
    let entries = match &file {
        Some(file) => looked.entries(file)?,
        None => Vec::new(),
    };
    let mut all = arguments.to_vec();
    all.extend(entries.iter().flat_map(|entry| entry.arguments.clone()));
    let (cli, matches) = read(&whole, &all)?;
    if let Some(file) = &file {
        looked.demand_beyond_project(file, &matches)?;
    }
    if cli.command.dumps_config()
        && let Some((_, matches)) = matches.subcommand()
    {
        let told = dump::Told {
            command: looked.command,
            name: &looked.name,
            matches,
            from_file: &entries,
            file: file.as_ref(),
        };
        return Ok(Parsed::Dump(told.text(cli.json)));
    }
    Ok(Parsed::Run(Box::new(cli)))
}

fn read(whole: &Command, arguments: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let mut command = whole.clone();
    let matches = command.try_get_matches_from_mut(arguments)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|problem| problem.format(&mut command))?;
    Ok((cli, matches))
}

/// A first look at a command line, which only tells where the configuration is and what need not be taken from it.
#[derive(Debug)]
struct Look<'a> {
    whole: &'a Command,
    command: &'a Command,
    name: String,
    matches: ArgMatches,
}

impl<'a> Look<'a> {
    /// Nothing for commands without configuration, and for what is no command line at all.
    fn at(whole: &'a Command, arguments: &[OsString]) -> Option<Self> {
        let lenient = whole.clone().ignore_errors(true);
        let mut matches = lenient.try_get_matches_from(arguments).ok()?;
        let (name, matches) = matches.remove_subcommand()?;
        let command = COMMANDS
            .contains(&name.as_str())
            .then(|| whole.find_subcommand(&name))??;
        Some(Self {
            whole,
            command,
            name,
            matches,
        })
    }

    /// What the command line or the environment says for an option.
    fn given(&self, id: &str) -> Option<OsString> {
        if self.is_on_command_line(id) {
            return self.matches.get_raw(id)?.next_back().map(OsStr::to_owned);
        }
        self.environment(id)
    }

    fn is_on_command_line(&self, id: &str) -> bool {
        self.matches.try_contains_id(id).is_ok()
            && self.matches.value_source(id) == Some(ValueSource::CommandLine)
    }

    fn environment(&self, id: &str) -> Option<OsString> {
        let mut options = self.options();
        let option = options.find(|option| option.get_id() == id)?;
        std::env::var_os(option.get_env()?)
    }

    /// The options of the command, those of every command included.
    fn options(&self) -> impl Iterator<Item = &'a Arg> {
        let own = self.command.get_arguments();
        own.chain(
            self.whole
                .get_arguments()
                .filter(|option| option.is_global_set()),
        )
    }

    /// The file, and whether it was named rather than looked for in the data directory.
    fn file(&self) -> Result<Option<(PathBuf, bool)>, Error> {
        if let Some(named) = self.given("config") {
            return Ok(Some((named.into(), true)));
        }
        let directory = match self.given("data_dir") {
            Some(directory) => PathBuf::from(directory),
            None if self.name == "up" => {
                let project = self.given("project").unwrap_or_else(|| ".".into());
                // The command itself will say what is wrong with it.
                let Ok(project) = Project::open(Path::new(&project)) else {
                    return Ok(None);
                };
                data_dir::default_for(&project.path)?
            }
            None => return Ok(None),
        };
        Ok(Some((directory.join(FILE), false)))
    }

    /// What the file adds, every value of it checked, also those that something else wins over.
    fn entries(&self, file: &ConfigFile) -> Result<Vec<Entry>, Error> {
        let options: Vec<&Arg> = self
            .options()
            .filter(|option| !NOT_HERE.contains(&option.get_id().as_str()))
            .collect();
        let mut entries = file.entries(&self.name, &options)?;
        for entry in &entries {
            self.check(entry)
                .map_err(|problem| file.problem_at(entry.line, &problem))?;
        }
        if !file.is_named() && entries.iter().any(|entry| entry.id == "data_dir") {
            return Err(Error::Usage(format!(
                "{}: `data_dir` cannot stand in the file that lies in it; name the file with --config",
                file.path().display()
            )));
        }
        entries.retain(|entry| self.given(&entry.id).is_none());
        Ok(entries)
    }

    /// Reads one value as the command line would. What else is missing there does not matter.
    fn check(&self, entry: &Entry) -> Result<(), String> {
        let start = ["postern", self.name.as_str()].map(OsString::from);
        let arguments = start.iter().chain(&entry.arguments);
        match Cli::command().try_get_matches_from(arguments) {
            Err(problem) if problem.kind() != ErrorKind::MissingRequiredArgument => {
                Err(in_one_line(&problem))
            }
            _ => Ok(()),
        }
    }

    /// The agent writes in the project, and must not choose what the owner chooses.
    fn demand_beyond_project(&self, file: &ConfigFile, matches: &ArgMatches) -> Result<(), Error> {
        let project = matches
            .subcommand()
            .and_then(|(_, matches)| matches.get_one::<PathBuf>("project"));
        let Some(Ok(project)) = project.map(|project| Project::open(project)) else {
            return Ok(());
        };
        data_dir::demand_beyond(
            &project.path,
            file.path(),
            "the configuration",
            "change it",
            "--config",
        )
    }
}

/// What the command line's own check says, without its advice on usage.
fn in_one_line(problem: &clap::Error) -> String {
    let text = problem.render().to_string();
    let advice = |line: &&str| !line.starts_with("Usage") && !line.starts_with("For more");
    let lines = text.lines().take_while(advice).map(str::trim);
    let joined = lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    joined.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
