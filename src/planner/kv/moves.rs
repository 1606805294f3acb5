//! Fetch cache or compute it again.
//!
//! ```text
//! t_fetch(n)     = t0 + bytes(n) · rho / BW
//! t_recompute(n) = (n · F + attention(n)) / Peff            Peff = peak · GPUs · efficiency
//! BW*(n)         = bytes(n) · rho / (t_recompute(n) − t0)   below it, computing again is faster
//! ```
//!
//! `n` tokens, `F` operations a token, `rho` how often each byte is read over the slow path: 1 when one rank reads and
//! passes it on, else the replication factor. The difference of the two times is convex in `n`, so there is one
//! length from which fetching wins.

use serde::Serialize;
use utoipa::ToSchema;

use super::assumed;
use super::footprint::Footprint;
use super::paths::Path;
use crate::planner::estimate::{Assumption, Basis, Estimate};
use crate::planner::units::Bytes;

/// Lengths up to which a crossover is looked for, tokens.
const LONGEST: u64 = 1 << 30;

/// Share of the peak rate that a prefill sustains where the caller names none: the public arithmetic that this
/// follows takes a half; measured prefills of dense models lie between 0.35 and 0.65.
pub const PREFILL_EFFICIENCY: f64 = 0.5;
const PREFILL_RANGE: (f64, f64) = (0.75, 1.45);

/// What a move is judged with.
#[derive(Debug, Clone, PartialEq)]
pub struct Mover {
    pub footprint: Footprint,
    /// Operations per second that a prefill of the instance sustains.
    pub flops_per_s: f64,
    /// True when the caller named that rate.
    pub flops_given: bool,
    /// True when the caller named the parameters in place of the model's own.
    pub parameters_given: bool,
    /// Score products are counted. The plain model of a published course leaves them out.
    pub with_attention: bool,
    /// Ranks of the instance that hold the same bytes.
    pub replication_factor: f64,
    /// One rank reads and passes on; otherwise each copy is read over the slow path.
    pub broadcast: bool,
}

/// The answer for one length.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Moves {
    pub tokens: u64,
    /// Bytes of these tokens, one copy.
    pub bytes: u64,
    /// `K`: bytes of one token, each head of each layer once.
    pub distinct_kv_bytes_per_token: u64,
    pub replication_factor: f64,
    /// What is read over a slow path: every copy, unless one rank reads and passes on.
    pub bytes_read: u64,
    pub recompute_ms: Estimate,
    pub recompute: Recompute,
    /// Over the best path; `null` when none was asked about.
    pub move_ms: Option<Estimate>,
    /// Best first.
    pub paths: Vec<PathAnswer>,
    /// `fetch` or `recompute`, by the best path.
    pub choice: String,
    pub message: String,
    pub assumptions: Vec<Assumption>,
}

/// What computing again consists of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Recompute {
    pub matrix_flops: f64,
    /// 0 when attention was left out.
    pub attention_flops: f64,
    pub matrix_ms: f64,
    pub attention_ms: f64,
    pub flops_per_s: f64,
    pub attention_counted: bool,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PathAnswer {
    pub path: String,
    /// `nvlink_p2p`, `nvlink_c2c`, `pcie_host`, `nvme`, `fabric`, `object_store`, `given`.
    pub kind: String,
    pub bandwidth_bytes_per_s: f64,
    pub fixed_ms: f64,
    pub move_ms: Estimate,
    /// `fetch` or `recompute`, at the asked length.
    pub wins: String,
    /// Recomputing takes this many times as long as fetching.
    pub speedup: f64,
    /// The prefix length from which fetching wins; `null` when it never does.
    pub crossover_tokens: Option<u64>,
    /// The value for the engine's knob: LMCache `min_retrieve_tokens`, SGLang's storage prefetch threshold.
    pub fetch_min_tokens: Option<u64>,
    /// Below this bandwidth computing again is faster at the asked length; `null` when the fixed cost alone loses.
    pub break_even_bandwidth_bytes_per_s: Option<f64>,
    pub curve: Vec<CurvePoint>,
    pub source: String,
}

/// Both times at one length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct CurvePoint {
    pub tokens: u64,
    pub fetch_ms: f64,
    pub recompute_ms: f64,
}

impl Mover {
    /// How often each byte is read over the slow path.
    #[must_use]
    pub fn reads(&self) -> f64 {
        if self.broadcast { 1.0 } else { self.replication_factor.max(1.0) }
    }

    /// Seconds to fetch `tokens` over `path`.
    #[must_use]
    pub fn fetch_s(&self, path: &Path, tokens: u64) -> f64 {
        path.fixed_s + self.footprint.bytes(tokens).as_f64() * self.reads() / path.bytes_per_s.max(1.0)
    }

    /// Seconds to compute `tokens` again.
    #[must_use]
    pub fn recompute_s(&self, tokens: u64) -> f64 {
        let work = self.work(tokens);
        (work.matrix_ms + work.attention_ms) * 1e-3
    }

    fn work(&self, tokens: u64) -> Recompute {
        let n = tokens as f64;
        let matrix_flops = n * self.footprint.flops_per_token;
        let attention_flops = if self.with_attention { self.footprint.attention_flops(n) } else { 0.0 };
        let ms = |flops: f64| flops / self.flops_per_s.max(1.0) * 1e3;
        Recompute {
            matrix_flops,
            attention_flops,
            matrix_ms: ms(matrix_flops),
            attention_ms: ms(attention_flops),
            flops_per_s: self.flops_per_s,
            attention_counted: self.with_attention,
        }
    }

    /// The shortest prefix that is fetched faster than it is computed; `None` up to a billion tokens.
    #[must_use]
    pub fn crossover(&self, path: &Path) -> Option<u64> {
        let wins = |n: u64| self.fetch_s(path, n) < self.recompute_s(n);
        if !wins(LONGEST) {
            return None;
        }
        let (mut loses, mut found) = (0_u64, LONGEST);
        while found.saturating_sub(loses) > 1 {
            let middle = loses.midpoint(found);
            if wins(middle) { found = middle } else { loses = middle }
        }
        Some(found)
    }

    /// `BW*` at a length; `None` when the fixed cost alone takes longer than computing.
    #[must_use]
    pub fn break_even(&self, path: &Path, tokens: u64) -> Option<f64> {
        let spare_s = self.recompute_s(tokens) - path.fixed_s;
        (spare_s > 0.0).then(|| self.footprint.bytes(tokens).as_f64() * self.reads() / spare_s)
    }

    /// Everything about `tokens` tokens over these paths.
    #[must_use]
    pub fn answer(&self, paths: &[Path], tokens: u64) -> Moves {
        let bytes = self.footprint.bytes(tokens);
        let recompute = self.work(tokens);
        let recompute_ms = recompute.matrix_ms + recompute.attention_ms;
        let mut answers: Vec<PathAnswer> = paths.iter().map(|p| self.over(p, tokens, recompute_ms)).collect();
        answers.sort_by(|a, b| a.move_ms.value.total_cmp(&b.move_ms.value));
        let choice =
            answers.first().map_or("recompute", |a| if a.wins == "fetch" { "fetch" } else { "recompute" });
        let range = if self.flops_given { (1.0, 1.0) } else { PREFILL_RANGE };
        Moves {
            tokens,
            bytes: bytes.get(),
            distinct_kv_bytes_per_token: self.footprint.token_bytes.get(),
            replication_factor: self.replication_factor,
            bytes_read: Bytes::from_f64(bytes.as_f64() * self.reads()).get(),
            recompute_ms: Estimate::within(recompute_ms, range.0, range.1, Basis::Assumed),
            recompute,
            choice: choice.to_owned(),
            message: message(&answers, recompute_ms, tokens),
            move_ms: answers.first().map(|a| a.move_ms),
            paths: answers,
            assumptions: self.assumptions(),
        }
    }

    fn over(&self, path: &Path, tokens: u64, recompute_ms: f64) -> PathAnswer {
        let fetch_ms = self.fetch_s(path, tokens) * 1e3;
        let crossover = self.crossover(path);
        PathAnswer {
            path: path.name.clone(),
            kind: path.kind.as_str().to_owned(),
            bandwidth_bytes_per_s: path.bytes_per_s,
            fixed_ms: path.fixed_s * 1e3,
            move_ms: Estimate::within(fetch_ms, path.range.0, path.range.1, Basis::Assumed),
            wins: if fetch_ms < recompute_ms { "fetch" } else { "recompute" }.to_owned(),
            speedup: recompute_ms / fetch_ms.max(f64::MIN_POSITIVE),
            crossover_tokens: crossover,
            // chunks of 256 tokens are what stores keep (LMCache, SGLang's prefetch threshold)
            fetch_min_tokens: crossover.map(|n| n.div_ceil(256).saturating_mul(256)),
            break_even_bandwidth_bytes_per_s: self.break_even(path, tokens),
            curve: [128_u64, 512, 2048, 8192, 32_768, 131_072]
                .into_iter()
                .map(|tokens| CurvePoint {
                    tokens,
                    fetch_ms: self.fetch_s(path, tokens) * 1e3,
                    recompute_ms: self.recompute_s(tokens) * 1e3,
                })
                .collect(),
            source: path.source.clone(),
        }
    }

    fn assumptions(&self) -> Vec<Assumption> {
        let attention = if self.with_attention {
            "score products of a causal prefill are counted"
        } else {
            "left out: 2 operations for each parameter and token, nothing for attention"
        };
        vec![
            assumed(
                "achieved_flops",
                self.flops_per_s,
                "FLOP/s",
                "peak of the catalogue times GPUs of the instance times 0.5: public fetch-or-recompute arithmetic; \
                 measured prefills reach 0.35 to 0.65",
                self.flops_given,
            ),
            assumed(
                "flops_per_token",
                self.footprint.flops_per_token,
                "FLOP",
                "two for each weight that a token is multiplied with, from the model's own matrices",
                self.parameters_given,
            ),
            assumed("attention_counted", f64::from(u8::from(self.with_attention)), "", attention, false),
            assumed(
                "reads_of_each_byte",
                self.reads(),
                "",
                if self.broadcast {
                    "one rank reads and passes it on (stores of latent caches do so)"
                } else {
                    "every rank reads its own share, copies included"
                },
                false,
            ),
        ]
    }
}

fn message(paths: &[PathAnswer], recompute_ms: f64, tokens: u64) -> String {
    let Some(best) = paths.first() else {
        return format!("Computing {tokens} tokens again takes {recompute_ms:.1} ms; no path was named.");
    };
    let from = match best.crossover_tokens {
        Some(n) if n > 1 => format!("fetching wins from {n} tokens"),
        Some(_) => "fetching wins at every length".to_owned(),
        None => "fetching never wins".to_owned(),
    };
    format!(
        "{tokens} tokens: {:.1} ms over {} against {recompute_ms:.1} ms of computing; {from}. {}",
        best.move_ms.value,
        best.path,
        if best.wins == "fetch" { "Fetch." } else { "Compute again." }
    )
}

/// Requests per second whose hits saturate a path, the second bound beside latency: `BW / bytes(n)`.
#[must_use]
pub fn saturating_requests_per_s(mover: &Mover, path: &Path, tokens: u64) -> f64 {
    path.bytes_per_s / (mover.footprint.bytes(tokens).as_f64() * mover.reads()).max(1.0)
}
