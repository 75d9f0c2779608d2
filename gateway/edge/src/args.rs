//! Arguments of the tools, read once the policy has found them valid.

use std::fmt;

use postern_kit::Failure;
use postern_types::ErrorCode;
use serde::{Deserialize, Deserializer, de::Visitor};

use crate::call::Call;

#[derive(Debug, Deserialize)]
pub(crate) struct List {
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default, deserialize_with = "integer")]
    pub(crate) offset: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Read {
    pub(crate) path: String,
    #[serde(default, deserialize_with = "integer")]
    pub(crate) offset: u64,
    #[serde(default, deserialize_with = "integer")]
    pub(crate) limit: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Image {
    pub(crate) path: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    pub(crate) path: String,
    #[serde(default = "first_page", deserialize_with = "integer")]
    pub(crate) page: u64,
}

const fn first_page() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Write {
    pub(crate) path: String,
    pub(crate) content: String,
    pub(crate) expected_sha256: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Patch {
    pub(crate) path: String,
    pub(crate) old_text: String,
    pub(crate) new_text: String,
    pub(crate) expected_sha256: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delete {
    pub(crate) path: String,
    pub(crate) expected_sha256: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exec {
    pub(crate) command: String,
    #[serde(default)]
    pub(crate) cwd: String,
    #[serde(default = "default_timeout_ms", deserialize_with = "integer")]
    pub(crate) timeout_ms: u64,
}

/// Time limit of a command that names none (CONTRACT.md, section 3).
pub(crate) const DEFAULT_TIMEOUT_MS: u64 = 120_000;

const fn default_timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Poll {
    pub(crate) command_id: String,
    #[serde(default, deserialize_with = "integer")]
    pub(crate) offset: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    pub(crate) command_id: String,
    pub(crate) text: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stop {
    pub(crate) command_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OwnerTool {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OwnerToolCall {
    pub(crate) name: String,
    pub(crate) arguments: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Ask {
    pub(crate) question: String,
}

/// The path on which a call acts: of a file tool, or the directory of a command when it names one. `None` for other tools, and
/// for arguments that cannot be read.
pub(crate) fn path(call: &Call) -> Option<String> {
    let path = match call.tool.as_str() {
        "workspace_list" => read::<List>(call).ok()?.path,
        "workspace_read" => read::<Read>(call).ok()?.path,
        "workspace_image" => read::<Image>(call).ok()?.path,
        "workspace_document" => read::<Document>(call).ok()?.path,
        "workspace_write" => read::<Write>(call).ok()?.path,
        "workspace_patch" => read::<Patch>(call).ok()?.path,
        "workspace_delete" => read::<Delete>(call).ok()?.path,
        "workspace_exec" => read::<Exec>(call).ok()?.cwd,
        _ => return None,
    };
    let names_none = call.tool == "workspace_exec" && matches!(path.as_str(), "" | ".");
    (!names_none).then_some(path)
}

/// Reads a tool's arguments.
pub(crate) fn read<'a, T: Deserialize<'a>>(call: &'a Call) -> Result<T, Failure> {
    serde_json::from_str(call.args()).map_err(|_| {
        // The policy has said that they are valid, so this is a second lock on the same door.
        Failure::new(
            ErrorCode::InvalidArguments,
            "The arguments do not meet the tool's input schema.",
        )
        .with("pointer", "")
        .with("rule", "type")
    })
}

/// JSON Schema's integers include `1.0`, and have no upper end: what is beyond `u64` is as far as one can go.
fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Integer;

    impl Visitor<'_> for Integer {
        type Value = u64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an integer that is not negative")
        }

        fn visit_u64<E>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u64, E> {
            u64::try_from(number).map_err(E::custom)
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<u64, E> {
            if number >= 0.0 && number.fract() == 0.0 {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the cast of a whole number that is not negative saturates"
                )]
                Ok(number as u64)
            } else {
                Err(E::custom("not a whole number"))
            }
        }
    }

    deserializer.deserialize_any(Integer)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn integers_are_those_of_json_schema() {
        let offset = |text: &str| {
            serde_json::from_str::<Poll>(&format!(r#"{{"commandId":"c","offset":{text}}}"#))
                .map(|poll| poll.offset)
                .ok()
        };
        assert_eq!(offset("7"), Some(7));
        assert_eq!(offset("7.0"), Some(7));
        assert_eq!(offset("1e3"), Some(1000));
        assert_eq!(offset("9223372036854775808"), Some(1 << 63));
        assert_eq!(offset("1e30"), Some(u64::MAX));
        for bad in ["1.5", "-1", "\"7\"", "null"] {
            assert_eq!(offset(bad), None, "{bad}");
        }
    }
}
