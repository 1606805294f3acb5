//! The dashboard's address of an answer: the question as its query string, as `src/dashboard/assets/state.js` reads it.

use serde_json::Value;

use crate::service::questions::QuestionAnswer;

/// Keys of the dashboard's address with their place in a request, in the dashboard's order.
const KEYS: [(&str, &str); 12] = [
    ("model", "/model"),
    ("cluster", "/cluster"),
    ("context", "/workload/context_tokens"),
    ("users", "/workload/concurrency"),
    ("input", "/workload/input_tokens"),
    ("output", "/workload/output_tokens"),
    ("kv", "/engine/kv_cache_dtype"),
    ("engine", "/engine/name"),
    ("weights", "/model/weights"),
    ("ttft", "/slo/ttft_ms"),
    ("tpot", "/slo/tpot_ms"),
    ("objective", "/objective"),
];

/// The address of an answer under the dashboard's own; nothing for a question without a model or GPUs.
#[must_use]
pub fn of(base: &str, answer: &QuestionAnswer) -> Option<String> {
    let request = answer.request.as_ref()?;
    // the page would fill in a model or GPUs that nobody asked about
    request.get("model").and(request.get("cluster"))?;
    let echo = answer.plan.as_ref().map(|plan| &plan.plan.request.workload);
    // what the question left open is said too, so that the page counts what was counted here
    let counted = |key: &str| {
        let workload = echo?;
        Some(match key {
            "context" => workload.context_tokens,
            "users" => workload.concurrency,
            "input" => workload.input_tokens,
            "output" => workload.output_tokens,
            _ => return None,
        })
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (key, place) in KEYS {
        let given = match (key, request.pointer(place)) {
            ("model", Some(Value::Object(model))) => model.get("id"),
            (_, given) => given,
        };
        match given {
            Some(Value::String(text)) => _ = query.append_pair(key, text),
            Some(Value::Number(number)) => _ = query.append_pair(key, &number.to_string()),
            Some(object @ Value::Object(_)) if key == "cluster" => {
                query.append_pair(key, &object.to_string());
            }
            _ => {
                if let Some(tokens) = counted(key) {
                    query.append_pair(key, &tokens.to_string());
                }
            }
        }
    }
    if let Some(plan) = &answer.plan {
        query.append_pair("plan", &plan.plan_id);
    }
    Some(format!("{}/?{}", base.trim_end_matches('/'), query.finish()))
}
