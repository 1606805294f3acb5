//! Is the layout that measured best also proposed first?

use std::collections::BTreeMap;

use crate::service::measurements::Observation;

/// How often the best measured layout stands first, and among the first two.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ranked {
    pub groups: usize,
    pub first: usize,
    pub first_two: usize,
}

/// By two measures of "best".
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ranking {
    /// Shortest time for each output token.
    pub tpot: Ranked,
    /// Most output tokens a second for each GPU, first token included.
    pub throughput: Ranked,
}

/// Rank the layouts of every group: same model and format, GPU, engine, lengths and requests in flight.
#[must_use]
pub fn of(rows: &[&Observation], predicted: &[(f64, f64)]) -> Ranking {
    let mut groups: BTreeMap<String, BTreeMap<String, Vec<Measured>>> = BTreeMap::new();
    for (row, p) in rows.iter().zip(predicted) {
        let Some(tpot) = row.tpot_ms else { continue };
        let ttft = row.ttft_ms.unwrap_or(0.0);
        let predicted_ttft = if row.ttft_ms.is_some() { p.1 } else { 0.0 };
        let rate = |tpot: f64, ttft: f64| {
            row.concurrency * row.output_tokens / (ttft + row.output_tokens * tpot) / row.gpus.max(1.0)
        };
        groups
            .entry(row.case())
            .or_default()
            .entry(row.layout.clone())
            .or_default()
            .push(Measured { tpot: (tpot, p.0), rate: (rate(tpot, ttft), rate(p.0, predicted_ttft)) });
    }
    let mut ranking = Ranking::default();
    for layouts in groups.values().filter(|layouts| layouts.len() > 1) {
        let tpot = layouts.values().map(|runs| middle(runs, |m| (-m.tpot.0, -m.tpot.1))).collect();
        let rate = layouts.values().map(|runs| middle(runs, |m| m.rate)).collect();
        ranking.tpot.add(tpot);
        ranking.throughput.add(rate);
    }
    ranking
}

/// Measured and predicted, of one run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    tpot: (f64, f64),
    rate: (f64, f64),
}

/// The run in the middle, by what was measured: a layout that was run on several days counts once.
fn middle(runs: &[Measured], figure: fn(&Measured) -> (f64, f64)) -> (f64, f64) {
    let mut figures: Vec<(f64, f64)> = runs.iter().map(figure).collect();
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures.get(figures.len() / 2).copied().unwrap_or((0.0, 0.0))
}

impl Ranked {
    /// One group of (measured, predicted), larger is better.
    fn add(&mut self, mut layouts: Vec<(f64, f64)>) {
        let best = layouts.iter().map(|l| l.0).fold(f64::NEG_INFINITY, f64::max);
        layouts.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.groups += 1;
        let place = layouts.iter().position(|l| l.0 >= best).unwrap_or(usize::MAX);
        self.first += usize::from(place == 0);
        self.first_two += usize::from(place <= 1);
    }

    fn text(&self) -> String {
        let share = |n: usize| n as f64 / self.groups.max(1) as f64 * 100.0;
        format!(
            "{} groups, best measured layout first in {:.0} %, among the first two in {:.0} %",
            self.groups,
            share(self.first),
            share(self.first_two)
        )
    }
}

impl Ranking {
    /// Two lines of Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        format!(
            "Ranking by TPOT: {}.\nRanking by output tokens/s for each GPU: {}.\n",
            self.tpot.text(),
            self.throughput.text()
        )
    }
}
