//! The fit of collectives to measured points: for each kind of wire, operation and kernel the three
//! algorithms whose lower envelope lies nearest.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;

use super::solve::{Settings, minimise};
use crate::planner::latency::calibrated::collective::{
    Algorithm, Algorithms, Kernel, Operation, Traffic, WireKind,
};

/// A measured collective.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub gpu: String,
    pub wire: WireKind,
    pub operation: Operation,
    pub kernel: Kernel,
    pub ranks: f64,
    pub nodes: f64,
    /// One direction of a GPU, or of all cards of a node, bytes/s.
    pub bytes_per_s: f64,
    pub bytes: f64,
    pub us: f64,
}

/// The measured points in the repository: gzip of CSV, one point a line, its source last.
const POINTS: &[u8] = include_bytes!("../../../data/calibration/measurements/collectives.csv.gz");

/// The embedded points; lines that cannot be read are left out (a test holds that there are none).
#[must_use]
pub fn embedded_points() -> Vec<Point> {
    let mut text = String::new();
    if GzDecoder::new(POINTS).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    text.lines().skip(1).filter_map(point).collect()
}

fn point(line: &str) -> Option<Point> {
    let mut fields = line.split(',');
    let mut next = || fields.next();
    Some(Point {
        gpu: next()?.to_owned(),
        wire: named(next()?)?,
        operation: named(next()?)?,
        kernel: named(next()?)?,
        ranks: next()?.parse().ok()?,
        nodes: next()?.parse().ok()?,
        bytes_per_s: next()?.parse::<f64>().ok()? * 1e6,
        bytes: next()?.parse().ok()?,
        us: next()?.parse().ok().filter(|us: &f64| *us > 0.0)?,
    })
}

/// A value of an enum by its name in files.
fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}

/// Starts of the three algorithms: (fixed us, hop us, share), small messages first.
const STARTS: [[(f64, f64, f64); 3]; 3] = [
    [(4.0, 0.5, 0.15), (8.0, 2.0, 0.5), (30.0, 5.0, 0.85)],
    [(10.0, 3.0, 0.1), (20.0, 6.0, 0.4), (60.0, 10.0, 0.8)],
    [(3.0, 1.0, 0.5), (12.0, 3.0, 0.25), (25.0, 8.0, 0.6)],
];

const fn assumed(
    wire: WireKind,
    operation: Operation,
    kernel: Kernel,
    traffic: Traffic,
    figures: (f64, f64, f64),
) -> Algorithm {
    let (fixed_us, hop_us, share) = figures;
    Algorithm { wire, operation, kernel, traffic, fixed_us, hop_us, share, loss: 0.0 }
}

/// Where no series was measured: single published figures. InfiniBand: 2 x 8 A100 over HDR, 36 us at 1 KB (of which 21 inside
/// the nodes) and 184 of 200 GB/s at large sizes. Infinity Fabric: MI300X, 313 of 448 GB/s on 8 GPUs. Sends: those of
/// NVLink 4 (8 us), with the share of the all-reduce on the same wire. Ethernet exchanges: the start-up of its all-reduce.
const ASSUMED: &[Algorithm] = &[
    assumed(WireKind::Infiniband, Operation::AllReduce, Kernel::Library, Traffic::TwoShot, (9.0, 6.0, 0.85)),
    assumed(WireKind::Infiniband, Operation::AllToAll, Kernel::Library, Traffic::Gather, (12.0, 6.0, 0.7)),
    assumed(WireKind::Infiniband, Operation::AllGather, Kernel::Library, Traffic::Gather, (9.0, 6.0, 0.85)),
    assumed(WireKind::Infiniband, Operation::SendReceive, Kernel::Library, Traffic::Send, (12.0, 0.0, 0.8)),
    assumed(WireKind::Ethernet, Operation::AllToAll, Kernel::Library, Traffic::Gather, (80.0, 20.0, 0.5)),
    assumed(WireKind::Ethernet, Operation::SendReceive, Kernel::Library, Traffic::Send, (60.0, 0.0, 0.6)),
    assumed(WireKind::Xgmi, Operation::AllReduce, Kernel::Library, Traffic::TwoShot, (10.0, 5.0, 0.7)),
    assumed(WireKind::Xgmi, Operation::AllReduce, Kernel::Engine, Traffic::TwoShot, (6.0, 1.0, 0.6)),
    assumed(WireKind::Xgmi, Operation::AllToAll, Kernel::Library, Traffic::Gather, (12.0, 5.0, 0.6)),
    assumed(WireKind::Xgmi, Operation::SendReceive, Kernel::Library, Traffic::Send, (8.0, 0.0, 0.7)),
    assumed(WireKind::Pcie4, Operation::SendReceive, Kernel::Library, Traffic::Send, (8.0, 0.0, 0.7)),
    assumed(WireKind::Pcie5, Operation::SendReceive, Kernel::Library, Traffic::Send, (8.0, 0.0, 0.7)),
    assumed(WireKind::Nvlink5, Operation::SendReceive, Kernel::Library, Traffic::Send, (8.0, 0.0, 0.7)),
    assumed(WireKind::Bridge3, Operation::AllToAll, Kernel::Library, Traffic::Gather, (10.0, 2.0, 0.6)),
    assumed(WireKind::Bridge4, Operation::AllToAll, Kernel::Library, Traffic::Gather, (10.0, 2.0, 0.6)),
    assumed(WireKind::Bridge4, Operation::SendReceive, Kernel::Library, Traffic::Send, (8.0, 0.0, 0.7)),
];

/// Fit every group of points; groups without a series take the assumed figures.
#[must_use]
pub fn fit(points: &[Point]) -> Algorithms {
    let mut groups: BTreeMap<(WireKind, Operation, Kernel), Vec<&Point>> = BTreeMap::new();
    for point in points {
        groups.entry((point.wire, point.operation, point.kernel)).or_default().push(point);
    }
    let mut all = Vec::new();
    for ((wire, operation, kernel), points) in groups {
        if points.len() < 5 {
            continue;
        }
        all.extend(fit_group(wire, operation, kernel, &points));
    }
    for known in ASSUMED {
        let same =
            |a: &Algorithm| (a.wire, a.operation, a.kernel) == (known.wire, known.operation, known.kernel);
        if !all.iter().any(same) {
            all.push(*known);
        }
    }
    Algorithms(all)
}

fn fit_group(wire: WireKind, operation: Operation, kernel: Kernel, points: &[&Point]) -> Vec<Algorithm> {
    let kinds = match (operation, kernel) {
        (Operation::AllReduce, Kernel::Library) => [Traffic::TwoShot; 3],
        (Operation::AllReduce, _) => [Traffic::OneShot, Traffic::TwoShot, Traffic::TwoShot],
        (Operation::SendReceive, _) => [Traffic::Send; 3],
        _ => [Traffic::Gather; 3],
    };
    let algorithms = |x: &[f64]| -> Vec<Algorithm> {
        x.chunks(4)
            .zip(kinds)
            .map(|(x, traffic)| {
                let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
                Algorithm {
                    wire,
                    operation,
                    kernel,
                    traffic,
                    fixed_us: at(0).exp(),
                    hop_us: at(1).exp(),
                    share: at(2).exp(),
                    loss: at(3),
                }
            })
            .collect()
    };
    let best = |algorithms: &[Algorithm], p: &Point| {
        let ranks = if p.nodes > 1.0 { p.nodes } else { p.ranks };
        algorithms.iter().map(|a| a.seconds(p.bytes, ranks, p.bytes_per_s)).fold(f64::INFINITY, f64::min)
            * 1e6
    };
    let fitted = STARTS.iter().map(|start| {
        let x: Vec<f64> = start.iter().flat_map(|(f, h, s)| [f.ln(), h.ln(), s.ln(), 0.2]).collect();
        minimise(&x, Settings { scale: 0.1, most_iterations: 60 }, |x| {
            let algorithms = algorithms(x);
            let mut out: Vec<f64> = points.iter().map(|p| (best(&algorithms, p) / p.us).ln()).collect();
            out.extend(x.iter().zip(x.iter().skip(3)).step_by(4).map(|(_, loss)| 0.1 * (loss - 0.2)));
            out.extend(x.iter().map(|x| 0.01 * x));
            out
        })
    });
    let found = fitted.min_by(|a, b| a.1.total_cmp(&b.1)).map_or_else(Vec::new, |(x, _)| algorithms(&x));
    found.into_iter().map(rounded).collect()
}

/// Four significant figures are more than the points carry.
fn rounded(a: Algorithm) -> Algorithm {
    Algorithm {
        fixed_us: significant(a.fixed_us),
        hop_us: significant(a.hop_us),
        share: significant(a.share),
        loss: significant(a.loss),
        ..a
    }
}

/// `x` to four significant figures.
#[must_use]
pub fn significant(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powf(3.0 - x.abs().log10().floor());
    (x * scale).round() / scale
}

/// Relative error of one point: predicted over measured, less one.
#[must_use]
pub fn error(algorithms: &Algorithms, p: &Point) -> f64 {
    let ranks = if p.nodes > 1.0 { p.nodes } else { p.ranks };
    let of_kernel = Algorithms(algorithms.0.iter().copied().filter(|a| a.kernel == p.kernel).collect());
    let engine = (p.kernel != Kernel::Library).then_some(p.kernel);
    of_kernel.best(p.operation, p.wire, engine, p.bytes, ranks, p.bytes_per_s) * 1e6 / p.us - 1.0
}
