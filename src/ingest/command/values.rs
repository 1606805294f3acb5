//! The words after flags to values: shares, sizes, numbers with units.

use serde_json::Value;

use super::flags::Meaning;
use crate::ingest::bounds;
use crate::planner::input::EngineSettings;
use crate::planner::speculation::DraftMethod;
use crate::planner::units::Bytes;

/// A setting of the engine by its text.
///
/// # Errors
/// What was expected instead.
pub(super) fn set_engine(
    settings: &mut EngineSettings,
    meaning: Meaning,
    text: &str,
) -> Result<(), &'static str> {
    match meaning {
        Meaning::Utilization => {
            let share = text.parse::<f64>().ok().filter(|u| *u > 0.0 && *u <= 1.0);
            settings.gpu_memory_utilization = Some(share.ok_or("a share in (0, 1], e.g. 0.9")?);
        }
        Meaning::MaxModelLen if matches!(text, "auto" | "-1") => settings.max_model_len = None,
        Meaning::MaxModelLen => settings.max_model_len = Some(tokens(text)?),
        Meaning::MaxNumSeqs => settings.max_num_seqs = Some(tokens(text)?),
        Meaning::StepTokens if text == "-1" => settings.max_num_batched_tokens = None,
        Meaning::StepTokens => settings.max_num_batched_tokens = Some(tokens(text)?),
        Meaning::BlockSize => settings.block_size = Some(tokens(text)?),
        Meaning::KvDtype => text.clone_into(&mut settings.kv_cache_dtype),
        Meaning::KvBytes => {
            settings.kv_cache_memory_bytes = Some(Bytes(human(text).ok_or("bytes, e.g. 40G")?));
        }
        Meaning::WindowRatio => settings.swa_full_tokens_ratio = Some(ratio(text)?),
        Meaning::StateRatio => settings.mamba_full_memory_ratio = Some(ratio(text)?),
        Meaning::LayerPartition => {
            settings.pp_layer_partition = Some(partition(text).ok_or("layers by stage, e.g. 40,40")?);
        }
        Meaning::Quantization => settings.quantization = Some(text.to_owned()),
        Meaning::DraftTokens => settings.num_speculative_tokens = tokens(text)?,
        Meaning::Speculative => {
            let config: Value = serde_json::from_str(text).map_err(|_| "a JSON object")?;
            let drafts = config.get("num_speculative_tokens").and_then(Value::as_u64).unwrap_or(0);
            settings.num_speculative_tokens = drafts.min(*bounds::DRAFT_TOKENS.end());
            settings.speculation.method =
                config.get("method").and_then(Value::as_str).and_then(DraftMethod::of);
        }
        _ => {}
    }
    Ok(())
}

fn ratio(text: &str) -> Result<f64, &'static str> {
    text.parse::<f64>().ok().filter(|r| *r > 0.0 && *r <= 100.0).ok_or("a ratio above 0, e.g. 0.8")
}

pub(super) fn size(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|n| bounds::PARALLEL.contains(n)).ok_or("a whole number of at least 1")
}

pub(super) fn tokens(text: &str) -> Result<u64, &'static str> {
    human(text)
        .filter(|n| bounds::TOKENS.contains(n))
        .ok_or("a whole number of at least 1, e.g. 32768 or 32k")
}

/// A number as vLLM reads it: `k`, `m`, `g`, `t` are decimal, `K`, `M`, `G`, `T` binary; decimals only with decimal units.
#[must_use]
pub fn human(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?.trim_end_matches("iB").trim_end_matches('B');
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let fraction: f64 = digits.parse().ok().filter(|f: &f64| f.is_finite() && *f >= 0.0)?;
    let number = Bytes::from_f64(fraction * factor as f64).get();
    (!unit.is_empty() && number <= bounds::MAX_EXACT).then_some(number)
}

/// Layers by stage, `21,20,20`.
#[must_use]
pub fn partition(text: &str) -> Option<Vec<u64>> {
    let layers: Option<Vec<u64>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
    layers.filter(|l| l.len() <= bounds::STAGES && l.iter().all(|n| bounds::STAGE_LAYERS.contains(n)))
}
