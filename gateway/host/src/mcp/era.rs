//! Which of the two lifecycles a tool call belongs to, and whether its headers agree with its body.
//!
//! From 2026-07-28 on every request stands alone: it names its protocol version and the client's capabilities in `_meta`,
//! and repeats version, method and tool in headers for those who route it. Before, a handshake opened a session.
//! The rules are those that rmcp holds for every other method.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use serde_json::json;

use super::message::{CallParams, Meta};

pub(super) const PROTOCOL_VERSION: &str = "mcp-protocol-version";
pub(super) const SESSION_ID: &str = "mcp-session-id";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Protocol versions that are spoken, oldest first.
pub(super) const VERSIONS: &[ProtocolVersion] = &[
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// Lifecycle of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Era {
    /// Inside a session that a handshake opened.
    Session,
    /// On its own.
    Request,
}

/// A request that is refused before any tool is looked at.
pub(super) type Refusal = (StatusCode, ErrorData);

/// Tells the lifecycle of a tool call.
///
/// # Errors
/// When headers and body do not agree, or the version is not spoken.
pub(super) fn of_call(headers: &HeaderMap, params: &CallParams<'_>) -> Result<Era, Refusal> {
    let none = Meta::default();
    let meta = params.meta.as_ref().unwrap_or(&none);
    let header = sole(headers, PROTOCOL_VERSION)?;
    let named = meta.protocol_version();
    let newest = ProtocolVersion::V_2026_07_28;
    match (named.as_deref(), header) {
        (Some(version), Some(header)) if version != header => {
            return Err(mismatch(format!(
                "MCP-Protocol-Version header ({header}) does not match request _meta protocolVersion ({version})"
            )));
        }
        (Some(_), None) => {
            return Err(mismatch(
                "request _meta protocolVersion requires MCP-Protocol-Version header",
            ));
        }
        _ => {}
    }
    if let Some(version) = header
        && !VERSIONS.iter().any(|known| known.as_str() == version)
    {
        return Err(unsupported(version));
    }
    let stands_alone = header.is_some_and(|version| version >= newest.as_str())
        || (named.is_some() && meta.has_client_capabilities());
    if !stands_alone {
        return Ok(Era::Session);
    }
    demand_meta(meta)?;
    if header.is_some_and(|version| version >= newest.as_str()) {
        demand_routing_headers(headers, &params.name)?;
    }
    Ok(Era::Request)
}

fn demand_meta(meta: &Meta<'_>) -> Result<(), Refusal> {
    let mut missing = Vec::new();
    if meta.protocol_version().is_none() {
        missing.push("io.modelcontextprotocol/protocolVersion");
    }
    if !meta.has_client_capabilities() {
        missing.push("io.modelcontextprotocol/clientCapabilities");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    let text = format!("request _meta is missing or has malformed required fields: {missing}");
    Err((
        StatusCode::BAD_REQUEST,
        ErrorData::invalid_params(text, None),
    ))
}

fn demand_routing_headers(headers: &HeaderMap, tool: &str) -> Result<(), Refusal> {
    match sole(headers, METHOD)? {
        None => return Err(mismatch("missing required Mcp-Method header")),
        Some("tools/call") => {}
        Some(_) => {
            return Err(mismatch(
                "Mcp-Method header does not match body method `tools/call`",
            ));
        }
    }
    let Some(name) = sole(headers, NAME)? else {
        return Err(mismatch(
            "missing required Mcp-Name header for `tools/call`",
        ));
    };
    let Some(name) = decoded(name) else {
        return Err(mismatch("Mcp-Name header is not valid Base64"));
    };
    if name == tool {
        Ok(())
    } else {
        Err(mismatch("Mcp-Name header does not match the body's name"))
    }
}

/// The one value of a header. Twice the same header is refused: whoever routes by the other one would be misled.
fn sole<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(mismatch(format!("more than one {name} header")));
    }
    first
        .map(|value| {
            value
                .to_str()
                .map_err(|_| mismatch(format!("{name} header is not text")))
        })
        .transpose()
}

/// Names that are no plain header text travel as `=?base64?…?=`.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let Some(inner) = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = BASE64_STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn mismatch(message: impl Into<Cow<'static, str>>) -> Refusal {
    (
        StatusCode::BAD_REQUEST,
        ErrorData::new(ErrorCode::HEADER_MISMATCH, message, None),
    )
}

fn unsupported(version: &str) -> Refusal {
    let spoken: Vec<&str> = VERSIONS.iter().map(ProtocolVersion::as_str).collect();
    (
        StatusCode::BAD_REQUEST,
        ErrorData::new(
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
            "Unsupported protocol version",
            Some(json!({"requested": version, "supported": spoken})),
        ),
    )
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    const ALONE: &str = r#"{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;

    fn judge(params: &str, headers: &[(&'static str, &'static str)]) -> Result<Era, i32> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("value"));
        }
        let params: CallParams<'_> = serde_json::from_str(params).expect("params");
        of_call(&map, &params).map_err(|(status, error)| {
            assert_eq!(status, StatusCode::BAD_REQUEST);
            error.code.0
        })
    }

    #[test]
    fn without_a_version_a_call_belongs_to_a_session() {
        assert_eq!(judge(r#"{"name":"t"}"#, &[]), Ok(Era::Session));
        assert_eq!(
            judge(r#"{"name":"t"}"#, &[(PROTOCOL_VERSION, "2025-06-18")]),
            Ok(Era::Session)
        );
    }

    #[test]
    fn headers_must_agree_with_the_body() {
        let version = (PROTOCOL_VERSION, "2026-07-28");
        let method = (METHOD, "tools/call");
        assert_eq!(
            judge(ALONE, &[version, method, (NAME, "t")]),
            Ok(Era::Request)
        );
        assert_eq!(
            judge(ALONE, &[version, method, (NAME, "=?base64?dA==?=")]),
            Ok(Era::Request)
        );
        for headers in [
            &[][..],
            &[(PROTOCOL_VERSION, "2025-11-25"), method, (NAME, "t")],
            &[version, (NAME, "t")],
            &[version, method],
            &[version, method, (NAME, "u")],
            &[version, method, (NAME, "=?base64?!?=")],
            &[version, method, (NAME, "t"), (NAME, "t")],
            &[version, (METHOD, "tools/list"), (NAME, "t")],
        ] {
            assert_eq!(judge(ALONE, headers), Err(-32020), "{headers:?}");
        }
    }

    #[test]
    fn versions_that_are_not_spoken_are_told() {
        assert_eq!(
            judge(r#"{"name":"t"}"#, &[(PROTOCOL_VERSION, "2031-01-01")]),
            Err(-32022)
        );
        let version = [(PROTOCOL_VERSION, "2026-07-28")];
        assert_eq!(judge(r#"{"name":"t"}"#, &version), Err(-32602));
    }
}
