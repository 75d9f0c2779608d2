//! Schemas of texts that have a form, and those that the contract gives.

use std::borrow::Cow;

use postern_proto::catalogue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Text that is a UUID.
pub(crate) struct Uuid;

impl JsonSchema for Uuid {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Uuid".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "uuid"})
    }
}

/// Text that is an instant of RFC 3339, in UTC.
pub(crate) struct Time;

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// The input of a tool of the host, to the letter of the contract.
pub(crate) fn tool_input(name: &str) -> Schema {
    let tool = catalogue::identity_tools()
        .iter()
        .find(|tool| tool.name == name);
    tool.and_then(|tool| Schema::try_from(tool.input_schema.clone()).ok())
        .unwrap_or_default()
}
