//! Judging many shapes of one TP on one ground: what several of them share is worked out once.
//!
//! Shapes come in the order PP, attention DP, EP, DCP (`layout::enumerate`), so what depends on the outer sizes is kept
//! only until they change.

use std::ops::Range;
use std::sync::Arc;

use super::engine::{CacheLayout, Refusal, RefusalCode};
use super::latency::calibrated::layout::{Speed, Wires, Worked};
use super::latency::calibrated::work::RankWork;
use super::layout::Shape;
use super::model::sharded::ShardedWeights;
use super::replica::{Fault, Ground, Loaded, Replica};

/// Sizes of a shape that something depends on.
type Sizes = (u64, u64, u64);

/// The layers of each stage.
type Stages = Arc<[Range<usize>]>;
/// How a cache is laid out, or why not.
type Layout = Result<Arc<CacheLayout>, Refusal>;

/// A judge of shapes with one TP.
pub struct Judge<'g, 'a> {
    ground: &'g Ground<'a>,
    given: Option<&'g ShardedWeights>,
    /// By EP, attention DP and, where a total is dealt over the stages as well, PP.
    weights: Vec<(Sizes, ShardedWeights)>,
    /// Of the last PP.
    stages: Option<(u64, Option<Stages>)>,
    /// Of the last PP, attention DP and EP.
    loaded: Option<(Sizes, Result<Loaded, Fault>)>,
    /// Of the last PP, by DCP.
    caches: (u64, Vec<(u64, Layout)>),
    /// By EP and attention DP: the work without the cache.
    products: Vec<((u64, u64), RankWork)>,
    /// By EP, attention DP and DCP.
    worked: Vec<(Sizes, Worked)>,
    /// Of the last PP, attention DP and EP.
    wires: Option<(Sizes, Wires)>,
}

/// The value under `key`, made on first use.
fn shared<K: PartialEq + Copy, V>(known: &mut Vec<(K, V)>, key: K, make: impl FnOnce() -> V) -> Option<&V> {
    let at = known.iter().position(|(k, _)| *k == key).unwrap_or(known.len());
    if at == known.len() {
        known.push((key, make()));
    }
    known.get(at).map(|(_, value)| value)
}

/// The value while `key` stays the same.
fn last<K: PartialEq + Copy, V>(known: &mut Option<(K, V)>, key: K, make: impl FnOnce() -> V) -> &V {
    if known.as_ref().is_some_and(|(k, _)| *k != key) {
        *known = None;
    }
    &known.get_or_insert_with(|| (key, make())).1
}

impl<'g, 'a> Judge<'g, 'a> {
    /// A judge that reads the weights off the model.
    #[must_use]
    pub fn of(ground: &'g Ground<'a>) -> Self {
        Self {
            ground,
            given: None,
            weights: Vec::new(),
            stages: None,
            loaded: None,
            caches: (0, Vec::new()),
            products: Vec::new(),
            worked: Vec::new(),
            wires: None,
        }
    }

    /// A judge of one shape, or of shapes with these weights on a rank.
    #[must_use]
    pub fn with_weights(ground: &'g Ground<'a>, weights: &'g ShardedWeights) -> Self {
        Self { given: Some(weights), ..Self::of(ground) }
    }

    /// Judge one shape: the engine's rules, then room on the cluster, then memory, then the cache.
    ///
    /// # Errors
    /// The first of these that fails.
    pub fn replica(&mut self, shape: &Shape) -> Result<Replica, Fault> {
        let ground = self.ground;
        if let Some(code) = ground.refused_code(shape) {
            return Err(Fault::Rule(code));
        }
        let layers = ground.model.layers.len();
        let split = || ground.rules.pipeline_split(layers, shape.pp, &ground.settings).map(Arc::from);
        let stages = last(&mut self.stages, shape.pp, split)
            .clone()
            .ok_or_else(|| more_stages_than_layers(shape, layers))?;
        let placed = ground.placed(shape)?;
        let dealt = if ground.model.weights_bytes_given.is_some() { shape.pp } else { 1 };
        let split = (shape.ep, shape.attention_dp, dealt);
        let weights = match self.given {
            Some(given) => Some(given),
            None => shared(&mut self.weights, split, || ground.sharded(shape)),
        };
        let Some(weights) = weights else { return Err(more_stages_than_layers(shape, layers).into()) };
        let choices = ground.seats(shape, &placed);
        if !choices.is_empty() {
            return ground.seated(shape, weights, &stages, &placed, &choices);
        }
        let loaded = last(&mut self.loaded, (shape.pp, shape.attention_dp, shape.ep), || {
            ground.loaded(shape, weights, &stages, &[])
        });
        let loaded = loaded.clone()?;
        if self.caches.0 != shape.pp {
            self.caches = (shape.pp, Vec::new());
        }
        let cache = shared(&mut self.caches.1, shape.dcp, || ground.cache(shape, &stages));
        let Some(cache) = cache else { return Err(more_stages_than_layers(shape, layers).into()) };
        ground.holding(shape, stages, loaded, cache.clone()?, placed)
    }

    /// What the timings of a replica share; `None` under the plain model.
    pub fn speed(&mut self, replica: &Replica) -> Option<Speed<'_>> {
        let (ground, shape) = (self.ground, &replica.shape);
        let pace = ground.pace.as_ref()?;
        let split = (shape.ep, shape.attention_dp);
        let products = shared(&mut self.products, split, || RankWork::of_products(&ground.model, shape))?;
        let worked = shared(&mut self.worked, (shape.ep, shape.attention_dp, shape.dcp), || {
            pace.worked(products.with_cache(&ground.model, shape), ground.drafter(shape))
        })?;
        let wires = last(&mut self.wires, (shape.pp, shape.attention_dp, shape.ep), || {
            pace.wires(ground, replica, &worked.work)
        });
        Some(Speed { worked, wires })
    }
}

fn more_stages_than_layers(shape: &Shape, layers: usize) -> Refusal {
    let layers = layers as u64;
    Refusal::new(
        RefusalCode::MoreStagesThanLayers,
        format!("PP={} leaves a stage without layers: the model has {layers}.", shape.pp),
    )
    .nearest(Some(Shape { pp: layers.max(1), ..*shape }))
}
