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
    rules::{Decision, Rules, Verdict},
};

/// Between two looks at the files.
const LOOK: Duration = Duration::from_millis(500);
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
#[derive(Debug, Eq, PartialEq)]
struct Trace {
    path: PathBuf,
    size: u64,
    inode: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
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
            };
        }
        state.rules.decide(call)
    }

    /// Reads the files again whenever they change, until the tasks stop.
    pub(crate) fn follow(&self, directory: PathBuf, schemas: Arc<Schemas>, tasks: &Tasks) {
        let (current, stop) = (self.clone(), tasks.stopping());
        let follow = async move {
            let mut seen = None;
            loop {
                let (directory, schemas, before) =
                    (directory.clone(), schemas.clone(), seen.take());
                let look = tokio::task::spawn_blocking(move || {
                    let now = traces(&directory);
                    // Looked at before it is read: a change in between is seen the next time.
                    let loaded = (before.as_ref() != Some(&now))
                        .then(|| Rules::load(Some(&directory), &schemas));
                    (now, loaded)
                });
                let Ok((now, loaded)) = look.await else {
                    return;
                };
                seen = Some(now);
                if let Some(loaded) = loaded {
                    current.replace(loaded);
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = stop.cancelled() => return,
                }
            }
        };
        tasks.spawn("rules", follow);
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
                tracing::error!(%error, "the rules are broken: effects are denied until they are mended");
                state.broken = Some(told(&error).into());
            }
        }
    }
}

/// What the agent is told of broken rules: where, and not what they say.
fn told(error: &Error) -> String {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let place = match error {
        Error::Rule { path, line, .. } => format!("{}, line {line}, is broken", name(path)),
        Error::Unreadable { path, .. } => format!("{} cannot be read", name(path)),
        Error::TooMuch { path, .. } => format!("{} holds too much", name(path)),
        Error::Embedded(_) | Error::Catalogue(_) => "the program is broken".to_owned(),
    };
    format!(
        "The owner's rules cannot be used ({place}), so nothing is changed and nothing is run until he mends them; tell him \
         with workspace_ask."
    )
}

/// The files as they are now; nothing when the directory cannot be read.
fn traces(directory: &Path) -> Option<Vec<Trace>> {
    use std::os::unix::fs::MetadataExt as _;

    let mut traces: Vec<Trace> = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let metadata = fs::metadata(&path).ok()?;
            Some(Trace {
                size: metadata.len(),
                inode: metadata.ino(),
                modified: metadata.modified().ok(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
                path,
            })
        })
        .collect();
    traces.sort_by(|left, right| left.path.cmp(&right.path));
    Some(traces)
}
