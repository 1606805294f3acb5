//! Attention by head: projections, caches and rotary tables.

use super::super::build::Layer;
use super::super::reader::Config;
use super::Context;
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::ledger::{Part, Role};

/// The names under which files keep the number of KV heads.
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "multi_query_group_num"];

/// Norms on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    None,
    /// One vector of a head's size for each.
    Head,
    /// Over all heads together, whole on every rank.
    All,
    /// Over all heads, cut with them.
    ByHead,
}

/// The attention of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head: u64,
    pub value_head: u64,
    pub qkv_bias: bool,
    pub out_bias: bool,
    pub qk_norm: QkNorm,
    /// A gate as wide as the queries, fused with them.
    pub gate: bool,
    pub reach: Reach,
}

impl Attention {
    /// Sizes as most files name them: KV heads default to the class's, then to all heads; head size likewise.
    pub fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        let hidden = context.hidden();
        let heads = config.size(&["num_attention_heads", "n_head", "n_heads"]);
        let kv_heads = config.opt_size(KV_HEADS).unwrap_or(heads);
        // engines assert it: each KV head serves as many query heads
        if heads.checked_rem(kv_heads).is_some_and(|rest| rest != 0) {
            let key = KV_HEADS.iter().find(|key| config.has(&[key])).unwrap_or(&"num_attention_heads");
            config.refuse(
                key,
                "out_of_range",
                format!("{heads} query heads do not share {kv_heads} KV heads evenly"),
            );
        }
        let head = config
            .opt_size(&["head_dim", "attention_head_dim", "kv_channels"])
            .unwrap_or_else(|| head_of(config, hidden, heads));
        Self {
            hidden,
            heads,
            kv_heads,
            head,
            value_head: head,
            qkv_bias: false,
            out_bias: false,
            qk_norm: QkNorm::None,
            gate: false,
            reach: Reach::Full,
        }
    }

    /// Projections, norms and cache of this attention under `name`.
    pub fn build(&self, layer: &mut Layer<'_>, name: &'static str) {
        let queries = if self.gate { self.head.saturating_mul(2) } else { self.head };
        let outputs = [
            Part::units(self.heads, queries, "query heads"),
            Part::heads(self.kv_heads, self.head, "KV heads"),
            Part::heads(self.kv_heads, self.value_head, "KV heads"),
        ];
        let (qkv, out) = match name {
            "attention" => ("attention.qkv_proj", "attention.o_proj"),
            "attn" => ("attn.qkv_proj", "attn.o_proj"),
            "mixer" => ("mixer.qkv_proj", "mixer.o_proj"),
            _ => ("self_attn.qkv_proj", "self_attn.o_proj"),
        };
        layer.linear(Role::Attention, qkv, &outputs, Part::whole(self.hidden), self.qkv_bias);
        layer.linear(
            Role::Attention,
            out,
            &[Part::whole(self.hidden)],
            Part::units(self.heads, self.value_head, "query heads"),
            self.out_bias,
        );
        match self.qk_norm {
            QkNorm::None => {}
            QkNorm::Head => {
                layer.norm("q_norm", self.head);
                layer.norm("k_norm", self.head);
            }
            QkNorm::All => {
                layer.norm("q_norm", self.heads.saturating_mul(self.head));
                layer.norm("k_norm", self.kv_heads.saturating_mul(self.head));
            }
            QkNorm::ByHead => {
                layer.vector(Role::Norm, "q_norm", &[Part::units(self.heads, self.head, "query heads")]);
                layer.vector(Role::Norm, "k_norm", &[Part::heads(self.kv_heads, self.head, "KV heads")]);
            }
        }
        self.cache(layer);
    }

    /// Attention sinks: one number a query head.
    pub fn sinks(&self, layer: &mut Layer<'_>) {
        layer.vector(Role::Attention, "self_attn.sinks", &[Part::units(self.heads, 1, "query heads")]);
    }

    /// The cache alone.
    pub fn cache(&self, layer: &mut Layer<'_>) {
        layer.query_heads = self.heads;
        layer.caches.push(LayerCache::Heads {
            kv_heads: self.kv_heads,
            key_size: self.head,
            value_size: self.value_head,
            reach: self.reach,
        });
        layer.cache_scales();
        // four fp32 scales of queries, keys, values and probabilities
        layer.own_buffer(16);
    }
}

/// The head size that a file leaves to its class: the hidden size over the query heads, a fault where nothing is left of it.
fn head_of(config: &Config<'_>, hidden: u64, heads: u64) -> u64 {
    match hidden.checked_div(heads) {
        Some(head) if head > 0 => head,
        _ => {
            let detail = format!("{heads} query heads leave no feature of {hidden} to each");
            config.refuse("num_attention_heads", "out_of_range", detail);
            1
        }
    }
}

/// The rotary embedding of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Rotated features of a head.
    pub features: u64,
    /// Positions in the table.
    pub positions: u64,
    pub base: f64,
}

impl Rope {
    /// As the file says: partial factor, and tables lengthened by scaling.
    pub fn of(context: &Context<'_>, head: u64, layer_type: Option<&str>) -> Self {
        let config = context.config;
        let scaling = rope_section(config, layer_type);
        let real = |name: &str| scaling.as_ref().and_then(|s| s.own_real(name));
        let partial = real("partial_rotary_factor")
            .or_else(|| config.real(&["partial_rotary_factor", "rotary_pct", "rope_pct"]))
            .filter(|factor| (0.0..=1.0).contains(factor));
        let features = match partial {
            Some(partial) => times(head, partial),
            // some files give the turned features themselves
            None => config.opt_size(&["rotary_dim"]).map_or(head, |turned| turned.min(head)),
        };
        let positions = table_positions(context, scaling.as_ref());
        let base = real("rope_theta").or_else(|| config.real(&["rope_theta"])).unwrap_or(10_000.0);
        Self { features, positions, base }
    }

    /// Positions of three axes (image height, width, time) where the file has them: a table four times as long
    /// (`layers/rotary_embedding/mrope.py`).
    pub fn with_axes(self, context: &Context<'_>) -> Self {
        let axes = rope_section(context.config, None).is_some_and(|section| section.has_own("mrope_section"));
        let factor = if axes { 4 } else { 1 };
        Self { positions: self.positions.saturating_mul(factor), ..self }
    }

    /// Positions of the table as the file scales it for all layers alike.
    pub fn table_positions(context: &Context<'_>) -> u64 {
        table_positions(context, rope_section(context.config, None).as_ref())
    }
}

/// Rows of a rotary table: what the model takes, lengthened by the scaling (`layers/rotary_embedding`).
fn table_positions(context: &Context<'_>, scaling: Option<&Config<'_>>) -> u64 {
    let real = |name: &str| scaling.and_then(|s| s.own_real(name));
    let kind = scaling.and_then(|s| s.own_text(&["rope_type", "type"])).unwrap_or("default");
    let factor = real("factor").filter(|f| (1.0..=1e6).contains(f)).unwrap_or(1.0);
    let original = real("original_max_position_embeddings")
        .or_else(|| context.config.real(&["original_max_position_embeddings"]))
        .filter(|p| (1.0..=4e9).contains(p));
    let positions = context.positions();
    match kind {
        "linear" | "dynamic" => times(positions, factor),
        "yarn" | "deepseek_yarn" => {
            original.map_or_else(|| times(positions, factor), |p| times(floor(p), factor))
        }
        // a table for short and one for long contexts, both kept
        "longrope" | "su" => positions.saturating_add(original.map_or(0, floor)),
        _ => positions,
    }
}

/// The section that says how rotary positions are scaled; for a layer type where it is split by those.
fn rope_section<'v>(config: &Config<'v>, layer_type: Option<&str>) -> Option<Config<'v>> {
    let section = config.section_anywhere(&["rope_parameters", "rope_scaling"])?;
    match layer_type {
        Some(kind) if section.has_own(kind) => section.section(kind, false),
        _ => Some(section),
    }
}

/// A positive float rounded down; `as` saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded by the caller, and `as` saturates"
)]
fn floor(n: f64) -> u64 {
    n as u64
}

/// `n * factor`, rounded down.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn times(n: u64, factor: f64) -> u64 {
    floor(n as f64 * factor)
}

/// The table of sines and cosines in the model's format: `positions * features` numbers; layers with the same one share it.
pub fn rope_buffer(layer: &mut Layer<'_>, rope: Rope) {
    let bytes = rope.positions.saturating_mul(rope.features).saturating_mul(layer.dtype().bytes());
    layer.shared_buffer(format!("rope {} {} {}", rope.features, rope.positions, rope.base), bytes);
}

/// As [`rope_buffer`], in fp32 whatever the model's format.
pub fn rope_buffer_fp32(layer: &mut Layer<'_>, rope: Rope) {
    let bytes = rope.positions.saturating_mul(rope.features).saturating_mul(4);
    layer.shared_buffer(format!("rope {} {} {}", rope.features, rope.positions, rope.base), bytes);
}

/// What a transformers class keeps instead of a table: inverse frequencies in fp32, twice.
pub fn inverse_frequencies(layer: &mut Layer<'_>, rope: Rope) {
    layer.shared_buffer(
        format!("inverse frequencies {} {}", rope.features, rope.base),
        rope.features.saturating_mul(4),
    );
}
