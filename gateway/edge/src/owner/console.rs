//! The console: pages for the owner's browser, made here, each whole without any script.
//!
//! Invariants:
//! - What an agent, a host or a file says is text on these pages, never markup: it goes through [`text`] or a template's own
//!   escaping, and the policy of every page forbids scripts and styles of its own.
//! - A page changes nothing; forms do, and each answers with a way back to a page.
//! - Pages call the functions behind the API, so both tell and do the same.

mod assets;
mod changes;
mod commands;
mod diff;
mod forms;
mod inbox;
mod layout;
mod now;
mod proposal;
mod receipts;
mod sessions;
mod text;
mod undo;

use axum::{
    Router, middleware,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use http::{HeaderValue, StatusCode, Uri, header};
use maud::{Markup, html};

use super::{access, links, reply::Refusal};

/// What a page may load: its own style sheet and script, nothing inline, nothing from elsewhere; and nobody may frame it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

/// The pages and their forms.
pub(super) fn router(state: &super::State) -> Router<super::State> {
    let pages = Router::new()
        .route("/", get(now::page))
        .route("/inbox", get(inbox::list))
        .route("/inbox/{receipt}", get(inbox::show))
        .route("/inbox/{receipt}/proposal.txt", get(inbox::whole))
        .route("/inbox/{receipt}/decision", post(forms::decide))
        .route("/receipts", get(receipts::list))
        .route("/receipts/{receipt}", get(receipts::show))
        .route("/receipts/{receipt}/result.txt", get(receipts::whole))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{session}", get(changes::session))
        .route("/commands/{command}", get(commands::show))
        .route("/commands/{command}/output.txt", get(commands::whole))
        .route("/commands/{command}/stop", post(forms::stop))
        .route("/receipts/{receipt}/undo", post(undo::receipt))
        .route("/sessions/{session}/undo", post(undo::session))
        .route("/console/mode", post(forms::mode))
        .route("/console/channel", post(forms::channel))
        .route("/console/logout", post(forms::logout))
        .route_layer(middleware::from_fn_with_state(
            state.clone(),
            access::demand_owner_of_page,
        ));
    let files = [&assets::STYLE, &assets::SCRIPT, &assets::ICON]
        .into_iter()
        .fold(Router::new(), |files, asset| {
            files.route(asset.path, get(|wanted| asset.serve(wanted)))
        })
        .route_layer(middleware::from_fn_with_state(
            state.clone(),
            access::notice_owner,
        ));
    Router::new()
        .merge(pages)
        .merge(files)
        .route("/link/{secret}", get(links::redeem))
}

/// A page as it is sent.
fn page(status: StatusCode, page: Markup) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (status, headers, page.into_string()).into_response()
}

/// A text of any size as it is, for a browser to show as nothing but text.
fn plain(content: impl Into<axum::body::Body>) -> Response {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], content.into()).into_response()
}

/// Instead of a page, for whoever is not the owner or is so no longer.
pub(super) fn closed(wanted: &Uri) -> Response {
    let again = wanted.path_and_query().map_or("/", |it| it.as_str());
    let content = html! {
        h1 { "Postern" }
        p { "This is the door to your project. To come in, ask for a link in a terminal and open it in this browser:" }
        pre { "postern console" }
        p { "The link works once, for five minutes. You are asked for a new one after twelve hours, and after a restart." }
        p { "If you have just opened a link and see this, " a href=(again) { "try again" } "." }
        p { "In the terminal you decide with " code { "postern inbox" } " and " code { "postern mode" } ". Programs use " code { "/owner/v1/…" } " with the owner's token." }
    };
    page(StatusCode::UNAUTHORIZED, layout::bare("Postern", content))
}

/// The link was used, is too old, or never was one.
pub(super) fn used() -> Response {
    let content = html! {
        h1 { "This link cannot be used" }
        p { "A link works once, for five minutes. This one was used before or is too old." }
        p { "Ask for a new one in a terminal:" }
        pre { "postern console" }
        p { "If you used it in this browser yourself, you are in: " a href="/" { "open the console" } "." }
    };
    page(
        StatusCode::GONE,
        layout::bare("Link used · Postern", content),
    )
}

/// The link was only looked at.
pub(super) fn unused() -> Response {
    let content = html! {
        h1 { "Postern" }
        p { "Open this link in a browser to come in. Nothing was done with it yet." }
    };
    page(StatusCode::OK, layout::bare("Postern", content))
}

/// Something was refused before it was known who asks.
pub(super) fn refused(refusal: &Refusal) -> Response {
    let content = html! {
        h1 { "Refused" }
        p { (text::line(&refusal.0.message)) }
        p { a href="/" { "To the console" } }
    };
    page(
        refusal.0.http_status(),
        layout::bare("Refused · Postern", content),
    )
}

/// What a handler of a page answers.
type Answer = Result<Response, Failed>;

/// A page that cannot be shown, or a form that was refused.
#[derive(Debug)]
struct Failed(Refusal);

impl<T: Into<Refusal>> From<T> for Failed {
    fn from(refusal: T) -> Self {
        Self(refusal.into())
    }
}

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> Response {
        refused(&self.0)
    }
}

#[cfg(test)]
mod tests;
