//! Code generated from `postern/*/v1/*.proto`. Regenerate with
//! `POSTERN_UPDATE_GENERATED=1 cargo test -p postern-proto --test generated`.

/// The encoded `google.protobuf.FileDescriptorSet` of every service, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.binpb");

macro_rules! package {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        pub mod $name {
            /// Version 1.
            #[expect(
                clippy::all,
                clippy::too_many_lines,
                clippy::missing_errors_doc,
                clippy::allow_attributes,
                clippy::allow_attributes_without_reason,
                reason = "generated code follows its generator's style"
            )]
            pub mod v1 {
                include!(concat!("generated/", $file));
            }
        }
    };
}

package!(
    /// `postern.exec`.
    exec, "postern.exec.v1.rs");
package!(
    /// `postern.filesystem`.
    filesystem, "postern.filesystem.v1.rs");
package!(
    /// `postern.identity`.
    identity, "postern.identity.v1.rs");
package!(
    /// `postern.ledger`.
    ledger, "postern.ledger.v1.rs");
package!(
    /// `postern.policy`.
    policy, "postern.policy.v1.rs");
