//! What the forms of the pages do. Each does what an address of the API does, and leads back to a page.

use axum::{
    Extension,
    extract::{Form, Path, State, rejection::FormRejection},
    response::{IntoResponse as _, Redirect, Response},
};
use http::header;
use postern_types::Mode;
use serde::Deserialize;

use super::Answer;
use crate::owner::{
    self,
    access::{self, Caller},
    inbox::{Choice, Sent},
    reply::Refusal,
};

/// Longest address that a form leads back to.
const BACK_BYTES: usize = 2000;

type Posted<T> = Result<Form<T>, FormRejection>;

/// A form of which only the way back matters.
#[derive(Debug, Deserialize)]
pub(super) struct Back {
    #[serde(default)]
    back: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Decided {
    decision: Choice,
    #[serde(default)]
    answer: String,
    #[serde(default)]
    back: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ModeForm {
    mode: Mode,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChannelForm {
    open: bool,
    #[serde(default)]
    back: String,
}

/// `POST /inbox/{id}/decision`
pub(super) async fn decide(
    State(state): State<owner::State>,
    Extension(caller): Extension<Caller>,
    Path(receipt): Path<String>,
    form: Posted<Decided>,
) -> Answer {
    let form = read(form)?;
    // The words belong to an answer or a denial.
    let answer = match form.decision {
        // A browser sends the ends of lines as CR LF, whatever was typed.
        Choice::Answer | Choice::Deny => form.answer.replace("\r\n", "\n"),
        Choice::Approve | Choice::ApproveSession => String::new(),
    };
    let sent = Sent {
        decision: form.decision,
        answer: (!answer.is_empty()).then_some(answer),
    };
    owner::inbox::settle(&state, &caller, &receipt, sent).await?;
    Ok(back_to(&form.back, "/inbox"))
}

/// `POST /commands/{id}/stop`
pub(super) async fn stop(
    State(state): State<owner::State>,
    Path(command): Path<String>,
    form: Posted<Back>,
) -> Answer {
    let form = read(form)?;
    owner::commands::end(&state, &command).await?;
    Ok(back_to(&form.back, "/"))
}

/// `POST /console/mode`
pub(super) async fn mode(State(state): State<owner::State>, form: Posted<ModeForm>) -> Answer {
    state.control.set_mode(read(form)?.mode);
    Ok(back_to("/", "/"))
}

/// `POST /console/channel`
pub(super) async fn channel(
    State(state): State<owner::State>,
    form: Posted<ChannelForm>,
) -> Answer {
    let form = read(form)?;
    state.control.set_open(form.open);
    Ok(back_to(&form.back, "/"))
}

/// `POST /console/logout`
pub(super) async fn logout(
    State(state): State<owner::State>,
    Extension(caller): Extension<Caller>,
) -> Answer {
    if let Caller::Console { session } = &caller {
        state.logins.close(session);
    }
    let mut response = back_to("/", "/");
    let cookie = access::cookie(&state, None);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

fn read<T>(form: Posted<T>) -> Result<T, Refusal> {
    form.map(|Form(form)| form)
        .map_err(|problem| Refusal::bad_request(problem.body_text()))
}

/// Leads to a page of the console, whatever was asked for: `wanted` if it is an address of its own.
fn back_to(wanted: &str, otherwise: &str) -> Response {
    let is_own = wanted.starts_with('/')
        && !wanted.starts_with("//")
        && wanted.len() <= BACK_BYTES
        && wanted
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    Redirect::to(if is_own { wanted } else { otherwise }).into_response()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_form_leads_to_pages_of_the_console_alone() {
        for (wanted, led) in [
            ("/inbox?x=1", "/inbox?x=1"),
            ("//evil.example/", "/"),
            ("/\\evil.example/", "/"),
            ("https://evil.example/", "/"),
            ("/a\r\nSet-Cookie: a=b", "/"),
            ("", "/"),
        ] {
            let response = back_to(wanted, "/");
            assert_eq!(response.headers()[header::LOCATION], led, "{wanted:?}");
        }
    }
}
