//! Towers (vision, audio) and their projectors, as vLLM 0.33 builds them beside the decoder. They sit on the first pipeline stage.

mod audio;
mod clip;
mod gemma;
mod glm;
mod intern;
mod llava;
mod moon;
mod phi;
mod qwen;

use super::super::build::Layer;
use super::super::reader::{Config, MAX_LAYERS, MAX_SIZE};
use super::{Body, Context};
use crate::planner::model::ledger::{Buffer, Cut, Part, Role};

/// Add the towers of a wrapper architecture to the head of its decoder.
pub fn add<'c>(context: &Context<'c>, body: &mut Body<'c>) {
    let towers =
        [("vision_config", seen(context, body.hidden)), ("audio_config", heard(context, body.hidden))];
    for (section, tower) in towers {
        match tower {
            Tower::Without => {}
            Tower::Built(tower) => {
                body.head.tensors.extend(tower.tensors);
                body.head.buffers.extend(tower.buffers);
            }
            Tower::Unsaid => {
                let sense = section.trim_end_matches("_config");
                context
                    .config
                    .note(format!("the file has no {section}: the {sense} tower is left out of the weights"));
            }
        }
    }
}

/// What an architecture has of one sense.
enum Tower<'q> {
    /// Its class has none.
    Without,
    /// Its class has one, and the file does not say its sizes.
    Unsaid,
    Built(Layer<'q>),
}

impl<'q> From<Option<Layer<'q>>> for Tower<'q> {
    fn from(built: Option<Layer<'q>>) -> Self {
        built.map_or(Self::Unsaid, Self::Built)
    }
}

/// The tower for images and films; `text` is the decoder's width.
fn seen<'c>(context: &Context<'c>, text: u64) -> Tower<'c> {
    match context.architecture {
        "Cohere2VisionForConditionalGeneration" => llava::cohere(context, text).into(),
        "Gemma3ForConditionalGeneration" => gemma::gemma3(context, text).into(),
        "Gemma3nForConditionalGeneration" => gemma::gemma3n(context, text).into(),
        "Gemma4ForConditionalGeneration" => gemma::gemma4(context, text).into(),
        "Glm4vForConditionalGeneration" | "Glm4vMoeForConditionalGeneration" => glm::glm4(context).into(),
        "Idefics3ForConditionalGeneration" | "SmolVLMForConditionalGeneration" => {
            llava::idefics(context, text).into()
        }
        "InternVLChatModel" => intern::chat(context, text).into(),
        "InternVLForConditionalGeneration" | "InternS1ForConditionalGeneration" => {
            intern::of_transformers(context, text).into()
        }
        "KimiK25ForConditionalGeneration"
        | "KimiK3ForConditionalGeneration"
        | "KimiVLForConditionalGeneration" => moon::moon(context, text).into(),
        "Llama4ForConditionalGeneration" => Tower::Built(clip::llama4(context, text)),
        "LlavaForConditionalGeneration"
        | "LlavaNextForConditionalGeneration"
        | "LlavaNextVideoForConditionalGeneration"
        | "LlavaOnevisionForConditionalGeneration" => llava::llava(context, text).into(),
        "MiniMaxM3SparseForConditionalGeneration" => clip::minimax(context, text).into(),
        "Mistral3ForConditionalGeneration" => clip::pixtral(context, text).into(),
        "PaliGemmaForConditionalGeneration" => llava::pali(context).into(),
        "Phi3VForCausalLM" => phi::vision(context, text).into(),
        "Qwen2VLForConditionalGeneration" => qwen::qwen2(context).into(),
        "Qwen2_5_VLForConditionalGeneration" | "Qwen2_5OmniModel" | "Qwen2_5OmniForConditionalGeneration" => {
            qwen::qwen2_5(context).into()
        }
        "Qwen3VLForConditionalGeneration"
        | "Qwen3VLMoeForConditionalGeneration"
        | "Qwen3_5ForConditionalGeneration"
        | "Qwen3_5MoeForConditionalGeneration"
        | "Qwen3OmniMoeForConditionalGeneration" => qwen::qwen3(context).into(),
        _ => Tower::Without,
    }
}

/// The tower for sound.
fn heard<'c>(context: &Context<'c>, text: u64) -> Tower<'c> {
    match context.architecture {
        "Gemma3nForConditionalGeneration" => audio::gemma3n(context, text).into(),
        // some sizes of Gemma 4 have none
        "Gemma4ForConditionalGeneration" => audio::gemma4(context, text).map_or(Tower::Without, Tower::Built),
        "Qwen2AudioForConditionalGeneration" => audio::qwen2(context, text).into(),
        "Qwen2_5OmniModel" | "Qwen2_5OmniForConditionalGeneration" => audio::omni2(context).into(),
        "Qwen3OmniMoeForConditionalGeneration" => audio::omni3(context).into(),
        _ => Tower::Without,
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
            patch: patch_side(vision),
            channels: vision.positive_or(&["num_channels", "in_channels", "in_chans"], 3),
        }
    }

    /// Features of one square patch.
    const fn patch_features(&self) -> u64 {
        self.channels.saturating_mul(self.patch).saturating_mul(self.patch)
    }
}

/// The side of a patch, which files of transformers' towers give for height and width.
fn patch_side(vision: &Config<'_>) -> u64 {
    match vision.value(&["patch_size"]) {
        Some((value, _)) if value.is_array() => {
            let sides = vision.numbers(&["patch_size"], MAX_SIZE).unwrap_or_default();
            match sides.as_slice() {
                [height, width] if height == width && *height > 0 => *height,
                _ => {
                    vision.refuse("patch_size", "not_allowed", "expected one size, or two that are equal");
                    1
                }
            }
        }
        _ => vision.size(&["patch_size"]),
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

impl Block {
    /// A vision transformer's first form: biases everywhere, no gate, layer norms.
    const fn plain(attention_width: u64) -> Self {
        Self {
            attention_width,
            attention_bias: true,
            gated: false,
            mlp_bias: true,
            norms: 2,
            norm_bias: true,
            qk_norm: false,
        }
    }

    /// The form of decoders: a gate, no biases, norms without a bias.
    const fn gated(attention_width: u64) -> Self {
        Self {
            attention_bias: false,
            gated: true,
            mlp_bias: false,
            norm_bias: false,
            ..Self::plain(attention_width)
        }
    }
}

/// The repeated blocks of a tower as tensors with `layers` copies.
fn blocks(tower: &mut Layer<'_>, sizes: &Sizes, block: &Block, cutting: Cutting) {
    blocks_cut(tower, sizes, block, cutting, cutting);
}

/// What `add` gives to the tower stands in each of its blocks.
fn in_each_block(tower: &mut Layer<'_>, sizes: &Sizes, add: impl FnOnce(&mut Layer<'_>)) {
    let from = tower.tensors.len();
    add(tower);
    for tensor in tower.tensors.iter_mut().skip(from) {
        tensor.copies = sizes.layers;
    }
}

/// As [`blocks`], with attention and feed-forward block cut apart.
fn blocks_cut(
    tower: &mut Layer<'_>,
    sizes: &Sizes,
    block: &Block,
    attention: Cutting,
    feed_forward: Cutting,
) {
    in_each_block(tower, sizes, |tower| one_block(tower, sizes, block, attention, feed_forward));
}

fn one_block(tower: &mut Layer<'_>, sizes: &Sizes, block: &Block, attention: Cutting, feed_forward: Cutting) {
    let hidden = Part::whole(sizes.hidden);
    let head = block.attention_width.checked_div(sizes.heads).unwrap_or(0);
    let heads = attention.heads(sizes.heads, head);
    tower.linear(Role::Tower, "blocks.0.attn.qkv_proj", &[heads, heads, heads], hidden, block.attention_bias);
    tower.linear(Role::Tower, "blocks.0.attn.o_proj", &[hidden], heads, false);
    if block.attention_bias {
        tower.vector(Role::Tower, "blocks.0.attn.o_proj.bias", &[hidden]);
    }
    let width = feed_forward.features(sizes.width, "vision intermediate size");
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
}

/// A buffer of the tower.
fn buffer(tower: &mut Layer<'_>, bytes: u64) {
    tower.buffers.push(Buffer { name: "".into(), bytes, with_experts_dealt: false });
}
