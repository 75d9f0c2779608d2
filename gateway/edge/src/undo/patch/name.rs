//! Names of files as git writes them.

/// A name behind its side's prefix, in quotation marks when it has bytes that need an escape.
pub(super) fn quoted(side: &str, path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            0x07 => escaped.push_str("\\a"),
            0x08 => escaped.push_str("\\b"),
            b'\t' => escaped.push_str("\\t"),
            b'\n' => escaped.push_str("\\n"),
            0x0b => escaped.push_str("\\v"),
            0x0c => escaped.push_str("\\f"),
            b'\r' => escaped.push_str("\\r"),
            b'"' | b'\\' => {
                escaped.push('\\');
                escaped.push(char::from(byte));
            }
            b' '..=b'~' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("\\{other:03o}")),
        }
    }
    if escaped == path {
        format!("{side}{path}")
    } else {
        format!("\"{side}{escaped}\"")
    }
}

/// A name in the `---` or `+++` line: behind one with spaces a tab says where it ends.
pub(super) fn in_header(quoted: String, path: &str) -> String {
    if path.contains(' ') && !quoted.starts_with('"') {
        format!("{quoted}\t")
    } else {
        quoted
    }
}
