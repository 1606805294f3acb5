//! Attention DP: groups of different loads meet in every layer.

use super::Question;

/// The attention group that all others wait for: in every layer their tokens meet at the experts.
///
/// ```text
/// sequences = ceil(mean)                                         a router deals them out one by one
/// cache     = sequences + s sqrt(2 sequences ln(groups))         in sequences of mean length
/// s         = (output / sqrt(12)) / (input + output / 2)         spread of lengths while answers grow evenly
/// ```
/// The largest of `g` sums of `n` lengths lies `sqrt(2 ln g)` of its deviations above the mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fullest {
    pub(super) sequences: f64,
    pub(super) cached: f64,
}

impl Fullest {
    pub(super) fn of(q: &Question<'_>, mean: f64) -> Self {
        if q.attention_groups <= 1.0 {
            return Self { sequences: mean, cached: mean };
        }
        let (input, output) = (q.load.input_tokens, q.load.output_tokens);
        let spread = output / 12.0_f64.sqrt() / (input + output / 2.0).max(1.0);
        let sequences = mean.ceil();
        let beyond = spread * (2.0 * sequences * q.attention_groups.ln()).sqrt();
        Self { sequences, cached: sequences + beyond }
    }
}
