//! The calibrated model: physics with constants fitted to measurements.
//!
//! A rank's work is summed over the ledger ([`work`]), timed pass by pass ([`step`]) with collectives by
//! topology ([`collective`]), and put under a load: prompts queue, and they stretch the decode of the
//! others ([`estimate`]). `docs/ACCURACY.md` says how near it comes to measurements that the fit never saw.

pub mod collective;
pub mod parameters;
pub mod range;
pub mod releases;
pub mod setting;
mod step;
pub mod work;

use collective::Algorithms;
use parameters::{Parameter as P, Values};
use range::Ranges;
use setting::{Arrival, EngineKind, Question, Statistic};
use step::Rates;

use super::StepCost;

/// Every fitted constant, with what is known of its errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Names the fit, e.g. the date of its data.
    pub version: String,
    /// Where the data come from.
    pub source: String,
    pub values: Values,
    pub algorithms: Algorithms,
    pub ranges: Ranges,
}

/// The times of a layout under a load, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// For each output token after the first, as load generators define it: (last - first) / (tokens - 1).
    pub tpot_s: f64,
    pub ttft_s: f64,
    /// One decode step without prompts in it.
    pub decode: StepCost,
    /// What prompts of other requests add to each output token.
    pub interference_s: f64,
    /// A whole prompt alone.
    pub prompt: StepCost,
}

/// Time a question.
///
/// Prompts and decode share the ranks. In a closed loop of `n` requests each request sees the prompts of
/// the `n - 1` others once: those that it queues behind make its first token late, the rest stretch its
/// decode.
///
/// ```text
/// queue = phi * (n - 1) / 2 * prompt                    phi: share of the clients that come together
/// TPOT  = step / tokens per step + ((n - 1) * prompt - queue) / output tokens
/// TTFT  = handling + prompt + queue + steps in progress (+ wait for a slot)
/// ```
#[must_use]
pub fn estimate(q: &Question<'_>, calibration: &Calibration) -> Times {
    let v = &calibration.values;
    let load = &q.load;
    let running = load.running.max(1.0);
    let rates = Rates::of(q.work, q.machine, &q.engine, v);
    let decode = step::decode(q, calibration, &rates, running);
    let step_s = decode.total_s();
    let input = load.input_tokens.max(1.0);
    let output = load.output_tokens.max(1.0);
    let chunk = q.engine.chunk_tokens.max(1.0);
    let launches = step::launches(q, v, &rates, input, chunk);
    let busy = step::prompt(q, calibration, &rates, input, 0.0, input.min(chunk));
    let prompt = step::with_launches(busy, launches);
    let alone = prompt.total_s();
    // prompts that share full chunks with others cost less; stages work on different ones at a time
    let packed = step::prompt(q, calibration, &rates, input, 0.0, chunk).total_s();
    let marginal = packed.min(alone) / q.stages.max(1.0);
    let phi = together(q, v);
    let others = (running - 1.0).max(0.0);
    let queue = phi * others / 2.0 * marginal;
    let speculative = if q.engine.draft_tokens > 0.0 { v.get(P::Acceptance) } else { 1.0 };
    let alone_decodes = load.disaggregated || load.arrival == Arrival::StaticBatch;
    let interference_s = if alone_decodes {
        0.0
    } else {
        // a step carries at most a chunk of prompts; SGLang runs several chunks before it decodes again
        let chunks = if q.engine.kind == EngineKind::Sglang { 3.0 } else { 1.0 };
        let most = marginal * (chunk / input) * chunks;
        v.get(P::Interference) * ((others * marginal - queue).max(0.0) / output).min(most)
    };
    let tpot_s = step_s / speculative + interference_s;
    let ttft_s = first_token(q, v, alone, queue, step_s, tpot_s);
    Times { tpot_s, ttft_s, decode, interference_s, prompt }
}

/// Share of the clients whose prompts queue together.
fn together(q: &Question<'_>, v: &Values) -> f64 {
    let phi = match q.load.arrival {
        Arrival::AllAtOnce => v.get(P::BurstAll),
        Arrival::ClosedLoopFixed => {
            let own = if q.engine.kind == EngineKind::Sglang { v.get(P::BurstFixedSglang) } else { 1.0 };
            v.get(P::BurstFixed) * own
        }
        Arrival::ClosedLoop => v.get(P::Burst),
        Arrival::StaticBatch => 0.0,
    };
    phi.min(1.2)
}

fn first_token(q: &Question<'_>, v: &Values, alone: f64, queue: f64, step_s: f64, tpot_s: f64) -> f64 {
    let load = &q.load;
    let engine = match q.engine.kind {
        EngineKind::Vllm => v.get(P::FirstVllm),
        EngineKind::Sglang => v.get(P::FirstSglang),
        EngineKind::TensorRtLlm => v.get(P::FirstTrt),
        EngineKind::Other => 1.0,
    };
    let running = load.running.max(1.0);
    let is_median = load.statistic == Statistic::Median;
    let queue = if is_median && load.arrival != Arrival::AllAtOnce { queue * v.get(P::BurstMedian) } else { queue };
    let cold = if is_median { 0.0 } else { v.get(P::ColdStart) };
    let in_progress = v.get(P::FirstSteps) * step_s * (1.0 - 1.0 / running);
    let half = if load.arrival == Arrival::AllAtOnce { 0.5 } else { 1.0 };
    let slot = v.get(P::SlotWait) * half * (load.waiting.max(0.0) / running) * load.output_tokens * tpot_s;
    let busy = v.get(P::FirstToken) * engine + alone + queue + in_progress + cold + slot;
    if load.disaggregated { busy * v.get(P::DisaggregatedFirst) } else { busy }
}
