//! Curves: the best layout at each value of one thing, everything else held.
//!
//! The curve over TP holds one replica without stages (unless the search says otherwise), so that it shows what TP
//! alone does; beside the tokens it carries `kv_tokens_if_sharded`, what they would be if no rank held a copy of
//! another's KV heads. The two part where TP passes the KV heads: that is the floor.

use serde::Serialize;
use utoipa::ToSchema;

use super::answer::layout_name;
use super::candidate::{Candidate, whole};
use super::fit::{WhyNotFit, why_not};
use super::hardware::{Cluster, Link};
use super::input::{PlanInput, Search};
use super::layout::Shape;
use super::plan::Layout;
use super::replica::Ground;
use super::search::search;
use super::show::sizes;
use super::units::Bytes;

/// What a curve runs over.
#[derive(Debug, Clone, PartialEq)]
pub enum Axis {
    Tp(Vec<u64>),
    Pp(Vec<u64>),
    /// Length of the sequences that are counted and decoded; the engine is started for it where no
    /// `max_model_len` is given.
    Context(Vec<u64>),
    Concurrency(Vec<u64>),
    KvCacheDtype(Vec<String>),
    /// The link between nodes.
    InterLink(Vec<Link>),
    /// The link inside nodes.
    IntraLink(Vec<Link>),
    /// The same number of GPUs of several products.
    Gpu(Vec<(String, Cluster)>),
    /// Layouts held as they are, by name.
    Layout(Vec<(String, Search)>),
}

/// A value of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AxisValue {
    Number(u64),
    Text(String),
}

/// Curves over one axis, one for each value of a second.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Sweep {
    /// `tp`, `pp`, `context`, `concurrency`, `kv_cache_dtype`, `inter_link`, `intra_link`, `gpu` or `layout`.
    pub over: String,
    pub by: Option<String>,
    /// Sizes that were held because nothing was said about them, e.g. "pp=1".
    pub held: Vec<String>,
    pub curves: Vec<Curve>,
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Curve {
    /// The value of the second axis.
    pub by: Option<AxisValue>,
    pub points: Vec<Point>,
}

/// The best layout at one value.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Point {
    pub at: AxisValue,
    /// True when a layout holds at least one sequence of the asked context.
    pub feasible: bool,
    pub layout: Option<Layout>,
    pub kv_tokens_per_replica: Option<u64>,
    pub kv_tokens_total: Option<u64>,
    /// KV tokens of a replica if no GPU held a copy of what another holds.
    pub kv_tokens_if_sharded: Option<u64>,
    pub replication_factor: Option<f64>,
    /// Sequences of the context in one engine's cache, as a fraction.
    pub sequences_at_context: Option<f64>,
    pub sequences_total: Option<u64>,
    pub max_sequence_tokens: Option<u64>,
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
    /// Sequences decoded at once for these times.
    pub concurrency: Option<u64>,
    pub output_tokens_per_s: Option<f64>,
    pub output_tokens_per_s_per_gpu: Option<f64>,
    /// What one user sees: 1 / TPOT.
    pub output_tokens_per_s_per_user: Option<f64>,
    pub usd_per_hour: Option<f64>,
    pub usd_per_million_output_tokens: Option<f64>,
    pub meets_slo: Option<bool>,
    /// True when the cache holds all sequences that were asked for at once, at the asked context.
    pub fits_kv: Option<bool>,
    /// The same layout if it ran all sequences that were asked for at once; null where it does.
    pub if_all_ran: Option<IfAllRan>,
    /// No other point of the answer gives both more tokens/s per user and more tokens/s per GPU.
    pub pareto: bool,
    /// Why there is no layout.
    pub why_not: Option<WhyNotFit>,
}

/// A batch beyond what the cache or the engine's `max_num_seqs` takes: what it would give if it ran.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct IfAllRan {
    pub ttft_ms: f64,
    pub tpot_ms: f64,
    pub output_tokens_per_s_per_user: f64,
    pub output_tokens_per_s_per_gpu: f64,
    pub usd_per_million_output_tokens: Option<f64>,
}

impl Axis {
    /// Its name in requests and answers.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tp(_) => "tp",
            Self::Pp(_) => "pp",
            Self::Context(_) => "context",
            Self::Concurrency(_) => "concurrency",
            Self::KvCacheDtype(_) => "kv_cache_dtype",
            Self::InterLink(_) => "inter_link",
            Self::IntraLink(_) => "intra_link",
            Self::Gpu(_) => "gpu",
            Self::Layout(_) => "layout",
        }
    }

    /// How many values it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tp(v) | Self::Pp(v) | Self::Context(v) | Self::Concurrency(v) => v.len(),
            Self::KvCacheDtype(v) => v.len(),
            Self::InterLink(v) | Self::IntraLink(v) => v.len(),
            Self::Gpu(v) => v.len(),
            Self::Layout(v) => v.len(),
        }
    }

    /// True when there is nothing to draw.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `index`, put into `input`; `None` past the end.
    fn apply(&self, index: usize, input: &mut PlanInput) -> Option<AxisValue> {
        Some(match self {
            Self::Tp(sizes) => {
                let tp = *sizes.get(index)?;
                input.search.tp = Some(vec![tp]);
                AxisValue::Number(tp)
            }
            Self::Pp(sizes) => {
                let pp = *sizes.get(index)?;
                input.search.pp = Some(vec![pp]);
                AxisValue::Number(pp)
            }
            Self::Context(lengths) => {
                let tokens = *lengths.get(index)?;
                input.workload.context_tokens = Some(tokens);
                for engine in &mut input.engines {
                    engine.max_model_len = engine.max_model_len.or(Some(tokens));
                }
                AxisValue::Number(tokens)
            }
            Self::Concurrency(counts) => {
                input.workload.concurrency = *counts.get(index)?;
                AxisValue::Number(input.workload.concurrency)
            }
            Self::KvCacheDtype(names) => {
                let name = names.get(index)?;
                for engine in &mut input.engines {
                    engine.kv_cache_dtype.clone_from(name);
                }
                AxisValue::Text(name.clone())
            }
            Self::InterLink(links) => {
                let link = links.get(index)?;
                input.cluster.pools.iter_mut().for_each(|pool| pool.inter_link = link.clone());
                AxisValue::Text(link.key.clone())
            }
            Self::IntraLink(links) => {
                let link = links.get(index)?;
                for pool in &mut input.cluster.pools {
                    pool.intra_link = link.clone();
                    pool.island_gpus = pool.gpus_per_node;
                    pool.host_link = None;
                }
                AxisValue::Text(link.key.clone())
            }
            Self::Gpu(clusters) => {
                let (name, cluster) = clusters.get(index)?;
                input.cluster = cluster.clone();
                AxisValue::Text(name.clone())
            }
            Self::Layout(layouts) => {
                let (name, search) = layouts.get(index)?;
                input.search = search.clone();
                AxisValue::Text(name.clone())
            }
        })
    }

    /// Hold what would hide the axis behind a better layout elsewhere; says what was held.
    fn hold(&self, input: &mut PlanInput) -> Vec<String> {
        let search = &mut input.search;
        let others = match self {
            Self::Tp(_) => vec![
                ("pp", &mut search.pp),
                ("dp", &mut search.dp),
                ("ep", &mut search.ep),
                ("attention_dp", &mut search.attention_dp),
                ("dcp", &mut search.dcp),
            ],
            Self::Pp(_) => vec![("dp", &mut search.dp), ("attention_dp", &mut search.attention_dp)],
            _ => Vec::new(),
        };
        let mut held = Vec::new();
        for (name, sizes) in others {
            if sizes.is_none() {
                *sizes = Some(vec![1]);
                held.push(format!("{name}=1"));
            }
        }
        held
    }
}

/// Draw the curves: `over` along each, one curve for each value of `by`.
#[must_use]
pub fn sweep(input: &PlanInput, over: &Axis, by: Option<&Axis>) -> Sweep {
    let mut base = input.clone();
    base.limit = 1;
    let mut held = over.hold(&mut base);
    if let Some(by) = by {
        held.extend(by.hold(&mut base));
    }
    held.retain(|h| !h.starts_with(&format!("{}=", over.name())));
    let curves = match by {
        None => vec![Curve { by: None, points: points(&base, over) }],
        Some(by) => (0..by.len())
            .filter_map(|i| {
                let mut here = base.clone();
                let value = by.apply(i, &mut here)?;
                Some(Curve { by: Some(value), points: points(&here, over) })
            })
            .collect(),
    };
    let mut sweep =
        Sweep { over: over.name().to_owned(), by: by.map(|axis| axis.name().to_owned()), held, curves };
    sweep.mark_front();
    sweep
}

/// The first `most` layouts of a plan that differ in their sizes, those on the front between speed for one user and
/// throughput of a GPU before the others: the usual values of [`Axis::Layout`].
#[must_use]
pub fn usual_layouts(input: &PlanInput, most: usize) -> Vec<(String, Search)> {
    let found = search(input);
    let mut layouts: Vec<(String, Search)> = Vec::new();
    let (front, rest): (Vec<_>, Vec<_>) = found.ranked.iter().partition(|r| r.pareto);
    for candidate in front.into_iter().chain(rest).map(|r| &r.candidate) {
        let name = layout_name(candidate);
        if layouts.len() < most && !layouts.iter().any(|(known, _)| *known == name) {
            layouts.push((name, only(candidate.replica.shape, Some(candidate.dp))));
        }
    }
    layouts
}

/// A search of one shape; without `dp`, as many replicas as the cluster holds.
#[must_use]
pub fn only(shape: Shape, dp: Option<u64>) -> Search {
    let Shape { tp, pp, ep, attention_dp, dcp } = shape;
    Search {
        tp: Some(vec![tp]),
        pp: Some(vec![pp]),
        dp: dp.map(|dp| vec![dp]),
        ep: Some(vec![ep]),
        attention_dp: Some(vec![attention_dp]),
        dcp: Some(vec![dcp]),
        allow_idle_gpus: true,
    }
}

impl Sweep {
    /// Mark the points that no other beats in both rates.
    fn mark_front(&mut self) {
        let rates = |p: &Point| {
            p.output_tokens_per_s_per_user.zip(p.output_tokens_per_s_per_gpu).filter(|_| p.feasible)
        };
        let all: Vec<(f64, f64)> = self.curves.iter().flat_map(|c| &c.points).filter_map(rates).collect();
        for point in self.curves.iter_mut().flat_map(|c| &mut c.points) {
            point.pareto = rates(point).is_some_and(|(user, gpu)| {
                !all.iter().any(|&(u, g)| u >= user && g >= gpu && (u > user || g > gpu))
            });
        }
    }
}

fn points(base: &PlanInput, over: &Axis) -> Vec<Point> {
    let mut input = base.clone();
    (0..over.len())
        .filter_map(|i| {
            // an engine setting that one value filled in is not the next one's
            input.engines.clone_from(&base.engines);
            over.apply(i, &mut input).map(|at| point(&input, at))
        })
        .collect()
}

fn point(input: &PlanInput, at: AxisValue) -> Point {
    let found = search(input);
    let best = found.ranked.first();
    let feasible = best.is_some_and(|b| b.candidate.standing.serves);
    let candidate = best.map(|b| &b.candidate);
    let replica = candidate.map(|c| &c.replica);
    let tokens = replica.map(|r| r.capacity.tokens.get());
    let copies = replica.map(|r| r.cache.replication_factor);
    Point {
        at,
        feasible,
        layout: best.and_then(|b| found.grounds.get(b.ground).map(|g| sizes(g, &b.candidate))),
        kv_tokens_per_replica: tokens,
        kv_tokens_total: candidate.map(|c| c.standing.kv_tokens_total),
        kv_tokens_if_sharded: tokens
            .zip(copies)
            .map(|(tokens, copies)| Bytes::from_f64((tokens as f64 * copies).round()).get()),
        replication_factor: copies,
        sequences_at_context: candidate.map(|c| c.sequences_at_context),
        sequences_total: candidate.map(|c| whole(c.sequences_at_context).saturating_mul(c.caches())),
        max_sequence_tokens: replica.map(|r| r.longest.get()),
        ttft_ms: candidate.map(|c| c.standing.ttft_s * 1e3),
        tpot_ms: candidate.map(|c| c.standing.tpot_s * 1e3),
        concurrency: candidate.map(|c| c.concurrency),
        output_tokens_per_s: candidate.map(|c| c.tokens_per_s),
        output_tokens_per_s_per_gpu: candidate.map(|c| c.tokens_per_s / c.gpus().max(1) as f64),
        output_tokens_per_s_per_user: candidate.map(|c| 1.0 / c.standing.tpot_s),
        usd_per_hour: candidate.and_then(|c| c.standing.usd_per_hour),
        usd_per_million_output_tokens: candidate.and_then(|c| usd_per_million(c, c.tokens_per_s)),
        meets_slo: candidate.map(|c| c.standing.meets_slo),
        fits_kv: candidate
            .map(|c| whole(c.sequences_at_context).saturating_mul(c.caches()) >= input.workload.concurrency),
        if_all_ran: best
            .and_then(|b| if_all_ran(found.grounds.get(b.ground)?, &b.candidate, input.workload.concurrency)),
        pareto: false,
        why_not: if feasible { None } else { why_not(&found, best) },
    }
}

/// The times of a batch of all `asked` sequences, where fewer run.
fn if_all_ran(ground: &Ground<'_>, candidate: &Candidate, asked: u64) -> Option<IfAllRan> {
    if candidate.concurrency >= asked {
        return None;
    }
    let timing = ground.timing(&candidate.replica, candidate.caches().max(1), asked, asked);
    let tokens_per_s = asked as f64 / timing.tpot_s;
    Some(IfAllRan {
        ttft_ms: timing.ttft_s * 1e3,
        tpot_ms: timing.tpot_s * 1e3,
        output_tokens_per_s_per_user: 1.0 / timing.tpot_s,
        output_tokens_per_s_per_gpu: tokens_per_s / candidate.gpus().max(1) as f64,
        usd_per_million_output_tokens: usd_per_million(candidate, tokens_per_s),
    })
}

/// Price of a million output tokens at this rate, where the GPUs have a price.
fn usd_per_million(candidate: &Candidate, tokens_per_s: f64) -> Option<f64> {
    Some(candidate.standing.usd_per_hour? / (tokens_per_s * 3600.0) * 1e6)
}
