//! What each family of models is made of: fields of its configuration to tensors, as vLLM 0.33's class of the architecture builds them.

mod attention;
mod classic;
mod compressed;
mod dense;
mod gemma3n;
mod kimi;
mod lfm;
mod lightning;
mod linear;
mod longcat;
mod mamba;
mod minicpm3;
mod mla;
mod moe;
mod nemotron;
mod reach;
mod step;
mod varied;
mod vision;
mod wrapper;
mod zamba;

pub use attention::{Attention, QkNorm, Rope, inverse_frequencies, rope_buffer, rope_buffer_fp32};
pub use linear::named_state_dtype;

pub use self::moe::EXPERTS_PER_TOKEN;
use super::build::{Layer, Stack};
use super::quantisation::Quantiser;
use super::reader::{Config, MAX_LAYERS, MAX_POSITIONS};
use crate::planner::model::ledger::{Part, Role, Stages};
use crate::planner::model::{ClassLimits, Experts};

/// The names under which files keep the number of decoder layers.
pub const LAYER_COUNT: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];

/// What a family needs to read.
pub struct Context<'c> {
    /// First entry of `architectures`.
    pub architecture: &'c str,
    /// The text config, with the levels around it.
    pub config: &'c Config<'c>,
    /// The whole document.
    pub top: &'c Config<'c>,
    pub quantiser: &'c Quantiser,
}

/// What a family gives.
pub struct Body<'q> {
    pub stack: Stack,
    pub head: Layer<'q>,
    pub tail: Layer<'q>,
    pub tied: bool,
    pub hidden: u64,
    pub vocabulary: u64,
    pub query_heads: u64,
    pub kv_heads: u64,
    pub head_size: u64,
    pub mla: bool,
    pub experts: Option<Experts>,
    pub limits: ClassLimits,
}

/// Keys that state how many positions there are, the first that is there first.
pub const POSITION_KEYS: &[&str] =
    &["max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx"];

/// Every family; an architecture belongs to one.
const FAMILIES: &[for<'c> fn(&Context<'c>) -> Option<Body<'c>>] = &[
    dense::read,
    moe::read,
    mla::read,
    classic::read,
    linear::read,
    kimi::read,
    lightning::read,
    mamba::read,
    nemotron::read,
    zamba::read,
    lfm::read,
    varied::read,
    gemma3n::read,
    compressed::read,
    step::read,
    longcat::read,
    minicpm3::read,
];

/// Kinds of models that encode or classify, by how the names of their architectures end or begin (vLLM `models/registry.py`,
/// `_EMBEDDING_MODELS` to `_SEQUENCE_CLASSIFICATION_MODELS`).
const NOT_GENERATIVE: (&[&str], &[&str]) = (
    &[
        "ForSequenceClassification",
        "ForTokenClassification",
        "ForMaskedLM",
        "ForRetrieval",
        "ForRanking",
        "RewardModel",
        "BidirectionalModel",
        "EmbeddingModel",
        "EmbedModel",
        "BertModel",
        "CLIPModel",
        "SiglipModel",
        "GteModel",
        "GteNewModel",
        "RobertaModel",
        "T5EncoderModel",
        "Gemma2Model",
        "Gemma3TextModel",
        "LlamaModel",
        "MistralModel",
        "Qwen2Model",
    ],
    &[
        "Bert",
        "ModernBert",
        "Roberta",
        "XLMRoberta",
        "ColBERT",
        "HF_ColBERT",
        "Electra",
        "Deberta",
        "DistilBert",
        "MPNet",
    ],
);

/// True for architectures that generate no text.
pub fn keeps_no_cache(architecture: &str) -> bool {
    let (ends, starts) = NOT_GENERATIVE;
    ends.iter().any(|end| architecture.ends_with(end))
        || starts.iter().any(|start| architecture.starts_with(start))
}

/// Read the family that `architecture` belongs to; `None` when it is not known.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    let architecture = wrapper::decoder(context).unwrap_or(context.architecture);
    let decoder = Context { architecture, ..*context };
    let mut body = FAMILIES.iter().find_map(|read| read(&decoder))?;
    vision::add(context, &mut body);
    body.limits.no_pipeline |= wrapper::stays_whole(context.architecture);
    Some(body)
}

impl<'c> Context<'c> {
    /// Decoder layers.
    pub fn layers(&self) -> usize {
        let layers = self.config.size_within(LAYER_COUNT, MAX_LAYERS);
        usize::try_from(layers).unwrap_or(1)
    }

    /// Decoder layers where the file says so, without a fault where it does not.
    pub fn layers_if_given(&self) -> usize {
        let value = self.config.value(LAYER_COUNT).and_then(|(value, _)| value.as_u64()).unwrap_or(0);
        usize::try_from(value.min(MAX_LAYERS)).unwrap_or(0)
    }

    /// A section that stands beside the text config: in the part that understands (`thinker_config`), else in the document.
    pub fn beside_text(&self, key: &str) -> Option<Config<'c>> {
        let thinker = self.top.section("thinker_config", false);
        thinker.and_then(|thinker| thinker.section(key, false)).or_else(|| self.top.section(key, false))
    }

    pub fn hidden(&self) -> u64 {
        self.config.size(&["hidden_size", "n_embd", "d_model"])
    }

    pub fn vocabulary(&self) -> u64 {
        if self.architecture.starts_with("ChatGLM") {
            return self.config.size(&["padded_vocab_size"]);
        }
        self.config.size(&["vocab_size"])
    }

    /// The longest sequence that positions are prepared for.
    pub fn positions(&self) -> u64 {
        self.config.opt_within(POSITION_KEYS, MAX_POSITIONS).unwrap_or(2048)
    }

    pub fn layer(&self, index: usize) -> Layer<'c> {
        Layer::new(self.quantiser, format!("layers.{index}"))
    }

    /// Is the embedding the head too? `default`: of the class, when neither file nor class table says. Of a model with towers the
    /// outermost word counts (`config/vllm.py` `with_hf_config`).
    pub fn tied(&self, default: bool) -> bool {
        if let Some(said) = self.top.opt_flag(&["tie_word_embeddings"]) {
            return said;
        }
        self.config.flag(&["tie_word_embeddings"], default)
    }

    /// A body with the token table, the final norm and the head.
    pub fn body(&self, stack: Stack, tied: bool, final_norm: FinalNorm) -> Body<'c> {
        self.body_with_table(stack, tied, final_norm, self.hidden())
    }

    /// As [`Context::body`], with token vectors of another width than the layers'.
    pub fn body_with_table(&self, stack: Stack, tied: bool, final_norm: FinalNorm, width: u64) -> Body<'c> {
        let (hidden, vocabulary) = (self.hidden(), self.vocabulary());
        let mut head = Layer::new(self.quantiser, "");
        head.table(Role::Embedding, "embed_tokens", vocabulary_rows(vocabulary), Part::whole(width));
        let mut tail = Layer::new(self.quantiser, "");
        match final_norm {
            FinalNorm::Rms => tail.norm("norm", hidden),
            FinalNorm::Layer { bias } => tail.layer_norm("norm", hidden, bias),
            FinalNorm::None => {}
        }
        if tied {
            head.on_stages("embed_tokens", Stages::Ends);
        } else {
            let outputs = [vocabulary_rows(vocabulary)];
            if self.quantiser.quantises_head {
                tail.linear(Role::LmHead, "lm_head", &outputs, Part::whole(width), false);
            } else {
                tail.plain_linear(Role::LmHead, "lm_head", &outputs, Part::whole(width), false);
            }
        }
        Body {
            stack,
            head,
            tail,
            tied,
            hidden,
            vocabulary,
            query_heads: 0,
            kv_heads: 0,
            head_size: 0,
            mla: false,
            experts: None,
            limits: ClassLimits::default(),
        }
    }
}

impl Body<'_> {
    /// The class builds these on every pipeline stage.
    pub fn everywhere(mut self, names: &[&str]) -> Self {
        for name in names {
            self.head.on_stages(name, Stages::Every);
            self.tail.on_stages(name, Stages::Every);
        }
        self
    }
}

/// The norm after the last layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalNorm {
    Rms,
    Layer { bias: bool },
    None,
}

/// Vocabulary as engines cut it: padded to 64.
pub const fn vocabulary_rows(size: u64) -> Part {
    Part { size, cut: crate::planner::model::ledger::Cut::Padded(64), what: "vocabulary padded to 64" }
}
