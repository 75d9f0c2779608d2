//! What is thrown away: the output of the oldest ended commands, and much later their claims.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use postern_types::{ReceiptId, Timestamp};
use rustix::fs::{FlockOperation, flock};

use super::{
    Spool, create_file,
    output::{HEAD_NAME, TAIL_NAME},
    sessions::IDLE,
};

/// Commands whose output is kept.
const OUTPUTS: usize = 1_000;
/// Bytes on disk of all kept output.
const OUTPUT_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Claims that are kept. An older receipt is not remembered: whether it was acted on is unknown.
const CLAIMS: usize = 50_000;
/// Entries in a row without output after which there is no older output either.
const BARE: usize = 256;
/// Entries of the spool that are looked at.
pub(super) const ENTRIES: usize = 200_000;
const LOCK: &str = ".retention";

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) outputs: usize,
    pub(super) output_bytes: u64,
    pub(super) claims: usize,
}

impl Spool {
    /// Throws away what is over the bounds, oldest first. Commands that run are left alone. One worker at a time.
    pub(crate) fn prune(&self, now: Timestamp) -> io::Result<()> {
        let bounds = Bounds {
            outputs: OUTPUTS,
            output_bytes: OUTPUT_BYTES,
            claims: CLAIMS,
        };
        self.prune_to(bounds, now)
    }

    pub(super) fn prune_to(&self, bounds: Bounds, now: Timestamp) -> io::Result<()> {
        let lock = create_file(&self.root.join(LOCK))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        self.prune_sessions(IDLE)?;
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.root)?.take(ENTRIES) {
            let name = entry?.file_name();
            ids.extend(
                name.to_str()
                    .and_then(|name| name.parse::<ReceiptId>().ok()),
            );
        }
        // Receipt ids sort by their time.
        ids.sort_unstable_by(|one, other| other.cmp(one));
        let claims = bounds.claims.min(ids.len());
        self.prune_outputs(&ids[..claims], bounds, now)?;
        if let Some(newest) = ids.get(claims) {
            self.life.forget(*newest)?;
        }
        for id in &ids[claims..] {
            if self.has_ended(*id, now) {
                fs::remove_dir_all(self.directory(*id))?;
            }
        }
        Ok(())
    }

    fn prune_outputs(&self, ids: &[ReceiptId], bounds: Bounds, now: Timestamp) -> io::Result<()> {
        let (mut outputs, mut bytes, mut bare) = (0, 0, 0);
        for id in ids {
            let directory = self.directory(*id);
            let size = on_disk(&directory);
            if size == 0 {
                bare += 1;
                if bare >= BARE && outputs >= bounds.outputs {
                    break;
                }
                continue;
            }
            bare = 0;
            outputs += 1;
            bytes += size;
            if (outputs > bounds.outputs || bytes > bounds.output_bytes) && self.has_ended(*id, now)
            {
                for name in [TAIL_NAME, HEAD_NAME] {
                    remove(&directory.join(name))?;
                }
                bytes -= size;
            }
        }
        Ok(())
    }

    fn has_ended(&self, id: ReceiptId, now: Timestamp) -> bool {
        match self.find(id, now) {
            Ok(entry) => entry.is_some_and(|entry| {
                // What a command left running may still write.
                entry.header.end.is_some_and(|end| end.survivors == 0)
                    || !self.life.is_alive(&entry.meta.worker)
            }),
            // What cannot be read tells nothing to anybody.
            Err(error) => error.kind() == io::ErrorKind::InvalidData,
        }
    }
}

fn on_disk(directory: &Path) -> u64 {
    [HEAD_NAME, TAIL_NAME]
        .iter()
        .filter_map(|name| directory.join(name).metadata().ok())
        .map(|metadata| metadata.blocks().max(1) * 512)
        .sum()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
