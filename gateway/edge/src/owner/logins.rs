//! How a browser comes in: a one-time link from the terminal opens a session, which a cookie stands for.
//!
//! Both live in memory alone, so they end with the process, and logging out ends a session for good. That they end with the
//! process is on purpose: a port that is free again can be taken by anybody on this machine, and a page that is still open
//! would bring its cookie there. (docs/adr/0013-the-console-comes-under-a-name-of-its-own.md)

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postern_kit::Clock;
use postern_types::{Sha256, Timestamp};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

/// How long a link can be used.
const LINK_LIFE: Duration = Duration::from_secs(5 * 60);
/// How long a session lasts.
pub(super) const SESSION_LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// Links that can be used at once; a further one replaces the oldest.
const MAX_LINKS: usize = 8;
/// Sessions at once; a further one ends the oldest.
const MAX_SESSIONS: usize = 32;
/// Time between two looks at whether a session is too old: a timer alone would not count the time that a machine sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Random bits of a secret, in bytes.
const SECRET_BYTES: usize = 32;

/// Where the console is found.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// `host:port` of the listener.
    address: String,
    /// `name.localhost:port`, when nobody else on this machine can be asked under that name.
    named: Option<String>,
}

impl Place {
    pub(super) fn new(address: SocketAddr, label: Option<&str>) -> Self {
        let port = address.port();
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self {
            address: format!("{host}:{port}"),
            named: label.map(|label| format!("{label}.localhost:{port}")),
        }
    }

    /// Whether a request under this `Host` is one for the console under its own name.
    pub(super) fn is_named(&self, authority: &str) -> bool {
        self.named.as_deref() == Some(authority)
    }
}

/// A link for a browser.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// Where it leads, with its secret.
    pub url: String,
    /// When it can be used no more.
    pub expires_at: Timestamp,
    /// What the owner should know of it, if anything.
    pub warning: Option<&'static str>,
}

/// What is told of a link under an address that other programs share.
const SHARED_NAME: &str = "The browser sends this page's cookie to every program that it asks under this address, on any port: open nothing else of this machine in the same browser while you are logged in.";

/// Links and sessions that are open.
#[derive(Debug)]
pub(super) struct Logins {
    clock: Clock,
    place: Place,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    links: Vec<Secret>,
    sessions: Vec<Secret>,
}

/// What is kept of a secret.
#[derive(Debug)]
struct Secret {
    digest: Sha256,
    until: Timestamp,
    /// Tells those who stay for as long as it lasts that it is kept no more.
    dropped: CancellationToken,
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.dropped.cancel();
    }
}

impl Logins {
    pub(super) fn new(clock: Clock, place: Place) -> Self {
        Self {
            clock,
            place,
            open: Mutex::default(),
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// A new link: under the console's own name if there is one, or `plain`, under the listener's address.
    pub(super) fn link(&self, plain: bool) -> Result<Link, getrandom::Error> {
        let (secret, kept) = self.mint(LINK_LIFE)?;
        let expires_at = kept.until;
        keep(&mut self.open().links, kept, MAX_LINKS);
        let (authority, warning) = match &self.place.named {
            Some(named) if !plain => (named, None),
            Some(_) | None => (&self.place.address, Some(SHARED_NAME)),
        };
        Ok(Link {
            url: format!("http://{authority}/link/{secret}"),
            expires_at,
            warning,
        })
    }

    /// Uses a link up. `None` when it was used, is too old, or never was one; else the secret of the session it opens.
    pub(super) fn redeem(&self, secret: &str) -> Result<Option<String>, getrandom::Error> {
        let now = self.clock.now();
        let mut open = self.open();
        let Some(place) = position(&open.links, secret, now) else {
            return Ok(None);
        };
        let (session, kept) = self.mint(SESSION_LIFE)?;
        open.links.remove(place);
        keep(&mut open.sessions, kept, MAX_SESSIONS);
        Ok(Some(session))
    }

    /// Whether a session is open.
    pub(super) fn is_open(&self, session: &str) -> bool {
        position(&self.open().sessions, session, self.clock.now()).is_some()
    }

    /// Waits until a session is over: logged out, replaced by newer ones, or too old.
    pub(super) async fn over(self: Arc<Self>, session: String) {
        let dropped = {
            let open = self.open();
            position(&open.sessions, &session, self.clock.now())
                .map(|place| open.sessions[place].dropped.clone())
        };
        let Some(dropped) = dropped else { return };
        while self.is_open(&session) {
            let _look_again = tokio::time::timeout(LOOK_AGAIN, dropped.cancelled()).await;
        }
    }

    /// Ends a session.
    pub(super) fn close(&self, session: &str) {
        let now = self.clock.now();
        let mut open = self.open();
        if let Some(place) = position(&open.sessions, session, now) {
            open.sessions.remove(place);
        }
    }

    fn mint(&self, life: Duration) -> Result<(String, Secret), getrandom::Error> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let kept = Secret {
            digest: Sha256::of(secret.as_bytes()),
            until: self.clock.now().after(life),
            dropped: CancellationToken::new(),
        };
        Ok((secret, kept))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a secret is kept. Every one is compared, each in constant time.
fn position(kept: &[Secret], secret: &str, now: Timestamp) -> Option<usize> {
    let digest = Sha256::of(secret.as_bytes()).to_string();
    let mut found = None;
    for (place, one) in kept.iter().enumerate() {
        let same = bool::from(one.digest.to_string().as_bytes().ct_eq(digest.as_bytes()));
        if same && one.until > now {
            found = Some(place);
        }
    }
    found
}

fn keep(kept: &mut Vec<Secret>, new: Secret, limit: usize) {
    if kept.len() >= limit {
        kept.remove(0);
    }
    kept.push(new);
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };

    use pretty_assertions::assert_eq;

    use super::*;

    fn logins(label: Option<&str>) -> (Logins, Arc<AtomicI64>) {
        let millis = Arc::new(AtomicI64::new(0));
        let time = Arc::clone(&millis);
        let clock = Clock::from_fn(move || Timestamp::from_millis(time.load(Ordering::SeqCst)));
        let address = "127.0.0.1:7301".parse().expect("address");
        (Logins::new(clock, Place::new(address, label)), millis)
    }

    fn secret(link: &Link) -> &str {
        link.url.rsplit_once('/').expect("a path").1
    }

    #[test]
    fn a_link_opens_one_session_once() {
        let (logins, _) = logins(Some("a1"));
        let link = logins.link(false).expect("random");
        assert!(link.url.starts_with("http://a1.localhost:7301/link/"));
        assert_eq!(secret(&link).len(), 2 * SECRET_BYTES);
        let session = logins.redeem(secret(&link)).expect("random").expect("once");
        assert_eq!(logins.redeem(secret(&link)).expect("random"), None);
        assert!(logins.is_open(&session));
        assert!(!logins.is_open(secret(&link)), "a link is no session");
        logins.close(&session);
        assert!(!logins.is_open(&session));
    }

    #[test]
    fn links_and_sessions_end_by_themselves() {
        let (logins, time) = logins(None);
        let [used, late] = [(); 2].map(|()| logins.link(false).expect("random"));
        let session = logins.redeem(secret(&used)).expect("random").expect("new");
        let millis = |life: Duration| i64::try_from(life.as_millis()).expect("small");
        time.store(millis(LINK_LIFE), Ordering::SeqCst);
        assert_eq!(logins.redeem(secret(&late)).expect("random"), None);
        assert!(logins.is_open(&session));
        time.store(millis(SESSION_LIFE), Ordering::SeqCst);
        assert!(!logins.is_open(&session));
    }

    #[tokio::test(start_paused = true)]
    async fn who_stays_as_long_as_a_session_lasts_goes_with_it() {
        let (logins, time) = logins(None);
        let logins = Arc::new(logins);
        let open = || {
            let link = logins.link(false).expect("random");
            logins.redeem(secret(&link)).expect("random").expect("new")
        };
        let [left, aged] = [open(), open()];
        let over = |session: &str| {
            let (logins, session) = (Arc::clone(&logins), session.to_owned());
            let over = logins.over(session);
            async { tokio::time::timeout(2 * LOOK_AGAIN, over).await.is_ok() }
        };
        assert!(!over(&left).await, "it lasts");
        let (is_over, ()) = tokio::join!(over(&left), async { logins.close(&left) });
        assert!(is_over);
        let millis = i64::try_from(SESSION_LIFE.as_millis()).expect("small");
        let (is_over, ()) = tokio::join!(over(&aged), async {
            time.store(millis, Ordering::SeqCst);
        });
        assert!(is_over);
        let replaced = open();
        let (is_over, ()) = tokio::join!(over(&replaced), async {
            let _newer: Vec<_> = (0..MAX_SESSIONS).map(|_| open()).collect();
        });
        assert!(is_over);
    }

    #[test]
    fn a_new_link_works_however_many_were_made() {
        let (logins, _) = logins(Some("a1"));
        let links: Vec<_> = (0..=MAX_LINKS)
            .map(|_| logins.link(true).expect("random"))
            .collect();
        assert_eq!(logins.redeem(secret(&links[0])).expect("random"), None);
        let newest = links.last().expect("links");
        assert_eq!(newest.warning, Some(SHARED_NAME), "a plain link warns");
        assert!(logins.redeem(secret(newest)).expect("random").is_some());
    }
}
