//! The JSON of `POST /v1/sizings`: the fewest GPUs for a load.

use serde_json::Value;

use super::fields::{Fields, real_number, short_text, wrong_type};
use super::request::{PlanRequest, read_cluster, read_model, read_question};
use super::{FieldError, Pointer, bounds};
use crate::planner::sizing::load::Load;

/// Most products of one question.
const MAX_PRODUCTS: usize = 64;
/// Most intervals of a trace.
const MAX_INTERVALS: usize = 10_000;
/// Requests per second.
const RATE: std::ops::RangeInclusive<f64> = 0.0..=1e9;
/// Seconds between an answer and the next request of a user.
const THINK_TIME: std::ops::RangeInclusive<f64> = 0.0..=1e6;

/// A load with the model that is to carry it.
#[derive(Debug, Clone, PartialEq)]
pub struct SizingRequest {
    /// Its cluster is null where `gpus` names products, or nothing was said.
    pub plan: PlanRequest,
    /// Products by name; empty with a cluster, or when nothing was said.
    pub gpus: Vec<String>,
    pub load: Load,
}

impl SizingRequest {
    /// Read a request.
    ///
    /// # Errors
    /// All faults, in the order of the fields.
    pub fn read(value: &Value) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let request = Fields::of(value, Pointer::root(), &mut faults).and_then(|mut fields| {
            let request = read_sizing(&mut fields);
            fields.finish();
            request
        });
        match request {
            Some(request) if faults.is_empty() => Ok(request),
            _ => Err(faults),
        }
    }
}

fn read_sizing(fields: &mut Fields<'_, '_>) -> Option<SizingRequest> {
    let model = read_model(fields);
    let gpus = read_products(fields);
    let cluster = match fields.raw("cluster") {
        None => Some(Value::Null),
        Some(_) => {
            if gpus.is_some() {
                fields.refuse("cluster", "conflict", "give `gpus` (products by name) or `cluster`, not both");
            }
            read_cluster(fields)
        }
    };
    let load = read_load(fields);
    let plan = read_question(fields, model, cluster);
    Some(SizingRequest { plan: plan?, gpus: gpus.unwrap_or_default(), load: load? })
}

fn read_products(fields: &mut Fields<'_, '_>) -> Option<Vec<String>> {
    let value = fields.raw("gpus")?;
    let place = fields.place_of("gpus");
    let Value::Array(items) = value else {
        fields.push(wrong_type(&place, value, "an array of GPU names, e.g. [\"H100\", \"H200\"]"));
        return None;
    };
    if items.is_empty() || items.len() > MAX_PRODUCTS {
        let detail = format!("expected 1 to {MAX_PRODUCTS} names, got {}", items.len());
        fields.push(FieldError::at(&place, "out_of_range", detail));
        return None;
    }
    let mut names = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        match short_text(item, &place.index(i), bounds::NAME_CHARS) {
            Ok(name) => names.push(name.trim().to_owned()),
            Err(fault) => fields.push(fault),
        }
    }
    (names.len() == items.len()).then_some(names)
}

fn read_load(fields: &mut Fields<'_, '_>) -> Option<Load> {
    const FORMS: &str = "`sequences`, `requests_per_s`, or `users` with `think_time_s`";
    fields.required("load")?;
    let mut load = fields.object("load")?;
    let sequences = load.whole("sequences", bounds::CONCURRENCY);
    let users = load.whole("users", bounds::CONCURRENCY);
    let think_time_s = load.number("think_time_s", THINK_TIME);
    let rates = read_rates(&mut load);
    let named = ["sequences", "users", "requests_per_s"].into_iter().filter(|name| load.has(name)).count();
    if named != 1 {
        let code = if named == 0 { "missing" } else { "conflict" };
        load.refuse("sequences", code, format!("give one of {FORMS}"));
    }
    if think_time_s.is_some() && users.is_none() {
        load.refuse("think_time_s", "conflict", "`think_time_s` belongs to `users`");
    }
    load.finish();
    match (sequences, users, rates) {
        (Some(n), None, None) => Some(Load::Sequences(n)),
        // a user who does not think always has a request in flight
        (None, Some(users), None) => Some(Load::Users { users, think_time_s: think_time_s.unwrap_or(0.0) }),
        (None, None, Some(rates)) => Some(Load::Rate(rates)),
        _ => None,
    }
}

fn read_rates(load: &mut Fields<'_, '_>) -> Option<Vec<f64>> {
    let value = load.raw("requests_per_s")?;
    let place = load.place_of("requests_per_s");
    let one = std::slice::from_ref(value);
    let (items, listed) = match value {
        Value::Array(items) => (items.as_slice(), true),
        _ => (one, false),
    };
    if items.is_empty() || items.len() > MAX_INTERVALS {
        let detail = format!("expected 1 to {MAX_INTERVALS} intervals, got {}", items.len());
        load.push(FieldError::at(&place, "out_of_range", detail));
        return None;
    }
    let mut rates = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let place = if listed { place.index(i) } else { place.clone() };
        match real_number(item, &place, &RATE) {
            Ok(rate) => rates.push(rate),
            Err(fault) => load.push(fault),
        }
    }
    (rates.len() == items.len()).then_some(rates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(value: &Value) -> Vec<(String, &'static str)> {
        SizingRequest::read(value).expect_err("faulty").into_iter().map(|f| (f.pointer, f.code)).collect()
    }

    #[test]
    fn each_form_of_load_is_read() {
        for (load, expected) in [
            (json!({"sequences": 50}), Load::Sequences(50)),
            (json!({"requests_per_s": 2.5}), Load::Rate(vec![2.5])),
            (json!({"requests_per_s": [1, 2, 0]}), Load::Rate(vec![1.0, 2.0, 0.0])),
            (json!({"users": 50}), Load::Users { users: 50, think_time_s: 0.0 }),
            (json!({"users": 50, "think_time_s": 30}), Load::Users { users: 50, think_time_s: 30.0 }),
        ] {
            let request = SizingRequest::read(&json!({"model": "m", "gpus": ["H100"], "load": load}));
            assert_eq!(request.map(|r| r.load), Ok(expected), "{load}");
        }
        let without = SizingRequest::read(&json!({"model": "m", "load": {"sequences": 1}})).expect("valid");
        assert_eq!((without.plan.cluster, without.gpus), (Value::Null, Vec::new()));
    }

    #[test]
    fn faulty_loads_are_told() {
        for (load, expected) in [
            (json!({}), ("#/load/sequences", "missing")),
            (json!({"sequences": 1, "users": 1}), ("#/load/sequences", "conflict")),
            (json!({"sequences": 0}), ("#/load/sequences", "out_of_range")),
            (json!({"requests_per_s": []}), ("#/load/requests_per_s", "out_of_range")),
            (json!({"requests_per_s": [1, -1]}), ("#/load/requests_per_s/1", "out_of_range")),
            (json!({"requests_per_s": "2"}), ("#/load/requests_per_s", "wrong_type")),
            (json!({"sequences": 1, "think_time_s": 2}), ("#/load/think_time_s", "conflict")),
            (json!({"user": 5, "sequences": 1}), ("#/load/user", "unknown_field")),
        ] {
            let found = faults(&json!({"model": "m", "load": load}));
            assert_eq!(found, [(expected.0.to_owned(), expected.1)], "{load}");
        }
        let found = faults(&json!({"model": "m", "gpus": [], "load": {"sequences": 1}}));
        assert_eq!(found, [("#/gpus".to_owned(), "out_of_range")]);
        let found =
            faults(&json!({"model": "m", "gpus": ["H100"], "cluster": "8 H100", "load": {"sequences": 1}}));
        assert_eq!(found, [("#/cluster".to_owned(), "conflict")]);
    }
}
