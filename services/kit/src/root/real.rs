//! Real paths of what may not exist yet.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// The path without links: its nearest parent that exists is resolved, and what does not exist holds no links.
#[must_use]
pub fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let Ok(real) = fs::canonicalize(ancestor) {
            let rest = absolute.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return rest.components().fold(real, |mut path, part| {
                if part == Component::ParentDir {
                    path.pop();
                } else {
                    path.push(part);
                }
                path
            });
        }
    }
    absolute
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
}
