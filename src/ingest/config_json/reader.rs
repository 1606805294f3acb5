//! Reads the fields of a config.json: aliases, nested text configs, defaults, bounds. Every fault is collected.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::fields::wrong_type;
use super::super::{FieldError, Pointer};
use super::defaults;
use super::ignored::IGNORED;

/// Bound on decoder (and tower) layers.
pub const MAX_LAYERS: u64 = 2_000;
/// Bound on widths, head counts, experts, vocabulary and products of two of them.
pub const MAX_SIZE: u64 = 1 << 24;
/// Bound on positions.
pub const MAX_POSITIONS: u64 = 1 << 32;
/// Bound on entries of a list (ignore lists, per-layer lists).
pub const MAX_LIST: usize = 50_000;

/// One level of a configuration, with the levels around it as fallbacks.
pub struct Config<'v> {
    /// Innermost first: the text config, then what wraps it.
    levels: Vec<(&'v Map<String, Value>, Pointer)>,
    /// The `model_type` whose defaults apply.
    pub model_type: &'v str,
    /// A section that names its own model type: it leaves out what its class has as default.
    is_sparse: bool,
    shared: &'v Shared,
}

/// What all readers of one document share.
#[derive(Default)]
pub struct Shared {
    pub faults: RefCell<Vec<FieldError>>,
    /// Values that some reader asked for, by their address: the document does not move while it is read.
    used: RefCell<BTreeSet<usize>>,
    pub notes: RefCell<Vec<String>>,
}

impl<'v> Config<'v> {
    /// The reader of a whole document.
    pub fn new(object: &'v Map<String, Value>, place: Pointer, shared: &'v Shared) -> Self {
        let model_type = object.get("model_type").and_then(Value::as_str).unwrap_or("");
        Self { levels: vec![(object, place)], model_type, is_sparse: false, shared }
    }

    /// The object under `key`, with this level as fallback where `inherit`; `None` when it is absent or no object.
    pub fn section(&self, key: &str, inherit: bool) -> Option<Self> {
        let (object, place) = self.levels.first()?;
        let value = object.get(key)?;
        self.mark(value);
        let Value::Object(inner) = value else {
            if !value.is_null() {
                self.shared.faults.borrow_mut().push(wrong_type(&place.key(key), value, "an object"));
            }
            return None;
        };
        let mut levels = vec![(inner, place.key(key))];
        if inherit {
            levels.extend(self.levels.iter().cloned());
        }
        let own_type = inner.get("model_type").and_then(Value::as_str);
        let model_type = own_type.unwrap_or(self.model_type);
        Some(Self { levels, model_type, is_sparse: own_type.is_some(), shared: self.shared })
    }

    fn mark(&self, value: &Value) {
        self.shared.used.borrow_mut().insert(std::ptr::from_ref(value).addr());
    }

    /// Record a fault of `key`.
    pub fn refuse(&self, key: &str, code: &'static str, detail: impl Into<String>) {
        let place = self.place_of(key);
        let mut fault = FieldError::at(&place, code, detail);
        if let Some(value) = self.levels.iter().find_map(|(object, _)| object.get(key)) {
            fault = fault.got(value);
        }
        self.shared.faults.borrow_mut().push(fault);
    }

    /// Tell the reader of the answer something.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.shared.notes.borrow_mut();
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Where `key` stands, or would stand.
    fn place_of(&self, key: &str) -> Pointer {
        self.levels
            .iter()
            .find(|(object, _)| object.contains_key(key))
            .or_else(|| self.levels.first())
            .map_or_else(Pointer::root, |(_, place)| place.key(key))
    }

    /// The value of the first of `names` that is there; `null` counts as absent.
    pub fn value(&self, names: &[&str]) -> Option<(&'v Value, Pointer)> {
        for (object, place) in &self.levels {
            for name in names {
                if let Some(value) = object.get(*name) {
                    self.mark(value);
                    if !value.is_null() {
                        return Some((value, place.key(name)));
                    }
                }
            }
        }
        None
    }

    /// True when one of `names` stands there, `null` included.
    pub fn has(&self, names: &[&str]) -> bool {
        self.levels.iter().any(|(object, _)| names.iter().any(|name| object.contains_key(*name)))
    }

    /// True when one of `names` stands there as `null`.
    pub fn is_null(&self, names: &[&str]) -> bool {
        self.levels
            .iter()
            .any(|(object, _)| names.iter().any(|name| object.get(*name).is_some_and(Value::is_null)))
    }

    fn fault(&self, fault: FieldError) {
        self.shared.faults.borrow_mut().push(fault);
    }

    fn number(&self, value: &Value, place: &Pointer, most: u64) -> Option<u64> {
        match super::super::fields::whole_number(value, place, &(0..=most)) {
            Ok(n) => Some(n),
            Err(fault) => {
                self.fault(fault);
                None
            }
        }
    }

    /// The class default of a field: of the section's class, with sizes, where this is a section; of the model type otherwise.
    fn class_default(&self, name: &str) -> Option<&'static Value> {
        let of_section = if self.is_sparse { defaults::of_section(self.model_type, name) } else { None };
        of_section.or_else(|| defaults::of(self.model_type, name))
    }

    /// A whole number, if given; the class default of the model type otherwise.
    pub fn opt(&self, names: &[&str]) -> Option<u64> {
        self.opt_within(names, MAX_SIZE)
    }

    /// As [`Config::opt`] with another bound.
    pub fn opt_within(&self, names: &[&str], most: u64) -> Option<u64> {
        match self.value(names) {
            Some((value, place)) => self.number(value, &place, most),
            None if self.is_null(names) => None,
            None => names.iter().find_map(|name| self.class_default(name)?.as_u64()),
        }
    }

    /// A size that may be left out: from 1 where it is given, so that a zero is a fault of its place and not silently the default;
    /// the class default of the model type, if it is a size, where the file says nothing.
    pub fn opt_size(&self, names: &[&str]) -> Option<u64> {
        match self.value(names) {
            Some((value, place)) => {
                match super::super::fields::whole_number(value, &place, &(1..=MAX_SIZE)) {
                    Ok(n) => Some(n),
                    Err(fault) => {
                        self.fault(fault);
                        None
                    }
                }
            }
            None => self.opt(names).filter(|n| *n > 0),
        }
    }

    /// A size from 1 with a default: what the engine multiplies or divides by.
    pub fn positive_or(&self, names: &[&str], default: u64) -> u64 {
        self.opt_size(names).unwrap_or(default)
    }

    /// A whole number with a default, 0 among them: counts that a model may do without.
    pub fn size_or(&self, names: &[&str], default: u64) -> u64 {
        self.opt(names).unwrap_or(default)
    }

    /// A whole number from 1 that must be there; a fault and 1 otherwise, so that reading goes on.
    pub fn size(&self, names: &[&str]) -> u64 {
        self.size_within(names, MAX_SIZE)
    }

    /// As [`Config::size`] with another bound.
    pub fn size_within(&self, names: &[&str], most: u64) -> u64 {
        match self.value(names) {
            Some((value, place)) => match super::super::fields::whole_number(value, &place, &(1..=most)) {
                Ok(n) => n,
                Err(fault) => {
                    self.fault(fault);
                    1
                }
            },
            None if self.is_sparse
                && let Some((name, size)) = names.iter().find_map(|name| {
                    Some((*name, defaults::of_section(self.model_type, name)?.as_u64()?))
                }) =>
            {
                let kind = self.model_type;
                self.note(format!("`{name}` is not in the section of {kind}: its class has {size}"));
                size
            }
            None => {
                let name = names.first().copied().unwrap_or_default();
                let place = self.place_of(name);
                self.fault(
                    FieldError::at(
                        &place,
                        "missing",
                        format!("`{name}` is required to know the model's size"),
                    )
                    .allowed(names.iter().copied()),
                );
                1
            }
        }
    }

    /// A flag, or the class default of the model type, or `default`.
    pub fn flag(&self, names: &[&str], default: bool) -> bool {
        match self.value(names) {
            Some((Value::Bool(flag), _)) => *flag,
            Some((value, place)) => {
                // 0 and 1 stand for flags in some files
                match value.as_u64() {
                    Some(0) => false,
                    Some(1) => true,
                    _ => {
                        self.fault(wrong_type(&place, value, "true or false"));
                        default
                    }
                }
            }
            None => names.iter().find_map(|name| self.class_default(name)?.as_bool()).unwrap_or(default),
        }
    }

    /// A flag, `None` when absent everywhere.
    pub fn opt_flag(&self, names: &[&str]) -> Option<bool> {
        match self.value(names) {
            Some((Value::Bool(flag), _)) => Some(*flag),
            _ => None,
        }
    }

    /// A text, if given.
    pub fn text(&self, names: &[&str]) -> Option<&'v str> {
        match self.value(names) {
            Some((Value::String(text), _)) => Some(text),
            Some((value, place)) => {
                self.fault(wrong_type(&place, value, "a string"));
                None
            }
            None => None,
        }
    }

    /// A number that need not be whole, if given.
    pub fn real(&self, names: &[&str]) -> Option<f64> {
        let (value, place) = self.value(names)?;
        match super::super::fields::real_number(value, &place, &(-1e12..=1e12)) {
            Ok(n) => Some(n),
            Err(fault) => {
                self.fault(fault);
                None
            }
        }
    }

    /// A list, if given.
    pub fn list(&self, names: &[&str]) -> Option<&'v [Value]> {
        match self.value(names) {
            Some((Value::Array(items), place)) => {
                if items.len() > MAX_LIST {
                    self.fault(FieldError::at(
                        &place,
                        "out_of_range",
                        format!("expected at most {MAX_LIST} entries, got {}", items.len()),
                    ));
                    return None;
                }
                Some(items)
            }
            Some((value, place)) => {
                self.fault(wrong_type(&place, value, "an array"));
                None
            }
            None => None,
        }
    }

    /// A list of whole numbers within a bound, if given.
    pub fn numbers(&self, names: &[&str], most: u64) -> Option<Vec<u64>> {
        let place = names.first().map_or_else(Pointer::root, |name| self.place_of(name));
        let items = self.list(names)?;
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            out.push(self.number(item, &place.index(i), most)?);
        }
        Some(out)
    }

    /// A list of texts, if given; entries of another type are faults.
    pub fn texts(&self, names: &[&str]) -> Option<Vec<&'v str>> {
        let place = names.first().map_or_else(Pointer::root, |name| self.place_of(name));
        let items = self.list(names)?;
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item {
                Value::String(text) => out.push(text.as_str()),
                other => {
                    self.fault(wrong_type(&place.index(i), other, "a string"));
                    return None;
                }
            }
        }
        Some(out)
    }

    /// Per-layer numbers that may be given as one number or as a list with an entry for each layer.
    pub fn per_layer(&self, names: &[&str], layers: usize) -> Option<Vec<u64>> {
        let (value, place) = self.value(names)?;
        match value {
            Value::Array(items) if items.len() < layers => {
                self.fault(FieldError::at(
                    &place,
                    "out_of_range",
                    format!("expected an entry for each of {layers} layers, got {}", items.len()),
                ));
                None
            }
            Value::Array(_) => self.numbers(names, MAX_SIZE),
            one => self.number(one, &place, MAX_SIZE).map(|n| vec![n; layers]),
        }
    }

    /// Keys of the document that no reader asked for, as pointers.
    pub fn unread(&self) -> Vec<String> {
        let used = self.shared.used.borrow();
        let mut out = Vec::new();
        for (object, place) in &self.levels {
            for (key, value) in *object {
                if !used.contains(&std::ptr::from_ref(value).addr()) && !IGNORED.contains(&key.as_str()) {
                    out.push(place.key(key).fragment());
                }
            }
        }
        out
    }
}

impl<'v> Config<'v> {
    /// Names of the keys of this level, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        let object = self.levels.first().map(|(object, _)| *object);
        object.into_iter().flat_map(|object| object.keys().map(String::as_str))
    }

    /// True when this level itself has the key.
    pub fn has_own(&self, key: &str) -> bool {
        self.levels.first().is_some_and(|(object, _)| object.contains_key(key))
    }

    /// The object under the first of `names` that is one, on this level or around it.
    pub fn section_anywhere(&self, names: &[&str]) -> Option<Self> {
        for (object, place) in &self.levels {
            for name in names {
                if let Some(value @ Value::Object(inner)) = object.get(*name) {
                    self.mark(value);
                    return Some(Self {
                        levels: vec![(inner, place.key(name))],
                        model_type: self.model_type,
                        is_sparse: false,
                        shared: self.shared,
                    });
                }
            }
        }
        None
    }

    /// A number of this level, without complaint about other types.
    pub fn own_real(&self, name: &str) -> Option<f64> {
        let (object, _) = self.levels.first()?;
        let value = object.get(name)?;
        self.mark(value);
        value.as_f64().filter(|n| n.is_finite())
    }

    /// A text of this level, without complaint about other types.
    pub fn own_text(&self, names: &[&str]) -> Option<&'v str> {
        let (object, _) = self.levels.first()?;
        names.iter().find_map(|name| {
            let value = object.get(*name)?;
            self.mark(value);
            value.as_str()
        })
    }
}

impl Config<'_> {
    /// The object at `index` of the list under `key`.
    pub fn element(&self, key: &str, index: usize) -> Option<Self> {
        let (value, place) = self.value(&[key])?;
        let Value::Object(inner) = value.as_array()?.get(index)? else { return None };
        Some(Self {
            levels: vec![(inner, place.index(index))],
            model_type: self.model_type,
            is_sparse: false,
            shared: self.shared,
        })
    }
}
