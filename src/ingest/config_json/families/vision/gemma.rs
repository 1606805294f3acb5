//! The towers for images of Gemma 3, 3n and 4.

use super::super::super::build::Layer;
use super::super::super::reader::Config;
use super::super::{Context, vocabulary_rows};
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
    // reciprocal periods in fp32 for each axis, kept twice; four bounds on each product of a layer where they are clipped
    buffer(&mut tower, head.saturating_mul(2));
    if vision.flag(&["standardize"], false) {
        let bytes = sizes.hidden.saturating_mul(2).saturating_mul(tower.dtype().bytes());
        buffer(&mut tower, bytes);
    }
    if vision.flag(&["use_clipped_linears"], false) {
        let bounds = sizes.layers.saturating_mul(7 * 4);
        let bytes = bounds.saturating_mul(tower.dtype().bytes());
        buffer(&mut tower, bytes);
    }
    Some(tower)
}

/// Networks that files name and whose sizes only their library knows (timm 1.0.31), by their parameters.
const BY_NAME: &[(&str, u64)] = &[("mobilenetv5_300m_enc", 294_126_912)];

/// Gemma 3n: a convolutional network by its name, and the embedder of soft and hard tokens.
pub(super) fn gemma3n<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let name = vision.text(&["architecture"]).unwrap_or("mobilenetv5_300m_enc");
    let Some((_, parameters)) = BY_NAME.iter().find(|(known, _)| *known == name) else {
        vision.refuse("architecture", "unknown_layer", format!("the network `{name}` is not known here"));
        return None;
    };
    let mut tower = Layer::tower(context.quantiser, "vision_tower", true);
    tower.vector(Role::Tower, "timm_model", &[Part::whole(*parameters)]);
    embedder(&mut tower, &vision, vision.size(&["hidden_size"]), text);
    Some(tower)
}

/// Gemma 3n's embedder: a table of hard tokens, a norm for each kind, and a projection to the decoder's width.
pub(super) fn embedder(tower: &mut Layer<'_>, section: &Config<'_>, hidden: u64, text: u64) {
    let rows = vocabulary_rows(section.size(&["vocab_size"]));
    tower.table(Role::Tower, "embedding", rows, Part::whole(hidden));
    tower.norm("hard_embedding_norm", hidden);
    tower.norm("soft_embedding_norm", hidden);
    let cut = Part::even(hidden, "embedder size");
    tower.plain_linear(Role::Tower, "embedding_projection", &[Part::whole(text)], cut, false);
}
