//! What a layer keeps between tokens, as the model defines it: no engine, no split.
//! Engines turn these into pages and states (`planner::engine`).

use super::dtype::Dtype;

/// How far back attention looks, and so how much cache a sequence keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// Every earlier token.
    Full,
    /// The last `window` tokens.
    Sliding { window: u64 },
    /// The tokens of the current chunk.
    Chunked { chunk: u64 },
}

/// One thing that a layer caches. Sizes are of the whole model, before any split.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LayerCache {
    /// Keys and values by head: `kv_heads * (key_size + value_size)` elements a token.
    Heads { kv_heads: u64, key_size: u64, value_size: u64, reach: Reach },
    /// Multi-head latent attention: `kv_lora_rank + rope` elements a token, one for all heads.
    /// `sparse`: the layer attends to tokens chosen by an indexer.
    Latent { kv_lora_rank: u64, rope: u64, sparse: bool, reach: Reach },
    /// The key cache of a sparse-attention indexer: `head_size` elements a token (fp8 with scales in vLLM).
    Indexer { head_size: u64 },
    /// DeepSeek-V4 style: a window of whole entries and entries compressed `ratio` to one (0: window only).
    Compressed { head_size: u64, rope: u64, window: u64, ratio: u64, indexer_head_size: u64 },
    /// A state of constant size for each sequence.
    State(State),
}

/// A recurrent state. Element counts follow from these by the formula named on each variant (T = 1);
/// `conv` parts keep `conv_kernel - 1` columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub kind: StateKind,
    /// Format of the convolution part.
    pub conv_dtype: Dtype,
    /// Format of the recurrent part.
    pub state_dtype: Dtype,
}

/// The families of recurrent layers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// conv `(k-1)*I`, state `I*N`.
    Mamba1 { intermediate: u64, state_size: u64, conv_kernel: u64 },
    /// conv `(k-1)*(I + 2*g*N)`, state `heads*head_dim*N`, with `I = heads*head_dim`.
    Mamba2 { heads: u64, head_dim: u64, groups: u64, state_size: u64, conv_kernel: u64 },
    /// Gated delta net: conv `(k-1)*(2*Hk*dk + Hv*dv)`, state `Hv*dv*dk`.
    GatedDeltaNet { key_heads: u64, value_heads: u64, key_dim: u64, value_dim: u64, conv_kernel: u64 },
    /// Kimi delta attention: conv `(k-1)*3*H*d`, state `H*d*d`.
    Kda { heads: u64, head_dim: u64, conv_kernel: u64 },
    /// Short convolution (LFM2): `(k-1)*width`.
    ShortConv { width: u64, conv_kernel: u64 },
    /// Lightning (linear) attention: state `H*d*d`.
    Lightning { heads: u64, head_dim: u64 },
}
