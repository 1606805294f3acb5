//! Errors by group of rows.

use std::collections::BTreeMap;

use crate::service::calibrate::ranges::quantile;
use crate::service::measurements::Observation;

/// Relative errors of one figure over the rows of a group, as shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    pub rows: usize,
    /// Median, mean and ninetieth percentile of the size.
    pub median: f64,
    pub mean: f64,
    pub p90: f64,
    /// Median with its sign: above zero is predicted too long.
    pub bias: f64,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub name: String,
    pub tpot: Option<Errors>,
    pub ttft: Option<Errors>,
    /// The same rows by the naive baseline.
    pub naive_tpot: Option<Errors>,
    pub naive_ttft: Option<Errors>,
}

impl Errors {
    /// Of signed relative errors; `None` of none.
    #[must_use]
    pub fn of(mut signed: Vec<f64>) -> Option<Self> {
        signed.retain(|e| e.is_finite());
        signed.sort_by(f64::total_cmp);
        let bias = quantile(&signed, 0.5)?;
        let mut sizes: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        Some(Self {
            rows: sizes.len(),
            median: quantile(&sizes, 0.5)?,
            mean: sizes.iter().sum::<f64>() / sizes.len() as f64,
            p90: quantile(&sizes, 0.9)?,
            bias,
        })
    }
}

/// All rows first, then by requests in flight, GPU, engine and kind of model.
#[must_use]
pub fn of(rows: &[&Observation], predicted: &[(f64, f64)], naive: &[(f64, f64)]) -> Vec<Group> {
    let mut members: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        for name in names(row) {
            members.entry(name).or_default().push(i);
        }
    }
    members
        .into_iter()
        .map(|(name, members)| {
            let errors = |predictions: &[(f64, f64)], is_tpot: bool| {
                let signed = members.iter().filter_map(|i| {
                    let (row, p) = (rows.get(*i)?, predictions.get(*i)?);
                    let (measured, value) = if is_tpot { (row.tpot_ms?, p.0) } else { (row.ttft_ms?, p.1) };
                    Some(value / measured - 1.0)
                });
                Errors::of(signed.collect())
            };
            Group {
                tpot: errors(predicted, true),
                ttft: errors(predicted, false),
                naive_tpot: errors(naive, true),
                naive_ttft: errors(naive, false),
                name: name.split_once(' ').map_or(name.clone(), |(_, rest)| rest.to_owned()),
            }
        })
        .collect()
}

/// The groups of a row, each with a digit that orders them.
fn names(row: &Observation) -> Vec<String> {
    let flight = if row.concurrency <= 8.0 {
        "up to 8 requests"
    } else if row.concurrency <= 64.0 {
        "9 to 64 requests"
    } else {
        "more than 64 requests"
    };
    let mut names = vec![
        "0 all".to_owned(),
        format!("2 {flight}"),
        format!("3 {}", row.gpu),
        format!("4 {}", row.engine_name),
        format!("5 {}", row.kind()),
    ];
    if row.concurrency <= 64.0 {
        names.push("1 up to 64 requests".to_owned());
    }
    names
}

/// The table as Markdown.
#[must_use]
pub fn markdown(groups: &[Group]) -> String {
    let percent = |x: f64| format!("{:.1}", x * 100.0);
    let cells = |e: &Option<Errors>| match e {
        Some(e) => format!(
            "{} | {} | {} | {} | {:+.1}",
            e.rows,
            percent(e.median),
            percent(e.mean),
            percent(e.p90),
            e.bias * 100.0
        ),
        None => "0 | | | |".to_owned(),
    };
    let plain = |e: &Option<Errors>| {
        e.as_ref()
            .map_or_else(|| " | ".to_owned(), |e| format!("{} | {}", percent(e.median), percent(e.mean)))
    };
    let mut out = String::from(
        "| errors in % | TPOT rows | median | mean | p90 | bias | naive median | naive mean | TTFT rows | median | mean | p90 | bias | naive median | naive mean |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for group in groups {
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            group.name,
            cells(&group.tpot),
            plain(&group.naive_tpot),
            cells(&group.ttft),
            plain(&group.naive_ttft)
        ));
    }
    out
}
