//! The tower of Phi-3-vision: CLIP in the one size that its class builds (vLLM `models/phi3v.py`).

use super::super::super::build::Layer;
use super::super::{Context, vocabulary_rows};
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// Sizes that the class fixes (`CLIP_VIT_LARGE_PATCH14_336_CONFIG`).
const CLIP: Sizes = Sizes { layers: 24, hidden: 1024, heads: 16, width: 4096, patch: 14, channels: 3 };
const IMAGE_SIDE: u64 = 336;

/// CLIP up to the layer that is used, separators of lines and images, two layers to the decoder's width, and a token table of the
/// class's own beside the decoder's.
pub(super) fn vision<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let image = context.top.section("img_processor", false)?;
    let layer = image.real(&["layer_idx"]).unwrap_or(-2.0);
    let mut sizes = CLIP;
    sizes.layers = built(layer, CLIP.layers);
    let mut tower = Layer::tower(context.quantiser, "vision_embed_tokens", false);
    let side = IMAGE_SIDE / CLIP.patch;
    let positions = side.saturating_mul(side).saturating_add(1);
    let hidden = Part::whole(sizes.hidden);
    tower.vector(Role::Tower, "class_embedding", &[hidden]);
    let features = Part::whole(sizes.patch_features());
    tower.plain_linear(Role::Tower, "patch_embedding", &[hidden], features, false);
    tower.table(Role::Tower, "position_embedding", Part::whole(positions), hidden);
    buffer(&mut tower, positions.saturating_mul(8));
    tower.layer_norm("pre_layrnorm", sizes.hidden, true);
    blocks(&mut tower, &sizes, &Block::plain(sizes.hidden), Cutting::Even);
    if sizes.layers == CLIP.layers {
        tower.layer_norm("post_layernorm", sizes.hidden, true);
    }
    let merged = Part::whole(image.size(&["image_dim_out"]).saturating_mul(4));
    tower.vector(Role::Tower, "glb_GN", &[merged]);
    tower.vector(Role::Tower, "sub_GN", &[merged]);
    let wide = [Part::whole(text)];
    tower.plain_linear(Role::Tower, "img_projection.0", &wide, merged, true);
    tower.plain_linear(Role::Tower, "img_projection.2", &wide, Part::whole(text), true);
    let rows = vocabulary_rows(context.vocabulary());
    tower.table(Role::Tower, "embed_tokens", rows, Part::whole(text));
    tower.duplicate_last();
    Some(tower)
}

/// Layers up to the one that is used: a negative index counts from the end.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "at most 24, and `as` saturates"
)]
fn built(layer: f64, all: u64) -> u64 {
    let built = if layer < 0.0 { all as f64 + layer + 1.0 } else { layer + 1.0 };
    (built.max(0.0) as u64).min(all)
}
