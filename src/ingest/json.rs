//! JSON text to a value, bounded and with duplicate keys found.
//!
//! `serde_json` alone keeps the last of two equal keys without a word. Somebody who buys GPUs on an
//! answer must hear about it, so the reader here records each duplicate with its place.
//!
//! Published config.json files hold `Infinity` (Python writes it for `time_step_limit` and the like), which
//! is no JSON. It is read as null inside a `config`, and refused with its position anywhere else.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use super::{FieldError, Pointer};

/// Arrays and objects inside one another. Real configurations need 6.
pub const MAX_DEPTH: usize = 64;
/// Values in one document. The largest published config.json has about 9,000.
pub const MAX_VALUES: usize = 250_000;

/// A document that was read, with the faults that do not stop reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub value: Value,
    /// One `duplicate_key` for each key that an object has more than once.
    pub duplicates: Vec<FieldError>,
}

/// A text that is not JSON, or too much of it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("not JSON: {message} at line {line}, column {column}")]
    Syntax { line: usize, column: usize, message: String },
    #[error("the JSON is nested deeper than {MAX_DEPTH} levels at line {line}, column {column}")]
    TooDeep { line: usize, column: usize },
    #[error("the JSON holds more than {MAX_VALUES} values")]
    TooMany,
}

/// Read a JSON text.
///
/// # Errors
/// [`Malformed`] with the position of the first fault.
pub fn read(text: &[u8]) -> Result<Document, Malformed> {
    read_with(text, false)
}

/// Read a text that is itself a config.json.
///
/// # Errors
/// [`Malformed`] with the position of the first fault.
pub fn read_config(text: &[u8]) -> Result<Document, Malformed> {
    read_with(text, true)
}

fn read_with(text: &[u8], is_config: bool) -> Result<Document, Malformed> {
    let strict = read_strict(text, is_config);
    match &strict {
        // the second reading costs only those who sent such a text
        Err(Malformed::Syntax { message, .. }) if NON_FINITE.iter().any(|word| message.starts_with(word)) => {
            read_strict(&quoted(text), is_config).or(strict)
        }
        _ => strict,
    }
}

/// What Python's writer prints for floats that JSON has no number for.
const NON_FINITE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
/// Marks a quoted non-finite word; no text that people write starts with it.
const MARK: char = '\u{1}';

/// The text with every bare non-finite word quoted and marked; strings are left alone.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut in_string = false;
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if in_string && byte == b'\\' {
            let (escape, tail) = rest.split_at(rest.len().min(2));
            out.extend_from_slice(escape);
            rest = tail;
            continue;
        }
        if byte == b'"' {
            in_string = !in_string;
        }
        match NON_FINITE.iter().find(|word| !in_string && rest.starts_with(word.as_bytes())) {
            Some(word) => {
                out.extend_from_slice(b"\"\\u0001");
                out.extend_from_slice(word.as_bytes());
                out.push(b'"');
                rest = rest.get(word.len()..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

fn read_strict(text: &[u8], is_config: bool) -> Result<Document, Malformed> {
    let state = State { is_config, ..State::default() };
    let mut from = serde_json::Deserializer::from_slice(text);
    // the seed below has its own, lower limit with a clearer message
    let value = Seed { state: &state, depth: 0 }
        .deserialize(&mut from)
        .and_then(|value| from.end().map(|()| value))
        .map_err(|error| fault_of(&error, text))?;
    Ok(Document { value, duplicates: state.duplicates.into_inner() })
}

fn fault_of(error: &serde_json::Error, text: &[u8]) -> Malformed {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    if message.starts_with(TOO_DEEP) || message.starts_with("recursion limit") {
        return Malformed::TooDeep { line, column };
    }
    if message.starts_with(TOO_MANY) {
        return Malformed::TooMany;
    }
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    let message = match token_at(text, line, column) {
        Some(token @ ("NaN" | "Infinity" | "-Infinity")) => {
            format!("{token} is no JSON number; leave the key out or write null")
        }
        _ => message,
    };
    Malformed::Syntax { line, column, message }
}

/// The word that holds the given position, when it is one that other languages print for a float.
fn token_at(text: &[u8], line: usize, column: usize) -> Option<&'static str> {
    let row = text.split(|&b| b == b'\n').nth(line.checked_sub(1)?)?;
    NON_FINITE.into_iter().find(|word| {
        (column.saturating_sub(word.len())..=column)
            .any(|start| row.get(start..).is_some_and(|rest| rest.starts_with(word.as_bytes())))
    })
}

const TOO_DEEP: &str = "nested too deep";
const TOO_MANY: &str = "too many values";

#[derive(Default)]
struct State {
    duplicates: RefCell<Vec<FieldError>>,
    path: RefCell<Vec<Step>>,
    values: RefCell<usize>,
    /// The whole text is a config.json.
    is_config: bool,
}

enum Step {
    Key(String),
    Index(usize),
}

impl State {
    fn place(&self) -> Pointer {
        self.path.borrow().iter().fold(Pointer::root(), |place, step| match step {
            Step::Key(key) => place.key(key),
            Step::Index(index) => place.index(*index),
        })
    }

    fn is_in_config(&self) -> bool {
        self.is_config
            || self.path.borrow().iter().any(|step| matches!(step, Step::Key(key) if key == "config"))
    }

    fn record_duplicate(&self, key: &str) {
        let mut duplicates = self.duplicates.borrow_mut();
        // a body of nothing but duplicates must not grow an answer of its own size
        if duplicates.len() < 50 {
            let place = self.place().key(key);
            duplicates.push(FieldError::at(
                &place,
                "duplicate_key",
                "this key stands more than once in its object",
            ));
        }
    }
}

#[derive(Clone, Copy)]
struct Seed<'s> {
    state: &'s State,
    depth: usize,
}

impl Seed<'_> {
    fn count<E: de::Error>(self) -> Result<(), E> {
        let mut values = self.state.values.borrow_mut();
        *values += 1;
        if *values > MAX_VALUES { Err(E::custom(TOO_MANY)) } else { Ok(()) }
    }

    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(TOO_DEEP));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.count()?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        match value.strip_prefix(MARK) {
            Some(word) if NON_FINITE.contains(&word) && self.state.is_in_config() => Ok(Value::Null),
            Some(word) if NON_FINITE.contains(&word) => Err(E::custom(word)),
            _ => Ok(Value::String(value.to_owned())),
        }
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        loop {
            self.state.path.borrow_mut().push(Step::Index(items.len()));
            let item = from.next_element_seed(inner)?;
            self.state.path.borrow_mut().pop();
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if object.contains_key(&key) {
                self.state.record_duplicate(&key);
            }
            self.state.path.borrow_mut().push(Step::Key(key.clone()));
            let value = from.next_value_seed(inner)?;
            self.state.path.borrow_mut().pop();
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_serde_json_reads() {
        let text = br#"{"a": [1, -2, 3.5, 1e300, true, null, "x\u00e9"], "b": {"c": 18446744073709551615}}"#;
        let document = read(text).expect("valid");
        assert_eq!(document.value, serde_json::from_slice::<Value>(text).expect("valid"));
        assert!(document.duplicates.is_empty());
    }

    #[test]
    fn duplicates_are_found_at_their_place() {
        let document = read(br#"{"a": [{"x": 1, "x": 2}], "b": 1, "b": 2}"#).expect("valid");
        let places: Vec<_> = document.duplicates.iter().map(|d| d.pointer.as_str()).collect();
        assert_eq!(places, ["#/a/0/x", "#/b"]);
    }

    #[test]
    fn infinity_is_read_inside_a_config_alone() {
        let text = r#"{"model": {"config": {"time_step_limit": [0.0, Infinity], "a": "Infinity, \" NaN"}}}"#;
        let config = &read(text.as_bytes()).expect("lenient").value["model"]["config"];
        assert_eq!(config["time_step_limit"][1], Value::Null);
        assert_eq!(config["a"], "Infinity, \" NaN");
        let outside = r#"{"workload": {"concurrency": NaN}, "model": {"config": {"x": -Infinity}}}"#;
        assert!(read(outside.as_bytes()).is_err_and(|e| e.to_string().contains("NaN is no JSON number")));
        assert!(read_config(br#"{"x": [-Infinity]}"#).is_ok());
    }

    #[test]
    fn faults_have_a_position() {
        let fault = |text: &str| read(text.as_bytes()).expect_err("malformed");
        assert!(matches!(fault("{\"a\": 1,\n \"b\": }"), Malformed::Syntax { line: 2, column: 7, .. }));
        assert!(
            fault("{\"a\": NaN}").to_string().contains("NaN is no JSON number"),
            "{}",
            fault("{\"a\": NaN}")
        );
        assert!(fault("{\"a\": [0.0, Infinity]}").to_string().contains("Infinity is no JSON number"));
        assert!(fault("{\"a\": 1e999}").to_string().contains("out of range"));
        assert!(matches!(fault("{} x"), Malformed::Syntax { .. }));
        assert!(matches!(fault(""), Malformed::Syntax { .. }));
        assert!(matches!(fault(&"[".repeat(100_000)), Malformed::TooDeep { .. }));
        assert!(matches!(fault(&"{\"a\":".repeat(100)), Malformed::TooDeep { .. }));
        assert_eq!(fault(&format!("[{}0]", "0,".repeat(MAX_VALUES))), Malformed::TooMany);
        assert!(matches!(read(&[b'"', 0xff, b'"']), Err(Malformed::Syntax { .. })));
    }
}
