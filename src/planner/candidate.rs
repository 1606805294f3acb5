//! A replica multiplied over a pool, with its speed: what the ranking compares.

use std::sync::Arc;

use super::input::PlanInput;
use super::judge::Judge;
use super::latency::calibrated::layout::{Asked, Speed};
use super::latency::calibrated::parameters::Parameter;
use super::latency::load::stage_loads;
use super::latency::{Drafts, LatencyInput, Timing, roofline};
use super::layout::Shape;
use super::ranking::Standing;
use super::replica::{Ground, Replica};
use super::units::{Bytes, Tokens};

/// A layout that works.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Shared: a search keeps thousands of candidates, and several may multiply one replica.
    pub replica: Arc<Replica>,
    /// Independent replicas.
    pub dp: u64,
    pub idle_gpus: u64,
    /// Sequences of the asked context in one engine's cache, as a fraction.
    pub sequences_at_context: f64,
    /// Sequences decoded at once over the deployment.
    pub concurrency: u64,
    pub timing: Timing,
    pub all_reduces_per_pass: f64,
    pub tokens_per_s: f64,
    pub requests_per_s: f64,
    pub standing: Standing,
}

impl Candidate {
    /// GPUs in use.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.replica.shape.gpus().saturating_mul(self.dp)
    }

    /// Engine caches in the deployment: one for each replica and attention-DP group.
    #[must_use]
    pub fn caches(&self) -> u64 {
        self.dp.saturating_mul(self.replica.shape.attention_dp)
    }
}

impl Ground<'_> {
    /// The length at which sequences are counted.
    #[must_use]
    pub fn context(&self) -> Tokens {
        self.input.workload.context_tokens.map_or(self.settings.max_model_len, Tokens)
    }

    /// Tokens that a sequence holds, on average, while it decodes. The plain model is asked for a length alone and takes the
    /// counted one; the calibrated one knows the load, whose sequences hold the prompt and half of the answer.
    #[must_use]
    pub fn decode_context(&self) -> Tokens {
        let workload = &self.input.workload;
        if self.pace.is_some() {
            return workload.decode_context(self.settings.max_model_len);
        }
        workload.decode_context_tokens.map_or(self.context(), Tokens)
    }

    /// Tokens that a running sequence needs room for: what it holds while it decodes, and no less than a whole request.
    #[must_use]
    pub fn load_tokens(&self) -> Tokens {
        if self.pace.is_some() {
            self.decode_context().max(self.request_tokens())
        } else {
            self.decode_context()
        }
    }

    /// Multiply a replica `dp` times and time it under `asked` requests at once.
    #[must_use]
    pub fn candidate(&self, replica: impl Into<Arc<Replica>>, dp: u64, asked: u64) -> Candidate {
        let replica = replica.into();
        let mut judge = Judge::of(self);
        let speed = judge.speed(&replica);
        self.candidate_of(replica, speed.as_ref(), dp, asked)
    }

    /// [`Ground::candidate`] for a caller who keeps a [`Judge`] over shapes that share what timings rest on.
    #[must_use]
    pub fn candidate_of(
        &self,
        replica: Arc<Replica>,
        speed: Option<&Speed<'_>>,
        dp: u64,
        asked: u64,
    ) -> Candidate {
        let shape = replica.shape;
        let caches = dp.saturating_mul(shape.attention_dp).max(1);
        let sequences_at_context = replica.cache.sequences_at(replica.capacity.blocks, self.context());
        let room = self.places(&replica).0.saturating_mul(caches);
        let concurrency = asked.min(room).max(1);
        let all_reduces_per_pass = self.all_reduces_per_pass(&shape);
        let timing = self.timing_of(&replica, speed, caches, concurrency, asked);
        let tpot_s = timing.tpot_s;
        let tokens_per_s = concurrency as f64 / tpot_s;
        let request_s = timing.ttft_s + self.input.workload.output_tokens.saturating_sub(1) as f64 * tpot_s;
        let usd_per_hour = self.usd_per_gpu_hour().map(|usd| usd * (shape.gpus().saturating_mul(dp)) as f64);
        let standing = Standing {
            serves: sequences_at_context >= 1.0,
            meets_slo: meets(self.input, &timing),
            kv_tokens_total: replica.capacity.tokens.get().saturating_mul(caches),
            tokens_per_s,
            tpot_s,
            ttft_s: timing.ttft_s,
            usd_per_hour,
            gpus: shape.gpus().saturating_mul(dp),
            tp_crosses_nodes: replica.placed.tp.is_over_fabric(),
            shape,
            dp,
            engine: self.engine,
            pool: self.pool_index,
        };
        Candidate {
            dp,
            idle_gpus: self.pool.gpus().saturating_sub(standing.gpus),
            sequences_at_context,
            concurrency,
            all_reduces_per_pass,
            tokens_per_s,
            requests_per_s: concurrency as f64 / request_s,
            timing,
            standing,
            replica,
        }
    }

    /// How fast a replica is while `caches` engine caches hold `concurrency` sequences together, of `asked` that came.
    #[must_use]
    pub fn timing(&self, replica: &Replica, caches: u64, concurrency: u64, asked: u64) -> Timing {
        self.timing_of(replica, Judge::of(self).speed(replica).as_ref(), caches, concurrency, asked)
    }

    /// The calibrated model with `speed`, the plain one without.
    pub(super) fn timing_of(
        &self,
        replica: &Replica,
        speed: Option<&Speed<'_>>,
        caches: u64,
        concurrency: u64,
        asked: u64,
    ) -> Timing {
        if let Some((speed, pace)) = speed.zip(self.pace.as_ref()) {
            return pace.timing(replica, speed, Self::asked(caches, concurrency, asked));
        }
        let stages = stage_loads(&self.model, replica);
        let latency = LatencyInput {
            shape: &replica.shape,
            stages: &stages,
            hidden_size: self.model.hidden_size as f64,
            all_reduces_per_pass: self.all_reduces_per_pass(&replica.shape),
            batch: (concurrency as f64 / caches as f64).max(1.0),
            input_tokens: self.input.workload.input_tokens as f64,
            reused_tokens: self.input.workload.reused_tokens(&self.settings),
            context_tokens: self.decode_context().as_f64(),
            chunk_tokens: self.settings.max_num_batched_tokens as f64,
            drafts: self.drafts(&replica.shape),
        };
        roofline::estimate(&latency, &self.constants(replica))
    }

    /// The load of one cache: those that run, and those that came and do not.
    fn asked(caches: u64, concurrency: u64, asked: u64) -> Asked {
        let caches = caches.max(1) as f64;
        Asked {
            running: (concurrency as f64 / caches).max(1.0),
            waiting: asked.saturating_sub(concurrency) as f64 / caches,
        }
    }

    /// Chance that a draft token holds where those before it did: as given, else as fitted.
    #[must_use]
    pub fn acceptance(&self) -> f64 {
        let fitted = || self.input.calibration.values.get(Parameter::Acceptance).min(1.0);
        self.settings.speculation.acceptance_rate.unwrap_or_else(fitted)
    }

    /// Tokens of a request at its end.
    #[must_use]
    pub fn request_tokens(&self) -> Tokens {
        let workload = &self.input.workload;
        Tokens(workload.input_tokens.saturating_add(workload.output_tokens).max(1))
    }

    /// Sequences of the load that have room in one cache, and whether the cache is what stops more of them.
    #[must_use]
    pub fn places(&self, replica: &Replica) -> (u64, bool) {
        let held = whole(replica.cache.sequences_at(replica.capacity.blocks, self.load_tokens()));
        (held.min(self.settings.max_num_seqs), held < self.settings.max_num_seqs)
    }

    /// Speculative decoding as the plain model counts it; drafts hold as often as in the calibration where nothing else is said.
    fn drafts(&self, shape: &Shape) -> Drafts {
        Drafts {
            tokens: self.settings.num_speculative_tokens as f64,
            acceptance: self.acceptance(),
            weights_bytes: self.drafter(shape).map_or(0.0, |drafter| drafter.held().as_f64()),
        }
    }

    /// Two for each layer: after attention and after the feed-forward.
    fn all_reduces_per_pass(&self, shape: &Shape) -> f64 {
        if shape.tp > 1 { 2.0 * self.model.layers.len() as f64 } else { 0.0 }
    }

    /// Price of one GPU: the caller's, or the pool's.
    #[must_use]
    pub fn usd_per_gpu_hour(&self) -> Option<f64> {
        self.input.overrides.number("usd_per_gpu_hour").or(self.pool.usd_per_gpu_hour)
    }
}

fn meets(input: &PlanInput, timing: &Timing) -> bool {
    let within = |limit: Option<f64>, seconds: f64| limit.is_none_or(|ms| seconds * 1e3 <= ms);
    within(input.slo.ttft_ms, timing.ttft_s) && within(input.slo.tpot_ms, timing.tpot_s)
}

/// The whole part of a fraction of sequences.
#[must_use]
pub fn whole(sequences: f64) -> u64 {
    Bytes::from_f64(sequences).get()
}
