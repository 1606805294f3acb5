//! Vision towers and their projectors, as vLLM 0.33 builds them beside the decoder. They sit on the first pipeline stage.

use super::super::build::Layer;
use super::super::reader::{Config, MAX_LAYERS};
use super::{Body, Context};
use crate::planner::model::ledger::{Buffer, Cut, Part, Role};

/// Add the tower of a wrapper architecture to the head of its decoder.
pub fn add<'c>(context: &Context<'c>, body: &mut Body<'c>) {
    let tower = match context.architecture {
        "Gemma3ForConditionalGeneration" => siglip(context, body.hidden),
        "Qwen2_5_VLForConditionalGeneration" => qwen2_5(context),
        "Qwen3VLForConditionalGeneration"
        | "Qwen3VLMoeForConditionalGeneration"
        | "Qwen3_5ForConditionalGeneration"
        | "Qwen3_5MoeForConditionalGeneration" => qwen3(context),
        "Llama4ForConditionalGeneration" => llama4(context, body.hidden),
        "Mistral3ForConditionalGeneration" => pixtral(context, body.hidden),
        "KimiK25ForConditionalGeneration" | "KimiK3ForConditionalGeneration" => moon(context, body.hidden),
        "MiniMaxM3SparseForConditionalGeneration" => minimax(context, body.hidden),
        "Gemma4ForConditionalGeneration" => gemma4(context, body.hidden),
        _ => return,
    };
    match tower {
        Some(tower) => {
            body.head.tensors.extend(tower.tensors);
            body.head.buffers.extend(tower.buffers);
        }
        None => {
            context.config.note("the file has no vision_config: the vision tower is left out of the weights");
        }
    }
}

/// Sizes that most towers name alike.
struct Sizes {
    layers: u64,
    hidden: u64,
    heads: u64,
    width: u64,
    patch: u64,
    channels: u64,
}

impl Sizes {
    fn of(vision: &Config<'_>) -> Self {
        Self {
            layers: vision.size_within(&["num_hidden_layers", "depth", "vt_num_hidden_layers"], MAX_LAYERS),
            hidden: vision.size(&["hidden_size", "vt_hidden_size", "embed_dim"]),
            heads: vision.size(&["num_attention_heads", "num_heads", "vt_num_attention_heads"]),
            width: vision.size(&["intermediate_size", "vt_intermediate_size"]),
            patch: vision.size(&["patch_size"]),
            channels: vision.size_or(&["num_channels", "in_channels", "in_chans"], 3),
        }
    }

    /// Features of one square patch.
    const fn patch_features(&self) -> u64 {
        self.channels.saturating_mul(self.patch).saturating_mul(self.patch)
    }
}

/// How features of a tower are cut.
#[derive(Clone, Copy)]
enum Cutting {
    /// Over the TP ranks.
    Even,
    /// Whole on every rank unless the ranks divide this many heads.
    ByHeads(u64),
    /// Whole on every rank.
    Whole,
}

impl Cutting {
    fn features(self, size: u64, what: &'static str) -> Part {
        match self {
            Self::Even => Part::even(size, what),
            Self::ByHeads(heads) => Part { size, cut: Cut::UnitsIfDivides { units: size, heads }, what },
            Self::Whole => Part::whole(size),
        }
    }

    fn heads(self, heads: u64, width: u64) -> Part {
        let size = heads.saturating_mul(width);
        match self {
            Self::Even => Part::units(heads, width, "vision heads"),
            Self::ByHeads(of) => {
                Part { size, cut: Cut::UnitsIfDivides { units: heads, heads: of }, what: "vision heads" }
            }
            Self::Whole => Part::whole(size),
        }
    }
}

/// The block of a tower.
struct Block {
    /// Width of queries, keys and values together over all heads.
    attention_width: u64,
    attention_bias: bool,
    gated: bool,
    mlp_bias: bool,
    /// Norms over the hidden size, and whether they have a bias.
    norms: u64,
    norm_bias: bool,
    /// Norms of one head's size on queries and keys.
    qk_norm: bool,
}

/// The repeated blocks of a tower as tensors with `layers` copies.
fn blocks(tower: &mut Layer<'_>, sizes: &Sizes, block: &Block, cutting: Cutting) {
    let from = tower.tensors.len();
    let hidden = Part::whole(sizes.hidden);
    let head = block.attention_width.checked_div(sizes.heads).unwrap_or(0);
    let heads = cutting.heads(sizes.heads, head);
    tower.linear(Role::Tower, "blocks.0.attn.qkv_proj", &[heads, heads, heads], hidden, block.attention_bias);
    tower.linear(Role::Tower, "blocks.0.attn.o_proj", &[hidden], heads, false);
    if block.attention_bias {
        tower.vector(Role::Tower, "blocks.0.attn.o_proj.bias", &[hidden]);
    }
    let width = cutting.features(sizes.width, "vision intermediate size");
    let up: &[Part] = if block.gated { &[width, width] } else { &[width] };
    tower.linear(Role::Tower, "blocks.0.mlp.up_proj", up, hidden, block.mlp_bias);
    tower.linear(Role::Tower, "blocks.0.mlp.down_proj", &[hidden], width, block.mlp_bias);
    for _ in 0..block.norms.min(4) {
        tower.layer_norm("blocks.0.norm", sizes.hidden, block.norm_bias);
    }
    if block.qk_norm {
        tower.norm("blocks.0.q_norm", head);
        tower.norm("blocks.0.k_norm", head);
    }
    for tensor in tower.tensors.iter_mut().skip(from) {
        tensor.copies = sizes.layers;
    }
}

/// A buffer of the tower.
fn buffer(tower: &mut Layer<'_>, bytes: u64) {
    tower.buffers.push(Buffer { name: "".into(), bytes, with_experts_dealt: false });
}

/// SigLIP with Gemma 3's projector.
fn siglip<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
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
    let block = Block {
        attention_width: sizes.hidden,
        attention_bias: true,
        gated: false,
        mlp_bias: true,
        norms: 2,
        norm_bias: true,
        qk_norm: false,
    };
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

/// A merger of patches: norm, square layer, output layer.
fn merger(tower: &mut Layer<'_>, merged: u64, out: u64, norm: u64, norm_bias: bool) {
    let part = Part::even(merged, "vision merger size");
    tower.layer_norm("merger.norm", norm, norm_bias);
    tower.linear(Role::Tower, "merger.linear_fc1", &[part], Part::whole(merged), true);
    tower.linear(Role::Tower, "merger.linear_fc2", &[Part::whole(out)], part, false);
    tower.vector(Role::Tower, "merger.linear_fc2.bias", &[Part::whole(out)]);
}

/// The rotary table of a tower: half of a head over 8192 positions.
fn half_rope(tower: &mut Layer<'_>, sizes: &Sizes) {
    let features = sizes.hidden.checked_div(sizes.heads).unwrap_or(0) / 2;
    let bytes = features.saturating_mul(8192).saturating_mul(tower.dtype().bytes());
    buffer(tower, bytes);
}

/// Qwen2.5-VL.
fn qwen2_5<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "visual", false);
    let frames = vision.size_or(&["temporal_patch_size"], 2);
    let merge = vision.size_or(&["spatial_merge_size"], 2);
    let features = sizes.patch_features().saturating_mul(frames);
    tower.plain_linear(
        Role::Tower,
        "patch_embed",
        &[Part::whole(sizes.hidden)],
        Part::whole(features),
        false,
    );
    let block = Block {
        attention_width: sizes.hidden,
        attention_bias: true,
        gated: true,
        mlp_bias: true,
        norms: 2,
        norm_bias: false,
        qk_norm: false,
    };
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let merged = sizes.hidden.saturating_mul(merge).saturating_mul(merge);
    merger(&mut tower, merged, vision.size(&["out_hidden_size"]), sizes.hidden, false);
    half_rope(&mut tower, &sizes);
    Some(tower)
}

/// Qwen3-VL and Qwen3.5.
fn qwen3<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "visual", false);
    let frames = vision.size_or(&["temporal_patch_size"], 2);
    let merge = vision.size_or(&["spatial_merge_size"], 2);
    let features = sizes.patch_features().saturating_mul(frames);
    tower.plain_linear(Role::Tower, "patch_embed", &[Part::whole(sizes.hidden)], Part::whole(features), true);
    let positions = vision.size(&["num_position_embeddings"]);
    tower.table(Role::Tower, "pos_embed", Part::whole(positions), Part::whole(sizes.hidden));
    let block = Block {
        attention_width: sizes.hidden,
        attention_bias: true,
        gated: false,
        mlp_bias: true,
        norms: 2,
        norm_bias: true,
        qk_norm: false,
    };
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let merged = sizes.hidden.saturating_mul(merge).saturating_mul(merge);
    let out = vision.size(&["out_hidden_size"]);
    merger(&mut tower, merged, out, sizes.hidden, true);
    let taps = vision.list(&["deepstack_visual_indexes"]).map_or(0, <[_]>::len);
    for _ in 0..taps.min(64) {
        merger(&mut tower, merged, out, merged, true);
    }
    half_rope(&mut tower, &sizes);
    Some(tower)
}

/// Llama 4: a file may leave all of its sizes to the class.
#[expect(clippy::unnecessary_wraps, reason = "one signature for every tower")]
fn llama4<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let empty = context.top.section("vision_config", false);
    if empty.is_none() {
        context
            .config
            .note("the file has no vision_config: the vision tower is of the class's default sizes");
    }
    let size =
        |names: &[&str], default| empty.as_ref().map_or(default, |vision| vision.size_or(names, default));
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
    let block = Block {
        attention_width: sizes.hidden,
        attention_bias: true,
        gated: false,
        mlp_bias: true,
        norms: 2,
        norm_bias: true,
        qk_norm: false,
    };
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
    Some(tower)
}

/// Pixtral with Mistral 3's projector.
fn pixtral<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
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
        vision.opt(&["head_dim"]).unwrap_or_else(|| sizes.hidden.checked_div(sizes.heads).unwrap_or(0));
    let block = Block {
        attention_width: head.saturating_mul(sizes.heads),
        attention_bias: false,
        gated: true,
        mlp_bias: false,
        norms: 2,
        norm_bias: false,
        qk_norm: false,
    };
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let top = context.top;
    let merge = top.size_or(&["spatial_merge_size"], 2);
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

/// MoonViT of Kimi K2.5 and K3; quantisation leaves it alone.
fn moon<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
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
        attention_width: vision.opt(&["qkv_hidden_size"]).unwrap_or(sizes.hidden),
        attention_bias: vision.flag(&["attn_bias"], older),
        gated: false,
        mlp_bias: vision.flag(&["linear_bias"], true),
        norms: 2,
        norm_bias,
        qk_norm: false,
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
    // sines of the frame positions in fp32
    let frames = vision.size_or(&["init_pos_emb_time"], 4);
    buffer(&mut tower, sizes.hidden.saturating_mul(frames).saturating_mul(4));
    Some(tower)
}

/// Gemma 4: the transformers class, whole on every rank.
fn gemma4<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
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
        vision.opt(&["head_dim"]).unwrap_or_else(|| sizes.hidden.checked_div(sizes.heads).unwrap_or(0));
    let block = Block {
        attention_width: head.saturating_mul(sizes.heads),
        attention_bias: vision.flag(&["attention_bias"], false),
        gated: true,
        mlp_bias: false,
        norms: 4,
        norm_bias: false,
        qk_norm: true,
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

/// CLIP with rotary positions, a projector and a merger of patches (MiniMax M3).
fn minimax<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let vision = context.top.section("vision_config", false)?;
    let sizes = Sizes::of(&vision);
    let mut tower = Layer::tower(context.quantiser, "vision_tower", false);
    let compression = vision.section("img_token_compression_config", false);
    let size = |name: &str, default| {
        compression.as_ref().map_or(default, |section| section.size_or(&[name], default))
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
    let block = Block {
        attention_width: sizes.hidden,
        attention_bias: true,
        gated: false,
        mlp_bias: true,
        norms: 2,
        norm_bias: true,
        qk_norm: false,
    };
    blocks(&mut tower, &sizes, &block, Cutting::Even);
    let top = context.top;
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
