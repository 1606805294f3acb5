//! `docs/FORMULAS.md` has every form that a plan prints.

use std::collections::BTreeSet;

use shardwise::catalogue::hardware::catalogue;
use shardwise::catalogue::models;
use shardwise::planner::engine;
use shardwise::planner::formula::kv_formula;
use shardwise::planner::input::EngineSettings;
use shardwise::planner::layout::Shape;

const FORMULAS: &str = include_str!("../docs/FORMULAS.md");

/// A text with its numbers, sizes of elements and symbols of numbers left open.
fn form(text: &str) -> String {
    let mut open = text.trim().to_owned();
    let elements = [
        "1 B (and 4 B of scale for each head)",
        "fp8 with scales (656 B a token and layer)",
        "nvfp4 with scales (352 B a token and layer)",
        "9/16 B",
        "4 B",
        "2 B",
        "1 B",
    ];
    for size in elements {
        open = open.replace(&format!("× {size}"), "× #");
    }
    let separators = |c: char| !(c.is_alphanumeric() || c == '_' || c == ',');
    let symbols = ["L", "Hkv", "d", "d_v", "b", "r", "p", "W", "R", "N"];
    let mut words = String::new();
    for part in open.split_inclusive(separators) {
        let word = part.trim_end_matches(separators);
        let rest = part.get(word.len()..).unwrap_or("");
        let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == ',');
        words.push_str(if is_number || symbols.contains(&word) { "#" } else { word });
        words.push_str(rest);
    }
    words
}

/// The forms of the document: all that stands between back quotes, in tables after "…" the end alone.
fn documented() -> BTreeSet<String> {
    FORMULAS.split('`').skip(1).step_by(2).map(form).collect()
}

/// The terms of a formula: split at sums outside brackets.
fn terms(formula: &str) -> Vec<String> {
    let sum = formula.split(" = ").next().unwrap_or(formula);
    let (mut depth, mut out, mut term) = (0_isize, Vec::new(), String::new());
    for word in sum.split(' ') {
        if word == "+" && depth == 0 {
            out.push(std::mem::take(&mut term));
            continue;
        }
        depth += word.matches('(').count().cast_signed() - word.matches(')').count().cast_signed();
        term = if term.is_empty() { word.to_owned() } else { format!("{term} {word}") };
    }
    out.push(term);
    out
}

#[test]
fn every_form_that_a_plan_prints_is_documented() {
    let documented = documented();
    let has = |text: &str| {
        let wanted = form(text);
        documented.contains(&wanted)
            || wanted.find(" (inside a").is_some_and(|at| {
                let (front, end) = wanted.split_at(at);
                documented.contains(front) && documented.contains(&format!("…{end}"))
            })
    };
    let mut seen = BTreeSet::new();
    for model in models::all() {
        let Ok(spec) = model.spec() else { continue };
        for gpu in ["h100-sxm5-80gb", "b200-sxm-180gb"].into_iter().filter_map(|key| catalogue().gpu(key)) {
            for (name, dtype) in
                [("vllm", "auto"), ("vllm", "fp8"), ("sglang", "auto"), ("tensorrt-llm", "auto")]
            {
                let rules = engine::rules(name, "latest").expect("rules");
                let mut settings = EngineSettings::defaults_of(name, "latest");
                settings.kv_cache_dtype = dtype.to_owned();
                let Ok(resolved) = rules.resolve(&settings, &spec, gpu) else { continue };
                let shape = Shape { tp: 1, pp: 1, ep: 1, attention_dp: 1, dcp: 1 };
                let stages = std::slice::from_ref(&(0..spec.layers.len())).to_vec();
                let Ok(cache) = rules.cache_layout(&spec, &shape, gpu, &resolved, &stages) else { continue };
                let text = kv_formula(&spec, resolved.kv_dtype, &cache);
                let (by_token, states) =
                    text.split_once(';').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
                for term in terms(by_token) {
                    assert!(has(&term), "{}: {term} ({})", model.id, form(&term));
                    seen.insert(form(&term));
                }
                if let Some(states) = states {
                    let states = format!("; {}", states.trim());
                    assert!(has(&states), "{}: {states} ({})", model.id, form(&states));
                    seen.insert(form(&states));
                }
            }
        }
    }
    // heads, windows, latents, indexers and states are all in the catalogue
    assert!(seen.len() >= 6, "{seen:?}");
}
