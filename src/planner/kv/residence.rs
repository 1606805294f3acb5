//! Where KV lies: what a GPU holds, what a replica holds, and what one sequence may use of it.
//!
//! TP, PP and decode context parallelism join the memory of GPUs into one pool that a single sequence may fill.
//! Replicas and attention DP add pools beside each other: more sequences, none longer.

use serde::Serialize;
use utoipa::ToSchema;

use crate::planner::layout::Shape;
use crate::planner::layout::sizes;
use crate::planner::replica::{Ground, Misfit, Replica};
use crate::planner::units::{Tokens, grouped};

/// Lengths up to which a pool is measured, tokens.
const LONGEST: Tokens = Tokens(1 << 40);

/// One layout.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Residence {
    pub layout: ResidenceLayout,
    pub fits: bool,
    /// Why it does not, else empty.
    pub refused: Option<String>,
    /// Cache bytes of the fullest GPU, and what one token takes of it.
    pub kv_bytes_per_gpu: u64,
    pub bytes_per_token_per_gpu: u64,
    pub replication_factor: f64,
    /// What one engine's cache holds, and all of them together.
    pub kv_tokens_per_replica: u64,
    pub kv_tokens_total: u64,
    /// The longest single sequence that one cache holds, whatever the model itself allows.
    pub max_sequence_tokens: u64,
    /// The same within the model's own limit.
    pub max_sequence_tokens_of_model: u64,
    /// It holds one sequence of the asked context.
    pub fits_one: bool,
    /// The engine would admit requests that can never run: `max_model_len` is longer than the pool, and nothing stops the start.
    pub admits_but_never_runs: bool,
}

/// The sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResidenceLayout {
    pub tp: u64,
    pub pp: u64,
    pub dp: u64,
    pub attention_dp: u64,
    pub ep: u64,
    pub dcp: u64,
}

/// Layouts beside each other.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Residences {
    pub layouts: Vec<Residence>,
    /// Which strategies raise the longest sequence among the layouts compared, e.g. `tp`, `pp`.
    pub raises_max_sequence: Vec<String>,
    /// Which were tried and do not.
    pub does_not_raise: Vec<String>,
    pub message: String,
}

/// Where KV lies in one layout.
#[must_use]
pub fn of_layout(ground: &Ground<'_>, shape: &Shape, dp: u64) -> Residence {
    let layout = ResidenceLayout {
        tp: shape.tp,
        pp: shape.pp,
        dp,
        attention_dp: shape.attention_dp,
        ep: shape.ep,
        dcp: shape.dcp,
    };
    match ground.replica(shape, &ground.sharded(shape)) {
        Ok(replica) if replica.placed.replicas_max >= dp => held(ground, &replica, layout),
        Ok(replica) => refused(
            layout,
            format!(
                "{} × DP={dp}: the cluster holds {} such replicas",
                sizes(shape),
                replica.placed.replicas_max
            ),
        ),
        Err(Misfit { refusal, .. }) => refused(layout, refusal.message),
    }
}

fn held(ground: &Ground<'_>, replica: &Replica, layout: ResidenceLayout) -> Residence {
    let pool = replica.cache.longest_sequence(replica.capacity.blocks, LONGEST);
    let binding = replica.capacity.binding_stage;
    let caches = layout.dp.saturating_mul(layout.attention_dp);
    let asked = ground.context();
    Residence {
        fits: true,
        refused: None,
        kv_bytes_per_gpu: replica.kv_bytes.get(binding).map_or(0, |b| b.get()),
        bytes_per_token_per_gpu: replica.cache.token_bytes.get(binding).map_or(0, |b| b.get()),
        replication_factor: replica.cache.replication_factor,
        kv_tokens_per_replica: replica.capacity.tokens.get(),
        kv_tokens_total: replica.capacity.tokens.get().saturating_mul(caches),
        max_sequence_tokens: pool.get(),
        max_sequence_tokens_of_model: ground.longest_of_model(replica).get(),
        fits_one: pool >= asked,
        admits_but_never_runs: ground.settings.max_model_len > pool,
        layout,
    }
}

fn refused(layout: ResidenceLayout, why: String) -> Residence {
    Residence {
        layout,
        fits: false,
        refused: Some(why),
        kv_bytes_per_gpu: 0,
        bytes_per_token_per_gpu: 0,
        replication_factor: 1.0,
        kv_tokens_per_replica: 0,
        kv_tokens_total: 0,
        max_sequence_tokens: 0,
        max_sequence_tokens_of_model: 0,
        fits_one: false,
        admits_but_never_runs: false,
    }
}

/// Compare layouts, each strategy against a single GPU of the same kind (or one TP group where one GPU holds nothing).
#[must_use]
pub fn compare(ground: &Ground<'_>, layouts: &[(Shape, u64)]) -> Residences {
    let list: Vec<Residence> = layouts.iter().map(|(shape, dp)| of_layout(ground, shape, *dp)).collect();
    let mut raises = Vec::new();
    let mut does_not = Vec::new();
    for (name, size) in STRATEGIES {
        let tried: Vec<(&Residence, u64)> = list
            .iter()
            .filter(|r| r.fits && size(&r.layout) > 1)
            .map(|r| (r, alone_without(ground, r, name)))
            .collect();
        if tried.is_empty() {
            continue;
        }
        if tried.iter().any(|(r, without)| r.max_sequence_tokens > *without) {
            raises.push((*name).to_owned());
        } else {
            does_not.push((*name).to_owned());
        }
    }
    Residences {
        message: words(&list, &raises, &does_not),
        layouts: list,
        raises_max_sequence: raises,
        does_not_raise: does_not,
    }
}

type Size = fn(&ResidenceLayout) -> u64;

const STRATEGIES: &[(&str, Size)] = &[
    ("tp", |l| l.tp),
    ("pp", |l| l.pp),
    ("dcp", |l| l.dcp),
    ("dp", |l| l.dp),
    ("attention_dp", |l| l.attention_dp),
];

/// The longest sequence of the same layout without one strategy; 0 when that does not fit at all.
fn alone_without(ground: &Ground<'_>, residence: &Residence, strategy: &str) -> u64 {
    let l = &residence.layout;
    let mut shape = Shape { tp: l.tp, pp: l.pp, ep: l.ep, attention_dp: l.attention_dp, dcp: l.dcp };
    let mut dp = l.dp;
    match strategy {
        "tp" => (shape.tp, shape.dcp) = (1, 1),
        "pp" => shape.pp = 1,
        "dcp" => shape.dcp = 1,
        "dp" => dp = 1,
        _ => shape.attention_dp = 1,
    }
    if shape.ep > 1 {
        shape.ep = shape.tp.saturating_mul(shape.attention_dp).max(1);
    }
    of_layout(ground, &shape, dp).max_sequence_tokens
}

fn words(list: &[Residence], raises: &[String], does_not: &[String]) -> String {
    let longest = list.iter().map(|r| r.max_sequence_tokens).max().unwrap_or(0);
    let mut text = format!("The longest single sequence is {} tokens.", grouped(longest));
    if !raises.is_empty() {
        text.push_str(&format!(" {} raise{} it", upper(raises), if raises.len() == 1 { "s" } else { "" }));
        text.push_str(": one sequence may use the memory of every GPU they join.");
    }
    if !does_not.is_empty() {
        text.push_str(&format!(
            " {} {} not: it adds caches beside each other.",
            upper(does_not),
            if does_not.len() == 1 { "does" } else { "do" }
        ));
    }
    text
}

fn upper(names: &[String]) -> String {
    names.iter().map(|n| n.replace('_', " ").to_uppercase()).collect::<Vec<_>>().join(", ")
}
