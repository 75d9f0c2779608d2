//! The project that this service works in.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use postern_kit::{Clock, root::Root};
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    Error, disk::Disk, guard::Guard, jobs::Jobs, left_over::LeftOvers, list::Listings,
    locks::Locks, media::Decoders, revision::Revisions, store::Store,
};

/// What the service works in, and its bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Root of the project.
    pub root: PathBuf,
    /// File operations at once, each on a thread. At most so many times 2 MiB are held for reading.
    pub jobs: usize,
    /// File operations that may wait for a thread; further ones are refused with `BUSY`.
    pub waiting: usize,
    /// Large files (over 2 MiB) that are hashed at once.
    pub scans: usize,
    /// Size in bytes above which a file is a giant: a page of it does not wait to the end for its revision.
    pub giant: u64,
    /// How long a page of a giant waits for the file's revision. A later answer has it.
    pub revision_wait: Duration,
    /// How long a change, an inspection or a page of any other file waits for the file's revision: then a page comes without
    /// it, and the others are `UNAVAILABLE`. Shorter than [`postern_kit::transport::DEADLINE`], so that the caller hears of it.
    pub effect_wait: Duration,
    /// Largest file that is patched, and largest that a patch leaves, in bytes.
    pub patch_limit: u64,
    /// Files over 2 MiB that are patched at once, each held in memory.
    pub large_patches: usize,
    /// Program and leading arguments that lead to [`crate::decode_main`], for images and documents. Without one they are
    /// `UNAVAILABLE`.
    pub decoder: Vec<OsString>,
    /// Images and documents that are decoded at once, each in a process of at most 1 GiB.
    pub decoders: usize,
    /// How long a call waits until its file may be decoded.
    pub decode_wait: Duration,
    /// How long a file may take to decode, by the clock. Together with `decode_wait` shorter than
    /// [`postern_kit::transport::DEADLINE`], so that the caller hears of it.
    pub decode_time: Duration,
    /// Where the bytes before changes are kept, for the owner to take them back; made if it is missing. Outside the project.
    /// Without one nothing is kept.
    pub before: Option<PathBuf>,
    /// Bytes on disk that they may take; what was kept longest ago goes first. 0 keeps nothing.
    pub keep_before: u64,
}

impl Config {
    /// The default bounds.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            jobs: 16,
            waiting: 256,
            scans: 2,
            giant: 2 * 1024 * 1024 * 1024,
            revision_wait: Duration::from_secs(1),
            effect_wait: Duration::from_secs(8),
            patch_limit: 64 * 1024 * 1024,
            large_patches: 2,
            decoder: Vec::new(),
            decoders: 2,
            decode_wait: Duration::from_secs(2),
            decode_time: Duration::from_secs(6),
            before: None,
            keep_before: 1024 * 1024 * 1024,
        }
    }
}

/// One project.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) root: Root,
    pub(crate) bounds: Config,
    pub(crate) jobs: Jobs,
    pub(crate) revisions: Arc<Revisions>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) memory: Arc<Semaphore>,
    pub(crate) left_overs: LeftOvers,
    pub(crate) disk: Disk,
    pub(crate) decoders: Decoders,
    pub(crate) listings: Listings,
    pub(crate) store: Option<Arc<Store>>,
    /// Places of those who read earlier states.
    pub(crate) readers: Arc<Semaphore>,
}

/// Earlier states read at once, each with a thread and some MiB.
const READERS: usize = 8;

impl Project {
    pub(crate) fn open(bounds: Config, clock: Clock) -> Result<Self, Error> {
        Ok(Self {
            root: Root::open(&bounds.root).map_err(Error::Root)?,
            jobs: Jobs::new(bounds.jobs, bounds.waiting),
            revisions: Arc::new(Revisions::new(clock, bounds.scans)),
            locks: Arc::default(),
            guard: Arc::new(Guard::new()),
            memory: Arc::new(Semaphore::new(bounds.large_patches)),
            left_overs: LeftOvers::default(),
            disk: Disk::default(),
            decoders: Decoders::new(&bounds),
            listings: Listings::default(),
            store: store(&bounds)?,
            readers: Arc::new(Semaphore::new(READERS)),
            bounds,
        })
    }
}

fn store(bounds: &Config) -> Result<Option<Arc<Store>>, Error> {
    let Some(path) = &bounds.before else {
        return Ok(None);
    };
    let store = Arc::new(Store::open(path, bounds.keep_before).map_err(Error::Before)?);
    // Whoever needs it first waits for this look; nobody else does.
    if let Ok(runtime) = Handle::try_current() {
        let store = Arc::clone(&store);
        runtime.spawn_blocking(move || store.look_through());
    }
    Ok(Some(store))
}
