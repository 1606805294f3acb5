//! The text of a config.json. Python writes `Infinity` and `NaN`, which JSON does not know: they are read as null.

use serde_json::Value;

use super::ConfigError;
use crate::ingest::{FieldError, Pointer};

/// Longest text that is read, bytes.
pub const MAX_TEXT: usize = 4 << 20;

/// Read the text of a config.json.
///
/// # Errors
/// `too_large` and `not_json` (depth is bounded by the parser at 128).
pub fn parse(text: &str) -> Result<Value, ConfigError> {
    let fault =
        |code, detail: String| ConfigError { faults: vec![FieldError::at(&Pointer::root(), code, detail)] };
    if text.len() > MAX_TEXT {
        return Err(fault(
            "too_large",
            format!("a config.json of at most {MAX_TEXT} bytes is read, got {}", text.len()),
        ));
    }
    serde_json::from_str(text)
        .or_else(|error| match without_python_floats(text) {
            Some(plain) => serde_json::from_str(&plain),
            None => Err(error),
        })
        .map_err(|error| fault("not_json", format!("this is not JSON: {error}")))
}

/// The text with bare `NaN`, `Infinity` and `-Infinity` as null; `None` when there are none.
fn without_python_floats(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let word =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            out.push_str("null");
            found = true;
            rest = rest.get(word.len()..).unwrap_or("");
            continue;
        }
        let mut taken = c.len_utf8();
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => taken += rest.chars().nth(1).map_or(0, char::len_utf8),
            _ => {}
        }
        out.push_str(rest.get(..taken).unwrap_or(""));
        rest = rest.get(taken..).unwrap_or("");
    }
    found.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_of_python_become_null() {
        for (text, value) in [
            (
                r#"{"a": [0.0, Infinity], "b": "NaN \" Infinity"}"#,
                json!({"a": [0.0, null], "b": "NaN \" Infinity"}),
            ),
            (r#"{"a": -Infinity, "é": NaN}"#, json!({"a": null, "é": null})),
        ] {
            assert_eq!(parse(text).ok(), Some(value));
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "NaN NaN", "{\"a\":1,}", &"[".repeat(100_000)] {
            assert!(parse(text).is_err(), "{}", text.chars().take(20).collect::<String>());
        }
    }
}
