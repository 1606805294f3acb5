//! Answers as tables: CSV for panels and spreadsheets, beside the JSON that it is read off.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use api::{Api, Reply};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

async fn ask(api: &Api, method: &str, path: &str, accept: &str, body: Option<&Value>) -> Reply {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let request = request.header("content-type", "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    api.send(request.body(body).expect("a request")).await
}

/// The rows of a table, each by the names in its head. No cell of these tables has a comma.
fn rows(csv: &str) -> Vec<Vec<(String, String)>> {
    let mut lines = csv.split("\r\n").filter(|line| !line.is_empty());
    let head: Vec<String> = lines.next().expect("a head").split(',').map(str::to_owned).collect();
    let rows: Vec<_> = lines
        .map(|line| {
            let cells: Vec<String> = line.split(',').map(str::to_owned).collect();
            assert_eq!(cells.len(), head.len(), "{line}");
            head.iter().cloned().zip(cells).collect()
        })
        .collect();
    rows
}

fn cell<'r>(row: &'r [(String, String)], name: &str) -> &'r str {
    row.iter().find(|(known, _)| known == name).map_or("no such column", |(_, cell)| cell)
}

fn question() -> Value {
    json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "16 H100", "engine": {"max_model_len": 32_768}})
}

#[tokio::test]
async fn a_plan_is_a_table_with_a_row_for_each_layout() {
    let api = Api::start().await;
    let plan = ask(&api, "POST", "/v1/plans", "application/json", Some(&question())).await;
    assert!(plan.header("vary").to_lowercase().contains("accept"), "{}", plan.header("vary"));
    let plan = plan.json();
    let id = plan["plan_id"].as_str().expect("an id");
    let by_header = ask(&api, "POST", "/v1/plans", "text/csv", Some(&question())).await;
    assert_eq!(by_header.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(by_header.header("content-location"), format!("/v1/plans/{id}"));
    let layouts = plan["layouts"].as_array().expect("layouts");
    let table = rows(&by_header.text());
    assert_eq!(table.len(), layouts.len());
    for (row, layout) in table.iter().zip(layouts) {
        for (name, at) in [
            ("rank", "/rank"),
            ("tp", "/layout/tp"),
            ("kv_tokens_total", "/capacity/kv_tokens_total"),
            ("replication_factor", "/kv/replication_factor"),
            ("tpot_ms", "/latency/tpot_ms/value"),
            ("ttft_ms_high", "/latency/ttft_ms/high"),
            ("meets_slo", "/meets_slo"),
        ] {
            assert_eq!(cell(row, name), layout.pointer(at).expect("a figure").to_string(), "{name}");
        }
        assert_eq!(cell(row, "usd_per_hour"), "", "no price is known");
    }
    let named =
        table.iter().find(|row| cell(row, "tp") == "8" && cell(row, "pp") == "2").expect("TP=8 x PP=2");
    assert_eq!(cell(named, "layout"), "tp=8 pp=2");
    assert!(table.iter().any(|row| cell(row, "warnings").contains("kv_replicated")), "TP=16 copies");
    // by the parameter, whatever the header says; and of a plan that was made before
    let by_parameter = ask(&api, "POST", "/v1/plans?format=csv", "application/json", Some(&question())).await;
    assert_eq!(by_parameter.text(), by_header.text());
    for (path, accept) in
        [(format!("/v1/plans/{id}?format=csv"), "*/*"), (format!("/v1/plans/{id}"), "text/csv")]
    {
        let kept = ask(&api, "GET", &path, accept, None).await;
        assert_eq!(kept.text(), by_header.text(), "{path}");
        assert_eq!(kept.header("etag"), format!("\"{id}-csv\""), "it is not the JSON");
    }
    assert_eq!(
        ask(&api, "GET", &format!("/v1/plans/{id}"), "text/html, */*", None).await.json()["plan_id"],
        id
    );
}

#[tokio::test]
async fn where_nothing_fits_the_table_is_its_head() {
    let api = Api::start().await;
    let question = json!({"model": "meta-llama/Llama-3.1-405B-Instruct", "cluster": "1 H100"});
    let table = ask(&api, "POST", "/v1/plans", "text/csv", Some(&question)).await;
    assert_eq!(table.status, 200);
    assert!(
        table.text().starts_with("rank,layout,tp,") && rows(&table.text()).is_empty(),
        "{}",
        table.text()
    );
}

#[tokio::test]
async fn a_sweep_is_a_table_with_a_row_for_each_point_and_says_its_versions() {
    let api = Api::start().await;
    let mut question = question();
    question["over"] = json!({"axis": "tp", "values": [8, 12, 16]});
    question["by"] = json!({"axis": "kv_cache_dtype", "values": ["auto", "fp8"]});
    let sweep = ask(&api, "POST", "/v1/sweeps", "*/*", Some(&question)).await.json();
    let plan = ask(&api, "POST", "/v1/plans", "*/*", Some(&self::question())).await.json();
    assert_eq!(sweep["versions"], plan["versions"]);
    let table = rows(&ask(&api, "POST", "/v1/sweeps?format=csv", "*/*", Some(&question)).await.text());
    let shown: Vec<[&str; 3]> =
        table.iter().map(|row| [cell(row, "by"), cell(row, "at"), cell(row, "replication_factor")]).collect();
    let expected = [
        ["auto", "8", "1.0"],
        ["auto", "12", ""],
        ["auto", "16", "2.0"],
        ["fp8", "8", "1.0"],
        ["fp8", "12", ""],
        ["fp8", "16", "2.0"],
    ];
    assert_eq!(shown, expected);
    assert_ne!(cell(&table[1], "reason"), "", "TP=12 says why it is none");
    let points = sweep["curves"][1]["points"].as_array().expect("points");
    assert_eq!(cell(&table[3], "kv_tokens_total"), points[0]["kv_tokens_total"].to_string());
}

#[tokio::test]
async fn an_unknown_form_is_refused_by_name() {
    let api = Api::start().await;
    for path in
        ["/v1/plans?format=xls", "/v1/sweeps?format=markdown", "/v1/batches?format=", "/v1/plans?fromat=csv"]
    {
        let refused = ask(&api, "POST", path, "*/*", Some(&question())).await;
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.text().contains("format"), "{path}: {}", refused.text());
    }
}
