//! Rules that follow their files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use postern_kit::task::Tasks;

use crate::{
    Error,
    arguments::Schemas,
    call::{Call, Kind},
    rules::{Decision, MAX_FILES, Rules, Verdict, is_rule_file},
};

/// Between two looks at the files.
const LOOK: Duration = Duration::from_millis(300);
/// A file that changed this lately may change again without a trace: clocks of file systems tick slowly.
const YOUNG: Duration = Duration::from_secs(2);
/// Id of the decision over effects while the rules are broken.
const BROKEN: &str = "postern.broken-rules";

/// The rules in force. Clones stand for the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Current(Arc<RwLock<State>>);

#[derive(Clone, Debug)]
struct State {
    /// The last ones that were whole.
    rules: Arc<Rules>,
    /// What the agent is told while the files are not.
    broken: Option<Arc<str>>,
}

/// What tells that a file is another than before.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Trace {
    path: PathBuf,
    size: u64,
    inode: u64,
    changed: SystemTime,
}

/// What was seen of the files.
#[derive(Debug, Default)]
struct Watched {
    /// When the rules in force were read.
    in_force: Option<Traces>,
    /// At the last look.
    last: Option<Traces>,
}

/// The files; nothing when the directory cannot be read.
type Traces = Option<Vec<Trace>>;

impl Watched {
    /// What is to be in force from now on, if that is another thing than before. Broken rules count at once. Whole ones count
    /// when two looks have shown the same files: between two steps of an editor a folder may be empty, or a file cut off
    /// where a rule ends.
    fn look(
        &mut self,
        directory: &Path,
        schemas: &Schemas,
        is_broken: bool,
    ) -> Option<Result<Rules, Error>> {
        // Looked at before it is read: a change in between is seen the next time.
        let now = traces(directory);
        let is_settled = self.last.as_ref() == Some(&now);
        let is_known = self.in_force.as_ref() == Some(&now) && !is_young(&now);
        self.last = Some(now);
        if is_known && !is_broken {
            return None;
        }
        let loaded = Rules::load(Some(directory), schemas);
        if loaded.is_ok() && !is_settled {
            return None;
        }
        self.in_force.clone_from(&self.last);
        Some(loaded)
    }
}

impl Current {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(Arc::new(RwLock::new(State {
            rules: Arc::new(rules),
            broken: None,
        })))
    }

    /// While the files are broken, what only reads is decided by the last whole rules, and effects are denied.
    pub(crate) fn decide(&self, call: &Call<'_>) -> Decision {
        let state = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(broken) = &state.broken
            && matches!(
                call.kind,
                Kind::FileChange | Kind::Command | Kind::OwnerTool
            )
        {
            return Decision {
                verdict: Verdict::Deny,
                policy_id: BROKEN.to_owned(),
                reason: broken.to_string(),
                asking: Vec::new(),
            };
        }
        state.rules.decide(call)
    }

    /// Reads the files again whenever they change, until the tasks stop.
    pub(crate) fn follow(&self, directory: PathBuf, schemas: Arc<Schemas>, tasks: &Tasks) {
        let (current, stop) = (self.clone(), tasks.stopping());
        let follow = async move {
            let mut watched = Watched::default();
            loop {
                let (directory, schemas) = (directory.clone(), Arc::clone(&schemas));
                let is_broken = current.is_broken();
                let look = tokio::task::spawn_blocking(move || {
                    let loaded = watched.look(&directory, &schemas, is_broken);
                    (watched, loaded)
                });
                match look.await {
                    Ok((after, loaded)) => {
                        watched = after;
                        if let Some(loaded) = loaded {
                            current.replace(loaded);
                        }
                    }
                    // What makes the reading panic must not leave rules in force that the owner has changed.
                    Err(_) => {
                        watched = Watched::default();
                        current.replace(Err(Error::Embedded("reading them failed".to_owned())));
                    }
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = stop.cancelled() => return,
                }
            }
        };
        tasks.spawn("rules", follow);
    }

    fn is_broken(&self) -> bool {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.broken.is_some()
    }

    fn replace(&self, loaded: Result<Rules, Error>) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(rules) => {
                if state.broken.is_some() {
                    tracing::info!("the rules are whole again");
                }
                *state = State {
                    rules: Arc::new(rules),
                    broken: None,
                };
            }
            Err(error) => {
                let place = place(&error);
                if state.broken.as_deref() != Some(told(&place).as_str()) {
                    tracing::error!(
                        place,
                        "the rules are broken: effects are denied until they are mended; postern policy check tells more"
                    );
                }
                state.broken = Some(told(&place).into());
            }
        }
    }
}

/// Where rules are broken, and not what they say.
fn place(error: &Error) -> String {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    match error {
        Error::Rule { path, line, .. } => format!("{}, line {line}, is broken", name(path)),
        Error::Unreadable { path, .. } => format!("{} cannot be read", name(path)),
        Error::TooMuch { path, .. } => format!("{} holds too much", name(path)),
        Error::Embedded(_) | Error::Catalogue(_) => "the program failed to read them".to_owned(),
    }
}

/// What the agent is told of broken rules.
fn told(place: &str) -> String {
    format!(
        "The owner's rules cannot be used ({place}), so nothing is changed and nothing is run until he mends them; tell him \
         with workspace_ask."
    )
}

/// Whether a file changed so lately that it may change again and look the same.
fn is_young(traces: &Traces) -> bool {
    let now = SystemTime::now();
    let age = |trace: &Trace| now.duration_since(trace.changed).unwrap_or_default();
    traces.iter().flatten().any(|trace| age(trace) < YOUNG)
}

/// The files as they are now.
fn traces(directory: &Path) -> Traces {
    use std::os::unix::fs::MetadataExt as _;

    let mut traces: Vec<Trace> = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_rule_file(path))
        .take(MAX_FILES + 1)
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok()?;
            let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
            let since = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
            Some(Trace {
                size: metadata.len(),
                inode: metadata.ino(),
                changed: SystemTime::UNIX_EPOCH + since,
                path,
            })
        })
        .collect();
    traces.sort_by(|left, right| left.path.cmp(&right.path));
    Some(traces)
}

#[cfg(test)]
mod tests {
    use postern_proto::catalogue;
    use pretty_assertions::assert_eq;

    use super::*;

    const RULE: &str = "forbid (principal, action, resource == Tool::\"workspace_delete\");\nforbid (principal == Session::\"s\", action, resource);";

    #[test]
    fn what_an_editor_leaves_between_two_steps_loosens_nothing() {
        let schemas = Schemas::compile(catalogue::workspace_tools()).expect("schemas");
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("rules.cedar");
        let mut watched = Watched::default();
        let mut look = || {
            let loaded = watched.look(directory.path(), &schemas, false);
            loaded.map(|loaded| loaded.is_ok())
        };
        fs::write(&file, RULE).expect("written");
        assert_eq!([look(), look()], [None, Some(true)]);
        // Saved by way of a backup: the folder is empty for a moment.
        fs::rename(&file, directory.path().join("rules.cedar~")).expect("renamed");
        assert_eq!(look(), None);
        fs::write(&file, RULE).expect("written");
        assert_eq!([look(), look()], [None, Some(true)]);
        // Cut off, and written again: half of it is whole rules as well.
        fs::write(&file, RULE.lines().next().expect("a line")).expect("written");
        assert_eq!(look(), None);
        fs::write(&file, RULE).expect("written");
        assert_eq!([look(), look()], [None, Some(true)]);
        // What is broken counts at once.
        fs::write(&file, &RULE[..20]).expect("written");
        assert_eq!(look(), Some(false));
        fs::remove_dir_all(directory.path()).expect("removed");
        assert_eq!(look(), Some(false));
    }
}
