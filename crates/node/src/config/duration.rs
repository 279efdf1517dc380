//! Durations on the command line: every option of every command reads the same forms.

use std::time::Duration;

/// Seconds in each unit.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Reads a duration; a number alone is in seconds: `3`, `0.5`, `500ms`, `3s`, `2m`.
///
/// # Errors
/// Fails when the text is no such duration.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse(text, "s")
        .ok_or_else(|| "expected a duration like 3, 500ms, 3s or 2m; a number alone is in seconds".to_owned())
}

/// Reads a duration; a number alone is in minutes: `3`, `0.5`, `90s`, `2m`.
///
/// # Errors
/// Fails when the text is no such duration.
pub fn parse_minutes(text: &str) -> Result<Duration, String> {
    parse(text, "m")
        .ok_or_else(|| "expected a duration like 3, 90s, 3m or 2h; a number alone is in minutes".to_owned())
}

fn parse(text: &str, alone: &str) -> Option<Duration> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let unit = if unit.is_empty() { alone } else { unit.trim_start() };
    match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, seconds)) => Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok(),
        // Several units together: 1m 30s.
        None => humantime::parse_duration(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_a_unit_or_that_of_its_option() {
        for (text, seconds_ms, minutes_ms) in [
            ("3", 3_000, 180_000),
            ("0.5", 500, 30_000),
            (".25", 250, 15_000),
            ("0", 0, 0),
            ("500ms", 500, 500),
            ("3s", 3_000, 3_000),
            ("3 s", 3_000, 3_000),
            ("1.5s", 1_500, 1_500),
            ("2m", 120_000, 120_000),
            ("1h", 3_600_000, 3_600_000),
            ("1m 30s", 90_000, 90_000),
            ("1m30s", 90_000, 90_000),
            ("5min", 300_000, 300_000),
        ] {
            let millis = |read: Result<Duration, String>| read.unwrap().as_millis();
            assert_eq!(millis(parse_seconds(text)), seconds_ms, "{text}");
            assert_eq!(millis(parse_minutes(text)), minutes_ms, "{text}");
        }
        assert_eq!(parse_seconds("0.000000345"), Ok(Duration::from_nanos(345)));
    }

    #[test]
    fn text_that_is_no_duration_is_refused() {
        for text in [
            "",
            "-1",
            "+1",
            "soon",
            "3 parsecs",
            "NaN",
            "inf",
            "1e30",
            ".",
            "s",
            "1..2",
            "99999999999999999999h",
        ] {
            assert!(parse_seconds(text).is_err() && parse_minutes(text).is_err(), "{text:?}");
        }
    }
}
