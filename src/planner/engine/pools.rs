//! Caches made of pools in fixed proportions: one for full attention, one for windows, one for states.
//! SGLang and TensorRT-LLM work so; vLLM's shared blocks are in [`super::capacity`].

use std::ops::Range;

use smallvec::SmallVec;

use super::capacity::{
    BlocksNeeded, CacheCapacity, CacheGroup, CacheLayout, CacheTooSmall, GroupMember, TokenFigure,
};
use super::rows;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::{LayerCache, Reach, State};
use crate::planner::model::dtype::{Dtype, KvDtype};
use crate::planner::units::{Bytes, Tokens};

/// The proportions of the pools of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Pools {
    /// Tokens of a page.
    pub page: u64,
    /// Ranks that deal out the positions of a sequence (DCP).
    pub shards: u64,
    /// Bytes of a page on a rank of each stage as the engine divides by them, fractions of a byte included.
    pub page_cost: Vec<f64>,
    pub windows: Option<WindowPool>,
    pub states: Option<StatePool>,
}

/// The pool of window layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowPool {
    /// Its tokens, as a share of those of the full pool.
    pub share: f64,
    /// The longest window.
    pub window: u64,
}

/// The pool of recurrent states.
#[derive(Debug, Clone, PartialEq)]
pub struct StatePool {
    /// One state on a rank of each stage.
    pub slot_bytes: Vec<Bytes>,
    pub sizing: StateSizing,
    /// States that a running request holds.
    pub per_request: u64,
}

/// How much of the memory becomes states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StateSizing {
    /// This many bytes of states for one byte of keys and values.
    Ratio(f64),
    /// This many states.
    Slots(u64),
}

impl Pools {
    /// Tokens of full attention that `pages` hold, over the DCP ranks.
    #[must_use]
    pub fn tokens(&self, pages: u64) -> Tokens {
        Tokens(pages.saturating_mul(self.page).saturating_mul(self.shards.max(1)))
    }

    /// Bytes of a stage's cache that are left for pages.
    fn for_pages(&self, stage: usize, kv: Bytes) -> Bytes {
        let Some(states) = &self.states else { return kv };
        match states.sizing {
            StateSizing::Ratio(ratio) => Bytes::from_f64(kv.as_f64() / (1.0 + ratio.max(0.0))),
            StateSizing::Slots(slots) => {
                kv - states.slot_bytes.get(stage).copied().unwrap_or_default() * slots
            }
        }
    }

    /// What the pools hold.
    ///
    /// # Errors
    /// [`CacheTooSmall`] when a pool is empty, or the window pool cannot hold one window.
    pub fn capacity(
        &self,
        kv_bytes: &[Bytes],
        page_bytes: &[Bytes],
        length: Tokens,
    ) -> Result<CacheCapacity, CacheTooSmall> {
        let fewest = kv_bytes
            .iter()
            .zip(page_bytes)
            .enumerate()
            .filter(|(_, (_, page))| page.get() > 0)
            .map(|(stage, (kv, page))| {
                let cost = self.page_cost.get(stage).copied().filter(|cost| *cost > 0.0);
                let cost = cost.unwrap_or_else(|| page.as_f64());
                (stage, Bytes::from_f64((self.for_pages(stage, *kv).as_f64() / cost).floor()).get())
            })
            .min_by_key(|(_, pages)| *pages);
        let (binding_stage, pages) = fewest.unwrap_or((0, 0));
        let window_fits = self.windows.is_none_or(|w| {
            self.window_tokens(pages, w) > Tokens(w.window.saturating_add(self.page)).as_f64()
        });
        if fewest.is_some() && (pages == 0 || !window_fits) {
            let page = page_bytes.get(binding_stage).copied().unwrap_or_default();
            let least = self.windows.map_or(1, |w| w.window.div_ceil(self.page.max(1)).saturating_add(2));
            return Err(CacheTooSmall {
                stage: binding_stage,
                needed_bytes: page * least,
                available_bytes: kv_bytes.get(binding_stage).copied().unwrap_or_default(),
                longest: Tokens::ZERO,
            });
        }
        Ok(CacheCapacity {
            blocks: pages,
            tokens: self.tokens(pages),
            max_concurrency: self.sequences_at(pages, page_bytes, length),
            blocks_per_request: vec![length.get().div_ceil(self.shards.max(1)).div_ceil(self.page.max(1))],
            binding_stage,
        })
    }

    fn window_tokens(&self, pages: u64, windows: WindowPool) -> f64 {
        Tokens(pages.saturating_mul(self.page)).as_f64() * windows.share
    }

    /// Sequences of `context` tokens at once: the tightest pool decides.
    #[must_use]
    pub fn sequences_at(&self, pages: u64, page_bytes: &[Bytes], context: Tokens) -> f64 {
        if context == Tokens::ZERO {
            return 0.0;
        }
        let whole_pages = context.get().div_ceil(self.page.max(1)).saturating_mul(self.page);
        let mut most = self.tokens(pages).as_f64() / Tokens(whole_pages).as_f64().max(1.0);
        if let Some(windows) = self.windows {
            let kept = whole_pages.min(windows.window.saturating_add(self.page));
            most = most.min(self.window_tokens(pages, windows) / Tokens(kept).as_f64().max(1.0));
        }
        if let Some(states) = &self.states {
            most = most.min(states.requests(pages, page_bytes));
        }
        most
    }
}

impl StatePool {
    /// Requests that the states serve, beside `pages` pages.
    fn requests(&self, pages: u64, page_bytes: &[Bytes]) -> f64 {
        let slots = match self.sizing {
            StateSizing::Slots(slots) => Bytes(slots).as_f64(),
            StateSizing::Ratio(ratio) => self
                .slot_bytes
                .iter()
                .zip(page_bytes)
                .filter(|(slot, _)| slot.get() > 0)
                // one slot is kept back
                .map(|(slot, page)| ((*page * pages).as_f64() * ratio / slot.as_f64() - 1.0).max(0.0))
                .fold(f64::INFINITY, f64::min),
        };
        (slots / Bytes(self.per_request.max(1)).as_f64()).floor()
    }
}

/// What an engine decides about its pools.
#[derive(Debug, Clone, Copy)]
pub struct PoolRules {
    pub page: u64,
    pub stored: KvDtype,
    /// KV heads on a rank, for a layer with this many.
    pub heads: fn(kv_heads: u64, shape: &Shape) -> u64,
    /// Share of the window pool, for the longest window.
    pub window_share: f64,
    /// Sizing of the state pool and states of a running request.
    pub states: (StateSizing, u64),
    /// Format of recurrent states where the engine does not take the model's.
    pub state_dtype: Option<Dtype>,
    /// Draft tokens of speculative decoding.
    pub draft_tokens: u64,
}

/// The pools of one rank under `shape`.
#[must_use]
pub fn layout(model: &ModelSpec, shape: &Shape, stages: &[Range<usize>], rules: &PoolRules) -> CacheLayout {
    let cells: Vec<Cells> = model.kinds.iter().map(|kind| Cells::of(&kind.caches, shape, rules)).collect();
    let by_stage: Vec<Cells> = stages
        .iter()
        .map(|layers| {
            model
                .layers
                .get(layers.clone())
                .unwrap_or(&[])
                .iter()
                .filter_map(|kind| cells.get(*kind))
                .fold(Cells::default(), Cells::plus)
        })
        .collect();
    let all = by_stage.iter().fold(Cells::default(), Cells::plus);
    // a model of windows alone has one pool, and a token of it is a token of the cache
    let only_windows = all.full == 0.0;
    let share = if only_windows { 1.0 } else { rules.window_share };
    let page = Bytes(rules.page).as_f64();
    let page_cost: Vec<f64> = by_stage.iter().map(|c| (c.full + c.window * share) * page).collect();
    let block_bytes: Vec<Bytes> = page_cost.iter().map(|cost| Bytes::from_f64(cost.ceil())).collect();
    let windows =
        (all.longest_window > 0 && !only_windows).then_some(WindowPool { share, window: all.longest_window });
    let states = (all.state > 0).then(|| StatePool {
        slot_bytes: by_stage.iter().map(|c| Bytes(c.state)).collect(),
        sizing: rules.states.0,
        per_request: rules.states.1,
    });
    let logical = Bytes::from_f64(all.logical);
    let token_bytes: Vec<Bytes> = by_stage.iter().map(|c| Bytes::from_f64(c.full + c.window)).collect();
    let on_ranks = (all.full + all.window) * Bytes(shape.tp.max(1)).as_f64();
    CacheLayout {
        groups: groups(&all, shape, rules, only_windows),
        block_size: rules.page,
        block_bytes,
        reserved_blocks: 0,
        kv_heads_per_rank: all.heads,
        replication_factor: if all.logical > 0.0 {
            on_ranks / (all.logical * Bytes(shape.dcp.max(1)).as_f64())
        } else {
            1.0
        },
        token_bytes,
        token_bytes_logical: logical,
        state_bytes: by_stage.iter().map(|c| Bytes(c.state) * rules.states.1).collect(),
        token_figure: TokenFigure::ConcurrencyTimesLength,
        stored_dtype: rules.stored,
        pools: Some(Pools { page: rules.page, shards: shape.dcp, page_cost, windows, states }),
    }
}

/// Bytes of one token, or one state, on a rank.
#[derive(Debug, Clone, Copy, Default)]
struct Cells {
    full: f64,
    window: f64,
    /// One copy of both.
    logical: f64,
    state: u64,
    heads: u64,
    longest_window: u64,
    full_layers: u64,
    window_layers: u64,
    state_layers: u64,
}

impl Cells {
    fn of(caches: &[LayerCache], shape: &Shape, rules: &PoolRules) -> Self {
        let mut cells = Self::default();
        for cache in caches {
            cells.add(cache, shape, rules);
        }
        cells
    }

    fn add(&mut self, cache: &LayerCache, shape: &Shape, rules: &PoolRules) {
        let stored = rules.stored;
        match cache {
            LayerCache::Heads { kv_heads, key_size, value_size, reach } => {
                let heads = (rules.heads)(*kv_heads, shape);
                self.heads = self.heads.max(heads);
                let whole = rows::heads_row(*kv_heads, *key_size, *value_size, stored);
                self.token(rows::heads_row(heads, *key_size, *value_size, stored), whole, *reach);
            }
            LayerCache::Latent { kv_lora_rank, rope, reach, .. } => {
                self.heads = self.heads.max(1);
                let row = rows::latent_row(*kv_lora_rank, *rope, stored);
                self.token(row, row, *reach);
            }
            // an indexer is copied over DCP ranks, so each logical token carries it once for each
            LayerCache::Indexer { head_size } => {
                let row = rows::indexer_row(*head_size);
                self.token(row.saturating_mul(shape.dcp.max(1)), row, Reach::Full);
                self.full_layers = self.full_layers.saturating_sub(1);
            }
            LayerCache::Compressed { head_size, rope, window, ratio, indexer_head_size } => {
                self.heads = self.heads.max(1);
                let entry = rows::compressed_entry(*head_size, *rope);
                self.token(entry, entry, Reach::Sliding { window: *window });
                if *ratio > 0 {
                    let indexer =
                        if *indexer_head_size > 0 { rows::indexer_row(*indexer_head_size) } else { 0 };
                    let shared = Bytes(entry.saturating_add(indexer)).as_f64() / Bytes(*ratio).as_f64();
                    self.full += shared;
                    self.logical += shared;
                    self.full_layers = self.full_layers.saturating_add(1);
                }
            }
            LayerCache::State(state) => {
                let state_dtype = rules.state_dtype.unwrap_or(state.state_dtype);
                let state = State { state_dtype, ..state.clone() };
                let bytes = rows::state_bytes(&state, shape.tp, rules.draft_tokens);
                self.state = self.state.saturating_add(bytes);
                self.state_layers = self.state_layers.saturating_add(1);
            }
        }
    }

    fn token(&mut self, row: u64, logical: u64, reach: Reach) {
        self.logical += Bytes(logical).as_f64();
        let window = match reach {
            Reach::Full => {
                self.full += Bytes(row).as_f64();
                self.full_layers = self.full_layers.saturating_add(1);
                return;
            }
            Reach::Sliding { window } => window,
            Reach::Chunked { chunk } => chunk,
        };
        self.window += Bytes(row).as_f64();
        self.window_layers = self.window_layers.saturating_add(1);
        self.longest_window = self.longest_window.max(window);
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            full: self.full + other.full,
            window: self.window + other.window,
            logical: self.logical + other.logical,
            state: self.state.saturating_add(other.state),
            heads: self.heads.max(other.heads),
            longest_window: self.longest_window.max(other.longest_window),
            full_layers: self.full_layers.saturating_add(other.full_layers),
            window_layers: self.window_layers.saturating_add(other.window_layers),
            state_layers: self.state_layers.saturating_add(other.state_layers),
        }
    }
}

/// The pools as groups, for people.
fn groups(all: &Cells, shape: &Shape, rules: &PoolRules, only_windows: bool) -> Vec<CacheGroup> {
    let page = rules.page.max(1);
    let mean = |bytes: f64, layers: u64| {
        Bytes::from_f64(bytes * Bytes(page).as_f64() / Bytes(layers.max(1)).as_f64())
    };
    let group = |kind, layers, page_bytes, need| CacheGroup {
        kind,
        count: 1,
        block_size: page,
        members: SmallVec::from_iter([GroupMember { layers, page_bytes }]),
        need,
    };
    let mut out = Vec::new();
    if all.full_layers > 0 {
        let need = BlocksNeeded::EveryToken { block: page, shards: shape.dcp };
        out.push(group("full", all.full_layers, mean(all.full, all.full_layers), need));
    }
    if all.window_layers > 0 {
        let need = if only_windows {
            BlocksNeeded::EveryToken { block: page, shards: 1 }
        } else {
            BlocksNeeded::Window { block: page, window: all.longest_window, in_flight: 0 }
        };
        out.push(group("sliding", all.window_layers, mean(all.window, all.window_layers), need));
    }
    if all.state_layers > 0 {
        let bytes = Bytes(all.state).get().checked_div(all.state_layers).unwrap_or(0);
        out.push(group("state", all.state_layers, Bytes(bytes), BlocksNeeded::Fixed(rules.states.1)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_pool_decides() {
        let pools = Pools {
            page: 1,
            shards: 1,
            page_cost: vec![10.0],
            windows: Some(WindowPool { share: 0.5, window: 100 }),
            states: None,
        };
        let page_bytes = [Bytes(10)];
        // 1000 tokens, 500 window tokens: 10 sequences of 100 by the full pool, 5 by the window pool
        assert!((pools.sequences_at(1000, &page_bytes, Tokens(100)) - 5.0).abs() < 0.1);
        assert!((pools.sequences_at(1000, &page_bytes, Tokens(1000)) - 1.0).abs() < 1e-9);
        assert!(
            pools.capacity(&[Bytes(1000)], &page_bytes, Tokens(100)).is_err(),
            "50 window tokens hold no window"
        );
    }

    #[test]
    fn states_take_their_ratio() {
        let pools = Pools {
            page: 1,
            shards: 1,
            page_cost: vec![10.0],
            windows: None,
            states: Some(StatePool {
                slot_bytes: vec![Bytes(90)],
                sizing: StateSizing::Ratio(0.9),
                per_request: 3,
            }),
        };
        let capacity = pools.capacity(&[Bytes(19_000)], &[Bytes(10)], Tokens(10)).expect("fits");
        assert_eq!(capacity.tokens, Tokens(1000));
        // 9000 B of states: 100 slots, one kept back
        assert!((capacity.max_concurrency - 33.0).abs() < f64::EPSILON);
    }

    #[test]
    fn dcp_deals_out_positions() {
        let pools = Pools { page: 64, shards: 8, page_cost: Vec::new(), windows: None, states: None };
        assert_eq!(pools.tokens(10), Tokens(5120));
    }
}
