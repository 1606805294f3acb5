//! The tower of Kimi.

use super::super::super::build::Layer;
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// MoonViT of Kimi-VL, K2.5 and K3; quantisation leaves it alone.
pub(super) fn moon<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", true);
    let hidden = Part::whole(sizes.hidden);
    let embed_bias = vision.flag(&["patch_embed_proj_bias"], true);
    tower.plain_linear(
        Role::Tower,
        "patch_embed",
        &[hidden],
        Part::whole(sizes.patch_features()),
        embed_bias,
    );
    let (height, width) = (vision.size(&["init_pos_emb_height"]), vision.size(&["init_pos_emb_width"]));
    tower.table(Role::Tower, "pos_emb", Part::whole(height.saturating_mul(width)), hidden);
    let norm_bias = vision.text(&["norm_type"]).unwrap_or("layernorm") == "layernorm";
    // the first form of the tower has biases everywhere and no field for them
    let older = vision.value(&["attn_bias"]).is_none();
    let block = Block {
        attention_bias: vision.flag(&["attn_bias"], older),
        mlp_bias: vision.flag(&["linear_bias"], true),
        norm_bias,
        ..Block::plain(vision.opt_size(&["qkv_hidden_size"]).unwrap_or(sizes.hidden))
    };
    blocks(&mut tower, &sizes, &block, Cutting::ByHeads(sizes.heads));
    tower.layer_norm("final_layernorm", sizes.hidden, norm_bias);
    let merge = vision.numbers(&["merge_kernel_size"], 1 << 10).unwrap_or_else(|| vec![2, 2]);
    let merged = merge.iter().fold(sizes.hidden, |size, n| size.saturating_mul(*n));
    let second = vision.text(&["mm_projector_type"]) == Some("patchmergerv2");
    tower.plain_linear(
        Role::Tower,
        "mm_projector.linear_1",
        &[Part::whole(merged)],
        Part::whole(merged),
        !second,
    );
    tower.plain_linear(
        Role::Tower,
        "mm_projector.linear_2",
        &[Part::whole(text)],
        Part::whole(merged),
        !second,
    );
    if second {
        tower.norm("mm_projector.post_norm", text);
    } else {
        tower.layer_norm("mm_projector.pre_norm", sizes.hidden, true);
    }
    if context.architecture != "KimiVLForConditionalGeneration" {
        // sines of the frame positions in fp32; Kimi-VL has no frames
        let frames = vision.positive_or(&["init_pos_emb_time"], 4);
        buffer(&mut tower, sizes.hidden.saturating_mul(frames).saturating_mul(4));
    }
    Some(tower)
}
