//! Speculative decoding: what drafts tokens, how many of them hold, and what drafting takes.
//!
//! Symbols: `k` draft tokens of a step, `a` the chance that one holds where those before it did, `D` hidden size, `T` TP.
//!
//! ```text
//! tokens of a step = 1 + a + a^2 + … + a^k
//! ```
//! Source: Leviathan et al. 2023 (arXiv 2211.17192), equation 1: drafts are tried in order until the first that is refused,
//! and the verifying pass always gives one token of its own.

use serde::Serialize;
use utoipa::ToSchema;

use super::engine::{Item, ResolvedSettings};
use super::layout::Shape;
use super::model::ModelSpec;
use super::model::cache::LayerCache;
use super::model::ledger::Role;
use super::replica::Ground;
use super::units::Bytes;

/// What drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DraftMethod {
    /// The checkpoint's own prediction layer, run once for each draft token.
    Mtp,
    /// One layer of features trained on the model (EAGLE, EAGLE-2), with the model's output head.
    Eagle,
    /// The same with three layers' features and a head of its own over fewer words (EAGLE-3).
    Eagle3,
    /// A small model of the same vocabulary.
    DraftModel,
    /// Words found earlier in the text; nothing is computed.
    Ngram,
}

impl DraftMethod {
    /// The name in requests and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mtp => "mtp",
            Self::Eagle => "eagle",
            Self::Eagle3 => "eagle3",
            Self::DraftModel => "draft_model",
            Self::Ngram => "ngram",
        }
    }

    /// By the names that engines use: vLLM's `method`, SGLang's `speculative_algorithm`, TensorRT-LLM's `decoding_type`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace('-', "_");
        match name.as_str() {
            "mtp" | "nextn" | "mtpeagle" => Some(Self::Mtp),
            "eagle" | "eagle2" => Some(Self::Eagle),
            "eagle3" => Some(Self::Eagle3),
            "draft_model" | "standalone" | "drafttarget" | "draft_target" => Some(Self::DraftModel),
            "ngram" | "suffix" => Some(Self::Ngram),
            // vLLM's older names: deepseek_mtp, qwen3_next_mtp, …
            other if other.ends_with("_mtp") => Some(Self::Mtp),
            _ => None,
        }
    }
}

/// How a caller speculates, apart from the number of draft tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Speculation {
    /// `None`: not named; then its weights, cache and passes are unknown and not counted.
    pub method: Option<DraftMethod>,
    /// Chance that a draft token holds where those before it did, 0..=1; `None`: the calibration's.
    pub acceptance_rate: Option<f64>,
    /// Weights of the drafter over all ranks; needed for a draft model, computed for the others.
    pub draft_weights_bytes: Option<Bytes>,
}

/// Tokens that a step gives with `drafts` draft tokens of which each holds with chance `acceptance`: 1 to `drafts + 1`.
#[must_use]
pub fn tokens_per_step(drafts: f64, acceptance: f64) -> f64 {
    let (drafts, acceptance) = (drafts.max(0.0), acceptance.clamp(0.0, 1.0));
    if acceptance > 1.0 - 1e-9 {
        return drafts + 1.0;
    }
    (1.0 - acceptance.powf(drafts + 1.0)) / (1.0 - acceptance)
}

/// What drafts, as one rank holds and runs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drafter {
    /// Decoder layers, each with a cache of its own.
    pub layers: f64,
    /// Weights of a rank apart from routed experts and the shared head, bytes, and the parameters behind them.
    pub dense_bytes: f64,
    pub dense_parameters: f64,
    /// Routed experts that a rank holds, bytes: those of one of the model's own layers, or none.
    pub expert_bytes: f64,
    /// Each draft token also passes the model's output head.
    pub shares_head: bool,
}

/// How far published drafters lie from the rule on their size.
const PUBLISHED_RANGE: (f64, f64) = (0.7, 1.5);
/// Bytes of an element of drafters that are published in 16 bit.
const HALF: f64 = 2.0;
/// Words of an EAGLE-3 head (`draft_vocab_size` of its published configurations).
const EAGLE3_WORDS: f64 = 32_000.0;
/// A small model's layers: Llama 3's grow with the cube root of their parameters, from 16 at 1.24e9 (its configurations).
const SMALL_LAYERS: f64 = 16.0;
const SMALL_PARAMETERS: f64 = 1.24e9;

impl Drafter {
    /// The drafter beside `model` on a rank of `shape`; `None` where nothing drafts, nothing is computed, or what does is not
    /// named.
    ///
    /// ```text
    /// mtp          the model's last layer, and 2 D^2 of a projection that every rank holds
    /// eagle        14 D^2 / T     (a dense layer of 12 D^2, a projection of 2 D^2)
    /// eagle3       16 D^2 / T + 32000 D / T
    /// draft_model  draft_weights_bytes / T
    /// ```
    /// Sources: vLLM `models/deepseek_mtp.py` (`eh_proj`), the published EAGLE weights (0.25e9 parameters for 8B, 0.99e9 for
    /// 70B), `models/llama_eagle3.py`.
    #[must_use]
    pub fn of(model: &ModelSpec, shape: &Shape, settings: &ResolvedSettings) -> Option<Self> {
        let method = settings.speculation.method.filter(|_| settings.num_speculative_tokens > 0)?;
        Self::by(method, model, shape, settings.speculation.draft_weights_bytes)
    }

    /// The same by its method, with its weights where they are known.
    #[must_use]
    pub fn by(method: DraftMethod, model: &ModelSpec, shape: &Shape, weights: Option<Bytes>) -> Option<Self> {
        let (ranks, hidden) = (shape.tp.max(1) as f64, model.hidden_size as f64);
        let given = weights.map(|bytes| bytes.as_f64() / ranks);
        let half = |parameters: f64, shares_head: bool| Self {
            layers: 1.0,
            dense_bytes: given.unwrap_or(parameters * HALF),
            dense_parameters: given.map_or(parameters, |bytes| bytes / HALF),
            expert_bytes: 0.0,
            shares_head,
        };
        match method {
            DraftMethod::Ngram => None,
            DraftMethod::Eagle => Some(half(14.0 * hidden * hidden / ranks, true)),
            DraftMethod::Eagle3 => {
                Some(half((16.0 * hidden * hidden + EAGLE3_WORDS * hidden) / ranks, false))
            }
            DraftMethod::DraftModel => {
                let small = half(given? / HALF, false);
                let size = small.dense_parameters * ranks / SMALL_PARAMETERS;
                Some(Self { layers: (SMALL_LAYERS * size.cbrt()).round().max(1.0), ..small })
            }
            DraftMethod::Mtp => Some(Self::last_layer(model, shape, given)),
        }
    }

    fn last_layer(model: &ModelSpec, shape: &Shape, given: Option<f64>) -> Self {
        let projection = 2.0 * (model.hidden_size as f64).powi(2);
        let mut drafter = Self {
            layers: 1.0,
            dense_bytes: projection * HALF,
            dense_parameters: projection,
            expert_bytes: 0.0,
            shares_head: true,
        };
        let last = model.layers.last().and_then(|kind| model.kinds.get(*kind));
        for tensor in last.into_iter().flat_map(|kind| &kind.tensors) {
            let on_rank = tensor.on_rank(shape);
            if tensor.role == Role::RoutedExperts {
                drafter.expert_bytes += on_rank.bytes as f64;
            } else {
                drafter.dense_bytes += on_rank.bytes as f64;
                drafter.dense_parameters += on_rank.active_parameters as f64;
            }
        }
        if let Some(given) = given {
            let factor = given / (drafter.dense_bytes + drafter.expert_bytes).max(1.0);
            drafter.dense_bytes *= factor;
            drafter.expert_bytes *= factor;
        }
        drafter
    }

    /// Weights of the drafter on a rank.
    #[must_use]
    pub fn held(&self) -> Bytes {
        Bytes::from_f64(self.dense_bytes + self.expert_bytes)
    }

    /// The same as an item of a GPU's memory.
    #[must_use]
    pub fn item(&self) -> Item {
        Item::fitted(
            self.held().as_f64(),
            PUBLISHED_RANGE,
            "weights of what drafts tokens: the model's last layer and a projection (mtp), 14 or 16 hidden^2 (eagle), or as given",
        )
    }

    /// Its layers over those of `stage` that cache by token: what a block of the stage's cache grows by.
    #[must_use]
    pub fn share_of_cache(&self, model: &ModelSpec, stage: &[usize]) -> f64 {
        let caches = |kind: &&usize| {
            let kind = model.kinds.get(**kind);
            kind.is_some_and(|k| k.caches.iter().any(|c| !matches!(c, LayerCache::State(_))))
        };
        let layers = stage.iter().filter(caches).count();
        if layers == 0 { 0.0 } else { self.layers / layers as f64 }
    }
}

impl Ground<'_> {
    /// What drafts tokens beside a replica of `shape`.
    #[must_use]
    pub fn drafter(&self, shape: &Shape) -> Option<Drafter> {
        Drafter::of(&self.model, shape, &self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gives_the_sum_of_the_powers() {
        for (drafts, acceptance, tokens) in [
            (0.0, 0.7, 1.0),
            (1.0, 0.85, 1.85),
            (3.0, 0.5, 1.875),
            (3.0, 0.0, 1.0),
            (4.0, 1.0, 5.0),
            (2.0, f64::NAN, 1.0),
        ] {
            let got = tokens_per_step(drafts, acceptance);
            assert!((got - tokens).abs() < 1e-9 || acceptance.is_nan(), "{drafts} at {acceptance}: {got}");
        }
    }

    #[test]
    fn engines_names_are_read() {
        for (name, method) in [
            ("deepseek_mtp", Some(DraftMethod::Mtp)),
            ("NEXTN", Some(DraftMethod::Mtp)),
            ("EAGLE3", Some(DraftMethod::Eagle3)),
            ("STANDALONE", Some(DraftMethod::DraftModel)),
            ("draft-model", Some(DraftMethod::DraftModel)),
            ("suffix", Some(DraftMethod::Ngram)),
            ("medusa", None),
        ] {
            assert_eq!(DraftMethod::of(name), method, "{name}");
        }
    }
}
