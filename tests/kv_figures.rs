//! The published figures on moving and sharing cache (`tests/data/figures/kv.json`) through the public questions.

use serde_json::{Map, Value, json};
use shardwise::ingest::json::Document;
use shardwise::service::kv;

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("data/figures/kv.json")).expect("JSON")
}

fn document(value: Value) -> Document {
    Document { value, duplicates: Vec::new() }
}

/// What a case gives, under the names of the questions: they are the same but for what a comparison is called.
fn asked(given: &Value) -> Value {
    let mut question: Map<String, Value> = given.as_object().expect("an object").clone();
    if question.contains_key("compare") {
        question.insert("cluster".to_owned(), json!("8 H100"));
    }
    Value::Object(question)
}

fn close(expected: &Value, got: f64, id: &str) {
    let value = expected["value"].as_f64().or(expected.as_f64()).expect("a number");
    let tolerance =
        expected["rel_tol"].as_f64().map(|t| t * value).or(expected["abs_tol"].as_f64()).unwrap_or(0.0);
    assert!((got - value).abs() <= tolerance, "{id}: {got}, expected {value} within {tolerance}");
}

#[test]
fn every_published_figure_is_given() {
    let mut checked = 0;
    for case in cases() {
        let id = case["id"].as_str().expect("an id");
        let question = document(asked(&case["given"]));
        let expect = &case["expect"];
        if id.starts_with("prefix-") {
            let answer = kv::prefixes_offline(&question).expect("an answer").prefixes;
            let bytes = answer.prefix_bytes as f64;
            let total = answer.duplicated_bytes_total as f64;
            for (name, got) in [
                ("prefix_bytes", bytes),
                ("duplicated_bytes_total", total),
                ("prefix_gb", bytes / 1e9),
                ("total_gb", total / 1e9),
            ] {
                if !expect[name].is_null() {
                    close(&expect[name], got, id);
                    checked += 1;
                }
            }
        } else if id.starts_with("recompute-") || id.starts_with("move-") {
            let answer = kv::moves_offline(&question).expect("an answer").moves;
            if id.starts_with("recompute-") {
                close(&expect["recompute_ms"], answer.recompute_ms.value, id);
            } else {
                close(&expect["move_ms"], answer.move_ms.expect("one path").value, id);
            }
            checked += 1;
        } else if id == "layout-compat" {
            let answer = kv::handovers_offline(&question).expect("an answer").compatibility;
            assert_eq!(json!(answer.compatible_without_reshape), expect["compatible_without_reshape"]);
            checked += 1;
        } else {
            let answer = kv::sequences_offline(&question).expect("an answer").residences;
            assert_eq!(
                (answer.raises_max_sequence, answer.does_not_raise),
                (vec!["tp".to_owned(), "pp".to_owned()], vec!["dp".to_owned()])
            );
            let longest: Vec<u64> = answer.layouts.iter().map(|l| l.max_sequence_tokens).collect();
            assert!(longest[0] < longest[1] && longest[0] < longest[2], "{longest:?}");
            checked += 1;
        }
    }
    assert_eq!(checked, 15);
}

#[test]
fn attention_is_counted_unless_a_plain_count_is_asked_for() {
    let ask = |extra: Value| {
        let mut question =
            json!({"model": "meta-llama/Meta-Llama-3-8B", "prefix_tokens": 10_000, "achieved_flops": 6e14});
        question.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        kv::moves_offline(&document(question)).expect("an answer").moves
    };
    let own = ask(json!({}));
    // 4 · 32 layers · 4096 · n²/2
    let attention = 2.0 * 32.0 * 4096.0 * 1e8;
    assert!((own.recompute.attention_flops / attention - 1.0).abs() < 1e-9);
    assert!(own.recompute.attention_ms > 40.0 && own.recompute.attention_counted);
    let plain = ask(json!({"latency_model": "roofline"}));
    assert_eq!(plain.recompute.attention_flops, 0.0);
    assert!(plain.recompute_ms.value < own.recompute_ms.value);
}

#[test]
fn a_crossover_is_where_both_times_meet() {
    let question = document(
        json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "8 H100", "layout": {"tp": 8}, "prefix_tokens": 4096}),
    );
    let moves = kv::moves_offline(&question).expect("an answer").moves;
    assert!(moves.paths.len() >= 5, "{:?}", moves.paths.iter().map(|p| &p.path).collect::<Vec<_>>());
    for path in &moves.paths {
        let Some(from) = path.crossover_tokens else { continue };
        let at = |tokens: u64| {
            let mut q = question.value.clone();
            q["prefix_tokens"] = json!(tokens);
            let m = kv::moves_offline(&document(q)).expect("an answer").moves;
            m.paths.into_iter().find(|p| p.path == path.path).expect("the path").wins
        };
        assert_eq!(at(from), "fetch", "{}", path.path);
        if from > 1 {
            assert_eq!(at(from - 1), "recompute", "{}", path.path);
        }
    }
    // the public table of break-even bandwidths: 9.2 GB/s for a 70B model on eight H100 at half the peak
    let far = kv::moves_offline(&document(
        json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "8 H100", "layout": {"tp": 8},
        "prefix_tokens": 4096, "attention": false, "bandwidth_bytes_per_s": 1e10}),
    ))
    .expect("an answer")
    .moves;
    let even = far.paths[0].break_even_bandwidth_bytes_per_s.expect("no fixed cost");
    assert!((even / 9.2e9 - 1.0).abs() < 0.03, "{even}");
}

#[test]
fn copies_are_read_again_and_tiers_add_no_sequences() {
    let ask = |tp: u64, broadcast: bool| {
        let question = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "2 nodes x 8 H100", "layout": {"tp": tp},
            "prefix_tokens": 8192, "broadcast": broadcast, "bandwidth_bytes_per_s": 5e10,
            "tiers": [{"level": "host", "bytes_per_node": 100_000_000_000_u64}, {"level": "disk", "bytes_per_node": 4_000_000_000_000_u64}]});
        kv::moves_offline(&document(question)).expect("an answer")
    };
    let (eight, sixteen) = (ask(8, false), ask(16, false));
    assert_eq!(sixteen.moves.bytes_read, 2 * eight.moves.bytes_read);
    assert_eq!(ask(16, true).moves.bytes_read, eight.moves.bytes_read);
    let tiers = eight.tiers.expect("it fits");
    let useful: Vec<bool> = tiers.tiers.iter().map(|t| t.useful).collect();
    assert_eq!(useful, [false, true]);
    assert!(tiers.gpu_kv_bytes_node > 300_000_000_000 && tiers.sequences > 0);
}

#[test]
fn a_pair_of_workers_has_a_ratio_or_a_reason_not_to_split() {
    let question = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "4 nodes x 8 H100",
        "producer": {"tp": 4}, "consumer": {"tp": 8},
        "lengths": [{"input_tokens": 1024, "output_tokens": 1024}, {"input_tokens": 32768, "output_tokens": 256}]});
    let answer = kv::handovers_offline(&document(question)).expect("an answer");
    assert_eq!(answer.ratios.len(), 2);
    let share = |i: usize| answer.ratios[i].prefill_workers as f64 / answer.ratios[i].decode_workers as f64;
    assert!(share(1) > share(0), "long prompts need more prefill: {:?}", answer.ratios);
    for point in &answer.ratios {
        assert!(["prefill", "decode", "network"].contains(&point.bound.as_str()));
        assert!(point.split || point.message.starts_with("Do not split"), "{}", point.message);
        assert!(point.added_ttft_ms > 1.0 && point.bytes_per_request == point.input_tokens * 327_680);
    }
    let slow = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "4 nodes x 8 H100", "producer": {"tp": 8}, "consumer": {"tp": 8},
        "input_tokens": 16384, "output_tokens": 64, "bandwidth_bytes_per_s": 1e8});
    let slow = kv::handovers_offline(&document(slow)).expect("an answer");
    assert!(!slow.ratios[0].split && slow.ratios[0].bound == "network");
}

#[test]
fn faulty_questions_are_refused_with_their_places() {
    let pointers = |question: Value| -> Vec<String> {
        match kv::moves_offline(&document(question)) {
            Err(shardwise::service::ServiceError::Invalid(faults)) => {
                faults.into_iter().map(|f| f.pointer).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        pointers(json!({"model": "meta-llama/Meta-Llama-3-8B", "prefix_tokens": 0})),
        ["#/prefix_tokens"]
    );
    let found = pointers(
        json!({"modle": 1, "prefix_tokens": 10, "paths": [{"name": "x"}], "layout": {"tp": -1, "qq": 2}}),
    );
    for place in ["#/paths/0/bandwidth_bytes_per_s", "#/layout/tp", "#/layout/qq", "#/model", "#/modle"] {
        assert!(found.iter().any(|p| p == place), "{place} in {found:?}");
    }
}
