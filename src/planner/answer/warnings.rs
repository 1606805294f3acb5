//! What to beware of in a layout.

use super::{copied, counted, factor, milliseconds};
use crate::planner::candidate::{Candidate, whole};
use crate::planner::plan::Warning;
use crate::planner::replica::{Ground, Replica};
use crate::planner::show::preempts;
use crate::planner::units::{Bytes, grouped};

/// What to beware of in a layout.
#[must_use]
pub fn layout_warnings(ground: &Ground<'_>, candidate: &Candidate) -> Vec<Warning> {
    let mut list = Vec::new();
    let mut warn = |code: &str, message: String| list.push(Warning { code: code.to_owned(), message });
    let replica = &candidate.replica;
    let shape = &replica.shape;
    let copies = replica.cache.replication_factor;
    if copies > 1.0 {
        let held = candidate.standing.kv_tokens_total;
        let sharded = whole(held as f64 * copies);
        warn(
            "kv_replicated",
            format!(
                "TP={} holds {} {} times: {} KV tokens instead of about {} if the cache could be split over all \
                 ranks, {} lost.",
                shape.tp,
                copied(ground.input),
                factor(copies),
                grouped(held),
                grouped(sharded),
                grouped(sharded.saturating_sub(held)),
            ),
        );
    }
    if replica.placed.tp.is_over_fabric() {
        warn(
            "tp_crosses_nodes",
            format!(
                "TP={} crosses nodes over {}: every one of {} all-reduces a pass waits for it.",
                shape.tp, replica.placed.tp.link.key, candidate.all_reduces_per_pass
            ),
        );
    }
    if candidate.idle_gpus > 0 {
        warn("idle_gpus", {
            let verb = if candidate.idle_gpus == 1 { "stays" } else { "stay" };
            format!("{} of the pool {verb} idle.", counted(candidate.idle_gpus, "GPU"))
        });
    }
    if !candidate.standing.serves {
        warn(
            "context_does_not_fit",
            format!(
                "Not one sequence of {} tokens fits; the longest is {} tokens.",
                grouped(ground.context().get()),
                grouped(replica.longest.get())
            ),
        );
    }
    if ground.context() > ground.settings.max_model_len {
        warn(
            "context_exceeds_max_model_len",
            format!(
                "The asked context of {} tokens is longer than max_model_len ({}): the engine refuses such requests.",
                grouped(ground.context().get()),
                grouped(ground.settings.max_model_len.get())
            ),
        );
    }
    let asked = ground.input.engines.get(ground.engine).and_then(|engine| engine.max_model_len);
    if let Some(asked) = asked.filter(|asked| *asked > ground.settings.max_model_len.get()) {
        warn(
            "max_model_len_exceeds_model",
            format!(
                "max_model_len ({}) is longer than the {} tokens that the model's positions are made for: the engine goes on \
                 with those.",
                grouped(asked),
                grouped(ground.settings.max_model_len.get())
            ),
        );
    }
    if ground.settings.max_model_len.get() > ground.rules.longest(&ground.model) {
        warn(
            "max_model_len_exceeds_model",
            format!(
                "max_model_len ({}) is longer than the {} tokens that the model's positions are made for; the engine was told \
                 to allow it, and what comes after them may be nonsense.",
                grouped(ground.settings.max_model_len.get()),
                grouped(ground.rules.longest(&ground.model))
            ),
        );
    }
    if whole(candidate.sequences_at_context) > ground.settings.max_num_seqs {
        warn(
            "max_num_seqs_binds",
            format!(
                "The cache would hold {} sequences, max_num_seqs admits {}.",
                grouped(whole(candidate.sequences_at_context)),
                grouped(ground.settings.max_num_seqs)
            ),
        );
    }
    if candidate.concurrency < ground.input.workload.concurrency {
        warn(
            "concurrency_exceeds_capacity",
            format!(
                "{} sequences of {} tokens were asked for at once and {} run; the others wait.",
                grouped(ground.input.workload.concurrency),
                grouped(ground.load_tokens().get()),
                grouped(candidate.concurrency)
            ),
        );
    }
    if preempts(ground, candidate) {
        warn("preemption", preemption(ground, candidate));
    }
    if ground.input.workload.prefix_cache_hit_rate > 0.0 && !ground.settings.prefix_caching {
        warn(
            "prefix_caching_off",
            format!("{} keeps no prefixes here: the hit rate counts as 0.", ground.settings.engine),
        );
    }
    if let Some(free) = replica.budget.free.iter().min()
        && *free < replica.budget.budget
    {
        warn("free_memory", free_memory(ground, replica, *free));
    }
    if ground.gpu.memory_assumed && !ground.input.overrides.has("gpu_memory_bytes") {
        warn(
            "gpu_memory_assumed",
            format!(
                "No driver figure is known for {}: its memory is derived from the marketing size.",
                ground.gpu.name
            ),
        );
    }
    list
}

/// What happens when more requests start than have room up to their end.
fn preemption(ground: &Ground<'_>, candidate: &Candidate) -> String {
    let length = ground.load_tokens().get();
    let places = ground.places(&candidate.replica).0.saturating_mul(candidate.caches());
    let asked = ground.input.workload.concurrency;
    let timing = &candidate.timing;
    let wait = match timing.slot_s {
        0.0 => String::new(),
        seconds => format!(", which adds {} to the TTFT", milliseconds(seconds)),
    };
    format!(
        "{} requests of {} tokens need {} tokens of cache, which has room for {} of them to their end: {} wait for a place{wait}; a request \
         that the engine starts nevertheless is put back when the cache is full, and computes its prompt again ({}). Lower \
         the concurrency or max_num_seqs to {}.",
        grouped(asked),
        grouped(length),
        grouped(asked.saturating_mul(length)),
        grouped(places),
        grouped(asked.saturating_sub(places)),
        milliseconds(timing.prompt_s),
        grouped(places.max(1)),
    )
}

/// What the free memory that the caller gave does to a layout.
fn free_memory(ground: &Ground<'_>, replica: &Replica, least: Bytes) -> String {
    let binding = replica.capacity.binding_stage;
    let knob = (least.as_f64() / ground.gpu.memory_bytes.as_f64().max(1.0) * 1000.0).floor() / 1000.0;
    let mut text = if replica.stages.len() > 1 {
        format!(
            "Stage {binding} binds: its GPU lets the engine use {:.2} GiB",
            replica.budget.of(binding).gib()
        )
    } else {
        format!("The tightest GPU lets the engine use {:.2} GiB", least.gib())
    };
    text.push_str(&format!(
        " of what is free beside {:.2} GiB for the engine's own processes.",
        replica.budget.outside.bytes.gib()
    ));
    if let Some(partition) = &replica.layer_partition {
        let layers: Vec<String> = partition.iter().map(u64::to_string).collect();
        text.push_str(&format!(" The layers follow the memory: {} by stage.", layers.join(", ")));
    }
    let uneven = replica.budget.free.iter().any(|free| *free != least);
    text.push_str(&if uneven {
        format!(
            " One memory fraction for all ranks can be at most {knob:.3}; these figures need each rank started with \
             its own."
        )
    } else {
        format!(" The engine starts with a memory fraction of at most {knob:.3}.")
    });
    text
}
