//! The rules by engine.

use super::{ModelClass, ModelKind, Reason, ReasonCode, Side, Verdict};

/// Every rule that the pair breaks or bends.
pub(super) fn reasons(p: &Side, d: &Side, class: ModelClass) -> Vec<Reason> {
    let mut list = Vec::new();
    if p.engine != d.engine {
        refuse(
            &mut list,
            ReasonCode::EngineMismatch,
            format!("{} writes pages that {} does not read: both sides run one engine.", p.engine, d.engine),
        );
        return list;
    }
    if differ(&p.version, &d.version) {
        let (code, words) = (
            ReasonCode::VersionMismatch,
            format!("versions {} and {} differ; they enter the handshake.", p.version, d.version),
        );
        if p.engine == "vllm" { refuse(&mut list, code, words) } else { slow(&mut list, code, words) }
    }
    if differ(&p.connector, &d.connector) {
        refuse(
            &mut list,
            ReasonCode::ConnectorMismatch,
            format!("connectors {} and {} do not talk to each other.", p.connector, d.connector),
        );
    }
    if differ(&p.kv_dtype, &d.kv_dtype) {
        refuse(
            &mut list,
            ReasonCode::KvDtypeMismatch,
            format!("a cache in {} cannot be read as {}.", p.kv_dtype, d.kv_dtype),
        );
    }
    if class.kind == ModelKind::EncoderDecoder {
        refuse(&mut list, ReasonCode::EncDec, "encoder-decoder models are not handed over.".to_owned());
    }
    if p.connector == "lmcache" {
        lmcache(p, d, &mut list);
        return list;
    }
    match p.engine.as_str() {
        "vllm" => vllm(p, d, class, &mut list),
        "sglang" => sglang(p, d, class, &mut list),
        "tensorrt-llm" => tensorrt(p, d, class, &mut list),
        other => refuse(
            &mut list,
            ReasonCode::EngineUnknown,
            format!("no hand-over rules are known for engine {other}; known: vllm, sglang, tensorrt-llm."),
        ),
    }
    list
}

fn vllm(p: &Side, d: &Side, class: ModelClass, list: &mut Vec<Reason>) {
    if p.tp != d.tp {
        match class.kind {
            ModelKind::Hybrid => refuse(
                list,
                ReasonCode::SsmNeedsEqualTp,
                format!(
                    "recurrent states are cut by TP and not converted: TP={} and TP={} must be equal.",
                    p.tp, d.tp
                ),
            ),
            ModelKind::Latent | ModelKind::EncoderDecoder => {}
            ModelKind::Heads | ModelKind::Unknown => {
                let (large, small) = (p.tp.max(d.tp), p.tp.min(d.tp).max(1));
                if !large.is_multiple_of(small) {
                    refuse(
                        list,
                        ReasonCode::TpRatioNotInteger,
                        format!("TP={} and TP={}: one must divide the other.", p.tp, d.tp),
                    );
                } else if p.tp > d.tp {
                    slow(
                        list,
                        ReasonCode::PrefillTpGtDecodeTp,
                        format!(
                            "prefill TP={} is wider than decode TP={}: each decode rank gathers heads from {} ranks, and most \
                         architectures are not tested so.",
                            p.tp,
                            d.tp,
                            p.tp / d.tp.max(1)
                        ),
                    );
                }
                if dynamic(&p.kv_dtype) {
                    refuse(
                        list,
                        ReasonCode::DynamicKvQuantization,
                        format!(
                            "a cache in {} carries scales for each head and cannot be cut to another TP.",
                            p.kv_dtype
                        ),
                    );
                }
            }
        }
    }
    if let (Some(page_p), Some(page_d)) = (p.page_size, d.page_size)
        && page_p != page_d
    {
        let whole = page_p < page_d && page_d.checked_rem(page_p) == Some(0);
        if whole && class.kind != ModelKind::Hybrid {
            slow(
                list,
                ReasonCode::PageMismatch,
                format!("pages of {page_p} tokens are joined to pages of {page_d} on arrival."),
            );
        } else {
            refuse(
                list,
                ReasonCode::PageMismatch,
                format!(
                    "pages of {page_p} and {page_d} tokens: only a smaller prefill page works, and none with recurrent states."
                ),
            );
        }
    }
    same_stages(p, d, list);
    if p.dcp != d.dcp {
        refuse(
            list,
            ReasonCode::DecodeCp,
            format!("DCP={} and DCP={} deal out positions differently.", p.dcp, d.dcp),
        );
    }
}

fn sglang(p: &Side, d: &Side, class: ModelClass, list: &mut Vec<Reason>) {
    if let (Some(page_p), Some(page_d)) = (p.page_size, d.page_size)
        && page_p != page_d
    {
        refuse(
            list,
            ReasonCode::PageMismatch,
            format!("pages of {page_p} and {page_d} tokens must be equal."),
        );
    }
    let (large, small) = (p.tp.max(d.tp), p.tp.min(d.tp).max(1));
    if p.tp != d.tp && class.kind != ModelKind::Latent {
        if !large.is_multiple_of(small) {
            refuse(
                list,
                ReasonCode::TpRatioNotInteger,
                format!("attention widths {} and {}: one must divide the other.", p.tp, d.tp),
            );
        } else if class.kind == ModelKind::Hybrid {
            refuse(
                list,
                ReasonCode::SsmNeedsEqualTp,
                format!(
                    "recurrent states are cut by the attention width: {} and {} must be equal.",
                    p.tp, d.tp
                ),
            );
        } else {
            slow(
                list,
                ReasonCode::AttentionTpDiffers,
                format!(
                    "attention widths {} and {} differ: heads are gathered through a staging buffer (4 GiB, off the pool).",
                    p.tp, d.tp
                ),
            );
        }
    }
    if d.pp != p.pp && d.pp != 1 {
        refuse(
            list,
            ReasonCode::PpMismatch,
            format!("decode PP={} must equal prefill PP={} or be 1.", d.pp, p.pp),
        );
    }
    if d.dcp > 1 {
        let carries = matches!(d.connector.as_str(), "" | "mooncake" | "nixl" | "mori" | "ascend");
        if class.kind != ModelKind::Latent {
            refuse(list, ReasonCode::DcpNeedsMla, format!("decode DCP={} needs a latent cache.", d.dcp));
        } else if p.dcp > 1 || !carries {
            refuse(list, ReasonCode::DecodeCp,
                "decode DCP needs a prefill side without context parallelism and mooncake, nixl, mori or ascend.".to_owned());
        }
    }
}

fn tensorrt(p: &Side, d: &Side, class: ModelClass, list: &mut Vec<Reason>) {
    if !matches!(p.connector.as_str(), "" | "nixl" | "ucx" | "mpi" | "libfabric" | "mooncake") {
        refuse(
            list,
            ReasonCode::ConnectorNotSupported,
            format!("TensorRT-LLM hands over by nixl, ucx or mpi, not by {}.", p.connector),
        );
    }
    if class.heads_differ {
        refuse(list, ReasonCode::HeadsDifferByLayer, "all layers must have the same KV heads.".to_owned());
    }
    if (p.tp, p.pp) != (d.tp, d.pp) {
        slow(
            list,
            ReasonCode::LayoutConverted,
            format!("TP={} × PP={} is converted to TP={} × PP={} on the way.", p.tp, p.pp, d.tp, d.pp),
        );
    }
    if d.dcp > 1 {
        if class.kind != ModelKind::Latent {
            refuse(
                list,
                ReasonCode::DcpNeedsMla,
                format!("context parallel decode ({}) needs a latent cache.", d.dcp),
            );
        } else if differ_pages(p, d) {
            refuse(
                list,
                ReasonCode::PageMismatch,
                "context parallel decode needs equal block sizes.".to_owned(),
            );
        }
    }
}

fn lmcache(p: &Side, d: &Side, list: &mut Vec<Reason>) {
    if p.tp != d.tp {
        refuse(
            list,
            ReasonCode::TpMismatch,
            format!("LMCache keys hold the world size: TP={} and TP={} share nothing.", p.tp, d.tp),
        );
    }
    same_stages(p, d, list);
}

fn same_stages(p: &Side, d: &Side, list: &mut Vec<Reason>) {
    if p.pp != d.pp {
        refuse(list, ReasonCode::PpMismatch, format!("PP={} and PP={} must be equal.", p.pp, d.pp));
    }
}

fn refuse(list: &mut Vec<Reason>, code: ReasonCode, message: String) {
    list.push(Reason { code, verdict: Verdict::Refused, message });
}

fn slow(list: &mut Vec<Reason>, code: ReasonCode, message: String) {
    list.push(Reason { code, verdict: Verdict::OkSlow, message });
}

/// Both are known and they differ.
pub(super) fn differ(a: &str, b: &str) -> bool {
    !a.is_empty() && !b.is_empty() && a != b
}

/// Both page sizes are known and they differ.
pub(super) fn differ_pages(p: &Side, d: &Side) -> bool {
    matches!((p.page_size, d.page_size), (Some(a), Some(b)) if a != b)
}

/// Formats with scales for each token and head.
fn dynamic(kv_dtype: &str) -> bool {
    kv_dtype.ends_with("per_token_head")
}
