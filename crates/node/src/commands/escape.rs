//! Bytes as text, escaped for people and exact for programs.

use quorate_types::digest::hex;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Returns text without control characters for terminals, different for different bytes: `\\`, `\n`, `\r`, `\t`, `\xHH` for each byte
/// that is no text, and `\u{H}` for an invisible character.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                hidden if is_hidden(hidden) => {
                    let _ = write!(text, "\\u{{{:x}}}", u32::from(hidden));
                }
                seen => text.push(seen),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether a character controls a terminal, or the order in which it shows others.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns the text for programs; bytes that are no text are hexadecimal digits in an object.
pub(super) fn text(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!({ "hex": hex(bytes) }), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_safe_and_differ_for_different_bytes() {
        let cases: [(&[u8], &str); 9] = [
            (b"plain text", "plain text"),
            ("Grüße".as_bytes(), "Grüße"),
            (b"\x1b[2J", "\\u{1b}[2J"),
            (b"a\tb\nc\r", "a\\tb\\nc\\r"),
            (b"\\x00", "\\\\x00"),
            (b"\0", "\\u{0}"),
            (b"\xff\x00", "\\xff\\u{0}"),
            ("\u{9b}1m".as_bytes(), "\\u{9b}1m"),
            ("\u{202e}".as_bytes(), "\\u{202e}"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(escaped(bytes), expected);
        }
        let all: std::collections::BTreeSet<String> =
            (0..=u16::MAX).map(|pair| escaped(&pair.to_be_bytes())).collect();
        assert_eq!(all.len(), 1 << 16, "no two pairs of bytes have one text");
        assert!(all.iter().all(|text| !text.chars().any(char::is_control)));
    }
}
