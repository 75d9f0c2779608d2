//! `postern workspace`, `postern launch` and `postern token`: a host's identity API. They print the API's JSON.

use serde_json::{Map, Value, json};

use crate::{
    cli::{ExistingLaunch, HostAccess, Launch, LaunchCreate, Token, Workspace},
    error::Error,
    output,
    remote::Api,
};

/// Runs `postern workspace …`.
pub(crate) fn workspace(arguments: Workspace) -> Result<(), Error> {
    match arguments {
        Workspace::Create {
            access,
            name,
            organization,
            idempotency_key,
        } => post(
            &access,
            "/identity-api/workspace/create",
            object([
                ("name", Some(json!(name))),
                ("organization_id", organization.map(Value::from)),
                ("idempotency_key", idempotency_key.map(Value::from)),
            ]),
        ),
        Workspace::List { access } => post(&access, "/identity-api/workspace/list", json!({})),
    }
}

/// Runs `postern launch …`.
pub(crate) fn launch(arguments: Launch) -> Result<(), Error> {
    match arguments {
        Launch::Create(create) => create_launch(create),
        Launch::Existing(ExistingLaunch::List { access, workspace }) => post(
            &access,
            "/identity-api/launch/list",
            object([("workspace_id", workspace.map(Value::from))]),
        ),
        Launch::Existing(ExistingLaunch::Revoke { access, id }) => {
            post(&access, "/identity-api/launch/revoke", json!({ "id": id }))
        }
    }
}

fn create_launch(create: LaunchCreate) -> Result<(), Error> {
    post(
        &create.access,
        "/identity-api/launch/create",
        object([
            ("workspace_id", Some(json!(create.workspace))),
            ("intention", Some(json!(create.intention))),
            ("expires_in", create.expires_in.map(Value::from)),
            ("token_id", create.token_id.map(Value::from)),
        ]),
    )
}

/// Runs `postern token …`.
pub(crate) fn token(arguments: Token) -> Result<(), Error> {
    match arguments {
        Token::Create {
            access,
            workspace,
            role,
            expires_in,
        } => post(
            &access,
            "/identity-api/token/create",
            object([
                ("workspace_id", Some(json!(workspace))),
                ("role", Some(json!(role))),
                ("expires_in", expires_in.map(Value::from)),
            ]),
        ),
        Token::Revoke { access, id } => {
            post(&access, "/identity-api/token/revoke", json!({ "id": id }))
        }
        Token::List { access } => post(&access, "/identity-api/token/list", json!({})),
    }
}

fn post(access: &HostAccess, path: &str, body: Value) -> Result<(), Error> {
    let answer = Api::of_host(access)?.post(path, &body)?;
    output::json_line(&answer);
    Ok(())
}

/// An object of the fields that are given: absent ones are left out, since the API tells absent from null.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<_, _>>())
}
