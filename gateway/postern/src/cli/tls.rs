//! Certificates on the command line.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Subcommand, builder::RangedU64ValueParser};
use postern_kit::tls::Role;

/// The certificates of this process.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TlsArg {
    /// Folder with ca.pem, cert.pem and key.pem: mutual TLS with everybody on TCP. Needed where others than this machine reach
    /// it; `postern certs init` makes one for each service
    #[arg(long, value_name = "DIR", env = "POSTERN_TLS_DIR")]
    pub(crate) tls_dir: Option<PathBuf>,
}

/// `postern certs`
#[derive(Debug, Subcommand)]
pub(crate) enum Certs {
    /// Make a private authority, and a folder with a certificate for each service
    Init(CertsInit),
    /// Issue the certificates anew, for services that go on running: they take them within 10 seconds
    Renew(CertsRenew),
    /// What each certificate is for, who signed it and when it ends
    Show(CertsDir),
    /// Let another authority take over while everything runs, in three steps
    #[command(subcommand, name = "rotate-ca", after_help = ROTATION)]
    RotateCa(RotateCa),
}

const ROTATION: &str = "\
Examples:
  postern certs rotate-ca start --dir certs     a new authority, which everybody trusts beside the old one
  postern certs rotate-ca switch --dir certs    certificates by the new one, while both are trusted
  postern certs rotate-ca finish --dir certs    nobody trusts the old one any more

After each step copy the folders to where their services run, and go on when every service has taken them: 10 seconds
later, or when its log says 'new certificates are in use' (--log info). A step that was interrupted can be done again;
`postern certs show` tells how far it is. Authorities of your own beside them in ca.pem stay.";

/// The steps in which one authority follows another.
#[derive(Debug, Subcommand)]
pub(crate) enum RotateCa {
    /// Make a new authority, and add it to what everybody trusts
    Start(CertsDir),
    /// Sign with the new authority from now on, and issue every certificate anew
    Switch(RotateSwitch),
    /// Take the old authority from what everybody trusts
    Finish(CertsDir),
}

/// `postern certs rotate-ca switch`
#[derive(Args, Debug)]
pub(crate) struct RotateSwitch {
    /// Where
    #[command(flatten)]
    pub(crate) place: CertsDir,
    /// How
    #[command(flatten)]
    pub(crate) terms: CertsTerms,
}

/// Where certificates lie.
#[derive(Args, Debug)]
pub(crate) struct CertsDir {
    /// Folder with the authority, its key and a folder for each service
    #[arg(long, value_name = "DIR", env = "POSTERN_CERTS_DIR")]
    pub(crate) dir: PathBuf,
}

/// How certificates are made.
#[derive(Args, Debug)]
pub(crate) struct CertsTerms {
    /// Names and IP addresses beside the service's own name and this machine, for other programs that go by them
    #[arg(
        long,
        alias = "host",
        value_name = "NAME",
        value_delimiter = ',',
        env = "POSTERN_CERTS_HOSTS",
        value_parser = host
    )]
    pub(crate) hosts: Vec<String>,
    /// Days until they end
    #[arg(long, value_name = "DAYS", env = "POSTERN_CERTS_DAYS", default_value_t = 90, value_parser = RangedU64ValueParser::<u64>::new().range(1..=3650))]
    pub(crate) days: u64,
}

/// `postern certs init`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern certs init --dir certs
  postern serve ledger --listen 0.0.0.0:7303 --tls-dir certs/ledger --database sqlite:///var/lib/postern/ledger.db

Keep ca-key.pem where no service runs: whoever has it can be any of them.")]
pub(crate) struct CertsInit {
    /// Where
    #[command(flatten)]
    pub(crate) place: CertsDir,
    /// How
    #[command(flatten)]
    pub(crate) terms: CertsTerms,
}

/// `postern certs renew`
#[derive(Args, Debug)]
pub(crate) struct CertsRenew {
    /// Where
    #[command(flatten)]
    pub(crate) place: CertsDir,
    /// How
    #[command(flatten)]
    pub(crate) terms: CertsTerms,
    /// Only those that end within so many days
    #[arg(long, value_name = "DAYS", env = "POSTERN_CERTS_WITHIN")]
    pub(crate) within: Option<u64>,
}

/// A service by its name.
pub(super) fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|()| {
        let names = Role::ALL.map(Role::name).join(", ");
        format!("write one of {names}")
    })
}

/// A name or an address for a certificate. The name of a role would make it that role's.
fn host(text: &str) -> Result<String, String> {
    if text.parse::<Role>().is_ok() {
        return Err(format!(
            "'{text}' is the name of a service, which only its own certificate may have"
        ));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = text.len() <= 253 && text.split('.').all(is_label);
    if is_name || text.parse::<IpAddr>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err("write a DNS name such as ledger.example, or an IP address".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_certificate_gets_the_name_of_another_service() {
        for good in ["ledger.example", "10.0.0.7", "::1", "a-b"] {
            assert!(host(good).is_ok(), "{good}");
        }
        for bad in [
            "ledger",
            "edge",
            "Edge",
            "LEDGER",
            "*",
            "*.example",
            "",
            "a..b",
            "-a",
            "a b",
            "a/b",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }
}
