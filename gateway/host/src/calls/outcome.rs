//! What a result says of the outcome of its call.

use postern_types::ErrorCode;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Largest result that may be an error, in bytes. A result past that is not looked into.
const MAX_ERROR_BYTES: usize = 64 * 1024;

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
    if result.len() > MAX_ERROR_BYTES {
        return false;
    }
    let Ok(head) = serde_json::from_str::<ResultHead<'_>>(result) else {
        return false;
    };
    let error = head
        .structured_content
        .filter(|_| head.is_error)
        .and_then(|content| serde_json::from_str::<ErrorResult<'_>>(content.get()).ok());
    error.is_some_and(|result| {
        [ErrorCode::Busy, ErrorCode::Unavailable]
            .iter()
            .any(|code| code.as_str() == result.error.code)
    })
}
