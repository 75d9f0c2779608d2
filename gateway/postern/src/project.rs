//! The project that is served.

use std::{
    fs,
    path::{Path, PathBuf},
};

use postern_kit::root::{Identity, Root};

use crate::error::Error;

/// A project's real root.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// Path without links.
    pub(crate) path: PathBuf,
    /// What tells it from another.
    pub(crate) identity: Identity,
}

impl Project {
    /// Looks at a directory that is to be served.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let real = fs::canonicalize(path)
            .map_err(|problem| Error::Failed(format!("the project '{shown}' cannot be opened ({problem}); name an existing directory with --project")))?;
        if !real.is_dir() {
            return Err(Error::Failed(format!(
                "the project '{shown}' is not a directory; name one with --project"
            )));
        }
        let root = Root::open(&real).map_err(|problem| {
            Error::failed(format!("the project '{shown}' cannot be opened"), problem)
        })?;
        Ok(Self {
            path: real,
            identity: root.identity().clone(),
        })
    }
}
