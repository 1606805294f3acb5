//! Published figures, reproduced through the public plan path: each case becomes a request with the source's own
//! constants as `assumptions` and the plain latency model, and the answer must hold the source's figures.

mod support;

use serde_json::{Map, Value, json};

/// Cases of what the service does not answer yet; they are printed as open, never as passed.
fn is_open(id: &str) -> bool {
    let families = ["prefix-", "recompute-", "move-"];
    families.iter().any(|f| id.starts_with(f)) || matches!(id, "layout-compat" | "dp-single-sequence")
}

/// Sizes of one layout.
#[derive(Clone, Copy)]
struct Sizes {
    tp: u64,
    pp: u64,
    dp: u64,
}

/// The request that a case stands for, at these sizes; `None` leaves the search open.
fn request(given: &Value, sizes: Option<Sizes>) -> Value {
    let mut model = Map::from_iter([("id".to_owned(), given["model"].clone())]);
    for (from, to) in [("weights", "weights"), ("weights_bytes_total", "weights_bytes")] {
        if let Some(value) = given.get(from) {
            model.insert(to.to_owned(), whole(value));
        }
    }
    if let Some(heads) = given.get("num_key_value_heads") {
        model.insert("overrides".to_owned(), json!({"num_key_value_heads": heads}));
    }

    let mut engine = Map::from_iter([("name".to_owned(), json!("vllm"))]);
    // a source that names no length counts bytes only; any length that starts will do
    let context = given.get("context_tokens").cloned().unwrap_or(json!(1024));
    engine.insert("max_model_len".to_owned(), context.clone());
    for (from, to) in [
        ("memory_utilization", "gpu_memory_utilization"),
        ("prefill_chunk_tokens", "max_num_batched_tokens"),
        ("kv_dtype", "kv_cache_dtype"),
    ] {
        if let Some(value) = given.get(from) {
            engine.insert(to.to_owned(), value.clone());
        }
    }

    let mut assumptions = Map::new();
    for name in [
        "gpu_memory_bytes",
        "reserve_bytes",
        "hbm_bytes_per_s",
        "hbm_efficiency",
        "peak_flops",
        "compute_efficiency",
        "link_bytes_per_s",
        "link_efficiency",
    ] {
        if let Some(value) = given.get(name) {
            assumptions.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(seconds) = given.get("allreduce_fixed_s").and_then(Value::as_f64) {
        assumptions.insert("allreduce_fixed_us".to_owned(), json!(seconds * 1e6));
    }

    let mut workload = json!({"context_tokens": context});
    if let Some(sequences) = given.get("sequences").or_else(|| given.get("concurrency")) {
        workload["concurrency"] = sequences.clone();
    }

    let mut request = json!({
        "model": model, "engine": engine, "assumptions": assumptions, "workload": workload,
        "latency_model": "roofline", "cluster": cluster(given, sizes), "limit": 100,
    });
    if let Some(objective) = given.get("objective") {
        request["objective"] = objective.clone();
    }
    if let Some(sizes) = sizes {
        request["search"] = json!({"tp": [sizes.tp], "pp": [sizes.pp], "dp": [sizes.dp], "ep": [1],
            "attention_dp": [1], "dcp": [1]});
    }
    request
}

/// JSON writes some byte counts of the sources as 8e10; the contract takes whole numbers.
fn whole(value: &Value) -> Value {
    match value.as_f64() {
        Some(n) if n.fract() == 0.0 && value.as_u64().is_none() => {
            json!(format!("{n:.0}").parse::<u64>().unwrap())
        }
        _ => value.clone(),
    }
}

/// The cluster of a case: its own text where it names one that says everything,
/// else just the GPUs that the sizes need, all on the case's link.
fn cluster(given: &Value, sizes: Option<Sizes>) -> Value {
    match given.get("cluster").and_then(Value::as_str) {
        Some(text) if text.contains("NVLink domain") => return one_domain(16, "h100-sxm5-80gb", "nvlink4"),
        Some(text) => return json!(text),
        None => {}
    }
    let gpus = sizes.map_or(8, |s| s.tp * s.pp * s.dp);
    // a source that names no memory counts bytes of a token only: the GPU is one that holds its weights
    let gpu = if given.get("gpu_memory_bytes").is_some() { "h100-sxm5-80gb" } else { "b200-sxm-180gb" };
    one_domain(gpus, gpu, given.get("link").and_then(Value::as_str).unwrap_or("nvlink4"))
}

fn one_domain(gpus: u64, gpu: &str, link: &str) -> Value {
    json!({"node_pools": [{"nodes": 1, "gpus_per_node": gpus, "gpu": gpu, "intra_link": link,
        "inter_link": "infiniband-ndr"}]})
}

/// The one layout of an answer that has these sizes.
fn layout_of(answer: &Value, sizes: Sizes) -> Result<Value, String> {
    let found = answer["layouts"].as_array().into_iter().flatten().find(|row| {
        let layout = &row["layout"];
        layout["tp"] == sizes.tp && layout["pp"] == sizes.pp && layout["dp"] == sizes.dp
    });
    found.cloned().ok_or_else(|| format!("no such layout; refused: {}", answer["refused"]))
}

fn at(given: &Value, name: &str) -> u64 {
    given.get(name).and_then(Value::as_u64).unwrap_or(1)
}

fn number(value: &Value, path: &str) -> Result<f64, String> {
    let found = value.pointer(path).ok_or_else(|| format!("the answer has no {path}"))?;
    found.as_f64().or_else(|| found["value"].as_f64()).ok_or_else(|| format!("{path} is {found}"))
}

/// Equal, or within the tolerance that the source's rounding asks for.
fn compare(what: &str, found: f64, expected: &Value) -> Result<(), String> {
    let (wanted, slack) = match expected.as_f64() {
        Some(exact) => (exact, 0.0),
        None => {
            let wanted = expected["value"].as_f64().ok_or("an expectation without a value")?;
            let absolute = expected["abs_tol"].as_f64().unwrap_or(0.0);
            (wanted, expected["rel_tol"].as_f64().map_or(absolute, |rel| rel * wanted.abs()))
        }
    };
    if (found - wanted).abs() <= slack + 1e-9 {
        Ok(())
    } else {
        Err(format!("{what} is {found}, the source has {wanted} (± {slack})"))
    }
}

/// What a case says of one layout.
fn check_layout(id: &str, answer: &Value, row: &Value, name: &str, expected: &Value) -> Result<(), String> {
    let simple = match name {
        "kv_tokens" => Some(("/capacity/kv_tokens_per_replica", 1.0)),
        "kv_tokens_total" => Some(("/capacity/kv_tokens_total", 1.0)),
        "seats" => Some(("/capacity/sequences", 1.0)),
        "seats_total" => Some(("/capacity/sequences_total", 1.0)),
        "weights_gb_per_gpu" => Some(("/memory/stages/0/weights_bytes", 1e-9)),
        "kv_bytes_per_token_per_gpu" => Some(("/kv/bytes_per_token_per_gpu", 1.0)),
        "kv_kib_per_token_per_gpu" => Some(("/kv/bytes_per_token_per_gpu", 1.0 / 1024.0)),
        "kv_kib_per_token_cluster" => Some(("/kv/bytes_per_token_cluster", 1.0 / 1024.0)),
        "kv_heads_per_gpu" => Some(("/kv/kv_heads_per_gpu", 1.0)),
        "replication" => Some(("/kv/replication_factor", 1.0)),
        "prefill_chunk_ms" => Some(("/latency/prefill_chunk_ms", 1.0)),
        "decode_step_ms" => Some(("/latency/decode_step_ms", 1.0)),
        "allreduces_per_token" => Some(("/latency/all_reduces_per_pass", 1.0)),
        "communication_percent" if id.contains("prefill") => {
            Some(("/latency/prefill_communication_share", 100.0))
        }
        "communication_percent" => Some(("/latency/communication_share", 100.0)),
        _ => None,
    };
    if let Some((path, factor)) = simple {
        return compare(name, number(row, path)? * factor, expected);
    }
    match name {
        "q_heads_per_gpu" => {
            compare(name, number(answer, "/model/query_heads")? / number(row, "/layout/tp")?, expected)
        }
        // one latent of this width for each layer, two bytes an element
        "latent_width" => compare(
            name,
            number(row, "/kv/bytes_per_token_logical")? / number(answer, "/model/layers")? / 2.0,
            expected,
        ),
        "stage_layers" => {
            let stages: Vec<Value> = row["memory"]["stages"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|s| json!([s["first_layer"], s["last_layer"]]))
                .collect();
            if json!(stages) == *expected { Ok(()) } else { Err(format!("stages are {}", json!(stages))) }
        }
        "crosses_nodes_with_tp" => {
            let found = &row["placement"]["tp_crosses_nodes"];
            if found == expected { Ok(()) } else { Err(format!("tp_crosses_nodes is {found}")) }
        }
        "log_line" => check_log_line(row, expected.as_str().unwrap_or_default()),
        other => Err(format!("nothing here checks `{other}`")),
    }
}

/// The engine's own wording; the token count within 1e-4, the concurrency to its two decimals.
fn check_log_line(row: &Value, expected: &str) -> Result<(), String> {
    let found = row["capacity"]["engine_log_line"].as_str().unwrap_or_default();
    let numbers = |line: &str| -> Vec<f64> {
        line.split(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.'))
            .filter_map(|word| word.trim_matches([',', '.']).replace(',', "").parse().ok())
            .collect()
    };
    let words = |line: &str| line.replace(|c: char| c.is_ascii_digit() || c == ',' || c == '.', "");
    let (found_numbers, wanted) = (numbers(found), numbers(expected));
    let close = found_numbers.len() == 3
        && (found_numbers[0] / wanted[0] - 1.0).abs() <= 1e-4
        && found_numbers[1] == wanted[1]
        && found_numbers[2] == wanted[2];
    if words(found) == words(expected) && close { Ok(()) } else { Err(format!("the line is `{found}`")) }
}

/// Output tokens per second at TP `b` over those at TP `a`.
fn throughput_ratio(given: &Value, a: u64, b: u64) -> Result<f64, String> {
    let rate = |tp| {
        let sizes = Sizes { tp, pp: 1, dp: 1 };
        let row = layout_of(&support::answer(&request(given, Some(sizes))), sizes)?;
        number(&row, "/throughput/output_tokens_per_s")
    };
    Ok(rate(b)? / rate(a)?)
}

fn check(case: &Value) -> Result<(), String> {
    let (id, given) = (case["id"].as_str().unwrap_or_default(), &case["given"]);
    let fixed = given["tp"].is_u64() || given["pp"].is_u64() || given.get("cluster").is_none();
    let sizes = Sizes { tp: at(given, "tp"), pp: at(given, "pp"), dp: at(given, "dp") };
    for (name, expected) in case["expect"].as_object().into_iter().flatten() {
        match name.as_str() {
            "refused" => {
                let answer = support::answer(&request(given, Some(sizes)));
                let told = answer["refused"].as_array().into_iter().flatten().any(|r| {
                    r["layout"]["tp"] == sizes.tp && r["message"].as_str().is_some_and(|m| !m.is_empty())
                });
                if answer["feasible"] == true || !told {
                    return Err(format!("not refused with a reason: {}", answer["answer"]));
                }
            }
            "output_tokens_per_s_ratio_4_to_8" => compare(name, throughput_ratio(given, 4, 8)?, expected)?,
            "output_tokens_per_s_ratio_8_to_16" => compare(name, throughput_ratio(given, 8, 16)?, expected)?,
            "kv_tokens_ratio_to_bf16" => {
                let tokens = |dtype: &str| {
                    let mut given = given.clone();
                    given["kv_dtype"] = json!(dtype);
                    let row = layout_of(&support::answer(&request(&given, Some(sizes))), sizes)?;
                    number(&row, "/capacity/kv_tokens_per_replica")
                };
                compare(name, tokens("fp8")? / tokens("bf16")?, expected)?;
            }
            "marginal_gain" => {
                let seats = |sizes| {
                    let row = layout_of(&support::answer(&request(given, Some(sizes))), sizes)?;
                    number(&row, "/capacity/sequences_total")
                };
                compare(name, seats(sizes)? / seats(Sizes { dp: 1, ..sizes })?, expected)?;
            }
            // of the model alone, whatever it is laid on
            "kv_bytes_per_token_logical" => {
                let answer = support::answer(&request(given, Some(sizes)));
                compare(name, number(&answer, "/model/kv_bytes_per_token")?, expected)?;
            }
            "first_for_capacity" => {
                let mut asked = request(given, None);
                asked["objective"] = json!("capacity");
                let best = support::answer(&asked)["layouts"][0]["layout"].clone();
                if best["tp"] != expected["tp"] || best["pp"] != expected["pp"] {
                    return Err(format!("first for capacity is {best}"));
                }
            }
            "tp16_beats_tp8_pp2_on_time_per_token" => {
                let answer = support::answer(&request(given, None));
                let time = |tp, pp| number(&layout_of(&answer, Sizes { tp, pp, dp: 1 })?, "/latency/tpot_ms");
                if (time(16, 1)? < time(8, 2)?) != (*expected == json!(true)) {
                    return Err(format!("TPOT {} against {} ms", time(16, 1)?, time(8, 2)?));
                }
            }
            _ => {
                let (answer, row) = if fixed {
                    let answer = support::answer(&request(given, Some(sizes)));
                    let row = layout_of(&answer, sizes)?;
                    (answer, row)
                } else {
                    let mut asked = request(given, None);
                    asked["objective"] = json!("capacity");
                    let answer = support::answer(&asked);
                    let row = answer["layouts"][0].clone();
                    (answer, row)
                };
                check_layout(id, &answer, &row, name, expected)?;
            }
        }
    }
    Ok(())
}

#[test]
fn published_figures_are_reproduced() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("data/source_figures.json")).expect("the cases are JSON");
    let (mut passed, mut open, mut failed) = (0, Vec::new(), Vec::new());
    for case in &cases {
        let id = case["id"].as_str().expect("an id");
        if is_open(id) {
            open.push(id);
            continue;
        }
        match check(case) {
            Ok(()) => passed += 1,
            Err(why) => failed.push(format!("{id}: {why}")),
        }
    }
    println!("{passed} figures reproduced, {} open: {}", open.len(), open.join(", "));
    assert!(failed.is_empty(), "{passed} reproduced, {} not:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(cases.len(), passed + open.len());
}
