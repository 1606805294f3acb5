//! Towers that wrappers share by the kind their file names (CLIP, SigLIP, Pixtral), and the projectors of Llava, PaliGemma, Aya Vision and
//! SmolVLM (vLLM `models/llava*.py`, `paligemma.py`, `cohere2_vision.py`, `idefics3.py`).

use super::super::super::build::Layer;
use super::super::super::reader::{Config, MAX_LAYERS};
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks, buffer};
use crate::planner::model::ledger::{Part, Role};

/// Llava: a tower up to the deepest layer whose features are used, without its last norm, and two layers to the decoder's width.
pub(super) fn llava<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let taps = taps(context.top);
    let mut tower = shared_tower(context, &vision, deepest(&taps, &vision), false)?;
    let hidden = vision.size(&["hidden_size"]);
    let bias = context.top.flag(&["multimodal_projector_bias"], true);
    let joined = match context.architecture {
        "LlavaNextForConditionalGeneration" => hidden.saturating_mul(taps.len().try_into().unwrap_or(1)),
        _ => hidden,
    };
    let wide = [Part::whole(text)];
    match context.architecture {
        "LlavaForConditionalGeneration" | "LlavaNextForConditionalGeneration" => {
            let part = Part::even(text, "hidden size");
            let mut projector = Layer::tower(context.quantiser, "multi_modal_projector", false);
            projector.linear(Role::Tower, "linear_1", &[part], Part::whole(joined), bias);
            projector.linear(Role::Tower, "linear_2", &wide, part, bias);
            tower.tensors.extend(projector.tensors);
        }
        _ => {
            tower.plain_linear(Role::Tower, "projector.linear_1", &wide, Part::whole(joined), bias);
            tower.plain_linear(Role::Tower, "projector.linear_2", &wide, Part::whole(text), bias);
        }
    }
    if matches!(
        context.architecture,
        "LlavaNextForConditionalGeneration" | "LlavaOnevisionForConditionalGeneration"
    ) {
        tower.vector(Role::Tower, "image_newline", &wide);
    }
    Some(tower)
}

/// PaliGemma: SigLIP and one layer.
pub(super) fn pali<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let mut tower = shared_tower(context, &vision, None, true)?;
    let out = vision.opt_size(&["projection_dim"]).unwrap_or(2048);
    let hidden = Part::whole(vision.size(&["hidden_size"]));
    tower.plain_linear(Role::Tower, "projector.linear", &[Part::whole(out)], hidden, true);
    Some(tower)
}

/// Aya and Command-A Vision: SigLIP, squares of patches, and a gate between two layers that no quantisation touches.
pub(super) fn cohere<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let mut tower = shared_tower(context, &vision, None, true)?;
    let side = context.top.positive_or(&["downsample_factor"], 2);
    let merged = vision.size(&["hidden_size"]).saturating_mul(side).saturating_mul(side);
    let half = Part::even(
        context.top.positive_or(&["alignment_intermediate_size"], 36_864) / 2,
        "alignment intermediate size",
    );
    tower.plain_linear(Role::Tower, "projector.linear_1", &[half, half], Part::whole(merged), true);
    tower.plain_linear(Role::Tower, "projector.linear_2", &[Part::whole(text)], half, true);
    Some(tower)
}

/// Idefics 3 and SmolVLM: SigLIP's form with positions of patches as they fall, and one layer behind squares of them.
pub(super) fn idefics<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_model", false);
    patches(&mut tower, &vision, &sizes, 0, true);
    blocks(&mut tower, &sizes, &Block::plain(sizes.hidden), Cutting::Even);
    tower.layer_norm("post_layernorm", sizes.hidden, true);
    let side = context.top.positive_or(&["scale_factor"], 2);
    let merged = sizes.hidden.saturating_mul(side).saturating_mul(side);
    let mut connector = Layer::tower(context.quantiser, "connector", false);
    let out = [Part::whole(text)];
    connector.linear(Role::Tower, "modality_projection.proj", &out, Part::whole(merged), false);
    tower.tensors.extend(connector.tensors);
    Some(tower)
}

/// The tower that `vision_config` names by its kind; with its last norm where all layers are built and `normed`.
fn shared_tower<'c>(
    context: &Context<'c>,
    vision: &Config<'_>,
    used: Option<u64>,
    normed: bool,
) -> Option<Layer<'c>> {
    let mut sizes = Sizes::of(vision);
    let all = sizes.layers;
    sizes.layers = used.unwrap_or(all).min(MAX_LAYERS);
    if sizes.layers > all {
        context.top.refuse("vision_feature_layer", "out_of_range", format!("the tower has {all} layers"));
    }
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    let hidden = [Part::whole(sizes.hidden)];
    match vision.model_type {
        "clip_vision_model" => {
            tower.vector(Role::Tower, "class_embedding", &hidden);
            let positions = patches(&mut tower, vision, &sizes, 1, false);
            // positions as 64-bit integers
            buffer(&mut tower, positions.saturating_mul(8));
            tower.layer_norm("pre_layrnorm", sizes.hidden, true);
            blocks(&mut tower, &sizes, &Block::plain(sizes.hidden), Cutting::Even);
        }
        "siglip_vision_model" => {
            let positions = patches(&mut tower, vision, &sizes, 0, true);
            buffer(&mut tower, positions.saturating_mul(8));
            blocks(&mut tower, &sizes, &Block::plain(sizes.hidden), Cutting::Even);
        }
        "pixtral" => {
            let features = Part::whole(sizes.patch_features());
            tower.plain_linear(Role::Tower, "patch_conv", &hidden, features, false);
            tower.norm("ln_pre", sizes.hidden);
            blocks(&mut tower, &sizes, &Block::gated(sizes.hidden), Cutting::Even);
            // fp32 frequencies for half a head
            let head = sizes.hidden.checked_div(sizes.heads).unwrap_or(0);
            buffer(&mut tower, (head / 2).saturating_mul(4).saturating_mul(2));
            return Some(tower);
        }
        other => {
            let detail = format!("a tower of the kind `{other}` is not known here");
            vision.refuse("model_type", "unknown_layer", detail);
            return None;
        }
    }
    if normed && sizes.layers == all {
        tower.layer_norm("post_layernorm", sizes.hidden, true);
    }
    Some(tower)
}

/// The embedding of square patches, and their table of positions with `more` rows: how many rows it has.
fn patches(tower: &mut Layer<'_>, vision: &Config<'_>, sizes: &Sizes, more: u64, bias: bool) -> u64 {
    let features = Part::whole(sizes.patch_features());
    tower.plain_linear(Role::Tower, "patch_embedding", &[Part::whole(sizes.hidden)], features, bias);
    let side = vision.size(&["image_size"]).checked_div(sizes.patch).unwrap_or(0);
    let positions = side.saturating_mul(side).saturating_add(more);
    tower.table(Role::Tower, "position_embedding", Part::whole(positions), Part::whole(sizes.hidden));
    positions
}

/// Layers whose features the projector takes: `vision_feature_layer`, one or several; a negative one counts from the end.
fn taps(top: &Config<'_>) -> Vec<i64> {
    const NAME: &[&str] = &["vision_feature_layer"];
    match top.value(NAME) {
        Some((value, _)) if value.is_array() => {
            let listed = top.list(NAME).unwrap_or_default();
            let read: Vec<i64> = listed.iter().filter_map(serde_json::Value::as_i64).collect();
            if read.is_empty() || read.len() < listed.len() {
                top.refuse("vision_feature_layer", "wrong_type", "expected whole numbers");
                return vec![-1];
            }
            read
        }
        Some((value, _)) => match value.as_i64() {
            Some(layer) => vec![layer],
            None => {
                top.refuse("vision_feature_layer", "wrong_type", "expected a whole number or a list of them");
                vec![-1]
            }
        },
        // the classes of Llava and LlavaNext take the layer before the last, that of OneVision the last
        None if top.model_type == "llava_onevision" => vec![-1],
        None => vec![-2],
    }
}

/// How many layers are built: up to the deepest one that is used.
fn deepest(taps: &[i64], vision: &Config<'_>) -> Option<u64> {
    let layers = i64::try_from(vision.size_within(&["num_hidden_layers"], MAX_LAYERS)).unwrap_or(0);
    let from_start = |tap: i64| if tap < 0 { layers.saturating_add(tap).saturating_add(1) } else { tap };
    taps.iter().map(|tap| u64::try_from(from_start(*tap)).unwrap_or(0)).max()
}
