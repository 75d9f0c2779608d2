//! The bytes before changes, by their digest, so that a change can be taken back.
//!
//! An image is one zstd frame in a file named after the SHA-256 of what is in it. It has that name only once it is durable, and
//! is compared with its name whenever it is read. The store is bounded in bytes: the images that were kept or wanted longest
//! ago go first. Which there are is known in memory, from one look at the directory when the process starts.
//!
//! A change whose bytes before should be kept and cannot be (the disk is full, the store is broken) is refused: nobody finds out
//! afterwards that what he relied on is not there.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read as _, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
    time::SystemTime,
};

use postern_types::{ReceiptId, Sha256};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
};
use sha2::Digest as _;

use crate::{jobs::hold, left_over, names, revision::SNAPSHOT_LIMIT};

/// Largest file whose bytes are kept, in bytes: a second of compression at most, and a small part of the time of a hop.
pub(crate) const LARGEST: u64 = 256 * 1024 * 1024;
/// One file may take up this part of the store.
const PART: u64 = 4;
/// Images at most, whatever their size: some 30 MiB of what is known in memory.
const IMAGES: usize = 262_144;
/// zstd's fastest ordinary level.
const LEVEL: i32 = 1;
/// Bytes compressed or told at a time.
const CHUNK: usize = 256 * 1024;
/// What an image takes on disk is counted in these.
const BLOCK: u64 = 4096;
/// Images made durable one by one; of more, the whole file system is.
const SYNC_EACH: usize = 32;

/// Why bytes could not be kept or told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file is not at that revision any more.
    #[error("the file changed meanwhile")]
    Changed,
    /// They are not in the store.
    #[error("not kept")]
    Gone,
    /// The image does not hold what its name says. It is removed.
    #[error("the image is damaged")]
    Damaged,
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Images in one directory.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    directory: OwnedFd,
    budget: u64,
    known: OnceLock<Mutex<Known>>,
}

/// The images there are, by age.
#[derive(Debug, Default)]
struct Known {
    images: HashMap<Sha256, Image>,
    ages: BTreeMap<u64, Sha256>,
    next_age: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Image {
    age: u64,
    bytes: u64,
}

/// What became of bytes that are to be kept.
#[derive(Debug)]
pub(crate) enum Staged<'a> {
    /// The file is too large.
    TooLarge,
    /// There is an image of them already.
    There,
    /// There is one that waits for [`Store::commit`].
    New(Unnamed<'a>),
}

/// An image that has no name yet. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Unnamed<'a> {
    store: &'a Store,
    /// Held until it is durable, unless there are many.
    file: Option<File>,
    temporary: String,
    sha256: Sha256,
    bytes: u64,
    named: bool,
}

impl Store {
    /// The store in a directory, which is made if it is missing. With a budget of 0 nothing is kept, and what is there goes.
    pub(crate) fn open(path: &Path, budget: u64) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            directory: rustix::fs::openat(CWD, path, flags, Mode::empty())?,
            budget,
            known: OnceLock::new(),
        })
    }

    /// Looks through the directory, if nobody did. Whoever needs the store does so too, and waits.
    pub(crate) fn look_through(&self) {
        self.known();
    }

    /// Whether a file of this size is kept.
    pub(crate) fn keeps(&self, size: u64) -> bool {
        self.budget > 0 && size <= LARGEST.min(self.budget / PART)
    }

    /// Makes sure that an image of a file at this revision is there, durably. False when it is too large.
    pub(crate) fn keep(&self, file: &File, size: u64, sha256: Sha256) -> Result<bool, Error> {
        match self.stage(file, size, sha256)? {
            Staged::TooLarge => Ok(false),
            Staged::There => Ok(true),
            Staged::New(image) => self.commit(vec![image]).map(|()| true),
        }
    }

    /// Writes an image of a file at this revision, if there is none.
    pub(crate) fn stage(
        &self,
        file: &File,
        size: u64,
        sha256: Sha256,
    ) -> Result<Staged<'_>, Error> {
        if !self.keeps(size) {
            return Ok(Staged::TooLarge);
        }
        if self.wanted_again(&sha256) {
            return Ok(Staged::There);
        }
        let (temporary, staged) = self.create()?;
        let mut image = Unnamed {
            store: self,
            file: Some(staged),
            temporary,
            sha256,
            bytes: 0,
            named: false,
        };
        image.fill(file, size)?;
        Ok(Staged::New(image))
    }

    /// Makes images durable and gives them their names.
    pub(crate) fn commit(&self, mut images: Vec<Unnamed<'_>>) -> Result<(), Error> {
        if images.is_empty() {
            return Ok(());
        }
        postern_kit::fault_point!(crate::fault_points::KEPT_BEFORE);
        if images.len() > SYNC_EACH {
            rustix::fs::syncfs(&self.directory)?;
        } else {
            for image in &images {
                image.file.as_ref().map_or(Ok(()), File::sync_data)?;
            }
        }
        if let Err(errno) = self.name_all(&mut images) {
            // What is not durable for sure is not there for anybody, and takes no room that nobody counts.
            for image in images.iter().filter(|image| image.named) {
                let name = image.sha256.to_string();
                let _ = rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty());
            }
            return Err(errno.into());
        }
        postern_kit::fault_point!(crate::fault_points::KEPT_AFTER);
        let mut known = hold(self.known());
        for image in &images {
            known.insert(image.sha256, image.bytes);
        }
        self.make_room(&mut known);
        Ok(())
    }

    fn name_all(&self, images: &mut [Unnamed<'_>]) -> rustix::io::Result<()> {
        for image in images {
            let name = image.sha256.to_string();
            rustix::fs::renameat(&self.directory, &image.temporary, &self.directory, &name)?;
            image.named = true;
        }
        rustix::fs::fsync(&self.directory)
    }

    /// Writes the bytes of a revision, as they are kept. What was written is that revision only when this says so.
    pub(crate) fn tell(&self, sha256: &Sha256, into: &mut impl Write) -> Result<u64, Error> {
        if !hold(self.known()).images.contains_key(sha256) {
            return Err(Error::Gone);
        }
        let name = sha256.to_string();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let image: File = match rustix::fs::openat(&self.directory, &name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                hold(self.known()).remove(sha256);
                return Err(Error::Gone);
            }
            answer => answer?.into(),
        };
        self.wanted_again(sha256);
        match decompress(image, into)? {
            (told, size) if told == *sha256 => Ok(size),
            _ => {
                tracing::error!("a kept image does not hold what its name says; it is removed");
                self.remove(&mut hold(self.known()), sha256);
                Err(Error::Damaged)
            }
        }
    }

    /// Whether there is an image of this revision.
    pub(crate) fn has(&self, sha256: &Sha256) -> bool {
        hold(self.known()).images.contains_key(sha256)
    }

    /// Makes an image the youngest, if it is there.
    fn wanted_again(&self, sha256: &Sha256) -> bool {
        let mut known = hold(self.known());
        let Some(image) = known.images.get(sha256).copied() else {
            return false;
        };
        let times = Timestamps {
            last_access: NOW,
            last_modification: NOW,
        };
        let name = sha256.to_string();
        match rustix::fs::utimensat(&self.directory, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => {
                known.insert(*sha256, image.bytes);
                true
            }
            Err(_) => {
                known.remove(sha256);
                false
            }
        }
    }

    fn create(&self) -> Result<(String, File), Error> {
        let temporary = names::temporary(ReceiptId::generate());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file: File = rustix::fs::openat(&self.directory, &temporary, flags, mode)?.into();
        left_over::claim(&file)?;
        Ok((temporary, file))
    }

    fn make_room(&self, known: &mut Known) {
        while known.bytes > self.budget || known.images.len() > IMAGES {
            let Some(oldest) = known.ages.values().next().copied() else {
                return;
            };
            self.remove(known, &oldest);
        }
    }

    fn remove(&self, known: &mut Known, sha256: &Sha256) {
        known.remove(sha256);
        let name = sha256.to_string();
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, "an image could not be removed"),
        }
    }

    fn known(&self) -> &Mutex<Known> {
        self.known.get_or_init(|| {
            let mut known = Known::default();
            match self.scan() {
                Ok(images) => {
                    for (_, sha256, bytes) in images {
                        known.insert(sha256, bytes);
                    }
                    self.make_room(&mut known);
                }
                Err(error) => tracing::error!(%error, "the store of images cannot be read"),
            }
            Mutex::new(known)
        })
    }

    /// The images there are, the oldest first. Removes what dead processes left, and makes what is there durable.
    fn scan(&self) -> io::Result<Vec<(SystemTime, Sha256, u64)>> {
        let mut images = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if names::is_temporary(name.as_bytes()) {
                remove_if_dead(&entry.path());
            } else if let Ok(sha256) = name.parse::<Sha256>()
                && let Ok(facts) = entry.metadata()
                && facts.is_file()
            {
                images.push((facts.modified()?, sha256, on_disk(facts.size())));
            }
        }
        images.sort_unstable_by_key(|(time, _, _)| *time);
        rustix::fs::fsync(&self.directory)?;
        Ok(images)
    }
}

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: rustix::fs::UTIME_NOW,
};

const fn on_disk(size: u64) -> u64 {
    size.div_ceil(BLOCK) * BLOCK
}

fn remove_if_dead(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && let Err(error) = fs::remove_file(path)
    {
        tracing::warn!(%error, "an unfinished image could not be removed");
    }
}

impl Known {
    fn insert(&mut self, sha256: Sha256, bytes: u64) {
        self.remove(&sha256);
        let age = self.next_age;
        self.next_age += 1;
        self.bytes += bytes;
        self.ages.insert(age, sha256);
        self.images.insert(sha256, Image { age, bytes });
    }

    fn remove(&mut self, sha256: &Sha256) {
        if let Some(image) = self.images.remove(sha256) {
            self.ages.remove(&image.age);
            self.bytes -= image.bytes;
        }
    }
}

impl Unnamed<'_> {
    /// Lets go of its descriptor: it is one of many, which are made durable together.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    fn fill(&mut self, source: &File, size: u64) -> Result<(), Error> {
        let Some(file) = &mut self.file else {
            return Err(Error::Changed);
        };
        let told = if size <= SNAPSHOT_LIMIT {
            let content = crate::revision::read_range(source, 0, to_usize(size).saturating_add(1))?;
            file.write_all(&zstd::bulk::compress(&content, LEVEL)?)?;
            Sha256::of(&content)
        } else {
            compress(source, file)?
        };
        if told != self.sha256 {
            return Err(Error::Changed);
        }
        self.bytes = on_disk(file.metadata()?.size());
        Ok(())
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        if !self.named {
            let directory = self.store.directory.as_fd();
            match rustix::fs::unlinkat(directory, &self.temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => tracing::warn!(%error, "an unfinished image could not be removed"),
            }
        }
    }
}

/// Compresses a file from its start to its end, a part at a time, and tells its revision.
fn compress(source: &File, into: &mut File) -> Result<Sha256, Error> {
    let mut encoder = zstd::stream::write::Encoder::new(into, LEVEL)?;
    let (mut hash, mut offset) = (sha2::Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = source.read_at(&mut chunk, offset)?;
        if length == 0 {
            break;
        }
        encoder.write_all(&chunk[..length])?;
        hash.update(&chunk[..length]);
        offset += length as u64;
        if offset > LARGEST {
            return Err(Error::Changed);
        }
    }
    encoder.finish()?;
    Ok(Sha256::from_bytes(hash.finalize().into()))
}

/// Writes what is in an image, and tells its revision and size. What is no frame is told as bytes of no revision.
fn decompress(image: File, into: &mut impl Write) -> Result<(Sha256, u64), Error> {
    let mut decoder = zstd::stream::read::Decoder::new(image)?;
    let (mut hash, mut size) = (sha2::Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK];
    loop {
        // A damaged frame is a failure of the decoder, not of the disk.
        let length = match decoder.read(&mut chunk) {
            Ok(length) => length,
            Err(error) if error.raw_os_error().is_some() => return Err(error.into()),
            Err(_) => break,
        };
        if length == 0 || size > LARGEST {
            break;
        }
        into.write_all(&chunk[..length])?;
        hash.update(&chunk[..length]);
        size += length as u64;
    }
    Ok((Sha256::from_bytes(hash.finalize().into()), size))
}

fn to_usize(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
