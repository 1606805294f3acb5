//! Weight bytes per rank against what vLLM 0.33 computes itself (`tests/data/oracle`), and parameter counts.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;
use shardwise::ingest::config_json;
use shardwise::planner::layout::Shape;
use shardwise::planner::model::ModelSpec;

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("test data is gzip");
    text
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    gunzip(bytes).lines().map(|line| config_json::parse(line).expect("test data is JSON")).collect()
}

fn configs() -> BTreeMap<String, Value> {
    lines(include_bytes!("data/oracle/configs.jsonl.gz"))
        .into_iter()
        .map(|mut row| (format!("configs/{}", row["file"].as_str().expect("named")), row["config"].take()))
        .collect()
}

fn shape_of(case: &Value) -> Shape {
    let n = |key: &str| case[key].as_u64().expect("a size");
    let (tp, dp) = (n("tp"), n("dp"));
    let ep = if case["ep"] == true { tp * dp } else { 1 };
    Shape { tp, pp: n("pp"), ep, attention_dp: dp, dcp: n("dcp") }
}

fn spec_of(case: &Value, configs: &BTreeMap<String, Value>) -> Result<ModelSpec, String> {
    let config = &configs[case["config"].as_str().expect("a file")];
    let side = case["hf_quant_config"].as_str().and_then(|file| configs.get(file));
    config_json::read(case["model"].as_str().expect("named"), config, side)
        .map(|read| {
            if case["engine_args"]["language_model_only"] == true {
                read.spec.without_towers()
            } else {
                read.spec
            }
        })
        .map_err(|error| error.to_string())
}

#[derive(Default)]
struct Tally {
    rows: usize,
    equal: usize,
    near: usize,
    off: usize,
    refused: usize,
}

#[test]
fn weights_equal_the_engines() {
    let configs = configs();
    let mut table: BTreeMap<String, Tally> = BTreeMap::new();
    let mut all = Tally::default();
    #[expect(clippy::disallowed_methods, reason = "a switch of the test alone")]
    let verbose = std::env::var_os("ORACLE_VERBOSE").is_some();
    let mut buffers_equal = 0;
    for case in lines(include_bytes!("data/oracle/cases.jsonl.gz")) {
        let expected =
            case["weight_bytes"].as_u64().or_else(|| case["weight_bytes_before_online_quant"].as_u64());
        let Some(expected) = expected else { continue };
        let config = &configs[case["config"].as_str().expect("a file")];
        let architecture = config["architectures"][0].as_str().unwrap_or("?").to_owned();
        let tally = table.entry(architecture).or_default();
        tally.rows += 1;
        all.rows += 1;
        let spec = match spec_of(&case, &configs) {
            Ok(spec) => spec,
            Err(error) => {
                if verbose {
                    println!("refused {} {error}", case["model"]);
                }
                tally.refused += 1;
                all.refused += 1;
                continue;
            }
        };
        let shape = shape_of(&case);
        let index = |i: usize| usize::try_from(case["layers"][i].as_u64().expect("a layer")).expect("small");
        let rank = case["pp_rank"].as_u64().expect("a rank");
        let stage = spec.sharded(&shape).stage(index(0), index(1), rank == 0, rank + 1 == shape.pp);
        let got = stage.bytes.get();
        buffers_equal += usize::from(Some(stage.buffer_bytes.get()) == case["buffer_bytes"].as_u64());
        let gap = got.abs_diff(expected);
        if gap == 0 {
            tally.equal += 1;
            all.equal += 1;
        } else {
            let near = gap * 1000 <= expected;
            let count = if near { &mut tally.near } else { &mut tally.off };
            *count += 1;
            let count = if near { &mut all.near } else { &mut all.off };
            *count += 1;
            if verbose {
                println!(
                    "{} {} tp{} pp{}/{} ep{} dp{} q={} got {got} expected {expected} diff {}{gap} buffers {} vs {}",
                    if near { "near" } else { "OFF " },
                    case["model"],
                    shape.tp,
                    rank,
                    shape.pp,
                    shape.ep,
                    shape.attention_dp,
                    case["weight_quant"],
                    if got > expected { "+" } else { "-" },
                    stage.buffer_bytes.get(),
                    case["buffer_bytes"]
                );
            }
        }
    }
    println!(
        "{:<40} {:>5} {:>6} {:>6} {:>5} {:>8}",
        "architecture", "rows", "equal", "<0.1%", "off", "refused"
    );
    for (architecture, t) in &table {
        println!(
            "{architecture:<40} {:>5} {:>6} {:>6} {:>5} {:>8}",
            t.rows, t.equal, t.near, t.off, t.refused
        );
    }
    println!(
        "{:<40} {:>5} {:>6} {:>6} {:>5} {:>8}",
        "all", all.rows, all.equal, all.near, all.off, all.refused
    );
    println!("buffer bytes equal: {buffers_equal}");
    assert!(all.equal * 100 >= all.rows * LEAST_EQUAL_PERCENT, "equal on {} of {}", all.equal, all.rows);
}

/// The level reached; raise it with the reader, never lower it.
const LEAST_EQUAL_PERCENT: usize = 100;
