//! Builds a model's ledger layer by layer, in the words of the engine's layer types.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::quantisation::{Quantiser, Under};
use crate::planner::model::LayerKind;
use crate::planner::model::cache::LayerCache;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Buffer, Cut, Part, Role, Sharing, Stages, Tensor};
use crate::planner::model::storage::Storage;

/// The tensors of one layer, or of what stands before or after the layers.
pub struct Layer<'q> {
    quantiser: &'q Quantiser,
    /// Bare name of the module that everything here lies under, e.g. `layers.3`.
    prefix: String,
    /// Layers of one class have the same formats.
    class: Option<usize>,
    /// Set for towers: every tensor has this role.
    role: Option<Role>,
    /// Set for towers and other parts that no quantisation touches.
    plain: bool,
    pub name: String,
    pub query_heads: u64,
    pub caches: Vec<LayerCache>,
    pub tensors: Vec<Tensor>,
    pub buffers: Vec<Buffer>,
}

/// Stacked experts.
#[derive(Debug, Clone, Copy)]
pub struct Experts {
    pub count: u64,
    pub per_token: u64,
    /// Input and output width of an expert.
    pub hidden: u64,
    pub width: u64,
    /// Gate and up (two matrices) rather than up alone.
    pub gated: bool,
    pub bias: bool,
}

impl<'q> Layer<'q> {
    pub fn new(quantiser: &'q Quantiser, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        Self {
            quantiser,
            class: quantiser.class_of(&prefix),
            prefix,
            role: None,
            plain: false,
            name: String::new(),
            query_heads: 0,
            caches: Vec::new(),
            tensors: Vec::new(),
            buffers: Vec::new(),
        }
    }

    /// A tower: vision or audio.
    pub fn tower(quantiser: &'q Quantiser, prefix: impl Into<String>, plain: bool) -> Self {
        let prefix = prefix.into();
        let plain = plain || quantiser.leaves_alone(&prefix);
        Self { role: Some(Role::Tower), plain, ..Self::new(quantiser, prefix) }
    }

    /// Format of numbers that are not quantised.
    pub const fn dtype(&self) -> Dtype {
        self.quantiser.dtype
    }

    /// Storage of the linear layer of this name.
    fn storage_of(&self, name: &str) -> Storage {
        self.quantiser.format_within(self.under(), name, false).linear(self.dtype())
    }

    fn under(&self) -> Under<'_> {
        Under { prefix: &self.prefix, class: self.class }
    }

    fn push(
        &mut self,
        name: Cow<'static, str>,
        role: Role,
        outputs: &[Part],
        inputs: Part,
        storage: Storage,
        is_matmul: bool,
    ) {
        if outputs.iter().all(|part| part.size == 0) || inputs.size == 0 {
            return;
        }
        self.tensors.push(Tensor {
            name,
            role: self.role.unwrap_or(role),
            outputs: SmallVec::from_slice(outputs),
            inputs,
            copies: 1,
            // no token of text passes through a tower
            active_copies: u64::from(self.role != Some(Role::Tower)),
            sharing: Sharing::Tensor,
            storage,
            is_matmul,
            is_duplicate: false,
            stages: Stages::Own,
        });
    }

    /// A linear layer, quantised as the checkpoint says. A bias is cut as the outputs are.
    pub fn linear(&mut self, role: Role, name: &'static str, outputs: &[Part], inputs: Part, bias: bool) {
        let storage = if self.plain { Storage::plain(self.dtype()) } else { self.storage_of(name) };
        self.push(Cow::Borrowed(name), role, outputs, inputs, storage, true);
        if bias {
            self.vector(role, format!("{name}.bias"), outputs);
        }
    }

    /// A linear layer that is never quantised (routers, heads, small projections).
    pub fn plain_linear(
        &mut self,
        role: Role,
        name: &'static str,
        outputs: &[Part],
        inputs: Part,
        bias: bool,
    ) {
        self.typed_linear(role, name, outputs, inputs, self.dtype());
        if bias {
            self.vector(role, format!("{name}.bias"), outputs);
        }
    }

    /// A linear layer in a given format.
    pub fn typed_linear(
        &mut self,
        role: Role,
        name: &'static str,
        outputs: &[Part],
        inputs: Part,
        dtype: Dtype,
    ) {
        self.push(Cow::Borrowed(name), role, outputs, inputs, Storage::plain(dtype), true);
    }

    /// Pad the rows that a rank holds of the tensor added last.
    pub fn align_last_rows(&mut self, multiple: u64) {
        if let Some(tensor) = self.tensors.last_mut() {
            tensor.storage.row_multiple = multiple;
        }
    }

    /// A vector in the model's own format.
    pub fn vector(&mut self, role: Role, name: impl Into<Cow<'static, str>>, parts: &[Part]) {
        self.typed_vector(role, name, parts, self.dtype());
    }

    /// A vector in a given format.
    pub fn typed_vector(
        &mut self,
        role: Role,
        name: impl Into<Cow<'static, str>>,
        parts: &[Part],
        dtype: Dtype,
    ) {
        self.push(name.into(), role, parts, Part::whole(1), Storage::plain(dtype), false);
    }

    /// The correction of a router's scores: it ranks experts, but no token passes through it.
    pub fn score_correction(&mut self, outputs: &[Part], dtype: Dtype) {
        self.typed_vector(Role::Router, "gate.e_score_correction_bias", outputs, dtype);
        if let Some(tensor) = self.tensors.last_mut() {
            tensor.active_copies = 0;
        }
    }

    /// A norm over `size` features, on every rank.
    pub fn norm(&mut self, name: impl Into<Cow<'static, str>>, size: u64) {
        self.vector(Role::Norm, name, &[Part::whole(size)]);
    }

    /// A norm with weight and bias.
    pub fn layer_norm(&mut self, name: &'static str, size: u64, bias: bool) {
        self.norm(name, size);
        if bias {
            self.norm(format!("{name}.bias"), size);
        }
    }

    /// A table that is looked up.
    pub fn table(&mut self, role: Role, name: &'static str, rows: Part, cols: Part) {
        self.push(Cow::Borrowed(name), role, &[rows], cols, Storage::plain(self.dtype()), false);
    }

    /// A table in a given format.
    pub fn typed_table(&mut self, role: Role, name: &'static str, rows: Part, cols: Part, dtype: Dtype) {
        self.push(Cow::Borrowed(name), role, &[rows], cols, Storage::plain(dtype), false);
    }

    /// What was added last holds numbers that the model has elsewhere, or none of its parameters.
    pub fn duplicate_last(&mut self) {
        if let Some(tensor) = self.tensors.last_mut() {
            tensor.is_duplicate = true;
        }
    }

    /// Cut the tensors added since `from` in whole blocks of features.
    pub fn cut_in_blocks(&mut self, from: usize, block: u64) {
        for tensor in self.tensors.iter_mut().skip(from) {
            for part in tensor.outputs.iter_mut().chain(std::iter::once(&mut tensor.inputs)) {
                if let Cut::Units(_) = part.cut {
                    part.cut = Cut::Blocks(block);
                }
            }
        }
    }

    /// A multi-layer perceptron under `name`: `gate_up_proj` (or `up_proj`) and `down_proj`.
    pub fn mlp(&mut self, name: &str, hidden: u64, width: u64, gated: bool, bias: bool) {
        self.mlp_shared(name, hidden, width, gated, bias, None);
    }

    /// As [`Layer::mlp`], for shared experts: whole on each rank under sequence-parallel MoE when `sharing` says so.
    pub fn mlp_shared(
        &mut self,
        name: &str,
        hidden: u64,
        width: u64,
        gated: bool,
        bias: bool,
        sharing: Option<Sharing>,
    ) {
        let role = if sharing.is_some() { Role::SharedExpert } else { Role::DenseFeedForward };
        let from = self.tensors.len();
        let part = Part::even(width, "intermediate size");
        let (up, outputs): (&str, &[Part]) =
            if gated { ("gate_up_proj", &[part, part]) } else { ("up_proj", &[part]) };
        let (up_name, down_name) = (within(name, up), within(name, "down_proj"));
        let (up_storage, down_storage) = (self.storage_of(&up_name), self.storage_of(&down_name));
        self.push(up_name, role, outputs, Part::whole(hidden), up_storage, true);
        if bias {
            self.vector(role, format!("{name}.{up}.bias"), outputs);
        }
        self.push(down_name, role, &[Part::whole(hidden)], part, down_storage, true);
        if bias {
            self.vector(role, format!("{name}.down_proj.bias"), &[Part::whole(hidden)]);
        }
        if let Some(sharing) = sharing {
            for tensor in self.tensors.iter_mut().skip(from) {
                tensor.sharing = sharing;
            }
        }
    }

    /// A dense gated perceptron with its own sharing.
    pub fn dense_shared(&mut self, name: &str, hidden: u64, width: u64, sharing: Sharing) {
        let from = self.tensors.len();
        self.mlp(name, hidden, width, true, false);
        for tensor in self.tensors.iter_mut().skip(from) {
            tensor.sharing = sharing;
        }
    }

    /// Routed experts under `name`.
    pub fn experts(&mut self, name: &str, experts: Experts) {
        let Experts { count, per_token, hidden, width, gated, bias } = experts;
        if count == 0 {
            return;
        }
        let format = self.quantiser.format_within(self.under(), name, true);
        let alignment = self.quantiser.alignment;
        let dtype = self.dtype();
        let part = Part::even(width, "expert intermediate size");
        let up: SmallVec<[Part; 3]> =
            if gated { SmallVec::from_slice(&[part, part]) } else { SmallVec::from_slice(&[part]) };
        let down: SmallVec<[Part; 3]> = SmallVec::from_slice(&[Part::whole(hidden)]);
        let up_storage = format.experts(dtype, true, alignment);
        let down_storage = format.experts(dtype, false, alignment);
        let tiles = (up_storage.tile, down_storage.tile);
        let mut push =
            |suffix: &str, outputs: SmallVec<[Part; 3]>, inputs: Part, storage: Storage, is_matmul: bool| {
                self.tensors.push(Tensor {
                    name: within(name, suffix),
                    role: Role::RoutedExperts,
                    outputs,
                    inputs,
                    copies: count,
                    active_copies: per_token.min(count),
                    sharing: Sharing::Experts,
                    storage,
                    is_matmul,
                    is_duplicate: false,
                    stages: Stages::Own,
                });
            };
        push("w13", up.clone(), Part::whole(hidden), up_storage, true);
        push("w2", down.clone(), part, down_storage, true);
        if bias {
            let padded = |tile: u64| Storage { tile: (tile, 1), ..Storage::plain(dtype) };
            push("w13_bias", up, Part::whole(1), padded(tiles.0.0), false);
            push("w2_bias", down, Part::whole(1), padded(tiles.1.0), false);
        }
        self.expert_map(count);
    }

    /// Scales of the cache that the quantisation method keeps as weights.
    pub fn cache_scales(&mut self) {
        let (fp32, plain) = self.quantiser.cache_scales;
        let from = self.tensors.len();
        self.typed_vector(Role::Norm, "attn.kv_scales", &[Part::whole(fp32)], Dtype::Fp32);
        self.vector(Role::Norm, "attn.other_scales", &[Part::whole(plain)]);
        for tensor in self.tensors.iter_mut().skip(from) {
            tensor.is_duplicate = true;
        }
    }

    /// Mark what this part holds so far as held by these stages.
    pub fn on_stages(&mut self, name: &str, stages: Stages) {
        for tensor in
            self.tensors.iter_mut().filter(|t| t.name == name || t.name.strip_suffix(".bias") == Some(name))
        {
            tensor.stages = stages;
        }
    }

    /// As [`Layer::cache_scales`], for latent attention: only ModelOpt keeps them there.
    pub fn latent_cache_scales(&mut self) {
        if self.quantiser.latent_cache_scales {
            self.cache_scales();
        }
    }

    /// Memory of this layer alone that is loaded with the weights.
    pub fn own_buffer(&mut self, bytes: u64) {
        self.buffers.push(Buffer { name: Cow::Borrowed(""), bytes, with_experts_dealt: false });
    }

    /// Where each expert lives, one int32 an expert: only with expert parallelism.
    fn expert_map(&mut self, experts: u64) {
        let bytes = experts.saturating_mul(4);
        self.buffers.push(Buffer { name: Cow::Borrowed(""), bytes, with_experts_dealt: true });
    }

    /// A buffer that every layer naming it shares.
    pub fn shared_buffer(&mut self, name: String, bytes: u64) {
        if bytes > 0 {
            self.buffers.push(Buffer { name: Cow::Owned(name), bytes, with_experts_dealt: false });
        }
    }

    /// The layer as a kind.
    pub fn into_kind(self) -> LayerKind {
        LayerKind {
            name: self.name,
            query_heads: self.query_heads,
            caches: self.caches,
            tensors: self.tensors,
            buffers: self.buffers,
        }
    }
}

/// Names that most models have, so that none is put together again for each layer.
const USUAL_NAMES: [&str; 10] = [
    "mlp.gate_up_proj",
    "mlp.down_proj",
    "mlp.up_proj",
    "mlp.experts.w13",
    "mlp.experts.w2",
    "mlp.shared_experts.gate_up_proj",
    "mlp.shared_experts.down_proj",
    "mlp.shared_expert.gate_up_proj",
    "mlp.shared_expert.down_proj",
    "block_sparse_moe.experts.w13",
];

/// `name.part`.
fn within(name: &str, part: &str) -> Cow<'static, str> {
    let is = |usual: &&&str| {
        usual.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')).is_some_and(|rest| rest == part)
    };
    match USUAL_NAMES.iter().find(is) {
        Some(usual) => Cow::Borrowed(usual),
        None => Cow::Owned(format!("{name}.{part}")),
    }
}

/// Layers so far: equal ones share a kind.
#[derive(Default)]
pub struct Stack {
    pub layers: Vec<usize>,
    pub kinds: Vec<LayerKind>,
}

/// Kinds by what their layers are built of, and by the class of layer that the checkpoint's lists make of them.
pub struct Alike<K>(Vec<(usize, K, usize)>);

impl<K> Default for Alike<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Stack {
    /// Add a layer that is built of `of`, of which the class of a layer decides the rest: built once.
    pub fn push_alike<'q, K: PartialEq>(
        &mut self,
        alike: &mut Alike<K>,
        of: K,
        layer: Layer<'q>,
        build: impl FnOnce(Layer<'q>) -> Layer<'q>,
    ) {
        let Some(class) = layer.class else { return self.push(build(layer)) };
        if let Some((.., kind)) = alike.0.iter().find(|(known, key, _)| *known == class && *key == of) {
            return self.layers.push(*kind);
        }
        self.push(build(layer));
        alike.0.extend(self.layers.last().map(|kind| (class, of, *kind)));
    }

    /// Add the next layer.
    pub fn push(&mut self, layer: Layer<'_>) {
        let kind = layer.into_kind();
        let index = self.kinds.iter().rposition(|known| *known == kind).unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        });
        self.layers.push(index);
    }
}
