//! The OpenAPI document and its examples: the committed file is the served one, and every example holds.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};
use shardwise::http::openapi::{EXAMPLES, Example};
use shardwise::http::openapi_json;

fn document() -> Value {
    serde_json::from_str(&openapi_json()).expect("JSON")
}

/// Every operation of the document by its id.
fn operations() -> Vec<(String, Value)> {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let of_path =
        |item: &Value| item.as_object().map(Map::values).into_iter().flatten().cloned().collect::<Vec<_>>();
    paths
        .values()
        .flat_map(of_path)
        .map(|operation| (operation["operationId"].as_str().expect("an id").to_owned(), operation))
        .collect()
}

fn examples() -> impl Iterator<Item = (&'static str, Example)> {
    EXAMPLES.iter().map(|(name, text)| {
        (*name, serde_json::from_str(text).unwrap_or_else(|e| panic!("openapi/examples/{name}.json: {e}")))
    })
}

#[test]
fn the_committed_document_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/v1.json");
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not of the product")]
    if std::env::var_os("SHARDWISE_TEST_UPDATE").is_some() {
        std::fs::write(&path, openapi_json()).expect("writes");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == openapi_json(), "openapi/v1.json is old: run `shardwise openapi > openapi/v1.json`");
}

#[test]
fn every_operation_is_described_whole() {
    let shown: BTreeSet<String> = examples().map(|(_, e)| e.operation).collect();
    let mut ids = BTreeSet::new();
    for (id, operation) in operations() {
        assert!(ids.insert(id.clone()), "{id} is there twice");
        assert!(shown.contains(&id), "{id} has no example in openapi/examples");
        assert!(operation["summary"].is_string(), "{id} has no summary");
        assert!(operation["tags"].is_array(), "{id} has no tag");
    }
    assert_eq!(shown, ids, "examples of operations that are not there");
    assert_eq!(document()["openapi"], "3.1.0");
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(target)) = object.get("$ref") {
                    let place = target.strip_prefix('#').expect("a local reference");
                    assert!(document.pointer(place).is_some(), "{target} leads nowhere");
                }
                open.extend(object.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

/// Whether an answer holds what an example shows of it.
fn holds(example: &Value, answer: &Value, place: &str) -> Result<(), String> {
    match (example, answer) {
        (Value::String(any), _) if any == "…" => Ok(()),
        (Value::Object(example), Value::Object(answer)) => example.iter().try_for_each(|(key, value)| {
            let place = format!("{place}/{key}");
            answer
                .get(key)
                .map_or_else(|| Err(format!("{place} is missing")), |answer| holds(value, answer, &place))
        }),
        (Value::Array(example), Value::Array(answer)) => {
            if answer.len() < example.len() || (example.is_empty() && !answer.is_empty()) {
                return Err(format!("{place} has {} items, expected {}", answer.len(), example.len()));
            }
            let mut pairs = example.iter().zip(answer).enumerate();
            pairs.try_for_each(|(i, (e, a))| holds(e, a, &format!("{place}/{i}")))
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => Ok(()),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{place} is {b}, expected {a}")),
    }
}

#[tokio::test]
async fn every_example_can_be_replayed() {
    let api = api::Api::start().await;
    let mut faults = Vec::new();
    for (name, example) in examples() {
        let reply = api.call(&example.method, &example.path, example.request.as_ref()).await;
        if reply.status != example.status {
            faults.push(format!(
                "{name}: status {}, expected {}: {}",
                reply.status,
                example.status,
                reply.text()
            ));
        } else if let Some(response) = &example.response {
            faults.extend(holds(response, &reply.json(), "").err().map(|fault| format!("{name}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
