//! The towers of InternVL: its own class (`models/intern_vit.py`) and that of transformers (`models/interns1_vit.py`).

use super::super::super::build::Layer;
use super::super::super::reader::Config;
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks_cut, in_each_block};
use crate::planner::model::ledger::{Part, Role};

/// InternViT under `InternVLChatModel`: attention is cut where the ranks divide its heads, the feed-forward block always.
pub(super) fn chat<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let mut sizes = Sizes::of(&vision);
    sizes.layers = sizes.layers.saturating_sub(behind_the_last_used(context));
    let mut tower = Layer::tower(context.quantiser, "vision_model", false);
    embeddings(&mut tower, &vision, &sizes);
    let block = Block {
        attention_bias: vision.flag(&["qkv_bias"], false),
        norm_bias: vision.text(&["norm_type"]) == Some("layer_norm"),
        ..Block::plain(sizes.hidden)
    };
    let normed = vision.flag(&["qk_normalization"], true);
    encoder(&mut tower, &sizes, &block, Cutting::ByHeads(sizes.heads), normed);
    projector(&mut tower, merged(context, sizes.hidden), text);
    Some(tower)
}

/// InternViT of transformers: attention is whole on every rank.
pub(super) fn of_transformers<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    embeddings(&mut tower, &vision, &sizes);
    if vision.flag(&["use_mask_token"], false) {
        tower.vector(Role::Tower, "mask_token", &[Part::whole(sizes.hidden)]);
    }
    let block = Block {
        attention_bias: vision.flag(&["attention_bias"], false),
        norm_bias: vision.text(&["norm_type"]).unwrap_or("layer_norm") == "layer_norm",
        ..Block::plain(sizes.hidden)
    };
    encoder(&mut tower, &sizes, &block, Cutting::Whole, vision.flag(&["use_qk_norm"], false));
    if !vision.flag(&["use_mean_pooling"], true) {
        tower.layer_norm("layernorm", sizes.hidden, true);
    }
    projector(&mut tower, merged(context, sizes.hidden), text);
    Some(tower)
}

/// Layers that are not built: a negative `select_layer` counts from the end.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and `as` saturates"
)]
fn behind_the_last_used(context: &Context<'_>) -> u64 {
    let select = context.top.real(&["select_layer"]).unwrap_or(-1.0);
    if select >= 0.0 {
        let detail = "a layer counted from the first is not known here";
        context.top.refuse("select_layer", "not_allowed", detail);
    }
    (-1.0 - select).max(0.0) as u64
}

/// Class token, positions of the patches and of that token, and the patches themselves.
fn embeddings(tower: &mut Layer<'_>, vision: &Config<'_>, sizes: &Sizes) {
    let hidden = [Part::whole(sizes.hidden)];
    let image = vision.per_layer(&["image_size"], 2).unwrap_or_else(|| vec![vision.size(&["image_size"]); 2]);
    let patches = image
        .iter()
        .take(2)
        .fold(1_u64, |patches, side| patches.saturating_mul(side.checked_div(sizes.patch).unwrap_or(0)));
    tower.vector(Role::Tower, "class_embedding", &hidden);
    let rows = Part::whole(patches.saturating_add(1));
    tower.table(Role::Tower, "position_embedding", rows, Part::whole(sizes.hidden));
    let features = Part::whole(sizes.patch_features());
    tower.plain_linear(Role::Tower, "patch_embedding", &hidden, features, true);
}

/// The blocks: with a bias on the output of attention whatever its inputs have, norms over all heads of queries and keys,
/// and a scale on what each half adds.
fn encoder(tower: &mut Layer<'_>, sizes: &Sizes, block: &Block, attention: Cutting, normed: bool) {
    blocks_cut(tower, sizes, block, attention, Cutting::Even);
    in_each_block(tower, sizes, |tower| {
        if !block.attention_bias {
            tower.vector(Role::Tower, "blocks.0.attn.o_proj.bias", &[Part::whole(sizes.hidden)]);
        }
        if normed {
            tower.norm("blocks.0.q_norm", sizes.hidden);
            tower.norm("blocks.0.k_norm", sizes.hidden);
        }
        tower.norm("blocks.0.ls1", sizes.hidden);
        tower.norm("blocks.0.ls2", sizes.hidden);
    });
}

/// Norm and two layers with biases: from merged patches to the decoder's width.
fn projector(tower: &mut Layer<'_>, merged: u64, text: u64) {
    tower.layer_norm("mlp1.0", merged, true);
    tower.plain_linear(Role::Tower, "mlp1.1", &[Part::whole(text)], Part::whole(merged), true);
    tower.plain_linear(Role::Tower, "mlp1.3", &[Part::whole(text)], Part::whole(text), true);
}

/// Features of neighbouring patches together: `int(1 / downsample_ratio)` on a side.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 16")]
fn merged(context: &Context<'_>, hidden: u64) -> u64 {
    let ratio = context.top.real(&["downsample_ratio"]).unwrap_or(0.5);
    if !(1.0 / 16.0..=1.0).contains(&ratio) {
        context.top.refuse("downsample_ratio", "out_of_range", "expected a ratio from 1/16 to 1");
        return hidden;
    }
    let side = (1.0 / ratio) as u64;
    hidden.saturating_mul(side).saturating_mul(side)
}
