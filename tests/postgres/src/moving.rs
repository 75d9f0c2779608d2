//! An address that leads to one server at a time, as a proxy before a server and its replica does.

use std::{
    fs, io,
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A Unix socket behind which another one is, which can be changed. A server that is away hangs up. Dropped, what is open is cut.
#[derive(Debug)]
pub struct Moving {
    at: PathBuf,
    leads: Arc<Mutex<Leads>>,
}

#[derive(Debug)]
struct Leads {
    /// Nothing at the end.
    to: Option<PathBuf>,
    open: Vec<UnixStream>,
}

impl Leads {
    fn cut(&mut self) {
        for stream in self.open.drain(..) {
            // It may be gone already.
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    /// Connects a client with the server.
    fn connect(&mut self, client: UnixStream) -> io::Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        let server = UnixStream::connect(to)?;
        self.open.push(client.try_clone()?);
        self.open.push(server.try_clone()?);
        for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            thread::spawn(move || {
                // However it ends: both ways are over.
                let _ended = io::copy(&mut from, &mut to);
                let _gone = from.shutdown(Shutdown::Both);
                let _gone = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }
}

impl Moving {
    /// Listens at a path.
    ///
    /// # Panics
    /// When there is no room for a socket.
    #[must_use]
    pub fn new(at: &Path, to: &Path) -> Self {
        let listener = UnixListener::bind(at).expect("a socket");
        let leads = Arc::new(Mutex::new(Leads {
            to: Some(to.to_owned()),
            open: Vec::new(),
        }));
        let shared = Arc::clone(&leads);
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut leads = lock(&shared);
                if leads.to.is_none() {
                    return;
                }
                // Whoever is hung up on tries again.
                let _refused = client.and_then(|client| leads.connect(client));
            }
        });
        let at = at.to_owned();
        Self { at, leads }
    }

    /// Leads to another socket from now on; what is open is cut.
    pub fn leads_to(&self, to: &Path) {
        let mut leads = lock(&self.leads);
        leads.to = Some(to.to_owned());
        leads.cut();
    }

    /// Leads to another socket from now on; what is open stays where it is, as with the address of a service that is moved.
    pub fn leads_on_to(&self, to: &Path) {
        lock(&self.leads).to = Some(to.to_owned());
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        {
            let mut leads = lock(&self.leads);
            leads.to = None;
            leads.cut();
        }
        // Wakes who waits for clients.
        drop(UnixStream::connect(&self.at));
        let _gone = fs::remove_file(&self.at);
    }
}

fn lock(leads: &Mutex<Leads>) -> MutexGuard<'_, Leads> {
    leads.lock().unwrap_or_else(PoisonError::into_inner)
}
