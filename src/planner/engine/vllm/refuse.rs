//! Rules on parallel sizes, in the engine's own order: the configuration's own checks first
//! (`config/model.py` `verify_with_parallel_config`), then what the classes meet while they are built, then backends.

use super::Vllm;
use super::backend::{self, Traits};
use crate::planner::engine::divisions;
use crate::planner::engine::{Refusal, RefusalCode, ResolvedSettings, newer_or_equal};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;

/// Classes that older releases had, with the last one that did (`models/registry.py` `_PREVIOUSLY_SUPPORTED_MODELS`). Not among them are
/// those that the engine builds through their transformers class since (Dots1, Persimmon, Fuyu, Phi-4-multimodal, Ernie, Aya Vision).
const REMOVED: &[(&str, &str)] = &[
    ("AquilaForCausalLM", "0.24"),
    ("AquilaModel", "0.24"),
    ("ArcticForCausalLM", "0.28"),
    ("BaiChuanForCausalLM", "0.23"),
    ("BaichuanForCausalLM", "0.23"),
    ("BambaForCausalLM", "0.23"),
    ("ChameleonForConditionalGeneration", "0.28"),
    ("Cheers", "0.28"),
    ("CheersForConditionalGeneration", "0.28"),
    ("DonutForConditionalGeneration", "0.10.2"),
    ("Fairseq2LlamaForCausalLM", "0.28"),
    ("FireRedLIDForConditionalGeneration", "0.28"),
    ("GritLM", "0.28"),
    ("Grok1ForCausalLM", "0.24"),
    ("Grok1ModelForCausalLM", "0.24"),
    ("HCXVisionForCausalLM", "0.28"),
    ("InternLM2VEForCausalLM", "0.23"),
    ("InternLMForCausalLM", "0.23"),
    ("JAISLMHeadModel", "0.22"),
    ("MPTForCausalLM", "0.28"),
    ("MantisForConditionalGeneration", "0.24"),
    ("MiniMaxForCausalLM", "0.23"),
    ("MiniMaxM1ForCausalLM", "0.23"),
    ("MiniMaxText01ForCausalLM", "0.23"),
    ("MiniMaxVL01ForConditionalGeneration", "0.23"),
    ("MllamaForConditionalGeneration", "0.10.2"),
    ("MotifForCausalLM", "0.10.2"),
    ("MptForCausalLM", "0.28"),
    ("OuroForCausalLM", "0.26"),
    ("Phi3SmallForCausalLM", "0.9.2"),
    ("Phi4FlashForCausalLM", "0.10.2"),
    ("Plamo2ForCausalLM", "0.26"),
    ("PrithviGeoSpatialMAE", "0.28"),
    ("QWenLMHeadModel", "0.23"),
    ("QwenVLForConditionalGeneration", "0.23"),
    ("RWForCausalLM", "0.28"),
    ("StableLMEpochForCausalLM", "0.28"),
    ("Tarsier2ForConditionalGeneration", "0.23"),
    ("TarsierForConditionalGeneration", "0.24"),
    ("TeleChatForCausalLM", "0.25"),
    ("XverseForCausalLM", "0.23"),
];

/// The last release that had a class which newer ones dropped; `None` for every other name.
pub fn last_release_with(architecture: &str) -> Option<&'static str> {
    REMOVED.iter().find(|(removed, _)| *removed == architecture).map(|(_, last)| *last)
}

/// Names that checkpoints carry and the registry never had.
const UNKNOWN: &[&str] =
    &["KimiK2ForCausalLM", "Step3p7FlashForCausalLM", "YiForCausalLM", "YuanForCausalLM"];

/// The first rule broken, or `None`.
pub fn first_refusal(
    rules: &Vllm,
    model: &ModelSpec,
    shape: &Shape,
    gpu: &Gpu,
    settings: &ResolvedSettings,
) -> Option<Refusal> {
    own_checks(rules, model, shape)
        .or_else(|| query_heads(model, shape, settings))
        .or_else(|| parallel_sizes(model, shape))
        .or_else(|| classes(model, shape, settings))
        .or_else(|| backends(model, shape, gpu, settings))
}

/// The code of [`first_refusal`].
pub fn first_code(
    rules: &Vllm,
    model: &ModelSpec,
    shape: &Shape,
    gpu: &Gpu,
    settings: &ResolvedSettings,
) -> Option<RefusalCode> {
    let code = |refusal: Refusal| refusal.code;
    own_checks(rules, model, shape)
        .map(code)
        .or_else(|| cuts_query_heads(model, shape).then_some(RefusalCode::QueryHeadsNotDivisible))
        .or_else(|| parallel_sizes(model, shape).map(code))
        .or_else(|| divisions::first_broken_code(&settings.divisions, shape))
        .or_else(|| (!copies_heads(model, shape)).then_some(RefusalCode::KvHeadsNotDivisible))
        .or_else(|| backends(model, shape, gpu, settings).map(code))
}

fn own_checks(rules: &Vllm, model: &ModelSpec, shape: &Shape) -> Option<Refusal> {
    architecture(rules.version, &model.architecture).or_else(|| sizes(shape))
}

fn parallel_sizes(model: &ModelSpec, shape: &Shape) -> Option<Refusal> {
    experts(model, shape).or_else(|| pipeline(model, shape)).or_else(|| dcp_of_heads(model, shape))
}

fn cuts_query_heads(model: &ModelSpec, shape: &Shape) -> bool {
    !model.query_heads.is_multiple_of(shape.tp)
}

fn copies_heads(model: &ModelSpec, shape: &Shape) -> bool {
    !model.limits.no_kv_replication || shape.tp <= model.kv_heads
}

/// Architectures that the registry of this release does not have.
fn architecture(release: &str, name: &str) -> Option<Refusal> {
    let removed = REMOVED.iter().find(|(removed, _)| *removed == name);
    if let Some((_, last)) = removed.filter(|(_, last)| newer_or_equal(last, release) != Some(true)) {
        return Some(Refusal::new(
            RefusalCode::ArchitectureRemoved,
            format!("vLLM dropped {name}; {last} was among the last releases with it"),
        ));
    }
    UNKNOWN
        .contains(&name)
        .then(|| Refusal::new(RefusalCode::ArchitectureUnknown, format!("vLLM's registry has no {name}")))
}

fn sizes(shape: &Shape) -> Option<Refusal> {
    let Shape { tp, pp, ep, attention_dp, dcp } = *shape;
    if [tp, pp, ep, attention_dp, dcp].contains(&0) {
        return Some(Refusal::new(RefusalCode::SettingInvalid, "parallel sizes start at 1"));
    }
    (!tp.is_multiple_of(dcp)).then(|| {
        Refusal::new(RefusalCode::DcpNotDivisible, format!("DCP={dcp} does not divide TP={tp}"))
            .nearest(Some(Shape { dcp: 1, ..*shape }))
    })
}

fn query_heads(model: &ModelSpec, shape: &Shape, settings: &ResolvedSettings) -> Option<Refusal> {
    if !cuts_query_heads(model, shape) {
        return None;
    }
    let heads = format!("{} query heads do not split evenly over TP={}", model.query_heads, shape.tp);
    let legal = |s: &Shape| {
        !cuts_query_heads(model, s)
            && copies_heads(model, s)
            && divisions::first_broken_code(&settings.divisions, s).is_none()
    };
    let others = divisions::complaints(&settings.divisions, shape, Some(RefusalCode::QueryHeadsNotDivisible));
    let others = if others.is_empty() { String::new() } else { format!("; also {}", others.join("; ")) };
    Some(
        Refusal::new(RefusalCode::QueryHeadsNotDivisible, heads + &others)
            .nearest(divisions::nearest_tp(shape, legal)),
    )
}

fn experts(model: &ModelSpec, shape: &Shape) -> Option<Refusal> {
    let counted = model.experts.filter(|_| !model.limits.experts_not_counted);
    if shape.expert_parallel() && counted.is_none() {
        return Some(
            Refusal::new(
                RefusalCode::ExpertParallelWithoutExperts,
                format!(
                    "expert parallelism over {} ranks: vLLM finds no experts in {}",
                    shape.ep, model.architecture
                ),
            )
            .nearest(Some(Shape { ep: 1, ..*shape })),
        );
    }
    if shape.attention_dp > 1 && counted.is_none() {
        return Some(
            Refusal::new(
                RefusalCode::DenseAttentionDp,
                format!(
                    "attention DP={} on a model without experts: run independent replicas instead",
                    shape.attention_dp
                ),
            )
            .nearest(Some(Shape { attention_dp: 1, ..*shape })),
        );
    }
    let ranks = shape.tp.saturating_mul(shape.attention_dp);
    let routed = counted?.routed;
    (model.limits.ranks_within_experts && !shape.expert_parallel() && ranks > routed).then(|| {
        Refusal::new(
            RefusalCode::ExpertsNotDivisible,
            format!("TP x attention DP = {ranks} is larger than the {routed} experts, which this class refuses without expert parallelism"),
        )
    })
}

fn pipeline(model: &ModelSpec, shape: &Shape) -> Option<Refusal> {
    if shape.pp == 1 {
        return None;
    }
    if model.limits.no_pipeline {
        return Some(
            Refusal::new(
                RefusalCode::PipelineNotSupported,
                format!("{} cannot be cut into pipeline stages", model.architecture),
            )
            .nearest(Some(Shape { pp: 1, ..*shape })),
        );
    }
    let layers = u64::try_from(model.layers.len()).unwrap_or(u64::MAX);
    (shape.pp > layers).then(|| {
        Refusal::new(
            RefusalCode::MoreStagesThanLayers,
            format!("PP={} is larger than the {layers} layers: a stage would be empty", shape.pp),
        )
        .nearest(Some(Shape { pp: layers.max(1), ..*shape }))
    })
}

/// GQA and MQA: positions are dealt out over the copies of a head, so there must be copies.
fn dcp_of_heads(model: &ModelSpec, shape: &Shape) -> Option<Refusal> {
    let Shape { tp, dcp, .. } = *shape;
    let kv = model.kv_heads.max(1);
    if dcp <= 1 || model.mla {
        return None;
    }
    let refuse = |code, message| Some(Refusal::new(code, message).nearest(Some(Shape { dcp: 1, ..*shape })));
    if tp <= kv {
        return refuse(
            RefusalCode::DcpWithoutReplication,
            format!("DCP={dcp} needs TP greater than the {kv} KV heads; TP={tp} copies none"),
        );
    }
    let copies = tp.checked_div(kv).unwrap_or(1);
    if dcp > copies {
        return refuse(
            RefusalCode::DcpNotDivisible,
            format!("DCP={dcp} is larger than the {copies} copies of a KV head at TP={tp}"),
        );
    }
    let queries = model.query_heads.checked_div(kv).unwrap_or(0);
    if !queries.is_multiple_of(dcp) {
        return refuse(
            RefusalCode::DcpNotDivisible,
            format!("DCP={dcp} does not divide the {queries} query heads of a KV head"),
        );
    }
    None
}

/// What the classes refuse while they are built.
fn classes(model: &ModelSpec, shape: &Shape, settings: &ResolvedSettings) -> Option<Refusal> {
    let whole_heads = |s: &Shape| !cuts_query_heads(model, s) && copies_heads(model, s);
    let broken = divisions::first_broken(&settings.divisions, shape, whole_heads);
    if broken.is_some() || copies_heads(model, shape) {
        return broken;
    }
    Some(
        Refusal::new(
            RefusalCode::KvHeadsNotDivisible,
            format!(
                "{} has no KV-head replication: TP={} exceeds its {} KV heads",
                model.architecture, shape.tp, model.kv_heads
            ),
        )
        .nearest(divisions::nearest_tp(shape, |s| {
            whole_heads(s) && settings.divisions.iter().all(|d| d.allows(s))
        })),
    )
}

fn backends(model: &ModelSpec, shape: &Shape, gpu: &Gpu, settings: &ResolvedSettings) -> Option<Refusal> {
    let traits = Traits::of(model);
    match backend::stored_dtype(model, gpu, settings, traits) {
        Err(refusal) => Some(refusal),
        Ok(stored) => backend::dcp_refusal(gpu, shape, stored, traits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_class_is_refused_only_by_later_releases() {
        let code = |release, name| architecture(release, name).map(|refusal| refusal.code);
        for (release, name, expected) in [
            ("0.33", "MptForCausalLM", Some(RefusalCode::ArchitectureRemoved)),
            ("0.24", "MptForCausalLM", None),
            ("0.24", "XverseForCausalLM", Some(RefusalCode::ArchitectureRemoved)),
            ("0.21", "XverseForCausalLM", None),
            ("0.33", "Dots1ForCausalLM", None),
            ("0.6", "YuanForCausalLM", Some(RefusalCode::ArchitectureUnknown)),
            ("0.33", "LlamaForCausalLM", None),
        ] {
            assert_eq!(code(release, name), expected, "{name} in {release}");
        }
    }
}
