//! What one block of one layer takes on a rank, by kind of cache (`v1/kv_cache_interface.py`).

use smallvec::SmallVec;

use crate::planner::engine::capacity::BlocksNeeded;
use crate::planner::engine::rows::{
    compressed_entry, heads_on_rank, heads_row, indexer_row, latent_row, state_bytes,
};
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::dtype::KvDtype;

/// Pages of DeepSeek-V4 are padded to a multiple of this (`models/deepseek_v4/attention.py`).
const COMPRESSED_ALIGNMENT: u64 = 576;

/// How a kind of cache is allocated. Only equal kinds share block tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Full,
    Latent,
    Sliding {
        window: u64,
    },
    LatentWindow {
        window: u64,
    },
    Chunked {
        chunk: u64,
    },
    /// `count` states of constant size for each request.
    State {
        count: u64,
    },
}

impl Class {
    /// The name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Latent => "latent",
            Self::Sliding { .. } => "sliding",
            Self::LatentWindow { .. } => "latent_window",
            Self::Chunked { .. } => "chunked",
            Self::State { .. } => "state",
        }
    }

    /// Full attention and latents keep every token.
    pub const fn keeps_every_token(self) -> bool {
        matches!(self, Self::Full | Self::Latent)
    }
}

/// One block of one layer on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub class: Class,
    /// KV heads on the rank and size of a key: layers that differ in them do not share a group.
    pub heads: u64,
    pub key_size: u64,
    /// Tokens of the block.
    pub block: u64,
    /// Bytes, padding included.
    pub bytes: u64,
}

impl Page {
    /// Blocks that one request takes, with `dcp` ranks dealing out positions and `in_flight` tokens scheduled.
    pub const fn need(&self, dcp: u64, in_flight: u64) -> BlocksNeeded {
        match self.class {
            Class::Full | Class::Latent => BlocksNeeded::EveryToken { block: self.block, shards: dcp },
            Class::Sliding { window } | Class::LatentWindow { window } => {
                BlocksNeeded::Window { block: self.block, window, in_flight }
            }
            Class::Chunked { chunk } => BlocksNeeded::Chunk { block: self.block, chunk, in_flight },
            Class::State { count } => BlocksNeeded::Fixed(count),
        }
    }
}

/// What decides the size of a page beside the layer itself.
#[derive(Debug, Clone, Copy)]
pub struct PageRules {
    /// TP ranks.
    pub tp: u64,
    pub kv_dtype: KvDtype,
    /// Tokens of a block of attention layers.
    pub block: u64,
    /// Tokens between two states.
    pub state_block: u64,
    /// A state is padded to this many bytes where that is more than its own size.
    pub state_page: u64,
    /// Draft tokens of speculative decoding.
    pub draft_tokens: u64,
}

/// The pages of one cache of a layer. `count` is the number of states a request keeps.
pub fn pages(cache: &LayerCache, rules: &PageRules, count: u64) -> SmallVec<[Page; 5]> {
    let PageRules { tp, kv_dtype, block, .. } = *rules;
    let mut out = SmallVec::new();
    match cache {
        LayerCache::Heads { kv_heads, key_size, value_size, reach } => {
            let heads = heads_on_rank(*kv_heads, tp);
            let class = match *reach {
                Reach::Full => Class::Full,
                Reach::Sliding { window } => Class::Sliding { window },
                Reach::Chunked { chunk } => Class::Chunked { chunk },
            };
            let bytes = block.saturating_mul(heads_row(heads, *key_size, *value_size, kv_dtype));
            out.push(Page { class, heads, key_size: *key_size, block, bytes });
        }
        LayerCache::Latent { kv_lora_rank, rope, reach, .. } => {
            let class = match *reach {
                Reach::Sliding { window } => Class::LatentWindow { window },
                Reach::Full | Reach::Chunked { .. } => Class::Latent,
            };
            let bytes = block.saturating_mul(latent_row(*kv_lora_rank, *rope, kv_dtype));
            let key_size = kv_lora_rank.saturating_add(*rope);
            out.push(Page { class, heads: 1, key_size, block, bytes });
        }
        LayerCache::Indexer { head_size } => {
            let bytes = block.saturating_mul(indexer_row(*head_size));
            out.push(Page {
                class: Class::Latent,
                heads: 1,
                key_size: indexer_row(*head_size),
                block,
                bytes,
            });
        }
        LayerCache::Compressed { head_size, rope, window, ratio, indexer_head_size } => {
            out.extend(compressed(*head_size, *rope, *window, *ratio, *indexer_head_size));
        }
        LayerCache::State(state) => {
            let bytes = state_bytes(state, tp, rules.draft_tokens).max(rules.state_page);
            let class = Class::State { count };
            out.push(Page { class, heads: 0, key_size: 0, block: rules.state_block, bytes });
        }
    }
    out
}

/// The pages of one DeepSeek-V4 layer: its window (blocks of 64), its compressed entries (256 tokens a block, one entry for
/// `ratio`), the compressor's fp32 state over `2 * ratio` tokens (`ratio` above 4), and the same for its indexer.
fn compressed(head: u64, rope: u64, window: u64, ratio: u64, indexer: u64) -> SmallVec<[Page; 5]> {
    let entry = compressed_entry(head, rope);
    let page = |class, block, bytes: u64, key_size| Page {
        class,
        heads: 1,
        key_size,
        block,
        bytes: bytes.checked_next_multiple_of(COMPRESSED_ALIGNMENT).unwrap_or(u64::MAX),
    };
    let mut out = SmallVec::new();
    out.push(page(Class::LatentWindow { window }, 64, entry.saturating_mul(64), head));
    if ratio == 0 {
        return out;
    }
    let entries = 256_u64.checked_div(ratio).unwrap_or(1).max(1);
    out.push(page(Class::Latent, 256, entry.saturating_mul(entries), head));
    let (overlap, state_block) = if ratio <= 4 { (2, 4) } else { (1, 8) };
    let state_window = Class::LatentWindow { window: ratio.saturating_mul(overlap) };
    // kv and score, in fp32, for each overlapping window
    let state = |size: u64| size.saturating_mul(8 * overlap * state_block);
    out.push(page(state_window, state_block, state(head), head));
    if indexer > 0 {
        out.push(page(Class::Latent, 256, indexer_row(indexer).saturating_mul(entries), indexer));
        out.push(page(state_window, state_block, state(indexer), indexer));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deepseek_v4_pages_are_padded() {
        let bytes = |ratio, indexer| -> Vec<(u64, u64)> {
            compressed(512, 64, 128, ratio, indexer).iter().map(|p| (p.block, p.bytes)).collect()
        };
        assert_eq!(bytes(128, 0), [(64, 37_440), (256, 1728), (8, 32_832)]);
        assert_eq!(bytes(4, 128), [(64, 37_440), (256, 37_440), (4, 32_832), (256, 8640), (4, 8640)]);
        assert_eq!(bytes(0, 0), [(64, 37_440)]);
    }
}
