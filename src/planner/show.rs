//! From what a search found to the answer that everybody shows.

mod admission;
mod memory;
mod speculation;

pub(super) use admission::preempts;

use super::advice;
use super::answer;
use super::candidate::{Candidate, whole};
use super::constants::gpu_source;
use super::estimate::{Assumption, AssumptionValue};
use super::fleet;
use super::formula::{attention, kv_formula};
use super::hardware::{Cluster, NodePool};
use super::input::PlanInput;
use super::latency::load::stage_loads;
use super::latency::roof::{Passes, Roof, roof};
use super::layout::Shape;
use super::plan::{
    Capacity, ClusterSummary, Cost, EngineEcho, EngineName, KvSummary, Launch, Layout, ModelSummary,
    Placement, Plan, PoolSummary, RankedLayout, RefusedCount, RefusedLayout, RefusedShape, RequestEcho,
    SloEcho, Throughput, WorkloadEcho,
};
use super::replica::{Ground, Misfit, Replica};
use super::search::{Found, Ranked, Refused};
use super::units::{Bytes, grouped};

/// The whole answer.
#[must_use]
pub fn plan(input: &PlanInput, found: &Found<'_>) -> Plan {
    let layouts: Vec<RankedLayout> = found
        .ranked
        .iter()
        .take(input.limit)
        .enumerate()
        .filter_map(|(i, ranked)| layout(i, ranked, found))
        .collect();
    let smallest: Vec<Option<Shape>> =
        (0..input.engines.len()).map(|engine| found.smallest_that_fits(engine)).collect();
    Plan {
        feasible: found.ranked.iter().any(|r| r.candidate.standing.serves),
        answer: answer::answer(input, found),
        model: model(input, found),
        cluster: cluster(&input.cluster),
        request: echo(input, found),
        assumptions: assumptions(input, found),
        total_considered: found.considered,
        total_feasible: found.ranked.len() as u64,
        layouts,
        refused: found.refused.iter().map(|r| refused(input, found, &smallest, r)).collect(),
        refused_counts: found
            .refused_counts
            .iter()
            .map(|(code, count)| RefusedCount { code: code.as_str().to_owned(), count: *count })
            .collect(),
        fleet: fleet::fleet(input, found),
        advice: advice::advice(input, found),
        warnings: answer::question_warnings(input),
    }
}

fn layout(index: usize, ranked: &Ranked, found: &Found<'_>) -> Option<RankedLayout> {
    let ground = found.grounds.get(ranked.ground)?;
    let candidate = &ranked.candidate;
    let replica = &candidate.replica;
    let rules = ground.rules;
    Some(RankedLayout {
        rank: index as u64 + 1,
        layout: sizes(ground, candidate),
        engine: EngineName { name: rules.name().to_owned(), version: rules.version().to_owned() },
        placement: placement(replica),
        kv: kv(replica),
        memory: memory::shown(ground, replica),
        capacity: capacity(ground, candidate),
        latency: candidate.timing.show(candidate.all_reduces_per_pass),
        roof: roof_of(ground, candidate),
        throughput: throughput(candidate),
        cost: cost(candidate),
        meets_slo: candidate.standing.meets_slo,
        pareto: ranked.pareto,
        warnings: answer::layout_warnings(ground, candidate),
        reasons: answer::reasons(ground, ranked, found),
        launch: Launch::default(),
    })
}

fn roof_of(ground: &Ground<'_>, candidate: &Candidate) -> Roof {
    let replica = &candidate.replica;
    let constants = ground.constants(replica);
    let passes = Passes {
        batch: (candidate.concurrency as f64 / candidate.caches().max(1) as f64).max(1.0)
            / replica.shape.pp.max(1) as f64,
        context_tokens: ground.context().as_f64(),
        chunk_tokens: ground.settings.max_num_batched_tokens as f64,
    };
    roof(&stage_loads(&ground.model, replica), passes, constants.peak_flops, constants.hbm_bytes_per_s)
}

/// The sizes of a layout as the contract shows them.
#[must_use]
pub fn sizes(ground: &Ground<'_>, candidate: &Candidate) -> Layout {
    let Shape { tp, pp, ep, attention_dp, dcp } = candidate.replica.shape;
    Layout {
        tp,
        pp,
        dp: candidate.dp,
        ep,
        attention_dp,
        dcp,
        gpus: candidate.gpus(),
        idle_gpus: candidate.idle_gpus,
        kv_cache_dtype: ground.settings.kv_dtype.as_str().to_owned(),
        gpu: ground.gpu.key.clone(),
    }
}

fn placement(replica: &Replica) -> Placement {
    let key = |links: &super::layout::place::GroupLinks| links.link.key.clone();
    Placement {
        tp_link: key(&replica.placed.tp),
        pp_link: replica.placed.pp.as_ref().map(key),
        ep_link: replica.placed.ep.as_ref().map(key),
        tp_crosses_nodes: replica.placed.tp.is_over_fabric(),
        devices: replica.devices.clone(),
    }
}

/// The bytes of one token. Over the replica every TP rank of every stage holds its part, copies included;
/// with DCP the copies are dealt out instead.
fn kv(replica: &Replica) -> KvSummary {
    let cache = &replica.cache;
    let fullest = cache.token_bytes.iter().copied().max().unwrap_or_default();
    let logical = cache.token_bytes_logical.get();
    KvSummary {
        kv_heads_per_gpu: cache.kv_heads_per_rank,
        replication_factor: cache.replication_factor,
        bytes_per_token_per_gpu: fullest.get(),
        bytes_per_token_logical: logical,
        bytes_per_token_cluster: whole((logical as f64 * cache.replication_factor).round()),
    }
}

fn capacity(ground: &Ground<'_>, candidate: &Candidate) -> Capacity {
    let replica = &candidate.replica;
    let held = &replica.capacity;
    let sequences = whole(candidate.sequences_at_context);
    let seats = sequences.min(ground.settings.max_num_seqs);
    Capacity {
        kv_blocks: held.blocks,
        block_size: replica.cache.block_size,
        kv_tokens_per_replica: held.tokens.get(),
        kv_tokens_total: candidate.standing.kv_tokens_total,
        max_sequence_tokens: replica.longest.get(),
        sequences_at_context: candidate.sequences_at_context,
        sequences,
        sequences_total: sequences.saturating_mul(candidate.caches()),
        engine_max_concurrency: held.max_concurrency,
        bound: if seats < sequences { "max_num_seqs" } else { "kv_cache" }.to_owned(),
        engine_log_line: log_line(ground, candidate),
        admission: admission::of(ground, candidate),
    }
}

/// What the engine itself logs of its cache: vLLM's `v1/core/kv_cache_utils.py`, SGLang's `managers/scheduler.py` (tokens of one
/// rank, chunks of one attention group), TensorRT-LLM's `kvCacheManager.cpp`.
fn log_line(ground: &Ground<'_>, candidate: &Candidate) -> String {
    let replica = &candidate.replica;
    let (held, settings) = (&replica.capacity, &ground.settings);
    let tokens = held.tokens.get();
    match settings.engine {
        "sglang" => format!(
            "max_total_num_tokens={}, chunked_prefill_size={}, context_len={}",
            tokens.checked_div(replica.shape.dcp.max(1)).unwrap_or(tokens),
            settings
                .max_num_batched_tokens
                .checked_div(replica.shape.attention_dp.max(1))
                .unwrap_or(settings.max_num_batched_tokens),
            settings.max_model_len.get(),
        ),
        "tensorrt-llm" => format!(
            "[MemUsageChange] Allocated {:.2} GiB for max tokens in paged KV cache ({tokens}).",
            replica.kv_bytes.get(held.binding_stage).copied().unwrap_or_default().gib(),
        ),
        _ => format!(
            "GPU KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2}x",
            grouped(tokens),
            grouped(settings.max_model_len.get()),
            held.max_concurrency,
        ),
    }
}

fn throughput(candidate: &Candidate) -> Throughput {
    Throughput {
        concurrency: candidate.concurrency,
        output_tokens_per_s: candidate.tokens_per_s,
        output_tokens_per_s_per_gpu: candidate.tokens_per_s / candidate.gpus().max(1) as f64,
        requests_per_s: candidate.requests_per_s,
    }
}

fn cost(candidate: &Candidate) -> Cost {
    let usd_per_hour = candidate.standing.usd_per_hour;
    let per_hour = candidate.tokens_per_s * 3600.0;
    Cost { usd_per_hour, usd_per_million_output_tokens: usd_per_hour.map(|usd| usd / per_hour * 1e6) }
}

fn model(input: &PlanInput, found: &Found<'_>) -> ModelSummary {
    let spec = &input.model;
    let of_best = found.ranked.first().and_then(|r| {
        found.grounds.get(r.ground).map(|g| (g.settings.kv_dtype, r.candidate.replica.cache.clone()))
    });
    let one_copy =
        of_best.or_else(|| found.grounds.iter().find_map(|g| Some((g.settings.kv_dtype, g.whole_cache()?))));
    ModelSummary {
        id: spec.name.clone(),
        architecture: spec.architecture.clone(),
        layers: spec.layers.len() as u64,
        hidden_size: spec.hidden_size,
        query_heads: spec.query_heads,
        kv_heads: spec.kv_heads,
        head_size: spec.head_size,
        attention: attention(spec).to_owned(),
        parameters: spec.parameters(),
        active_parameters: spec.active_parameters(),
        weights_bytes: spec.weights_bytes().get(),
        kv_bytes_per_token: one_copy.as_ref().map_or(0, |(_, cache)| cache.token_bytes_logical.get()),
        kv_formula: one_copy.map_or_else(String::new, |(dtype, cache)| kv_formula(spec, dtype, &cache)),
        quantization: spec.quantization.clone(),
        context_length: spec.context_length,
        source: String::new(),
        notes: spec.notes.clone(),
    }
}

/// A cluster in brief.
#[must_use]
pub fn cluster(cluster: &Cluster) -> ClusterSummary {
    ClusterSummary {
        gpus: cluster.gpus(),
        node_pools: cluster.pools.iter().map(pool).collect(),
        text: cluster.to_string(),
        words: cluster.in_words(),
    }
}

fn pool(pool: &NodePool) -> PoolSummary {
    PoolSummary {
        nodes: pool.nodes,
        gpus_per_node: pool.gpus_per_node,
        gpu: pool.gpu.key.clone(),
        gpu_name: pool.gpu.name.clone(),
        gpu_memory_bytes: pool.gpu.memory_bytes.get(),
        intra_link: pool.intra_link.key.clone(),
        island_gpus: pool.island_gpus,
        host_link: pool.host_link.as_ref().map(|link| link.key.clone()),
        inter_link: pool.inter_link.key.clone(),
        usd_per_gpu_hour: pool.usd_per_gpu_hour,
    }
}

/// The request with the defaults that the engine would take on the first pool.
fn echo(input: &PlanInput, found: &Found<'_>) -> RequestEcho {
    let workload = &input.workload;
    let first = found.grounds.first();
    let mut seen = Vec::new();
    RequestEcho {
        engines: found
            .grounds
            .iter()
            .filter(|g| {
                let new = !seen.contains(&g.engine);
                seen.push(g.engine);
                new
            })
            .map(engine_echo)
            .collect(),
        workload: WorkloadEcho {
            input_tokens: workload.input_tokens,
            output_tokens: workload.output_tokens,
            context_tokens: first.map_or(workload.context_tokens.unwrap_or(0), |g| g.context().get()),
            decode_context_tokens: first
                .map_or(workload.decode_context_tokens.unwrap_or(0), |g| g.decode_context().get()),
            concurrency: workload.concurrency,
            prefix_cache_hit_rate: workload.prefix_cache_hit_rate,
        },
        slo: SloEcho { ttft_ms: input.slo.ttft_ms, tpot_ms: input.slo.tpot_ms },
        objective: input.objective,
        latency_model: input.latency_model,
        limit: input.limit as u64,
    }
}

fn engine_echo(ground: &Ground<'_>) -> EngineEcho {
    let settings = &ground.settings;
    EngineEcho {
        name: ground.rules.name().to_owned(),
        version: ground.rules.version().to_owned(),
        gpu_memory_utilization: settings.gpu_memory_utilization,
        kv_cache_dtype: settings.kv_dtype.as_str().to_owned(),
        max_model_len: settings.max_model_len.get(),
        max_num_seqs: settings.max_num_seqs,
        max_num_batched_tokens: settings.max_num_batched_tokens,
        block_size: settings.block_size,
        kv_cache_memory_bytes: settings.kv_cache_memory_bytes.map(Bytes::get),
        quantization: settings.quantization.clone(),
        speculative_config: speculation::shown(ground),
    }
}

/// Every constant behind the answer: the cluster's, the engine's, the memory budget's, the latency model's.
fn assumptions(input: &PlanInput, found: &Found<'_>) -> Vec<Assumption> {
    let mut list: Vec<Assumption> = input
        .cluster
        .assumed
        .iter()
        .map(|a| Assumption {
            name: a.name.clone(),
            value: AssumptionValue::Text(a.value.clone()),
            unit: String::new(),
            source: a.source.clone(),
            given: false,
        })
        .collect();
    for ground in &found.grounds {
        list.extend(ground.settings.assumptions.iter().cloned());
        list.push(ground.gpu_memory());
        list.extend(ground.drafting_assumptions());
        list.extend(ground.correction_assumed());
        if ground.plain && input.model.weights_bytes_given.is_none() {
            list.push(Assumption {
                name: "weights".to_owned(),
                value: AssumptionValue::Text("matrices".to_owned()),
                unit: String::new(),
                source: "the plain model counts matrices by hand; norms and biases, a few hundredths of a per mille, \
                         are left out"
                    .to_owned(),
                given: false,
            });
        }
        if ground.plain && ground.settings.block_size == Some(1) {
            list.push(Assumption {
                name: "block_size".to_owned(),
                value: AssumptionValue::Number(1.0),
                unit: "tokens".to_owned(),
                source: "the plain model counts tokens, not blocks; name a block_size to count blocks"
                    .to_owned(),
                given: false,
            });
        }
    }
    if let Some(best) = found.ranked.first()
        && let Some(ground) = found.grounds.get(best.ground)
    {
        list.extend(ground.memory_assumptions(&best.candidate.replica));
        let replica = &best.candidate.replica;
        list.extend(match input.latency_model {
            super::input::LatencyModel::Roofline => ground.plain_assumptions(replica),
            super::input::LatencyModel::Calibrated => ground.calibrated_assumptions(replica),
        });
    }
    let mut seen: Vec<String> = Vec::new();
    list.retain(|a| {
        let key = format!("{} {:?}", a.name, a.value);
        let new = !seen.contains(&key);
        seen.push(key);
        new
    });
    list
}

impl Ground<'_> {
    fn gpu_memory(&self) -> Assumption {
        let gpu = &self.gpu;
        let basis = if gpu.memory_assumed {
            "from the marketing size, no driver figure is known"
        } else {
            "what the driver gives a process"
        };
        let source = format!("{basis}; {}", gpu_source(gpu, "mib"));
        self.assumption("gpu_memory_bytes", gpu.memory_bytes.as_f64(), "B", &source)
    }

    /// The items of the fullest stage's budget.
    fn memory_assumptions(&self, replica: &Replica) -> Vec<Assumption> {
        let Some(items) = replica.budget.stages.get(replica.capacity.binding_stage) else {
            return Vec::new();
        };
        if self.input.overrides.has("reserve_bytes") {
            return vec![self.assumption("reserve_bytes", items.total().as_f64(), "B", "")];
        }
        [
            ("activation_bytes", items.activation),
            ("runtime_bytes", items.runtime),
            ("cuda_graph_bytes", items.cuda_graph),
        ]
        .into_iter()
        .map(|(name, item)| self.assumption(name, item.bytes.as_f64(), "B", item.source))
        .collect()
    }
}

/// A refused layout; `smallest` fits, by engine.
fn refused(
    input: &PlanInput,
    found: &Found<'_>,
    smallest: &[Option<Shape>],
    refused: &Refused,
) -> RefusedLayout {
    let Misfit { refusal, short_by } = found.in_words(refused);
    let settings = input.engines.get(refused.engine);
    let nearest = refusal.nearest.or_else(|| smallest.get(refused.engine).copied().flatten());
    RefusedLayout {
        layout: shape(&refused.shape),
        engine: EngineName {
            name: settings.map_or_else(String::new, |s| s.name.clone()),
            version: settings.map_or_else(String::new, |s| s.version.clone()),
        },
        code: refusal.code.as_str().to_owned(),
        message: refusal.message,
        nearest: nearest.map(|s| shape(&s)),
        short_by_bytes: short_by.map(Bytes::get),
    }
}

fn shape(shape: &Shape) -> RefusedShape {
    let set = |size: u64| (size > 1).then_some(size);
    RefusedShape {
        tp: shape.tp,
        pp: shape.pp,
        ep: set(shape.ep),
        attention_dp: set(shape.attention_dp),
        dcp: set(shape.dcp),
    }
}
