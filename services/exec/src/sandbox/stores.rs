//! Where credentials usually lie.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// Homes looked for below `/home`.
const HOMES: usize = 1024;
/// The user database.
const USERS: &str = "/etc/passwd";

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

/// The home directories whose credentials a command could read: those given, the one that the user database has for this
/// user (`HOME` may say another), and everybody's when the user is root.
#[must_use]
pub fn homes(own: &[PathBuf]) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = own
        .iter()
        .filter(|home| home.is_absolute())
        .cloned()
        .collect();
    let user = rustix::process::geteuid();
    let database = fs::read(USERS).unwrap_or_default();
    homes.extend(home_of(&database, user.as_raw()));
    if user.is_root() {
        homes.push(PathBuf::from("/root"));
        let entries = fs::read_dir(Path::new("/home")).into_iter().flatten();
        homes.extend(entries.take(HOMES).flatten().map(|entry| entry.path()));
    }
    homes.sort_unstable();
    homes.dedup();
    homes
}

/// The home of a user in the text of the user database: seven fields a line, the third the user's number, the sixth the home.
fn home_of(database: &[u8], user: u32) -> Option<PathBuf> {
    let user = user.to_string();
    let mut lines = database.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let home = Path::new(OsStr::from_bytes(fields.get(5)?));
        (fields[2] == user.as_bytes() && home.is_absolute()).then(|| home.to_owned())
    })
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

    #[test]
    fn the_home_in_the_user_database_counts_whatever_home_says() {
        let database = b"root:x:0:0:root:/root:/bin/sh\n\nbroken\nodd:x:1001:7:7::/bin/sh\nme:x:1000:7:Me,,:/data/me:/bin/sh\n";
        assert_eq!(home_of(database, 1000), Some("/data/me".into()));
        assert_eq!(home_of(database, 7), None);
        assert_eq!(home_of(database, 1001), None, "no home at all");
        let database = fs::read(USERS).unwrap_or_default();
        if let Some(own) = home_of(&database, rustix::process::geteuid().as_raw()) {
            assert!(homes(&["/elsewhere".into()]).contains(&own));
        }
    }
}
