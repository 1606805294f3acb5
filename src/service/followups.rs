//! What people ask next: the same question with one thing changed. Faces offer these; they do not make them.

use serde_json::{Map, Value};

use super::questions::QuestionAnswer;
use crate::planner::answer::short_context;

/// A question that follows from an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowUp {
    /// `kv_fp8` or `more_context`.
    pub name: &'static str,
    /// What it does, for people.
    pub label: String,
    /// As [`QuestionAnswer::kind`].
    pub kind: String,
    /// As [`QuestionAnswer::request`], with the change in it.
    pub request: Value,
}

/// The questions that follow from an answer: an fp8 cache where it is wider, and twice the context where the model
/// takes more.
#[must_use]
pub fn follow_ups(answer: &QuestionAnswer) -> Vec<FollowUp> {
    let Some(request) = &answer.request else { return Vec::new() };
    let changed = |name, label: String, section: &str, field: &str, value: Value| {
        let mut request = request.clone();
        let inside = request.as_object_mut()?.entry(section).or_insert_with(|| Value::Object(Map::new()));
        inside.as_object_mut()?.insert(field.to_owned(), value);
        Some(FollowUp { name, label, kind: answer.kind.clone(), request })
    };
    let fp8 = || changed("kv_fp8", "fp8 KV cache".to_owned(), "engine", "kv_cache_dtype", Value::from("fp8"));
    let longer = |tokens: u64| {
        let label = format!("{} context", short_context(tokens));
        let mut next = changed("more_context", label, "workload", "context_tokens", Value::from(tokens))?;
        // an engine that was started for less would refuse it
        if let Some(length) = next.request.pointer_mut("/engine/max_model_len")
            && length.as_u64().is_some_and(|length| length < tokens)
        {
            *length = Value::from(tokens);
        }
        Some(next)
    };
    let fp8 = if cache_is_wide(answer, request) { fp8() } else { None };
    fp8.into_iter().chain(more_context(answer, request).and_then(longer)).collect()
}

/// Whether the cache has more than eight bits, as far as the answer tells.
fn cache_is_wide(answer: &QuestionAnswer, request: &Value) -> bool {
    let narrow = |dtype: &str| !matches!(dtype, "bf16" | "fp16" | "fp32" | "auto" | "bfloat16" | "float16");
    let asked = request.pointer("/engine/kv_cache_dtype").and_then(Value::as_str);
    let best = answer.plan.as_ref().and_then(|plan| plan.plan.layouts.first());
    let found = best.map(|layout| layout.layout.kv_cache_dtype.as_str());
    !found.or(asked).is_some_and(narrow)
}

/// Twice the context, or what the model takes at most; nothing where it is there already or no model is known.
fn more_context(answer: &QuestionAnswer, request: &Value) -> Option<u64> {
    let asked = request.pointer("/workload/context_tokens").and_then(Value::as_u64);
    let (now, most) = match (&answer.plan, &answer.fits) {
        (Some(plan), _) => (plan.plan.request.workload.context_tokens, plan.plan.model.context_length),
        (None, Some(fits)) => (fits.context_tokens, fits.items.iter().map(|row| row.context_length).max()?),
        (None, None) => {
            let most = answer.sizing.as_ref()?;
            // a sizing does not say what the model takes: only a named length is doubled
            (asked.filter(|_| most.feasible)?, u64::MAX)
        }
    };
    let more = now.saturating_mul(2).min(most);
    (more > now && now > 0).then_some(more)
}

#[cfg(test)]
mod tests {
    use super::super::questions::ask_offline;
    use super::*;

    fn after(text: &str) -> Vec<(&'static str, Value)> {
        let answer = ask_offline(text).expect("an answer");
        follow_ups(&answer).into_iter().map(|f| (f.name, f.request)).collect()
    }

    #[test]
    fn what_follows_is_the_same_question_with_one_change() {
        let next = after("llama 3.1 70b on 16 H100 at 32k");
        let names: Vec<&str> = next.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["kv_fp8", "more_context"]);
        assert_eq!(next[0].1["engine"]["kv_cache_dtype"], "fp8");
        assert_eq!(next[0].1["workload"]["context_tokens"], 32_768);
        assert_eq!(next[0].1["engine"]["max_model_len"], 32_768);
        assert_eq!(next[1].1["workload"]["context_tokens"], 65_536);
        assert_eq!(next[1].1["engine"]["max_model_len"], 65_536);
        assert_eq!(next[1].1["cluster"], next[0].1["cluster"]);
    }

    #[test]
    fn nothing_is_offered_that_is_there_already() {
        assert!(after("llama 3.1 70b on 16 H100 at 128k with fp8 kv").is_empty());
        assert!(after("hello").is_empty());
    }
}
