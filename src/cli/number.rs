//! Numbers as people type them, and as the engine's own flags take them: `32k`, `32K`, `1_000`, `3e9`.

use serde_json::{Number, Value};

/// Letters after a number, as vLLM's `--max-model-len` reads them: small ones are decimal, large ones binary.
const SUFFIXES: &[(char, f64)] = &[
    ('k', 1e3),
    ('m', 1e6),
    ('g', 1e9),
    ('t', 1e12),
    ('K', 1024.0),
    ('M', 1_048_576.0),
    ('G', 1_073_741_824.0),
    ('T', 1_099_511_627_776.0),
];

/// A number, or `None` when the text is none.
#[must_use]
pub fn read(text: &str) -> Option<f64> {
    let text = text.trim().replace('_', "");
    let (digits, factor) = match text.chars().last() {
        Some(last) if last.is_ascii_alphabetic() => {
            let (_, factor) = SUFFIXES.iter().find(|(letter, _)| *letter == last)?;
            (text.get(..text.len().saturating_sub(1))?, *factor)
        }
        _ => (text.as_str(), 1.0),
    };
    // `inf` and `nan` are words to f64, never a size
    if digits.chars().any(|c| !c.is_ascii_digit() && !"+-.eE".contains(c)) {
        return None;
    }
    digits.parse::<f64>().ok().map(|n| n * factor)
}

/// The JSON of a flag's value: a whole number where it is one, a number, or the text itself,
/// which the reader of the request then refuses with what it expected.
#[must_use]
pub fn json(text: &str) -> Value {
    if let Ok(whole) = text.trim().parse::<u64>() {
        return Value::from(whole);
    }
    if let Ok(negative) = text.trim().parse::<i64>() {
        return Value::from(negative);
    }
    match read(text) {
        Some(number) if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, not negative and below 2^53: checked in the guard"
            )]
            let whole = number as u64;
            Value::from(whole)
        }
        Some(number) => Number::from_f64(number).map_or_else(|| Value::from(text), Value::Number),
        None => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn numbers_are_read_as_the_engine_reads_them() {
        for (text, expected) in [
            ("32768", value!(32768)),
            ("32k", value!(32000)),
            ("32K", value!(32768)),
            ("25.6k", value!(25600)),
            ("1_000", value!(1000)),
            ("3e9", value!(3_000_000_000_u64)),
            ("0.92", value!(0.92)),
            ("-1", value!(-1)),
            ("18446744073709551615", value!(u64::MAX)),
            ("1e400", value!("1e400")),
            ("auto", value!("auto")),
            ("nan", value!("nan")),
            ("inf", value!("inf")),
            ("", value!("")),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }
}
