//! The console's style sheet, script and icon.
//!
//! A page is painted once its style sheet is there, so a browser keeps these files: the address has the content's hash in it,
//! and what is kept under an address is right for as long as the address is named.

use std::sync::LazyLock;

use axum::{
    extract::RawQuery,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, header};
use postern_types::Sha256;

/// Hexadecimal digits of the hash in an address: enough to tell one version of a file from every other.
const DIGITS: usize = 16;
/// What a browser is told of a file under the address that has its hash: a year, without asking again.
const KEPT: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");

pub(super) static STYLE: Asset = Asset {
    path: "/console.css",
    kind: "text/css; charset=utf-8",
    content: include_str!("console.css"),
    version: LazyLock::new(|| version(include_str!("console.css"))),
};
pub(super) static SCRIPT: Asset = Asset {
    path: "/console.js",
    kind: "text/javascript; charset=utf-8",
    content: include_str!("console.js"),
    version: LazyLock::new(|| version(include_str!("console.js"))),
};
pub(super) static ICON: Asset = Asset {
    path: "/console.svg",
    kind: "image/svg+xml",
    content: include_str!("console.svg"),
    version: LazyLock::new(|| version(include_str!("console.svg"))),
};

/// A file of the console, which is part of this program.
pub(super) struct Asset {
    pub(super) path: &'static str,
    kind: &'static str,
    content: &'static str,
    version: LazyLock<String>,
}

impl Asset {
    /// Where pages load it from.
    pub(super) fn address(&self) -> String {
        format!("{}?{}", self.path, *self.version)
    }

    /// The file. Under any other address than its own nobody keeps it: a page of another version of this program asks for
    /// that version's files.
    pub(super) async fn serve(&self, RawQuery(wanted): RawQuery) -> Response {
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(self.kind))];
        let kept = [(header::CACHE_CONTROL, KEPT)];
        match wanted {
            Some(wanted) if wanted == *self.version => (kind, kept, self.content).into_response(),
            _ => (kind, self.content).into_response(),
        }
    }
}

fn version(content: &str) -> String {
    let mut digits = Sha256::of(content.as_bytes()).to_string();
    digits.truncate(DIGITS);
    digits
}
