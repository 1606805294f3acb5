//! The fitted constants and what they are judged by: files that read back, points that are near, a table that cannot flatter.

use std::path::Path;

use shardwise::catalogue::calibration::{self, CalibrationError};
use shardwise::planner::latency::calibrated::collective::WireKind;
use shardwise::planner::latency::calibrated::parameters::Values;
use shardwise::service::accuracy::latency::{judge, latency};
use shardwise::service::calibrate::collectives::{embedded_points, error};
use shardwise::service::calibrate::{embedded_rows, serving, usable};
use shardwise::service::measurements::Observation;

const SAMPLE: &str = "tests/data/truth/latency_sample.jsonl";

#[test]
fn the_embedded_calibration_reads_back_as_it_was_written() {
    let text = std::fs::read_to_string("data/calibration/latency.json").expect("the file");
    let read = calibration::read(&text).expect("a calibration");
    assert_eq!(*calibration::calibration(), read);
    assert_ne!(read.values, Values::priors(), "nothing was fitted");
    assert!(read.ranges.measured.len() > 5 && read.ranges.tpot.seen.len() == 3);
    let again = serde_json::to_string(&calibration::write(&read, vec![])).expect("JSON");
    assert_eq!(calibration::read(&again).expect("a calibration"), read);
}

#[test]
fn a_bad_calibration_is_refused_by_name() {
    let file = |name: &str, value: &str| {
        format!(
            r#"{{"version":"own","source":"mine","constants":[{{"name":"{name}","value":{value}}}],"collectives":[],
                "ranges":{{"tpot":{{"seen":[],"unseen":[]}},"ttft":{{"seen":[],"unseen":[]}},"measured":[]}}}}"#
        )
    };
    assert!(calibration::read(&file("layer_seconds", "0.00004")).is_ok());
    for (name, value) in [("layer_secs", "1.0"), ("layer_seconds", "0.0"), ("layer_seconds", "-1.0")] {
        let refused = calibration::read(&file(name, value)).expect_err("refused");
        assert!(matches!(&refused, CalibrationError::Constant { name: n, .. } if n == name), "{refused}");
    }
    assert!(matches!(calibration::read("[]"), Err(CalibrationError::Json(_))));
}

#[test]
fn collectives_are_near_the_measured_points() {
    let points = embedded_points();
    assert_eq!(points.len(), 7837, "every line of the file is a point");
    let algorithms = &calibration::calibration().algorithms;
    for wire in [
        WireKind::Nvlink3,
        WireKind::Nvlink4,
        WireKind::Nvlink5,
        WireKind::Bridge3,
        WireKind::Bridge4,
        WireKind::Pcie4,
        WireKind::Pcie5,
        WireKind::Ethernet,
    ] {
        let mut errors: Vec<f64> =
            points.iter().filter(|p| p.wire == wire).map(|p| error(algorithms, p).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!("{wire:?}: {} points, median error {:.1} %", errors.len(), median * 100.0);
        assert!(median <= 0.15, "{wire:?}: {median}");
    }
}

#[test]
fn the_model_is_nearer_than_the_naive_baseline_on_every_gpu_measured_often() {
    let rows = embedded_rows().expect("rows");
    let report = judge(&rows, &calibration::calibration(), false).expect("a report");
    assert_eq!(report.rows, 2754);
    assert_eq!(report.used + report.left_out.iter().map(|(_, n)| n).sum::<usize>(), report.rows);
    assert_eq!(report.in_fit, report.used);
    println!("{}", report.markdown());
    for group in &report.groups {
        let (Some(own), Some(naive)) = (group.tpot, group.naive_tpot) else { continue };
        if own.rows >= 70 {
            assert!(own.median < naive.median, "{}: {own:?} against {naive:?}", group.name);
        }
    }
    let all = report.groups.first().and_then(|g| g.tpot).expect("all rows first");
    assert!(all.median < 0.10 && all.p90 < 0.36, "{all:?}");
    assert!(report.ranking.tpot.groups > 300);
    assert!(report.ranking.tpot.first * 10 >= report.ranking.tpot.groups * 7);
    assert!(report.ranking.tpot.first_two * 10 >= report.ranking.tpot.groups * 9);
}

#[test]
fn anybodys_rows_give_the_same_table() {
    let report = latency(Path::new(SAMPLE)).expect("a report");
    assert_eq!(report.rows, 46);
    assert!(report.used >= 30, "{:?}", report.left_out);
    let text = report.markdown();
    assert!(text.contains("| all |") && text.contains("Ranking by TPOT"), "{text}");
    assert!(latency(Path::new("tests/data/truth/no_such_file.jsonl")).is_err());
}

#[test]
fn the_same_rows_give_the_same_constants() {
    let rows = embedded_rows().expect("rows");
    let seen = usable(&rows).rows;
    let few: Vec<&Observation> = seen.iter().step_by(80).collect();
    let base = (*calibration::calibration()).clone();
    let (one, two) = (serving::fit(&few, &base), serving::fit(&few, &base));
    assert_eq!(one, two);
    assert_ne!(one, Values::priors());
}
