//! The search: every shape on every pool under every engine, judged in a fixed order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::engine::{self, Refusal, RefusalCode};
use super::hardware::{Gpu, NodePool};
use super::input::{EngineSettings, LatencyModel, PlanInput};
use super::judge::Judge;
use super::latency::calibrated::layout::Pace;
use super::layout::Shape;
use super::layout::enumerate::{Bounds, shapes_of, tp_sizes};
use super::layout::place::Domains;
use super::ranking;
use super::replica::{Fault, Ground, Misfit};
use super::units::Bytes;

/// Refused layouts that are kept; the rest is counted.
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
    /// Where it was judged; `None` where the engine does not start at all.
    ground: Option<usize>,
    pub shape: Shape,
    fault: Fault,
}

impl Refused {
    /// Bytes that lack on the tightest GPU, when memory is the reason.
    #[must_use]
    pub fn short_by(&self) -> Option<Bytes> {
        self.fault.short_by()
    }
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
                Err(refusal) => found.refuse(e, None, Shape::new(1, 1), refusal.into()),
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
        Cow::Borrowed(&*input.model)
    };
    let settings = rules.resolve(&settings, &model, &gpu)?;
    let domains = Domains::of(pool);
    let pace = (!plain).then(|| Pace::of(input, engine, &settings, pool, &gpu));
    Ok(Ground { input, model, rules, settings, pool, gpu, engine, pool_index, plain, domains, pace })
}

/// The pool's GPU, with the memory that the caller gives it.
fn gpu_as_given(input: &PlanInput, pool: &NodePool) -> Gpu {
    let mut gpu = pool.gpu.clone();
    if let Some(bytes) = input.overrides.number("gpu_memory_bytes") {
        gpu.memory_bytes = Bytes::from_f64(bytes);
    }
    gpu
}

impl<'a> Found<'a> {
    fn search_on(&mut self, ground: Ground<'a>) {
        let bounds = bounds(&ground);
        let index = self.grounds.len();
        for tp in tp_sizes(&bounds, &ground.input.search) {
            // A size that the model cannot be split into is refused once, not once for each depth.
            if let Some(code) = ground.refuses_tp(tp) {
                self.refuse(ground.engine, Some(index), Shape::new(tp, 1), Fault::Rule(code));
                continue;
            }
            let mut judge = Judge::of(&ground);
            for shape in shapes_of(tp, &bounds, &ground.input.search) {
                self.judge(index, &ground, &shape, &mut judge);
            }
        }
        self.grounds.push(ground);
    }

    fn judge(&mut self, index: usize, ground: &Ground<'a>, shape: &Shape, judge: &mut Judge<'_, 'a>) {
        match judge.replica(shape) {
            Err(fault) => self.refuse(ground.engine, Some(index), *shape, fault),
            Ok(replica) => {
                let replica = Arc::new(replica);
                let speed = judge.speed(&replica);
                for dp in replica_counts(ground, replica.placed.replicas_max) {
                    let asked = ground.input.workload.concurrency;
                    let candidate = ground.candidate_of(Arc::clone(&replica), speed.as_ref(), dp, asked);
                    if candidate.idle_gpus > 0 && !ground.input.search.allow_idle_gpus {
                        continue;
                    }
                    self.considered = self.considered.saturating_add(1);
                    self.ranked.push(Ranked { ground: index, candidate, pareto: false });
                }
            }
        }
    }

    fn refuse(&mut self, engine: usize, ground: Option<usize>, shape: Shape, fault: Fault) {
        self.considered = self.considered.saturating_add(1);
        let count = self.refused_counts.entry(fault.code()).or_default();
        *count = count.saturating_add(1);
        if self.refused.len() < MOST_REFUSALS {
            self.refused.push(Refused { engine, ground, shape, fault });
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
    pub fn refuses_tp(&self, tp: u64) -> Option<RefusalCode> {
        let code = self.refused_code(&Shape::new(tp, 1))?;
        code.is_about_tp(self.model.experts.is_some()).then_some(code)
    }
}

impl Found<'_> {
    /// Why a layout was refused, with its numbers.
    #[must_use]
    pub fn in_words(&self, refused: &Refused) -> Misfit {
        let (short_by, fault) = (refused.short_by(), refused.fault.clone());
        match (refused.ground.and_then(|ground| self.grounds.get(ground)), fault) {
            (Some(ground), fault) => ground.in_words(&refused.shape, fault),
            (None, Fault::Refused(refusal)) => Misfit { refusal, short_by },
            (None, fault) => {
                let code = fault.code();
                Misfit { refusal: Refusal::new(code, code.as_str()), short_by }
            }
        }
    }

    /// The refusal that missed by the fewest bytes, where memory was a reason.
    #[must_use]
    pub fn nearest_miss(&self) -> Option<&Refused> {
        self.refused.iter().filter(|r| r.short_by().is_some()).min_by_key(|r| r.short_by())
    }

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
