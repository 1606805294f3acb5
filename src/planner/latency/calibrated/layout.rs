//! The calibrated model asked about one layout of a plan.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::collective::{Wire, WireKind};
use super::parameters::{Parameter as P, Values};
use super::releases::{UNKNOWN_RELEASE, released};
use super::setting::{Arrival, Engine, EngineKind, Load, Machine, Question, Statistic};
use super::step::{Paths, Steady};
use super::work::RankWork;
use super::{Calibration, bounded, step, times};
use crate::planner::engine::ResolvedSettings;
use crate::planner::estimate::{Assumption, AssumptionValue};
use crate::planner::hardware::{Gpu, Link, NodePool};
use crate::planner::input::{Overrides, PlanInput};
use crate::planner::latency::Timing;
use crate::planner::replica::{Ground, Replica};
use crate::planner::speculation::Drafter;

/// How much load a layout gets.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Sequences that run at once in one attention-DP group of one replica.
    pub running: f64,
    /// Sequences of a group that find no slot.
    pub waiting: f64,
}

/// What every timing on one ground shares: the fit as the request changes it, the GPU's rates, the engine and the load.
#[derive(Debug, Clone)]
pub struct Pace<'a> {
    calibration: Cow<'a, Calibration>,
    machine: Machine,
    engine: Engine,
    /// The load of a request; how many run and wait differs by layout.
    load: Load,
    /// The links of the pool by key: what they are is read off their names.
    kinds: SmallVec<[(&'a str, WireKind); 3]>,
}

/// A rank's work, with what all its timings share.
#[derive(Debug, Clone)]
pub struct Worked {
    pub work: RankWork,
    steady: Steady,
    /// The engine was measured on this generation of GPUs.
    seen: bool,
    drafter: Option<Drafter>,
}

/// The wires of a replica, with what may run over them.
#[derive(Debug, Clone)]
pub struct Wires {
    tensor: Wire,
    experts: Option<Wire>,
    stages: Option<Wire>,
    paths: Paths,
}

/// What the timings of a replica share at any load.
#[derive(Debug, Clone, Copy)]
pub struct Speed<'s> {
    pub worked: &'s Worked,
    pub wires: &'s Wires,
}

impl<'a> Pace<'a> {
    /// The pace of an engine on a GPU.
    ///
    /// TTFT is that of the typical request in a closed loop of clients with varied lengths. TPOT is
    /// (last token - first token) / (tokens - 1), other requests' prompts included.
    #[must_use]
    pub fn of(
        input: &'a PlanInput,
        engine: usize,
        settings: &ResolvedSettings,
        pool: &'a NodePool,
        gpu: &Gpu,
    ) -> Self {
        let links = [Some(&pool.intra_link), pool.host_link.as_ref(), Some(&pool.inter_link)];
        let given = |name| input.overrides.number(name);
        let mut machine = Machine::of(gpu);
        if let Some(rate) = given("hbm_bytes_per_s") {
            machine.hbm_bytes_per_s = rate.max(1.0);
        }
        machine.given_flops = given("peak_flops");
        let changed = overridden(&input.calibration, &input.overrides);
        let asked = input.engines.get(engine).map_or("", |e| e.version.as_str());
        Self {
            calibration: changed.map_or(Cow::Borrowed(&input.calibration), Cow::Owned),
            machine,
            engine: engine_of(settings, asked),
            load: load_of(input, settings),
            kinds: links.into_iter().flatten().map(|link| (link.key.as_str(), WireKind::of(link))).collect(),
        }
    }

    /// A rank's work with what its timings share.
    #[must_use]
    pub fn worked(&self, work: RankWork, drafter: Option<Drafter>) -> Worked {
        let calibration = &self.calibration;
        let load = bounded(self.load);
        let steady = Steady::of(&work, &self.machine, &self.engine, &load, &calibration.values);
        let (kind, generation) = (self.engine.kind, self.machine.generation);
        let seen = calibration.ranges.is_measured(kind, generation, work.experts.is_some());
        Worked { work, steady, seen, drafter }
    }

    /// The wires under the groups of a replica.
    #[must_use]
    pub fn wires(&self, ground: &Ground<'_>, replica: &Replica, work: &RankWork) -> Wires {
        let (shape, placed) = (&replica.shape, &replica.placed);
        let kind_of = |link: &Link| {
            let known = self.kinds.iter().find(|(key, _)| *key == link.key);
            known.map_or_else(|| WireKind::of(link), |(_, kind)| *kind)
        };
        let inside = &ground.pool.intra_link;
        let wire = |group: &_| Wire::of_kinds(group, inside, ground.given_link(group), kind_of);
        let spreads_experts = work.experts.is_some() && shape.attention_dp > 1;
        let tensor = wire(&placed.tp);
        let experts =
            placed.ep.as_ref().or(placed.attention_dp.as_ref()).filter(|_| spreads_experts).map(wire);
        let stages = placed.pp.as_ref().map(wire);
        let algorithms = &self.calibration.algorithms;
        let paths = Paths::of(&tensor, experts.as_ref(), stages.as_ref(), &self.engine, algorithms);
        Wires { tensor, experts, stages, paths }
    }

    /// The times of a replica under the load that it gets.
    #[must_use]
    pub fn timing(&self, replica: &Replica, speed: &Speed<'_>, asked: Asked) -> Timing {
        let calibration = &*self.calibration;
        let (worked, wires, shape) = (speed.worked, speed.wires, &replica.shape);
        let question = Question {
            work: &worked.work,
            machine: &self.machine,
            engine: self.engine,
            load: Load { running: asked.running, waiting: asked.waiting, ..self.load },
            kv_element_bytes: element_bytes(replica, &worked.work),
            stages: shape.pp.max(1) as f64,
            attention_groups: shape.attention_dp.max(1) as f64,
            expert_parallel: shape.expert_parallel(),
            tensor_wire: wires.tensor,
            expert_wire: wires.experts,
            stage_wire: wires.stages,
            drafter: worked.drafter,
        };
        let values = &calibration.values;
        let chunk = step::chunk(&question, &worked.steady, &wires.paths, values);
        let range = calibration.ranges.of_measured(&question, worked.seen);
        let question = Question { load: bounded(question.load), ..question };
        let times = times(&question, values, &worked.steady, &wires.paths);
        Timing {
            decode: times.decode,
            chunk,
            tpot_s: times.tpot_s,
            ttft_s: times.ttft_s,
            tokens_per_step: times.tokens_per_step,
            slot_s: times.slot_s,
            prompt_s: times.prompt.total_s(),
            ttft_range: (range.ttft.low, range.ttft.high),
            tpot_range: (range.tpot.low, range.tpot.high),
            basis: range.basis,
        }
    }
}

impl Ground<'_> {
    /// The constants behind a calibrated timing, as the answer lists them: the fit, the rates that it works on, and the
    /// main shares of them. `data/calibration/latency.json` has them all.
    #[must_use]
    pub fn calibrated_assumptions(&self, replica: &Replica) -> Vec<Assumption> {
        let calibration = self.pace.as_ref().map_or(&*self.input.calibration, |pace| &pace.calibration);
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

    fn given_link(&self, group: &crate::planner::layout::place::GroupLinks) -> Option<f64> {
        self.input.overrides.number_for("link_bytes_per_s", &group.link.key)
    }
}

/// The load of one request as the planner asks it; 0 run and wait.
fn load_of(input: &PlanInput, settings: &ResolvedSettings) -> Load {
    let workload = &input.workload;
    let reused = workload.reused_tokens(settings);
    let (input, output) = (workload.input_tokens as f64, workload.output_tokens as f64);
    Load {
        running: 0.0,
        waiting: 0.0,
        input_tokens: input,
        reused_tokens: reused,
        output_tokens: output,
        context_tokens: workload.decode_context(settings.max_model_len).as_f64(),
        arrival: Arrival::ClosedLoop,
        statistic: Statistic::Median,
        disaggregated: false,
    }
}

/// The engine with the date of the release that was asked for, else of the rules' own.
fn engine_of(settings: &ResolvedSettings, asked: &str) -> Engine {
    let kind = EngineKind::of(settings.engine);
    let year = released(kind, asked).or_else(|| released(kind, settings.rules_version));
    Engine {
        kind,
        released: year.unwrap_or(UNKNOWN_RELEASE),
        eager: settings.enforce_eager,
        draft_tokens: settings.num_speculative_tokens as f64,
        acceptance: settings.speculation.acceptance_rate,
        chunk_tokens: settings.max_num_batched_tokens as f64,
        poll_steps: 1.0,
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
