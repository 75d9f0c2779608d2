//! `postern policy explain`: what becomes of a call, as an edge judges it.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use postern_kit::root::Root;
use postern_policy::{Command, Config, Request, Service};
use postern_types::Mode;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{super::owner::owner_api, broken};
use crate::{cli::OwnerAccess, error::Error, output};

/// Bytes of a call at most: what a frame of the channel has.
const MAX_CALL_BYTES: u64 = 2 * 1024 * 1024;

/// A call as it is written for [`crate::cli::PolicyAction::Explain`]. A frame of the channel has these fields and more.
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

/// The mode by which a call is judged, and whose it is.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct InForce {
    mode: Mode,
    whose: &'static str,
}

impl InForce {
    pub(super) const fn given(mode: Mode) -> Self {
        Self {
            mode,
            whose: "as asked for",
        }
    }

    /// The mode of the edge that runs on a data directory; where none runs, the one in which it starts unless it is told otherwise.
    pub(super) fn of_edge(data: &Path) -> Self {
        let access = OwnerAccess {
            data_dir: Some(data.to_owned()),
        };
        let status = owner_api(&access).and_then(|api| api.get("/owner/v1/status"));
        let mode = status
            .ok()
            .and_then(|status| status["mode"].as_str()?.parse().ok());
        match mode {
            Some(mode) => Self {
                mode,
                whose: "the edge's that runs",
            },
            None => Self {
                mode: Mode::default(),
                whose: "the default: no edge of yours runs here",
            },
        }
    }
}

/// Where links lead a call's path.
struct Leads {
    place: String,
    /// What is to be told of it.
    told: Option<String>,
}

impl Leads {
    fn of(args: &Map<String, Value>, tool: &str, project: Option<&Root>) -> Self {
        let path = ["path", "cwd"]
            .iter()
            .find_map(|name| args.get(*name)?.as_str());
        let (Some(path), Some(root)) = (path, project) else {
            return Self {
                place: String::new(),
                told: None,
            };
        };
        // What is deleted is the link.
        let found = match tool {
            "workspace_delete" => root.find_entry(path).map(|found| found.place),
            _ => root.locate(path).map(|target| target.place),
        };
        match found {
            Ok(place) => Self {
                told: place
                    .resolved()
                    .map(|real| format!("links lead there: {real}")),
                place: place.real(),
            },
            Err(failure) => Self {
                place: String::new(),
                told: Some(format!(
                    "where its path leads is not known: {}",
                    failure.message
                )),
            },
        }
    }
}

/// Tells what becomes of the call in a file.
pub(super) fn explain(
    folder: &Path,
    file: &Path,
    mode: &InForce,
    project: &Path,
    json: bool,
) -> Result<(), Error> {
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
    let named = serde_json::from_str::<Map<String, Value>>(args).unwrap_or_default();
    let root = Root::open(project).ok();
    let leads = Leads::of(&named, &call.tool, root.as_ref());
    let path = root.map(|root| root.identity().real_path.to_string_lossy().into_owned());
    let decision = service.judge(&Request {
        workspace_id: call.workspace_id.as_deref().unwrap_or("explain"),
        session_id: call.session_id.as_deref().unwrap_or("explain"),
        tool: &call.tool,
        args: args.as_bytes(),
        mode: mode.mode,
        project_path: path.as_deref().unwrap_or_default(),
        place: &leads.place,
    })?;
    let seen = named.get("command").and_then(Value::as_str).map(|text| {
        let command = Command::read(text);
        json!({
            "programs": command.programs, "writes": command.writes, "reads": command.reads,
            "understood": command.understood,
        })
    });
    let mut lines = vec![
        format!("{} by {}", decision.verdict, decision.policy_id),
        format!("judged by mode {} ({})", mode.mode, mode.whose),
    ];
    if !decision.reason.is_empty() {
        lines.push(format!("the agent is told: {}", decision.reason));
    }
    lines.extend(leads.told);
    if let Some(seen) = &seen {
        lines.push(format!("rules see the command as {seen}"));
    }
    output::either(
        json,
        &json!({
            "verdict": decision.verdict.to_string(), "policyId": decision.policy_id, "reason": decision.reason,
            "mode": mode.mode, "place": (!leads.place.is_empty()).then_some(leads.place), "command": seen,
        }),
        // The call is an agent's.
        &lines
            .iter()
            .map(|line| postern_types::printable(line))
            .collect::<Vec<_>>()
            .join("\n"),
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
