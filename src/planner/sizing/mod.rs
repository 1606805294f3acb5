//! The inverse question: the fewest GPUs of each product that carry a load.
//!
//! Each pool of the request's cluster is a product; how many nodes it has does not matter. Replicas are searched on
//! pools of growing size until no larger replica can need fewer GPUs than what was found, so the search is exact up
//! to replicas of [`WIDEST_GPUS`].

pub mod load;
mod words;

use std::cmp::Ordering;

use serde::Serialize;
use utoipa::ToSchema;

use self::load::{Carried, Load, TooSlow};
use super::engine::RefusalCode;
use super::hardware::{Cluster, NodePool};
use super::input::{PlanInput, Search, Workload};
use super::layout::Shape;
use super::layout::place::place;
use super::plan::RankedLayout;
use super::replica::{Ground, Replica};
use super::search::{Found, search};

/// The widest replicas that are searched for something better than what was found.
pub const WIDEST_GPUS: u64 = 64;
/// The widest replicas that are searched while nothing was found.
const LAST_RESORT_GPUS: u64 = 512;

/// A load to find GPUs for.
#[derive(Debug, Clone)]
pub struct SizingInput {
    /// Model, engines, lengths, limits; each pool of its cluster is a product to size.
    pub plan: PlanInput,
    pub load: Load,
}

/// The answer to a [`SizingInput`].
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Sizing {
    /// True when some product carries the load.
    pub feasible: bool,
    /// The answer in one or two sentences.
    pub answer: String,
    /// Fewest GPUs first, then those that cannot.
    pub products: Vec<SizedProduct>,
    /// How the load was turned into replicas.
    pub method: Vec<String>,
}

/// One GPU product.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SizedProduct {
    /// Catalogue key.
    pub gpu: String,
    pub gpu_name: String,
    pub gpus_per_node: u64,
    pub feasible: bool,
    /// What carries the load, when anything does.
    pub sized: Option<FewestGpus>,
    /// Why nothing does.
    pub why_not: Option<WhyNot>,
}

/// The fewest GPUs of a product.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FewestGpus {
    /// GPUs in use at the load's peak.
    pub gpus: u64,
    /// Nodes that hold them.
    pub nodes: u64,
    /// GPUs of those nodes that stay idle.
    pub idle_gpus: u64,
    pub replicas: u64,
    /// Over the intervals of a trace; the peak where the load is one figure.
    pub replicas_mean: f64,
    pub gpus_mean: f64,
    pub per_replica: PerReplica,
    pub cost: SizedCost,
    /// The layout at the load's peak, as a plan shows it.
    pub layout: RankedLayout,
}

/// What one replica carries at most, and how fast it is at the load.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PerReplica {
    pub gpus: u64,
    /// Requests in flight within the limits.
    pub max_concurrency: u64,
    /// Completed requests per second within the limits; null for a load of sequences.
    pub max_requests_per_s: Option<f64>,
    /// Users within the limits; null for another load.
    pub max_users: Option<f64>,
    /// What keeps it from carrying more: `kv_cache`, `max_num_seqs`, `tpot` or `ttft`.
    pub bound: String,
    /// Requests in flight at the load's peak.
    pub concurrency: u64,
    pub ttft_ms: f64,
    pub tpot_ms: f64,
    /// Share of time spent on prompts, 0..1; 0 for a load of sequences.
    pub prefill_share: f64,
}

/// What it costs; null where no price is known.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SizedCost {
    pub usd_per_gpu_hour: Option<f64>,
    /// GPUs in use at the peak.
    pub usd_per_hour: Option<f64>,
    /// The same with the idle GPUs of whole nodes.
    pub usd_per_hour_whole_nodes: Option<f64>,
    /// Over the intervals of a trace, when GPUs are given back.
    pub usd_per_hour_mean: Option<f64>,
}

/// Why a product does not carry the load.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct WhyNot {
    /// `tpot_missed`, `ttft_missed`, `no_sequence_fits`, or the code of a refusal.
    pub code: String,
    pub message: String,
    /// Bytes missing on the tightest GPU of the widest replica, when memory is the reason.
    pub short_by_bytes: Option<u64>,
}

/// The fewest GPUs of each product for the load.
#[must_use]
pub fn size(input: &SizingInput) -> Sizing {
    let mut products: Vec<SizedProduct> =
        input.plan.cluster.pools.iter().map(|pool| size_product(input, pool)).collect();
    products.sort_by(compare);
    let feasible = products.iter().any(|p| p.feasible);
    Sizing { feasible, answer: words::answer(input, &products), method: words::method(input), products }
}

fn compare(a: &SizedProduct, b: &SizedProduct) -> Ordering {
    let key = |p: &SizedProduct| p.sized.as_ref().map_or(u64::MAX, |s| s.gpus);
    let usd = |p: &SizedProduct| p.sized.as_ref().and_then(|s| s.cost.usd_per_hour).unwrap_or(f64::INFINITY);
    key(a).cmp(&key(b)).then(usd(a).total_cmp(&usd(b)))
}

fn size_product(input: &SizingInput, product: &NodePool) -> SizedProduct {
    let mut plan = searched(input, product);
    let per_node = product.gpus_per_node.max(1);
    let mut best: Option<Choice> = None;
    let mut why_not;
    let mut nodes: u64 = 1;
    loop {
        set_nodes(&mut plan, nodes);
        let found = search(&plan);
        let choices = Choices::among(&found, &input.load);
        why_not = choices.why_not;
        if choices.best.as_ref().is_some_and(|new| best.as_ref().is_none_or(|old| new.precedes(old))) {
            best = choices.best;
        }
        let gpus = nodes.saturating_mul(per_node);
        let enough = match &best {
            // no replica beyond this pool can need fewer GPUs
            Some(choice) => choice.gpus() <= gpus || gpus >= WIDEST_GPUS,
            None => gpus >= LAST_RESORT_GPUS || !choices.wider_may_do,
        };
        if enough {
            break;
        }
        nodes = nodes.saturating_mul(2);
    }
    let sized = best.and_then(|choice| sized(input, plan, &choice));
    SizedProduct {
        gpu: product.gpu.key.clone(),
        gpu_name: product.gpu.name.clone(),
        gpus_per_node: product.gpus_per_node,
        feasible: sized.is_some(),
        why_not: if sized.is_some() { None } else { why_not },
        sized,
    }
}

/// The question on one product alone. Arriving requests hold their prompt and all their output at their end,
/// so that is the length at which they take their seats.
fn searched(input: &SizingInput, product: &NodePool) -> PlanInput {
    let plan = &input.plan;
    let workload = &plan.workload;
    let lengths = workload.input_tokens.saturating_add(workload.output_tokens);
    let context_tokens = if input.load.has_arrivals() { Some(lengths) } else { workload.context_tokens };
    PlanInput {
        cluster: Cluster { pools: vec![product.clone()], assumed: Vec::new(), warnings: Vec::new() },
        search: Search { dp: None, allow_idle_gpus: true, ..plan.search.clone() },
        workload: Workload { context_tokens, ..workload.clone() },
        limit: 1,
        ..plan.clone()
    }
}

fn set_nodes(plan: &mut PlanInput, nodes: u64) {
    for pool in &mut plan.cluster.pools {
        pool.nodes = nodes;
        pool.free_memory_bytes = None;
    }
}

/// A replica with what it carries and how many of it are needed.
struct Choice {
    shape: Shape,
    engine: usize,
    most: Carried,
    replicas: load::Replicas,
    at_load: Carried,
}

impl Choice {
    fn gpus(&self) -> u64 {
        self.shape.gpus().saturating_mul(self.replicas.peak)
    }

    /// Fewer GPUs, then the shorter time per token at the load, then the simpler replica.
    fn precedes(&self, other: &Self) -> bool {
        let order = self.gpus().cmp(&other.gpus()).then(
            self.at_load
                .tpot_s
                .total_cmp(&other.at_load.tpot_s)
                .then_with(|| self.simplicity().cmp(&other.simplicity())),
        );
        order == Ordering::Less
    }

    const fn simplicity(&self) -> (u64, u64, u64, u64, u64, usize) {
        let Shape { tp, pp, ep, attention_dp, dcp } = self.shape;
        (pp, tp, ep, attention_dp, dcp, self.engine)
    }
}

/// What a search offers for a load.
struct Choices {
    best: Option<Choice>,
    why_not: Option<WhyNot>,
    /// More GPUs in a replica could help.
    wider_may_do: bool,
}

impl Choices {
    fn among(found: &Found<'_>, load: &Load) -> Self {
        let mut best: Option<Choice> = None;
        let mut slow: Option<TooSlow> = None;
        for ranked in &found.ranked {
            let Some(ground) = found.grounds.get(ranked.ground) else { continue };
            match Choice::of(ground, &ranked.candidate.replica, load, best.as_ref()) {
                Ok(Some(choice)) if best.as_ref().is_none_or(|b| choice.precedes(b)) => best = Some(choice),
                Ok(_) => {}
                Err(reason) => slow = Some(slow.map_or(reason, |known| milder(known, reason))),
            }
        }
        Self {
            why_not: slow.map(words::too_slow).or_else(|| refused(found)),
            wider_may_do: slow.is_some() || may_fit_wider(found),
            best,
        }
    }
}

impl Choice {
    /// `None` when it needs more GPUs than what is known already.
    fn of(
        ground: &Ground<'_>,
        replica: &Replica,
        load: &Load,
        known: Option<&Self>,
    ) -> Result<Option<Self>, TooSlow> {
        let most = load::most(ground, replica, load)?;
        let replicas = load.replicas(&most);
        let gpus = replica.shape.gpus().saturating_mul(replicas.peak);
        if known.is_some_and(|k| k.gpus() < gpus) {
            return Ok(None);
        }
        let at_load = load::at_load(ground, replica, load, &most, replicas.peak);
        Ok(Some(Self { shape: replica.shape, engine: ground.engine, most, replicas, at_load }))
    }
}

/// The miss that is nearest to a hit.
fn milder(a: TooSlow, b: TooSlow) -> TooSlow {
    match (a, b) {
        (TooSlow::NoSeat, other) | (other, TooSlow::NoSeat) => other,
        (TooSlow::Tpot(x), TooSlow::Tpot(y)) => TooSlow::Tpot(x.min(y)),
        (TooSlow::Ttft(x), TooSlow::Ttft(y)) => TooSlow::Ttft(x.min(y)),
        (TooSlow::Tpot(x), TooSlow::Ttft(_)) | (TooSlow::Ttft(_), TooSlow::Tpot(x)) => TooSlow::Tpot(x),
    }
}

/// The refusal by memory that missed by the fewest bytes, else the last one.
fn refused(found: &Found<'_>) -> Option<WhyNot> {
    found.nearest_miss().or(found.refused.last()).map(|refused| {
        let misfit = found.in_words(refused);
        WhyNot {
            code: misfit.refusal.code.as_str().to_owned(),
            message: misfit.refusal.message,
            short_by_bytes: misfit.short_by.map(super::units::Bytes::get),
        }
    })
}

/// Memory, or a node too small, was among the reasons.
fn may_fit_wider(found: &Found<'_>) -> bool {
    [RefusalCode::WeightsDoNotFit, RefusalCode::KvCacheTooSmall]
        .iter()
        .any(|code| found.refused_counts.contains_key(code))
}

fn sized(input: &SizingInput, mut plan: PlanInput, choice: &Choice) -> Option<FewestGpus> {
    let pool = plan.cluster.pools.first()?.clone();
    let replicas = choice.replicas.peak;
    let nodes = nodes_for(&pool, &choice.shape, replicas)?;
    set_nodes(&mut plan, nodes);
    let Shape { tp, pp, ep, attention_dp, dcp } = choice.shape;
    let only = |size: u64| Some(vec![size]);
    plan.search = Search {
        tp: only(tp),
        pp: only(pp),
        dp: only(replicas),
        ep: only(ep),
        attention_dp: only(attention_dp),
        dcp: only(dcp),
        allow_idle_gpus: true,
    };
    plan.engines = vec![plan.engines.get(choice.engine)?.clone()];
    plan.workload.concurrency = choice.at_load.concurrency.saturating_mul(replicas);
    let layout = super::plan(&plan).layouts.into_iter().next()?;
    let usd = plan.overrides.number("usd_per_gpu_hour").or(pool.usd_per_gpu_hour);
    let gpus = choice.gpus();
    let whole = nodes.saturating_mul(pool.gpus_per_node);
    let gpus_mean = choice.replicas.mean * choice.shape.gpus() as f64;
    let (most, at_load) = (&choice.most, &choice.at_load);
    Some(FewestGpus {
        gpus,
        nodes,
        idle_gpus: whole.saturating_sub(gpus),
        replicas,
        replicas_mean: choice.replicas.mean,
        gpus_mean,
        per_replica: PerReplica {
            gpus: choice.shape.gpus(),
            max_concurrency: most.concurrency,
            max_requests_per_s: input.load.has_arrivals().then_some(most.requests_per_s),
            max_users: matches!(input.load, Load::Users { .. }).then_some(most.users),
            bound: most.bound.as_str().to_owned(),
            concurrency: at_load.concurrency,
            ttft_ms: at_load.ttft_s * 1e3,
            tpot_ms: at_load.tpot_s * 1e3,
            prefill_share: at_load.prefill_share,
        },
        cost: SizedCost {
            usd_per_gpu_hour: usd,
            usd_per_hour: usd.map(|usd| usd * gpus as f64),
            usd_per_hour_whole_nodes: usd.map(|usd| usd * whole as f64),
            usd_per_hour_mean: usd.map(|usd| usd * gpus_mean),
        },
        layout,
    })
}

/// The fewest nodes that hold `replicas` of a shape. More nodes never hold fewer, so halving finds them.
fn nodes_for(pool: &NodePool, shape: &Shape, replicas: u64) -> Option<u64> {
    let held = |nodes: u64| place(&NodePool { nodes, ..pool.clone() }, shape).map_or(0, |p| p.replicas_max);
    let least = shape.gpus().checked_mul(replicas)?.div_ceil(pool.gpus_per_node.max(1)).max(1);
    let mut enough = least;
    while held(enough) < replicas {
        enough = enough.checked_mul(2)?;
    }
    let mut short = least.saturating_sub(1).max(if enough == least { 0 } else { enough / 2 });
    while enough.saturating_sub(short) > 1 {
        let middle = short.midpoint(enough);
        if held(middle) >= replicas { enough = middle } else { short = middle }
    }
    Some(enough)
}
