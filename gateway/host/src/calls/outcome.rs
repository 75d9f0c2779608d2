//! What a result says of the outcome of its call.

use postern_kit::metrics;
use postern_types::ErrorCode;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Largest result that may be an error, in bytes. A result past that is not looked into.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// What figures call the outcome of a call that was done.
const OK: &str = "ok";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultHead<'a> {
    #[serde(default)]
    is_error: bool,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorResult<'a> {
    #[serde(borrow)]
    error: ErrorHead<'a>,
}

#[derive(Deserialize)]
struct ErrorHead<'a> {
    #[serde(borrow)]
    code: std::borrow::Cow<'a, str>,
}

/// Whether a result says that nothing came of the call: `BUSY` and `UNAVAILABLE` leave nothing behind (CONTRACT.md,
/// section 2).
pub(super) fn is_no_outcome(result: &str) -> bool {
    [ErrorCode::Busy, ErrorCode::Unavailable]
        .iter()
        .any(|code| code.as_str() == outcome(result))
}

/// `ok`, or the code of the error that a result is. A code that is none of the contract's has one name with all others.
pub(super) fn outcome(result: &str) -> &'static str {
    if result.len() > MAX_ERROR_BYTES {
        return OK;
    }
    let Ok(head) = serde_json::from_str::<ResultHead<'_>>(result) else {
        return OK;
    };
    let error = head
        .structured_content
        .filter(|_| head.is_error)
        .and_then(|content| serde_json::from_str::<ErrorResult<'_>>(content.get()).ok());
    error.map_or(OK, |result| {
        let code = result.error.code.parse::<ErrorCode>();
        code.map_or(metrics::OTHER, ErrorCode::as_str)
    })
}
