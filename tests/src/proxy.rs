//! A TCP proxy between an edge and its host that breaks the channel at a chosen frame, or between any two processes.
//!
//! It knows the frames of WebSocket as far as their length goes, so that "the third message towards the host, in the
//! middle" can be said. A black hole is a network that swallows packets, of both directions or of one: both ends keep an open
//! connection, and neither is told anything.

mod frames;

use std::{future, io, net::SocketAddr, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt as _,
    net::{
        TcpListener, TcpStream, UnixStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use frames::{Reader, Unit};

/// Longest wait for something that a test has arranged.
const EVENT_LIMIT: Duration = Duration::from_secs(60);
/// Connections through one proxy at once.
const MAX_CONNECTIONS: usize = 64;

/// Which way something travels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the edge to the host: results.
    ToHost,
    /// From the host to the edge: ready and calls.
    ToEdge,
}

/// Where a message is when the connection breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// None of it has passed.
    Before,
    /// Half of its bytes have.
    Within,
    /// All of it has.
    After,
}

/// How the connection breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Break {
    /// Both sides read an end of stream.
    Close,
    /// Both sides get a reset.
    Reset,
    /// Nothing passes any more, in neither direction, until [`Proxy::open`]; new connections hang as well.
    BlackHole,
    /// The same in one direction alone; what travels in the other goes on to arrive. New connections hang all the same, since
    /// their making needs both.
    OneWay(Direction),
}

/// A break that waits for its message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// Which way the message travels.
    pub direction: Direction,
    /// The how manieth text message that way, of those that come after the cut was armed; counted from 1.
    pub message: u64,
    /// Where it is then.
    pub moment: Moment,
    /// What happens.
    pub how: Break,
}

/// What the proxy does now.
#[derive(Clone, Debug, Default)]
struct State {
    /// Whether nothing passes, towards the host and towards the edge.
    swallows: [bool; 2],
    delay: Duration,
    armed: Option<Cut>,
    /// Connections accepted so far.
    connections: u64,
    /// Text messages let through so far, towards the host and towards the edge.
    passed: [u64; 2],
    /// How often every connection was broken.
    breaks: u64,
    /// Whether the last time by a reset.
    by_reset: bool,
}

/// A proxy on a free port of the loopback. Dropped, every connection through it breaks.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    state: Arc<watch::Sender<State>>,
    serving: JoinSet<()>,
}

impl Proxy {
    /// In front of a host's URL.
    ///
    /// # Panics
    /// When the URL has no address, or there is no free port.
    pub async fn to(host_url: &str) -> Self {
        let address = host_url.trim_start_matches("http://").trim_end_matches('/');
        Self::before(address, |stream| Reader::new(stream)).await
    }

    /// In front of a service at `host:port`, whatever it speaks. There are no messages in what passes.
    ///
    /// # Panics
    /// When it is no address, or there is no free port.
    pub async fn raw(address: &str) -> Self {
        Self::before(address, |stream| Reader::of_anything(stream)).await
    }

    /// In front of what listens on a Unix socket, whatever it speaks.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn to_socket(path: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut proxy = Self::raw(&address.to_string()).await;
        proxy.serving.spawn(relay(listener, path));
        proxy
    }

    async fn before(address: &str, reader: MakeReader) -> Self {
        let target: SocketAddr = address.parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(watch::Sender::new(State::default()));
        let mut serving = JoinSet::new();
        let way = Way { target, reader };
        serving.spawn(serve(listener, way, Arc::clone(&state)));
        Self {
            url: format!("http://{address}"),
            state,
            serving,
        }
    }

    /// Where it listens, as `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// What the edge is told as its host's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Breaks every connection now.
    pub fn cut(&self, how: Break) {
        self.state.send_modify(|state| state.break_all(how));
    }

    /// Breaks every connection when a message has come so far. Replaces what was armed before.
    pub fn arm(&self, cut: Cut) {
        self.state.send_modify(|state| state.armed = Some(cut));
    }

    /// From now on nothing passes and nobody is told.
    pub fn black_hole(&self) {
        self.cut(Break::BlackHole);
    }

    /// Ends a black hole: what waited in it goes on.
    pub fn open(&self) {
        self.state.send_modify(|state| state.swallows = [false; 2]);
    }

    /// Holds every frame back for so long, from now on.
    pub fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.state.borrow().connections
    }

    /// Text messages let through so far.
    #[must_use]
    pub fn passed(&self, direction: Direction) -> u64 {
        self.state.borrow().passed[direction as usize]
    }

    /// Waits until the cut that was armed has been made.
    ///
    /// # Panics
    /// When it is not made within a minute.
    pub async fn cut_made(&self) {
        self.wait("the cut", |state| state.armed.is_none()).await;
    }

    /// Waits until so many connections have been accepted.
    ///
    /// # Panics
    /// When they do not come within a minute.
    pub async fn connected(&self, connections: u64) {
        self.wait("a connection", |state| state.connections >= connections)
            .await;
    }

    async fn wait(&self, what: &str, come: impl FnMut(&State) -> bool) {
        let mut changes = self.state.subscribe();
        let waited = timeout(EVENT_LIMIT, changes.wait_for(come)).await;
        assert!(
            waited.is_ok(),
            "waited {EVENT_LIMIT:?} in vain for {what} at the proxy"
        );
    }
}

/// How a stream is read.
type MakeReader = for<'s> fn(ReadHalf<'s>) -> Reader<ReadHalf<'s>>;

/// Where connections lead, and what is seen of them.
#[derive(Clone, Copy)]
struct Way {
    target: SocketAddr,
    reader: MakeReader,
}

impl State {
    fn break_all(&mut self, how: Break) {
        match how {
            Break::BlackHole => self.swallows = [true; 2],
            Break::OneWay(direction) => self.swallows[direction as usize] = true,
            Break::Close | Break::Reset => {
                self.breaks += 1;
                self.by_reset = how == Break::Reset;
            }
        }
    }

    /// Whether the armed cut is for this message.
    fn take_cut(&mut self, direction: Direction) -> Option<Cut> {
        let cut = self
            .armed
            .as_mut()
            .filter(|cut| cut.direction == direction)?;
        cut.message = cut.message.saturating_sub(1);
        if cut.message > 0 {
            return None;
        }
        self.armed.take()
    }
}

async fn serve(listener: TcpListener, way: Way, state: Arc<watch::Sender<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((edge, _)) = accepted else { return };
                state.send_modify(|state| state.connections += 1);
                connections.spawn(carry(edge, way, Arc::clone(&state)));
            }
            Some(_) = connections.join_next() => {}
        }
        while connections.len() > MAX_CONNECTIONS {
            connections.join_next().await;
        }
    }
}

/// Joins each connection with one to a Unix socket.
async fn relay(listener: TcpListener, path: PathBuf) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let path = path.clone();
        connections.spawn(async move {
            let mut served = UnixStream::connect(path).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut served).await
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Carries one connection until it breaks or both sides are done.
async fn carry(mut edge: TcpStream, way: Way, state: Arc<watch::Sender<State>>) {
    let breaks = state.borrow().breaks;
    opened(&state, |state| state.swallows == [false; 2]).await;
    let Ok(mut host) = TcpStream::connect(way.target).await else {
        return;
    };
    // Frames are passed on one by one, as they come.
    let _slower = edge.set_nodelay(true).and(host.set_nodelay(true));
    let mut changes = state.subscribe();
    {
        let (from_edge, to_edge) = edge.split();
        let (from_host, to_host) = host.split();
        let both = async {
            tokio::join!(
                pump((way.reader)(from_edge), to_host, Direction::ToHost, &state),
                pump((way.reader)(from_host), to_edge, Direction::ToEdge, &state),
            )
        };
        let both = pin!(both);
        tokio::select! {
            _ = both => return,
            _ = changes.wait_for(|state| state.breaks > breaks) => {}
        }
    }
    if state.borrow().by_reset {
        // Closed so, a connection says RST instead of FIN. One that is gone already needs neither.
        let _gone = edge.set_zero_linger().and(host.set_zero_linger());
    }
}

/// Waits for the end of a black hole.
async fn opened(state: &watch::Sender<State>, is_open: impl FnMut(&State) -> bool) {
    // The proxy that would end it may be gone, and this connection with it.
    let _gone = state.subscribe().wait_for(is_open).await.map(drop);
}

/// Passes one direction on, until its end.
async fn pump(
    mut reader: Reader<ReadHalf<'_>>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    state: &watch::Sender<State>,
) -> io::Result<()> {
    let is_open = |state: &State| !state.swallows[direction as usize];
    while let Ok(Some(unit)) = reader.next().await {
        let delay = state.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        opened(state, is_open).await;
        match unit {
            Unit::Other(bytes) => to.write_all(&bytes).await?,
            Unit::Message(bytes) => pass_message(&mut to, &bytes, direction, state).await?,
        }
    }
    opened(state, is_open).await;
    to.shutdown().await
}

async fn pass_message(
    to: &mut WriteHalf<'_>,
    message: &[u8],
    direction: Direction,
    state: &watch::Sender<State>,
) -> io::Result<()> {
    let mut cut = None;
    state.send_if_modified(|state| {
        cut = state.take_cut(direction);
        cut.is_some()
    });
    let (first, rest) = match cut.map(|cut| cut.moment) {
        Some(Moment::Before) => message.split_at(0),
        Some(Moment::Within) => message.split_at(message.len() / 2),
        Some(Moment::After) | None => message.split_at(message.len()),
    };
    to.write_all(first).await?;
    if let Some(cut) = cut {
        state.send_modify(|state| state.break_all(cut.how));
        if matches!(cut.how, Break::Close | Break::Reset) {
            // Until the connection is dropped.
            future::pending::<()>().await;
        }
        opened(state, |state| !state.swallows[direction as usize]).await;
    }
    to.write_all(rest).await?;
    state.send_modify(|state| state.passed[direction as usize] += 1);
    Ok(())
}

#[cfg(test)]
mod tests;
