//! The search: every shape on every pool under every engine, judged in a fixed order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::engine::{self, Refusal, RefusalCode};
use super::hardware::{Gpu, NodePool};
use super::input::{EngineSettings, LatencyModel, PlanInput};
use super::latency::calibrated::work::RankWork;
use super::layout::Shape;
use super::layout::enumerate::{Bounds, shapes_of, tp_sizes};
use super::model::sharded::ShardedWeights;
use super::ranking;
use super::replica::{Ground, Misfit};
use super::units::Bytes;

/// Refused layouts that are kept with their words; the rest is counted.
const MOST_REFUSALS: usize = 100;

/// What a search found.
pub struct Found<'a> {
    /// One entry per engine and pool that can be started at all.
    pub grounds: Vec<Ground<'a>>,
    /// Layouts that work, best first.
    pub ranked: Vec<Ranked>,
    /// Layouts that do not, in search order, the first [`MOST_REFUSALS`].
    pub refused: Vec<Refused>,
    /// All of them by code.
    pub refused_counts: BTreeMap<RefusalCode, u64>,
    /// Layouts that were judged.
    pub considered: u64,
}

/// A layout that works, on the ground with this index.
pub struct Ranked {
    pub ground: usize,
    pub candidate: Candidate,
    pub pareto: bool,
}

/// A layout that does not.
pub struct Refused {
    /// Index into the request's engines.
    pub engine: usize,
    pub shape: Shape,
    pub misfit: Misfit,
}

/// Search all layouts of `input`.
#[must_use]
pub fn search(input: &PlanInput) -> Found<'_> {
    let mut found = Found {
        grounds: Vec::new(),
        ranked: Vec::new(),
        refused: Vec::new(),
        refused_counts: BTreeMap::new(),
        considered: 0,
    };
    for (e, settings) in input.engines.iter().enumerate() {
        for (p, pool) in input.cluster.pools.iter().enumerate() {
            match ground(input, e, settings, p, pool) {
                Ok(ground) => found.search_on(ground),
                Err(refusal) => found.refuse(e, Shape::new(1, 1), refusal.into()),
            }
        }
    }
    found.rank(input);
    found
}

/// An engine on a pool, with its settings resolved.
///
/// # Errors
/// The engine's refusal to start at all with this model, GPU and settings.
pub fn ground<'a>(
    input: &'a PlanInput,
    engine: usize,
    settings: &EngineSettings,
    pool_index: usize,
    pool: &'a NodePool,
) -> Result<Ground<'a>, Refusal> {
    let rules = engine::rules(&settings.name, &settings.version)
        .map_err(|unknown| Refusal::new(RefusalCode::EngineUnknown, unknown.to_string()))?;
    let plain = input.latency_model == LatencyModel::Roofline;
    let gpu = gpu_as_given(input, pool);
    // The plain model counts tokens; a caller who names a block size, or the cache itself, wants the engine's blocks.
    let count_tokens = plain && settings.block_size.is_none() && settings.kv_cache_memory_bytes.is_none();
    let settings = EngineSettings {
        block_size: if count_tokens { Some(1) } else { settings.block_size },
        ..settings.clone()
    };
    let model = if settings.language_model_only {
        Cow::Owned(input.model.without_towers())
    } else {
        Cow::Borrowed(&input.model)
    };
    let settings = rules.resolve(&settings, &model, &gpu)?;
    Ok(Ground { input, model, rules, settings, pool, gpu, engine, pool_index, plain })
}

/// The pool's GPU, with the memory that the caller gives it.
fn gpu_as_given(input: &PlanInput, pool: &NodePool) -> Gpu {
    let mut gpu = pool.gpu.clone();
    if let Some(bytes) = input.overrides.number("gpu_memory_bytes") {
        gpu.memory_bytes = Bytes::from_f64(bytes);
    }
    gpu
}

/// What shapes of one TP share, each by the sizes that it depends on.
#[derive(Default)]
struct Shared {
    /// By EP, attention DP and, where a total is dealt over the stages as well, PP.
    weights: Vec<((u64, u64, u64), ShardedWeights)>,
    /// By EP, attention DP and DCP.
    work: Vec<((u64, u64, u64), Option<RankWork>)>,
}

/// The value under `key`, made on first use.
fn shared<K: PartialEq + Copy, V>(known: &mut Vec<(K, V)>, key: K, make: impl FnOnce() -> V) -> Option<&V> {
    let at = known.iter().position(|(k, _)| *k == key).unwrap_or(known.len());
    if at == known.len() {
        known.push((key, make()));
    }
    known.get(at).map(|(_, value)| value)
}

impl<'a> Found<'a> {
    fn search_on(&mut self, ground: Ground<'a>) {
        let bounds = bounds(&ground);
        let index = self.grounds.len();
        for tp in tp_sizes(&bounds, &ground.input.search) {
            // A size that the model cannot be split into is refused once, not once for each depth.
            if let Some(refusal) = ground.refuses_tp(tp) {
                self.refuse(ground.engine, Shape::new(tp, 1), refusal.into());
                continue;
            }
            let mut known = Shared::default();
            for shape in shapes_of(tp, &bounds, &ground.input.search) {
                self.judge(index, &ground, &shape, &mut known);
            }
        }
        self.grounds.push(ground);
    }

    fn judge(&mut self, index: usize, ground: &Ground<'a>, shape: &Shape, known: &mut Shared) {
        let stages = if ground.model.weights_bytes_given.is_some() { shape.pp } else { 1 };
        let split = (shape.ep, shape.attention_dp, stages);
        let Some(weights) = shared(&mut known.weights, split, || ground.sharded(shape)) else { return };
        match ground.replica(shape, weights) {
            Err(misfit) => self.refuse(ground.engine, *shape, misfit),
            Ok(replica) => {
                let replica = Arc::new(replica);
                let split = (shape.ep, shape.attention_dp, shape.dcp);
                let work = shared(&mut known.work, split, || ground.rank_work(shape));
                let work = work.and_then(Option::as_ref);
                for dp in replica_counts(ground, replica.placed.replicas_max) {
                    let asked = ground.input.workload.concurrency;
                    let candidate = ground.candidate_of(Arc::clone(&replica), work, dp, asked);
                    if candidate.idle_gpus > 0 && !ground.input.search.allow_idle_gpus {
                        continue;
                    }
                    self.considered = self.considered.saturating_add(1);
                    self.ranked.push(Ranked { ground: index, candidate, pareto: false });
                }
            }
        }
    }

    fn refuse(&mut self, engine: usize, shape: Shape, misfit: Misfit) {
        self.considered = self.considered.saturating_add(1);
        let count = self.refused_counts.entry(misfit.refusal.code).or_default();
        *count = count.saturating_add(1);
        if self.refused.len() < MOST_REFUSALS {
            self.refused.push(Refused { engine, shape, misfit });
        }
    }

    fn rank(&mut self, input: &PlanInput) {
        let front = ranking::pareto(self.ranked.iter().map(|r| &r.candidate.standing));
        for (ranked, on_front) in self.ranked.iter_mut().zip(front) {
            ranked.pareto = on_front;
        }
        self.ranked.sort_by_cached_key(|r| ranking::key(input.objective, &r.candidate.standing));
    }
}

/// Replicas to try: what the caller lists, else as many as the pool holds.
fn replica_counts(ground: &Ground<'_>, most: u64) -> Vec<u64> {
    match &ground.input.search.dp {
        None => vec![most],
        Some(listed) => {
            let mut counts: Vec<u64> = listed.iter().copied().filter(|dp| (1..=most).contains(dp)).collect();
            counts.sort_unstable();
            counts.dedup();
            counts
        }
    }
}

/// What the enumeration needs to know of a ground.
#[must_use]
pub fn bounds(ground: &Ground<'_>) -> Bounds {
    let model = &ground.model;
    Bounds {
        gpus: ground.pool.gpus(),
        gpus_per_node: ground.pool.gpus_per_node,
        nodes: ground.pool.nodes,
        layers: model.layers.len() as u64,
        query_heads: model.query_heads,
        kv_heads: model.kv_heads,
        mla: model.mla,
        routed_experts: model.experts.map_or(0, |experts| experts.routed),
    }
}

impl Ground<'_> {
    /// A refusal that holds for this TP at every depth and every other size.
    #[must_use]
    pub fn refuses_tp(&self, tp: u64) -> Option<Refusal> {
        let shape = Shape::new(tp, 1);
        if let Some(refusal) = self.refuses_ranks_on_slices(&shape) {
            return Some(refusal);
        }
        let refusal = self.rules.refuse(&self.model, &shape, &self.gpu, &self.settings)?;
        refusal.code.is_about_tp(self.model.experts.is_some()).then_some(refusal)
    }
}

impl Found<'_> {
    /// The shape with the fewest GPUs that works under this engine.
    #[must_use]
    pub fn smallest_that_fits(&self, engine: usize) -> Option<Shape> {
        self.ranked
            .iter()
            .map(|r| &r.candidate)
            .filter(|c| c.standing.engine == engine)
            .map(|c| c.replica.shape)
            .min_by_key(|s| (s.gpus(), s.pp, s.tp, s.ep, s.dcp))
    }

    /// The replica with the fewest GPUs that holds a sequence of the asked context.
    #[must_use]
    pub fn smallest_that_serves(&self) -> Option<Shape> {
        self.ranked
            .iter()
            .filter(|r| r.candidate.standing.serves)
            .map(|r| r.candidate.replica.shape)
            .min_by_key(|s| (s.gpus(), s.pp, s.tp, s.attention_dp, s.ep, s.dcp))
    }
}
