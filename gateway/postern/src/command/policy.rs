//! `postern policy`: the owner's rules, looked at without anything in force.

mod explain;

use std::path::{Path, PathBuf};

use postern_policy::{Config, RuleFile, Service};
use serde_json::json;

use crate::{
    cli::{Policy, PolicyAction},
    data_dir,
    error::Error,
    output,
    project::Project,
};

/// Runs `postern policy …`.
pub(crate) fn run(arguments: &Policy, json: bool) -> Result<(), Error> {
    match &arguments.action {
        PolicyAction::Check => check(&folder(arguments)?, json),
        PolicyAction::Test => test(&folder(arguments)?, json),
        PolicyAction::Explain {
            call,
            mode,
            project,
        } => {
            let mode = match mode {
                Some(mode) => explain::InForce::given(*mode),
                None => explain::InForce::of_edge(&data(arguments)?),
            };
            explain::explain(&folder(arguments)?, call, &mode, project, json)
        }
        PolicyAction::Defaults => {
            output::text_line(postern_policy::DEFAULT_RULES.trim_end());
            Ok(())
        }
    }
}

fn data(arguments: &Policy) -> Result<PathBuf, Error> {
    match &arguments.data_dir {
        Some(data) => Ok(data.clone()),
        None => data_dir::default_for(&Project::open(Path::new("."))?.path),
    }
}

fn folder(arguments: &Policy) -> Result<PathBuf, Error> {
    if let Some(folder) = &arguments.policies {
        return Ok(folder.clone());
    }
    let folder = data(arguments)?.join(data_dir::POLICIES);
    if folder.is_dir() {
        return Ok(folder);
    }
    Err(Error::Failed(format!(
        "there are no rules in '{}'; start postern once, or name a folder with --policies or --data-dir",
        folder.display()
    )))
}

fn broken(problem: impl std::fmt::Display) -> Error {
    Error::failed("the rules cannot be used", problem)
}

fn check(folder: &Path, json: bool) -> Result<(), Error> {
    let config = Config {
        owner_policies: Some(folder.to_owned()),
    };
    // As a start does it, so that what is said here is what a start says.
    Service::new(config).map_err(broken)?;
    let files = postern_policy::read(folder).map_err(broken)?;
    let rules: usize = files.iter().map(|file| file.rules().count()).sum();
    let examples: usize = files.iter().map(|file| file.examples.len()).sum();
    output::either(
        json,
        &json!({
            "files": files.iter().map(|file| json!({
                "path": file.path,
                "rules": file.rules().collect::<Vec<_>>(),
                "examples": file.examples.len(),
            })).collect::<Vec<_>>(),
        }),
        &format!(
            "{}: {} files, {rules} rules, {examples} examples, all as they should be",
            folder.display(),
            files.len()
        ),
    );
    Ok(())
}

fn test(folder: &Path, json: bool) -> Result<(), Error> {
    let files = postern_policy::read(folder).map_err(broken)?;
    let mut wrong = 0;
    for RuleFile { path, examples, .. } in &files {
        for example in examples {
            let holds = example.holds();
            wrong += usize::from(!holds);
            let word = if holds { "ok" } else { "WRONG" };
            let place = format!("{}, line {}", path.display(), example.line);
            let text = match holds {
                true => format!("{word}  {place}: {example}"),
                false => format!("{word}  {place}: {}", example.problem()),
            };
            output::either(
                json,
                &json!({
                    "path": path, "line": example.line, "call": example.call, "holds": holds,
                    "problem": (!holds).then(|| example.problem()),
                }),
                &text,
            );
        }
    }
    match wrong {
        0 => Ok(()),
        wrong => Err(Error::Failed(format!(
            "{wrong} examples do not come out as they say; mend the rules or the examples"
        ))),
    }
}
