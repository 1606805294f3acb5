//! The towers of Qwen: patches over frames, mergers of neighbouring patches.

use super::super::super::build::Layer;
use super::super::super::reader::{Config, MAX_LAYERS};
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// A merger of patches: norm, square layer, output layer.
fn merger(tower: &mut Layer<'_>, merged: u64, out: u64, norm: u64, norm_bias: bool) {
    let part = Part::even(merged, "vision merger size");
    tower.layer_norm("merger.norm", norm, norm_bias);
    tower.linear(Role::Tower, "merger.linear_fc1", &[part], Part::whole(merged), true);
    tower.linear(Role::Tower, "merger.linear_fc2", &[Part::whole(out)], part, false);
    tower.vector(Role::Tower, "merger.linear_fc2.bias", &[Part::whole(out)]);
}

/// The embedding of patches over frames.
pub(super) fn patch_embed(tower: &mut Layer<'_>, vision: &Config<'_>, sizes: &Sizes, bias: bool) {
    let frames = vision.positive_or(&["temporal_patch_size"], 2);
    let features = Part::whole(sizes.patch_features().saturating_mul(frames));
    tower.plain_linear(Role::Tower, "patch_embed", &[Part::whole(sizes.hidden)], features, bias);
}

/// Features of the neighbouring patches that a merger joins: a square of them.
pub(super) fn neighbours(vision: &Config<'_>, sizes: &Sizes) -> u64 {
    let merge = vision.positive_or(&["spatial_merge_size"], 2);
    sizes.hidden.saturating_mul(merge).saturating_mul(merge)
}

/// The rotary table of a tower: half of a head over 8192 positions.
pub(super) fn half_rope(tower: &mut Layer<'_>, sizes: &Sizes) {
    let features = sizes.hidden.checked_div(sizes.heads).unwrap_or(0) / 2;
    let bytes = features.saturating_mul(8192).saturating_mul(tower.dtype().bytes());
    buffer(tower, bytes);
}

/// Qwen2-VL: its file gives the width of the blocks as a multiple, and the decoder's width as `hidden_size`.
pub(super) fn qwen2<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.beside_text("vision_config")?;
    let hidden = vision.size(&["embed_dim"]);
    let sizes = Sizes {
        layers: vision.size_within(&["depth"], MAX_LAYERS),
        hidden,
        heads: vision.size(&["num_heads"]),
        width: hidden.saturating_mul(vision.positive_or(&["mlp_ratio"], 4)),
        patch: vision.size(&["patch_size"]),
        channels: vision.positive_or(&["in_channels", "in_chans"], 3),
    };
    let mut tower = Layer::tower(context.quantiser, "visual", false);
    patch_embed(&mut tower, &vision, &sizes, false);
    let block = Block::plain(hidden);
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let merged = neighbours(&vision, &sizes);
    merger(&mut tower, merged, vision.size(&["hidden_size"]), hidden, true);
    half_rope(&mut tower, &sizes);
    Some(tower)
}

/// Qwen2.5-VL.
pub(super) fn qwen2_5<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.beside_text("vision_config")?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "visual", false);
    patch_embed(&mut tower, &vision, &sizes, false);
    let block = Block { gated: true, norm_bias: false, ..Block::plain(sizes.hidden) };
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let merged = neighbours(&vision, &sizes);
    merger(&mut tower, merged, vision.size(&["out_hidden_size"]), sizes.hidden, false);
    half_rope(&mut tower, &sizes);
    Some(tower)
}

/// Qwen3-VL and Qwen3.5.
pub(super) fn qwen3<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.beside_text("vision_config")?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "visual", false);
    patch_embed(&mut tower, &vision, &sizes, true);
    let positions = vision.size(&["num_position_embeddings"]);
    tower.table(Role::Tower, "pos_embed", Part::whole(positions), Part::whole(sizes.hidden));
    let block = Block::plain(sizes.hidden);
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let merged = neighbours(&vision, &sizes);
    let out = vision.size(&["out_hidden_size"]);
    merger(&mut tower, merged, out, sizes.hidden, true);
    let taps = vision.list(&["deepstack_visual_indexes"]).map_or(0, <[_]>::len);
    for _ in 0..taps.min(64) {
        merger(&mut tower, merged, out, merged, true);
    }
    half_rope(&mut tower, &sizes);
    Some(tower)
}
