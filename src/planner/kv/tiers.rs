//! Lower tiers of cache: how large they must be to be of use, and what they are of no use for.
//!
//! Rules (kvbm-guide of NVIDIA Dynamo; SGLang's hierarchical cache; LMCache; llm-d's peer sharing): tiers are written
//! through, so a tier smaller than the one above it only churns; and no tier adds room for running sequences.

use serde::Serialize;
use utoipa::ToSchema;

use crate::planner::units::Bytes;

/// LMCache's host buffer for each worker when nothing is set, bytes (0.5.6: 5 GB).
const LMCACHE_DEFAULT: Bytes = Bytes(5_000_000_000);
/// SGLang's host pool over its GPU pool by default (0.5.23: `hicache_ratio`).
const HICACHE_RATIO: u64 = 2;
/// Share of free host memory that SGLang takes at most, after 10 GiB are kept back (0.5.23).
const HICACHE_SHARE: f64 = 0.8;
const HICACHE_KEPT_BACK: Bytes = Bytes(10 << 30);

/// A tier below the GPUs, on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// `host`, `disk`, `store`.
    pub level: String,
    pub bytes_per_node: Bytes,
    /// True when every node sees the same one.
    pub shared: bool,
}

/// What the tiers are judged against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pool {
    /// Cache of one GPU.
    pub bytes_per_gpu: Bytes,
    /// GPUs in use on a node.
    pub gpus_on_node: u64,
    pub host_memory: Option<Bytes>,
    /// Sequences that the GPU pool holds: no tier changes them.
    pub sequences: u64,
}

/// The answer for one node.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Tiers {
    /// Cache in the GPUs of a node: the least that a host tier must hold.
    pub gpu_kv_bytes_node: u64,
    pub host_needed_bytes_node: u64,
    /// What each rank must be given: LMCache's `max_local_cpu_size`, SGLang's `hicache_size`.
    pub host_needed_bytes_per_rank: u64,
    /// Sequences that run at once, with or without tiers.
    pub sequences: u64,
    pub tiers: Vec<TierAnswer>,
    pub settings: Vec<TierSetting>,
    pub message: String,
}

/// One tier.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TierAnswer {
    pub level: String,
    pub bytes_per_node: u64,
    pub needed_bytes: u64,
    /// False: it only churns.
    pub useful: bool,
    pub message: String,
}

/// A value to set in an engine or connector.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TierSetting {
    pub system: String,
    pub setting: String,
    pub value: String,
    pub message: String,
}

/// Judge the tiers of a node, from the GPUs downwards.
#[must_use]
pub fn judge(pool: &Pool, tiers: &[Tier]) -> Tiers {
    let ranks = pool.gpus_on_node.max(1);
    let gpu = pool.bytes_per_gpu * ranks;
    let mut above = gpu;
    let mut answers = Vec::with_capacity(tiers.len());
    for tier in tiers {
        let useful = tier.bytes_per_node >= above;
        answers.push(TierAnswer {
            level: tier.level.clone(),
            bytes_per_node: tier.bytes_per_node.get(),
            needed_bytes: above.get(),
            useful,
            message: if useful {
                format!("{:.0} GB hold at least what lies above ({:.0} GB).", gb(tier.bytes_per_node), gb(above))
            } else {
                format!(
                    "{:.0} GB are less than the {:.0} GB above: written through, it throws out what is still in use \
                     and only costs bandwidth.",
                    gb(tier.bytes_per_node),
                    gb(above)
                )
            },
        });
        above = above.max(tier.bytes_per_node);
    }
    Tiers {
        gpu_kv_bytes_node: gpu.get(),
        host_needed_bytes_node: gpu.get(),
        host_needed_bytes_per_rank: pool.bytes_per_gpu.get(),
        sequences: pool.sequences,
        settings: settings(pool, gpu),
        message: format!(
            "A host tier needs {:.0} GB a node to be of use. It makes prefixes cheaper to come back to; the {} \
             sequences that run at once stay as many.",
            gb(gpu),
            pool.sequences
        ),
        tiers: answers,
    }
}

fn settings(pool: &Pool, gpu: Bytes) -> Vec<TierSetting> {
    let ranks = pool.gpus_on_node.max(1);
    let mut list = vec![TierSetting {
        system: "LMCache".to_owned(),
        setting: "max_local_cpu_size".to_owned(),
        value: format!("{:.0}", gb(pool.bytes_per_gpu).ceil()),
        message: if pool.bytes_per_gpu > LMCACHE_DEFAULT {
            format!(
                "The default of 5 GB a worker is smaller than its GPU pool of {:.0} GB.",
                gb(pool.bytes_per_gpu)
            )
        } else {
            "The default of 5 GB a worker is enough.".to_owned()
        },
    }];
    let wanted = gpu * HICACHE_RATIO;
    let (ratio, message) = match pool.host_memory {
        Some(host) => {
            let may = Bytes::from_f64((host - HICACHE_KEPT_BACK).as_f64() * HICACHE_SHARE);
            if may >= wanted {
                (HICACHE_RATIO as f64, format!("{:.0} GB of host memory a node allow the default.", gb(host)))
            } else {
                (
                    may.as_f64() / gpu.as_f64().max(1.0),
                    format!(
                        "{:.0} GB of host memory allow {:.0} GB; the default would take {:.0} GB.",
                        gb(host),
                        gb(may),
                        gb(wanted)
                    ),
                )
            }
        }
        None => (
            HICACHE_RATIO as f64,
            format!(
                "Takes {:.0} GB of host memory a node, {:.0} for each of {ranks} ranks.",
                gb(wanted),
                gb(wanted / ranks)
            ),
        ),
    };
    list.push(TierSetting {
        system: "SGLang".to_owned(),
        setting: "hicache-ratio".to_owned(),
        value: format!("{ratio:.2}"),
        message,
    });
    list
}

fn gb(bytes: Bytes) -> f64 {
    bytes.as_f64() / 1e9
}
