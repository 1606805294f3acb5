//! How bytes become blocks, tokens and sequences: the inverse of an engine's cache allocator.

use smallvec::SmallVec;

use crate::planner::model::dtype::KvDtype;
use crate::planner::units::{Bytes, Tokens};

use super::ResolvedSettings;
use super::pools::Pools;

/// How many blocks of a group one request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlocksNeeded {
    /// Every token is kept: `ceil(ceil(tokens / shards) / block)`; `shards` ranks deal out the positions (DCP).
    EveryToken { block: u64, shards: u64 },
    /// A window: `ceil(min(window - 1 + in_flight, tokens) / block) + 1`.
    Window { block: u64, window: u64, in_flight: u64 },
    /// A chunk: `ceil(min(chunk + in_flight, tokens) / block)`.
    Chunk { block: u64, chunk: u64, in_flight: u64 },
    /// A fixed number of states.
    Fixed(u64),
}

impl BlocksNeeded {
    /// Blocks for a request of `tokens` tokens.
    #[must_use]
    pub fn at(self, tokens: Tokens) -> u64 {
        let tokens = tokens.get();
        match self {
            Self::EveryToken { block, shards } => tokens.div_ceil(shards.max(1)).div_ceil(block.max(1)),
            Self::Window { block, window, in_flight } => {
                let kept = window.saturating_sub(1).saturating_add(in_flight).min(tokens);
                kept.div_ceil(block.max(1)).saturating_add(1)
            }
            Self::Chunk { block, chunk, in_flight } => {
                chunk.saturating_add(in_flight).min(tokens).div_ceil(block.max(1))
            }
            Self::Fixed(states) => states,
        }
    }

    /// True when a longer request never takes more blocks beyond some length.
    #[must_use]
    pub const fn bounded(self) -> bool {
        !matches!(self, Self::EveryToken { .. })
    }
}

/// Equal groups of layers that share block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheGroup {
    /// `full`, `latent`, `sliding`, `chunked`, `state`, …
    pub kind: &'static str,
    /// Equal groups in a row.
    pub count: u64,
    /// Tokens of a block; for states the tokens between two states.
    pub block_size: u64,
    /// The layers of each of them, over all stages, by size of page.
    pub members: SmallVec<[GroupMember; 1]>,
    /// Blocks that a request takes in each of them.
    pub need: BlocksNeeded,
}

/// Layers of a group with equal pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMember {
    pub layers: u64,
    /// Bytes of one block of one layer on one rank, padding included.
    pub page_bytes: Bytes,
}

impl CacheGroup {
    /// Layers of the group, over all stages.
    #[must_use]
    pub fn layers(&self) -> u64 {
        self.members.iter().fold(0, |sum, m| sum.saturating_add(m.layers))
    }
}

/// The cache of one rank of a shape. Vectors by stage have one entry per pipeline stage.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheLayout {
    /// In the engine's order. Empty: the model caches nothing.
    pub groups: Vec<CacheGroup>,
    /// Tokens of a block as the engine reports it.
    pub block_size: u64,
    /// Bytes that one block takes on a rank of each stage.
    pub block_bytes: Vec<Bytes>,
    /// Blocks that are never handed out (vLLM's null block).
    pub reserved_blocks: u64,
    /// KV heads on a rank (1 for a shared latent).
    pub kv_heads_per_rank: u64,
    /// How many ranks of a replica's TP group hold the same bytes; DCP already taken off. 1 = no waste.
    pub replication_factor: f64,
    /// Cache of one token on a rank of each stage, without states, all layers counted as if full.
    pub token_bytes: Vec<Bytes>,
    /// The same over all stages, one copy.
    pub token_bytes_logical: Bytes,
    /// Recurrent states of one sequence on a rank of each stage.
    pub state_bytes: Vec<Bytes>,
    /// What "tokens" in the engine's log line means.
    pub token_figure: TokenFigure,
    /// Format in which the backend stores the cache.
    pub stored_dtype: KvDtype,
    /// Pools of fixed proportions, in engines that have no shared blocks.
    pub pools: Option<Pools>,
}

/// How an engine turns blocks into the tokens it prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFigure {
    /// `floor(concurrency * max_model_len)`.
    ConcurrencyTimesLength,
    /// `blocks / groups * block_size`, times the DCP ranks.
    BlocksPerGroup { shards: u64 },
}

/// What a cache holds.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheCapacity {
    /// Blocks on every rank: the fewest over the stages.
    pub blocks: u64,
    /// What the engine prints as its cache size.
    pub tokens: Tokens,
    /// What the engine prints as its maximum concurrency at `max_model_len`.
    pub max_concurrency: f64,
    /// Blocks of one request of `max_model_len`, by group.
    pub blocks_per_request: Vec<u64>,
    /// The stage that holds the fewest blocks.
    pub binding_stage: usize,
}

/// One request of `max_model_len` does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTooSmall {
    /// The stage that is too small.
    pub stage: usize,
    /// Cache bytes that one request needs there, the reserved block counted.
    pub needed_bytes: Bytes,
    /// Cache bytes that are there.
    pub available_bytes: Bytes,
    /// The longest request that would fit.
    pub longest: Tokens,
}

impl CacheLayout {
    /// Blocks that one request of `tokens` takes over all groups.
    #[must_use]
    pub fn blocks_for(&self, tokens: Tokens) -> u64 {
        self.groups.iter().fold(0, |sum, g| g.need.at(tokens).saturating_mul(g.count).saturating_add(sum))
    }

    /// Cache that one request of `tokens` takes on a rank of each stage, reserved blocks counted.
    #[must_use]
    pub fn bytes_for(&self, tokens: Tokens) -> Vec<Bytes> {
        let blocks = self.blocks_for(tokens).saturating_add(self.reserved_blocks);
        self.block_bytes.iter().map(|block| *block * blocks).collect()
    }

    /// A block of the last stage takes `share` more: layers of a drafter cache there too.
    pub fn grow_last_stage(&mut self, share: f64) {
        if let Some(block) = self.block_bytes.last_mut() {
            *block = Bytes::from_f64((block.as_f64() * (1.0 + share.max(0.0))).round());
        }
    }

    /// What `kv_bytes` (one entry per stage, one rank) hold.
    ///
    /// # Errors
    /// [`CacheTooSmall`] when one request of `max_model_len` does not fit on some stage: the engine refuses to start.
    pub fn capacity(
        &self,
        kv_bytes: &[Bytes],
        settings: &ResolvedSettings,
    ) -> Result<CacheCapacity, CacheTooSmall> {
        let length = settings.max_model_len;
        if let Some(pools) = &self.pools {
            return pools.capacity(kv_bytes, &self.block_bytes, length);
        }
        let per_request = self.blocks_for(length);
        let mut fewest: Option<(usize, u64)> = None;
        for (stage, (have, block)) in kv_bytes.iter().zip(&self.block_bytes).enumerate() {
            if block.get() == 0 {
                continue;
            }
            let blocks = have.get().checked_div(block.get()).unwrap_or(0);
            if blocks < per_request.saturating_add(self.reserved_blocks) {
                return Err(CacheTooSmall {
                    stage,
                    needed_bytes: *block * per_request.saturating_add(self.reserved_blocks),
                    available_bytes: *have,
                    longest: self.longest_sequence(blocks, length),
                });
            }
            if fewest.is_none_or(|(_, n)| blocks < n) {
                fewest = Some((stage, blocks));
            }
        }
        let (binding_stage, blocks) = fewest.unwrap_or((0, 0));
        let max_concurrency = self.sequences_at(blocks, length);
        Ok(CacheCapacity {
            blocks,
            tokens: self.tokens(blocks, max_concurrency, length),
            max_concurrency,
            blocks_per_request: self
                .groups
                .iter()
                .flat_map(|g| {
                    let copies = usize::try_from(g.count.min(4096)).unwrap_or(0);
                    std::iter::repeat_n(g.need.at(length), copies)
                })
                .collect(),
            binding_stage,
        })
    }

    /// The same without the engine's check at the start: what a pool holds that is too small for one
    /// request of `max_model_len`.
    #[must_use]
    pub fn unchecked_capacity(&self, kv_bytes: &[Bytes], settings: &ResolvedSettings) -> CacheCapacity {
        let shortened = |length| ResolvedSettings { max_model_len: length, ..settings.clone() };
        let fewest = kv_bytes
            .iter()
            .zip(&self.block_bytes)
            .filter_map(|(have, block)| have.get().checked_div(block.get()))
            .min()
            .unwrap_or(0);
        let longest = self.longest_sequence(fewest, settings.max_model_len);
        let mut capacity = self.capacity(kv_bytes, &shortened(longest)).unwrap_or(CacheCapacity {
            blocks: fewest,
            tokens: Tokens::ZERO,
            max_concurrency: 0.0,
            blocks_per_request: Vec::new(),
            binding_stage: 0,
        });
        capacity.max_concurrency = self.sequences_at(capacity.blocks, settings.max_model_len);
        capacity
    }

    /// Sequences of `context` tokens that `blocks` hold, as a fraction: the engine's own "maximum concurrency".
    #[must_use]
    pub fn sequences_at(&self, blocks: u64, context: Tokens) -> f64 {
        if let Some(pools) = &self.pools {
            return pools.sequences_at(blocks, &self.block_bytes, context);
        }
        match self.blocks_for(context) {
            0 => 0.0,
            per_request => ratio(blocks, per_request),
        }
    }

    /// The longest single sequence, at most `limit`, that `blocks` hold beside the reserved ones.
    #[must_use]
    pub fn longest_sequence(&self, blocks: u64, limit: Tokens) -> Tokens {
        if let Some(pools) = &self.pools {
            return pools.tokens(blocks).min(limit);
        }
        let free = blocks.saturating_sub(self.reserved_blocks);
        if self.blocks_for(limit) <= free {
            return limit;
        }
        // blocks_for never falls with length, so halving finds the last length that fits
        let (mut fits, mut too_long) = (0, limit.get());
        while too_long.saturating_sub(fits) > 1 {
            let middle = fits.midpoint(too_long);
            if self.blocks_for(Tokens(middle)) <= free { fits = middle } else { too_long = middle }
        }
        Tokens(fits)
    }

    fn tokens(&self, blocks: u64, max_concurrency: f64, length: Tokens) -> Tokens {
        match self.token_figure {
            TokenFigure::ConcurrencyTimesLength => {
                Tokens(Bytes::from_f64(max_concurrency * length.as_f64()).get())
            }
            TokenFigure::BlocksPerGroup { shards } => {
                let groups = self.groups.iter().fold(0_u64, |sum, g| sum.saturating_add(g.count));
                let per_group = blocks.checked_div(groups).unwrap_or(0);
                Tokens(per_group.saturating_mul(self.block_size).saturating_mul(shards.max(1)))
            }
        }
    }
}

/// A quotient of counts; the divisor is never 0 here.
#[expect(clippy::cast_precision_loss, reason = "the engine divides in floats too")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(block_size: u64, block_bytes: u64) -> CacheLayout {
        CacheLayout {
            groups: vec![CacheGroup {
                kind: "full",
                count: 1,
                block_size,
                members: SmallVec::from_iter([GroupMember {
                    layers: 32,
                    page_bytes: Bytes(block_bytes / 32),
                }]),
                need: BlocksNeeded::EveryToken { block: block_size, shards: 1 },
            }],
            block_size,
            block_bytes: vec![Bytes(block_bytes)],
            reserved_blocks: 1,
            kv_heads_per_rank: 8,
            replication_factor: 1.0,
            token_bytes: vec![Bytes(131_072)],
            token_bytes_logical: Bytes(131_072),
            state_bytes: vec![Bytes::ZERO],
            token_figure: TokenFigure::ConcurrencyTimesLength,
            stored_dtype: KvDtype::Bf16,
            pools: None,
        }
    }

    #[test]
    fn a_window_keeps_what_is_in_flight_and_one_block_more() {
        let need = BlocksNeeded::Window { block: 16, window: 1024, in_flight: 16_384 };
        assert_eq!(need.at(Tokens(131_072)), 1 + (1023 + 16_384_u64).div_ceil(16));
        assert_eq!(need.at(Tokens(8192)), 1 + 512);
    }

    #[test]
    fn the_longest_sequence_is_the_last_that_fits() {
        let layout = uniform(16, 2_621_440 * 2);
        // 40 GiB of an 80-layer model: 8192 blocks, one of them reserved
        assert_eq!(layout.longest_sequence(8192, Tokens(131_072)), Tokens(131_056));
        assert_eq!(layout.longest_sequence(8193, Tokens(131_072)), Tokens(131_072));
        assert_eq!(layout.longest_sequence(0, Tokens(131_072)), Tokens(0));
    }

    #[test]
    fn sequences_are_the_engines_quotient() {
        let layout = uniform(16, 2_097_152);
        assert!((layout.sequences_at(20_480, Tokens(131_072)) - 2.5).abs() < f64::EPSILON);
        assert!(layout.sequences_at(20_480, Tokens(0)).abs() < f64::EPSILON);
    }
}
