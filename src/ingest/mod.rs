//! Untrusted text to core types: config.json, cluster texts, plan requests.
//!
//! Every reader collects all faults of its input before it refuses, each as a [`FieldError`].

pub mod batch;
pub mod bounds;
pub mod check;
pub mod cluster;
pub mod command;
pub mod config_json;
pub mod fields;
pub mod fits;
pub mod json;
pub mod kv;
pub mod launch;
pub mod log;
pub mod manifest;
pub mod question;
pub mod request;
mod search;
pub mod sizing;
mod speculation;
pub mod sweep;
pub mod yaml;

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;

/// One fault of an input: where it stands, what is wrong, what would have been right.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldError {
    /// JSON pointer to the faulty value as a URI fragment (RFC 6901 §6), e.g. `#/engine/version`.
    pub pointer: String,
    /// Stable code in snake case, e.g. `unknown_field`, `wrong_type`, `out_of_range`.
    pub code: &'static str,
    /// One sentence for people.
    pub detail: String,
    /// The values (or names) that would have been accepted, when they can be listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// What came, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<Value>,
}

impl FieldError {
    /// A fault at a place.
    #[must_use]
    pub fn at(place: &Pointer, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            pointer: place.fragment(),
            code,
            detail: readable(detail.into()),
            allowed: Vec::new(),
            got: None,
        }
    }

    /// The same fault with the values that would have been accepted.
    #[must_use]
    pub fn allowed<T: Into<String>>(mut self, values: impl IntoIterator<Item = T>) -> Self {
        self.allowed = values.into_iter().map(Into::into).collect();
        self
    }

    /// The same fault with what came, shortened so that an answer never echoes a large input.
    #[must_use]
    pub fn got(mut self, value: &Value) -> Self {
        self.got = Some(shortened(value));
        self
    }

    /// The same fault seen from a document in which the faulty one is the value at `place`.
    #[must_use]
    pub fn within(mut self, place: &Pointer) -> Self {
        self.pointer = format!("{}{}", place.fragment(), self.pointer.trim_start_matches('#'));
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer != "#" {
            write!(f, "{}: ", self.pointer.trim_start_matches("#/"))?;
        }
        f.write_str(&self.detail)
    }
}

/// A place in a JSON document (RFC 6901).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// The whole document.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// The value of `key` in the object at this place.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut text = String::with_capacity(self.0.len() + key.len() + 1);
        text.push_str(&self.0);
        text.push('/');
        if key.contains(['~', '/']) {
            text.push_str(&key.replace('~', "~0").replace('/', "~1"));
        } else {
            text.push_str(key);
        }
        Self(text)
    }

    /// The value at `index` in the array at this place.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}/{index}", self.0))
    }

    /// The pointer as a URI fragment, `#/engine/version`: everything outside RFC 3986's fragment is percent-encoded.
    #[must_use]
    pub fn fragment(&self) -> String {
        let mut out = String::with_capacity(self.0.len() + 1);
        out.push('#');
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte) {
                out.push(char::from(byte));
            } else {
                // writing to a String cannot fail
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    }
}

/// At most this many characters of a text are echoed in an error.
const ECHO_CHARS: usize = 80;

/// At most this many characters of a sentence, which may quote what came.
const DETAIL_CHARS: usize = 1_000;

/// A sentence fit for an error.
fn readable(mut detail: String) -> String {
    if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS) {
        detail.truncate(end);
        detail.push('…');
    }
    detail
}

/// A value fit for an error: texts cut, arrays and objects only named.
fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() > ECHO_CHARS => {
            let mut cut: String = text.chars().take(ECHO_CHARS).collect();
            cut.push('…');
            Value::String(cut)
        }
        Value::Array(items) => Value::String(format!("an array of {}", items.len())),
        Value::Object(keys) => Value::String(format!("an object of {} keys", keys.len())),
        plain => plain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_escaped_twice() {
        let place = Pointer::root().key("a/b~c").index(3).key("ü \"");
        assert_eq!(place.fragment(), "#/a~1b~0c/3/%C3%BC%20%22");
        assert_eq!(
            FieldError::at(&Pointer::root().key("x"), "c", "d").within(&place).pointer,
            "#/a~1b~0c/3/%C3%BC%20%22/x"
        );
    }

    #[test]
    fn large_values_are_not_echoed() {
        let error = FieldError::at(&Pointer::root(), "c", "d").got(&Value::String("x".repeat(1000)));
        assert_eq!(error.got, Some(Value::String(format!("{}…", "x".repeat(80)))));
    }
}
