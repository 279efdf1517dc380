//! PEM text of a private key: strict base64 between two lines (RFC 7468).

use crate::secret::Secret;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const LINE: usize = 64;

/// Returns the PEM text of `der`.
pub(crate) fn encode(der: &[u8]) -> Secret<String> {
    // The capacity is complete, because growing would leave a copy of the secret in memory.
    let digits = der.len().div_ceil(3).saturating_mul(4);
    let mut text = String::with_capacity(digits.saturating_add(digits / LINE).saturating_add(64));
    text.push_str(BEGIN);
    for (i, group) in der.chunks(3).enumerate() {
        if i % (LINE / 4) == 0 {
            text.push('\n');
        }
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or(0);
            let symbol = ALPHABET.get(digit).filter(|_| place <= group.len());
            text.push(char::from(*symbol.unwrap_or(&b'=')));
        }
    }
    text.push('\n');
    text.push_str(END);
    text.push('\n');
    Secret::new(text)
}

/// Returns the bytes of the only block in `text`. Returns `None` for any other text, or when the base64 is not
/// canonical.
pub(crate) fn decode(text: &str) -> Option<Secret<Vec<u8>>> {
    let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let digits = || body.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let length = digits().count();
    let padding = digits().filter(|byte| *byte == b'=').count();
    if length % 4 != 0 || padding > 2 || digits().skip(length.checked_sub(padding)?).any(|byte| byte != b'=')
    {
        return None;
    }
    let mut der = Vec::with_capacity(length / 4 * 3);
    let (mut bits, mut held) = (0u32, 0u32);
    for digit in digits().take(length.checked_sub(padding)?) {
        let value = ALPHABET.iter().position(|symbol| *symbol == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            der.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
        bits &= (1 << held) - 1;
    }
    // Remaining bits must be zero, or the same bytes would have two texts.
    (bits == 0).then(|| Secret::new(der))
}
