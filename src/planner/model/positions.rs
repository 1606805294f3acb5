//! How long a sequence a checkpoint's positions are made for, as each engine derives it from the same fields.

/// What a configuration says of its positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Positions {
    /// The declared length, e.g. `max_position_embeddings`; the smallest where several keys declare one.
    pub stated: u64,
    pub scaling: Option<Scaling>,
    /// `model_max_length`, which some files keep beside the positions: the length wherever it stands.
    pub own_length: Option<u64>,
}

/// Rotary positions stretched beyond those trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaling {
    pub kind: ScalingKind,
    pub factor: f64,
    /// Positions before the stretch, where the section says so.
    pub original: Option<u64>,
}

/// The kinds that engines tell apart when they derive a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingKind {
    Yarn,
    /// `longrope` and `su`: the declared length is the stretched one.
    Long,
    /// The declared length is the stretched one.
    Llama3,
    /// `linear`, `dynamic` and whatever else has a factor.
    Other,
}

impl Positions {
    /// Positions without a stretch.
    #[must_use]
    pub const fn plain(stated: u64) -> Self {
        Self { stated, scaling: None, own_length: None }
    }

    /// vLLM's length, `_get_and_verify_max_len` (`config/model.py`): the declared one times the factor, of YaRN the
    /// original one times the factor, unchanged for kinds whose declared length is the stretched one.
    #[must_use]
    pub fn in_vllm(&self) -> u64 {
        let stated = self.own_length.unwrap_or(self.stated);
        match self.scaling {
            None | Some(Scaling { kind: ScalingKind::Long | ScalingKind::Llama3, .. }) => stated,
            Some(Scaling { kind: ScalingKind::Yarn, factor, original }) => {
                times(original.unwrap_or(stated), factor)
            }
            Some(Scaling { kind: ScalingKind::Other, factor, .. }) => times(stated, factor),
        }
    }

    /// SGLang's length, `get_context_length` (`hf_transformers_utils.py`): the declared one times the factor, unless the
    /// section names the original length or is Llama 3's.
    #[must_use]
    pub fn in_sglang(&self) -> u64 {
        let stated = self.own_length.unwrap_or(self.stated);
        match self.scaling {
            Some(Scaling { kind, factor, original: None }) if kind != ScalingKind::Llama3 => {
                times(stated, factor)
            }
            _ => stated,
        }
    }

    /// TensorRT-LLM's length, `_infer_max_seq_len_from_config` (`model_engine.py`): times the factor of the kinds whose
    /// declared length is not the stretched one.
    #[must_use]
    pub fn in_tensorrt_llm(&self) -> u64 {
        match self.scaling {
            Some(Scaling { kind: ScalingKind::Other, factor, .. }) => times(self.stated, factor),
            _ => self.stated,
        }
    }
}

/// `n * factor`, rounded down; factors below 1 and absurd ones change nothing.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are far below 2^52, and `as` saturates"
)]
fn times(n: u64, factor: f64) -> u64 {
    if factor.is_finite() && factor > 1.0 { (n as f64 * factor) as u64 } else { n }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_derive_different_lengths_from_one_file() {
        let of = |stated, kind, factor, original| Positions {
            stated,
            scaling: Some(Scaling { kind, factor, original }),
            own_length: None,
        };
        use ScalingKind::{Llama3, Long, Other, Yarn};
        for (positions, lengths) in [
            (Positions::plain(32_768), [32_768; 3]),
            // Qwen2.5 with the YaRN section of its card, positions left as they were
            (of(32_768, Yarn, 4.0, Some(32_768)), [131_072, 32_768, 32_768]),
            // DeepSeek-V3
            (of(163_840, Yarn, 40.0, Some(4096)), [163_840; 3]),
            // DeepSeek-Coder 33B
            (of(16_384, Other, 4.0, None), [65_536; 3]),
            (of(131_072, Llama3, 8.0, Some(8192)), [131_072; 3]),
            (of(131_072, Long, 1.0, None), [131_072; 3]),
            (of(u64::MAX, Other, f64::INFINITY, None), [u64::MAX; 3]),
        ] {
            let told = [positions.in_vllm(), positions.in_sglang(), positions.in_tensorrt_llm()];
            assert_eq!(told, lengths, "{positions:?}");
        }
    }
}
