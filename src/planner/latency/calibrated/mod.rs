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
use setting::{Arrival, EngineKind, Question, Statistic};
use step::{Paths, Steady};

use super::StepCost;
use crate::planner::speculation::tokens_per_step;

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
    /// What of a prompt is computed, alone.
    pub prompt: StepCost,
    /// Tokens of each sequence that a decode step gives: 1, more where drafts hold.
    pub tokens_per_step: f64,
    /// Part of the first token's time that waits for a place in the cache or the batch.
    pub slot_s: f64,
}

/// Time a question.
///
/// Prompts and decode share the ranks. In a closed loop of `n` requests each request sees the prompts of
/// the `n - 1` others once: those that it queues behind make its first token late, the rest stretch its
/// decode. How many it queues behind is [`Waits`].
///
/// ```text
/// TPOT  = step / tokens per step + ((n - 1) - mean wait) * prompt / output tokens
/// TTFT  = handling + prompt + wait * prompt + steps in progress (+ wait for a slot)
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
    let output = load.output_tokens;
    let chunk = q.engine.chunk_tokens.max(1.0);
    let (prompt, marginal) = prompt_of(q, v, steady, paths);
    let alone = prompt.total_s();
    let others = (running - 1.0).max(0.0);
    let prompts = others * marginal;
    let waits = Waits::of(q, v, others, prompts / (prompts + output * step_s).max(f64::MIN_POSITIVE));
    let acceptance = q.engine.acceptance.unwrap_or_else(|| v.get(P::Acceptance));
    let tokens_per_step = tokens_per_step(q.engine.draft_tokens, acceptance);
    let alone_decodes = load.disaggregated || load.arrival == Arrival::StaticBatch;
    let interference_s = if alone_decodes {
        0.0
    } else {
        // a step carries at most a chunk of prompts; SGLang runs several chunks before it decodes again
        let chunks = if q.engine.kind == EngineKind::Sglang { 3.0 } else { 1.0 };
        let most = whole_prompt_s(q, v, steady, paths, marginal) * (chunk / load.input_tokens) * chunks;
        v.get(P::Interference) * (marginal * (others - waits.mean).max(0.0) / output).min(most)
    };
    let tpot_s = step_s / tokens_per_step + interference_s;
    let slot_s = slot(q, v, tpot_s);
    let ttft_s = first_token(q, v, alone, waits.of_statistic(load) * marginal, step_s) + slot_s;
    Times { tpot_s, ttft_s, decode, interference_s, prompt, tokens_per_step, slot_s }
}

/// A prompt alone, and the seconds that it takes where it shares full chunks with others, which costs less; stages work on
/// different ones at a time.
fn prompt_of(q: &Question<'_>, v: &Values, steady: &Steady, paths: &Paths) -> (StepCost, f64) {
    let launches =
        step::launches(q.work, steady, v, q.load.computed_tokens(), q.engine.chunk_tokens.max(1.0));
    let (busy, packed) = step::prompt(q, steady, paths, v);
    let prompt = step::with_launches(busy, launches);
    let marginal = packed.total_s().min(prompt.total_s()) / q.stages.max(1.0);
    (prompt, marginal)
}

/// What a prompt would take of full chunks if all of it were computed: a chunk's time does not depend on what others reuse.
fn whole_prompt_s(q: &Question<'_>, v: &Values, steady: &Steady, paths: &Paths, marginal: f64) -> f64 {
    if q.load.reused_tokens <= 0.0 {
        return marginal;
    }
    let whole = Question { load: setting::Load { reused_tokens: 0.0, ..q.load }, ..q.clone() };
    prompt_of(&whole, v, &steady.without_reuse(), paths).1
}

/// A load within numbers that times can be made of: at least one sequence and token, at most a million million.
fn bounded(load: setting::Load) -> setting::Load {
    const MOST: f64 = 1e12;
    let within = |x: f64, least: f64| x.max(least).min(MOST);
    setting::Load {
        running: within(load.running, 1.0),
        waiting: within(load.waiting, 0.0),
        input_tokens: within(load.input_tokens, 1.0),
        reused_tokens: within(load.reused_tokens, 0.0),
        output_tokens: within(load.output_tokens, 1.0),
        context_tokens: within(load.context_tokens, 0.0),
        ..load
    }
}

/// Prompts of other requests that a request queues behind.
///
/// ```text
/// most   = (n - 1) / 2                         all come at once, in the mean
/// steady = k most / (k + most)                 k = steady_queue load^2 / (1 - load), load: share of prompts in a cycle
/// mean   = phi most + (1 - phi) steady         phi: share of the clients that come together
/// median = steady                              a start of all clients at once does not move it
/// ```
/// With equal lengths requests that started together come back together: `k` is then the prompts of a clump.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Waits {
    mean: f64,
    median: f64,
}

impl Waits {
    fn of(q: &Question<'_>, v: &Values, others: f64, load: f64) -> Self {
        let sglang = q.engine.kind == EngineKind::Sglang;
        let most = others / 2.0;
        let saturating = |k: f64| k * most / (k + most).max(f64::MIN_POSITIVE);
        let (together, steady) = match q.load.arrival {
            Arrival::StaticBatch => return Self { mean: 0.0, median: 0.0 },
            Arrival::AllAtOnce => (v.get(P::BurstAll), 0.0),
            Arrival::ClosedLoop => {
                let k = v.get(P::SteadyQueue) * load.powi(2) / (1.0 - load).max(1e-9);
                (v.get(P::Burst), saturating(k))
            }
            Arrival::ClosedLoopFixed if sglang => (v.get(P::BurstFixedSglang), 0.0),
            Arrival::ClosedLoopFixed => {
                let trt = q.engine.kind == EngineKind::TensorRtLlm;
                let k = v.get(P::Clump) * if trt { v.get(P::ClumpTrt) } else { 1.0 };
                (v.get(P::BurstFixed), saturating(k))
            }
        };
        let together = together.min(1.0);
        let mean = together * most + (1.0 - together) * steady;
        Self { mean, median: if q.load.arrival == Arrival::ClosedLoop { steady } else { mean } }
    }

    fn of_statistic(&self, load: &setting::Load) -> f64 {
        match load.statistic {
            Statistic::Mean => self.mean,
            Statistic::Median => self.median,
        }
    }
}

/// The wait for a place when more requests come than run.
fn slot(q: &Question<'_>, v: &Values, tpot_s: f64) -> f64 {
    let load = &q.load;
    let half = match load.arrival {
        Arrival::StaticBatch => return 0.0,
        Arrival::AllAtOnce => 0.5,
        Arrival::ClosedLoop | Arrival::ClosedLoopFixed => 1.0,
    };
    let turns = load.waiting.max(0.0) / load.running.max(1.0);
    v.get(P::SlotWait) * half * turns * load.output_tokens * tpot_s
}

fn first_token(q: &Question<'_>, v: &Values, alone: f64, queue: f64, step_s: f64) -> f64 {
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
    let base = v.get(P::FirstToken) * engine + v.get(P::PromptToken) * load.input_tokens;
    let running = load.running.max(1.0);
    let all_at_once = load.arrival == Arrival::AllAtOnce;
    let cold = match (load.statistic, q.engine.kind) {
        (Statistic::Median, _) => 0.0,
        (Statistic::Mean, EngineKind::Sglang) => v.get(P::ColdStart) * v.get(P::ColdSglang),
        (Statistic::Mean, _) => v.get(P::ColdStart),
    };
    let groups = match q.engine.kind {
        _ if q.attention_groups <= 1.0 => 0.0,
        EngineKind::TensorRtLlm => v.get(P::FirstGroupStepsTrt),
        _ => v.get(P::FirstGroupSteps),
    };
    let polls = v.get(P::PollShare) * (q.engine.poll_steps - 1.0).max(0.0);
    let in_progress = (v.get(P::FirstSteps) + polls + groups) * step_s * (1.0 - 1.0 / running);
    let handling =
        if all_at_once { v.get(P::RequestBurst) / 2.0 * running * q.attention_groups.max(1.0) } else { 0.0 };
    handling + base + alone + queue + in_progress + cold
}
