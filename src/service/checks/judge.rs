//! One deployment against its plan.

use super::{Check, DeploymentAnswer, Status, size};
use crate::ingest::check::Described;
use crate::ingest::command::Meaning;
use crate::planner::kv::handover::{self, ModelClass, Side, Verdict};
use crate::planner::model::ModelSpec;
use crate::planner::plan::{Plan, RankedLayout, RefusedLayout};
use crate::planner::units::{Bytes, grouped};
use crate::service::kv::class_of;
use crate::service::launches::side;
use crate::service::question::Asked;

/// The checks of one deployment, and what will run.
pub(super) struct Judged {
    pub checks: Vec<Check>,
    pub deployment: DeploymentAnswer,
    /// One half of a split deployment, where it is one and starts.
    pub half: Option<Half>,
}

/// A half as the rules of a hand-over see it.
pub(super) struct Half {
    pub role: String,
    pub name: String,
    pub line: u32,
    pub side: Side,
    pub class: ModelClass,
}

impl Half {
    fn of(described: &Described, layout: Option<&RankedLayout>, model: &ModelSpec) -> Option<Self> {
        let deployment = &described.deployment;
        if !matches!(deployment.role.as_str(), "prefill" | "decode") {
            return None;
        }
        Some(Self {
            role: deployment.role.clone(),
            name: deployment.name.clone(),
            line: deployment.command.line,
            side: side(layout?, deployment.command.connector.as_deref().unwrap_or_default()),
            class: class_of(model),
        })
    }
}

/// Whether each decode worker of a file can read what each prefill worker of it writes.
pub(super) fn handovers(halves: &[Half]) -> Vec<Check> {
    let of = |role: &'static str| halves.iter().filter(move |half| half.role == role).take(MOST_HALVES);
    let mut checks = Vec::new();
    for decode in of("decode") {
        for prefill in of("prefill") {
            let pair = handover::judge(&prefill.side, &decode.side, decode.class);
            let why = pair.reasons.iter().max_by_key(|reason| reason.verdict);
            let (status, words) = match pair.verdict {
                Verdict::Ok => (Status::Pass, "can read the cache of"),
                Verdict::OkSlow => (Status::Warn, "can read, with a conversion on the way, the cache of"),
                Verdict::Refused => (Status::Fail, "cannot read the cache of"),
            };
            let why = why.map_or_else(String::new, |reason| format!(": {}", reason.message));
            checks.push(Check {
                code: "handover".to_owned(),
                status,
                deployment: decode.name.clone(),
                line: Some(decode.line),
                message: format!("{} {words} {}{why}", decode.name, prefill.name),
                denied: false,
            });
        }
    }
    checks
}

/// Halves of a role that are paired.
const MOST_HALVES: usize = 8;

pub(super) fn judge(described: &Described, mut asked: Asked) -> Judged {
    let replicas = put_sizes(described, &mut asked);
    let mut checks = Checks { name: &described.deployment.name, list: Vec::new() };
    let command = &described.deployment.command;
    experts_over_some(&mut checks, described);
    let first = asked.plan();
    let asked_length = first.request.engines.first().map_or(0, |e| e.max_model_len);
    let plan = starts_all_the_same(&mut asked, &first).unwrap_or(first);
    let mut layouts = plan.layouts.clone();
    if let Some(layout) = layouts.first_mut() {
        cap_tokens(&mut checks, described, layout);
    }
    let layout = layouts.first();
    let refused = if layout.is_none() { plan.refused.first() } else { None };
    match (layout, refused) {
        (Some(layout), _) => {
            let planned_length = plan.request.engines.first().map_or(0, |e| e.max_model_len);
            started(&mut checks, described, (asked_length, planned_length), layout);
        }
        (None, Some(refused)) => {
            checks.add(
                "starts",
                Status::Fail,
                command.line_of(meaning_of(&refused.code)),
                refusal_words(refused),
            );
            if refused.code == "kv_cache_too_small" {
                checks.add(
                    "max_model_len",
                    Status::Fail,
                    command.line_of(Meaning::MaxModelLen),
                    "one request of max_model_len is longer than the pool: see the figure in the refusal"
                        .to_owned(),
                );
            }
        }
        (None, None) => checks.add(
            "starts",
            Status::Fail,
            command.line,
            format!("{} GPUs are not enough for it, or cannot be placed so", plan.cluster.gpus),
        ),
    }
    let settings = asked.input.engines.first();
    let half = Half::of(described, layout, &asked.input.model);
    Judged {
        half,
        deployment: DeploymentAnswer {
            name: described.deployment.name.clone(),
            platform: described.platform.to_owned(),
            role: described.deployment.role.clone(),
            engine: settings.map_or_else(String::new, |e| format!("{} {}", e.name, e.version)),
            model: plan.model.id.clone(),
            will_start: Some(layout.is_some()),
            replicas,
            gpus: layout.map_or_else(|| command.ranks().saturating_mul(replicas), |l| l.layout.gpus),
            kv_tokens_per_replica: layout.map(|l| l.capacity.kv_tokens_per_replica),
            max_sequence_tokens: layout.map(|l| l.capacity.max_sequence_tokens),
            layout: layout.cloned(),
            refused: refused.cloned(),
        },
        checks: checks.list,
    }
}

/// vLLM refuses a length that its cache cannot hold. The others start and turn away the requests that are too long:
/// the plan of the longest that fits then says what runs.
fn starts_all_the_same(asked: &mut Asked, plan: &Plan) -> Option<Plan> {
    let engine = asked.input.engines.first_mut().filter(|e| e.name != "vllm")?;
    if !plan.layouts.is_empty() || plan.refused.first()?.code != "kv_cache_too_small" {
        return None;
    }
    let wanted = plan.request.engines.first().map_or(1, |e| e.max_model_len);
    engine.max_model_len = Some(1);
    let longest = asked.plan().layouts.first()?.capacity.kv_tokens_per_replica.min(wanted);
    asked.input.engines.first_mut()?.max_model_len = Some(longest.max(1));
    Some(asked.plan()).filter(|plan| !plan.layouts.is_empty())
}

/// Experts over some of the ranks, the rest of them split: nothing is planned so.
fn experts_over_some(checks: &mut Checks<'_>, described: &Described) {
    let command = &described.deployment.command;
    let ranks = size(command.tp.as_ref());
    if let Some(over) = command.experts_over.filter(|n| *n > 1 && *n != ranks) {
        checks.add(
            "expert_parallel_assumed",
            Status::Warn,
            command.line_of(Meaning::ExpertParallelSize),
            format!(
                "Experts over {over} of {ranks} ranks: the figures are those of experts over all of them."
            ),
        );
    }
}

/// A cache whose size in tokens or blocks is given: never more than the memory holds.
fn cap_tokens(checks: &mut Checks<'_>, described: &Described, layout: &mut RankedLayout) {
    let command = &described.deployment.command;
    let capacity = &mut layout.capacity;
    let held = capacity.kv_tokens_per_replica;
    let by_blocks = command.blocks.as_ref().map(|blocks| {
        let share = blocks.value as f64 / capacity.kv_blocks.max(1) as f64;
        (blocks.line, Bytes::from_f64(held as f64 * share).get())
    });
    let by_tokens = command.token_cap.as_ref().map(|cap| (cap.line, cap.value));
    let Some((line, tokens)) = by_blocks.or(by_tokens) else { return };
    if tokens > held {
        checks.add(
            "cache_larger_than_memory",
            if by_blocks.is_some() { Status::Fail } else { Status::Pass },
            line,
            format!("A cache of {} tokens is asked for; memory holds {}.", grouped(tokens), grouped(held)),
        );
        return;
    }
    let share = tokens as f64 / held.max(1) as f64;
    capacity.kv_tokens_per_replica = tokens;
    capacity.max_sequence_tokens = capacity.max_sequence_tokens.min(tokens);
    capacity.engine_max_concurrency *= share;
}

/// Limit the search to what the command says. vLLM's data-parallel ranks share the experts of a model that has any;
/// of a dense model they are replicas.
fn put_sizes(described: &Described, asked: &mut Asked) -> u64 {
    let deployment = &described.deployment;
    let command = &deployment.command;
    let data = size(command.data_parallel.as_ref());
    let groups = size(command.attention_dp.as_ref());
    let sizes_in_tp = command.settings.name != "vllm" && groups > 1;
    let shares_experts = command.settings.name == "vllm" && asked.input.model.experts.is_some();
    let attention_dp = if shares_experts { data } else { groups };
    let replicas = deployment.replicas.saturating_mul(if shares_experts { 1 } else { data }).max(1);
    let tp = size(command.tp.as_ref());
    // SGLang and TensorRT-LLM count attention groups inside TP
    let tp = if sizes_in_tp { tp.checked_div(groups).unwrap_or(tp).max(1) } else { tp };
    let experts = command.expert_parallel.as_ref().is_some_and(|e| e.value);
    let search = &mut asked.input.search;
    search.tp = Some(vec![tp]);
    search.pp = Some(vec![size(command.pp.as_ref())]);
    search.dp = Some(vec![replicas]);
    search.attention_dp = Some(vec![attention_dp]);
    search.ep = Some(vec![if experts { tp.saturating_mul(attention_dp) } else { 1 }]);
    search.dcp = Some(vec![size(command.dcp.as_ref())]);
    search.allow_idle_gpus = true;
    replicas
}

struct Checks<'a> {
    name: &'a str,
    list: Vec<Check>,
}

impl Checks<'_> {
    fn add(&mut self, code: &str, status: Status, line: u32, message: String) {
        self.list.push(Check {
            code: code.to_owned(),
            status,
            deployment: self.name.to_owned(),
            line: Some(line),
            message,
            denied: false,
        });
    }
}

fn started(
    checks: &mut Checks<'_>,
    described: &Described,
    (max_model_len, planned_length): (u64, u64),
    layout: &RankedLayout,
) {
    let command = &described.deployment.command;
    let capacity = &layout.capacity;
    let margin = Margin::of(layout);
    let refuses = command.settings.name == "vllm";
    checks.add(
        "starts",
        if margin.certain() { Status::Pass } else { Status::Warn },
        command.line,
        format!(
            "It starts: {:.2} GiB are left for the cache on the tightest GPU, and what is not known exactly is {:.2} GiB.",
            margin.kv_gib, margin.unknown_gib
        ),
    );
    checks.add(
        "kv_pool",
        Status::Pass,
        command.line,
        format!(
            "{} KV tokens in each of {} engines, {:.2} requests of {} tokens at once.",
            grouped(capacity.kv_tokens_per_replica),
            layout.layout.dp.saturating_mul(layout.layout.attention_dp),
            capacity.engine_max_concurrency * planned_length as f64 / max_model_len.max(1) as f64,
            grouped(max_model_len)
        ),
    );
    let sure = margin.sure_tokens(capacity.max_sequence_tokens, capacity.kv_tokens_per_replica);
    if max_model_len <= sure {
        checks.add(
            "max_model_len",
            Status::Pass,
            command.line_of(Meaning::MaxModelLen),
            format!(
                "max_model_len {} holds even at the low end ({} tokens).",
                grouped(max_model_len),
                grouped(sure)
            ),
        );
    } else {
        let holds = max_model_len <= capacity.max_sequence_tokens;
        checks.add(
            "max_model_len",
            if holds || !refuses { Status::Warn } else { Status::Fail },
            command.line_of(Meaning::MaxModelLen),
            format!(
                "max_model_len {} is {}: the longest sequence is {} tokens, {} at the low end. Set that.",
                grouped(max_model_len),
                if holds { "likely but not certain to fit" } else { "admitted but can never run" },
                grouped(capacity.max_sequence_tokens),
                grouped(sure)
            ),
        );
    }
    for warning in &layout.warnings {
        let line = command.line_of(meaning_of(&warning.code));
        // requests that wait are no fault of a deployment
        let status = if matches!(warning.code.as_str(), "concurrency_exceeds_capacity" | "preemption") {
            Status::Pass
        } else {
            Status::Warn
        };
        checks.add(&warning.code, status, line, warning.message.clone());
    }
}

/// How far the memory of the tightest GPU is known.
struct Margin {
    kv_gib: f64,
    unknown_gib: f64,
}

impl Margin {
    fn of(layout: &RankedLayout) -> Self {
        const GIB: f64 = 1_073_741_824.0;
        let stage =
            usize::try_from(layout.memory.binding_stage).ok().and_then(|i| layout.memory.stages.get(i));
        let unknown = |s: &crate::planner::plan::StageMemory| {
            s.items.iter().fold(0_u64, |sum, i| sum.saturating_add(i.high_bytes.saturating_sub(i.bytes)))
        };
        Self {
            kv_gib: stage.map_or(0.0, |s| s.kv_bytes as f64) / GIB,
            unknown_gib: stage.map_or(0.0, |s| unknown(s) as f64) / GIB,
        }
    }

    fn certain(&self) -> bool {
        self.kv_gib > self.unknown_gib
    }

    /// The longest sequence when every item takes its high end, never more than the longest that fits.
    fn sure_tokens(&self, longest: u64, tokens: u64) -> u64 {
        if self.kv_gib <= 0.0 {
            return 0;
        }
        let share = ((self.kv_gib - self.unknown_gib) / self.kv_gib).clamp(0.0, 1.0);
        Bytes::from_f64(tokens as f64 * share).get().min(longest)
    }
}

fn refusal_words(refused: &RefusedLayout) -> String {
    match &refused.nearest {
        Some(near) => format!(
            "It does not start: {} Nearest that does: TP={} × PP={}.",
            refused.message, near.tp, near.pp
        ),
        None => format!("It does not start: {}", refused.message),
    }
}

/// The flag that a code is about.
fn meaning_of(code: &str) -> Meaning {
    match code {
        "kv_cache_too_small"
        | "context_does_not_fit"
        | "context_exceeds_max_model_len"
        | "max_model_len_exceeds_model" => Meaning::MaxModelLen,
        "weights_do_not_fit"
        | "query_heads_not_divisible"
        | "kv_heads_not_divisible"
        | "vocab_not_divisible"
        | "dimension_not_divisible"
        | "kv_replicated"
        | "tp_crosses_nodes" => Meaning::Tp,
        "more_stages_than_layers" | "pipeline_not_supported" => Meaning::Pp,
        "max_num_seqs_binds" => Meaning::MaxNumSeqs,
        "kv_cache_dtype_not_supported" => Meaning::KvDtype,
        "quantization_not_supported" => Meaning::Quantization,
        _ => Meaning::Plain,
    }
}
