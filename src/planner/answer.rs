//! The words: one sentence for the whole, and for each layout what to beware of and why it stands where it does.

mod warnings;

pub use warnings::layout_warnings;

use super::candidate::{Candidate, whole};
use super::input::{Objective, PlanInput};
use super::layout::sizes;
use super::plan::{Layout, Warning};
use super::replica::Ground;
use super::search::{Found, Ranked};
use super::speculation::DraftMethod;
use super::units::{Bytes, grouped};

/// The answer in one or two sentences.
#[must_use]
pub fn answer(input: &PlanInput, found: &Found<'_>) -> String {
    match found.ranked.first() {
        Some(best) => found
            .grounds
            .get(best.ground)
            .map_or_else(String::new, |ground| fits(input, found, ground, &best.candidate)),
        None => nothing_fits(input, found),
    }
}

fn fits(input: &PlanInput, found: &Found<'_>, ground: &Ground<'_>, best: &Candidate) -> String {
    let context = ground.context().get();
    let mut text = format!(
        "{} on {} {}: {} KV tokens, {} of {}, TPOT {}{}.",
        layout_name(best),
        best.gpus(),
        ground.gpu.short_name,
        short(best.standing.kv_tokens_total),
        counted(sequences_total(best), "sequence"),
        short_context(context),
        milliseconds(best.standing.tpot_s),
        other_load(ground, best),
    );
    if best.idle_gpus > 0 {
        text.push_str(&format!(" {} idle.", counted(best.idle_gpus, "GPU")));
    }
    if let Some(copying) = copying_alternative(input, found, best) {
        text.push(' ');
        text.push_str(&copying);
    } else if best.replica.cache.replication_factor > 1.0 {
        text.push_str(&format!(
            " It holds {} {} times.",
            copied(input),
            factor(best.replica.cache.replication_factor)
        ));
    }
    if !best.standing.serves {
        text.push_str(&format!(
            " It does not hold one sequence of {}: the longest is {} tokens.",
            short_context(context),
            grouped(best.replica.longest.get())
        ));
    }
    if !best.standing.meets_slo {
        let others = found.ranked.iter().any(|r| r.candidate.standing.meets_slo);
        let missed = if others { "It does not meet" } else { "No layout meets" };
        text.push_str(&format!(" {missed} the limits on {}.", limits(input)));
    }
    text
}

/// What the timing is for, where it is not for the sequences that were counted.
fn other_load(ground: &Ground<'_>, best: &Candidate) -> String {
    let tokens = ground.load_tokens();
    if tokens == ground.context() {
        return String::new();
    }
    format!(" with {} of {} tokens at once", counted(best.concurrency, "request"), grouped(tokens.get()))
}

/// What the widest TP on as many GPUs would waste, where it copies KV heads and the best layout does not.
fn copying_alternative(input: &PlanInput, found: &Found<'_>, best: &Candidate) -> Option<String> {
    let copies = |c: &Candidate| c.replica.cache.replication_factor;
    let wider = found
        .ranked
        .iter()
        .map(|r| &r.candidate)
        .filter(|c| c.replica.shape.dcp == 1 && c.replica.shape.tp > best.replica.shape.tp)
        .filter(|c| c.gpus() == best.gpus() && c.dp == 1 && c.replica.shape.pp == 1)
        .filter(|c| copies(c) > copies(best))
        .max_by_key(|c| c.replica.shape.tp)?;
    Some(format!(
        "TP={} would hold {} {} times: {} KV tokens.",
        wider.replica.shape.tp,
        copied(input),
        factor(copies(wider)),
        short(wider.standing.kv_tokens_total),
    ))
}

/// Bytes in GiB, and in MiB where a hundredth of a GiB would hide them.
fn lacking(bytes: Bytes) -> String {
    let gib = bytes.gib();
    if gib < 0.1 { format!("{:.1} MiB", gib * 1024.0) } else { format!("{gib:.2} GiB") }
}

fn nothing_fits(input: &PlanInput, found: &Found<'_>) -> String {
    let mut text = format!("Nothing fits: {} on {}.", input.model.name, input.cluster.in_words());
    // The near miss is the layout that lacks the fewest bytes.
    let nearest = found.nearest_miss().and_then(|refused| Some((refused.short_by()?, refused)));
    match nearest {
        Some((bytes, refused)) => text.push_str(&format!(
            " The nearest, {}, lacks {} on a GPU.",
            sizes(&refused.shape),
            lacking(bytes)
        )),
        None => {
            if let Some(first) = found.refused.first() {
                text.push(' ');
                text.push_str(&found.in_words(first).refusal.message);
            }
        }
    }
    text
}

fn limits(input: &PlanInput) -> String {
    let named = [("TTFT", input.slo.ttft_ms), ("TPOT", input.slo.tpot_ms)];
    let words: Vec<String> =
        named.iter().filter_map(|(name, limit)| limit.map(|ms| format!("{name} ({ms} ms)"))).collect();
    words.join(" and ")
}

/// What to know about the question itself.
#[must_use]
pub fn question_warnings(input: &PlanInput) -> Vec<Warning> {
    input
        .cluster
        .warnings
        .iter()
        .map(|w| Warning { code: w.code.clone(), message: w.message.clone() })
        .collect()
}

/// Why a layout stands where it does.
#[must_use]
pub fn reasons(ground: &Ground<'_>, ranked: &Ranked, found: &Found<'_>) -> Vec<String> {
    let candidate = &ranked.candidate;
    let replica = &candidate.replica;
    let standing = &candidate.standing;
    let mut list = vec![merit(ground.input.objective, candidate)];
    if let Some(best) = found.ranked.first().map(|r| &r.candidate)
        && best.standing != *standing
    {
        list.push(format!(
            "Against the first ({}): {} the KV tokens, {} the TPOT, {} the tokens per second.",
            layout_name(best),
            times(standing.kv_tokens_total as f64 / best.standing.kv_tokens_total as f64),
            times(standing.tpot_s / best.standing.tpot_s),
            times(standing.tokens_per_s / best.standing.tokens_per_s),
        ));
    }
    if let Some(stage) = replica.weights.get(replica.capacity.binding_stage) {
        list.push(format!(
            "Weights take {:.1} of {:.1} GiB on a GPU{}; {:.1} GiB are left for the cache.",
            stage.bytes.gib(),
            replica.budget.of(replica.capacity.binding_stage).gib(),
            if replica.stages.len() > 1 {
                format!(" of stage {}, the fullest", replica.capacity.binding_stage)
            } else {
                String::new()
            },
            replica.kv_bytes.get(replica.capacity.binding_stage).map_or(0.0, |b| b.gib()),
        ));
    }
    list.push(format!("A decode step is bound by {}.", candidate.timing.decode.bound()));
    list.extend(drafting(ground, candidate));
    list.extend(reuse(ground));
    if ranked.pareto {
        list.push("No other layout gives both more tokens per second and GPU and a shorter TPOT.".to_owned());
    }
    list
}

/// What speculative decoding gives a step.
fn drafting(ground: &Ground<'_>, candidate: &Candidate) -> Option<String> {
    let drafts = ground.settings.num_speculative_tokens;
    let method = ground.settings.speculation.method.map_or("a drafter that is not named", DraftMethod::name);
    (drafts > 0).then(|| {
        format!(
            "Each step checks {} from {method} for every sequence; each holds with a chance of {:.2}, so it gives {:.2} tokens \
             in {}.",
            counted(drafts, "draft token"),
            ground.acceptance(),
            candidate.timing.tokens_per_step,
            milliseconds(candidate.timing.decode.total_s()),
        )
    })
}

/// What a prompt is spared.
fn reuse(ground: &Ground<'_>) -> Option<String> {
    let workload = &ground.input.workload;
    let reused = whole(workload.reused_tokens(&ground.settings));
    (reused > 0).then(|| {
        format!(
            "{} of {} prompt tokens are in the cache already: {} are computed.",
            grouped(reused),
            grouped(workload.input_tokens),
            grouped(workload.input_tokens.saturating_sub(reused).max(1)),
        )
    })
}

fn merit(objective: Objective, candidate: &Candidate) -> String {
    let s = &candidate.standing;
    let tokens = short(s.kv_tokens_total);
    let speed = format!("{:.0} output tokens/s", s.tokens_per_s);
    let tpot = milliseconds(s.tpot_s);
    match objective {
        Objective::Capacity => format!("Holds {tokens} KV tokens."),
        Objective::Throughput => format!("Gives {speed} at {} sequences.", candidate.concurrency),
        Objective::Latency => format!("TPOT {tpot}, TTFT {}.", milliseconds(s.ttft_s)),
        Objective::Cost => match s.usd_per_hour {
            Some(usd) => format!("Gives {speed} for {usd:.2} USD an hour."),
            None => format!("Gives {speed} on {} GPUs; no price is known.", candidate.gpus()),
        },
        Objective::Balanced => format!("Balances {speed}, {tokens} KV tokens and TPOT {tpot}."),
    }
}

/// "2 × (TP=8)" or "TP=8 × PP=2".
#[must_use]
pub fn layout_name(candidate: &Candidate) -> String {
    let one = sizes(&candidate.replica.shape);
    if candidate.dp > 1 { format!("{one} × DP={}", candidate.dp) } else { one }
}

/// Whole sequences of the asked context over the deployment.
#[must_use]
pub fn sequences_total(candidate: &Candidate) -> u64 {
    whole(candidate.sequences_at_context).saturating_mul(candidate.caches())
}

/// A layout in a column: `TP=8 PP=2`, with only the sizes that are not 1.
#[must_use]
pub fn short_name(layout: &Layout) -> String {
    let mut text = format!("TP={}", layout.tp);
    for (name, size) in [
        ("PP", layout.pp),
        ("DP", layout.dp),
        ("EP", layout.ep),
        ("ADP", layout.attention_dp),
        ("DCP", layout.dcp),
    ] {
        if size > 1 {
            text.push_str(&format!(" {name}={size}"));
        }
    }
    text
}

/// 3,300,000 as "3.3M".
#[must_use]
pub fn short(n: u64) -> String {
    let figure = n as f64;
    match n {
        0..10_000 => grouped(n),
        10_000..1_000_000 => format!("{:.0}k", figure / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", figure / 1e6),
        _ => format!("{:.1}B", figure / 1e9),
    }
}

/// 32,768 as "32k": contexts are counted in 1,024 tokens.
#[must_use]
pub fn short_context(tokens: u64) -> String {
    if tokens >= 1024 && tokens.is_multiple_of(1024) {
        format!("{}k", tokens / 1024)
    } else {
        grouped(tokens)
    }
}

/// What is copied when ranks outnumber it, e.g. "each of 8 KV heads".
#[must_use]
pub fn copied(input: &PlanInput) -> String {
    match (input.model.mla, input.model.kv_heads) {
        (true, _) => "the KV latent".to_owned(),
        (false, 1) => "the one KV head".to_owned(),
        (false, heads) => format!("each of {heads} KV heads"),
    }
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{} {what}s", grouped(n)) }
}

/// 0.021 as "21.0 ms".
#[must_use]
pub fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms >= 100.0 { format!("{ms:.0} ms") } else { format!("{ms:.1} ms") }
}

/// A factor of copies: "2" or "1.6".
#[must_use]
pub fn factor(copies: f64) -> String {
    if copies.fract() == 0.0 { format!("{copies:.0}") } else { format!("{copies:.2}") }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}
