//! Bytes that one token, or one state, takes in a cache on a rank: the same in every engine but for what is stored beside it.

use crate::planner::model::cache::{State, StateKind};
use crate::planner::model::dtype::KvDtype;

/// KV heads on a rank: `max(1, Hkv / T)` (`config/model.py` `get_num_kv_heads`).
pub fn heads_on_rank(kv_heads: u64, tp: u64) -> u64 {
    kv_heads.checked_div(tp.max(1)).unwrap_or(kv_heads).max(1)
}

/// Bytes of one token in `heads` heads of a layer: `heads * (d + d_v) * b`.
/// Per-token-head formats add one fp32 scale for K and for V; nvfp4 packs two elements a byte and one scale byte for 16.
pub fn heads_row(heads: u64, key_size: u64, value_size: u64, dtype: KvDtype) -> u64 {
    let elements = key_size.saturating_add(value_size);
    let head = match dtype {
        KvDtype::Fp32 => elements.saturating_mul(4),
        KvDtype::Fp16 | KvDtype::Bf16 => elements.saturating_mul(2),
        KvDtype::Fp8 | KvDtype::Fp8DsMla | KvDtype::Nvfp4DsMla => elements,
        KvDtype::Fp8PerTokenHead | KvDtype::Int8PerTokenHead => elements.saturating_add(8),
        KvDtype::Nvfp4 => nvfp4_row(key_size).saturating_add(nvfp4_row(value_size)),
    };
    heads.saturating_mul(head)
}

const fn nvfp4_row(size: u64) -> u64 {
    (size / 2).saturating_add(size / 16)
}

/// Bytes of one token of a latent: `(r + p) * b`; `fp8_ds_mla` keeps fp8 with an fp32 scale for each 128 and the rope part
/// in 16 bit (656 B for 512 + 64), `nvfp4_ds_mla` half bytes with a scale byte for each 16 and an fp8 rope part (352 B).
pub fn latent_row(rank: u64, rope: u64, dtype: KvDtype) -> u64 {
    match dtype {
        KvDtype::Fp32 => rank.saturating_add(rope).saturating_mul(4),
        KvDtype::Fp16 | KvDtype::Bf16 => rank.saturating_add(rope).saturating_mul(2),
        KvDtype::Fp8DsMla => {
            rank.saturating_add(rank.div_ceil(128).saturating_mul(4)).saturating_add(rope.saturating_mul(2))
        }
        KvDtype::Nvfp4DsMla | KvDtype::Nvfp4 => nvfp4_row(rank).saturating_add(rope),
        KvDtype::Fp8 | KvDtype::Fp8PerTokenHead | KvDtype::Int8PerTokenHead => rank.saturating_add(rope),
    }
}

/// Bytes of one token in an indexer: fp8 with an fp32 scale for each 128 elements (132 B for 128).
pub const fn indexer_row(head_size: u64) -> u64 {
    head_size.saturating_add(head_size.div_ceil(128).saturating_mul(4))
}

/// Bytes of one state on a rank.
///
/// mamba1: conv `(k-1)*(I/T)`, state `(I/T)*N`; mamba2: conv `(k-1)*(I + 2*g*N)/T` with groups raised to T when T does not
/// divide them, state `(heads/T)*head_dim*N`; gated delta: conv `(k-1)*(2*Hk*dk + Hv*dv)/T`, state `(Hv/T)*dv*dk`;
/// KDA: conv `(k-1)*3*H*d/T`, state `(H/T)*d*d`; short convolution `(k-1)*width/T`; lightning `(H/T)*d*d`.
/// Draft tokens lengthen the convolution (`model_executor/layers/mamba/mamba_utils.py`).
pub fn state_bytes(state: &State, tp: u64, draft_tokens: u64) -> u64 {
    let share = |n: u64| n.checked_div(tp.max(1)).unwrap_or(n);
    let columns = |kernel: u64| kernel.saturating_sub(1).saturating_add(draft_tokens);
    let (conv, recurrent) = match state.kind {
        StateKind::Mamba1 { intermediate, state_size, conv_kernel } => {
            let width = share(intermediate);
            (columns(conv_kernel).saturating_mul(width), width.saturating_mul(state_size))
        }
        StateKind::Mamba2 { heads, head_dim, groups, state_size, conv_kernel } => {
            let groups = if groups.is_multiple_of(tp.max(1)) { groups } else { groups.max(tp) };
            let inner = heads.saturating_mul(head_dim);
            let width = inner.saturating_add(groups.saturating_mul(state_size).saturating_mul(2));
            (
                columns(conv_kernel).saturating_mul(share(width)),
                share(heads).saturating_mul(head_dim).saturating_mul(state_size),
            )
        }
        StateKind::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel } => {
            let keys = key_heads.saturating_mul(key_dim).saturating_mul(2);
            let width = keys.saturating_add(value_heads.saturating_mul(value_dim));
            (
                columns(conv_kernel).saturating_mul(share(width)),
                share(value_heads).saturating_mul(value_dim).saturating_mul(key_dim),
            )
        }
        StateKind::Kda { heads, head_dim, conv_kernel } => {
            let width = heads.saturating_mul(head_dim).saturating_mul(3);
            (
                columns(conv_kernel).saturating_mul(share(width)),
                share(heads).saturating_mul(head_dim).saturating_mul(head_dim),
            )
        }
        StateKind::ShortConv { width, conv_kernel } => (columns(conv_kernel).saturating_mul(share(width)), 0),
        StateKind::Lightning { heads, head_dim } => {
            (0, share(heads).saturating_mul(head_dim).saturating_mul(head_dim))
        }
    };
    conv.saturating_mul(state.conv_dtype.bytes())
        .saturating_add(recurrent.saturating_mul(state.state_dtype.bytes()))
}

/// Bytes of one stored entry of DeepSeek-V4: fp8, a scale byte for each 64 (padded to 8), the rope part in 16 bit: 584.
pub fn compressed_entry(head_size: u64, rope: u64) -> u64 {
    let plain = head_size.saturating_sub(rope);
    let scales = plain.div_ceil(64).next_multiple_of(8);
    plain.saturating_add(rope.saturating_mul(2)).saturating_add(scales)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::model::dtype::Dtype;

    #[test]
    fn rows_are_the_engines() {
        assert_eq!(heads_row(8, 128, 128, KvDtype::Bf16), 4096);
        assert_eq!(heads_row(4, 128, 128, KvDtype::Fp8PerTokenHead) * 16, 16_896);
        assert_eq!(heads_row(4, 128, 128, KvDtype::Nvfp4) * 16, 9216);
        assert_eq!(latent_row(512, 64, KvDtype::Bf16), 1152);
        assert_eq!(latent_row(512, 64, KvDtype::Fp8DsMla), 656);
        assert_eq!(latent_row(512, 64, KvDtype::Nvfp4DsMla), 352);
        assert_eq!(indexer_row(128), 132);
        assert_eq!(compressed_entry(512, 64), 584);
    }

    #[test]
    fn states_split_by_head() {
        let gdn = State {
            kind: StateKind::GatedDeltaNet {
                key_heads: 16,
                value_heads: 32,
                key_dim: 128,
                value_dim: 128,
                conv_kernel: 4,
            },
            conv_dtype: Dtype::Bf16,
            state_dtype: Dtype::Bf16,
        };
        assert_eq!(state_bytes(&gdn, 1, 0), (3 * 8192 + 32 * 128 * 128) * 2);
        assert_eq!(state_bytes(&gdn, 4, 0), (3 * 2048 + 8 * 128 * 128) * 2);
        let zamba = State {
            kind: StateKind::Mamba2 { heads: 8, head_dim: 640, groups: 1, state_size: 64, conv_kernel: 4 },
            conv_dtype: Dtype::Bf16,
            state_dtype: Dtype::Bf16,
        };
        assert_eq!(state_bytes(&zamba, 4, 0), (3 * 1408 + 2 * 640 * 64) * 2);
    }
}
