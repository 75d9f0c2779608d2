//! What the conformance suite asks of a server beyond what the product offers: tools that speak with the client, prompts,
//! resources, subscriptions. As data as far as possible.
#![expect(deprecated, reason = "the suite still asks for what is deprecated")]

mod inputs;

use std::{borrow::Cow, sync::LazyLock, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
        DiscoverResult, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProtocolVersion,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
        ServerConfig, ServerRequest, SetLevelRequestParams, SubscribeRequestParams,
        SubscriptionFilter, Tool, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::mcp::listing::{Front, Listing};

/// Between two signs of a tool that takes a while.
const PAUSE: Duration = Duration::from_millis(50);
/// Changes that a slow listener may be behind.
const CHANGES: usize = 16;

static DATA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("fixtures/data.json")).expect("JSON"));

/// The result of a tool of the workspace.
pub(super) fn result(tool: &str) -> Option<&'static Value> {
    DATA["results"].get(tool)
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("data of that type")
}

/// Puts arguments in the places that bear their names.
fn filled(data: &Value, arguments: Option<&serde_json::Map<String, Value>>) -> Value {
    let mut text = data.to_string();
    for (name, value) in arguments.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        text = text.replace(&format!("{{{name}}}"), value);
    }
    serde_json::from_str(&text).expect("JSON")
}

/// Which list has changed.
#[derive(Clone, Copy, Debug)]
enum Change {
    Tools,
    Prompts,
}

/// The product's listing, and the suite's wishes.
#[derive(Clone)]
pub(super) struct Fixtures {
    listing: Listing,
    changes: broadcast::Sender<Change>,
}

impl Fixtures {
    pub(super) fn new() -> Self {
        Self {
            listing: Listing::new(true),
            changes: broadcast::Sender::new(CHANGES),
        }
    }

    fn tools() -> Vec<Tool> {
        typed(DATA["tools"].clone())
    }

    fn changed(&self, change: Change) -> CallToolResponse {
        // Nobody may be listening.
        let _listeners = self.changes.send(change);
        done("changed")
    }
}

impl Front for Fixtures {
    const CALLS: bool = true;

    fn calls(&self, tool: &str) -> bool {
        !self.offers(tool) && Self::tools().iter().any(|known| known.name == tool)
    }

    fn offers(&self, tool: &str) -> bool {
        result(tool).is_some()
    }
}

fn done(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text.into())]).into()
}

fn internal(problem: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(problem.to_string(), None)
}

/// Asks the client something in the middle of a call: its answer.
async fn ask(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let request = filled(
        &DATA["asked"][params.name.as_ref()],
        params.arguments.as_ref(),
    );
    let request: ServerRequest = typed(request);
    let answer = context.peer.send_request(request).await.map_err(internal)?;
    serde_json::to_value(answer).map_err(internal)
}

/// Logs, unless the client stands alone and has not asked for it.
async fn log(context: &RequestContext<RoleServer>, text: &str) -> Result<(), ErrorData> {
    if context.meta.protocol_version().is_some() && context.meta.log_level().is_none() {
        return Ok(());
    }
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
    let sent = context.peer.notify_logging_message(message).await;
    sent.map_err(internal)
}

async fn log_thrice(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    for text in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        log(context, text).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(done("logged"))
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    for progress in [0, 50, 100] {
        if let Some(token) = context.meta.get_progress_token() {
            let sign = json!({"progressToken": token, "progress": progress, "total": 100});
            let sent = context.peer.notify_progress(typed(sign)).await;
            sent.map_err(internal)?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(done("progressed"))
}

fn needs_sampling(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    let declared = context.client_capabilities().unwrap_or_default();
    if declared.sampling.is_none() {
        let needed: ClientCapabilities = typed(json!({"sampling": {}}));
        return Err(ErrorData::missing_required_client_capability(needed));
    }
    Ok(done("sampled"))
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_logging()
            .enable_completions()
            .build();
        let mut info = self.listing.get_info();
        info.capabilities = capabilities;
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.listing.supported_protocol_versions()
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut found = self.listing.discover(context).await?;
        found.capabilities = self.get_info().capabilities;
        Ok(found)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = self.listing.list_tools(request, context).await?;
        list.tools.extend(Self::tools());
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        Self::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match params.name.as_ref() {
            "test_tool_with_logging" | "test_logging_tool" => log_thrice(&context).await,
            "test_tool_with_progress" | "test_reconnection" => progress(&context).await,
            "test_sampling" => {
                let answer = ask(&params, &context).await?;
                let text = &answer["content"]["text"];
                Ok(done(format!(
                    "LLM response: {}",
                    text.as_str().unwrap_or_default()
                )))
            }
            "test_elicitation" => {
                let answer = ask(&params, &context).await?;
                Ok(done(format!("User response: {answer}")))
            }
            "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
                let answer = ask(&params, &context).await?;
                let action = answer["action"].as_str().unwrap_or_default();
                let content = &answer["content"];
                Ok(done(format!(
                    "Elicitation completed: action={action}, content={content}"
                )))
            }
            "test_missing_capability" => needs_sampling(&context),
            "test_trigger_tool_change" => Ok(self.changed(Change::Tools)),
            "test_trigger_prompt_change" => Ok(self.changed(Change::Prompts)),
            "test_header" => Ok(done("headed")),
            name => {
                let given = inputs::Given::of(&params.input_responses, &params.request_state);
                match inputs::missing(name, &given, &context)? {
                    Some(missing) => Ok(CallToolResponse::InputRequired(missing)),
                    None => Ok(done("state-ok")),
                }
            }
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(typed(
            DATA["prompts"].clone(),
        )))
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let messages = DATA["messages"].get(&params.name);
        let messages = messages.ok_or_else(|| ErrorData::invalid_params("no such prompt", None))?;
        let given = inputs::Given::of(&params.input_responses, &params.request_state);
        if let Some(missing) = inputs::missing(&params.name, &given, &context)? {
            return Ok(GetPromptResponse::InputRequired(missing));
        }
        let messages = filled(messages, params.arguments.as_ref());
        let result: GetPromptResult =
            typed(json!({"resultType": "complete", "messages": messages}));
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(typed(
            DATA["resources"].clone(),
        )))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = typed(DATA["templates"].clone());
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = params.uri;
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (DATA["contents"].get(&uri), id) {
            (Some(contents), _) => contents.clone(),
            (None, Some(id)) => {
                let data = format!("Data for ID: {id}");
                let text = json!({"id": id, "templateTest": true, "data": data}).to_string();
                json!({"uri": uri, "mimeType": "application/json", "text": text})
            }
            (None, None) => {
                let data = json!({"uri": uri});
                return Err(ErrorData::resource_not_found(
                    "Resource not found",
                    Some(data),
                ));
            }
        };
        let result: ReadResourceResult =
            typed(json!({"resultType": "complete", "contents": [contents]}));
        Ok(result.into())
    }

    async fn set_level(
        &self,
        _params: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if context.meta.protocol_version().is_some() {
            return Err(ErrorData::method_not_found::<
                rmcp::model::SetLevelRequestMethod,
            >());
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        _params: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _params: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change.map_err(internal)?,
            };
            // What the client has not asked to hear is not sent.
            let _sent = match change {
                Change::Tools => context.sink().notify_tool_list_changed().await,
                Change::Prompts => context.sink().notify_prompt_list_changed().await,
            };
        }
    }
}
