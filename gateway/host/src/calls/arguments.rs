//! Arguments as they may go into a frame.

use postern_kit::Failure;
use postern_proto::{catalogue::Tool, channel};
use postern_types::{ErrorCode, Sha256, args_sha256};
use serde_json::value::RawValue;

use super::invalid;

/// Arguments up to this many bytes are checked and digested at once; longer ones go to a blocking thread.
const INLINE_ARGS_BYTES: usize = 16 * 1024;

/// Refuses arguments that no frame could carry, and digests the others together with the tool's name.
pub(super) async fn inspect(
    tool: &'static Tool,
    args: Box<RawValue>,
    frame_bytes: usize,
) -> Result<(Box<RawValue>, Sha256), Failure> {
    demand_size(args.get().len(), frame_bytes)?;
    if args.get().len() <= INLINE_ARGS_BYTES {
        let fingerprint = fingerprint(&tool.name, args.get())?;
        return Ok((args, fingerprint));
    }
    // As many as there are calls that may wait, each of at most a frame.
    let inspected = tokio::task::spawn_blocking(move || {
        fingerprint(&tool.name, args.get()).map(|fingerprint| (args, fingerprint))
    });
    inspected
        .await
        .map_err(|_| Failure::new(ErrorCode::Internal, "The arguments could not be inspected."))?
}

fn fingerprint(tool: &str, args: &str) -> Result<Sha256, Failure> {
    // As they will stand in a frame: what passes here does not make the edge close the channel.
    channel::check_args(args).map_err(|error| {
        invalid(format!("The arguments cannot be sent: {error}."))
            .with("pointer", "")
            .with("rule", "json")
    })?;
    if !args.starts_with('{') {
        return Err(invalid("The arguments are one JSON object.")
            .with("pointer", "")
            .with("rule", "type"));
    }
    let digest = args_sha256(args)
        .map_err(|error| invalid(format!("The arguments cannot be sent: {error}.")))?;
    Ok(Sha256::of(format!("{tool}\n{digest}").as_bytes()))
}

pub(super) fn demand_size(bytes: usize, limit: usize) -> Result<(), Failure> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::TooLarge,
        format!("The call would take {bytes} bytes on the channel, and {limit} is the most. Send less at once."),
    )
    .with("bytes", bytes)
    .with("limit", limit))
}
