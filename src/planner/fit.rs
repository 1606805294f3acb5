//! One model on one cluster in a row: does it fit, how, how much does it hold, and what is the least that holds it.

use serde::Serialize;
use utoipa::ToSchema;

use super::candidate::whole;
use super::input::PlanInput;
use super::plan::Layout;
use super::replica::Ground;
use super::search::{Found, Ranked, search};
use super::show::sizes;
use super::smallest::smallest;
use super::units::{Bytes, Tokens};

/// A row of "what fits".
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Fit {
    /// True when a layout holds at least one sequence of the asked context.
    pub fits: bool,
    /// The best layout under the request's objective.
    pub best: Option<BestFit>,
    /// The fewest GPUs of this product, on any number of nodes, that hold weights and one sequence of the
    /// asked context; null when none up to 1,024 does.
    pub smallest_gpus: Option<u64>,
    /// That replica's TP and PP.
    pub smallest_tp: Option<u64>,
    pub smallest_pp: Option<u64>,
    /// Why it does not fit.
    pub why_not: Option<WhyNotFit>,
}

/// The best layout in brief.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BestFit {
    pub layout: Layout,
    pub replication_factor: f64,
    /// Weights on the fullest GPU.
    pub weights_bytes_per_gpu: u64,
    pub kv_tokens_per_replica: u64,
    pub kv_tokens_total: u64,
    /// The longest single sequence.
    pub max_sequence_tokens: u64,
    pub sequences: Vec<SequencesAt>,
    pub ttft_ms: f64,
    pub tpot_ms: f64,
    pub output_tokens_per_s: f64,
    pub output_tokens_per_s_per_gpu: f64,
    /// Sequences decoded at once for these times.
    pub concurrency: u64,
    pub usd_per_hour: Option<f64>,
    pub meets_slo: bool,
}

/// Whole sequences of a length over the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct SequencesAt {
    pub context_tokens: u64,
    /// Null where the model does not go so far.
    pub sequences: Option<u64>,
}

/// Why a model does not fit: the refusal that missed by the fewest bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhyNotFit {
    pub code: String,
    pub message: String,
    /// Bytes missing on the tightest GPU, when memory is the reason.
    pub short_by_bytes: Option<u64>,
}

/// One model on the cluster of `input`, with sequences counted at each of `contexts`.
#[must_use]
pub fn fit(input: &PlanInput, contexts: &[u64]) -> Fit {
    let found = search(input);
    let best = found.ranked.first();
    let fits = best.is_some_and(|b| b.candidate.standing.serves);
    let small = if fits { found.smallest_that_serves() } else { smallest(input) };
    Fit {
        fits,
        best: best
            .and_then(|ranked| Some(best_fit(input, found.grounds.get(ranked.ground)?, ranked, contexts))),
        smallest_gpus: small.map(|s| s.gpus()),
        smallest_tp: small.map(|s| s.tp),
        smallest_pp: small.map(|s| s.pp),
        why_not: if fits { None } else { why_not(&found, best) },
    }
}

fn best_fit(input: &PlanInput, ground: &Ground<'_>, ranked: &Ranked, contexts: &[u64]) -> BestFit {
    let candidate = &ranked.candidate;
    let replica = &candidate.replica;
    let at = |context: u64| {
        let one = whole(replica.cache.sequences_at(replica.capacity.blocks, Tokens(context)));
        (context <= input.model.context_length.max(1)).then(|| one.saturating_mul(candidate.caches()))
    };
    BestFit {
        layout: sizes(ground, candidate),
        replication_factor: replica.cache.replication_factor,
        weights_bytes_per_gpu: replica.weights.iter().map(|w| w.bytes).max().unwrap_or(Bytes::ZERO).get(),
        kv_tokens_per_replica: replica.capacity.tokens.get(),
        kv_tokens_total: candidate.standing.kv_tokens_total,
        max_sequence_tokens: ground.longest_of_model(replica).get(),
        sequences: contexts
            .iter()
            .map(|&context_tokens| SequencesAt { context_tokens, sequences: at(context_tokens) })
            .collect(),
        ttft_ms: candidate.standing.ttft_s * 1e3,
        tpot_ms: candidate.standing.tpot_s * 1e3,
        output_tokens_per_s: candidate.tokens_per_s,
        output_tokens_per_s_per_gpu: candidate.tokens_per_s / candidate.gpus().max(1) as f64,
        concurrency: candidate.concurrency,
        usd_per_hour: candidate.standing.usd_per_hour,
        meets_slo: candidate.standing.meets_slo,
    }
}

/// The refusal nearest to a fit; a layout that starts but holds no sequence of the context has its own words.
pub(super) fn why_not(found: &Found<'_>, best: Option<&Ranked>) -> Option<WhyNotFit> {
    if let Some(best) = best {
        return Some(WhyNotFit {
            code: "context_does_not_fit".to_owned(),
            message: format!(
                "It starts, but the longest sequence that fits is {}.",
                best.candidate.replica.longest
            ),
            short_by_bytes: None,
        });
    }
    found.nearest_miss().or(found.refused.first()).map(|refused| {
        let misfit = found.in_words(refused);
        WhyNotFit {
            code: misfit.refusal.code.as_str().to_owned(),
            message: misfit.refusal.message,
            short_by_bytes: misfit.short_by.map(Bytes::get),
        }
    })
}
