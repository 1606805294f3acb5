//! The calibrated model asked about one layout of a plan.

use super::collective::Wire;
use super::parameters::{Parameter as P, Values};
use super::releases::{UNKNOWN_RELEASE, released};
use super::setting::{Arrival, Engine, EngineKind, Load, Machine, Question, Statistic};
use super::work::RankWork;
use super::{Calibration, estimate, step};
use crate::planner::estimate::{Assumption, AssumptionValue};
use crate::planner::input::Overrides;
use crate::planner::latency::Timing;
use crate::planner::replica::{Ground, Replica};

/// How much load a layout gets.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Sequences that run at once in one attention-DP group of one replica.
    pub running: f64,
    /// Sequences of a group that find no slot.
    pub waiting: f64,
}

impl Ground<'_> {
    /// Time a replica with the calibrated model.
    ///
    /// TTFT is that of the typical request in a closed loop of clients with varied lengths. TPOT is
    /// (last token - first token) / (tokens - 1), other requests' prompts included. `work` is that of the replica's shape.
    #[must_use]
    pub fn calibrated_timing(&self, replica: &Replica, work: &RankWork, asked: Asked) -> Timing {
        let changed = overridden(&self.input.calibration, &self.input.overrides);
        let calibration = changed.as_ref().unwrap_or(&self.input.calibration);
        let mut machine = Machine::of(&self.gpu);
        let given = |name| self.input.overrides.number(name);
        if let Some(rate) = given("hbm_bytes_per_s") {
            machine.hbm_bytes_per_s = rate.max(1.0);
        }
        machine.given_flops = given("peak_flops");
        let question = self.question(replica, work, &machine, asked);
        let times = estimate(&question, calibration);
        let range = calibration.ranges.of(&question);
        Timing {
            decode: times.decode,
            chunk: step::chunk(&question, calibration),
            tpot_s: times.tpot_s,
            ttft_s: times.ttft_s,
            ttft_range: (range.ttft.low, range.ttft.high),
            tpot_range: (range.tpot.low, range.tpot.high),
            basis: range.basis,
        }
    }

    /// The constants behind a calibrated timing, as the answer lists them: the fit, the rates that it works on, and the
    /// main shares of them. `data/calibration/latency.json` has them all.
    #[must_use]
    pub fn calibrated_assumptions(&self, replica: &Replica) -> Vec<Assumption> {
        let changed = overridden(&self.input.calibration, &self.input.overrides);
        let calibration = changed.as_ref().unwrap_or(&self.input.calibration);
        let fit = format!("calibration {}: {}", calibration.version, calibration.source);
        let gpu = format!("hardware catalogue, {}: {}", self.gpu.key, self.gpu.sources.join("; "));
        let given = |name, own: f64| self.input.overrides.number(name).unwrap_or(own);
        let share = |p| calibration.values.get(p);
        let machine = Machine::of(&self.gpu);
        let mut list = vec![
            Assumption {
                name: "latency_calibration".to_owned(),
                value: AssumptionValue::Text(calibration.version.clone()),
                unit: String::new(),
                source: calibration.source.clone(),
                given: false,
            },
            self.assumption(
                "hbm_bytes_per_s",
                given("hbm_bytes_per_s", machine.hbm_bytes_per_s),
                "B/s",
                &gpu,
            ),
            self.assumption("hbm_efficiency", share(P::WeightShare), "", &fit),
            self.assumption("peak_flops", given("peak_flops", machine.half()), "FLOP/s", &gpu),
            self.assumption("compute_efficiency", share(P::PrefillRate), "", &fit),
            self.assumption("layer_seconds", share(P::LayerCost), "s", &fit),
        ];
        if replica.shape.tp > 1 {
            let link = &replica.placed.tp.link;
            let source =
                format!("hardware catalogue, {} ({}): {}", link.key, link.name, link.sources.join("; "));
            let rate = self.given_link(&replica.placed.tp).unwrap_or(link.bidirectional_bytes_per_s);
            list.push(self.assumption("link_bytes_per_s", rate, "B/s", &source));
        }
        list
    }

    fn question<'q>(
        &'q self,
        replica: &Replica,
        work: &'q RankWork,
        machine: &'q Machine,
        asked: Asked,
    ) -> Question<'q> {
        let shape = &replica.shape;
        let workload = &self.input.workload;
        let (input, output) = (workload.input_tokens as f64, workload.output_tokens as f64);
        let most = self.settings.max_model_len.as_f64().max(1.0);
        let context =
            workload.context_tokens.map_or((input + output / 2.0).min(most), |tokens| tokens as f64);
        let wire = |group: &_| Wire::of(group, &self.pool.intra_link, self.given_link(group));
        let spreads_experts = work.experts.is_some() && shape.attention_dp > 1;
        Question {
            kv_element_bytes: element_bytes(replica, work),
            engine: self.calibrated_engine(),
            load: Load {
                running: asked.running,
                waiting: asked.waiting,
                input_tokens: input,
                output_tokens: output,
                context_tokens: context,
                arrival: Arrival::ClosedLoop,
                statistic: Statistic::Median,
                disaggregated: false,
            },
            stages: shape.pp.max(1) as f64,
            attention_groups: shape.attention_dp.max(1) as f64,
            expert_parallel: shape.expert_parallel(),
            tensor_wire: wire(&replica.placed.tp),
            expert_wire: replica
                .placed
                .ep
                .as_ref()
                .or(replica.placed.attention_dp.as_ref())
                .filter(|_| spreads_experts)
                .map(wire),
            stage_wire: replica.placed.pp.as_ref().map(wire),
            work,
            machine,
        }
    }

    fn calibrated_engine(&self) -> Engine {
        let kind = EngineKind::of(self.settings.engine);
        let asked = self.input.engines.get(self.engine).map_or("", |e| e.version.as_str());
        let year = released(kind, asked).or_else(|| released(kind, self.settings.rules_version));
        Engine {
            kind,
            released: year.unwrap_or(UNKNOWN_RELEASE),
            eager: self.settings.enforce_eager,
            draft_tokens: self.settings.num_speculative_tokens as f64,
            chunk_tokens: self.settings.max_num_batched_tokens as f64,
        }
    }

    fn given_link(&self, group: &crate::planner::layout::place::GroupLinks) -> Option<f64> {
        self.input.overrides.number_for("link_bytes_per_s", &group.link.key)
    }
}

/// Bytes that a cache element takes to read: the engine's bytes for a token over the model's elements. One byte and
/// less costs 8 % more than its size (measured: fp8 reads at 0.54 of 16 bits, not at half).
fn element_bytes(replica: &Replica, work: &RankWork) -> f64 {
    let bytes: f64 = replica.cache.token_bytes.iter().map(|b| b.as_f64()).sum();
    let elements: f64 = work.reaches.iter().map(|r| r.elements).sum::<f64>() + work.indexer_elements;
    let shards = replica.shape.dcp.max(1) as f64;
    let each = if elements > 0.0 { bytes / shards / elements } else { 2.0 };
    if each <= 1.5 { each * 1.08 } else { each }
}

/// The calibration with the constants that the request gave; `None` when it gave none.
fn overridden(calibration: &Calibration, overrides: &Overrides) -> Option<Calibration> {
    const NAMES: [&str; 4] =
        ["hbm_efficiency", "compute_efficiency", "link_efficiency", "allreduce_fixed_us"];
    if !NAMES.iter().any(|name| overrides.number(name).is_some()) {
        return None;
    }
    let mut out = calibration.clone();
    let set = |values: &mut Values, names: &[&str], given: f64| {
        for name in names {
            values.set(name, given);
        }
    };
    if let Some(share) = overrides.number("hbm_efficiency") {
        let shares = ["weight_bandwidth_share", "expert_bandwidth_share", "kv_bandwidth_share"];
        set(&mut out.values, &shares, share);
        let factors = ["weight_bandwidth_fp4", "weight_bandwidth_blackwell", "weight_bandwidth_amd"];
        set(&mut out.values, &factors, 1.0);
    }
    if let Some(share) = overrides.number("compute_efficiency") {
        set(&mut out.values, &["prefill_compute_share"], share);
        let factors =
            ["compute_blackwell", "compute_ampere", "compute_amd", "compute_vllm", "compute_sglang"];
        set(&mut out.values, &factors, 1.0);
        set(&mut out.values, &["compute_tensorrt", "compute_other", "format_gain_dense"], 1.0);
    }
    for algorithm in &mut out.algorithms.0 {
        if let Some(share) = overrides.number("link_efficiency") {
            algorithm.share = share;
            algorithm.loss = 0.0;
        }
        if let Some(us) = overrides.number("allreduce_fixed_us") {
            algorithm.fixed_us = us;
            algorithm.hop_us = 0.0;
        }
    }
    Some(out)
}
