//! `--dump-config`: the configuration in force, and where each value comes from.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use serde_json::{Map, Value, json};

use super::{
    NOT_HERE,
    file::{ConfigFile, Entry},
    tools,
};

/// What is told.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) command: &'a Command,
    pub(super) name: &'a str,
    pub(super) matches: &'a ArgMatches,
    pub(super) from_file: &'a [Entry],
    pub(super) file: Option<&'a ConfigFile>,
}

impl Told<'_> {
    /// As a file that comes to the same, or as one JSON object.
    pub(super) fn text(&self, json: bool) -> String {
        let told = self
            .command
            .get_arguments()
            .filter(|option| !option.is_hide_set())
            .filter(|option| !NOT_HERE.contains(&option.get_id().as_str()))
            .map(|option| {
                (
                    option.get_id().as_str(),
                    self.value(option),
                    self.source(option),
                )
            });
        let tools = tools::masked(self.matches);
        if json {
            let told = told.map(|(name, value, source)| {
                (name.to_owned(), json!({"value": value, "source": source}))
            });
            let mut told = Map::from_iter(told);
            told.insert(
                tools::KEY.to_owned(),
                json!({"value": tools, "source": "the file"}),
            );
            return Value::Object(told).to_string();
        }
        let file = self.file.map_or("there is no file".to_owned(), |file| {
            format!("the file is {}", file.path().display())
        });
        let head = format!(
            "# What 'postern {}' works with, and where each value comes from; {file}.\n",
            self.name
        );
        let lines = told.map(|(name, value, source)| match value {
            Some(value) => format!("{name} = {value} # {source}\n"),
            None => format!("# {name} is not set\n"),
        });
        let lines: String = lines.collect();
        // Tables come last, or what follows would belong to them.
        let tables = BTreeMap::from([(tools::KEY, &tools)]);
        let tables = match tools.is_empty() {
            true => String::new(),
            false => toml::to_string(&tables).unwrap_or_default(),
        };
        format!("{head}{lines}\n{tables}").trim_end().to_owned()
    }

    fn value(&self, option: &Arg) -> Option<toml::Value> {
        let id = option.get_id().as_str();
        if matches!(option.get_action(), ArgAction::SetTrue) {
            return Some(self.matches.get_flag(id).into());
        }
        let text = |raw: &std::ffi::OsStr| toml::Value::from(raw.to_string_lossy().into_owned());
        let mut values = self.matches.get_raw(id)?.map(text);
        if matches!(option.get_action(), ArgAction::Append) {
            return Some(values.collect::<Vec<_>>().into());
        }
        let value = values.next_back()?;
        let number = value.as_str().and_then(|text| text.parse::<i64>().ok());
        Some(number.map_or(value, toml::Value::from))
    }

    fn source(&self, option: &Arg) -> String {
        let id = option.get_id().as_str();
        if let Some(entry) = self.from_file.iter().find(|entry| entry.id == id) {
            return format!("line {} of the file", entry.line);
        }
        match self.matches.value_source(id) {
            Some(ValueSource::CommandLine) => "command line".to_owned(),
            Some(ValueSource::EnvVariable) => {
                let variable = option.get_env().unwrap_or_default();
                variable.to_string_lossy().into_owned()
            }
            _ => "default".to_owned(),
        }
    }
}
