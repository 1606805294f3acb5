//! From a row to a question: the layout, the machine, the load, and what was measured.

use super::drafts::{draft_tokens, drafter};
use super::models::Families;
use super::row::Row;
use crate::catalogue::hardware::{HardwareCatalogue, catalogue};
use crate::planner::hardware::{Gpu, Link, NodePool};
use crate::planner::latency::calibrated::collective::Wire;
use crate::planner::latency::calibrated::releases::{UNKNOWN_RELEASE, released};
use crate::planner::latency::calibrated::setting::{
    Arrival, Engine, EngineKind, Generation, Load, Machine, Question, Statistic,
};
use crate::planner::latency::calibrated::work::{Format, RankWork};
use crate::planner::layout::Shape;
use crate::planner::layout::place::place;
use crate::planner::layout::sizes as sizes_text;
use crate::planner::speculation::Drafter;

/// A row that the model can be asked about, with what was measured.
#[derive(Debug, Clone)]
pub struct Observation {
    pub id: String,
    pub unit: String,
    pub family: String,
    pub gpu: String,
    pub engine_name: String,
    pub model: String,
    pub has_experts: bool,
    /// Requests in flight over the deployment.
    pub concurrency: f64,
    pub input_tokens: f64,
    pub output_tokens: f64,
    pub gpus: f64,
    /// The parallel sizes, for people.
    pub layout: String,
    /// Model, format, GPU, engine, lengths and requests: rows that differ in layout alone share it.
    case: String,
    pub tpot_ms: Option<f64>,
    pub ttft_ms: Option<f64>,
    work: RankWork,
    machine: Machine,
    engine: Engine,
    load: Load,
    kv_element_bytes: f64,
    stages: f64,
    attention_groups: f64,
    expert_parallel: bool,
    tensor_wire: Wire,
    expert_wire: Option<Wire>,
    stage_wire: Option<Wire>,
    drafter: Option<Drafter>,
}

impl Observation {
    /// The question that the row answers.
    #[must_use]
    pub fn question(&self) -> Question<'_> {
        Question {
            work: &self.work,
            machine: &self.machine,
            engine: self.engine,
            load: self.load,
            kv_element_bytes: self.kv_element_bytes,
            stages: self.stages,
            attention_groups: self.attention_groups,
            expert_parallel: self.expert_parallel,
            tensor_wire: self.tensor_wire,
            expert_wire: self.expert_wire,
            stage_wire: self.stage_wire,
            drafter: self.drafter,
        }
    }

    /// The least time of an output token: all weights and cache at peak bandwidth, ms. Below it a figure is wrong.
    #[must_use]
    pub fn floor_ms(&self) -> f64 {
        let per_step = 1.0 + self.engine.draft_tokens;
        let tokens = self.load.running.max(1.0) * per_step * self.attention_groups;
        let experts = self.work.experts.as_ref().map_or(0.0, |e| {
            let chosen = (e.per_token / e.routed).min(1.0);
            e.bytes * if tokens > 1.0 { chosen } else { chosen / self.attention_groups.max(1.0) }
        });
        (self.work.dense_bytes + experts) / self.machine.hbm_bytes_per_s / per_step * 1e3
    }

    /// Rows with the same case differ in their layout alone.
    #[must_use]
    pub fn case(&self) -> String {
        self.case.clone()
    }

    /// `dense`, `experts`, or `experts, latent attention`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match (self.has_experts, self.work.latent_layers > 0.0) {
            (true, true) => "experts, latent attention",
            (true, false) => "experts",
            (false, _) => "dense",
        }
    }

    /// Weights and cache of a step at peak bandwidth, ms.
    #[must_use]
    pub fn ideal_step_ms(&self) -> (f64, f64) {
        let experts = self.work.experts.as_ref().map_or(0.0, |e| {
            let missed =
                (1.0 - (e.per_token / e.routed).min(1.0)).powf(self.load.running * self.attention_groups);
            e.bytes * (1.0 - missed)
        });
        let cache =
            self.load.running * self.work.elements_read(self.load.context_tokens) * self.kv_element_bytes;
        let hbm = self.machine.hbm_bytes_per_s / 1e3;
        ((self.work.dense_bytes + experts) / hbm, cache / hbm)
    }

    /// The products of the prompt at the peak rate of the format, ms.
    #[must_use]
    pub fn ideal_prompt_ms(&self) -> f64 {
        let active = self.work.experts.as_ref().map_or(0.0, |e| e.active_parameters);
        let peak = match self.work.format {
            Format::Half | Format::PackedHalf => self.machine.half(),
            Format::Fp8 | Format::Mxfp4 => self.machine.fp8(),
            Format::Nvfp4 => self.machine.fp4(),
        };
        2.0 * (self.work.dense_parameters + active) * self.input_tokens / peak * 1e3
    }

    /// Engine and GPU generation, the pair that ranges are learnt by.
    #[must_use]
    pub fn pair(&self) -> (EngineKind, Generation) {
        (self.engine.kind, self.machine.generation)
    }
}

/// Either a question, or why there is none.
pub type Observed = Result<Observation, &'static str>;

/// Sizes of a row's decode side.
struct Sizes {
    shape: Shape,
    /// Engine instances with caches of their own.
    instances: f64,
    gpus: f64,
}

/// Turn a row into a question.
///
/// # Errors
/// What the row lacks.
pub fn observe(row: &Row, families: &mut Families) -> Observed {
    let model = families
        .model(row.model_key.as_deref(), row.model_id.as_deref(), row.weight_dtype.as_deref())
        .ok_or("model not known, or not in this format")?;
    let hardware = catalogue();
    let gpu = gpu_of(hardware, &row.gpu).ok_or("GPU not in the catalogue")?;
    let sizes = sizes(row).ok_or("layout not stated")?;
    let (input_tokens, output_tokens, random) = lengths(row).ok_or("lengths not stated")?;
    let arrival = arrival(row, random)?;
    let requests = match arrival {
        Arrival::StaticBatch => row.batch_size.or(row.concurrency),
        _ => row.concurrency.or(row.batch_size),
    };
    let concurrency = requests.filter(|n| *n > 0.0).ok_or("concurrency not stated")?;
    let tpot_ms = row.tpot_ms_median.or(row.tpot_ms_mean).filter(|t| usable(*t));
    let tpot_ms = row.tpot_ms_mean.filter(|t| usable(*t)).or(tpot_ms);
    // a prompt that runs on other GPUs says nothing about this layout
    let is_own_prompt = row.disaggregated != Some(true);
    let ttft_ms = row.ttft_ms_median.or(row.ttft_ms_mean).filter(|t| usable(*t) && is_own_prompt);
    if tpot_ms.is_none() && ttft_ms.is_none() {
        return Err("neither TPOT nor TTFT");
    }
    if contradicts_itself(row, output_tokens, concurrency) {
        return Err("its request rate and its times do not make its requests in flight");
    }
    let shape = sizes.shape;
    let work = RankWork::of(model, &shape);
    let kind = EngineKind::of(&row.engine);
    let machine = Machine::of(gpu);
    let engine = Engine {
        kind,
        released: release(row, kind),
        eager: false,
        draft_tokens: draft_tokens(row),
        acceptance: row.acceptance_rate.filter(|a| (0.0..=1.0).contains(a)),
        chunk_tokens: 8192.0,
        poll_steps: poll_steps(row, kind, &machine, concurrency),
    };
    let groups = shape.attention_dp.max(1) as f64;
    let kv_element_bytes = kv_bytes(row, kind, machine.generation, work.format);
    // TensorRT-LLM admits a request with room for its whole output, others with what they have come to
    let grown = if kind == EngineKind::TensorRtLlm { 1.0 } else { 0.6 };
    let length = input_tokens + output_tokens * grown;
    let fits = sequences_that_fit(gpu, &work, kv_element_bytes, length, kind);
    let asked = (concurrency / (sizes.instances * groups)).max(1.0);
    let running = asked.min(fits.max(1.0));
    // the estimate of memory is rough: a tenth more may still fit
    let waiting = (asked - running * 1.1).max(0.0);
    let pool = pool_of(hardware, gpu, row, &shape);
    let placed = place(&pool, &shape).ok_or("layout does not fit on the stated GPUs")?;
    let wire = |group| Wire::of(group, &pool.intra_link, None);
    let spreads_experts = work.experts.is_some() && shape.attention_dp > 1;
    Ok(Observation {
        id: row.id.clone(),
        unit: row.source_unit.clone(),
        family: row.source_family.clone().unwrap_or_default(),
        gpu: row.gpu.clone(),
        engine_name: row.engine.clone(),
        model: row.model_key.clone().or_else(|| row.model_id.clone()).unwrap_or_default(),
        has_experts: work.experts.is_some(),
        concurrency,
        input_tokens,
        output_tokens,
        gpus: sizes.gpus,
        layout: format!("{} × {}", sizes_text(&shape), sizes.instances),
        case: format!(
            "{:?} {:?} {} {kind:?} {input_tokens} {output_tokens} {concurrency} {}",
            row.model_key,
            row.weight_dtype,
            row.gpu,
            row.disaggregated == Some(true)
        ),
        tpot_ms,
        ttft_ms,
        load: Load {
            running,
            waiting,
            input_tokens,
            reused_tokens: input_tokens * row.prefix_cache_hit_rate.map_or(0.0, |hit| hit.clamp(0.0, 1.0)),
            output_tokens,
            context_tokens: input_tokens + output_tokens / 2.0,
            arrival,
            statistic: if row.ttft_ms_median.is_some() { Statistic::Median } else { Statistic::Mean },
            disaggregated: row.disaggregated == Some(true),
        },
        kv_element_bytes,
        stages: shape.pp.max(1) as f64,
        attention_groups: groups,
        expert_parallel: shape.ep > 1,
        tensor_wire: wire(&placed.tp),
        expert_wire: placed
            .ep
            .as_ref()
            .or(placed.attention_dp.as_ref())
            .filter(|_| spreads_experts)
            .map(wire),
        stage_wire: placed.pp.as_ref().map(wire),
        drafter: drafter(row, model, &shape, engine.draft_tokens),
        work,
        machine,
        engine,
    })
}

fn usable(ms: f64) -> bool {
    ms.is_finite() && ms > 0.0
}

/// A catalogue GPU by the name that a source uses.
fn gpu_of<'c>(hardware: &'c HardwareCatalogue, name: &str) -> Option<&'c Gpu> {
    let key = match name {
        "A100-SXM-80GB" => "a100-sxm4-80gb",
        "H100-SXM" => "h100-sxm5-80gb",
        "H200-SXM" => "h200-sxm-141gb",
        "B200-SXM" => "b200-sxm-180gb",
        "B300-SXM" => "b300-sxm-288gb",
        "RTX-PRO-6000-Server" => "rtx-pro-6000-server",
        other => other,
    };
    hardware.gpu(key).or_else(|| hardware.gpu(&name.to_ascii_lowercase()))
}

/// The decode side's parallel sizes. Attention DP over all ranks of an instance where the row says so.
fn sizes(row: &Row) -> Option<Sizes> {
    let count = |n: Option<f64>| n.filter(|n| *n >= 1.0 && *n <= 65_536.0).map(whole);
    if row.disaggregated == Some(true) {
        let workers = count(row.decode_workers)?;
        let tp = count(row.decode_tp)?;
        let gpus = count(row.decode_gpus).unwrap_or(tp * workers);
        let ranks = (gpus / workers).max(1);
        let adp = row.decode_dp_attention == Some(true);
        let shape = split(adp, tp.min(ranks), ranks, 1, count(row.decode_ep).unwrap_or(1));
        return Some(Sizes { shape, instances: workers as f64, gpus: gpus as f64 });
    }
    let (tp, pp) = (count(row.tp)?, count(row.pp).unwrap_or(1));
    let dp = count(row.dp).unwrap_or(1);
    let ep = count(row.ep).unwrap_or(1);
    if row.dp_attention == Some(true) {
        let ranks = tp * dp;
        let gpus = count(row.num_gpus).unwrap_or(ranks * pp).max(ranks * pp);
        let tp = if tp > 1 && dp > 1 { tp } else { 1 };
        let shape = Shape { tp, pp, ep: if ep > 1 { ranks } else { 1 }, attention_dp: ranks / tp, dcp: 1 };
        return Some(Sizes { shape, instances: (gpus / (ranks * pp)).max(1) as f64, gpus: gpus as f64 });
    }
    let shape = split(false, tp, tp, pp, ep);
    Some(Sizes { shape, instances: dp as f64, gpus: (tp * pp * dp) as f64 })
}

fn split(attention_dp: bool, tp: u64, ranks: u64, pp: u64, ep: u64) -> Shape {
    if attention_dp {
        return Shape { tp: 1, pp, ep: if ep > 1 { ranks } else { 1 }, attention_dp: ranks, dcp: 1 };
    }
    Shape { tp, pp, ep: if ep > 1 { tp } else { 1 }, attention_dp: 1, dcp: 1 }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the caller")]
fn whole(n: f64) -> u64 {
    n.round() as u64
}

/// (input, output, whether lengths vary): a generator that draws 80 to 100 % of the nominal length gives 90 %.
fn lengths(row: &Row) -> Option<(f64, f64, bool)> {
    let input = row.input_len_tokens.filter(|n| *n >= 1.0)?;
    let output = row.output_len_tokens.filter(|n| *n >= 1.0).unwrap_or(1.0);
    let says = |text| row.length_note.as_deref().is_some_and(|note| note.contains(text));
    let shortened = says("80..100%");
    let random = shortened || says("+-");
    let factor = if shortened { 0.9 } else { 1.0 };
    Some((input * factor, output * factor, random))
}

fn arrival(row: &Row, random: bool) -> Result<Arrival, &'static str> {
    match row.load_kind.as_deref() {
        Some("burst_all_at_once") => Ok(Arrival::AllAtOnce),
        Some("static_batch") => Ok(Arrival::StaticBatch),
        Some("concurrency" | "request_rate") | None if random => Ok(Arrival::ClosedLoop),
        Some("concurrency" | "request_rate") | None => Ok(Arrival::ClosedLoopFixed),
        Some("max_load" | "mlperf_offline") => Err("maximum load: requests in flight not stated"),
        Some("mlperf_server" | "mlperf_interactive") => Err("arrival rate: requests in flight not stated"),
        Some(_) => Err("load kind not known"),
    }
}

/// Little's law on a row's own figures: in a closed loop, requests/s times the time of a request are the requests in
/// flight. A client that gets tokens in bundles, or whose load was not the stated one, misses it by more than a factor
/// of two; its TPOT is then none.
fn contradicts_itself(row: &Row, output_tokens: f64, concurrency: f64) -> bool {
    let is_loop = row.load_kind.as_deref() == Some("concurrency") && row.disaggregated != Some(true);
    let ttft_ms = row.ttft_ms_mean.or(row.ttft_ms_median);
    let tpot_ms = row.tpot_ms_mean.or(row.tpot_ms_median);
    let (Some(rate), Some(ttft_ms), Some(tpot_ms)) = (row.request_per_s, ttft_ms, tpot_ms) else {
        return false;
    };
    let in_flight = rate * (ttft_ms + (output_tokens - 1.0).max(0.0) * tpot_ms) / 1e3;
    is_loop && rate > 0.0 && !(0.5..=2.0).contains(&(in_flight / concurrency))
}

/// Steps between two looks for new requests. InferenceX's SGLang recipes on Blackwell set `--scheduler-recv-interval` to
/// 10, and to 30 from 16 clients on (its `benchmarks/*_b200_*.sh`); everybody else leaves it at 1.
fn poll_steps(row: &Row, kind: EngineKind, machine: &Machine, concurrency: f64) -> f64 {
    let is_recipe = row.source_family.as_deref() == Some("InferenceX") && row.disaggregated != Some(true);
    match (kind, machine.generation) {
        (EngineKind::Sglang, Generation::Blackwell) if is_recipe && concurrency >= 16.0 => 30.0,
        (EngineKind::Sglang, Generation::Blackwell) if is_recipe => 10.0,
        _ => 1.0,
    }
}

/// The year of the engine's release; the day of the measurement where the version says nothing.
fn release(row: &Row, kind: EngineKind) -> f64 {
    let measured = row.measured_date.as_deref().and_then(year);
    let own = || released(kind, row.engine_version.as_deref()?);
    // a serving framework around the engine carries its own version
    let framed = row.engine.contains('+');
    (if framed { measured.or_else(own) } else { own().or(measured) }).unwrap_or(UNKNOWN_RELEASE)
}

/// "2026-04-08" or "2026-04" as a year.
fn year(date: &str) -> Option<f64> {
    let mut parts = date.split('-');
    let year: f64 = parts.next()?.parse().ok()?;
    let month: f64 = parts.next().and_then(|m| m.parse().ok()).unwrap_or(6.0);
    let day: f64 = parts.next().and_then(|d| d.parse().ok()).unwrap_or(15.0);
    Some(year + (month - 1.0) / 12.0 + day / 365.0)
}

/// Bytes of a cache element. Where the source does not say: TensorRT-LLM, ATOM and published 8- and 4-bit
/// recipes on Blackwell keep the cache in 8 bits, others in 16. 8 bits cost 0.54 of 16, not half
/// (vLLM 0.19 measurements, `reference` of the data).
fn kv_bytes(row: &Row, kind: EngineKind, generation: Generation, format: Format) -> f64 {
    const EIGHT: f64 = 1.08;
    const SIXTEEN: f64 = 2.0;
    if let Some(dtype) = row.kv_dtype.as_deref() {
        return if dtype.starts_with("fp8") || dtype.starts_with("int8") { EIGHT } else { SIXTEEN };
    }
    let small = matches!(format, Format::Fp8 | Format::Nvfp4);
    let blackwell = generation == Generation::Blackwell;
    let is_recipe = row.source_family.as_deref() == Some("InferenceX");
    let modelopt = row.model_id.as_deref().is_some_and(|id| id.starts_with("nvidia/"))
        || (is_recipe && row.model_key.as_deref() == Some("Llama-3-70B") && small);
    let eight = match kind {
        EngineKind::TensorRtLlm => small || (format == Format::Mxfp4 && blackwell),
        EngineKind::Other => true,
        _ => format == Format::Nvfp4 || modelopt || (is_recipe && blackwell),
    };
    if eight { EIGHT } else { SIXTEEN }
}

/// Sequences of `length` tokens beside the weights of a rank, as the engine's defaults leave room.
fn sequences_that_fit(gpu: &Gpu, work: &RankWork, kv: f64, length: f64, kind: EngineKind) -> f64 {
    let memory = gpu.memory_bytes.as_f64();
    let weights = work.dense_bytes + work.experts.as_ref().map_or(0.0, |e| e.bytes);
    // where weights leave little, recipes raise the share until at least half of the rest is cache
    let room = (0.92 * memory - weights - 2e9).max(0.5 * (memory - weights)).max(0.02 * memory);
    let bytes = work.elements_held(length) * if kv < 1.5 { 1.0 } else { 2.0 } + work.state_bytes;
    let slots = match kind {
        EngineKind::Vllm if memory < 75e9 || gpu.architecture.starts_with("Ampere") => 256.0,
        EngineKind::Vllm => 1024.0,
        _ => 2048.0,
    };
    (room / bytes.max(1.0)).min(slots)
}

/// The stated machine: nodes as they are usually built of this GPU.
fn pool_of(hardware: &HardwareCatalogue, gpu: &Gpu, row: &Row, shape: &Shape) -> NodePool {
    let stated = row.gpus_per_node.filter(|n| *n >= 1.0 && *n <= 1024.0).map_or(8, whole);
    let nodes = row.num_nodes.filter(|n| *n >= 1.0 && *n <= 4096.0).map_or(1, whole);
    let needed = shape.gpus().div_ceil(stated);
    let entry = hardware.gpu_entry_by_key(&gpu.key);
    let usual = entry.map(|entry| hardware.usual_links(entry, stated));
    let unknown = || Link {
        key: "pcie4".to_owned(),
        name: "PCIe".to_owned(),
        scope: crate::planner::hardware::LinkScope::Node,
        per_direction_bytes_per_s: 31.5e9,
        bidirectional_bytes_per_s: 63e9,
        per_peer_bytes_per_s: None,
        sources: vec![],
    };
    let (intra, island, host, inter, nics) = match usual {
        Some(usual) => (usual.intra, usual.island_gpus, usual.host, usual.inter, usual.nics_per_node),
        None => (unknown(), stated, None, unknown(), None),
    };
    NodePool {
        nodes: nodes.max(needed),
        gpus_per_node: stated,
        gpu: gpu.clone(),
        intra_link: intra,
        island_gpus: island,
        host_link: host,
        inter_link: inter,
        inter_links_per_node: nics,
        host_memory_bytes: None,
        usd_per_gpu_hour: None,
        price_source: None,
        free_memory_bytes: None,
    }
}
