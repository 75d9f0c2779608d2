//! A call as the rules see it.

use postern_kit::Failure;
use postern_types::{ErrorCode, Mode};
use serde_json::{Map, Value};

use crate::Request;

/// What a tool does, as far as modes and rules care.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Reads, or ends a command: everything with `readOnlyHint`.
    Reading,
    /// Changes files.
    FileChange,
    /// Starts a command or types into one.
    Command,
    /// Calls a tool of the owner.
    OwnerTool,
    /// Asks the owner.
    Question,
}

impl Kind {
    /// The kind of a tool of the catalogue. A tool that is not named here stops the start rather than slip through.
    pub(crate) fn of(tool: &str) -> Option<Self> {
        Some(match tool {
            "workspace_info" | "workspace_tools" | "workspace_list" | "workspace_read"
            | "workspace_image" | "workspace_document" | "workspace_poll" | "workspace_stop" => {
                Self::Reading
            }
            "workspace_write" | "workspace_patch" | "workspace_delete" => Self::FileChange,
            "workspace_exec" | "workspace_input" => Self::Command,
            "workspace_tool" => Self::OwnerTool,
            "workspace_ask" => Self::Question,
            _ => return None,
        })
    }

    /// The kind as rules write it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::FileChange => "file-change",
            Self::Command => "command",
            Self::OwnerTool => "owner-tool",
            Self::Question => "question",
        }
    }
}

/// A valid call of a known tool.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) workspace_id: &'a str,
    pub(crate) session_id: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    /// Where it acts: the path of a file tool, the directory of a command. Relative to the project's root, or absolute when
    /// it is not below that; free of `.`, `..` inside, and doubled slashes.
    pub(crate) path: Option<String>,
    is_root_known: bool,
    /// Text of a command.
    pub(crate) command: Option<&'a str>,
    /// Text typed into a command.
    pub(crate) input: Option<&'a str>,
    /// Name of the owner's tool.
    pub(crate) owner_tool: Option<&'a str>,
    /// Its arguments as compact JSON: each text is written in one way, whatever escapes the call had.
    pub(crate) tool_arguments: Option<String>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        request: &Request<'a>,
        arguments: &'a Map<String, Value>,
    ) -> Result<Self, Failure> {
        let kind = Kind::of(request.tool)
            .ok_or_else(|| Failure::new(ErrorCode::Internal, "The tool has no kind."))?;
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let path = match request.tool {
            "workspace_list" => Some(text("path").unwrap_or(".")),
            "workspace_exec" => Some(text("cwd").unwrap_or(".")),
            _ => text("path"),
        };
        Ok(Self {
            workspace_id: request.workspace_id,
            session_id: request.session_id,
            tool: request.tool,
            kind,
            mode: request.mode,
            path: path.map(|path| relative(normal(path), request.project_path)),
            is_root_known: !request.project_path.is_empty(),
            command: text("command"),
            input: text("text"),
            owner_tool: text("name"),
            tool_arguments: arguments
                .get("arguments")
                .filter(|_| kind == Kind::OwnerTool)
                .map(Value::to_string),
        })
    }

    /// The same call at the place to which its path leads; none when that is not known, or the path itself.
    pub(crate) fn at(mut self, place: &str) -> Option<Self> {
        if place.is_empty() || self.path.as_deref() == Some(place) {
            return None;
        }
        self.path = Some(place.to_owned());
        Some(self)
    }

    /// Whether the path is written from the root of the file system, and rules cannot tell where in the project it leads. With
    /// the project's root known, one that is not below it leads out, and is refused by whoever would open it.
    pub(crate) fn is_unplaced(&self) -> bool {
        !self.is_root_known && self.path.as_ref().is_some_and(|path| path.starts_with('/'))
    }
}

/// A path without the spellings that would hide it from a rule: `a/./b//c/../d` is `a/b/d`. What leads above the root keeps
/// its `..`. Links are not followed: this is what was written, not where it leads.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if path.starts_with('/') {
        format!("/{joined}")
    } else if joined.is_empty() {
        ".".to_owned()
    } else {
        joined
    }
}

/// A path below the project's root as one relative to it.
fn relative(path: String, root: &str) -> String {
    match path.strip_prefix(root.trim_end_matches('/')) {
        Some("") if !root.is_empty() => ".".to_owned(),
        Some(below) if !root.is_empty() && below.starts_with('/') => match &below[1..] {
            "" => ".".to_owned(),
            below => below.to_owned(),
        },
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use postern_proto::catalogue;
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn spellings_of_one_path_are_one() {
        for (written, meant) in [
            ("a/b", "a/b"),
            ("./a//b/", "a/b"),
            ("a/./x/../b", "a/b"),
            (".", "."),
            ("a/..", "."),
            ("../a", "../a"),
            ("a/../../b", "../b"),
            ("../../a", "../../a"),
            ("/a/../b/", "/b"),
            ("/", "/"),
        ] {
            assert_eq!(normal(written), meant, "{written}");
        }
    }

    #[test]
    fn what_is_below_the_root_is_relative_to_it() {
        for (path, root, meant) in [
            ("/home/me/p/a/b", "/home/me/p", "a/b"),
            ("/home/me/p", "/home/me/p", "."),
            ("/home/me/p", "/home/me/p/", "."),
            ("/home/me/page", "/home/me/p", "/home/me/page"),
            ("/home", "/home/me/p", "/home"),
            ("/home/me/p/a", "", "/home/me/p/a"),
            ("/a", "/", "a"),
            ("/", "/", "."),
            ("a", "/home/me/p", "a"),
        ] {
            assert_eq!(relative(path.to_owned(), root), meant, "{path} {root}");
        }
    }

    #[test]
    fn reading_is_what_the_catalogue_hints_as_read_only() {
        for tool in catalogue::workspace_tools() {
            assert_eq!(
                Kind::of(&tool.name) == Some(Kind::Reading),
                tool.annotations.read_only_hint,
                "{}",
                tool.name
            );
        }
    }
}
