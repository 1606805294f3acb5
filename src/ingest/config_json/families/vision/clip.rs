//! Towers close to CLIP: of Llama 4, Pixtral and MiniMax M3.

use super::super::super::build::Layer;
use super::super::super::reader::MAX_LAYERS;
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// Llama 4: a file may leave all of its sizes to the class.
pub(super) fn llama4<'c>(context: &Context<'c>, text: u64) -> Layer<'c> {
    let empty = context.top.section("vision_config", false);
    if empty.is_none() {
        context
            .config
            .note("the file has no vision_config: the vision tower is of the class's default sizes");
    }
    let size =
        |names: &[&str], default| empty.as_ref().map_or(default, |vision| vision.positive_or(names, default));
    let sizes = Sizes {
        layers: size(&["num_hidden_layers"], 34).min(MAX_LAYERS),
        hidden: size(&["hidden_size"], 768),
        heads: size(&["num_attention_heads"], 16),
        width: size(&["intermediate_size"], 5632),
        patch: size(&["patch_size"], 14),
        channels: size(&["num_channels"], 3),
    };
    let side = size(&["image_size"], 448).checked_div(sizes.patch).unwrap_or(0);
    let positions = side.saturating_mul(side).saturating_add(1);
    let mut tower = Layer::tower(context.quantiser, "vision_model", false);
    let hidden = [Part::even(sizes.hidden, "vision hidden size")];
    tower.linear(Role::Tower, "patch_embedding.linear", &hidden, Part::whole(sizes.patch_features()), false);
    tower.vector(Role::Tower, "class_embedding", &[Part::whole(sizes.hidden)]);
    tower.table(Role::Tower, "positional_embedding_vlm", Part::whole(positions), Part::whole(sizes.hidden));
    let block = Block::plain(sizes.hidden);
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    tower.layer_norm("layernorm_pre", sizes.hidden, true);
    tower.layer_norm("layernorm_post", sizes.hidden, true);
    let inner = Part::even(size(&["projector_input_dim"], 4096), "projector size");
    let out = size(&["projector_output_dim"], 4096);
    tower.linear(Role::Tower, "vision_adapter.mlp.fc1", &[inner], Part::whole(sizes.width), false);
    tower.linear(Role::Tower, "vision_adapter.mlp.fc2", &[Part::whole(out)], inner, false);
    let projected = [Part::even(text, "hidden size")];
    tower.linear(
        Role::Tower,
        "multi_modal_projector.linear_1",
        &projected,
        Part::whole(size(&["vision_output_dim"], 7680)),
        false,
    );
    // complex numbers for half a head at each position
    let half = sizes.hidden.checked_div(sizes.heads).unwrap_or(0) / 2;
    buffer(&mut tower, positions.saturating_mul(half).saturating_mul(8));
    tower
}

/// Pixtral with Mistral 3's projector.
pub(super) fn pixtral<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    tower.plain_linear(
        Role::Tower,
        "patch_conv",
        &[Part::whole(sizes.hidden)],
        Part::whole(sizes.patch_features()),
        false,
    );
    tower.norm("ln_pre", sizes.hidden);
    let head =
        vision.opt_size(&["head_dim"]).unwrap_or_else(|| sizes.hidden.checked_div(sizes.heads).unwrap_or(0));
    let block = Block::gated(head.saturating_mul(sizes.heads));
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let top = context.top;
    let merge = top.positive_or(&["spatial_merge_size"], 2);
    let merged = sizes.hidden.saturating_mul(merge).saturating_mul(merge);
    tower.norm("projector.norm", sizes.hidden);
    tower.plain_linear(Role::Tower, "patch_merger", &[Part::whole(sizes.hidden)], Part::whole(merged), false);
    let bias = top.flag(&["multimodal_projector_bias"], false);
    let part = Part::even(text, "hidden size");
    let mut projector = Layer::tower(context.quantiser, "multi_modal_projector", false);
    projector.linear(Role::Tower, "linear_1", &[part], Part::whole(sizes.hidden), bias);
    projector.linear(Role::Tower, "linear_2", &[Part::whole(text)], part, bias);
    tower.tensors.extend(projector.tensors);
    buffer(&mut tower, head.saturating_mul(4));
    Some(tower)
}

/// CLIP with rotary positions, a projector and a merger of patches (MiniMax M3).
pub(super) fn minimax<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    let compression = vision.section("img_token_compression_config", false);
    let size = |name: &str, default| {
        compression.as_ref().map_or(default, |section| section.positive_or(&[name], default))
    };
    let (frames, merge) = (size("temporal_patch_size", 2), size("spatial_merge_size", 2));
    let features = sizes.patch_features().saturating_mul(frames);
    tower.plain_linear(
        Role::Tower,
        "patch_embedding",
        &[Part::whole(sizes.hidden)],
        Part::whole(features),
        false,
    );
    tower.layer_norm("pre_layrnorm", sizes.hidden, true);
    let block = Block::plain(sizes.hidden);
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let top = context.top;
    // the class takes a size of 0 as the decoder's
    let middle =
        Part::even(top.opt(&["projector_hidden_size"]).filter(|n| *n > 0).unwrap_or(text), "projector size");
    let bias = top.flag(&["multimodal_projector_bias"], true);
    let merged = Part::whole(text.saturating_mul(merge).saturating_mul(merge));
    for (input, bias) in [(Part::whole(sizes.hidden), bias), (merged, top.flag(&["patch_merge_bias"], true))]
    {
        tower.linear(Role::Tower, "projector.linear_1", &[middle], input, bias);
        tower.linear(Role::Tower, "projector.linear_2", &[Part::whole(text)], middle, false);
        if bias {
            tower.vector(Role::Tower, "projector.linear_2.bias", &[Part::whole(text)]);
        }
    }
    Some(tower)
}
