//! Calls of the host's identity API and of the owner's API from the command line.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use serde_json::Value;

use crate::{cli::HostAccess, data_dir, error::Error, net};

/// Longest answer that is read, in bytes.
const ANSWER_LIMIT: u64 = 80 * 1024 * 1024;
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Mode bits by which group and others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bits by which they read.
const READABLE_BY_OTHERS: u32 = 0o044;

/// An API with its token.
pub(crate) struct Api {
    agent: ureq::Agent,
    base: String,
    token: String,
    /// Longest wait for an answer.
    limit: Duration,
}

impl Api {
    /// An API at a URL, by a token.
    pub(crate) fn new(base: &str, token: String) -> Self {
        // In plaintext a proxy would read the token; a tunnel for TLS is none of its business.
        let proxy = base
            .starts_with("https://")
            .then(ureq::Proxy::try_from_env)
            .flatten();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(proxy)
            .timeout_global(Some(TIMEOUT))
            .build();
        Self {
            agent: config.into(),
            limit: TIMEOUT,
            base: base.trim_end_matches('/').to_owned(),
            token,
        }
    }

    /// A host's API, by the token in a file.
    pub(crate) fn of_host(access: &HostAccess) -> Result<Self, Error> {
        net::demand_private_url(&access.host, access.allow_plaintext)?;
        Ok(Self::new(&access.host, read_token(&access.token_file)?))
    }

    /// The same API, for what takes longer.
    pub(crate) fn waiting(&self, limit: Duration) -> Self {
        Self {
            agent: self.agent.clone(),
            base: self.base.clone(),
            token: self.token.clone(),
            limit,
        }
    }

    /// `GET`.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Error> {
        let request = self
            .agent
            .get(format!("{}{path}", self.base))
            .header("Authorization", self.bearer());
        self.answer(request.call())
    }

    /// `GET` of what is no JSON.
    pub(crate) fn get_bytes(&self, path: &str) -> Result<Vec<u8>, Error> {
        let request = self
            .agent
            .get(format!("{}{path}", self.base))
            .header("Authorization", self.bearer());
        self.body(request.call())
    }

    /// `GET` of what goes on for as long as the other side lives, line by line.
    pub(crate) fn stream(&self, path: &str) -> Result<impl BufRead + use<>, Error> {
        let request = self
            .agent
            .get(format!("{}{path}", self.base))
            .config()
            .timeout_global(None)
            .timeout_recv_response(Some(TIMEOUT))
            .build()
            .header("Authorization", self.bearer());
        let response = self.success(request.call())?;
        Ok(BufReader::new(response.into_body().into_reader()))
    }

    /// `POST` of JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let request = self
            .agent
            .post(format!("{}{path}", self.base))
            .config()
            .timeout_global(Some(self.limit))
            .build()
            .header("Authorization", self.bearer());
        self.answer(
            request
                .content_type("application/json")
                .send(body.to_string()),
        )
    }

    /// `PUT` of JSON.
    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let request = self
            .agent
            .put(format!("{}{path}", self.base))
            .header("Authorization", self.bearer());
        self.answer(
            request
                .content_type("application/json")
                .send(body.to_string()),
        )
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    fn answer(
        &self,
        outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Error> {
        let bytes = self.body(outcome)?;
        Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// The body of a success, or why it is none.
    fn body(
        &self,
        outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Vec<u8>, Error> {
        self.whole(&mut self.success(outcome)?)
    }

    fn whole(&self, response: &mut ureq::http::Response<ureq::Body>) -> Result<Vec<u8>, Error> {
        let read = response
            .body_mut()
            .with_config()
            .limit(ANSWER_LIMIT)
            .read_to_vec();
        read.map_err(|problem| {
            Error::failed(
                format!("the answer of {} cannot be read", self.base),
                problem,
            )
        })
    }

    /// A success, or why it is none.
    fn success(
        &self,
        outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<ureq::http::Response<ureq::Body>, Error> {
        let mut response = outcome
            .map_err(|problem| Error::failed(format!("{} does not answer", self.base), problem))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = self.whole(&mut response)?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let told = ["detail", "title"]
            .iter()
            .find_map(|field| body[field].as_str())
            .unwrap_or("no reason given");
        let problem = format!("{} answered {status}: {told}{}", self.base, files_of(&body));
        Err(match status.as_u16() {
            401 | 403 | 404 | 409 => Error::Refused(problem),
            _ => Error::Failed(problem),
        })
    }
}

/// Files that are named in a refusal.
fn files_of(body: &Value) -> String {
    let files = body["files"].as_array().into_iter().flatten();
    files
        .map(|file| {
            let told = |field: &str| file[field].as_str().unwrap_or_default().escape_debug();
            format!(" [{}: {}]", told("path"), told("message"))
        })
        .collect()
}

/// Reads a token from a file.
pub(crate) fn read_token(file: &Path) -> Result<String, Error> {
    match data_dir::read_optional(file)? {
        Some(token) if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            demand_own(file)?;
            Ok(token)
        }
        Some(_) => Err(Error::Usage(format!(
            "'{}' does not hold a token",
            file.display()
        ))),
        None => Err(Error::Usage(format!(
            "there is no token file '{}'",
            file.display()
        ))),
    }
}

/// Refuses a token file that other users can write: they would choose whose door is opened. One that they can only read is
/// told of, no more: secrets that are mounted into containers usually are.
fn demand_own(file: &Path) -> Result<(), Error> {
    let facts = fs::metadata(file).map_err(|problem: io::Error| {
        Error::failed(format!("cannot look at '{}'", file.display()), problem)
    })?;
    // A pipe's or terminal's mode says nothing of the kind.
    if !facts.is_file() {
        return Ok(());
    }
    if facts.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::Failed(format!(
            "the token file '{}' can be written by other users; run chmod go-w on it, and make sure that the token is yours",
            file.display()
        )));
    }
    if facts.mode() & READABLE_BY_OTHERS != 0 {
        tracing::warn!("the token file can be read by other users; run chmod go-r on it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_token_file_that_others_can_write_is_refused() {
        let home = tempfile::tempdir().expect("folder");
        let file = home.path().join("token");
        fs::write(&file, "secret-token\n").expect("written");
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o644, true),
            (0o620, false),
            (0o602, false),
            (0o666, false),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode");
            match read_token(&file) {
                Ok(token) => assert_eq!((token.as_str(), good), ("secret-token", true), "{mode:o}"),
                Err(problem) => {
                    let told = problem.to_string();
                    assert!(!good && told.contains("chmod go-w"), "{mode:o}: {told}");
                    assert!(!told.contains("secret-token"), "{told}");
                }
            }
        }
    }
}
