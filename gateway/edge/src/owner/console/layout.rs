//! What every page has around its content.

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};
use postern_types::Timestamp;

use super::{assets, text};
use crate::owner::{State, inbox};

/// Seconds after which a page without script is loaded again.
const REFRESH_SECONDS: u8 = 5;

/// Which page, for the navigation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Now,
    Inbox,
    Receipts,
    Sessions,
}

impl Place {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Now, "/", "Now"),
        (Self::Inbox, "/inbox", "Inbox"),
        (Self::Receipts, "/receipts", "Receipts"),
        (Self::Sessions, "/sessions", "Sessions"),
    ];
}

/// What is told of a page beside its content.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) place: Place,
    /// Where its forms lead back to: the page itself.
    pub(super) path: &'a str,
    /// Whether it is loaded again by itself where there is no script. Not where the owner may be typing.
    pub(super) refreshes: bool,
}

/// A page of the console.
pub(super) async fn whole(state: &State, page: Page<'_>, content: Markup) -> Markup {
    let status = state.control.status();
    let waiting = inbox::count(state).await.unwrap_or_default();
    let mark = match waiting {
        0 => String::new(),
        count => format!("({count}) "),
    };
    let head = html! {
        @if page.refreshes {
            noscript { meta http-equiv="refresh" content=(REFRESH_SECONDS); }
        }
        script src=(assets::SCRIPT.address()) defer {}
    };
    let body = html! {
        a .skip href="#main" { "Skip to content" }
        header .top {
            div .inner {
                a .brand href="/" { "Postern" }
                nav #nav aria-label="Pages" data-live { ul {
                    @for (place, path, name) in Place::ALL {
                        li { a href=(path) aria-current=[(place == page.place).then_some("page")] {
                            (name)
                            @if place == Place::Inbox && waiting > 0 {
                                " " span .badge { (waiting) span .hidden { " waiting" } }
                            }
                        } }
                    }
                } }
                div #door data-live { (door(status.open, page.path)) }
            }
        }
        main #main tabindex="-1" { (content) }
        footer { div .inner {
            p { "Workspace " code { (text::line(state.control.workspace_id().as_str())) } " · version " (env!("CARGO_PKG_VERSION")) }
            form method="post" action="/console/logout" { button .quiet { "Log out" } }
        } }
    };
    document(&format!("{mark}{} · Postern", page.title), head, body)
}

fn door(open: bool, path: &str) -> Markup {
    html! {
        form method="post" action="/console/channel" {
            input type="hidden" name="open" value=(!open);
            input type="hidden" name="back" value=(path);
            @if open {
                button #door-button .door { "Close the door" }
            } @else {
                button #door-button .door.shut { "Open the door again" }
            }
        }
    }
}

/// A page for whoever is not let in.
pub(super) fn bare(title: &str, content: Markup) -> Markup {
    document(title, html! {}, html! { main #main .bare { (content) } })
}

fn document(title: &str, head: Markup, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href=(assets::ICON.address()) type="image/svg+xml";
                link rel="stylesheet" href=(assets::STYLE.address());
                (head)
            }
            body { (body) }
        }
    }
}

/// A moment. Scripts show it in the browser's own zone.
pub(super) fn time(millis: i64) -> Markup {
    let exact = Timestamp::from_millis(millis).to_string();
    let shown = exact.get(..19).map_or_else(
        || exact.clone(),
        |text| format!("{} UTC", text.replace('T', " ")),
    );
    html! { time datetime=(exact) { (shown) } }
}

/// A length of time, for people.
pub(super) fn length(millis: i64) -> String {
    let time = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    match (time.as_secs(), time.subsec_millis()) {
        (0, millis) => format!("{millis} ms"),
        (seconds @ 1..60, millis) => format!("{seconds}.{} s", millis / 100),
        (seconds, _) => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// A state in words and a colour.
pub(super) fn pill(state: &str, class: &str) -> Markup {
    html! { span class=(format!("pill {class}")) { (state.replace('_', " ")) } }
}

/// A conversation's id, of which the beginning is enough to tell it from others nearby.
pub(super) fn session(id: &str) -> Markup {
    let (short, left) = text::start(id, SESSION_CHARS);
    html! { code title=(id) { (text::line(short)) @if left > 0 { "…" } } }
}

/// Characters of a session's id that are shown where there is little room.
const SESSION_CHARS: usize = 8;
