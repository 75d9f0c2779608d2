//! What the files of a folder come to.

use std::{io, path::Path, sync::Arc, time::Duration};

use rustls::{
    CertificateError, ClientConfig, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};
use tokio::{fs::File, io::AsyncReadExt as _};

use super::{
    CA_FILE, CERTIFICATE_FILE, KEY_FILE,
    role::{AnyRole, Peer, Role},
};

/// Largest file that is read, in bytes: hundreds of authorities.
const FILE_LIMIT: u64 = 1024 * 1024;
/// Time in which whoever replaces files comes from one to the next.
const SETTLING: Duration = Duration::from_millis(250);
/// Looks at files that change all the time, before the last.
const MAX_LOOKS: usize = 8;
/// What is spoken inside.
const PROTOCOL: &[u8] = b"h2";

/// Why certificates cannot be used. Names the files, never what is in them.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error(
        "cannot read {file} of the certificates ({problem}); make them with: postern certs init"
    )]
    Unreadable {
        /// Its name in the folder.
        file: &'static str,
        /// Why.
        problem: io::Error,
    },
    /// A file is not what it should be.
    #[error("{file} of the certificates is broken: {problem}")]
    Broken {
        /// Its name in the folder.
        file: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The certificate was not signed by an authority of `ca.pem`, is expired, or is not for servers and clients.
    #[error("cert.pem cannot be used with ca.pem: {0}; renew it with: postern certs renew")]
    Untrusted(String),
    /// The certificate is another role's.
    #[error(
        "cert.pem is for '{found}' and not for '{wanted}'; take the folder '{wanted}' that postern certs init made, or a certificate with the DNS name '{wanted}'"
    )]
    WrongRole {
        /// What it is for.
        found: Peer,
        /// What it must be for.
        wanted: Role,
    },
}

/// The three files.
#[derive(Eq, PartialEq)]
pub(super) struct Files {
    ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    pub(super) async fn read(folder: &Path) -> Result<Self, TlsError> {
        Ok(Self {
            ca: read(folder, CA_FILE).await?,
            certificate: read(folder, CERTIFICATE_FILE).await?,
            key: read(folder, KEY_FILE).await?,
        })
    }
}

async fn read(folder: &Path, file: &'static str) -> Result<Vec<u8>, TlsError> {
    let unreadable = |problem| TlsError::Unreadable { file, problem };
    let opened = File::open(folder.join(file)).await.map_err(unreadable)?;
    let mut bytes = Vec::new();
    let read = opened.take(FILE_LIMIT + 1).read_to_end(&mut bytes).await;
    read.map_err(unreadable)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(broken(file, "it is too large"));
    }
    Ok(bytes)
}

fn broken(file: &'static str, problem: impl ToString) -> TlsError {
    TlsError::Broken {
        file,
        problem: problem.to_string(),
    }
}

/// How much of a certificate's life is left, as far as somebody looks ahead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lifetime {
    /// It lasts longer.
    Good,
    /// It ends within that time.
    EndsSoon,
    /// It is over.
    Ended,
}

/// What the certificate of a folder is good for.
#[derive(Debug)]
pub struct Inspected {
    /// Whose it is.
    pub peer: Peer,
    /// How long it lasts; those that signed it count as well.
    pub lifetime: Lifetime,
}

/// Looks once at the files of a folder, as [`super::Tls::open`] does, and `ahead` to the certificate's end. One that has ended
/// is told so, and is no error.
///
/// # Errors
/// When the files are missing, broken, do not fit each other or are another role's.
pub async fn inspect(
    folder: &Path,
    role: Option<Role>,
    ahead: Duration,
) -> Result<Inspected, TlsError> {
    let look = |files: &Files| {
        let material = Material::assemble(files)?;
        let lifetime = material.lifetime(UnixTime::now(), ahead);
        let peer = material.demand_role(role)?;
        if lifetime != Lifetime::Ended {
            material.demand(role)?;
        }
        Ok(Inspected { peer, lifetime })
    };
    settled(folder, look).await.map(|(_, inspected)| inspected)
}

/// What the files of a folder come to. They may be being replaced, one after the other: those that do not fit are no failure
/// before they have stayed as they are.
pub(super) async fn settled<T>(
    folder: &Path,
    make: impl Fn(&Files) -> Result<T, TlsError>,
) -> Result<(Files, T), TlsError> {
    let mut seen = None;
    for _ in 0..MAX_LOOKS {
        let files = Files::read(folder).await?;
        match make(&files) {
            Ok(made) => return Ok((files, made)),
            Err(problem) if seen.as_ref() == Some(&files) => return Err(problem),
            Err(_) => {
                seen = Some(files);
                tokio::time::sleep(SETTLING).await;
            }
        }
    }
    let files = Files::read(folder).await?;
    make(&files).map(|made| (files, made))
}

/// The files, checked against each other and made into what connections begin with.
pub(super) struct Material {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
    /// For servers of any role.
    pub(super) client_of_any: Arc<ClientConfig>,
    own: Arc<CertifiedKey>,
    verifier: AnyRole,
}

impl Material {
    pub(super) fn new(files: &Files, role: Option<Role>) -> Result<Self, TlsError> {
        let material = Self::assemble(files)?;
        material.demand(role)?;
        Ok(material)
    }

    fn assemble(files: &Files) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(roots(&files.ca)?);
        let own = Arc::new(own(files, &provider)?);
        let of_servers = verifier(&roots, &provider)?;
        Ok(Self {
            server: Arc::new(server(&roots, &own, &provider)?),
            client: Arc::new(client(&own, &provider, of_servers.clone())?),
            client_of_any: Arc::new(client(
                &own,
                &provider,
                Arc::new(AnyRole(of_servers.clone())),
            )?),
            verifier: AnyRole(of_servers),
            own,
        })
    }

    /// Refuses a certificate that is another role's.
    fn demand_role(&self, role: Option<Role>) -> Result<Peer, TlsError> {
        let certificate = self.certificate()?;
        let found = Peer::of(certificate).map_err(|problem| broken(CERTIFICATE_FILE, problem))?;
        match role {
            Some(wanted) if !found.is(wanted) => Err(TlsError::WrongRole { found, wanted }),
            Some(_) | None => Ok(found),
        }
    }

    /// Refuses a certificate that nobody would trust, or that is not this process's.
    fn demand(&self, role: Option<Role>) -> Result<(), TlsError> {
        // One without a role may ask for health, and who trusts it is not for it to say.
        if self.demand_role(role)?.is_nobody() {
            return Ok(());
        }
        self.verified_at(UnixTime::now())
            .map_err(|problem| TlsError::Untrusted(told(&problem)))
    }

    fn certificate(&self) -> Result<&CertificateDer<'_>, TlsError> {
        let found = self.own.end_entity_cert();
        found.map_err(|problem| broken(CERTIFICATE_FILE, problem))
    }

    /// How much of the certificate's life is left. Those above it count as well: without them it is worth nothing.
    pub(super) fn lifetime(&self, now: UnixTime, ahead: Duration) -> Lifetime {
        let later = Duration::from_secs(now.as_secs()).saturating_add(ahead);
        let later = UnixTime::since_unix_epoch(later);
        if is_over(self.verified_at(now)) {
            Lifetime::Ended
        } else if is_over(self.verified_at(later)) {
            Lifetime::EndsSoon
        } else {
            Lifetime::Good
        }
    }

    fn verified_at(&self, now: UnixTime) -> Result<(), rustls::Error> {
        let (certificate, intermediates) = match self.own.cert.split_first() {
            Some(split) => split,
            None => return Err(rustls::Error::NoCertificatesPresented),
        };
        let name = Role::Operator.server_name()?;
        self.verifier
            .verify_server_cert(certificate, intermediates, &name, &[], now)
            .map(drop)
    }
}

/// Why a certificate of ours is not trusted, in words of its owner.
fn told(problem: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(fault) = problem else {
        return problem.to_string();
    };
    if matches!(
        fault,
        CertificateError::Expired | CertificateError::ExpiredContext { .. }
    ) {
        return "it has expired".to_owned();
    }
    if matches!(
        fault,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
    ) {
        return "it is not valid yet, or this machine's clock is wrong".to_owned();
    }
    if matches!(
        fault,
        CertificateError::UnknownIssuer | CertificateError::BadSignature
    ) {
        return "no authority there signed it".to_owned();
    }
    problem.to_string()
}

fn is_over(verified: Result<(), rustls::Error>) -> bool {
    matches!(
        verified,
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        ))
    )
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|problem| broken(CA_FILE, problem))?;
        let added = roots.add(certificate);
        added.map_err(|problem| broken(CA_FILE, problem))?;
    }
    if roots.is_empty() {
        return Err(broken(CA_FILE, "there is no certificate in it"));
    }
    Ok(roots)
}

fn own(files: &Files, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&files.certificate).collect();
    let chain = chain.map_err(|problem| broken(CERTIFICATE_FILE, problem))?;
    if chain.is_empty() {
        return Err(broken(CERTIFICATE_FILE, "there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(&files.key);
    let key = key.map_err(|problem| broken(KEY_FILE, problem))?;
    // It compares the two, too.
    CertifiedKey::from_der(chain, key, provider).map_err(|problem| {
        if matches!(problem, rustls::Error::InconsistentKeys(_)) {
            broken(KEY_FILE, "it is not the key of cert.pem")
        } else {
            broken(KEY_FILE, problem)
        }
    })
}

fn verifier(
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
        .build()
        .map_err(|problem| broken(CA_FILE, problem))
}

/// Sessions are not resumed: each connection verifies the certificates anew, with the files of its time.
fn server(
    roots: &Arc<RootCertStore>,
    own: &Arc<CertifiedKey>,
    provider: &Arc<CryptoProvider>,
) -> Result<ServerConfig, TlsError> {
    let of_clients =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
            .build()
            .map_err(|problem| broken(CA_FILE, problem))?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|problem| broken(CERTIFICATE_FILE, problem))?
        .with_client_cert_verifier(of_clients)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::clone(own))));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client(
    own: &Arc<CertifiedKey>,
    provider: &Arc<CryptoProvider>,
    of_servers: Arc<dyn rustls::client::danger::ServerCertVerifier>,
) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|problem| broken(CERTIFICATE_FILE, problem))?
        .dangerous()
        .with_custom_certificate_verifier(of_servers)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::clone(own))));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}
