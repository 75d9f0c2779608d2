//! Long arguments without needless escapes.
//!
//! Some clients write every character beyond ASCII as `\uXXXX`, up to three times its size. A text that the contract allows
//! would so be too long for the channel.

use serde_json::value::RawValue;

/// Arguments up to this many bytes fit into a frame however they are written.
const LONG_BYTES: usize = 1024 * 1024;

/// The same arguments; when they are long, characters stand for themselves wherever JSON lets them. Numbers, names, order
/// and white space stay as they came.
pub(super) fn when_long(args: Box<RawValue>) -> Box<RawValue> {
    if args.get().len() <= LONG_BYTES || !args.get().contains("\\u") {
        return args;
    }
    RawValue::from_string(unescaped(args.get())).unwrap_or(args)
}

fn unescaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    // In JSON a backslash stands inside strings alone, and begins an escape.
    while let Some(start) = rest.find('\\') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = match escaped(rest) {
            Some((character, length)) => {
                out.push(character);
                length
            }
            None => {
                let length = rest.len().min(2);
                out.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

/// The character that `text` begins with in escaped form and may stand for itself, and the length of that form.
fn escaped(text: &str) -> Option<(char, usize)> {
    let first = code_unit(text)?;
    if let Some(character) = char::from_u32(first) {
        let plain = !character.is_control() && !matches!(character, '"' | '\\');
        return plain.then_some((character, 6));
    }
    let second = code_unit(text.get(6..)?)?;
    let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    let character = char::decode_utf16(pair).next()?.ok()?;
    Some((character, 12))
}

fn code_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn characters_stand_for_themselves_where_json_lets_them() {
        assert_eq!(
            unescaped(r#"{"\u4e2d":"\u00E9\ud83d\ude00","n":1.0,"big":12345678901234567890}"#),
            r#"{"中":"é😀","n":1.0,"big":12345678901234567890}"#
        );
    }

    #[test]
    fn what_needs_its_escape_keeps_it() {
        for text in [
            r#""\u0000\u001f\u0022\u005c\n\\u00e9\"""#,
            r#""\ud83d""#,
            r#""\ud83dx""#,
            r#""\ude00\ud83d""#,
            r#""\\""#,
        ] {
            assert_eq!(unescaped(text), text);
        }
    }

    #[test]
    fn long_arguments_shrink_and_short_ones_are_left_alone() {
        let args = |count: usize| {
            let text = r"\u4e2d".repeat(count);
            RawValue::from_string(format!(r#"{{"content":"{text}"}}"#)).expect("JSON")
        };
        assert_eq!(when_long(args(10)).get(), args(10).get());
        assert_eq!(when_long(args(400_000)).get().len(), 3 * 400_000 + 14);
    }
}
