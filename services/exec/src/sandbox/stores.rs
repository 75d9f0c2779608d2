//! Where credentials usually lie.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Homes looked for below `/home`.
const HOMES: usize = 1024;

/// Below a home directory. One line a kind: shells and remote machines, clouds, code hosts, registries, databases,
/// keyrings, browsers and mail, agents, histories, this program.
const USUAL: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".netrc",
    ".Xauthority",
    ".ICEauthority",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".boto",
    ".s3cfg",
    ".oci",
    ".fly",
    ".config/doctl",
    ".config/rclone",
    ".kube",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".databrickscfg",
    ".config/sops",
    ".config/op",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".m2/settings-security.xml",
    ".pgpass",
    ".my.cnf",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    "snap/firefox",
    "snap/chromium",
    ".var/app/org.mozilla.firefox",
    ".var/app/com.google.Chrome",
    ".var/app/org.chromium.Chromium",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/github-copilot",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".mysql_history",
    ".python_history",
    ".node_repl_history",
    ".local/state/postern",
];

/// Of the whole machine: secrets that containers are given.
const SYSTEM: &[&str] = &["/run/secrets"];

/// The usual credential stores of these homes, and the machine's.
pub(super) fn usual(homes: &[PathBuf]) -> Vec<PathBuf> {
    let of_homes = homes
        .iter()
        .flat_map(|home| USUAL.iter().map(move |store| home.join(store)));
    of_homes.chain(SYSTEM.iter().map(PathBuf::from)).collect()
}

/// The home directories whose credentials a command could read: the user's own, and everybody's when the user is root.
#[must_use]
pub fn homes(own: &[PathBuf]) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = own
        .iter()
        .filter(|home| home.is_absolute())
        .cloned()
        .collect();
    if rustix::process::geteuid().is_root() {
        homes.push(PathBuf::from("/root"));
        let entries = fs::read_dir(Path::new("/home")).into_iter().flatten();
        homes.extend(entries.take(HOMES).flatten().map(|entry| entry.path()));
    }
    homes.sort_unstable();
    homes.dedup();
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_of_every_home_are_named() {
        let usual = usual(&["/home/a".into(), "/home/b".into()]);
        for path in [
            "/home/a/.ssh",
            "/home/b/.aws",
            "/home/b/.config/gcloud",
            "/run/secrets",
        ] {
            assert!(usual.contains(&path.into()), "{path}");
        }
        assert!(USUAL.iter().all(|store| Path::new(store).is_relative()));
    }
}
