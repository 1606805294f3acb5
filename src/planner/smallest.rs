//! The fewest GPUs of a product that hold a model at all: its weights and one sequence of the asked context.

use super::candidate::whole;
use super::hardware::NodePool;
use super::input::PlanInput;
use super::layout::Shape;
use super::layout::enumerate::tp_sizes;
use super::replica::Ground;
use super::search::{bounds, ground};

/// The search ends at replicas of this many GPUs.
const MOST_GPUS: u64 = 1024;
/// TP sizes above this are not tried: no node or rack has more GPUs on one link.
const MOST_TP: u64 = 72;

/// The smallest TP × PP replica on any number of nodes like the first pool's; `None` when none up to 1,024 GPUs holds it.
#[must_use]
pub fn smallest(input: &PlanInput) -> Option<Shape> {
    let (first, settings) = (input.cluster.pools.first()?, input.engines.first()?);
    let nodes = MOST_GPUS.div_ceil(first.gpus_per_node.max(1));
    let pool = NodePool { nodes, free_memory_bytes: None, ..first.clone() };
    let ground = ground(input, 0, settings, 0, &pool).ok()?;
    let mut best: Option<Shape> = None;
    for tp in tp_sizes(&bounds(&ground), &input.search).into_iter().filter(|tp| *tp <= MOST_TP) {
        if ground.refuses_tp(tp).is_some() {
            continue;
        }
        let room = best.map_or(MOST_GPUS, |b| b.gpus().saturating_sub(1)) / tp;
        if let Some(shape) = shallowest(&ground, tp, room) {
            best = Some(shape);
        }
    }
    best
}

/// The fewest stages, at most `deepest`, with which TP ranks of this many hold the model.
fn shallowest(ground: &Ground<'_>, tp: u64, deepest: u64) -> Option<Shape> {
    let model = &*ground.model;
    let layers = model.layers.len();
    let sharded = model.sharded(&Shape::new(tp, 1));
    let weights = sharded.stage(0, layers, true, true).bytes;
    let of = |shape: &Shape| match model.weights_bytes_given {
        // a total that the caller gives is dealt over the stages as well
        Some(_) => ground.replica(shape, &model.sharded(shape)),
        None => ground.replica(shape, &sharded),
    };
    // no split can leave a stage less than its share of the weights
    let least = weights.get() / ground.gpu.memory_bytes.get().max(1);
    (least.max(1)..=deepest.min(layers as u64)).map(|pp| Shape::new(tp, pp)).find(|shape| {
        of(shape).is_ok_and(|replica| {
            whole(replica.cache.sequences_at(replica.capacity.blocks, ground.context())) >= 1
        })
    })
}
