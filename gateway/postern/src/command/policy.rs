//! `postern policy`: the owner's rules, looked at without anything in force.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use postern_policy::{Command, Config, Request, RuleFile, Service};
use postern_types::Mode;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    cli::{Policy, PolicyAction},
    data_dir,
    error::Error,
    output,
    project::Project,
};

/// Bytes of a call at most: what a frame of the channel has.
const MAX_CALL_BYTES: u64 = 2 * 1024 * 1024;

/// A call as it is written for [`PolicyAction::Explain`]. A frame of the channel has these fields and more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    tool: String,
    #[serde(default)]
    args: Option<Box<RawValue>>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    workspace_id: Option<String>,
}

/// Runs `postern policy …`.
pub(crate) fn run(arguments: &Policy, json: bool) -> Result<(), Error> {
    match &arguments.action {
        PolicyAction::Check => check(&folder(arguments)?, json),
        PolicyAction::Test => test(&folder(arguments)?, json),
        PolicyAction::Explain { call, mode } => explain(&folder(arguments)?, call, *mode, json),
        PolicyAction::Defaults => {
            output::text_line(postern_policy::DEFAULT_RULES.trim_end());
            Ok(())
        }
    }
}

fn folder(arguments: &Policy) -> Result<PathBuf, Error> {
    if let Some(folder) = &arguments.policies {
        return Ok(folder.clone());
    }
    let data = match &arguments.data_dir {
        Some(data) => data.clone(),
        None => data_dir::default_for(&Project::open(Path::new("."))?.path)?,
    };
    let folder = data.join(data_dir::POLICIES);
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

fn explain(folder: &Path, file: &Path, mode: Mode, json: bool) -> Result<(), Error> {
    let text = read(file)?;
    let call: Call = serde_json::from_str(&text).map_err(|problem| {
        Error::Usage(format!(
            "'{}' is no call ({problem}); write {{\"tool\": \"workspace_read\", \"args\": {{\"path\": \"a\"}}}}",
            file.display()
        ))
    })?;
    let service = Service::new(Config {
        owner_policies: Some(folder.to_owned()),
    })
    .map_err(broken)?;
    let args = call.args.as_deref().map_or("{}", RawValue::get);
    let project = Project::open(Path::new("."));
    let project = project.map(|project| project.path.to_string_lossy().into_owned());
    let decision = service.judge(&Request {
        workspace_id: call.workspace_id.as_deref().unwrap_or("explain"),
        session_id: call.session_id.as_deref().unwrap_or("explain"),
        tool: &call.tool,
        args: args.as_bytes(),
        mode,
        project_path: project.as_deref().unwrap_or_default(),
        place: "",
    })?;
    let command = serde_json::from_str::<Map<String, Value>>(args)
        .ok()
        .and_then(|args| Some(Command::read(args.get("command")?.as_str()?)));
    let seen = command.as_ref().map(|command| {
        json!({
            "programs": command.programs, "writes": command.writes, "reads": command.reads,
            "understood": command.understood,
        })
    });
    let mut lines = vec![format!("{} by {}", decision.verdict, decision.policy_id)];
    if !decision.reason.is_empty() {
        lines.push(format!("the agent is told: {}", decision.reason));
    }
    if let Some(seen) = &seen {
        lines.push(format!("rules see the command as {seen}"));
    }
    output::either(
        json,
        &json!({
            "verdict": decision.verdict.to_string(), "policyId": decision.policy_id, "reason": decision.reason,
            "command": seen,
        }),
        &lines.join("\n"),
    );
    Ok(())
}

fn read(file: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin()
            .lock()
            .take(MAX_CALL_BYTES)
            .read_to_string(&mut text)
    } else {
        File::open(file).and_then(|opened| opened.take(MAX_CALL_BYTES).read_to_string(&mut text))
    };
    match read {
        Ok(_) => Ok(text),
        Err(problem) => Err(Error::failed(
            format!("cannot read '{}'", file.display()),
            problem,
        )),
    }
}
