//! Tells whether something was opened, read or changed, whoever did it.

use std::{mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::{fs::inotify, io::Errno};

pub(crate) use rustix::fs::inotify::WatchFlags;

/// Whatever can be done to a thing but to name it.
pub(crate) const ANYTHING: WatchFlags = WatchFlags::OPEN
    .union(WatchFlags::ACCESS)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE);

/// A watch on files and directories, and on what is in these.
pub(crate) struct Watch(OwnedFd);

impl Watch {
    pub(crate) fn new(flags: WatchFlags, paths: &[&Path]) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
            .expect("watch");
        for path in paths {
            inotify::add_watch(&watch, *path, flags).expect("watched");
        }
        Self(watch)
    }

    /// What was seen since the last time, each with the name that it happened to.
    pub(crate) fn seen(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        let mut seen = Vec::new();
        loop {
            match events.next() {
                Ok(event) => seen.push(format!("{:?} {:?}", event.events(), event.file_name())),
                Err(Errno::WOULDBLOCK) => return seen,
                Err(errno) => panic!("{errno}"),
            }
        }
    }
}
