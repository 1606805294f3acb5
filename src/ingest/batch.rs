//! The JSON of `POST /v1/batches`: many questions at once, listed one by one or as models times clusters.

use serde_json::{Map, Value};

use super::fields::{Fields, wrong_type};
use super::request::PlanRequest;
use super::{FieldError, Pointer};

/// Questions in a list at most.
pub const MAX_ITEMS: usize = 100;
/// Models, or clusters, of a matrix at most.
const MAX_SIDE: usize = 100;
/// Questions of a matrix at most.
const MAX_CELLS: usize = 1_000;
/// Layouts of all answers together at most: each is some kilobytes of the answer.
const MAX_LAYOUTS: u64 = 5_000;
/// Layouts of each answer when nothing is said.
const DEFAULT_LIMIT: u64 = 1;

/// Many questions; a faulty one does not stop the others.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRequest {
    pub items: Vec<Item>,
}

/// One question of many.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its model and cluster as they came, for the answer's rows.
    pub model: Value,
    pub cluster: Value,
    /// The question, or what is wrong with it.
    pub request: Result<PlanRequest, Vec<FieldError>>,
}

impl BatchRequest {
    /// Read a request.
    ///
    /// # Errors
    /// The faults of the whole; those of one question stand with it.
    pub fn read(value: &Value) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let items = Fields::of(value, Pointer::root(), &mut faults).and_then(|mut fields| {
            let items = match (fields.has("items"), fields.has("models") || fields.has("clusters")) {
                (true, true) => {
                    fields.raw("items");
                    fields.refuse("items", "conflict", "give `items`, or `models` and `clusters`, not both");
                    None
                }
                (_, true) => matrix(&mut fields, value),
                _ => listed(&mut fields),
            };
            // with a matrix every other field belongs to its questions, and each question refuses what it does not know
            if !fields.has("models") && !fields.has("clusters") {
                fields.finish();
            }
            items
        });
        match items {
            Some(items) if faults.is_empty() => Ok(Self { items }),
            _ => Err(faults),
        }
    }
}

fn listed(fields: &mut Fields<'_, '_>) -> Option<Vec<Item>> {
    fields.required("items")?;
    let items = side(fields, "items", MAX_ITEMS)?;
    let limit = |item: &Value| item.get("limit").and_then(Value::as_u64).unwrap_or(DEFAULT_LIMIT);
    if !few_layouts(fields, "items", items.iter().map(limit).fold(0, u64::saturating_add)) {
        return None;
    }
    Some(items.iter().map(|item| question(&with_limit(item))).collect())
}

/// Whether all the answers together stay within [`MAX_LAYOUTS`]; otherwise `name` is refused.
fn few_layouts(fields: &mut Fields<'_, '_>, name: &'static str, asked: u64) -> bool {
    let few = asked <= MAX_LAYOUTS;
    if !few {
        let detail = format!(
            "at most {MAX_LAYOUTS} layouts over all questions (questions times `limit`), got {asked}"
        );
        fields.push(FieldError::at(&fields.place_of(name), "out_of_range", detail));
    }
    few
}

/// Every model on every cluster, models outermost; the other fields hold for each.
fn matrix(fields: &mut Fields<'_, '_>, whole: &Value) -> Option<Vec<Item>> {
    let (models, clusters) = (fields.required("models"), fields.required("clusters"));
    models.and(clusters)?;
    let (models, clusters) = (side(fields, "models", MAX_SIDE), side(fields, "clusters", MAX_SIDE));
    let (models, clusters) = (models?, clusters?);
    let cells = models.len().saturating_mul(clusters.len());
    if cells > MAX_CELLS {
        fields.refuse("models", "out_of_range", format!("at most {MAX_CELLS} questions, got {cells}"));
        return None;
    }
    let limit = fields.raw("limit").and_then(Value::as_u64).unwrap_or(DEFAULT_LIMIT);
    if !few_layouts(fields, "limit", (cells as u64).saturating_mul(limit)) {
        return None;
    }
    let mut shared = whole.as_object().cloned().unwrap_or_default();
    shared.retain(|key, _| !matches!(key.as_str(), "models" | "clusters"));
    let mut items = Vec::with_capacity(cells);
    for model in models {
        for cluster in clusters {
            let mut cell = Map::new();
            cell.insert("model".to_owned(), model.clone());
            cell.insert("cluster".to_owned(), cluster.clone());
            cell.extend(shared.clone());
            items.push(question(&with_limit(&Value::Object(cell))));
        }
    }
    Some(items)
}

fn side<'v>(fields: &mut Fields<'v, '_>, name: &'static str, most: usize) -> Option<&'v [Value]> {
    let value = fields.raw(name)?;
    let place = fields.place_of(name);
    match value {
        Value::Array(items) if !items.is_empty() && items.len() <= most => Some(items),
        Value::Array(items) => {
            let detail = format!("expected 1 to {most} entries, got {}", items.len());
            fields.push(FieldError::at(&place, "out_of_range", detail));
            None
        }
        other => {
            fields.push(wrong_type(&place, other, "an array"));
            None
        }
    }
}

/// A batch shows the best layout of each question unless more are asked for.
fn with_limit(item: &Value) -> Value {
    let mut item = item.clone();
    if let Value::Object(object) = &mut item {
        object.entry("limit").or_insert_with(|| Value::from(DEFAULT_LIMIT));
    }
    item
}

fn question(item: &Value) -> Item {
    let part = |name: &str| item.get(name).cloned().unwrap_or(Value::Null);
    Item { model: part("model"), cluster: part("cluster"), request: PlanRequest::read(item) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_matrix_is_every_model_on_every_cluster() {
        let batch = BatchRequest::read(&json!({
            "models": ["a", "b", 3], "clusters": ["8 H100", "16 H100"], "workload": {"context_tokens": 4096}
        }))
        .expect("valid");
        let cells: Vec<_> = batch.items.iter().map(|i| (i.model.clone(), i.cluster.clone())).collect();
        assert_eq!(cells.len(), 6);
        assert_eq!(cells[1], (json!("a"), json!("16 H100")));
        let first = batch.items[0].request.as_ref().expect("valid");
        assert_eq!((first.limit, first.workload.context_tokens), (1, Some(4096)));
        let faulty = batch.items[5].request.as_ref().expect_err("3 is no model");
        assert_eq!(faulty[0].pointer, "#/model");
    }

    #[test]
    fn a_faulty_question_does_not_stop_the_others() {
        let batch = BatchRequest::read(&json!({"items": [
            {"model": "a", "cluster": "8 H100", "limit": 3}, {"model": "a"}, 7
        ]}))
        .expect("valid");
        assert_eq!(batch.items[0].request.as_ref().map(|r| r.limit), Ok(3));
        assert!(batch.items[1].request.is_err() && batch.items[2].request.is_err());
    }

    #[test]
    fn bounds_hold() {
        let faults = |value: Value| -> Vec<(String, &'static str)> {
            BatchRequest::read(&value).expect_err("faulty").into_iter().map(|f| (f.pointer, f.code)).collect()
        };
        let many = vec![json!("m"); 101];
        assert_eq!(faults(json!({})), [("#/items".to_owned(), "missing")]);
        assert_eq!(faults(json!({"items": &many})), [("#/items".to_owned(), "out_of_range")]);
        assert_eq!(faults(json!({"items": [1], "x": 1})), [("#/x".to_owned(), "unknown_field")]);
        assert_eq!(faults(json!({"models": ["m"]})), [("#/clusters".to_owned(), "missing")]);
        assert_eq!(
            faults(json!({"models": &many[..100], "clusters": &many[..11]})),
            [("#/models".to_owned(), "out_of_range")]
        );
        assert_eq!(faults(json!({"models": [1], "clusters": [1], "items": [1]})).len(), 1);
        assert_eq!(
            faults(json!({"models": &many[..10], "clusters": &many[..100], "limit": 6})),
            [("#/limit".to_owned(), "out_of_range")]
        );
        let deep = vec![json!({"model": "m", "cluster": "8 H100", "limit": 1000}); 6];
        assert_eq!(faults(json!({"items": deep})), [("#/items".to_owned(), "out_of_range")]);
        let usual = json!({"models": &many[..20], "clusters": &many[..10]});
        assert_eq!(BatchRequest::read(&usual).map(|batch| batch.items.len()), Ok(200));
    }
}
