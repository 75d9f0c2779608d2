//! What a certificate is for.

use std::{fmt, str::FromStr, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// What a process is in the system. Each certificate is for one of these.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// The agent host.
    Host,
    /// The owner's instance.
    Edge,
    /// Pins and sessions.
    Identity,
    /// Decisions.
    Policy,
    /// Files.
    Filesystem,
    /// Commands.
    Exec,
    /// Receipts.
    Ledger,
    /// Somebody at a terminal, who looks and changes nothing.
    Operator,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 8] = [
        Self::Host,
        Self::Edge,
        Self::Identity,
        Self::Policy,
        Self::Filesystem,
        Self::Exec,
        Self::Ledger,
        Self::Operator,
    ];

    /// The DNS name in its certificates, and its folder of `postern certs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Edge => "edge",
            Self::Identity => "identity",
            Self::Policy => "policy",
            Self::Filesystem => "filesystem",
            Self::Exec => "exec",
            Self::Ledger => "ledger",
            Self::Operator => "operator",
        }
    }

    pub(crate) fn server_name(self) -> Result<ServerName<'static>, Error> {
        ServerName::try_from(self.name()).map_err(|problem| Error::General(problem.to_string()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = ();

    /// In small letters or not, as names in certificates are compared (RFC 5280, section 7.2).
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|role| role.name().eq_ignore_ascii_case(text))
            .ok_or(())
    }
}

/// Whom a client wants to reach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expected {
    /// A service of this role.
    One(Role),
    /// Any of the system's.
    Any,
}

/// Who is on the other end of a connection: the roles of its certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peer {
    roles: Vec<Role>,
}

impl Peer {
    /// The owner of a certificate that has been verified. One that names no role has none.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let mut roles = Vec::new();
        for role in Role::ALL {
            if verify_server_name(&parsed, &role.server_name()?).is_ok() {
                roles.push(role);
            }
        }
        Ok(Self { roles })
    }

    /// Whether it is of that role.
    #[must_use]
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether it is of no role.
    #[must_use]
    pub const fn is_nobody(&self) -> bool {
        self.roles.is_empty()
    }
}

impl From<Role> for Peer {
    fn from(role: Role) -> Self {
        Self { roles: vec![role] }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nobody() {
            return formatter.write_str("no role");
        }
        let names: Vec<&str> = self.roles.iter().map(|role| role.name()).collect();
        formatter.write_str(&names.join(", "))
    }
}

/// Trusts a server of any role: for probes, which tell nothing and believe little.
#[derive(Debug)]
pub(super) struct AnyRole(pub(super) Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyRole {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut refused = Error::InvalidCertificate(CertificateError::NotValidForName);
        for role in Role::ALL {
            let name = role.server_name()?;
            let verified =
                self.0
                    .verify_server_cert(end_entity, intermediates, &name, ocsp_response, now);
            match verified {
                Ok(verified) => return Ok(verified),
                Err(problem) => refused = problem,
            }
        }
        Err(refused)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
