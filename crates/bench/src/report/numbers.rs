//! Conversions of numbers, and their text.

/// The greatest number that a report shows. A greater one is a mistake of its source and counts as not recorded.
const LARGEST: f64 = 1e15;

/// Returns a recorded number; `None` for one that is negative, absurdly large or not finite.
pub(super) fn sound(value: f64) -> Option<f64> {
    (value.is_finite() && (0.0..=LARGEST).contains(&value)).then_some(value)
}

/// Returns a count as a floating-point number. A count above 2^53 is rounded.
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Returns a number of things as a floating-point number.
pub(super) fn float_of(count: usize) -> f64 {
    float(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Returns a number as a place on a picture. A number beyond the type's range becomes its end, and no number becomes 0.
#[allow(clippy::as_conversions, clippy::cast_possible_truncation, reason = "the conversion saturates")]
pub(super) fn pixel(value: f64) -> i32 {
    value.round() as i32
}

/// Returns a number as an index. A negative number becomes 0.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
pub(super) fn index(value: f64) -> usize {
    value.floor() as usize
}

/// Returns the text of a number for tables: four significant digits at least, and separators of thousands.
pub(super) fn exact(value: f64) -> String {
    if !value.is_finite() {
        return "no number".to_owned();
    }
    let is_whole = value.fract() == 0.0;
    let places = match value.abs() {
        _ if is_whole => 0,
        magnitude if magnitude >= 1_000.0 => 0,
        magnitude if magnitude >= 100.0 => 1,
        magnitude if magnitude >= 10.0 => 2,
        magnitude if magnitude >= 1.0 => 3,
        magnitude if magnitude >= 0.01 => 4,
        _ => 6,
    };
    let text = format!("{value:.places$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", with_separators(whole))
}

fn with_separators(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && digits.len().saturating_sub(i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the text of a number for axes: `0.05`, `750`, `12.5k`, `3M`.
pub(super) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "no number".to_owned();
    }
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let rounded = value.abs() * (1.0 + 1e-9);
    let (unit, suffix) = units.into_iter().find(|(unit, _)| rounded >= *unit).unwrap_or((1.0, ""));
    let scaled = value / unit;
    let places = match scaled.abs() {
        magnitude if magnitude >= 0.1 || magnitude == 0.0 => 3,
        magnitude if magnitude >= 0.001 => 5,
        _ => 9,
    };
    format!("{}{suffix}", without_zeros(&format!("{scaled:.places$}")))
}

/// Removes the zeros at the end of a fraction.
pub(super) fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_units() {
        for (value, table, axis) in [
            (0.0, "0", "0"),
            (0.000_25, "0.000250", "0.00025"),
            (0.05, "0.0500", "0.05"),
            (1.5, "1.500", "1.5"),
            (12.345, "12.35", "12.345"),
            (999.94, "999.9", "999.94"),
            (1_000.0, "1,000", "1k"),
            (12_500.4, "12,500", "12.5k"),
            (123_456.0, "123,456", "123.456k"),
            (1_234_567.0, "1,234,567", "1.235M"),
            (-1_234.0, "-1,234", "-1.234k"),
            (1e15, "1,000,000,000,000,000", "1000T"),
        ] {
            assert_eq!((exact(value).as_str(), short(value).as_str()), (table, axis), "{value}");
        }
    }

    #[test]
    fn absurd_numbers_count_as_not_recorded() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e16, f64::MAX] {
            assert_eq!(sound(value), None, "{value}");
            let _ = (exact(value), short(value), pixel(value), index(value));
        }
        assert_eq!((sound(0.0), sound(1e15)), (Some(0.0), Some(1e15)));
    }
}
