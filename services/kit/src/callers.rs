//! Who may call what between processes: the arrows of the drawing in ARCHITECTURE.md, for connections with certificates.
//!
//! Commands of agents run beside the exec worker's certificate. Whoever gets hold of it must gain nothing from it: neither
//! files nor decisions, and of the ledger only what a worker says of itself.
//!
//! Invariant: what is not in this table is refused. A test holds it against the services that there are.

use crate::tls::{Peer, Role};

/// Health and reflection: for everybody who shows a certificate of the system's.
const OPEN: &[&str] = &[
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
];

/// Services, and the roles that may call all of their methods.
const WHOLE: &[(&str, &[Role])] = &[
    ("postern.identity.v1.EdgeIdentity", &[Role::Edge]),
    ("postern.identity.v1.HostIdentity", &[Role::Host]),
    ("postern.policy.v1.Policy", &[Role::Edge]),
    ("postern.filesystem.v1.Filesystem", &[Role::Edge]),
    ("postern.exec.v1.Exec", &[Role::Edge]),
    ("postern.ledger.v1.Ledger", &[Role::Edge]),
];

/// Methods that a role may call beyond that.
const SINGLE: &[(&str, &str, &[Role])] = &[
    // `postern receipts verify --ledger`.
    ("postern.ledger.v1.Ledger", "Head", &[Role::Operator]),
    ("postern.ledger.v1.Ledger", "Verify", &[Role::Operator]),
    ("postern.ledger.v1.Ledger", "Walk", &[Role::Operator]),
    // A worker tells of itself; who looks for workers is the edge.
    ("postern.ledger.v1.Workers", "Register", &[Role::Exec]),
    ("postern.ledger.v1.Workers", "Renew", &[Role::Exec]),
    ("postern.ledger.v1.Workers", "Leave", &[Role::Exec]),
    ("postern.ledger.v1.Workers", "Workers", &[Role::Edge]),
];

/// Whether a peer may call a method, by its path `/package.Service/Method`.
pub(crate) fn may_call(peer: &Peer, path: &str) -> bool {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
    else {
        return false;
    };
    let is_one_of = |roles: &[Role]| roles.iter().any(|role| peer.is(*role));
    OPEN.contains(&service)
        || WHOLE
            .iter()
            .any(|(name, roles)| *name == service && is_one_of(roles))
        || SINGLE
            .iter()
            .any(|(name, single, roles)| (*name, *single) == (service, method) && is_one_of(roles))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// Every method that there is, by its path.
    fn methods() -> Vec<String> {
        let described = FileDescriptorSet::decode(postern_proto::DESCRIPTORS).expect("descriptors");
        let mut paths = Vec::new();
        for file in &described.file {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                let methods = service.method.iter();
                paths.extend(methods.map(|method| format!("/{name}/{}", method.name())));
            }
        }
        paths
    }

    fn callers_of(path: &str) -> Vec<&'static str> {
        let may = |role: &Role| may_call(&Peer::from(*role), path);
        let roles = Role::ALL.iter().filter(|role| may(role));
        roles.map(|role| role.name()).collect()
    }

    fn callable_by(role: Role) -> Vec<String> {
        let mut paths = methods();
        paths.retain(|path| may_call(&Peer::from(role), path));
        paths
    }

    #[test]
    fn every_method_has_a_caller_and_those_who_tell_of_themselves_have_little() {
        let methods = methods();
        for path in &methods {
            assert!(!callers_of(path).is_empty(), "nobody may call {path}");
        }
        let has = |service: &str| {
            let service = format!("/{service}/");
            methods.iter().any(|path| path.starts_with(&service))
        };
        for service in WHOLE.iter().map(|(service, _)| *service) {
            assert!(has(service), "{service}");
        }
        for (service, method, _) in SINGLE {
            assert!(
                methods.contains(&format!("/{service}/{method}")),
                "{service} {method}"
            );
        }
        assert_eq!(
            callable_by(Role::Exec),
            ["Register", "Renew", "Leave"]
                .map(|method| format!("/postern.ledger.v1.Workers/{method}"))
        );
        assert_eq!(
            callable_by(Role::Operator),
            ["Head", "Verify", "Walk"].map(|method| format!("/postern.ledger.v1.Ledger/{method}"))
        );
        for role in [Role::Identity, Role::Policy, Role::Filesystem, Role::Ledger] {
            assert!(callable_by(role).is_empty(), "{role}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_nobodys() {
        for path in [
            "",
            "/",
            "//",
            "/postern.ledger.v1.Ledger",
            "/postern.ledger.v1.LedgerX/Verify",
            "/postern.ledger.v2.Ledger/Verify",
            "postern.ledger.v1.Ledger/Verify",
            "/Postern.Ledger.V1.Ledger/Verify",
            "//postern.ledger.v1.Ledger/Verify",
        ] {
            assert!(callers_of(path).is_empty(), "{path}");
        }
        assert_eq!(
            callers_of("/postern.ledger.v1.Ledger/Verify"),
            ["edge", "operator"]
        );
        assert_eq!(
            callers_of("/grpc.health.v1.Health/Check").len(),
            Role::ALL.len()
        );
        // A certificate that names no role: whose it is cannot be told, and health tells nothing.
        assert!(may_call(&Peer::default(), "/grpc.health.v1.Health/Check"));
        assert!(!may_call(
            &Peer::default(),
            "/postern.policy.v1.Policy/Decide"
        ));
    }
}
