//! `postern receipts verify`: of a data directory's ledger, and of an exported file.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use postern_kit::{
    Failure,
    task::Tasks,
    tls::Role,
    transport::{Address, Transport},
};
use postern_ledger::{Beside, Checkpoint, Fault, Link, Verification, Walker};
use postern_proto::ledger::v1::{self as wire, VerifyRequest, ledger_client::LedgerClient};
use postern_types::{ReceiptEvent, Sha256};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    certificates,
    checkpoint::{self, Kept, Signed},
    cli::TlsArg,
    error::Error,
    output, services,
};

/// Longest time without a word of a ledger that verifies itself. It says something every second.
const SILENCE: Duration = Duration::from_secs(30);
/// Time between two words on how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// What an exported file is.
pub(super) const FORMAT: &str = "postern-receipts-1";
/// Longest line: an event with everything beside it, each part escaped at its worst.
const LINE_BYTES: u64 = 64 * 1024 * 1024;
/// Checkpoints of a file, one a workspace.
const CHECKPOINTS: usize = 1000;

/// What does not hold, in a sentence.
pub(super) fn fault_text(fault: &Fault) -> String {
    if fault.receipt_id.is_empty() {
        format!("the chain does not hold: {}", fault.problem)
    } else {
        format!(
            "the chain does not hold at receipt {}: {}",
            fault.receipt_id, fault.problem
        )
    }
}

/// Verifies a ledger up to the checkpoints beside it.
pub(super) async fn ledger(file: &Path, json: bool) -> Result<(), Error> {
    // First the checkpoints: what they name is in the ledger for certain, whoever goes on writing it.
    let kept = checkpoint::kept(file.parent().unwrap_or(Path::new(".")))?;
    let report = postern_ledger::verify_file_past(file, kept.places()).await;
    report_of(&report.map_err(unverified)?, &kept, json)
}

/// Verifies the ledger in a database, up to the checkpoints of a data directory if one is named.
pub(super) async fn database(url: &str, directory: Option<&Path>, json: bool) -> Result<(), Error> {
    let (database, kept) = (services::database(url)?, kept_in(directory)?);
    let report = postern_ledger::verify_database(&database, kept.places()).await;
    report_of(&report.map_err(unverified)?, &kept, json)
}

/// Has a running ledger verify itself, up to the checkpoints of a data directory if one is named.
pub(super) async fn remote(
    address: &Address,
    option: &TlsArg,
    directory: Option<&Path>,
    json: bool,
) -> Result<(), Error> {
    let kept = kept_in(directory)?;
    let tls = certificates::open(option, None, &Tasks::new()).await?;
    let transport = certificates::remote(address, Role::Ledger, tls.as_ref())?;
    let mut ledger = LedgerClient::new(transport);
    let checkpoints = kept.places().into_iter().map(|place| wire::Checkpoint {
        workspace_id: place.workspace_id,
        sequence: place.sequence,
        hash: place.hash.to_string(),
    });
    let request = VerifyRequest {
        workspace_id: String::new(),
        checkpoints: checkpoints.collect(),
    };
    let answer = walked(&mut ledger, request, json)
        .await
        .map_err(|problem| {
            Error::Failed(format!(
                "the ledger on {address} does not verify itself: {problem}"
            ))
        })?;
    let fault = (!answer.valid).then_some(Fault {
        receipt_id: answer.bad_receipt_id,
        problem: answer.problem,
    });
    let report = Verification {
        events: answer.events,
        receipts: answer.receipts,
        fault,
        heads: Vec::new(),
    };
    report_of(&report, &kept, json)
}

/// Follows a ledger's walk over its chains to the end, however long that takes.
async fn walked(
    ledger: &mut LedgerClient<Transport>,
    request: VerifyRequest,
    json: bool,
) -> Result<wire::VerifyResponse, String> {
    let public = |status| Failure::from(status).message;
    let mut walk = ledger.walk(request).await.map_err(public)?.into_inner();
    let mut told = Instant::now();
    loop {
        let next = tokio::time::timeout(SILENCE, walk.message()).await;
        let next = next.map_err(|_| "it gives no sign of life any more".to_owned())?;
        let step = next.map_err(public)?;
        let step = step.ok_or_else(|| "it stopped on the way".to_owned())?;
        if let Some(found) = step.found {
            return Ok(found);
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            let events = step.events;
            if json {
                output::json_line(&json!({"event": "verifying", "events": events}));
            } else {
                output::warn(&format!("{events} events are verified"));
            }
        }
    }
}

fn kept_in(directory: Option<&Path>) -> Result<Kept, Error> {
    directory.map_or_else(|| Ok(Kept::default()), checkpoint::kept)
}

fn unverified(problem: postern_ledger::Error) -> Error {
    Error::failed("the ledger cannot be verified", problem)
}

fn report_of(report: &Verification, kept: &Kept, json: bool) -> Result<(), Error> {
    let problem = match &report.fault {
        Some(fault) => Some(fault_text(fault)),
        None => kept.problem.clone(),
    };
    let until = kept
        .signed
        .iter()
        .map(|it| &it.payload)
        .max_by_key(|it| it.sequence);
    let reach = match until {
        Some(payload) => format!(
            "every link holds, to event {} that was signed at {} by {} and beyond",
            payload.sequence, payload.at, payload.public_key
        ),
        None if kept.none_yet => "every link holds. No checkpoint was signed here yet, so what may be cut off the end cannot be told; an edge signs one when it starts".to_owned(),
        None => "every link holds".to_owned(),
    };
    tell(report, problem, until.into_iter().collect(), &reach, json)
}

/// Verifies an exported file.
pub(super) fn file(path: &Path, public_key: Option<&str>, json: bool) -> Result<(), Error> {
    let (report, signed) = read(path)?;
    let keys: Vec<_> = signed
        .iter()
        .map(|it| it.payload.public_key.as_str())
        .collect();
    let problem = match (&report.fault, public_key) {
        (Some(fault), _) => Some(fault_text(fault)),
        (None, Some(wanted)) if keys.iter().any(|key| !key.eq_ignore_ascii_case(wanted)) => Some(
            format!("the file was signed by another key: {}", keys.join(", ")),
        ),
        (None, _) => None,
    };
    let reach = format!(
        "every link holds, to the end that {} signed{}",
        keys.first().unwrap_or(&"nobody"),
        match public_key {
            Some(_) => "",
            None => " (compare that key with the owner's, or name it with --public-key)",
        }
    );
    let payloads = signed.iter().map(|it| &it.payload).collect();
    tell(&report, problem, payloads, &reach, json)
}

fn tell(
    report: &Verification,
    problem: Option<String>,
    checkpoints: Vec<&checkpoint::Payload>,
    reach: &str,
    json: bool,
) -> Result<(), Error> {
    let value = json!({
        "valid": problem.is_none(),
        "events": report.events,
        "receipts": report.receipts,
        "badReceiptId": report.fault.as_ref().map(|fault| &fault.receipt_id).filter(|id| !id.is_empty()),
        "problem": problem,
        "checkpoints": checkpoints,
    });
    let Some(problem) = problem else {
        let text = format!(
            "{} receipts in {} events: {reach}",
            report.receipts, report.events
        );
        output::either(json, &value, &text);
        return Ok(());
    };
    if json {
        output::json_line(&value);
    }
    Err(Error::Failed(problem))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: String,
    results: bool,
}

/// A line after the first: an event with what stands beside it, or a checkpoint.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    event: Option<Box<RawValue>>,
    #[serde(default)]
    hash: Option<Sha256>,
    #[serde(default)]
    plan: Option<String>,
    #[serde(default)]
    proposal: Option<String>,
    #[serde(default)]
    result: Option<String>,
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    checkpoint: Option<Signed>,
}

/// Follows the chains of a file. What is wrong with the file itself is told by its line.
pub(super) fn read(path: &Path) -> Result<(Verification, Vec<Signed>), Error> {
    let unreadable = |problem| Error::failed(format!("cannot read '{}'", path.display()), problem);
    let mut lines = Lines {
        reader: BufReader::new(File::open(path).map_err(unreadable)?),
        number: 0,
        line: String::new(),
    };
    let head: Option<Head> = match lines.next().map_err(unreadable)? {
        true => serde_json::from_str(&lines.line).ok(),
        false => None,
    };
    let Some(head) = head.filter(|head| head.format == FORMAT) else {
        return Err(Error::Failed(format!(
            "'{}' is no export of receipts",
            path.display()
        )));
    };
    let (mut walker, mut signed) = (Walker::default(), Vec::new());
    while lines.next().map_err(unreadable)? {
        let number = lines.number;
        let bad = |problem: &str| Error::Failed(format!("line {number}: {problem}"));
        let line: Line =
            serde_json::from_str(&lines.line).map_err(|_| bad("it is no line of an export"))?;
        match (&line.event, line.checkpoint.clone()) {
            (Some(event), None) if signed.is_empty() => {
                let step = step(&mut walker, &line, event, number, head.results);
                if step.map_err(|problem| bad(&problem))? == ControlFlow::Break(()) {
                    break;
                }
            }
            (None, Some(checkpoint)) if signed.len() < CHECKPOINTS => signed.push(checkpoint),
            _ => return Err(bad("it does not belong here")),
        }
    }
    let mut report = walker.finish();
    if report.fault.is_none()
        && let Err(problem) = ends(&report.heads, &signed)
    {
        report.fault = Some(Fault {
            receipt_id: String::new(),
            problem,
        });
    }
    Ok((report, signed))
}

fn step(
    walker: &mut Walker,
    line: &Line,
    event: &RawValue,
    number: i64,
    results: bool,
) -> Result<ControlFlow<()>, String> {
    let read: ReceiptEvent =
        serde_json::from_str(event.get()).map_err(|_| "its event is none".to_owned())?;
    let Some(hash) = line.hash else {
        return Err("its hash is missing".to_owned());
    };
    let beside = Beside {
        plan: line.plan.as_deref().map(str::as_bytes),
        proposal: line.proposal.as_deref().map(str::as_bytes),
        result: line.result.as_deref().map(str::as_bytes),
        answer: line.answer.as_deref().map(str::as_bytes),
    };
    let all = [beside.plan, beside.proposal, beside.result, beside.answer];
    if !results && all.iter().any(Option::is_some) {
        return Err("it holds what the first line says was left out".to_owned());
    }
    Ok(walker.step(Link {
        position: number,
        workspace: read.workspace_id.as_str(),
        sequence: i64::try_from(read.sequence).unwrap_or(i64::MAX),
        receipt: read.receipt_id.as_uuid().as_bytes(),
        hash: hash.as_bytes(),
        body: event.get(),
        beside: results.then_some(beside),
    }))
}

/// Whether each chain ends where its checkpoint says, and none goes on without one.
fn ends(heads: &[Checkpoint], signed: &[Signed]) -> Result<(), String> {
    if signed.is_empty() {
        return Err("the file has no signed checkpoint; its end was cut off".to_owned());
    }
    let mut left = BTreeMap::new();
    for checkpoint in signed {
        if !checkpoint.is_genuine() {
            return Err("a checkpoint's signature is forged".to_owned());
        }
        let place = checkpoint.place();
        if left.insert(place.workspace_id.clone(), place).is_some() {
            return Err("a workspace has two checkpoints".to_owned());
        }
    }
    for head in heads {
        let workspace = &head.workspace_id;
        match left.remove(workspace) {
            None => {
                return Err(format!(
                    "workspace {workspace} has no signed checkpoint; the end of the file was cut off"
                ));
            }
            Some(place) if place != *head => {
                return Err(format!(
                    "the chain of workspace {workspace} ends at event {}, and the checkpoint says {}",
                    head.sequence, place.sequence
                ));
            }
            Some(_) => {}
        }
    }
    match left.pop_first() {
        Some((workspace, place)) if place.sequence > 0 => Err(format!(
            "the events of workspace {workspace}, which a checkpoint names, are missing"
        )),
        Some(_) | None => Ok(()),
    }
}

struct Lines {
    reader: BufReader<File>,
    number: i64,
    line: String,
}

impl Lines {
    /// Reads the next line; false at the end. One without an end of line was cut.
    fn next(&mut self) -> std::io::Result<bool> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.reader)
            .take(LINE_BYTES)
            .read_line(&mut self.line)?;
        if read > 0 && self.line.pop() != Some('\n') {
            let cut = format!("line {} is cut off", self.number);
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, cut));
        }
        Ok(read > 0)
    }
}
