//! What fits over the whole catalogue.

use serde_json::{Value, json};
use shardwise::ingest::fits::FitsRequest;
use shardwise::service::fits::{FitRow, Fits, fits};

fn ask(request: &Value) -> Fits {
    fits(&FitsRequest::read(request).expect("a valid request")).expect("a valid cluster")
}

fn row<'f>(fits: &'f Fits, model: &str) -> &'f FitRow {
    fits.items.iter().find(|row| row.model == model).unwrap_or_else(|| panic!("{model} is listed"))
}

#[test]
fn every_readable_model_has_a_row_and_every_other_a_reason() {
    let all = ask(&json!({"cluster": "16 H100s"}));
    let listed = shardwise::catalogue::models::all().len();
    assert_eq!(all.items.len() + all.unread.len(), listed);
    assert!(all.items.len() >= 150, "{} rows; unread: {:?}", all.items.len(), all.unread);
    for row in &all.items {
        let fit = &row.fit;
        assert_eq!(fit.why_not.is_none(), fit.fits, "{}", row.model);
        if fit.fits {
            let best = fit.best.as_ref().expect("a layout");
            assert_eq!(best.layout.gpus + best.layout.idle_gpus, 16, "{}", row.model);
            assert!(fit.smallest_gpus.expect("it fits").le(&16), "{}", row.model);
            assert_eq!(best.sequences.len(), 3);
        }
    }
}

#[test]
fn what_does_not_fit_says_by_how_much_and_in_which_weights_it_would() {
    let small = ask(&json!({"cluster": "2 H100"}));
    let misfit = row(&small, "meta-llama/Llama-3.1-70B-Instruct");
    assert!(!misfit.fit.fits);
    let why = misfit.fit.why_not.as_ref().expect("a reason");
    assert!(why.short_by_bytes.is_some_and(|bytes| bytes > 0), "{why:?}");
    assert_eq!(misfit.fits_only_as.as_ref().map(|lower| lower.weights.as_str()), Some("fp8"));
    assert!(misfit.fit.smallest_gpus.expect("more GPUs hold it") > 2);
    let long = ask(&json!({"cluster": "16 H100", "workload": {"context_tokens": 1_000_000}}));
    let why = row(&long, "meta-llama/Llama-3.1-8B-Instruct").fit.why_not.as_ref().expect("a reason");
    assert_eq!(why.code, "context_longer_than_model");
}

#[test]
fn filters_and_orders_hold() {
    let request =
        |filter: Value, sort: &str| ask(&json!({"cluster": "8 H200", "filter": filter, "sort": sort}));
    let qwen = request(json!({"search": "QWEN", "max_parameters": 40_000_000_000_u64, "fits": true}), "tpot");
    assert!(qwen.items.len() > 3);
    assert!(qwen.items.iter().all(|r| r.parameters <= 40_000_000_000 && r.fit.fits));
    let tpot: Vec<f64> = qwen.items.iter().map(|r| r.fit.best.as_ref().expect("fits").tpot_ms).collect();
    assert!(tpot.is_sorted(), "{tpot:?}");
    let by_name = request(json!({"licence": "apache-2.0"}), "name");
    assert!(by_name.items.iter().all(|r| r.licence.as_deref() == Some("apache-2.0")));
    assert_eq!(ask(&json!({"cluster": "8 H200", "limit": 3})).items.len(), 3);
    assert_eq!(request(json!({"fits": false}), "parameters").models_fitting, 0);
}

#[test]
fn twins_have_equal_figures_and_the_answer_is_the_same_each_time() {
    let first = ask(&json!({"cluster": "16 H100s"}));
    assert_eq!(first, ask(&json!({"cluster": "16 H100s"})));
    let twin = row(&first, "meta-llama/Llama-3.1-70B-Instruct");
    let other = row(&first, "meta-llama/Llama-3.3-70B-Instruct");
    assert_eq!(twin.fit, other.fit);
}

#[test]
fn csv_and_markdown_have_a_line_for_each_row() {
    let all = ask(&json!({"cluster": "4 A100", "contexts": [4096, 16384]}));
    let csv = all.csv();
    let mut lines = csv.split("\r\n");
    let head = lines.next().expect("a head");
    assert!(head.contains("sequences_at_4096,sequences_at_16384,tpot_ms"), "{head}");
    assert_eq!(lines.filter(|line| !line.is_empty()).count(), all.items.len());
    let markdown = all.markdown();
    assert_eq!(markdown.lines().filter(|line| line.starts_with('|')).count(), all.items.len() + 2);
}

#[test]
fn faults_of_cluster_and_engine_come_together() {
    let request = json!({"cluster": "16 H1OOs", "engine": {"name": "ollama"}});
    let fault = fits(&FitsRequest::read(&request).expect("well formed")).expect_err("two faults");
    let told = fault.to_string();
    assert!(told.contains("cluster") && told.contains("ollama"), "{told}");
}
