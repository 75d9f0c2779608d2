//! The authority and what it signs (RFC 5280).

use postern_kit::tls::Role;
use postern_types::Sha256;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

use super::bundle::Bundle;
use crate::error::Error;

/// Life of an authority.
const LIFE: Duration = Duration::days(3650);
/// How far the clocks of two machines may be apart.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// An authority with its key.
pub(super) struct Authority {
    /// Its certificate, and those that others are trusted by.
    bundle: Bundle,
    /// Its name, which no other authority has.
    name: String,
    issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
}

/// A certificate with its key.
pub(super) struct Issued {
    pub(super) certificate_pem: String,
    pub(super) key_pem: String,
    pub(super) not_after: OffsetDateTime,
}

fn failed(problem: rcgen::Error) -> Error {
    Error::failed("a certificate cannot be made", problem)
}

fn broken(problem: &str) -> Error {
    Error::Failed(format!("the authority cannot be used: {problem}"))
}

/// The one of these certificates whose key this is.
pub(super) fn certificate_of(bundle: &Bundle, key_pem: &str) -> Result<Vec<u8>, Error> {
    let key = KeyPair::from_pem(key_pem).map_err(|_| broken("its key is broken"))?;
    let mut certificates = bundle.certificates().peekable();
    if certificates.peek().is_none() {
        return Err(broken("its certificate is broken"));
    }
    let is_its = |der: &Vec<u8>| {
        X509Certificate::from_der(der).is_ok_and(|(_, certificate)| {
            certificate.public_key().subject_public_key.as_ref() == key.public_key_raw()
        })
    };
    certificates
        .find(is_its)
        .ok_or_else(|| broken("the key is not that of a certificate in ca.pem"))
}

impl Authority {
    /// A new one.
    pub(super) fn new(now: OffsetDateTime) -> Result<Self, Error> {
        let key = KeyPair::generate().map_err(failed)?;
        let now = whole_seconds(now);
        let mut params = CertificateParams::default();
        // Two authorities of one system must not be taken for each other, made on one day or not.
        let digest = Sha256::of(key.public_key_raw()).to_string();
        let name = format!("Postern authority of {} {}", now.date(), &digest[..8]);
        params.distinguished_name = named(&name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = now - CLOCK_SKEW;
        params.not_after = now + LIFE;
        let certificate = params.self_signed(&key).map_err(failed)?;
        let bundle = Bundle::new(&certificate.pem());
        Ok(Self {
            name: Facts::of_bytes(certificate.der())?.name,
            bundle,
            not_after: params.not_after,
            issuer: Issuer::new(params, key),
        })
    }

    /// The one of a file whose key this is.
    pub(super) fn read(pem: &str, key_pem: &str) -> Result<Self, Error> {
        let bundle = Bundle::new(pem);
        let der = certificate_of(&bundle, key_pem)?;
        let facts = Facts::of_bytes(&der)?;
        if facts.not_after <= OffsetDateTime::now_utc() {
            return Err(broken(
                "it is not valid any more; make another with postern certs rotate-ca start",
            ));
        }
        let key = KeyPair::from_pem(key_pem).map_err(|_| broken("its key is broken"))?;
        let issuer = Issuer::from_ca_cert_der(&der.as_slice().into(), key).map_err(failed)?;
        Ok(Self {
            bundle,
            name: facts.name,
            issuer,
            not_after: facts.not_after,
        })
    }

    /// Its certificate, and those that were with it.
    pub(super) fn pem(&self) -> &str {
        self.bundle.pem()
    }

    /// Whether it signed a certificate.
    pub(super) fn has_signed(&self, facts: &Facts) -> bool {
        facts.issuer == self.name
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub(super) fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// A certificate for a role, under these names, for this long; not longer than the authority's own.
    pub(super) fn issue(
        &self,
        role: Role,
        names: &[String],
        life: Duration,
    ) -> Result<Issued, Error> {
        let key = KeyPair::generate().map_err(failed)?;
        let now = whole_seconds(OffsetDateTime::now_utc());
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = named(role.name());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        params.not_before = now - CLOCK_SKEW;
        params.not_after = (now + life).min(self.not_after);
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            not_after: params.not_after,
        })
    }
}

/// What stands in a certificate.
#[derive(Debug)]
pub(super) struct Facts {
    /// Whose it is, as a distinguished name.
    pub(super) name: String,
    /// Who signed it, likewise.
    pub(super) issuer: String,
    pub(super) names: Vec<String>,
    pub(super) not_after: OffsetDateTime,
}

impl Facts {
    /// Of the first certificate in a file.
    pub(super) fn of(pem: &str) -> Result<Self, Error> {
        let first = Bundle::new(pem).certificates().next();
        Self::of_bytes(&first.ok_or_else(no_certificate)?)
    }

    pub(super) fn of_bytes(der: &[u8]) -> Result<Self, Error> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| no_certificate())?;
        let alternatives = certificate.subject_alternative_name();
        let alternatives = alternatives.map_err(|_| no_certificate())?;
        let names = alternatives
            .iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(told)
            .collect();
        Ok(Self {
            name: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            names,
            not_after: certificate.validity().not_after.to_datetime(),
        })
    }
}

fn no_certificate() -> Error {
    Error::Failed("it is no certificate".to_owned())
}

/// A name or an address; others are of no use between services.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "names of all other kinds, whatever there will be, are none of ours"
)]
fn told(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string()),
            bytes => <[u8; 16]>::try_from(bytes)
                .ok()
                .map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// As a certificate tells times.
fn whole_seconds(time: OffsetDateTime) -> OffsetDateTime {
    time.replace_nanosecond(0).unwrap_or(time)
}
