//! The calibrated model: physics with constants fitted to measurements.
//!
//! A rank's work is summed over the ledger ([`work`]), timed pass by pass ([`step`]) with collectives by
//! topology ([`collective`]), and put under a load: prompts queue, and they stretch the decode of the
//! others ([`estimate`]). `docs/ACCURACY.md` says how near it comes to measurements that the fit never saw.

pub mod collective;
pub mod layout;
pub mod parameters;
pub mod range;
pub mod releases;
pub mod setting;
mod step;
pub mod work;

use collective::Algorithms;
use parameters::{Parameter as P, Values};
use range::Ranges;
use setting::{Arrival, EngineKind, Generation, Question, Statistic};
use step::{Paths, Steady};

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
    let q = &Question { load: bounded(q.load), ..q.clone() };
    let steady = Steady::of(q.work, q.machine, &q.engine, &q.load, &calibration.values);
    let (experts, stages) = (q.expert_wire.as_ref(), q.stage_wire.as_ref());
    let paths = Paths::of(&q.tensor_wire, experts, stages, &q.engine, &calibration.algorithms);
    times(q, &calibration.values, &steady, &paths)
}

/// [`estimate`] for a load within bounds, with what several questions share.
fn times(q: &Question<'_>, v: &Values, steady: &Steady, paths: &Paths) -> Times {
    let load = &q.load;
    let running = load.running;
    let decode = step::decode(q, steady, paths, v, running);
    let step_s = decode.total_s();
    let (input, output) = (load.input_tokens, load.output_tokens);
    let chunk = q.engine.chunk_tokens.max(1.0);
    let launches = step::launches(q.work, steady, v, input, chunk);
    let (busy, packed) = step::prompt(q, steady, paths, v);
    let prompt = step::with_launches(busy, launches);
    let alone = prompt.total_s();
    // prompts that share full chunks with others cost less; stages work on different ones at a time
    let marginal = packed.total_s().min(alone) / q.stages.max(1.0);
    let others = (running - 1.0).max(0.0);
    let prompts = others * marginal;
    let phi = together(q, v, prompts / (prompts + output * step_s).max(f64::MIN_POSITIVE));
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

/// A load within numbers that times can be made of: at least one sequence and token, at most a million million.
fn bounded(load: setting::Load) -> setting::Load {
    const MOST: f64 = 1e12;
    let within = |x: f64, least: f64| x.max(least).min(MOST);
    setting::Load {
        running: within(load.running, 1.0),
        waiting: within(load.waiting, 0.0),
        input_tokens: within(load.input_tokens, 1.0),
        output_tokens: within(load.output_tokens, 1.0),
        context_tokens: within(load.context_tokens, 0.0),
        ..load
    }
}

/// Share of the clients whose prompts queue together. `crowding` is the share of prompts in the work of a cycle: the
/// more of it, the more clients are found waiting at once.
fn together(q: &Question<'_>, v: &Values, crowding: f64) -> f64 {
    let sglang = q.engine.kind == EngineKind::Sglang;
    let alone = match q.load.arrival {
        Arrival::AllAtOnce => return v.get(P::BurstAll).min(1.0),
        Arrival::StaticBatch => return 0.0,
        Arrival::ClosedLoop => v.get(P::Burst),
        Arrival::ClosedLoopFixed => {
            v.get(P::BurstFixed) * if sglang { v.get(P::BurstFixedSglang) } else { 1.0 }
        }
    }
    .min(1.0);
    let crowd = v.get(if sglang { P::CrowdSglang } else { P::Crowd }).min(1.0);
    alone + (1.0 - alone) * crowd * crowding
}

fn first_token(q: &Question<'_>, v: &Values, alone: f64, queue: f64, step_s: f64, tpot_s: f64) -> f64 {
    let load = &q.load;
    if load.arrival == Arrival::StaticBatch {
        return alone;
    }
    let engine = match q.engine.kind {
        EngineKind::Vllm => v.get(P::FirstVllm),
        EngineKind::Sglang => v.get(P::FirstSglang),
        EngineKind::TensorRtLlm => v.get(P::FirstTrt),
        EngineKind::Other => 1.0,
    };
    let running = load.running.max(1.0);
    let is_median = load.statistic == Statistic::Median;
    let queue =
        if is_median && load.arrival != Arrival::AllAtOnce { queue * v.get(P::BurstMedian) } else { queue };
    let cold = if is_median { 0.0 } else { v.get(P::ColdStart) };
    let polls_rarely = q.engine.kind == EngineKind::Sglang && q.machine.generation == Generation::Blackwell;
    let steps = v.get(P::FirstSteps) * if polls_rarely { v.get(P::FirstStepsSglangBlackwell) } else { 1.0 };
    let groups = if q.attention_groups > 1.0 { v.get(P::FirstGroups) } else { 1.0 };
    let in_progress = steps * step_s * (1.0 - 1.0 / running);
    let half = if load.arrival == Arrival::AllAtOnce { 0.5 } else { 1.0 };
    let slot = v.get(P::SlotWait) * half * (load.waiting.max(0.0) / running) * load.output_tokens * tpot_s;
    let handling = if load.arrival == Arrival::AllAtOnce {
        v.get(P::RequestBurst) / 2.0 * running * q.attention_groups.max(1.0)
    } else {
        0.0
    };
    handling + groups * (v.get(P::FirstToken) * engine + alone + queue) + in_progress + cold + slot
}
