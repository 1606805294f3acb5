//! Questions about the cache: prefixes, moves, hand-overs, and where it lies.

use serde::Serialize;
use utoipa::ToSchema;

use super::question::{self, Asked};
use super::{App, ServiceError};
use crate::ingest::json::Document;
use crate::ingest::kv::{HandoversAsk, MovesAsk, PrefixesAsk, SequencesAsk, Subject, Work};
use crate::ingest::{FieldError, Pointer};
use crate::planner::formula;
use crate::planner::input::PlanInput;
use crate::planner::kv::Footprint;
use crate::planner::kv::handover::{self, Compatibility, ModelClass, ModelKind, Side};
use crate::planner::kv::moves::{Mover, Moves, PREFILL_EFFICIENCY};
use crate::planner::kv::paths::{self, Path, PathKind};
use crate::planner::kv::prefixes::{self, Prefixes, Shared};
use crate::planner::kv::ratio::{self, RatioPoint, USUAL_LENGTHS, Worker};
use crate::planner::kv::residence::{self, ResidenceLayout, Residences};
use crate::planner::kv::tiers::{self, Pool, Tiers};
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::LayerCache;
use crate::planner::replica::Ground;
use crate::planner::search;
use crate::planner::units::Bytes;

/// What an answer about a cache is about.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct About {
    pub model: String,
    pub layout: ResidenceLayout,
    /// The cluster as understood; made up to fit the layout when none was named.
    pub cluster: String,
    pub cluster_given: bool,
}

/// `POST /v1/kv/prefixes`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PrefixesAnswer {
    pub about: About,
    #[serde(flatten)]
    pub prefixes: Prefixes,
}

/// `POST /v1/kv/moves`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MovesAnswer {
    pub about: About,
    #[serde(flatten)]
    pub moves: Moves,
    /// Tier sizes; null when the layout does not fit the cluster.
    pub tiers: Option<Tiers>,
}

/// `POST /v1/kv/handovers`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct HandoversAnswer {
    #[serde(flatten)]
    pub compatibility: Compatibility,
    pub model: Option<String>,
    /// One copy of the cache of the first length, and the time to hand it over.
    pub bytes_per_request: Option<u64>,
    pub transfer_ms: Option<f64>,
    /// Prefill workers to decode workers by lengths; empty without a model, or when a side does not fit the cluster.
    pub ratios: Vec<RatioPoint>,
    pub message: String,
}

/// `POST /v1/kv/sequences`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SequencesAnswer {
    pub model: String,
    pub cluster: String,
    /// Length that `fits_one` asks about.
    pub context_tokens: u64,
    #[serde(flatten)]
    pub residences: Residences,
}

macro_rules! use_case {
    ($(#[$doc:meta])* $online:ident, $offline:ident, $ask:ty, $answer:ty, $compute:path) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`ServiceError::Invalid`] with every fault of the question.
        pub fn $offline(document: &Document) -> Result<$answer, ServiceError> {
            let ask = <$ask>::read(document).map_err(ServiceError::Invalid)?;
            $compute(&ask, &question::asked_offline(&ask.subject.question)?)
        }

        impl App {
            $(#[$doc])*
            ///
            /// # Errors
            /// [`ServiceError::Invalid`] with every fault of the question.
            pub async fn $online(&self, document: &Document) -> Result<$answer, ServiceError> {
                let ask = <$ask>::read(document).map_err(ServiceError::Invalid)?;
                $compute(&ask, &self.asked(&ask.subject.question).await?)
            }
        }
    };
}

use_case!(
    /// A shared prefix over replicas.
    kv_prefixes, prefixes_offline, PrefixesAsk, PrefixesAnswer, prefixes_of
);
use_case!(
    /// Fetch or compute again.
    kv_moves, moves_offline, MovesAsk, MovesAnswer, moves_of
);
use_case!(
    /// Where the cache lies, and the longest sequence of layouts.
    kv_sequences, sequences_offline, SequencesAsk, SequencesAnswer, sequences_of
);

/// Can one worker's cache be used by another?
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub fn handovers_offline(document: &Document) -> Result<HandoversAnswer, ServiceError> {
    let ask = HandoversAsk::read(document).map_err(ServiceError::Invalid)?;
    let asked = ask.subject.as_ref().map(|s| question::asked_offline(&s.question)).transpose()?;
    handovers_of(&ask, asked.as_ref())
}

impl App {
    /// Can one worker's cache be used by another?
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] with every fault of the question.
    pub async fn kv_handovers(&self, document: &Document) -> Result<HandoversAnswer, ServiceError> {
        let ask = HandoversAsk::read(document).map_err(ServiceError::Invalid)?;
        let asked = match &ask.subject {
            Some(subject) => Some(self.asked(&subject.question).await?),
            None => None,
        };
        handovers_of(&ask, asked.as_ref())
    }
}

fn prefixes_of(ask: &PrefixesAsk, asked: &Asked) -> Result<PrefixesAnswer, ServiceError> {
    let (ground, shape, dp) = place(&ask.subject, &asked.input)?;
    let mover = mover(&ground, &shape, &ask.work)?;
    let pool_bytes = ask.subject.cluster_given.then(|| pool_bytes(&ground, &shape)).flatten();
    let shared = Shared {
        prefix_tokens: ask.prefix_tokens,
        prefixes: ask.prefixes,
        replicas: dp,
        attention_dp: shape.attention_dp,
        uses: ask.uses,
        popularity: ask.popularity,
        pool_bytes,
    };
    let store = ask
        .store
        .clone()
        .or_else(|| paths::of_pool(ground.pool, &shape).into_iter().find(|p| p.kind == PathKind::Fabric));
    Ok(PrefixesAnswer {
        about: about(&ask.subject, &ground, &shape, dp),
        prefixes: prefixes::compare(&shared, &mover, store.as_ref()),
    })
}

fn moves_of(ask: &MovesAsk, asked: &Asked) -> Result<MovesAnswer, ServiceError> {
    let (ground, shape, dp) = place(&ask.subject, &asked.input)?;
    let mover = mover(&ground, &shape, &ask.work)?;
    let paths = if ask.paths.is_empty() { paths::of_pool(ground.pool, &shape) } else { ask.paths.clone() };
    Ok(MovesAnswer {
        about: about(&ask.subject, &ground, &shape, dp),
        moves: mover.answer(&paths, ask.tokens),
        tiers: tiers_of(ask, &ground, &shape, dp),
    })
}

fn tiers_of(ask: &MovesAsk, ground: &Ground<'_>, shape: &Shape, dp: u64) -> Option<Tiers> {
    let replica = ground.replica(shape, &ground.input.model.sharded(shape)).ok()?;
    let candidate = ground.candidate(replica, dp.min(1), u64::MAX);
    let pool = Pool {
        bytes_per_gpu: candidate.replica.kv_bytes.iter().copied().max()?,
        gpus_on_node: shape.gpus().saturating_mul(dp).min(ground.pool.gpus_per_node),
        host_memory: ground.pool.host_memory_bytes,
        sequences: Bytes::from_f64(candidate.sequences_at_context).get().saturating_mul(dp.max(1)),
    };
    Some(tiers::judge(&pool, &ask.tiers))
}

fn sequences_of(ask: &SequencesAsk, asked: &Asked) -> Result<SequencesAnswer, ServiceError> {
    let (ground, shape, dp) = place(&ask.subject, &asked.input)?;
    let layouts = if ask.layouts.is_empty() { vec![(shape, dp)] } else { ask.layouts.clone() };
    Ok(SequencesAnswer {
        model: asked.input.model.name.clone(),
        cluster: asked.input.cluster.to_string(),
        context_tokens: ground.context().get(),
        residences: residence::compare(&ground, &layouts),
    })
}

fn handovers_of(ask: &HandoversAsk, asked: Option<&Asked>) -> Result<HandoversAnswer, ServiceError> {
    let class = asked.map_or(UNKNOWN_CLASS, |a| class_of(&a.input.model));
    let compatibility = handover::judge(&ask.producer, &ask.consumer, class);
    let mut answer = HandoversAnswer {
        message: verdict_words(&compatibility),
        compatibility,
        model: None,
        bytes_per_request: None,
        transfer_ms: None,
        ratios: Vec::new(),
    };
    let Some(asked) = asked else { return Ok(answer) };
    let (producer, consumer) = (shape_of(&ask.producer), shape_of(&ask.consumer));
    let ground = first_ground(&asked.input)?;
    let mover = mover(&ground, &producer, &ask.work)?;
    let path = ask.path.clone().or_else(|| fabric(&ground, &producer, &consumer));
    let lengths = if ask.lengths.is_empty() { USUAL_LENGTHS.to_vec() } else { ask.lengths.clone() };
    answer.model = Some(asked.input.model.name.clone());
    answer.bytes_per_request = lengths.first().map(|(n, _)| mover.footprint.bytes(*n).get());
    if let Some(path) = path {
        answer.transfer_ms = lengths.first().map(|(n, _)| mover.fetch_s(&path, *n) * 1e3);
        let of = |shape| Worker { input: &asked.input, shape };
        answer.ratios = lengths
            .iter()
            .filter_map(|l| ratio::at(of(producer), of(consumer), &mover, &path, *l, ask.hit_rate))
            .collect();
    }
    if let Some(first) = answer.ratios.first() {
        answer.message.push(' ');
        answer.message.push_str(&first.message);
    }
    Ok(answer)
}

const UNKNOWN_CLASS: ModelClass =
    ModelClass { kind: ModelKind::Unknown, kv_heads: None, heads_differ: false };

fn verdict_words(compatibility: &Compatibility) -> String {
    let verdict = match compatibility.verdict {
        handover::Verdict::Ok => "The cache can be handed over",
        handover::Verdict::OkSlow => "The cache can be handed over, with a conversion on the way",
        handover::Verdict::Refused => "The cache cannot be handed over",
    };
    match compatibility.reasons.iter().max_by_key(|r| r.verdict) {
        Some(reason) => format!("{verdict}: {}", reason.message),
        None => format!("{verdict}."),
    }
}

/// The path between nodes, as the narrower of both sides sees it.
fn fabric(ground: &Ground<'_>, producer: &Shape, consumer: &Shape) -> Option<Path> {
    let of = |shape| paths::of_pool(ground.pool, shape).into_iter().find(|p| p.kind == PathKind::Fabric);
    let (a, b) = (of(producer)?, of(consumer)?);
    Some(if a.bytes_per_s <= b.bytes_per_s { a } else { b })
}

fn shape_of(side: &Side) -> Shape {
    Shape { tp: side.tp, pp: side.pp, ep: 1, attention_dp: side.attention_dp, dcp: side.dcp }
}

/// What the rules of a hand-over ask of a model.
pub(super) fn class_of(model: &ModelSpec) -> ModelClass {
    let caches = || model.kinds.iter().flat_map(|k| &k.caches);
    let mut heads: Vec<u64> = caches()
        .filter_map(|c| match c {
            LayerCache::Heads { kv_heads, .. } => Some(*kv_heads),
            _ => None,
        })
        .collect();
    heads.dedup();
    let kind = if model.architecture.contains("Whisper") || model.architecture.contains("T5") {
        ModelKind::EncoderDecoder
    } else if matches!(formula::attention(model), "hybrid" | "state") {
        ModelKind::Hybrid
    } else if model.mla
        || caches().any(|c| matches!(c, LayerCache::Latent { .. } | LayerCache::Compressed { .. }))
    {
        ModelKind::Latent
    } else {
        ModelKind::Heads
    };
    ModelClass { kind, kv_heads: heads.first().copied(), heads_differ: heads.len() > 1 }
}

/// The ground and the layout that a question is about.
fn place<'a>(subject: &Subject, input: &'a PlanInput) -> Result<(Ground<'a>, Shape, u64), ServiceError> {
    if let Some((shape, dp)) = subject.layout {
        return Ok((first_ground(input)?, shape, dp));
    }
    if !subject.cluster_given {
        return Ok((first_ground(input)?, Shape::new(1, 1), 1));
    }
    let mut found = search::search(input);
    let Some(best) = found.ranked.first().map(|r| (r.ground, r.candidate.replica.shape, r.candidate.dp))
    else {
        let why = found.refused.first().map_or_else(String::new, |r| found.in_words(r).refusal.message);
        let fault = FieldError::at(
            &Pointer::root().key("layout"),
            "nothing_fits",
            format!("no layout fits this cluster, so name the one that is meant. {why}"),
        );
        return Err(ServiceError::Invalid(vec![fault]));
    };
    let (index, shape, dp) = best;
    if index < found.grounds.len() {
        return Ok((found.grounds.swap_remove(index), shape, dp));
    }
    Ok((first_ground(input)?, shape, dp))
}

fn first_ground(input: &PlanInput) -> Result<Ground<'_>, ServiceError> {
    let missing = || ServiceError::Internal("a question without engine or pool".to_owned());
    let settings = input.engines.first().ok_or_else(missing)?;
    let pool = input.cluster.pools.first().ok_or_else(missing)?;
    search::ground(input, 0, settings, 0, pool)
        .map_err(|refusal| refused(refusal.code.as_str(), &refusal.message))
}

fn refused(code: &str, message: &str) -> ServiceError {
    let fault =
        FieldError::at(&Pointer::root().key("engine"), "engine_refuses", format!("{message} ({code})"));
    ServiceError::Invalid(vec![fault])
}

fn mover(ground: &Ground<'_>, shape: &Shape, work: &Work) -> Result<Mover, ServiceError> {
    let mut footprint = Footprint::of(ground).map_err(|r| refused(r.code.as_str(), &r.message))?;
    if let Some(parameters) = work.parameters {
        footprint.flops_per_token = 2.0 * parameters;
    }
    let model = &ground.input.model;
    let peak = &ground.gpu.peak_flops;
    let format = model.quantization.as_str();
    let native = if format.starts_with("fp8") { peak.fp8 } else { None };
    let peak =
        ground.input.overrides.number("peak_flops").or(native).or(peak.bf16).or(peak.fp16).unwrap_or(1e12);
    let efficiency = ground.input.overrides.number("compute_efficiency").unwrap_or(PREFILL_EFFICIENCY);
    let stages = std::slice::from_ref(&(0..model.layers.len())).to_vec();
    let replication_factor = ground
        .rules
        .cache_layout(model, shape, &ground.gpu, &ground.settings, &stages)
        .map_or(1.0, |cache| cache.replication_factor);
    Ok(Mover {
        footprint,
        flops_per_s: work.achieved_flops.unwrap_or(peak * efficiency * shape.gpus() as f64),
        flops_given: work.achieved_flops.is_some(),
        parameters_given: work.parameters.is_some(),
        with_attention: work.with_attention,
        replication_factor,
        // stores of latent caches read once and pass on (LMCache, SGLang, Dynamo)
        broadcast: work.broadcast.unwrap_or(model.mla),
    })
}

/// Cache of one group of a replica, one copy of its bytes.
fn pool_bytes(ground: &Ground<'_>, shape: &Shape) -> Option<Bytes> {
    let replica = ground.replica(shape, &ground.input.model.sharded(shape)).ok()?;
    let tokens = replica.capacity.tokens.as_f64();
    Some(Bytes::from_f64(tokens * replica.cache.token_bytes_logical.as_f64()))
}

fn about(subject: &Subject, ground: &Ground<'_>, shape: &Shape, dp: u64) -> About {
    About {
        model: ground.input.model.name.clone(),
        layout: ResidenceLayout {
            tp: shape.tp,
            pp: shape.pp,
            dp,
            attention_dp: shape.attention_dp,
            ep: shape.ep,
            dcp: shape.dcp,
        },
        cluster: ground.input.cluster.to_string(),
        cluster_given: subject.cluster_given,
    }
}
