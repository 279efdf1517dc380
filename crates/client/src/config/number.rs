//! Sizes in bytes as text: `"64MiB"`.

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a number of bytes such as `64MiB` or `1 GiB`. Returns `None` if the text is no whole size, or has more than 64 bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, factor)| text.strip_suffix(name).map(|digits| (digits.trim_end(), *factor)))?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse::<u64>().ok()?.checked_mul(unit)).flatten()
}

/// Returns the shortest exact text for a number of bytes.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, factor)| bytes != 0 && bytes.is_multiple_of(*factor));
    let (name, factor) = unit.copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        for (text, bytes) in [
            ("0B", 0),
            ("1B", 1),
            ("1023B", 1_023),
            ("1KiB", 1_024),
            ("1025B", 1_025),
            ("64MiB", 64 << 20),
            ("3GiB", 3 << 30),
            ("16TiB", 16 << 40),
        ] {
            assert_eq!(parse_size(text), Some(bytes));
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!(parse_size("64 MiB"), Some(64 << 20));
    }

    #[test]
    fn text_that_is_no_size_is_refused() {
        for text in [
            "",
            "64",
            "MiB",
            "-1B",
            "+1B",
            "1.5GiB",
            "64mib",
            "64MB",
            "99999999999TiB",
            "18446744073709551616B",
        ] {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
    }
}
