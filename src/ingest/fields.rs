//! A strict reader of JSON objects: every fault is collected, every unknown key is refused with the nearest known one.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::{FieldError, Pointer};

/// One object of a request, its place, and the faults found so far in the whole document.
pub struct Fields<'v, 'f> {
    object: &'v Map<String, Value>,
    place: Pointer,
    known: Vec<&'static str>,
    faults: &'f mut Vec<FieldError>,
}

impl<'v, 'f> Fields<'v, 'f> {
    /// The object at `place`; a fault and `None` when the value is something else.
    pub fn of(value: &'v Value, place: Pointer, faults: &'f mut Vec<FieldError>) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self { object, place, known: Vec::new(), faults }),
            other => {
                faults.push(wrong_type(&place, other, "an object"));
                None
            }
        }
    }

    /// Where `name` stands in the document.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Pointer {
        self.place.key(name)
    }

    /// The names that were asked for so far.
    #[must_use]
    pub fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Record a fault of the value of `name`.
    pub fn refuse(&mut self, name: &str, code: &'static str, detail: impl Into<String>) {
        let mut fault = FieldError::at(&self.place.key(name), code, detail);
        if let Some(value) = self.object.get(name) {
            fault = fault.got(value);
        }
        self.faults.push(fault);
    }

    /// Record a fault that another reader found.
    pub fn push(&mut self, fault: FieldError) {
        self.faults.push(fault);
    }

    /// The value of `name` as it came; `null` counts as absent.
    pub fn raw(&mut self, name: &'static str) -> Option<&'v Value> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The value of `name`, which must be there.
    pub fn required(&mut self, name: &'static str) -> Option<&'v Value> {
        let value = self.raw(name);
        if value.is_none() {
            self.faults.push(FieldError::at(
                &self.place.key(name),
                "missing",
                format!("`{name}` is required"),
            ));
        }
        value
    }

    /// A whole number within a range. `8.0` counts as 8, as in JSON Schema.
    pub fn whole(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.raw(name)?;
        let place = self.place.key(name);
        self.keep(whole_number(value, &place, &range))
    }

    /// A whole number of at least one place in a list, within a range, with at most `most` items.
    pub fn wholes(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        most: usize,
    ) -> Option<Vec<u64>> {
        let value = self.raw(name)?;
        let place = self.place.key(name);
        let Value::Array(items) = value else {
            self.faults.push(wrong_type(&place, value, "an array of integers, e.g. [8]"));
            return None;
        };
        if items.is_empty() || items.len() > most {
            let detail = format!(
                "expected 1 to {most} integers, got {}; leave the field out to allow every value",
                items.len()
            );
            self.faults.push(FieldError::at(&place, "out_of_range", detail));
            return None;
        }
        let mut numbers = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match whole_number(item, &place.index(i), &range) {
                Ok(number) => numbers.push(number),
                Err(fault) => self.faults.push(fault),
            }
        }
        (numbers.len() == items.len()).then_some(numbers)
    }

    /// A number within a range; NaN and infinities cannot come from JSON.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.raw(name)?;
        let place = self.place.key(name);
        self.keep(real_number(value, &place, &range))
    }

    /// `true` or `false`.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.raw(name)?;
        if let Value::Bool(flag) = value {
            return Some(*flag);
        }
        self.faults.push(wrong_type(&self.place.key(name), value, "true or false"));
        None
    }

    /// A text of 1 to `most` characters, without control characters.
    pub fn text(&mut self, name: &'static str, most: usize) -> Option<&'v str> {
        let value = self.raw(name)?;
        let place = self.place.key(name);
        self.keep(short_text(value, &place, most))
    }

    /// One of a closed list of words.
    pub fn choice<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let value = self.raw(name)?;
        let place = self.place.key(name);
        let Value::String(word) = value else {
            self.faults.push(wrong_type(&place, value, "a string").allowed(words.iter().map(|(w, _)| *w)));
            return None;
        };
        if let Some((_, choice)) = words.iter().find(|(w, _)| w == word) {
            return Some(*choice);
        }
        let names: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        let detail = format!("`{name}` is one of {}{}", names.join(", "), hint(word, &names));
        self.faults.push(FieldError::at(&place, "not_allowed", detail).allowed(names).got(value));
        None
    }

    /// The object under `name`, to be read with the same rules.
    pub fn object(&mut self, name: &'static str) -> Option<Fields<'v, '_>> {
        let value = self.raw(name)?;
        Fields::of(value, self.place.key(name), self.faults)
    }

    /// An object elsewhere in the same document, to be read with the same rules.
    pub fn nested(&mut self, value: &'v Value, place: Pointer) -> Option<Fields<'v, '_>> {
        Fields::of(value, place, self.faults)
    }

    /// True when the caller wrote a value under `name`; `null` is none.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(|value| !value.is_null())
    }

    /// True when the caller wrote a list under `name`.
    #[must_use]
    pub fn is_list(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(Value::is_array)
    }

    /// The object under `name` with keys that are not ours, kept as it came.
    pub fn open_object(&mut self, name: &'static str, most: usize) -> Option<&'v Map<String, Value>> {
        let value = self.raw(name)?;
        let place = self.place.key(name);
        match value {
            Value::Object(object) if object.len() <= most => Some(object),
            Value::Object(object) => {
                let detail = format!("expected at most {most} keys, got {}", object.len());
                self.faults.push(FieldError::at(&place, "out_of_range", detail));
                None
            }
            other => {
                self.faults.push(wrong_type(&place, other, "an object"));
                None
            }
        }
    }

    /// Refuse every key that nothing asked for. Call it last.
    pub fn finish(self) {
        for (key, value) in self.object {
            if self.known.contains(&key.as_str()) {
                continue;
            }
            let detail = format!("there is no field `{}` here{}", cut(key), hint(key, &self.known));
            self.faults.push(
                FieldError::at(&self.place.key(&cut(key)), "unknown_field", detail)
                    .allowed(self.known.iter().copied())
                    .got(value),
            );
        }
    }

    fn keep<T>(&mut self, read: Result<T, FieldError>) -> Option<T> {
        read.map_err(|fault| self.faults.push(fault)).ok()
    }
}

/// A whole number at a place, within a range.
///
/// # Errors
/// `wrong_type` or `out_of_range`.
pub fn whole_number(value: &Value, place: &Pointer, range: &RangeInclusive<u64>) -> Result<u64, FieldError> {
    let Value::Number(number) = value else {
        return Err(wrong_type(place, value, "an integer"));
    };
    let whole = number.as_u64().or_else(|| number.as_f64().and_then(integral));
    match whole {
        Some(n) if range.contains(&n) => Ok(n),
        None if number.as_f64().is_some_and(|f| f.fract() != 0.0) => {
            Err(wrong_type(place, value, "an integer"))
        }
        _ => Err(out_of_range(place, value, range)),
    }
}

/// A number at a place, within a range.
///
/// # Errors
/// `wrong_type` or `out_of_range`.
pub fn real_number(value: &Value, place: &Pointer, range: &RangeInclusive<f64>) -> Result<f64, FieldError> {
    match value.as_f64() {
        Some(n) if n.is_finite() && range.contains(&n) => Ok(n),
        Some(_) => Err(out_of_range(place, value, range)),
        None => Err(wrong_type(place, value, "a number")),
    }
}

/// A text at a place: 1 to `most` characters, no control characters.
///
/// # Errors
/// `wrong_type`, `out_of_range` or `not_allowed`.
pub fn short_text<'v>(value: &'v Value, place: &Pointer, most: usize) -> Result<&'v str, FieldError> {
    let Value::String(text) = value else {
        return Err(wrong_type(place, value, "a string"));
    };
    if text.trim().is_empty() || text.chars().count() > most {
        return Err(FieldError::at(
            place,
            "out_of_range",
            format!("expected a text of 1 to {most} characters"),
        )
        .got(value));
    }
    if text.chars().any(char::is_control) {
        return Err(FieldError::at(place, "not_allowed", "control characters are not allowed here"));
    }
    Ok(text)
}

/// A fault of type: what was expected, and what came.
#[must_use]
pub fn wrong_type(place: &Pointer, value: &Value, expected: &str) -> FieldError {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    FieldError::at(place, "wrong_type", format!("expected {expected}, got {kind}")).got(value)
}

fn out_of_range<T: Display>(place: &Pointer, value: &Value, range: &RangeInclusive<T>) -> FieldError {
    let (low, high) = (range.start(), range.end());
    FieldError::at(place, "out_of_range", format!("expected {low} to {high}"))
        .allowed([format!("{low}..={high}")])
        .got(value)
}

/// A float that is a whole number below 2^53, where floats are exact.
fn integral(number: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: whole, and within 0..2^53"
    )]
    (number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number)).then_some(number as u64)
}

/// ` (did you mean ...?)` when a known name is close enough to a typo.
#[must_use]
pub fn hint(word: &str, known: &[&str]) -> String {
    nearest(word, known).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// The known name that is at most a third of its letters away.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|name| (edit_distance(&word, &name.to_lowercase().replace('-', "_")), *name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words: restricted Damerau-Levenshtein.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

/// A key short enough to stand in a message.
fn cut(key: &str) -> String {
    key.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(value: &Value, read: impl FnOnce(&mut Fields<'_, '_>)) -> Vec<(String, &'static str)> {
        let mut faults = Vec::new();
        if let Some(mut fields) = Fields::of(value, Pointer::root(), &mut faults) {
            read(&mut fields);
            fields.finish();
        }
        faults.into_iter().map(|f| (f.pointer, f.code)).collect()
    }

    #[test]
    fn all_faults_at_once() {
        let value = json!({"a": -1, "b": "8", "c": 2.5, "d": 1e308, "e": [1, 0, "x"], "f": 9_223_372_036_854_775_808_u64, "g": 4.0, "zz": 1});
        let found = faults(&value, |f| {
            for name in ["a", "b", "c", "d", "f", "g"] {
                f.whole(name, 1..=100);
            }
            f.wholes("e", 1..=9, 8);
        });
        let expected = [
            ("#/a", "out_of_range"),
            ("#/b", "wrong_type"),
            ("#/c", "wrong_type"),
            ("#/d", "out_of_range"),
            ("#/f", "out_of_range"),
            ("#/e/1", "out_of_range"),
            ("#/e/2", "wrong_type"),
            ("#/zz", "unknown_field"),
        ];
        assert_eq!(found, expected.map(|(p, c)| (p.to_owned(), c)));
    }

    #[test]
    fn typos_find_their_word() {
        let known = ["max_model_len", "max_num_seqs", "block_size", "tp", "pp"];
        for (typo, meant) in [
            ("max_modle_len", Some("max_model_len")),
            ("max-num-seq", Some("max_num_seqs")),
            ("colour", None),
            ("tpp", Some("tp")),
        ] {
            assert_eq!(nearest(typo, &known), meant, "{typo}");
        }
    }
}
