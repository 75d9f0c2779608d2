//! Real paths of what may not exist yet.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// Links to places that do not exist, one after another, that are followed; as many as Linux follows.
const LINKS: usize = 40;

/// The path without links: its nearest parent that exists is resolved, a link that leads to what does not exist is followed
/// there, and what does not exist holds no links.
#[must_use]
pub fn real_path(path: &Path) -> PathBuf {
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for _ in 0..LINKS {
        match step(&path) {
            Step::Real(real) => return real,
            Step::Link(target) => path = target,
        }
    }
    path
}

enum Step {
    /// There are no links left.
    Real(PathBuf),
    /// The same place, without a link that led to what does not exist.
    Link(PathBuf),
}

fn step(absolute: &Path) -> Step {
    for ancestor in absolute.ancestors() {
        let rest = absolute.strip_prefix(ancestor).unwrap_or(Path::new(""));
        if let Ok(real) = fs::canonicalize(ancestor) {
            return Step::Real(rest.components().fold(real, |mut path, part| {
                if part == Component::ParentDir {
                    path.pop();
                } else {
                    path.push(part);
                }
                path
            }));
        }
        if let (Ok(target), Some(folder)) = (fs::read_link(ancestor), ancestor.parent()) {
            let target = folder.join(target);
            // Nothing is appended to the link's own path: a slash at its end would ask for a directory.
            let is_whole = rest.as_os_str().is_empty();
            return Step::Link(if is_whole { target } else { target.join(rest) });
        }
    }
    Step::Real(absolute.to_owned())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn links_on_the_way_are_followed_and_the_rest_is_taken_as_written() {
        let folder = tempfile::tempdir().expect("folder");
        let top = folder.path().canonicalize().expect("real");
        fs::create_dir(top.join("a")).expect("a");
        std::os::unix::fs::symlink("a", top.join("link")).expect("link");
        assert_eq!(real_path(&top.join("link")), top.join("a"));
        assert_eq!(real_path(&top.join("link/x/../y")), top.join("a/y"));
    }

    #[test]
    fn a_link_to_what_does_not_exist_yet_leads_there() {
        let folder = tempfile::tempdir().expect("folder");
        let top = folder.path().canonicalize().expect("real");
        fs::create_dir_all(top.join("home/deep")).expect("home");
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, top.join(name)).expect("link");
        };
        link("../media/key/store", "home/store");
        link("deep/../store", "home/again");
        link("loop", "home/loop");
        let store = top.join("media/key/store");
        assert_eq!(real_path(&top.join("home/store")), store);
        assert_eq!(real_path(&top.join("home/again")), store);
        assert_eq!(real_path(&top.join("home/again/key")), store.join("key"));
        assert!(real_path(&top.join("home/loop")).ends_with("loop"));
        fs::create_dir_all(&store).expect("mounted");
        assert_eq!(real_path(&top.join("home/again")), store);
    }
}
