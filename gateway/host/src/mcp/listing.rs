//! What a client is told of the server: its name, its instructions and its tools.
//!
//! The protocol library answers these questions in both lifecycles. Tool calls never reach it (see [`super::calling`]).

use std::{borrow::Cow, sync::Arc};

use http::{Uri, request::Parts};
use postern_proto::catalogue::{self, Annotations};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, DiscoverResult, Implementation, ListToolsResult, PaginatedRequestParams,
        ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use super::era::VERSIONS;

/// Longest instructions that clients take whole, in characters.
#[cfg(test)]
const MAX_INSTRUCTIONS_CHARS: usize = 2048;
/// How long a client may keep the list of tools. It changes with the program alone.
const LIST_TTL_MS: u64 = 300_000;
/// A page of a file or of output, escaped, is longer than what some clients show by themselves (50,000 characters).
const MAX_RESULT_CHARS: u64 = 500_000;
/// Tools whose answers are pages of content.
const PAGED: [&str; 4] = [
    "workspace_read",
    "workspace_poll",
    "workspace_document",
    "workspace_list",
];

const INSTRUCTIONS: &str = "\
You work in a project on its owner's machine, through a door that the owner opened. The owner may watch, approve or refuse \
each change, and close the door at any time.

Start with workspace_info: it tells the project, the machine, the mode (how far you may go without the owner) and the \
project's own instructions, which you should follow.

Files: paths are relative to the project's root. workspace_read tells a file's sha256; pass it as expectedSha256 when you \
write, patch or delete. STALE_REVISION means that the file has changed since: read it again and decide anew. Long files and \
lists come in pages; nothing is left out unless nextOffset is set.

Commands: workspace_exec returns a commandId at once; follow it with workspace_poll, passing nextOffset as offset. \
workspace_input types into its terminal, workspace_stop ends it. A command goes on when the connection drops.

Approvals: in some modes a change waits until the owner has decided, up to ten minutes. APPROVAL_DENIED is an answer, not a \
fault: do not try the same another way. workspace_ask puts a question to the owner.

Failures: a result with isError holds error.code, a message that says what to do next, and retryable. After UNCERTAIN look \
at what happened before you act again. Each answer's _meta holds postern/callId; send a lost call again with that id in the \
request's _meta and nothing is done twice.";

/// Which tools are listed. A profile hides; it neither permits nor forbids.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Profile {
    /// The workspace tools and the workspace context.
    #[default]
    Core,
    /// Every tool.
    Full,
}

/// The profile's name is not known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct UnknownProfile;

impl Profile {
    /// The profile that a request's query names.
    ///
    /// # Errors
    /// [`UnknownProfile`].
    pub(super) fn of(uri: &Uri) -> Result<Self, UnknownProfile> {
        let query = uri.query().unwrap_or_default();
        let named = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("profile="));
        let mut profile = Self::Core;
        for name in named {
            profile = match name {
                "core" => Self::Core,
                "full" => Self::Full,
                _ => return Err(UnknownProfile),
            };
        }
        Ok(profile)
    }
}

/// What the protocol library answers by: all that is no call of a tool.
///
/// The product's front is [`Listing`], and has no tools of its own. That of the conformance suite, in the tests, has what the
/// suite asks for beyond what the product offers, in the same server.
pub(super) trait Front: ServerHandler + Clone + Send + Sync + 'static {
    /// Whether it calls tools at all.
    const CALLS: bool = false;

    /// Whether it calls this tool itself.
    fn calls(&self, _tool: &str) -> bool {
        false
    }

    /// Whether the workspace has this tool, beside those of the catalogue.
    fn offers(&self, _tool: &str) -> bool {
        false
    }
}

impl Front for Listing {}

/// Answers what the server is and has.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    core: Arc<[Tool]>,
    full: Arc<[Tool]>,
}

impl Listing {
    /// The catalogue as MCP tools.
    pub(super) fn new(output_schemas: bool) -> Self {
        let mut full = Vec::new();
        let mut core = Vec::new();
        let tools = catalogue::identity_tools()
            .iter()
            .chain(catalogue::workspace_tools());
        for tool in tools {
            let listed = listed(tool, output_schemas);
            if tool.name != "sosoapi_create_workspace" {
                core.push(listed.clone());
            }
            full.push(listed);
        }
        Self {
            core: core.into(),
            full: full.into(),
        }
    }

    fn tools(&self, profile: Profile) -> Vec<Tool> {
        match profile {
            Profile::Core => self.core.to_vec(),
            Profile::Full => self.full.to_vec(),
        }
    }
}

fn listed(tool: &catalogue::Tool, output_schemas: bool) -> Tool {
    let mut value = json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": annotations(tool.annotations),
    });
    if output_schemas && let Some(schema) = &tool.output_schema {
        value["outputSchema"] = schema.clone();
    }
    if PAGED.contains(&tool.name.as_str()) {
        value["_meta"] = json!({"anthropic/maxResultSizeChars": MAX_RESULT_CHARS});
    }
    #[expect(
        clippy::expect_used,
        reason = "the catalogue is compiled in and a test lists it"
    )]
    serde_json::from_value(value).expect("a catalogue tool is an MCP tool")
}

fn annotations(annotations: Annotations) -> Value {
    json!(annotations)
}

impl ServerHandler for Listing {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("postern", env!("CARGO_PKG_VERSION"))
            .with_title("Postern")
            .with_description(
                "Tools of one project, on its owner's machine and under its owner's eyes.",
            );
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(VERSIONS)
    }

    async fn discover(
        &self,
        _context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut found = DiscoverResult::from_server_info(VERSIONS.to_vec(), self.get_info());
        found.ttl_ms = LIST_TTL_MS;
        Ok(found)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params("the list has one page", None));
        }
        let profile = context
            .extensions
            .get::<Parts>()
            .and_then(|parts| Profile::of(&parts.uri).ok())
            .unwrap_or_default();
        let mut list = ListToolsResult::with_all_items(self.tools(profile));
        list.ttl_ms = Some(LIST_TTL_MS);
        list.cache_scope = Some(CacheScope::Private);
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn names(tools: &[Tool]) -> Vec<&str> {
        tools.iter().map(|tool| tool.name.as_ref()).collect()
    }

    #[test]
    fn instructions_are_taken_whole_by_clients() {
        assert!(INSTRUCTIONS.chars().count() < MAX_INSTRUCTIONS_CHARS);
    }

    #[test]
    fn profiles_list_the_contracts_tools() {
        let listing = Listing::new(false);
        let core = listing.tools(Profile::Core);
        let full = listing.tools(Profile::Full);
        assert_eq!((core.len(), full.len()), (16, 17));
        assert_eq!(names(&core)[0], "sosoapi_get_workspace_context");
        assert!(!names(&core).contains(&"sosoapi_create_workspace"));
        assert!(names(&full).contains(&"sosoapi_create_workspace"));
        assert!(full.iter().all(|tool| tool.output_schema.is_none()));
    }

    #[test]
    fn annotations_and_schemas_are_the_contracts_to_the_letter() {
        let contracts: Vec<Value> = [catalogue::IDENTITY_CONTRACT, catalogue::CHANNEL_CONTRACT]
            .iter()
            .flat_map(|text| {
                let contract: Value = serde_json::from_str(text).expect("contract");
                contract["tools"].as_array().expect("tools").clone()
            })
            .collect();
        let listed = Listing::new(true).tools(Profile::Full);
        assert_eq!(contracts.len(), listed.len());
        for (contract, tool) in contracts.iter().zip(&listed) {
            let tool = json!(tool);
            for field in [
                "name",
                "description",
                "inputSchema",
                "outputSchema",
                "annotations",
            ] {
                assert_eq!(tool[field], contract[field], "{field}");
            }
        }
    }

    #[test]
    fn profiles_are_named_in_the_query() {
        let of = |uri: &'static str| Profile::of(&Uri::from_static(uri));
        assert_eq!(of("/mcp"), Ok(Profile::Core));
        assert_eq!(of("/mcp?profile=core"), Ok(Profile::Core));
        assert_eq!(of("/mcp?x=1&profile=full"), Ok(Profile::Full));
        assert_eq!(of("/mcp?profile=all"), Err(UnknownProfile));
    }
}
