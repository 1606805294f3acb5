//! Towers that hear: Whisper's encoder as Qwen's audio and Omni models carry it (vLLM `models/qwen2_audio.py`,
//! `qwen2_5_omni_thinker.py`, `qwen3_omni_moe_thinker.py`), and Gemma's conformer (the transformers classes).

use super::super::super::build::Layer;
use super::super::super::reader::{Config, MAX_LAYERS, MAX_SIZE};
use super::super::Context;
use super::{Block, Cutting, Sizes, blocks, buffer, gemma, in_each_block};
use crate::planner::model::ledger::{Part, Role};

/// Sizes as Whisper's files name them.
fn sizes_of(audio: &Config<'_>) -> Sizes {
    Sizes {
        layers: audio.size_within(&["encoder_layers", "num_hidden_layers"], MAX_LAYERS),
        hidden: audio.size(&["d_model", "hidden_size"]),
        heads: audio.size(&["encoder_attention_heads", "num_attention_heads"]),
        width: audio.size(&["encoder_ffn_dim", "intermediate_size"]),
        patch: 1,
        channels: 1,
    }
}

/// The two convolutions over three frames each, from the spectrum's bands to the encoder's width.
fn two_convolutions(tower: &mut Layer<'_>, audio: &Config<'_>, hidden: u64) {
    let bands = audio.size(&["num_mel_bins"]);
    let out = [Part::whole(hidden)];
    tower.plain_linear(Role::Tower, "conv1", &out, Part::whole(bands.saturating_mul(3)), true);
    tower.plain_linear(Role::Tower, "conv2", &out, Part::whole(hidden.saturating_mul(3)), true);
}

/// The blocks of the transformers class: whole on every rank, keys without a bias.
fn whole_blocks(tower: &mut Layer<'_>, sizes: &Sizes) {
    let block = Block { attention_bias: false, ..Block::plain(sizes.hidden) };
    blocks(tower, sizes, &block, Cutting::Whole);
    in_each_block(tower, sizes, |tower| {
        let hidden = Part::whole(sizes.hidden);
        tower.vector(Role::Tower, "blocks.0.attn.q_v_o_proj.bias", &[hidden, hidden, hidden]);
    });
}

/// Qwen2-Audio: positions as a table of weights, one layer to the decoder's width.
pub(super) fn qwen2<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let audio = context.top.section("audio_config", false)?;
    let sizes = sizes_of(&audio);
    let mut tower = Layer::tower(context.quantiser, "audio_tower", true);
    two_convolutions(&mut tower, &audio, sizes.hidden);
    let (rows, hidden) = (audio.size(&["max_source_positions"]), Part::whole(sizes.hidden));
    tower.table(Role::Tower, "embed_positions", Part::whole(rows), hidden);
    whole_blocks(&mut tower, &sizes);
    tower.layer_norm("layer_norm", sizes.hidden, true);
    tower.plain_linear(Role::Tower, "projector.linear", &[Part::whole(text)], hidden, true);
    Some(tower)
}

/// Qwen2.5-Omni: positions as a buffer, marks of start and end.
pub(super) fn omni2<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let audio = context.beside_text("audio_config")?;
    let sizes = sizes_of(&audio);
    let mut tower = Layer::tower(context.quantiser, "audio_tower", true);
    two_convolutions(&mut tower, &audio, sizes.hidden);
    let (out, hidden) = (Part::whole(audio.size(&["output_dim"])), Part::whole(sizes.hidden));
    tower.table(Role::Tower, "audio_bos_eos_token", Part::whole(2), out);
    whole_blocks(&mut tower, &sizes);
    tower.layer_norm("ln_post", sizes.hidden, true);
    tower.plain_linear(Role::Tower, "proj", &[out], hidden, true);
    sinusoids(&mut tower, &audio, &sizes);
    Some(tower)
}

/// Qwen3-Omni: three convolutions over both axes, blocks cut where the ranks divide the heads.
pub(super) fn omni3<'c>(context: &Context<'c>) -> Option<Layer<'c>> {
    let audio = context.beside_text("audio_config")?;
    let sizes = sizes_of(&audio);
    let mut tower = Layer::tower(context.quantiser, "audio_tower", true);
    let middle = audio.size(&["downsample_hidden_size"]);
    let channels = [Part::whole(middle)];
    tower.plain_linear(Role::Tower, "conv2d1", &channels, Part::whole(9), true);
    for name in ["conv2d2", "conv2d3"] {
        tower.plain_linear(Role::Tower, name, &channels, Part::whole(middle.saturating_mul(9)), true);
    }
    // each convolution halves the bands
    let bands = (0..3).fold(audio.size(&["num_mel_bins"]), |bands, _| bands.saturating_add(1) / 2);
    let hidden = Part::whole(sizes.hidden);
    tower.plain_linear(Role::Tower, "conv_out", &[hidden], Part::whole(middle.saturating_mul(bands)), false);
    blocks(&mut tower, &sizes, &Block::plain(sizes.hidden), Cutting::ByHeads(sizes.heads));
    tower.layer_norm("ln_post", sizes.hidden, true);
    tower.plain_linear(Role::Tower, "proj1", &[hidden], hidden, true);
    tower.plain_linear(Role::Tower, "proj2", &[Part::whole(audio.size(&["output_dim"]))], hidden, true);
    sinusoids(&mut tower, &audio, &sizes);
    Some(tower)
}

/// Sines of the positions in fp32.
fn sinusoids(tower: &mut Layer<'_>, audio: &Config<'_>, sizes: &Sizes) {
    let rows = audio.size(&["max_source_positions"]);
    buffer(tower, rows.saturating_mul(sizes.hidden).saturating_mul(4));
}

/// The conformer of Gemma: what its two generations have alike.
struct Conformer {
    layers: u64,
    hidden: u64,
    heads: u64,
    kernel: u64,
    /// Bands of the spectrum.
    bands: u64,
    /// Channels of the two convolutions in front, each of which halves the bands.
    channels: [u64; 2],
}

impl Conformer {
    /// Convolutions, and the layers with two feed-forward blocks, attention and a convolution each: whole on every rank.
    fn build(&self, tower: &mut Layer<'_>) {
        let Self { hidden, heads, kernel, bands, channels: [first, second], .. } = *self;
        let wide = Part::whole(hidden);
        for (name, outputs, inputs) in [("conv_0", first, 9), ("conv_1", second, first.saturating_mul(9))] {
            tower.plain_linear(Role::Tower, name, &[Part::whole(outputs)], Part::whole(inputs), false);
            tower.norm("conv.norm", outputs);
        }
        let features = Part::whole((bands / 4).saturating_mul(second));
        tower.plain_linear(Role::Tower, "input_proj_linear", &[wide], features, false);
        let sizes = Sizes { layers: self.layers, hidden, heads, width: hidden, patch: 1, channels: 1 };
        in_each_block(tower, &sizes, |tower| {
            let inner = Part::whole(hidden.saturating_mul(4));
            for _ in 0..2 {
                tower.linear(Role::Tower, "blocks.0.ffw_layer_1", &[inner], wide, false);
                tower.linear(Role::Tower, "blocks.0.ffw_layer_2", &[wide], inner, false);
            }
            let attention = [wide, wide, wide, wide, wide];
            tower.linear(Role::Tower, "blocks.0.attn.q_k_v_post_pos_proj", &attention, wide, false);
            tower.vector(
                Role::Tower,
                "blocks.0.attn.per_dim_scale",
                &[Part::whole(hidden.checked_div(heads).unwrap_or(0))],
            );
            tower.linear(Role::Tower, "blocks.0.lconv1d.linear_start", &[wide, wide], wide, false);
            tower.linear(Role::Tower, "blocks.0.lconv1d.linear_end", &[wide], wide, false);
            tower.plain_linear(
                Role::Tower,
                "blocks.0.lconv1d.depthwise",
                &[wide],
                Part::whole(kernel),
                false,
            );
            for _ in 0..9 {
                tower.norm("blocks.0.norm", hidden);
            }
        });
    }
}

/// Two channel counts of a list, or those of the class.
fn two_channels(audio: &Config<'_>, name: &str) -> [u64; 2] {
    match audio.numbers(&[name], MAX_SIZE).as_deref() {
        Some([first, second]) => [*first, *second],
        _ => [128, 32],
    }
}

/// Gemma 3n, with its embedder of soft and hard tokens.
pub(super) fn gemma3n<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let audio = context.top.section("audio_config", false)?;
    let conformer = Conformer {
        layers: audio.size_within(&["conf_num_hidden_layers"], MAX_LAYERS),
        hidden: audio.size(&["hidden_size"]),
        heads: audio.size(&["conf_num_attention_heads"]),
        kernel: audio.size(&["conf_conv_kernel_size"]),
        bands: audio.size(&["input_feat_size"]),
        channels: two_channels(&audio, "sscp_conv_channel_size"),
    };
    let mut tower = Layer::tower(context.quantiser, "audio_tower", true);
    conformer.build(&mut tower);
    gemma::embedder(&mut tower, &audio, conformer.hidden, text);
    // of each layer: five bounds and a scale in the model's format, a cap and reciprocal periods in fp32, which keys a chunk may see
    let chunk = audio.size(&["conf_attention_chunk_size"]);
    let around = audio
        .size_or(&["conf_attention_context_left"], 13)
        .saturating_sub(1)
        .saturating_add(audio.size_or(&["conf_attention_context_right"], 0));
    let mask = chunk.saturating_mul(chunk.saturating_add(around));
    let scalars = tower.dtype().bytes().saturating_mul(6).saturating_add(4);
    let periods = (conformer.hidden / 2).saturating_mul(4);
    let each = scalars.saturating_add(periods).saturating_add(mask);
    buffer(&mut tower, each.saturating_mul(conformer.layers));
    Some(tower)
}

/// Gemma 4, where the file has it.
pub(super) fn gemma4<'c>(context: &Context<'c>, text: u64) -> Option<Layer<'c>> {
    let audio = context.top.section("audio_config", false)?;
    let conformer = Conformer {
        layers: audio.size_within(&["num_hidden_layers"], MAX_LAYERS),
        hidden: audio.size(&["hidden_size"]),
        heads: audio.size(&["num_attention_heads"]),
        kernel: audio.positive_or(&["conv_kernel_size"], 5),
        bands: 128,
        channels: two_channels(&audio, "subsampling_conv_channels"),
    };
    let mut tower = Layer::tower(context.quantiser, "audio_tower", false);
    conformer.build(&mut tower);
    let (out, hidden) = (audio.positive_or(&["output_proj_dims"], 1536), Part::whole(conformer.hidden));
    tower.plain_linear(Role::Tower, "output_proj", &[Part::whole(out)], hidden, true);
    let mut embedder = Layer::tower(context.quantiser, "embed_audio", false);
    embedder.linear(Role::Tower, "embedding_projection", &[Part::whole(text)], Part::whole(out), false);
    tower.tensors.extend(embedder.tensors);
    // reciprocal periods; of each layer four bounds on each of ten products, and a cap
    let bounds = if audio.flag(&["use_clipped_linears"], true) { 40 } else { 0 };
    let scalars = conformer.layers.saturating_mul(bounds + 1).saturating_add(conformer.hidden / 2);
    let bytes = scalars.saturating_mul(tower.dtype().bytes());
    buffer(&mut tower, bytes);
    Some(tower)
}
