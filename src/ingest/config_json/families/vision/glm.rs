//! The tower of GLM-4.1V, GLM-4.5V and GLM-4.6V (`models/glm4_1v.py`).

use super::super::super::build::Layer;
use super::super::Context;
use super::qwen::{half_rope, neighbours, patch_embed};
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// Its blocks are as wide inside as the output; the merger as wide as the file's `intermediate_size`.
pub(super) fn glm4<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "visual", false);
    let out = vision.size(&["out_hidden_size"]);
    let hidden = Part::whole(sizes.hidden);
    patch_embed(&mut tower, &vision, &sizes, true);
    let side = vision.size(&["image_size"]).checked_div(sizes.patch).unwrap_or(0);
    let positions = side.saturating_mul(side);
    tower.table(Role::Tower, "position_embedding", Part::whole(positions), hidden);
    tower.norm("post_conv_layernorm", sizes.hidden);
    let block = Block::gated(sizes.hidden);
    let inner = Sizes { width: out, ..sizes };
    blocks(&mut tower, &inner, &block, Cutting::Even);
    tower.norm("post_layernorm", sizes.hidden);
    let neighbours = Part::whole(neighbours(&vision, &sizes));
    let wide = [Part::whole(out)];
    tower.plain_linear(Role::Tower, "downsample", &wide, neighbours, true);
    let cut = [Part::even(out, "vision merger size")];
    tower.linear(Role::Tower, "merger.proj", &cut, Part::whole(out), false);
    tower.layer_norm("merger.post_projection_norm", out, true);
    let width = Part::even(sizes.width, "vision merger width");
    tower.linear(Role::Tower, "merger.gate_up_proj", &[width, width], Part::whole(out), false);
    tower.linear(Role::Tower, "merger.down_proj", &wide, width, false);
    half_rope(&mut tower, &sizes);
    // numbers of the positions as 64-bit integers
    buffer(&mut tower, positions.saturating_mul(8));
    Some(tower)
}
