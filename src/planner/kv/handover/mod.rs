//! Can the cache of this prefill worker be used by that decode worker?
//!
//! Rules: vLLM's NIXL connector compatibility page (0.33), SGLang 0.5.23 `disaggregation/common/conn.py`, TensorRT-LLM's
//! page on disaggregated serving, LMCache's issues on differing TP. What breaks a rule often hangs instead of failing,
//! so the verdict is worth having before a deployment.

mod rules;

use serde::Serialize;
use utoipa::ToSchema;

use rules::{differ, differ_pages, reasons};

/// One side of a hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// `vllm`, `sglang`, `tensorrt-llm`.
    pub engine: String,
    /// Empty: unknown, taken as equal.
    pub version: String,
    /// `nixl`, `mooncake`, `lmcache`, `ucx`, `mpi`, …; empty: the engine's usual one.
    pub connector: String,
    /// Ranks that share the heads of one attention group.
    pub tp: u64,
    pub pp: u64,
    pub attention_dp: u64,
    pub dcp: u64,
    /// Tokens of a page, `None`: unknown, taken as equal.
    pub page_size: Option<u64>,
    /// Empty: unknown, taken as equal.
    pub kv_dtype: String,
}

/// What the rules ask of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelClass {
    /// `unknown` where no model was given: then the rules of plain heads apply.
    pub kind: ModelKind,
    pub kv_heads: Option<u64>,
    /// Layers differ in their KV heads.
    pub heads_differ: bool,
}

/// The kinds that rules tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    Unknown,
    /// Keys and values by head.
    Heads,
    /// One latent for all heads.
    Latent,
    /// Some layers keep a recurrent state.
    Hybrid,
    EncoderDecoder,
}

/// How well a pair works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    /// It works, with a conversion or more reads on the way.
    OkSlow,
    Refused,
}

/// Why a pair is slow or refused. The text of a code never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    EngineMismatch,
    EngineUnknown,
    VersionMismatch,
    ConnectorMismatch,
    ConnectorNotSupported,
    KvDtypeMismatch,
    PageMismatch,
    TpMismatch,
    TpRatioNotInteger,
    PrefillTpGtDecodeTp,
    AttentionTpDiffers,
    DynamicKvQuantization,
    SsmNeedsEqualTp,
    PpMismatch,
    DecodeCp,
    DcpNeedsMla,
    EncDec,
    HeadsDifferByLayer,
    LayoutConverted,
}

/// A reason with its words.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Reason {
    pub code: ReasonCode,
    pub verdict: Verdict,
    pub message: String,
}

/// The verdict on a pair.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Compatibility {
    pub verdict: Verdict,
    pub reasons: Vec<Reason>,
    /// A consumer's page is a producer's page, rank by rank: nothing is cut or joined on the way.
    pub compatible_without_reshape: bool,
    /// What to change so that the pair works, where it does not.
    pub nearest: Option<Pair>,
}

/// Both sides in brief.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Pair {
    pub producer: PairSide,
    pub consumer: PairSide,
}

/// The sizes that rules look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PairSide {
    pub engine: String,
    pub version: String,
    pub connector: String,
    pub tp: u64,
    pub pp: u64,
    pub attention_dp: u64,
    pub dcp: u64,
    pub page_size: Option<u64>,
    pub kv_dtype: String,
}

/// Judge a pair, and where it is refused look for the nearest that is not.
#[must_use]
pub fn judge(producer: &Side, consumer: &Side, class: ModelClass) -> Compatibility {
    let reasons = reasons(producer, consumer, class);
    let verdict = reasons.iter().map(|r| r.verdict).max().unwrap_or(Verdict::Ok);
    Compatibility {
        verdict,
        compatible_without_reshape: same_pages(producer, consumer, class),
        nearest: if verdict == Verdict::Refused { nearest(producer, consumer, class) } else { None },
        reasons,
    }
}

/// A page of the consumer's rank is a page of some producer's rank as it stands.
fn same_pages(p: &Side, d: &Side, class: ModelClass) -> bool {
    let heads = |tp: u64| class.kv_heads.map_or(tp, |h| h.checked_div(tp.max(1)).unwrap_or(1).max(1));
    let split = class.kind == ModelKind::Latent || heads(p.tp) == heads(d.tp);
    split
        && p.engine == d.engine
        && p.pp == d.pp
        && p.dcp == d.dcp
        && !differ(&p.kv_dtype, &d.kv_dtype)
        && !differ_pages(p, d)
}

/// Follow the reasons: each names what to change on the consumer; a pair is done when nothing refuses it.
fn nearest(producer: &Side, consumer: &Side, class: ModelClass) -> Option<Pair> {
    let p = producer.clone();
    let mut d = consumer.clone();
    for _ in 0..8 {
        let list = reasons(&p, &d, class);
        let Some(reason) = list.iter().find(|r| r.verdict == Verdict::Refused) else {
            return Some(Pair { producer: (&p).into(), consumer: (&d).into() });
        };
        match reason.code {
            ReasonCode::EngineMismatch => d.engine.clone_from(&p.engine),
            ReasonCode::VersionMismatch => d.version.clone_from(&p.version),
            ReasonCode::ConnectorMismatch => d.connector.clone_from(&p.connector),
            ReasonCode::KvDtypeMismatch => d.kv_dtype.clone_from(&p.kv_dtype),
            ReasonCode::PageMismatch => d.page_size = p.page_size,
            ReasonCode::TpMismatch | ReasonCode::SsmNeedsEqualTp | ReasonCode::DynamicKvQuantization => {
                d.tp = p.tp;
            }
            ReasonCode::TpRatioNotInteger => d.tp = nearest_multiple(p.tp, d.tp),
            ReasonCode::PpMismatch => d.pp = p.pp,
            ReasonCode::DecodeCp | ReasonCode::DcpNeedsMla => d.dcp = if d.dcp == 1 { p.dcp } else { 1 },
            _ => return None,
        }
    }
    None
}

/// The size nearest to `wanted` that divides `given` or is divided by it.
fn nearest_multiple(given: u64, wanted: u64) -> u64 {
    let fits = |tp: u64| tp > 0 && (tp.is_multiple_of(given.max(1)) || given.is_multiple_of(tp));
    (0..=given.max(wanted).min(4096))
        .flat_map(|away| [wanted.saturating_sub(away), wanted.saturating_add(away)])
        .find(|tp| fits(*tp))
        .unwrap_or(given)
}

impl From<&Side> for PairSide {
    fn from(side: &Side) -> Self {
        Self {
            engine: side.engine.clone(),
            version: side.version.clone(),
            connector: side.connector.clone(),
            tp: side.tp,
            pp: side.pp,
            attention_dp: side.attention_dp,
            dcp: side.dcp,
            page_size: side.page_size,
            kv_dtype: side.kv_dtype.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(engine: &str, tp: u64) -> Side {
        Side {
            engine: engine.to_owned(),
            version: String::new(),
            connector: String::new(),
            tp,
            pp: 1,
            attention_dp: 1,
            dcp: 1,
            page_size: None,
            kv_dtype: String::new(),
        }
    }

    const HEADS: ModelClass = ModelClass { kind: ModelKind::Heads, kv_heads: Some(8), heads_differ: false };
    const LATENT: ModelClass = ModelClass { kind: ModelKind::Latent, kv_heads: None, heads_differ: false };
    const HYBRID: ModelClass = ModelClass { kind: ModelKind::Hybrid, kv_heads: Some(2), heads_differ: false };

    fn verdict(p: &Side, d: &Side, class: ModelClass) -> (Verdict, Vec<ReasonCode>) {
        let answer = judge(p, d, class);
        (answer.verdict, answer.reasons.iter().map(|r| r.code).collect())
    }

    #[test]
    fn engines_differ_in_what_tp_may_differ() {
        let pairs = [
            ("vllm", 4, 8, HEADS, Verdict::Ok, vec![]),
            ("vllm", 8, 4, HEADS, Verdict::OkSlow, vec![ReasonCode::PrefillTpGtDecodeTp]),
            ("vllm", 4, 6, HEADS, Verdict::Refused, vec![ReasonCode::TpRatioNotInteger]),
            ("vllm", 8, 4, LATENT, Verdict::Ok, vec![]),
            ("vllm", 2, 4, HYBRID, Verdict::Refused, vec![ReasonCode::SsmNeedsEqualTp]),
            ("sglang", 4, 8, HEADS, Verdict::OkSlow, vec![ReasonCode::AttentionTpDiffers]),
            ("sglang", 4, 8, LATENT, Verdict::Ok, vec![]),
            ("tensorrt-llm", 4, 8, HEADS, Verdict::OkSlow, vec![ReasonCode::LayoutConverted]),
        ];
        for (engine, tp_p, tp_d, class, expected, codes) in pairs {
            assert_eq!(
                verdict(&side(engine, tp_p), &side(engine, tp_d), class),
                (expected, codes),
                "{engine} {tp_p} {tp_d}"
            );
        }
    }

    #[test]
    fn a_refused_pair_has_a_nearest_that_works() {
        let mut p = side("vllm", 4);
        p.page_size = Some(64);
        p.kv_dtype = "fp8".to_owned();
        p.version = "0.33".to_owned();
        let mut d = side("vllm", 6);
        d.page_size = Some(16);
        d.kv_dtype = "auto".to_owned();
        d.version = "0.32".to_owned();
        d.dcp = 2;
        d.pp = 2;
        let answer = judge(&p, &d, HEADS);
        assert_eq!(answer.verdict, Verdict::Refused);
        assert_eq!(answer.reasons.len(), 6);
        let near = answer.nearest.expect("there is one").consumer;
        assert_eq!(
            (near.tp, near.page_size, near.kv_dtype.as_str(), near.dcp, near.pp),
            (4, Some(64), "fp8", 1, 1)
        );
    }

    #[test]
    fn pages_are_the_same_when_every_rank_holds_the_same_heads() {
        let unknown = ModelClass { kind: ModelKind::Unknown, kv_heads: None, heads_differ: false };
        assert!(!judge(&side("vllm", 8), &side("vllm", 4), unknown).compatible_without_reshape);
        assert!(!judge(&side("vllm", 8), &side("vllm", 4), HEADS).compatible_without_reshape);
        assert!(judge(&side("vllm", 16), &side("vllm", 8), HEADS).compatible_without_reshape);
        assert!(judge(&side("vllm", 16), &side("vllm", 8), LATENT).compatible_without_reshape);
        assert!(!judge(&side("vllm", 8), &side("sglang", 8), HEADS).compatible_without_reshape);
    }

    #[test]
    fn lmcache_shares_only_between_equal_widths() {
        let mut p = side("vllm", 4);
        let mut d = side("vllm", 8);
        (p.connector, d.connector) = ("lmcache".to_owned(), "lmcache".to_owned());
        assert_eq!(verdict(&p, &d, LATENT).1, [ReasonCode::TpMismatch]);
    }

    #[test]
    fn absurd_sizes_neither_panic_nor_loop() {
        for tp in [0, 1, 3, u64::MAX] {
            for other in [0, 7, u64::MAX] {
                let _ = judge(&side("vllm", tp), &side("vllm", other), HEADS);
                let _ = judge(&side("sglang", other), &side("sglang", tp), HYBRID);
            }
        }
    }
}
