//! The words of a sizing.

use super::load::{Load, TooSlow};
use super::{FewestGpus, SizedProduct, SizingInput, WhyNot};
use crate::planner::answer::short;

/// The answer in one or two sentences.
pub(super) fn answer(input: &SizingInput, products: &[SizedProduct]) -> String {
    let load = load(input);
    let mut sized = products.iter().filter_map(|p| p.sized.as_ref().map(|s| (p, s)));
    let Some((product, first)) = sized.next() else {
        let reason = products.iter().find_map(|p| p.why_not.as_ref()).map(|w| format!(" {}", w.message));
        return format!("No product asked about carries {load}.{}", reason.unwrap_or_default());
    };
    let mut text = format!("{load}: {}", one(product, first));
    let others: Vec<String> = sized.map(|(p, s)| format!("{} {}", s.gpus, p.gpu)).take(4).collect();
    if !others.is_empty() {
        text.push_str(&format!(" Also {}.", others.join(", ")));
    }
    text
}

fn one(product: &SizedProduct, sized: &FewestGpus) -> String {
    let layout = &sized.layout.layout;
    let pipeline = if layout.pp > 1 { format!(" × PP={}", layout.pp) } else { String::new() };
    let copies = if sized.replicas > 1 { format!("{} replicas of ", sized.replicas) } else { String::new() };
    let cost = sized.cost.usd_per_hour.map_or_else(String::new, |usd| format!(", {usd:.2} USD an hour"));
    format!(
        "{} {} on {} node{} ({copies}TP={}{pipeline}), TPOT {:.1} ms, {} KV tokens{cost}.",
        sized.gpus,
        product.gpu,
        sized.nodes,
        if sized.nodes == 1 { "" } else { "s" },
        layout.tp,
        sized.per_replica.tpot_ms,
        short(sized.layout.capacity.kv_tokens_total),
    )
}

fn load(input: &SizingInput) -> String {
    let workload = &input.plan.workload;
    let lengths = format!("{} in and {} out", workload.input_tokens, workload.output_tokens);
    match &input.load {
        Load::Sequences(n) => {
            let context = workload.context_tokens.map_or_else(
                || "the engine's longest sequence".to_owned(),
                |tokens| format!("{tokens} tokens"),
            );
            format!("{n} sequence{} of {context}", if *n == 1 { "" } else { "s" })
        }
        Load::Rate(rates) => {
            let peak = rates.iter().copied().fold(0.0, f64::max);
            let what = if rates.len() > 1 { "at the peak of the trace" } else { "each second" };
            format!("{peak} requests {what} of {lengths}")
        }
        Load::Users { users, think_time_s } => {
            format!("{users} users who think for {think_time_s} s, with {lengths}")
        }
    }
}

/// How the load was turned into replicas.
pub(super) fn method(input: &SizingInput) -> Vec<String> {
    let mut list = vec![
        format!("fewest GPUs in use; replicas of up to {} GPUs were compared", super::WIDEST_GPUS),
        "replicas = load / what one replica carries within the limits, rounded up; no reserve for failures is added"
            .to_owned(),
    ];
    if input.load.has_arrivals() {
        list.push(
            "requests take their seat at input + output tokens; prompts are served before decode steps and arrive at random (M/D/1), \
             spread evenly over replicas"
                .to_owned(),
        );
    } else {
        list.push("all sequences decode at once at the asked context".to_owned());
    }
    if let Load::Users { .. } = input.load {
        list.push(
            "users = in flight + completed requests per second × think time (interactive response time law)"
                .to_owned(),
        );
    }
    list
}

/// Why replicas that fit carry nothing.
pub(super) fn too_slow(reason: TooSlow) -> WhyNot {
    let (code, message) = match reason {
        TooSlow::NoSeat => {
            ("no_sequence_fits", "Not one sequence of the asked length fits in the cache.".to_owned())
        }
        TooSlow::Tpot(ms) => (
            "tpot_missed",
            format!("A single request takes {ms:.1} ms a token at the least, more than the limit."),
        ),
        TooSlow::Ttft(ms) => (
            "ttft_missed",
            format!(
                "A single request waits {ms:.0} ms for its first token at the least, more than the limit."
            ),
        ),
    };
    WhyNot { code: code.to_owned(), message, short_by_bytes: None }
}
