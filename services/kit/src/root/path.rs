//! Paths as callers write them.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use rustix::io::Errno;

use crate::Failure;

use super::{
    Place,
    refusal::{invalid, refusal},
};

/// Longest name, in bytes (`NAME_MAX`).
const NAME_BYTES: usize = 255;
/// Longest path, in bytes (`PATH_MAX`, less its end).
const PATH_BYTES: usize = 4095;

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// `..`
    Up,
    /// A name.
    Down(OsString),
}

/// A path that a caller wrote, relative to the root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Wanted {
    /// Text for the kernel; "." for the root.
    pub(super) relative: String,
    /// Its steps, without `.`.
    pub(super) steps: Vec<Step>,
    /// Whether a slash or dot at the end demands a directory.
    pub(super) directory: bool,
}

impl Wanted {
    /// Reads a path. It may be absolute when it starts with the root's real path; nothing else is judged here.
    pub(super) fn parse(text: &str, real_root: &Path) -> Result<Self, Failure> {
        if text.contains('\0') {
            return Err(invalid("path", "A path cannot hold a NUL character."));
        }
        if text.len() > PATH_BYTES {
            return Err(invalid("maxLength", "A path has at most 4095 bytes."));
        }
        let relative = match text.strip_prefix('/') {
            Some(_) => inside(text, real_root).ok_or_else(|| refusal(Errno::XDEV, text))?,
            None => text,
        };
        let directory = relative.is_empty()
            || relative.ends_with('/')
            || matches!(relative.rsplit('/').next(), Some("." | ".."));
        let names = relative.strip_suffix('/').unwrap_or(relative);
        let mut steps = Vec::new();
        for name in names.split('/') {
            match name {
                "" if names.is_empty() => {}
                "" => return Err(invalid("path", "A path cannot have an empty part (`//`).")),
                "." => {}
                ".." => steps.push(Step::Up),
                name if name.len() > NAME_BYTES => {
                    return Err(invalid(
                        "maxLength",
                        "A name in a path has at most 255 bytes.",
                    ));
                }
                name => steps.push(Step::Down(name.into())),
            }
        }
        let relative = if relative.is_empty() { "." } else { relative }.to_owned();
        Ok(Self {
            relative,
            steps,
            directory,
        })
    }

    /// The names that are left when `.` and `..` are taken out; right only where no link is on the way.
    pub(super) fn without_dots(&self) -> Vec<OsString> {
        let mut names = Vec::new();
        for step in &self.steps {
            match step {
                Step::Up => drop(names.pop()),
                Step::Down(name) => names.push(name.clone()),
            }
        }
        names
    }

    /// The path as it may be repeated to the caller.
    pub(super) fn shown(&self) -> String {
        show(
            &self
                .steps
                .iter()
                .map(|step| match step {
                    Step::Up => OsStr::new(".."),
                    Step::Down(name) => name,
                })
                .collect::<PathBuf>(),
        )
    }

    /// Where the path led. A path with `..` is told as where it led, since what `..` means depends on links.
    pub(super) fn place(&self, done: &[OsString], missing: &[OsString]) -> Place {
        let path: PathBuf = done.iter().chain(missing).collect();
        let shown = if self.steps.contains(&Step::Up) {
            show(&path)
        } else {
            self.shown()
        };
        Place { shown, path }
    }
}

/// Steps of a link's text, and whether it demands a directory.
pub(super) fn link_steps(text: &Path) -> (VecDeque<Step>, bool) {
    let steps = text
        .components()
        .filter_map(|component| match component {
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
            Component::ParentDir => Some(Step::Up),
            Component::Normal(name) => Some(Step::Down(name.to_owned())),
        })
        .collect();
    let bytes = text.as_os_str().as_bytes();
    let directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes == b".";
    (steps, directory)
}

/// What follows the root's real path in an absolute path.
fn inside<'a>(text: &'a str, real_root: &Path) -> Option<&'a str> {
    let rest = text
        .as_bytes()
        .strip_prefix(match real_root.as_os_str().as_bytes() {
            b"/" => b"".as_slice(),
            root => root,
        })?;
    // None when a root whose path is not UTF-8 ends inside a character of this one, which then is another path.
    let rest = text.get(text.len() - rest.len()..)?;
    if rest.is_empty() {
        return Some(rest);
    }
    rest.strip_prefix('/')
}

/// A link-free path as it is told; "." for the root.
pub(super) fn show(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        path.to_string_lossy().into_owned()
    }
}
