//! `workspace_upload`: a text file of the client's machine into the project. It exists over stdio only, and only with
//! `--upload-root`: beneath that directory alone files are read, and what is sent is an ordinary `workspace_write`.

use std::{io::Read as _, sync::LazyLock};

use postern_kit::{
    Failure,
    root::{self, Root},
};
use postern_proto::catalogue;
use postern_types::ErrorCode;
use serde::Deserialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use super::message::{self, Object, Request};

/// Name of the tool.
const UPLOAD: &str = "workspace_upload";
/// The tool that does it.
const WRITE: &str = "workspace_write";
/// Longest path, in characters.
const MAX_PATH_CHARS: usize = 2048;

/// Largest file, in bytes: the longest text that a write takes.
static MAX_BYTES: LazyLock<u64> = LazyLock::new(|| {
    let tool = catalogue::workspace_tool(WRITE);
    tool.and_then(|tool| tool.input_schema["properties"]["content"]["maxLength"].as_u64())
        .unwrap_or_default()
});

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    local_path: String,
    path: String,
    #[serde(deserialize_with = "required")]
    expected_sha256: Option<String>,
}

/// A field that may be null, but not left out.
fn required<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// The write that an upload stands for; nothing for every other request.
///
/// # Errors
/// What the client is told instead.
pub(super) async fn prepare(root: &Root, request: &Request) -> Result<Option<Request>, String> {
    if request.method != "tools/call" || request.name.as_deref() != Some(UPLOAD) {
        return Ok(None);
    }
    // Reads of one megabyte at most; a slow disk holds up this call's thread alone.
    let outcome = tokio::task::block_in_place(|| write_of(root, request));
    outcome
        .map(Some)
        .map_err(|failure| message::tool_failure(&request.id, &request.era, &failure.to_json()))
}

fn write_of(root: &Root, request: &Request) -> Result<Request, Failure> {
    let internal = |problem: serde_json::Error| {
        tracing::error!(%problem, "an upload cannot be written as a call");
        Failure::new(ErrorCode::Internal, "The upload could not be prepared.")
    };
    let body: Object<'_> = serde_json::from_str(&request.body).map_err(internal)?;
    let mut params: Object<'_> = match body.get("params") {
        Some(raw) => message::read_object(raw).map_err(internal)?,
        None => Object::new(),
    };
    let arguments = arguments(params.get("arguments").copied())?;
    let content = read(root, &arguments.local_path)?;
    let arguments = to_raw_value(&json!({
        "path": arguments.path,
        "content": content,
        "expectedSha256": arguments.expected_sha256,
    }))
    .map_err(internal)?;
    let name = to_raw_value(WRITE).map_err(internal)?;
    params.insert("name".to_owned(), &name);
    params.insert("arguments".to_owned(), &arguments);
    Ok(Request {
        body: message::written(&request.id, &request.method, &params).map_err(internal)?,
        name: Some(WRITE.to_owned()),
        ..request.clone()
    })
}

fn arguments(raw: Option<&RawValue>) -> Result<Arguments, Failure> {
    let invalid = |rule: String| {
        Failure::new(
            ErrorCode::InvalidArguments,
            format!(
                "{UPLOAD} takes localPath, path and expectedSha256 (null for a new file): {rule}."
            ),
        )
        .with("pointer", "")
        .with("rule", rule)
    };
    let text = raw.map_or("{}", RawValue::get);
    let arguments: Arguments =
        serde_json::from_str(text).map_err(|problem| invalid(problem.to_string()))?;
    let length = arguments.local_path.chars().count();
    if (1..=MAX_PATH_CHARS).contains(&length) {
        Ok(arguments)
    } else {
        Err(invalid(format!(
            "localPath has 1 to {MAX_PATH_CHARS} characters"
        )))
    }
}

/// Reads a file beneath the upload root, by the same rules as in a project: links may not leave it, and only regular
/// files are opened.
fn read(root: &Root, local_path: &str) -> Result<String, Failure> {
    let limit = *MAX_BYTES;
    let found = root.find(local_path)?;
    let shown = found.place.shown.clone();
    let file = root::open_file(&found)?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|problem| {
            let text = format!("'{}' cannot be read: {problem}", root::brief(&shown));
            Failure::new(ErrorCode::Unavailable, text)
        })?;
    if bytes.len() as u64 > limit {
        return Err(Failure::new(
            ErrorCode::TooLarge,
            format!(
                "'{}' is over {limit} bytes, which is the most that one call writes.",
                root::brief(&shown)
            ),
        )
        .with("limit", limit));
    }
    String::from_utf8(bytes).map_err(|problem| {
        let offset = problem.utf8_error().valid_up_to();
        Failure::new(
            ErrorCode::NotUtf8,
            format!(
                "'{}' is not UTF-8 text; only text files can be uploaded.",
                root::brief(&shown)
            ),
        )
        .with("offset", offset)
    })
}

/// The tool as it is listed.
fn tool() -> Value {
    let path = json!({"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARS});
    let mut local_path = path.clone();
    local_path["description"] =
        "File on the machine of this client, beneath the directory that its owner allowed.".into();
    let mut target = path;
    target["description"] = "Where the file goes in the project.".into();
    json!({
        "name": UPLOAD,
        "title": "Upload a text file",
        "description": "Copy a UTF-8 text file of this machine into the project. Give the file's last seen SHA-256 to replace it, or null to create it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "localPath": local_path,
                "path": target,
                "expectedSha256": {"type": ["string", "null"], "pattern": "^[a-f0-9]{64}$"},
            },
            "required": ["localPath", "path", "expectedSha256"],
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false},
    })
}

/// A list of tools with the upload at its end.
pub(super) fn listed(answer: String) -> String {
    let Ok(mut message) = serde_json::from_str::<Value>(&answer) else {
        return answer;
    };
    let result = &mut message["result"];
    if result["nextCursor"].is_string() {
        return answer;
    }
    match result["tools"].as_array_mut() {
        Some(tools) => tools.push(tool()),
        None => return answer,
    }
    message.to_string()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::{super::message::Incoming, *};

    fn request(arguments: &Value) -> Request {
        let line = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": UPLOAD, "arguments": arguments}});
        let Incoming::Request(request) = message::read(line.to_string().as_bytes()) else {
            panic!("no request: {line}");
        };
        request
    }

    fn fixture() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().expect("directory");
        let root = directory.path().join("root");
        std::fs::create_dir(&root).expect("root");
        std::fs::write(root.join("a.txt"), "text\r\n").expect("file");
        std::fs::write(root.join("b.bin"), b"ab\xff").expect("file");
        std::fs::write(directory.path().join("secret"), "MARK").expect("file");
        std::os::unix::fs::symlink("../secret", root.join("leak")).expect("link");
        let opened = Root::open(&root).expect("root");
        (directory, opened)
    }

    #[test]
    fn an_upload_is_a_write_of_the_files_bytes() {
        let (_directory, root) = fixture();
        let arguments = json!({"localPath": "a.txt", "path": "to/a.txt", "expectedSha256": null});
        let write = write_of(&root, &request(&arguments)).expect("a write");
        let sent: Value = serde_json::from_str(&write.body).expect("JSON");
        assert_eq!(sent["params"]["name"], WRITE);
        assert_eq!(
            sent["params"]["arguments"],
            json!({"path": "to/a.txt", "content": "text\r\n", "expectedSha256": null})
        );
        assert!(sent["params"]["_meta"]["postern/callId"].is_string());
    }

    #[test]
    fn nothing_outside_the_upload_root_is_read() {
        let (directory, root) = fixture();
        let outside = directory.path().join("secret").display().to_string();
        for path in ["../secret", "leak", &outside, "x/../../secret"] {
            let arguments = json!({"localPath": path, "path": "a", "expectedSha256": null});
            let failure = write_of(&root, &request(&arguments)).expect_err(path);
            assert!(
                matches!(
                    failure.code,
                    ErrorCode::PathEscapesProject | ErrorCode::NotFound
                ),
                "{path}: {failure}"
            );
            assert!(!failure.to_json().to_string().contains("MARK"));
        }
    }

    #[test]
    fn what_is_no_text_file_or_no_argument_is_told() {
        let (directory, root) = fixture();
        let large = std::fs::File::create(directory.path().join("root/large")).expect("file");
        large.set_len(*MAX_BYTES + 1).expect("size");
        let new = |path: &str| json!({"localPath": path, "path": "a", "expectedSha256": null});
        for (arguments, code) in [
            (new("b.bin"), ErrorCode::NotUtf8),
            (new("large"), ErrorCode::TooLarge),
            (new("."), ErrorCode::NotAFile),
            (new("missing"), ErrorCode::NotFound),
            (new(""), ErrorCode::InvalidArguments),
            (
                json!({"localPath": "a.txt", "path": "a"}),
                ErrorCode::InvalidArguments,
            ),
            (
                json!({"localPath": "a.txt", "path": "a", "expectedSha256": null, "x": 1}),
                ErrorCode::InvalidArguments,
            ),
        ] {
            let failure = write_of(&root, &request(&arguments)).expect_err("refused");
            assert_eq!(failure.code, code, "{arguments}");
        }
    }

    #[test]
    fn the_tool_is_listed_at_the_end_of_the_last_page() {
        let page = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}]}}"#;
        let listed: Value = serde_json::from_str(&super::listed(page.to_owned())).expect("JSON");
        assert_eq!(listed["result"]["tools"][1]["name"], UPLOAD);
        let first = page.replace("]}", r#"],"nextCursor":"x"}"#);
        assert_eq!(super::listed(first.clone()), first);
    }
}
