//! The time of one pass: a decode step, or a chunk of a prompt.
//!
//! ```text
//! products   = ( (bytes / (share * HBM))^3 + (FLOPs / (share * peak * knees))^3 )^(1/3)   dense and experts apart
//! experts    = layers * routed * touched * slice,  touched = 1 - (1 - k/E)^(spread * tokens)
//! cache      = sequences * elements(context) * bytes / (share * HBM)
//! collectives= 2 a layer over the TP group, or an exchange with the experts' ranks
//! fixed      = layers * (cost of a layer by kind and format) + cost of a step + cost of a sequence * sequences
//! ```
//! The cubic mean is a smooth maximum: a product is bound by memory or by compute, and near the knee
//! by both. Knees: a product of `m` tokens and `n` features on the rank reaches
//! `1 / ((1 + M0/m)(1 + N0/n))` of its rate.

mod drafts;
mod fullest;

use drafts::drafted;
use fullest::Fullest;

use super::collective::{Algorithms, Collective, Kernel, Line, Wire};
use super::parameters::{Parameter as P, Values};
use super::setting::{Arrival, Engine, EngineKind, Generation, Load, Machine, Question};
use super::work::{ExpertWork, Format, RankWork};
use crate::planner::latency::StepCost;

/// Constants of one question, products of the fitted factors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// Bytes/s when dense weights are read.
    weights: f64,
    /// Bytes/s when expert weights are read, before the grain of a slice.
    experts: f64,
    kv: f64,
    /// FLOP/s of dense products, before knees.
    dense: f64,
    /// FLOP/s of the output head, which is 16-bit.
    head: f64,
    expert_flops: f64,
    attention: f64,
    latent: f64,
    /// Factor on fixed costs.
    cost: f64,
    /// Seconds of a sequence in a step.
    sequence: f64,
}

/// What all passes of one rank's work share, at any batch and on any number of stages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steady {
    rates: Rates,
    /// Products of a prompt that comes alone, in passes of its own length or of a chunk.
    alone: Products,
    /// The same if none of it were in the cache already.
    whole: Products,
    /// Products of a full chunk.
    packed: Products,
}

impl Steady {
    pub(super) fn of(work: &RankWork, machine: &Machine, engine: &Engine, load: &Load, v: &Values) -> Self {
        let rates = Rates::of(work, machine, engine, load.arrival, v);
        let chunk = engine.chunk_tokens.max(1.0);
        let pass = |size: f64| Products::of(work, &rates, size, size, true, v);
        let computed = pass(alone(load.computed_tokens(), chunk));
        let whole = if load.reused_tokens > 0.0 { pass(alone(load.input_tokens, chunk)) } else { computed };
        Self { rates, alone: computed, whole, packed: pass(chunk) }
    }

    /// For prompts of which nothing is in the cache already.
    pub(super) const fn without_reuse(self) -> Self {
        Self { alone: self.whole, ..self }
    }
}

/// Tokens of one pass of a prompt that comes alone.
fn alone(input: f64, chunk: f64) -> f64 {
    input.min(chunk).max(1.0)
}

/// The groups of a replica, with what may run over each.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    tensor: Collective,
    experts: Option<Collective>,
    stages: Option<Line>,
}

impl Paths {
    pub(super) fn of(
        tensor: &Wire,
        experts: Option<&Wire>,
        stages: Option<&Wire>,
        engine: &Engine,
        algorithms: &Algorithms,
    ) -> Self {
        let own = if engine.eager { Kernel::EngineEager } else { Kernel::Engine };
        let runs_own = tensor.kind.has_engine_kernels() && tensor.network.is_none();
        Self {
            tensor: algorithms.all_reduce(tensor, runs_own.then_some(own)),
            experts: experts.map(|wire| algorithms.exchange(wire)),
            stages: stages.map(|wire| algorithms.send(wire)),
        }
    }
}

/// `factor` where it applies.
fn when(applies: bool, factor: f64) -> f64 {
    if applies { factor } else { 1.0 }
}

/// The last year of releases that were measured: fixed costs are not taken to fall further.
const NEWEST_RELEASE: f64 = 2026.4;
/// The first.
const OLDEST_RELEASE: f64 = 2023.9;

impl Rates {
    fn of(work: &RankWork, machine: &Machine, engine: &Engine, arrival: Arrival, v: &Values) -> Self {
        let of = |p| v.get(p);
        let generation = machine.generation;
        let on = |g: Generation, p| when(generation == g, of(p));
        let is = |e: EngineKind, p| when(engine.kind == e, of(p));
        let hbm = machine.hbm_bytes_per_s;
        let four_bit = matches!(work.format, Format::Nvfp4);
        let compute = of(P::PrefillRate)
            * on(Generation::Blackwell, P::RateBlackwell)
            * on(Generation::Ampere, P::RateAmpere)
            * on(Generation::Amd, P::RateAmd)
            * is(EngineKind::Vllm, P::RateVllm)
            * is(EngineKind::Sglang, P::RateSglang)
            * is(EngineKind::TensorRtLlm, P::RateTrt)
            * is(EngineKind::Other, P::RateOther);
        let half = machine.half();
        let gain = peak_of(work.format, machine) / half;
        let dense_gain = gain.powf(of(P::FormatGain));
        let expert_gain = gain.powf(of(P::FormatGainExperts));
        Self {
            weights: of(P::WeightShare)
                * when(four_bit, of(P::WeightShareFp4))
                * on(Generation::Blackwell, P::WeightShareBlackwell)
                * on(Generation::Amd, P::WeightShareAmd)
                * hbm,
            experts: of(P::ExpertShare)
                * on(Generation::Blackwell, P::ExpertBlackwell)
                * on(Generation::Ampere, P::ExpertAmpere)
                * on(Generation::Amd, P::ExpertAmd)
                * is(EngineKind::Vllm, P::ExpertVllm)
                * is(EngineKind::Sglang, P::ExpertSglang)
                * is(EngineKind::TensorRtLlm, P::ExpertTrt)
                * hbm,
            kv: of(P::KvShare) * hbm,
            dense: compute * half * dense_gain,
            head: compute * half,
            expert_flops: compute * of(P::ExpertRate) * half * expert_gain,
            attention: of(P::AttentionRate) * half,
            latent: of(P::LatentRate) * half,
            cost: fixed_cost_factor(work, generation, engine, v),
            sequence: of(P::SequenceCost)
                * is(EngineKind::Sglang, P::SequenceSglang)
                * when(arrival == Arrival::AllAtOnce, of(P::SequenceBurst)),
        }
    }
}

/// How much an engine's fixed costs differ from the reference.
fn fixed_cost_factor(work: &RankWork, generation: Generation, engine: &Engine, v: &Values) -> f64 {
    let of = |p| v.get(p);
    let years = engine.released.clamp(OLDEST_RELEASE, NEWEST_RELEASE) - 2026.0;
    let blackwell = generation == Generation::Blackwell;
    let experts = work.experts.is_some();
    let own = match engine.kind {
        EngineKind::Vllm => {
            of(P::CostVllm)
                * when(blackwell, of(P::CostVllmBlackwell))
                * when(experts, of(P::CostVllmExperts))
        }
        EngineKind::Sglang => {
            of(P::CostSglang)
                * when(blackwell, of(P::CostSglangBlackwell))
                * when(experts, of(P::CostSglangExperts))
        }
        EngineKind::TensorRtLlm => {
            of(P::CostTrt) * when(blackwell, of(P::CostTrtBlackwell)) * when(experts, of(P::CostTrtExperts))
        }
        EngineKind::Other => of(P::CostOther),
    };
    own * of(P::YearGain).powf(-years)
        * when(blackwell, of(P::CostBlackwell))
        * when(generation == Generation::Ampere, of(P::CostAmpere))
        * when(generation == Generation::Amd, of(P::CostAmd))
        * when(work.format == Format::Mxfp4 && !blackwell, of(P::CostMxfp4))
        * when(work.format == Format::Mxfp4 && blackwell, of(P::CostMxfp4Blackwell))
        * when(
            work.format == Format::Mxfp4 && !blackwell && engine.kind == EngineKind::TensorRtLlm,
            of(P::CostTrtMxfp4),
        )
        * when(engine.eager, of(P::CostEager))
}

/// Peak rate in which products run: the format's own where the GPU has it.
fn peak_of(format: Format, machine: &Machine) -> f64 {
    match format {
        Format::Fp8 => machine.fp8(),
        Format::Nvfp4 => machine.fp4(),
        // mxfp4 weights meet 8-bit activations where the GPU has 4-bit products, and are unpacked to 16 bit elsewhere
        Format::Mxfp4 if machine.peak.fp4.is_some() => machine.fp8(),
        Format::Half | Format::PackedHalf | Format::Mxfp4 => machine.half(),
    }
}

/// A smooth maximum.
fn cubic_mean(a: f64, b: f64) -> f64 {
    (a.max(0.0).powi(3) + b.max(0.0).powi(3)).cbrt()
}

/// Dense products of a rank: (seconds, seconds that reading the weights alone takes).
fn dense(work: &RankWork, rates: &Rates, tokens: f64, chunk: Option<f64>, v: &Values) -> (f64, f64) {
    let read = work.dense_bytes / rates.weights;
    let knee = 1.0 + v.get(P::KneeWidth) / work.dense_width.max(1.0);
    let knee = knee * chunk.map_or(1.0, |m| 1.0 + v.get(P::KneeTokens) / m.max(1.0));
    let compute = 2.0 * work.dense_parameters * tokens / rates.dense * knee;
    (cubic_mean(read, compute), read)
}

/// Expert products of a rank for `tokens` tokens of the whole instance.
fn experts(work: &ExpertWork, rates: &Rates, tokens: f64, chunk: Option<f64>, v: &Values) -> (f64, f64) {
    let chosen = (work.per_token / work.routed.max(1.0)).min(1.0);
    let routings = v.get(P::ExpertSpread) * tokens.max(1.0).powf(v.get(P::ExpertPower));
    let touched = (1.0 - (1.0 - chosen).powf(routings)).max(chosen);
    // the fullest of n ranks decides: a mean of m experts is exceeded by sqrt(2 m ln n)
    let held = (work.routed / work.dealt).max(1.0);
    let excess = v.get(P::ExpertImbalance) * (2.0 * touched * work.dealt.max(1.0).ln() / held).sqrt();
    let touched = (touched + excess).min(1.0);
    let grain = work.slice_bytes / (work.slice_bytes + v.get(P::ExpertGrain));
    let read = work.bytes * touched / (rates.experts * grain).max(1.0);
    let knee = 1.0 + v.get(P::KneeExpertWidth) / work.width.max(1.0);
    let knee = knee * chunk.map_or(1.0, |m| 1.0 + v.get(P::KneeExpertTokens) / (m * chosen).max(0.01));
    let compute = 2.0 * work.active_parameters * tokens / rates.expert_flops * knee;
    (cubic_mean(read, compute), read)
}

/// Products of a pass: what reading takes, and what compute adds to it.
#[derive(Debug, Clone, Copy)]
struct Products {
    read: f64,
    compute: f64,
}

impl Products {
    fn of(work: &RankWork, rates: &Rates, own: f64, all: f64, is_prompt: bool, v: &Values) -> Self {
        let (dense_s, dense_read) = dense(work, rates, own, is_prompt.then_some(own), v);
        let (expert_s, expert_read) =
            work.experts.as_ref().map_or((0.0, 0.0), |e| experts(e, rates, all, is_prompt.then_some(all), v));
        let read = dense_read + expert_read;
        Self { read, compute: dense_s + expert_s - read }
    }
}

/// Bytes of an activation element on a link: 16-bit, as engines send them.
const ACTIVATION_BYTES: f64 = 2.0;

/// Token copies on the wire of an expert exchange, per element: dispatched in 8 bits, combined in 16.
const EXCHANGE_BYTES: f64 = 1.5;

/// What a pass sends, seconds.
#[derive(Debug, Clone, Copy)]
struct Sent {
    collectives: f64,
    /// Of those, over the network between nodes.
    network: f64,
    /// Between stages.
    hops: f64,
}

impl Sent {
    /// By a pass of `tokens` tokens in one attention group.
    fn of(q: &Question<'_>, paths: &Paths, v: &Values, tokens: f64) -> Self {
        let work = q.work;
        let bytes = tokens * work.hidden * ACTIVATION_BYTES;
        let (mut within, mut network) = (0.0, 0.0);
        let mut add = |times: f64, seconds: (f64, f64)| {
            within += times * seconds.0;
            network += times * seconds.1;
        };
        if paths.tensor.ranks > 1.0 {
            add(v.get(P::CollectiveScale) * 2.0 * work.layers, paths.tensor.seconds(bytes));
        }
        if let (Some(group), Some(e)) = (&paths.experts, &work.experts)
            && group.ranks > 1.0
        {
            let copies = e.per_token.min(group.ranks);
            let bytes = tokens * copies * work.hidden * EXCHANGE_BYTES;
            // there and back
            add(v.get(P::ExchangeScale) * 2.0 * e.layers, group.seconds(bytes));
        }
        Self { collectives: within + network, network, hops: hops(q, paths, tokens) }
    }
}

/// The sends between stages.
fn hops(q: &Question<'_>, paths: &Paths, tokens: f64) -> f64 {
    let bytes = tokens * q.work.hidden * ACTIVATION_BYTES;
    paths.stages.as_ref().map_or(0.0, |line| (q.stages - 1.0).max(0.0) * line.seconds(bytes))
}

/// Fixed cost of the layers of a pass.
fn layers_cost(work: &RankWork, rates: &Rates, v: &Values) -> f64 {
    let of = |p| v.get(p);
    let expert_layers = work.experts.as_ref().map_or(0.0, |e| e.layers);
    let (dense_format, expert_format) = match work.format {
        Format::Fp8 => (of(P::LayerFp8), of(P::LayerExpertFp8)),
        Format::Nvfp4 => (of(P::LayerFp4), of(P::LayerExpertFp4)),
        Format::Mxfp4 => (0.0, of(P::LayerExpertMx)),
        Format::Half | Format::PackedHalf => (0.0, 0.0),
    };
    rates.cost
        * (work.layers * (of(P::LayerCost) + dense_format)
            + expert_layers * (of(P::LayerExpert) + expert_format)
            + work.latent_layers * of(P::LayerLatent)
            + work.state_layers * of(P::LayerState)
            + work.sparse_tokens.map_or(0.0, |_| work.latent_layers * of(P::LayerSparse)))
}

/// One decode step of `running` sequences in each attention group.
pub(super) fn decode(q: &Question<'_>, steady: &Steady, paths: &Paths, v: &Values, running: f64) -> StepCost {
    let (work, rates) = (q.work, &steady.rates);
    // with several stages the sequences are dealt over as many batches, each in one stage at a time
    let batch = (running / q.stages.max(1.0)).max(1.0_f64.min(running));
    let all = batch * (1.0 + q.engine.draft_tokens) * q.attention_groups.max(1.0);
    let fullest = Fullest::of(q, batch);
    let batch = fullest.sequences;
    let tokens = batch * (1.0 + q.engine.draft_tokens);
    let products = Products::of(work, rates, tokens, all, false, v);
    let kv_bytes = work.elements_read(q.load.context_tokens) * q.kv_element_bytes + 2.0 * work.state_bytes;
    let latent = if work.latent_layers > 0.0 {
        tokens * work.attention_flops(q.load.context_tokens) / rates.latent
    } else {
        0.0
    };
    let head = 2.0 * work.head_parameters * tokens / rates.head;
    let sent = Sent::of(q, paths, v, tokens);
    let verified = StepCost {
        weights_s: products.read,
        kv_s: fullest.cached * kv_bytes / rates.kv,
        compute_s: products.compute + latent + head,
        communication_s: sent.collectives,
        network_s: sent.network,
        pipeline_s: sent.hops,
        overhead_s: layers_cost(work, rates, v)
            + q.stages.max(1.0) * v.get(P::StepCost) * rates.cost
            + batch * q.stages.max(1.0) * rates.sequence,
    };
    match &q.drafter {
        Some(drafter) => verified.plus(&drafted(q, rates, paths, v, (drafter, batch))),
        None => verified,
    }
}

/// What of a prompt is computed: alone, and as its part of full chunks that it shares with other prompts. Seconds each.
pub(super) fn prompt(q: &Question<'_>, steady: &Steady, paths: &Paths, v: &Values) -> (StepCost, StepCost) {
    let tokens = q.load.computed_tokens();
    let behind = (tokens, q.load.input_tokens - tokens);
    let chunk = q.engine.chunk_tokens.max(1.0);
    let sent = Sent::of(q, paths, v, tokens);
    (
        passes(q.work, &steady.rates, steady.alone, alone(tokens, chunk), behind, sent),
        passes(q.work, &steady.rates, steady.packed, chunk, behind, sent),
    )
}

/// `tokens` prompt tokens behind `context` tokens, in passes of `size` tokens with these products. A pass larger than the
/// prompt is shared with other prompts: this one pays its part.
fn passes(
    work: &RankWork,
    rates: &Rates,
    products: Products,
    size: f64,
    (tokens, context): (f64, f64),
    sent: Sent,
) -> StepCost {
    let passes = tokens / size;
    // a token in the middle looks back on half of the prompt; latent attention is expanded
    let attention =
        tokens * work.attention_flops(context + tokens / 2.0) * work.prefill_width / rates.attention;
    StepCost {
        weights_s: products.read * passes,
        kv_s: 0.0,
        compute_s: products.compute * passes + attention,
        communication_s: sent.collectives,
        network_s: sent.network,
        pipeline_s: sent.hops,
        overhead_s: 0.0,
    }
}

/// The least time of a prompt: every pass launches its kernels one by one.
pub(super) fn launches(work: &RankWork, steady: &Steady, v: &Values, tokens: f64, chunk: f64) -> f64 {
    let routing = work.experts.as_ref().map_or(0.0, |e| e.layers);
    let one = work.layers * v.get(P::PromptLaunch)
        + routing * v.get(P::PromptExpert)
        + work.latent_layers * v.get(P::PromptLatent);
    (tokens / chunk).ceil().max(1.0) * one * steady.rates.cost
}

/// One full chunk behind the context of the load.
pub(super) fn chunk(q: &Question<'_>, steady: &Steady, paths: &Paths, v: &Values) -> StepCost {
    let tokens = q.engine.chunk_tokens.max(1.0);
    let sent = Sent::of(q, paths, v, tokens);
    let behind = (tokens, q.load.context_tokens);
    let cost = passes(q.work, &steady.rates, steady.packed, tokens, behind, sent);
    with_launches(cost, launches(q.work, steady, v, tokens, tokens))
}

/// A pass cannot be faster than its launches: the rest of a smooth maximum goes to overhead.
pub(super) fn with_launches(mut cost: StepCost, launches: f64) -> StepCost {
    let busy = cost.total_s();
    cost.overhead_s += cubic_mean(busy, launches) - busy;
    cost
}
