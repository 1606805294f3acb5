//! One shape on one pool under one engine: what it weighs, what is left, what that holds.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::engine::{
    CacheCapacity, CacheLayout, EngineRules, MemoryBudget, Refusal, RefusalCode, ResolvedSettings,
};
pub use super::fault::{Fault, Misfit};
use super::free_memory::{Seats, Split, seats};
use super::hardware::{Gpu, NodePool};
use super::input::PlanInput;
use super::judge::Judge;
use super::latency::calibrated::layout::Pace;
use super::layout::place::{Domains, Placed};
use super::layout::{Shape, sizes};
use super::model::ModelSpec;
use super::model::sharded::{ShardedWeights, StageWeights};
use super::units::{Bytes, Tokens};

/// Where shapes are judged: an engine's rules on the GPUs of one pool.
pub struct Ground<'a> {
    pub input: &'a PlanInput,
    /// The model as this engine loads it.
    pub model: Cow<'a, ModelSpec>,
    pub rules: &'static dyn EngineRules,
    pub settings: ResolvedSettings,
    pub pool: &'a NodePool,
    /// The pool's GPU, with the caller's own memory figure where one is given.
    pub gpu: Gpu,
    /// Place of the engine and the pool in the request.
    pub engine: usize,
    pub pool_index: usize,
    /// The plain model was asked for: tokens are counted, not blocks, and a pool that is too small for
    /// one request of `max_model_len` is shown instead of refused.
    pub plain: bool,
    /// Where the pool's links begin and end; `None` for a pool without GPUs.
    pub(super) domains: Option<Domains>,
    /// What every calibrated timing here shares; `None` under the plain model.
    pub(super) pace: Option<Pace<'a>>,
}

/// A shape that fits. What several shapes of a search have in common, they share.
#[derive(Debug, Clone)]
pub struct Replica {
    pub shape: Shape,
    /// Layers of each stage.
    pub stages: Arc<[Range<usize>]>,
    pub weights: Arc<[StageWeights]>,
    pub budget: Arc<MemoryBudget>,
    /// Bytes left for the cache on one GPU of each stage.
    pub kv_bytes: Arc<[Bytes]>,
    pub cache: Arc<CacheLayout>,
    pub capacity: CacheCapacity,
    pub placed: Placed,
    /// Layers of each stage where the split follows the free memory and not the engine's own rule.
    pub layer_partition: Option<Vec<u64>>,
    /// Where GPUs of a node differ, the devices of each replica on it; otherwise empty.
    pub devices: Vec<Vec<u64>>,
    /// The longest single sequence that the engine admits and its cache holds.
    pub longest: Tokens,
}

/// What the GPUs of a replica hold under a split into stages, whatever the cache is like.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub weights: Arc<[StageWeights]>,
    pub budget: Arc<MemoryBudget>,
    pub kv_bytes: Arc<[Bytes]>,
}

impl Ground<'_> {
    /// The weights of a rank under `shape`; the plain model counts matrices only.
    #[must_use]
    pub fn sharded(&self, shape: &Shape) -> ShardedWeights {
        if self.plain { self.model.sharded_matrices(shape) } else { self.model.sharded(shape) }
    }

    /// The cache of one GPU that would hold the whole model, for the model's own figures when nothing fits.
    #[must_use]
    pub fn whole_cache(&self) -> Option<Arc<CacheLayout>> {
        let layers = 0..self.model.layers.len();
        self.cache(&Shape::new(1, 1), std::slice::from_ref(&layers)).ok()
    }

    /// Judge one shape: the engine's rules, then room on the cluster, then memory, then the cache.
    ///
    /// # Errors
    /// The first of these that fails, with its numbers.
    pub fn replica(&self, shape: &Shape, sharded: &ShardedWeights) -> Result<Replica, Misfit> {
        Judge::with_weights(self, sharded).replica(shape).map_err(|fault| self.in_words(shape, fault))
    }

    /// The first rule on sizes that a shape breaks.
    #[must_use]
    pub fn refused_code(&self, shape: &Shape) -> Option<RefusalCode> {
        if self.talks_between_slices(shape) {
            return Some(RefusalCode::SlicesNotLinked);
        }
        self.rules.refused_code(&self.model, shape, &self.gpu, &self.settings)
    }

    /// The same in words.
    fn refusal(&self, shape: &Shape) -> Option<Refusal> {
        self.refuses_ranks_on_slices(shape)
            .or_else(|| self.rules.refuse(&self.model, shape, &self.gpu, &self.settings))
    }

    /// Where the replicas of a shape lie.
    pub(super) fn placed(&self, shape: &Shape) -> Result<Placed, Refusal> {
        self.domains
            .as_ref()
            .and_then(|domains| domains.place(shape))
            .ok_or_else(|| not_enough_gpus(shape, self.pool))
    }

    /// The choices of GPUs with different free memory; none where all of a GPU is free.
    pub(super) fn seats(&self, shape: &Shape, placed: &Placed) -> Vec<Seats> {
        if self.input.overrides.has("gpu_memory_bytes") {
            return Vec::new();
        }
        seats(self.pool, shape, placed.replicas_max)
    }

    /// The replica on the first of `choices` that holds it: fewer replicas have as much room or more, so it seats the most.
    pub(super) fn seated(
        &self,
        shape: &Shape,
        sharded: &ShardedWeights,
        stages: &Arc<[Range<usize>]>,
        placed: &Placed,
        choices: &[Seats],
    ) -> Result<Replica, Fault> {
        let on = |chosen: &Seats| -> Result<Replica, Fault> {
            let used = shape.gpus().saturating_mul(chosen.replicas);
            let idle_gpus = self.pool.gpus().saturating_sub(used);
            let placed = Placed { replicas_max: chosen.replicas, idle_gpus, ..placed.clone() };
            let replica = self.split_by_free_memory(shape, sharded, stages, placed, &chosen.free)?;
            Ok(Replica { devices: chosen.devices.clone(), ..replica })
        };
        let first = choices.partition_point(|chosen| on(chosen).is_err());
        match choices.get(first).or(choices.last()) {
            Some(chosen) => on(chosen),
            None => self.filled(shape, sharded, Arc::clone(stages), placed.clone(), &[]),
        }
    }

    /// Slices of a GPU have neither peer copies nor collectives between them (NVIDIA MIG User Guide, "Application
    /// Considerations": no GPU-to-GPU P2P), so a replica is one slice.
    fn talks_between_slices(&self, shape: &Shape) -> bool {
        self.gpu.slice_of.is_some() && shape.gpus() > 1
    }

    fn refuses_ranks_on_slices(&self, shape: &Shape) -> Option<Refusal> {
        if !self.talks_between_slices(shape) {
            return None;
        }
        let message = format!(
            "{} needs {} ranks that talk to each other, and the slices of a MIG GPU ({}) have no link between them: \
             one replica runs on one slice, more of them are replicas.",
            sizes(shape),
            shape.gpus(),
            self.gpu.short_name,
        );
        Some(Refusal::new(RefusalCode::SlicesNotLinked, message).nearest(Some(Shape::new(1, 1))))
    }

    /// The longest sequence that the cache of `replica` holds, whatever `max_model_len`, as far as the model's positions go.
    pub fn longest_of_model(&self, replica: &Replica) -> Tokens {
        let positions = Tokens(self.rules.longest(&self.model)).max(self.settings.max_model_len);
        replica.cache.longest_sequence(replica.capacity.blocks, positions)
    }

    /// With these layers on the stages; `free` bounds each stage's budget, empty: nothing does.
    fn filled(
        &self,
        shape: &Shape,
        sharded: &ShardedWeights,
        stages: Arc<[Range<usize>]>,
        placed: Placed,
        free: &[Bytes],
    ) -> Result<Replica, Fault> {
        let loaded = self.loaded(shape, sharded, &stages, free)?;
        let cache = self.cache(shape, &stages)?;
        self.holding(shape, stages, loaded, cache, placed)
    }

    /// Weights and all else on the GPUs of each stage, and what that leaves for the cache. It does not depend on DCP.
    pub(super) fn loaded(
        &self,
        shape: &Shape,
        sharded: &ShardedWeights,
        stages: &[Range<usize>],
        free: &[Bytes],
    ) -> Result<Loaded, Fault> {
        let weights = stage_weights(sharded, stages);
        let mut budget = self.budget(shape, stages, &weights);
        budget.limit_to(free);
        let kv_bytes = self.cache_bytes(&weights, &budget)?;
        Ok(Loaded { weights: weights.into(), budget: Arc::new(budget), kv_bytes: kv_bytes.into() })
    }

    /// The cache of a rank of each stage. It depends neither on EP nor on attention DP.
    pub(super) fn cache(&self, shape: &Shape, stages: &[Range<usize>]) -> Result<Arc<CacheLayout>, Refusal> {
        let mut cache = self.rules.cache_layout(&self.model, shape, &self.gpu, &self.settings, stages)?;
        if let Some((drafter, layers)) = self.drafter(shape).zip(stages.last()) {
            let stage = self.model.layers.get(layers.clone()).unwrap_or(&[]);
            cache.grow_last_stage(drafter.share_of_cache(&self.model, stage));
        }
        Ok(Arc::new(cache))
    }

    /// The replica with what its cache holds.
    pub(super) fn holding(
        &self,
        shape: &Shape,
        stages: Arc<[Range<usize>]>,
        loaded: Loaded,
        cache: Arc<CacheLayout>,
        placed: Placed,
    ) -> Result<Replica, Fault> {
        let Loaded { weights, budget, kv_bytes } = loaded;
        let capacity = self.capacity(&cache, &kv_bytes)?;
        let longest = cache.longest_sequence(capacity.blocks, self.settings.max_model_len);
        Ok(Replica {
            shape: *shape,
            stages,
            weights,
            budget,
            kv_bytes,
            cache,
            capacity,
            placed,
            layer_partition: None,
            devices: Vec::new(),
            longest,
        })
    }

    /// The engine's own split, or, where stages have different memory, the one by bytes when that holds more tokens.
    fn split_by_free_memory(
        &self,
        shape: &Shape,
        sharded: &ShardedWeights,
        own: &Arc<[Range<usize>]>,
        placed: Placed,
        free: &[Bytes],
    ) -> Result<Replica, Fault> {
        let by_rule = self.filled(shape, sharded, Arc::clone(own), placed.clone(), free);
        let even = free.iter().all(|bytes| Some(bytes) == free.first());
        if even || self.settings.pp_layer_partition.is_some() {
            return by_rule;
        }
        let Some(stages) = self.stages_by_bytes(shape, sharded, own, free) else { return by_rule };
        let partition = stages.iter().map(|layers| layers.len() as u64).collect();
        match (by_rule, self.filled(shape, sharded, stages.into(), placed, free)) {
            (Ok(by_rule), Ok(by_bytes)) if by_rule.capacity.blocks >= by_bytes.capacity.blocks => Ok(by_rule),
            (_, Ok(by_bytes)) => Ok(Replica { layer_partition: Some(partition), ..by_bytes }),
            (by_rule, Err(_)) => by_rule,
        }
    }

    /// The split by bytes, with the other items of memory as the engine's own split has them.
    fn stages_by_bytes(
        &self,
        shape: &Shape,
        sharded: &ShardedWeights,
        own: &[Range<usize>],
        free: &[Bytes],
    ) -> Option<Vec<Range<usize>>> {
        let model = self.model.as_ref();
        let mut budget = self.budget(shape, own, &stage_weights(sharded, own));
        budget.limit_to(free);
        let room: Vec<Bytes> =
            budget.stages.iter().enumerate().map(|(stage, items)| budget.of(stage) - items.total()).collect();
        let each: Vec<Range<usize>> = (0..model.layers.len()).map(|i| i..i.saturating_add(1)).collect();
        let cache = self.rules.cache_layout(model, shape, &self.gpu, &self.settings, &each).ok()?;
        Split { weights: sharded, room: &room, token_bytes: &cache.token_bytes }.stages()
    }

    /// The engine's budget, with the items that the caller gave outright.
    fn budget(&self, shape: &Shape, stages: &[Range<usize>], weights: &[StageWeights]) -> MemoryBudget {
        let mut budget = self.rules.memory(&self.model, shape, &self.gpu, &self.settings, stages, weights);
        self.correct(&mut budget);
        if let Some((drafter, items)) = self.drafter(shape).zip(budget.stages.last_mut()) {
            items.drafter = drafter.item();
        }
        let given = |name| self.input.overrides.number(name).map(Bytes::from_f64);
        for items in &mut budget.stages {
            items.take_given(
                given("reserve_bytes"),
                given("activation_bytes"),
                given("runtime_bytes"),
                given("cuda_graph_bytes"),
            );
        }
        budget
    }

    /// What each stage leaves for the cache: given outright, or the budget less everything else.
    fn cache_bytes(&self, weights: &[StageWeights], budget: &MemoryBudget) -> Result<Vec<Bytes>, Fault> {
        let mut left = Vec::with_capacity(weights.len());
        // the stage that misses most says how far the layout is from fitting
        let mut tightest: Option<(usize, Bytes, Bytes)> = None;
        let given = self.settings.kv_cache_memory_bytes;
        let room = |stage| budget.room(stage, given.map(|_| self.gpu.memory_bytes));
        for (stage, (weights, items)) in weights.iter().zip(&budget.stages).enumerate() {
            let used = weights.bytes + items.total() + given.unwrap_or_default();
            match (given, budget.kv_bytes(stage, used)) {
                (Some(given), _) if used <= room(stage) => left.push(given),
                (None, Some(bytes)) if bytes > Bytes::ZERO => left.push(bytes),
                _ => {
                    let short = used - room(stage);
                    if tightest.is_none_or(|(other, _, used)| short > used - room(other)) {
                        tightest = Some((stage, weights.bytes, used));
                    }
                }
            }
        }
        if let Some((stage, weights, used)) = tightest {
            return Err(Fault::WeightsDoNotFit { stage, weights, used, budget: room(stage) });
        }
        Ok(left)
    }

    fn capacity(&self, cache: &CacheLayout, kv_bytes: &[Bytes]) -> Result<CacheCapacity, Fault> {
        match cache.capacity(kv_bytes, &self.settings) {
            Ok(capacity) => Ok(capacity),
            Err(_) if self.plain => Ok(cache.unchecked_capacity(kv_bytes, &self.settings)),
            Err(small) => Err(Fault::CacheTooSmall(small)),
        }
    }

    /// A fault in words, with its numbers.
    #[must_use]
    pub fn in_words(&self, shape: &Shape, fault: Fault) -> Misfit {
        let short_by = fault.short_by();
        match fault {
            Fault::Rule(code) => {
                let refusal = self.refusal(shape).unwrap_or_else(|| Refusal::new(code, code.as_str()));
                Misfit { refusal, short_by }
            }
            Fault::Refused(refusal) => Misfit { refusal, short_by },
            Fault::CacheTooSmall(small) => Misfit {
                short_by,
                refusal: Refusal::new(
                    RefusalCode::KvCacheTooSmall,
                    format!(
                        "{}: one request of {} needs {:.2} GiB of cache on a GPU of stage {} and {:.2} GiB are \
                         left; the longest that fits is {}. Lower max_model_len to that, or use more GPUs.",
                        sizes(shape),
                        self.settings.max_model_len,
                        small.needed_bytes.gib(),
                        small.stage,
                        small.available_bytes.gib(),
                        small.longest,
                    ),
                ),
            },
            Fault::WeightsDoNotFit { stage, weights, used, budget } => {
                let rest = match self.settings.kv_cache_memory_bytes {
                    Some(given) => format!("the rest with the given cache of {:.2} GiB", given.gib()),
                    None => "the rest".to_owned(),
                };
                Misfit {
                    short_by,
                    refusal: Refusal::new(
                        RefusalCode::WeightsDoNotFit,
                        format!(
                            "{}: weights take {:.2} GiB on each GPU of stage {stage} and {rest} {:.2} GiB, of {:.2} \
                             GiB that the engine may use of each {}: {:.2} GiB too much.",
                            sizes(shape),
                            weights.gib(),
                            (used - weights).gib(),
                            budget.gib(),
                            self.gpu.short_name,
                            short_by.unwrap_or_default().gib(),
                        ),
                    ),
                }
            }
        }
    }
}

/// Weights of one rank of each stage; the first holds the embedding, the last the head.
fn stage_weights(sharded: &ShardedWeights, stages: &[Range<usize>]) -> Vec<StageWeights> {
    let last = stages.len().saturating_sub(1);
    stages
        .iter()
        .enumerate()
        .map(|(i, layers)| sharded.stage(layers.start, layers.end, i == 0, i == last))
        .collect()
}

fn not_enough_gpus(shape: &Shape, pool: &NodePool) -> Refusal {
    Refusal::new(
        RefusalCode::NotEnoughGpus,
        format!(
            "{} needs {} GPUs for one replica and the pool has {}.",
            sizes(shape),
            shape.gpus(),
            pool.gpus()
        ),
    )
}
