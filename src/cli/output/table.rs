//! The answer for people: readable in 80 columns, most important first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::words::{command, context, count, factor, gibibytes, gigabytes, layout, milliseconds, wrapped};
use super::{Answered, Style, grid, rows};
use crate::planner::estimate::{Assumption, AssumptionValue, Estimate};
use crate::planner::plan::{Breakdown, EngineEcho, Plan, RankedLayout, StageMemory};
use crate::planner::units::grouped;

/// Rows shown; `--format json` has all of them.
const MAX_ROWS: usize = 10;
/// Warnings, refusals and pieces of advice shown without `--explain`.
const MAX_NOTES: usize = 5;

pub(super) fn text(answered: &Answered<'_>, style: Style, explain: bool) -> String {
    let plan = answered.plan;
    let mut out = String::new();
    let answer = wrapped("", &plan.answer, "");
    let _ = writeln!(out, "{}\n", if plan.feasible { style.bold(&answer) } else { style.bad(&answer) });
    question(plan, style, &mut out);
    fleet(plan, style, &mut out);
    if !plan.layouts.is_empty() {
        layouts(plan, style, &mut out);
    }
    warnings(plan, style, explain, &mut out);
    refusals(plan, style, explain, &mut out);
    advice(plan, style, explain, &mut out);
    if let Some(best) = plan.layouts.first() {
        if explain {
            best_in_full(plan, best, style, &mut out);
        }
        launch(best, style, &mut out);
    }
    assumptions(plan, style, explain, &mut out);
    assertions(answered, style, &mut out);
    out
}

/// What was asked, with every default that was taken.
fn question(plan: &Plan, style: Style, out: &mut String) {
    let (model, workload) = (&plan.model, &plan.request.workload);
    let active = if model.active_parameters == model.parameters {
        String::new()
    } else {
        format!(", {} active", count(model.active_parameters))
    };
    let lines = [
        (
            "Model",
            format!(
                "{}: {} parameters{active}, {}, {}; {}",
                model.id,
                count(model.parameters),
                model.quantization,
                gigabytes(model.weights_bytes),
                model.attention
            ),
        ),
        ("KV", a_token(&model.kv_formula)),
        ("Cluster", plan.cluster.text.clone()),
        (
            "Load",
            format!(
                "{} in, {} out, {} at once; sequences counted at {} tokens",
                grouped(workload.input_tokens),
                grouped(workload.output_tokens),
                grouped(workload.concurrency),
                grouped(workload.context_tokens)
            ),
        ),
    ];
    for (name, line) in lines {
        named(name, &line, style, out);
    }
    for engine in &plan.request.engines {
        let line = format!(
            "{} {}: {} of memory, {} KV cache, {} tokens a sequence, {} sequences",
            engine.name,
            engine.version,
            utilization(engine, plan),
            engine.kv_cache_dtype,
            context(engine.max_model_len),
            engine.max_num_seqs
        );
        named("Engine", &line, style, out);
    }
    out.push('\n');
}

/// The formula of a token's bytes; what states take beside it is no part of a token.
fn a_token(formula: &str) -> String {
    match formula.split_once("; and ") {
        Some((token, states)) => format!("{token} a token; and {states}"),
        None => format!("{formula} a token"),
    }
}

/// The engine's knob as its layouts have it: some engines derive it from the shape.
fn utilization(engine: &EngineEcho, plan: &Plan) -> String {
    let own = plan.layouts.iter().filter(|row| row.engine.name == engine.name);
    let values = own.map(|row| row.memory.utilization);
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), u| (low.min(u), high.max(u)));
    match low {
        low if low > high => engine.gpu_memory_utilization.to_string(),
        low if (high - low).abs() < 1e-9 => low.to_string(),
        low => format!("{low} to {high}"),
    }
}

/// A line behind its name; the name is coloured after the line is broken, since colour has no width.
fn named(name: &str, line: &str, style: Style, out: &mut String) {
    let name = format!("{name:<8}");
    let text = wrapped(&name, line, "        ");
    let _ = writeln!(out, "{}{}", style.faint(&name), text.strip_prefix(&name).unwrap_or(&text));
}

/// All pools together, and what each would hold alone.
fn fleet(plan: &Plan, style: Style, out: &mut String) {
    let Some(fleet) = &plan.fleet else { return };
    let _ = writeln!(out, "{}", style.bold(&wrapped("", &fleet.answer, "")));
    let (head, lines) = grid::lines(&rows::fleet_columns(plan, fleet));
    let _ = writeln!(out, "{}", style.faint(&head));
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
}

pub(super) fn layouts(plan: &Plan, style: Style, out: &mut String) {
    let (head, lines) = grid::lines(&rows::columns(plan, MAX_ROWS, true));
    let _ = writeln!(out, "{}", style.faint(&head));
    for (text, row) in lines.into_iter().zip(&plan.layouts) {
        let coloured = match (row.kv.replication_factor > 1.0, row.rank) {
            (_, 1) => style.good(&text),
            (true, _) => style.warning(&text),
            (false, _) => text,
        };
        let _ = writeln!(out, "{coloured}");
    }
    let shown = plan.layouts.len().min(MAX_ROWS);
    let considered = format!(
        "{} of {} layouts that fit, {} looked at",
        shown,
        grouped(plan.total_feasible),
        grouped(plan.total_considered)
    );
    let _ = writeln!(out, "{}\n", style.faint(&considered));
}

/// Each kind of warning once, at the best layout that has it.
fn warnings(plan: &Plan, style: Style, explain: bool, out: &mut String) {
    let mut kinds: Vec<(&str, String, usize)> = Vec::new();
    for warning in &plan.warnings {
        kinds.push((&warning.code, warning.message.clone(), 0));
    }
    for row in &plan.layouts {
        for warning in &row.warnings {
            match kinds.iter_mut().find(|(code, _, _)| *code == warning.code) {
                Some((_, _, more)) => *more += 1,
                None => kinds.push((&warning.code, at_layout(row, &warning.message), 0)),
            }
        }
    }
    let limit = if explain { usize::MAX } else { MAX_NOTES };
    for (code, message, more) in kinds.iter().take(limit) {
        let others = match more {
            0 => String::new(),
            1 => " (and 1 more layout)".to_owned(),
            n => format!(" (and {n} more layouts)"),
        };
        let line = wrapped("! ", &format!("{code}: {message}{others}"), "  ");
        let _ = writeln!(out, "{}", style.warning(&line));
    }
    if kinds.len() > limit {
        let _ = writeln!(out, "{}", style.faint(&format!("! {} more kinds: --explain", kinds.len() - limit)));
    }
    if !kinds.is_empty() {
        out.push('\n');
    }
}

/// What is said of a layout, behind its name where the sentence does not begin with it.
fn at_layout(row: &RankedLayout, message: &str) -> String {
    let name = layout(&row.layout);
    if message.starts_with(&name) { message.to_owned() } else { format!("{name}: {message}") }
}

/// Refusals by reason, each with one example.
fn refusals(plan: &Plan, style: Style, explain: bool, out: &mut String) {
    if plan.refused_counts.is_empty() {
        return;
    }
    let total = plan.refused_counts.iter().fold(0_u64, |sum, c| sum.saturating_add(c.count));
    let examples: BTreeMap<&str, &str> =
        plan.refused.iter().rev().map(|r| (r.code.as_str(), r.message.as_str())).collect();
    let layouts = if total == 1 { "layout" } else { "layouts" };
    let _ = writeln!(out, "{} {layouts} refused", grouped(total));
    let limit = if explain { usize::MAX } else { MAX_NOTES };
    for refused in plan.refused_counts.iter().take(limit) {
        let example = examples.get(refused.code.as_str()).map(|m| format!(", e.g. {m}")).unwrap_or_default();
        let line = format!("{} {}{example}", grouped(refused.count), refused.code);
        let _ = writeln!(out, "{}", wrapped("- ", &line, "  "));
    }
    if plan.refused_counts.len() > limit {
        let more = plan.refused_counts.len() - limit;
        let _ = writeln!(out, "{}", style.faint(&format!("- {more} more reasons: --explain")));
    }
    out.push('\n');
}

fn advice(plan: &Plan, style: Style, explain: bool, out: &mut String) {
    if plan.advice.is_empty() {
        return;
    }
    let _ = writeln!(out, "What to change next");
    let limit = if explain { usize::MAX } else { MAX_NOTES };
    for advice in plan.advice.iter().take(limit) {
        let cost = if (advice.cost_factor - 1.0).abs() < 0.005 {
            String::new()
        } else {
            format!(", cost {}", factor(advice.cost_factor))
        };
        let (kv, tpot) = (factor(advice.kv_tokens_gain), factor(advice.tpot_gain));
        let nothing = advice.kv_tokens_gain == 1.0 && advice.tpot_gain == 1.0;
        let gains = if nothing {
            format!("{}:", advice.change)
        } else {
            format!("{}: KV {kv}, speed {tpot}{cost}.", advice.change)
        };
        let _ = writeln!(out, "{}", wrapped("+ ", &format!("{gains} {}", advice.message), "  "));
    }
    if plan.advice.len() > limit {
        let _ = writeln!(out, "{}", style.faint(&format!("+ {} more: --explain", plan.advice.len() - limit)));
    }
    out.push('\n');
}

/// One figure of a stage's memory; `None`: the stage has none.
type Figure = fn(&StageMemory) -> Option<u64>;

/// The best layout's memory stage by stage, its times by part, and why it stands first.
fn best_in_full(plan: &Plan, best: &RankedLayout, style: Style, out: &mut String) {
    let _ = writeln!(
        out,
        "One GPU of {}: {} of {}",
        layout(&best.layout),
        gibibytes(best.memory.budget_bytes),
        gibibytes(best.memory.gpu_bytes)
    );
    let figures: [(&str, Figure); 7] = [
        ("weights", |stage| Some(stage.weights_bytes)),
        ("activation", |stage| Some(stage.activation_bytes)),
        ("runtime", |stage| Some(stage.runtime_bytes)),
        ("graphs", |stage| Some(stage.cuda_graph_bytes).filter(|bytes| *bytes > 0)),
        ("states", |stage| Some(stage.state_bytes).filter(|bytes| *bytes > 0)),
        ("KV cache", |stage| Some(stage.kv_bytes)),
        ("left free", |stage| stage.left_free_bytes),
    ];
    // what no stage has needs no column
    let figures: Vec<_> = figures
        .into_iter()
        .filter(|(_, figure)| best.memory.stages.iter().any(|stage| figure(stage).is_some()))
        .collect();
    let mut heads = format!("{:>5} {:>7}", "stage", "layers");
    for (name, _) in &figures {
        let _ = write!(heads, " {name:>10}");
    }
    let _ = writeln!(out, "{}", style.faint(&heads));
    for stage in &best.memory.stages {
        let mark = if stage.stage == best.memory.binding_stage { "*" } else { "" };
        let layers = format!("{}-{}", stage.first_layer, stage.last_layer);
        let mut line = format!("{:>5} {layers:>7}", format!("{}{mark}", stage.stage));
        for (_, figure) in &figures {
            let _ = write!(line, " {:>10}", gibibytes(figure(stage).unwrap_or(0)));
        }
        let _ = writeln!(out, "{line}");
    }
    if best.memory.stages.len() > 1 {
        let _ = writeln!(out, "{}", style.faint("* the stage that holds the fewest blocks"));
    }
    let latency = &best.latency;
    let _ = writeln!(out, "\nTTFT {}; TPOT {}", interval(&latency.ttft_ms), interval(&latency.tpot_ms));
    parts("decode step", &latency.decode_breakdown_ms, out);
    parts("prefill chunk", &latency.prefill_breakdown_ms, out);
    if let (Some(hour), Some(million)) = (best.cost.usd_per_hour, best.cost.usd_per_million_output_tokens) {
        let _ = writeln!(out, "{hour:.2} USD an hour, {million:.2} USD a million output tokens");
    }
    if !best.capacity.engine_log_line.is_empty() {
        let _ = writeln!(out, "{}", wrapped("The engine will print: ", &best.capacity.engine_log_line, "  "));
    }
    if !best.reasons.is_empty() {
        out.push_str("\nWhy it stands first\n");
        for reason in &best.reasons {
            let _ = writeln!(out, "{}", wrapped("- ", reason, "  "));
        }
    }
    for note in &plan.model.notes {
        let _ = writeln!(out, "{}", wrapped("Note: ", note, "  "));
    }
    out.push('\n');
}

fn interval(estimate: &Estimate) -> String {
    let basis = serde_json::to_value(estimate.basis).unwrap_or_default();
    format!(
        "{} ms ({} to {}, {})",
        milliseconds(estimate.value),
        milliseconds(estimate.low),
        milliseconds(estimate.high),
        basis.as_str().unwrap_or_default()
    )
}

fn parts(name: &str, breakdown: &Breakdown, out: &mut String) {
    let parts = [
        ("weights", breakdown.weights),
        ("KV", breakdown.kv),
        ("compute", breakdown.compute),
        ("communication", breakdown.communication),
        ("pipeline", breakdown.pipeline),
        ("overhead", breakdown.overhead),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(_, ms)| *ms > 0.0)
        .map(|(part, ms)| format!("{part} {}", milliseconds(*ms)))
        .collect();
    let line = format!("{name} {} ms: {}", milliseconds(breakdown.total()), told.join(", "));
    let _ = writeln!(out, "{}", wrapped("  ", &line, "    "));
}

fn launch(best: &RankedLayout, style: Style, out: &mut String) {
    if best.launch.command.is_empty() {
        return;
    }
    let _ = writeln!(out, "Start it");
    for line in best.launch.command.lines() {
        let shown = command(line);
        let _ = writeln!(out, "{}", if line.starts_with('#') { style.faint(&shown) } else { shown });
    }
    out.push('\n');
}

fn assumptions(plan: &Plan, style: Style, explain: bool, out: &mut String) {
    if plan.assumptions.is_empty() {
        return;
    }
    if !explain {
        let given = plan.assumptions.iter().filter(|a| a.given).count();
        let line = format!(
            "{} assumptions ({given} given); --explain lists them, --assume NAME=VALUE changes one",
            plan.assumptions.len()
        );
        let _ = writeln!(out, "{}", style.faint(&wrapped("", &line, "")));
        return;
    }
    let _ = writeln!(out, "Assumptions");
    for assumption in &plan.assumptions {
        let _ = writeln!(out, "{}", wrapped("- ", &assumption_line(assumption), "  "));
    }
}

fn assumption_line(assumption: &Assumption) -> String {
    let value = match &assumption.value {
        AssumptionValue::Number(n) => shown_number(*n),
        AssumptionValue::Text(text) => text.clone(),
    };
    let unit = if assumption.unit.is_empty() { String::new() } else { format!(" {}", assumption.unit) };
    let given = if assumption.given { "given" } else { &assumption.source };
    format!("{} = {value}{unit} ({given})", assumption.name)
}

/// Every digit of a whole number, four of a rate.
fn shown_number(n: f64) -> String {
    if n.abs() >= 1e12 { format!("{n:.3e}") } else { format!("{n}") }
}

fn assertions(answered: &Answered<'_>, style: Style, out: &mut String) {
    for outcome in answered.assertions {
        let line = if outcome.holds {
            style.good(&format!("ok      {}: {}", outcome.text, outcome.found))
        } else {
            style.bad(&format!("FAILED  {}: {}", outcome.text, outcome.found))
        };
        let _ = writeln!(out, "{line}");
    }
}
