//! The key of a data directory's worker: made once, in a file that its commands cannot read.
//!
//! It stands beside the look at a caller's ancestors. That one knows a command by its place in the process tree, which a
//! command may leave: through a service of the system, or when its worker is killed.

use std::path::{Path, PathBuf};

use postern_kit::Key;

use crate::{
    data_dir::{self, DataDir},
    error::Error,
    services::EXEC_KEY_FILE,
};

/// The key and the directory of its file.
#[derive(Clone, Debug)]
pub(super) struct KeyFile {
    directory: PathBuf,
    pub(super) key: Key,
}

impl KeyFile {
    /// Reads the key of a data directory, or makes one.
    pub(super) fn open(data: &DataDir) -> Result<Self, Error> {
        let directory = data.path().to_owned();
        if let Some(key) = read(&directory.join(EXEC_KEY_FILE))? {
            return Ok(Self { directory, key });
        }
        let key = Key::generate()
            .map_err(|problem| Error::failed("there is no randomness for a key", problem))?;
        let made = Self { directory, key };
        made.write()?;
        Ok(made)
    }

    /// Where it lies.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(EXEC_KEY_FILE)
    }

    /// Sees that a worker that is started now reads this key: the file may have been replaced or removed since it was read.
    pub(super) fn restore(&self) -> Result<(), Error> {
        match read(&self.path()) {
            Ok(Some(key)) if key == self.key => Ok(()),
            Ok(_) | Err(_) => self.write(),
        }
    }

    fn write(&self) -> Result<(), Error> {
        let text = format!("{}\n", self.key.expose());
        data_dir::write_private(&self.directory, EXEC_KEY_FILE, &text)
    }
}

/// The key in a file. There must be one.
pub(crate) fn key_of(file: &Path) -> Result<Key, Error> {
    read(file)?.ok_or_else(|| Error::Usage(format!("there is no key file '{}'", file.display())))
}

fn read(file: &Path) -> Result<Option<Key>, Error> {
    let text = data_dir::read_optional(file)?;
    text.map(|text| text.parse())
        .transpose()
        .map_err(|problem| {
            Error::failed(
                format!(
                    "'{}' holds no key; remove it, and the next start makes another",
                    file.display()
                ),
                problem,
            )
        })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_the_owners_alone() {
        let home = tempfile::tempdir().expect("folder");
        let data = DataDir::open(&home.path().join("data")).expect("data");
        let made = KeyFile::open(&data).expect("made");
        let mode = fs::metadata(made.path())
            .expect("file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(KeyFile::open(&data).expect("read").key, made.key);
        assert_eq!(key_of(&made.path()).expect("read"), made.key);
    }

    #[test]
    fn a_worker_that_is_started_again_reads_the_key_of_its_edge() {
        let home = tempfile::tempdir().expect("folder");
        let data = DataDir::open(&home.path().join("data")).expect("data");
        let ours = KeyFile::open(&data).expect("made");
        let damages: [&dyn Fn(&Path); 3] = [
            &|path| fs::remove_file(path).expect("removed"),
            &|path| fs::write(path, "nonsense\n").expect("damaged"),
            &|path| fs::write(path, format!("{}\n", "0".repeat(64))).expect("replaced"),
        ];
        for damage in damages {
            damage(&ours.path());
            ours.restore().expect("restored");
            assert_eq!(key_of(&ours.path()).expect("read"), ours.key);
        }
    }

    #[test]
    fn a_damaged_key_is_refused_and_not_shown() {
        let home = tempfile::tempdir().expect("folder");
        let data = DataDir::open(&home.path().join("data")).expect("data");
        data.write_private(EXEC_KEY_FILE, "0123456789abcdef\n")
            .expect("written");
        let problem = KeyFile::open(&data).expect_err("damaged").to_string();
        assert!(problem.contains("remove it"), "{problem}");
        assert!(!problem.contains("0123456789abcdef"), "{problem}");
        let file = data.join("none");
        let problem = key_of(&file).expect_err("missing").to_string();
        assert!(problem.contains("no key file"), "{problem}");
    }
}
