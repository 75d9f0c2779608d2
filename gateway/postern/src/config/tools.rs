//! `[[tools]]`: the owner's tool servers, which are tables and no options of the command line.

use std::{ffi::OsString, path::PathBuf};

use clap::ArgMatches;
use postern_edge::ToolServer;
use serde::Deserialize as _;
use toml::{
    Spanned,
    de::{DeValue, ValueDeserializer},
};

use super::secrets;

/// Name of the tables, and of the hidden option that stands for them.
pub(super) const KEY: &str = "tools";
/// What is told in place of a value that may be a secret.
pub(super) const MASK: &str = "…";

/// The servers, each as an argument. The path of a token starts at the file's own folder.
pub(super) fn arguments(
    value: &Spanned<DeValue<'_>>,
    absolute: impl Fn(&str) -> PathBuf,
) -> Result<Vec<OsString>, String> {
    let DeValue::Array(tables) = value.get_ref() else {
        return Err("write each tool server as a table [[tools]]".to_owned());
    };
    let mut servers = Vec::new();
    for table in tables {
        let read = ToolServer::deserialize(ValueDeserializer::from(table.clone()));
        let mut server = read
            .map_err(|problem| format!("in [[tools]]: {}", problem.message().replace('\n', " ")))?;
        if let Some(path) = &mut server.token_file {
            *path = absolute(&path.to_string_lossy());
        }
        for path in &mut server.sandbox_write {
            // Others are meant from the project's root.
            if path.starts_with("~/") {
                *path = absolute(path).to_string_lossy().into_owned();
            }
        }
        servers.push(server);
    }
    ToolServer::check_all(&servers).map_err(|problem| problem.to_string())?;
    let texts = servers.iter().map(serde_json::to_string);
    let texts: Result<Vec<String>, _> = texts.collect();
    let texts = texts.map_err(|problem| problem.to_string())?;
    Ok(texts
        .into_iter()
        .map(|text| format!("--{KEY}={text}").into())
        .collect())
}

/// The servers in force, without what may be secret.
pub(super) fn masked(matches: &ArgMatches) -> Vec<ToolServer> {
    let mut servers: Vec<ToolServer> = matches
        .get_many(KEY)
        .map_or_else(Vec::new, |servers| servers.cloned().collect());
    for server in &mut servers {
        let values = server.env.values_mut().chain(server.headers.values_mut());
        values.for_each(|value| MASK.clone_into(value));
        secrets::mask_words(&mut server.command);
        server.url = server.url.as_deref().map(secrets::masked_url);
    }
    servers
}
