//! What SGLang's pool leaves, and what has to fit there: context and communicators before, activations, graphs and the table of
//! requests after.

use std::ops::Range;

use super::{Sglang, fraction};
use crate::planner::engine::{Item, Refusal, RefusalCode, ResolvedSettings, activation};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::units::{Bytes, grouped};

/// CUDA context and libraries, before anything is measured.
const CONTEXT_GIB: f64 = 0.6;
/// Communicators, set up before the free memory is measured.
const COLLECTIVES_GIB: f64 = 0.9;
/// Where the GPU's memory is the host's too, what the system holds of it when an engine starts (three logs of a DGX Spark: 9).
const UNIFIED_MEMORY: &str = "gb10";
const HOST_GIB: f64 = 8.0;

/// Memory that is free before weights are loaded: context and communicators are up by then.
pub(super) fn free_before_loading(gpu: &Gpu, shape: &Shape) -> Bytes {
    let collectives = if shape.gpus() > 1 { COLLECTIVES_GIB } else { 0.0 };
    let host = if gpu.key.starts_with(UNIFIED_MEMORY) { HOST_GIB } else { 0.0 };
    gpu.memory_bytes - Bytes::from_gib(CONTEXT_GIB + collectives + host)
}

/// Bytes of the table that says where each request's tokens lie, made after the pool and beside it:
/// `(requests + 1) * (context_length + 4 + draft tokens) * 4 B` (`mem_cache/memory_pool.py` `ReqToTokenPool`).
fn request_table(settings: &ResolvedSettings) -> Bytes {
    let row = settings.max_model_len.get().saturating_add(settings.num_speculative_tokens).saturating_add(4);
    // each attention group has one; the command line is given the sum of their requests
    Bytes(row.saturating_mul(4)) * settings.max_num_seqs.saturating_add(1)
}

impl Sglang {
    /// The share of memory that weights and pool take in this shape.
    pub(super) fn share(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> f64 {
        if !settings.utilization_automatic {
            return settings.gpu_memory_utilization;
        }
        let start = fraction::Start {
            gpu,
            model,
            shape,
            chunk: settings.max_num_batched_tokens,
            running: Some(settings.max_num_seqs.saturating_mul(shape.attention_dp)),
            graphs: !settings.enforce_eager,
            vision: !settings.language_model_only,
            drafts: settings.num_speculative_tokens > 0,
        };
        fraction::automatic(self.fraction, &start)
    }

    /// The start dies on the table of requests where that is larger than all that the pool leaves.
    pub(super) fn table_of_requests(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<Refusal> {
        let table = request_table(settings);
        let share = self.share(model, shape, gpu, settings);
        let rest = Bytes::from_f64(free_before_loading(gpu, shape).as_f64() * (1.0 - share));
        (table > rest).then(|| {
            Refusal::new(
                RefusalCode::SettingInvalid,
                format!(
                    "the table of requests ({} of up to {} tokens) takes {:.1} GiB, and mem_fraction_static leaves {:.1} GiB \
                     beside the pool: lower context_length or max_running_requests",
                    settings.max_num_seqs,
                    grouped(settings.max_model_len.get()),
                    table.gib(),
                    rest.gib()
                ),
            )
        })
    }

    /// Where activations, graphs and the table of requests have to fit.
    pub(super) fn outside(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
        gpu: &Gpu,
    ) -> Item {
        let tokens = settings.max_num_batched_tokens.checked_div(shape.attention_dp.max(1)).unwrap_or(0);
        let by_kind = activation::token_bytes_by_kind(model, shape);
        let peak = stages
            .iter()
            .map(|layers| activation::layer_peak(model, layers, &by_kind, tokens))
            .fold(0.0, f64::max);
        let batches = fraction::defaults(self.fraction, gpu).graph_batch(shape);
        let graphs = if settings.enforce_eager { 0.0 } else { Bytes(batches).as_f64() * 2.0 * 1_048_576.0 };
        let table = request_table(settings).as_f64();
        Item::fitted(
            Bytes::from_gib(CONTEXT_GIB).as_f64() + peak + graphs + table,
            (0.6, 2.0),
            "CUDA context, the peak of a chunk through the layers, 2 MiB a captured batch size, the table of requests",
        )
    }
}
