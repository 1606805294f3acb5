//! The towers of Gemma 3 and 4.

use super::super::super::build::Layer;
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// SigLIP with Gemma 3's projector.
pub(super) fn gemma3<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    let side = vision.size(&["image_size"]).checked_div(sizes.patch).unwrap_or(0);
    let positions = side.saturating_mul(side);
    tower.plain_linear(
        Role::Tower,
        "patch_embedding",
        &[Part::whole(sizes.hidden)],
        Part::whole(sizes.patch_features()),
        true,
    );
    tower.table(Role::Tower, "position_embedding", Part::whole(positions), Part::whole(sizes.hidden));
    let block = Block::plain(sizes.hidden);
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    tower.layer_norm("post_layernorm", sizes.hidden, true);
    tower.plain_linear(
        Role::Tower,
        "mm_input_projection",
        &[Part::whole(text)],
        Part::whole(sizes.hidden),
        false,
    );
    tower.norm("mm_soft_emb_norm", sizes.hidden);
    // positions as 64-bit integers
    buffer(&mut tower, positions.saturating_mul(8));
    Some(tower)
}

/// Gemma 4: the transformers class, whole on every rank.
pub(super) fn gemma4<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    tower.plain_linear(
        Role::Tower,
        "patch_embedder.input_proj",
        &[Part::whole(sizes.hidden)],
        Part::whole(sizes.patch_features()),
        false,
    );
    let positions = vision.size(&["position_embedding_size"]).saturating_mul(2);
    tower.table(Role::Tower, "position_embedding_table", Part::whole(positions), Part::whole(sizes.hidden));
    let head =
        vision.opt_size(&["head_dim"]).unwrap_or_else(|| sizes.hidden.checked_div(sizes.heads).unwrap_or(0));
    let block = Block {
        attention_bias: vision.flag(&["attention_bias"], false),
        norms: 4,
        qk_norm: true,
        ..Block::gated(head.saturating_mul(sizes.heads))
    };
    blocks(&mut tower, &sizes, &block, Cutting::Whole);
    tower.plain_linear(
        Role::Tower,
        "embed_vision.embedding_projection",
        &[Part::whole(text)],
        Part::whole(sizes.hidden),
        false,
    );
    Some(tower)
}
