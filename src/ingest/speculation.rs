//! `engine.speculative_config`, as vLLM's flag of that name has it, with how often drafts hold.

use super::bounds;
use super::fields::Fields;
use crate::planner::speculation::{DraftMethod, Speculation};
use crate::planner::units::Bytes;

/// Methods that are known, for a refusal.
const METHODS: &str = "mtp, eagle, eagle3, draft_model, ngram (and the engines' other names for these)";

/// Draft tokens and what drafts them; the older `num_speculative_tokens` beside it says the number alone.
pub(super) fn read(engine: &mut Fields<'_, '_>) -> (u64, Speculation) {
    let alone = engine.whole("num_speculative_tokens", bounds::DRAFT_TOKENS);
    let Some(mut config) = engine.object("speculative_config") else {
        return (alone.unwrap_or(0), Speculation::default());
    };
    let drafts = config.whole("num_speculative_tokens", bounds::DRAFT_TOKENS);
    let method = method_of(&mut config);
    // the drafter's id is for people: its size is what counts
    let _ = config.text("model", bounds::NAME_CHARS);
    let speculation = Speculation {
        method,
        acceptance_rate: config.number("acceptance_rate", bounds::SHARE),
        draft_weights_bytes: config.whole("draft_weights_bytes", bounds::BYTES).map(Bytes),
    };
    if drafts.is_none() && alone.is_none() && !config.has("num_speculative_tokens") {
        config.refuse("num_speculative_tokens", "missing", "give the draft tokens of a step");
    }
    if method == Some(DraftMethod::DraftModel)
        && speculation.draft_weights_bytes.is_none()
        && !config.has("draft_weights_bytes")
    {
        config.refuse(
            "draft_weights_bytes",
            "missing",
            "a draft model's memory and time follow from its size: give the bytes of its weights",
        );
    }
    config.finish();
    if let (Some(one), Some(other)) = (alone, drafts)
        && one != other
    {
        engine.refuse(
            "num_speculative_tokens",
            "conflict",
            format!("`speculative_config` says {other} draft tokens, this {one}"),
        );
    }
    (drafts.or(alone).unwrap_or(0), speculation)
}

fn method_of(config: &mut Fields<'_, '_>) -> Option<DraftMethod> {
    let name = config.text("method", bounds::NAME_CHARS)?;
    let method = DraftMethod::of(name);
    if method.is_none() {
        config.refuse("method", "not_allowed", format!("known methods: {METHODS}"));
    }
    method
}
