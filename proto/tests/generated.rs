//! The checked-in generated code is what the `.proto` files say.
//!
//! After a change of a `.proto` file run `POSTERN_UPDATE_GENERATED=1 cargo test -p postern-proto --test generated`.

#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use pretty_assertions::assert_eq;
use prost::Message as _;

const FILES: [&str; 6] = [
    "exec/v1/exec",
    "filesystem/v1/filesystem",
    "identity/v1/identity",
    "ledger/v1/ledger",
    "ledger/v1/workers",
    "policy/v1/policy",
];

fn generate(out: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<_> = FILES
        .iter()
        .map(|name| root.join(format!("postern/{name}.proto")))
        .collect();
    let descriptors = protox::compile(&files, [root]).expect("the .proto files compile");
    fs::write(out.join("descriptors.binpb"), descriptors.encode_to_vec())
        .expect("write descriptors");
    tonic_prost_build::configure()
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(out)
        .compile_fds(descriptors)
        .expect("code is generated");
}

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(directory)
        .expect("directory")
        .map(|entry| entry.expect("entry").path())
        .map(|path| {
            let name = path
                .file_name()
                .expect("name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read(&path).expect("file"))
        })
        .collect()
}

#[test]
fn generated_code_is_current() {
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    if std::env::var_os("POSTERN_UPDATE_GENERATED").is_some() {
        generate(&checked_in);
    }
    let fresh = tempfile::tempdir().expect("temporary directory");
    generate(fresh.path());
    let (checked_in, fresh) = (contents(&checked_in), contents(fresh.path()));
    assert_eq!(
        checked_in.keys().collect::<Vec<_>>(),
        fresh.keys().collect::<Vec<_>>()
    );
    for (name, content) in &fresh {
        assert!(
            checked_in[name] == *content,
            "{name} differs from what the .proto files say"
        );
    }
}

#[test]
fn every_message_field_method_and_value_is_commented() {
    for name in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("postern/{name}.proto"));
        let text = fs::read_to_string(&path).expect("proto file");
        let mut previous_is_comment = false;
        for (index, line) in text.lines().map(str::trim).enumerate() {
            let starts_item = ["message ", "service ", "enum ", "rpc ", "oneof "]
                .iter()
                .any(|word| line.starts_with(word))
                || (line.contains(" = ") && line.ends_with(';') && !line.starts_with("syntax"));
            assert!(
                !starts_item || previous_is_comment,
                "{}:{}: '{line}' has no comment above it",
                path.display(),
                index + 1
            );
            previous_is_comment = line.starts_with("//");
        }
    }
}
