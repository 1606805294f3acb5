//! The constants of the calibrated model: what each means, and where a fit starts from.
//!
//! Every constant is positive and is fitted in its logarithm. The prior is what published kernel and
//! serving measurements say before our own fit; its width says how far the fit may move it
//! (`docs/ACCURACY.md`, section latency).

/// What is known of a constant before the fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Name in `data/calibration/latency.json`.
    pub name: &'static str,
    /// Central value, in `unit`.
    pub value: f64,
    /// Standard deviation of the logarithm.
    pub width: f64,
    /// Unit, empty for a pure number.
    pub unit: &'static str,
    pub meaning: &'static str,
}

macro_rules! parameters {
    ($($variant:ident $name:literal $value:literal $width:literal $unit:literal $meaning:literal;)*) => {
        /// A constant of the calibrated model.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Parameter { $(#[doc = $meaning] $variant),* }

        /// All constants, in the order of [`Parameter`].
        pub const PRIORS: &[Prior] = &[
            $(Prior { name: $name, value: $value, width: $width, unit: $unit, meaning: $meaning }),*
        ];
    };
}

parameters! {
    WeightShare "weight_bandwidth_share" 0.90 0.10 "" "share of memory bandwidth when dense weights are read";
    WeightShareFp4 "weight_bandwidth_fp4" 0.80 0.20 "" "factor on it for 4-bit weights";
    WeightShareBlackwell "weight_bandwidth_blackwell" 0.93 0.10 "" "factor on it on Blackwell";
    WeightShareAmd "weight_bandwidth_amd" 0.90 0.15 "" "factor on it on AMD";
    ExpertShare "expert_bandwidth_share" 0.80 0.25 "" "share of memory bandwidth when expert weights are read";
    ExpertGrain "expert_grain_bytes" 4.0e5 0.80 "B" "slice of one expert on a rank that reaches half of the share";
    ExpertBlackwell "expert_bandwidth_blackwell" 1.0 0.20 "" "factor on the expert share on Blackwell";
    ExpertAmpere "expert_bandwidth_ampere" 1.0 0.30 "" "factor on the expert share on Ampere";
    ExpertAmd "expert_bandwidth_amd" 0.85 0.30 "" "factor on the expert share on AMD";
    ExpertVllm "expert_bandwidth_vllm" 1.0 0.20 "" "factor on the expert share in vLLM";
    ExpertSglang "expert_bandwidth_sglang" 1.0 0.20 "" "factor on the expert share in SGLang";
    ExpertTrt "expert_bandwidth_tensorrt" 1.1 0.20 "" "factor on the expert share in TensorRT-LLM";
    ExpertSpread "expert_spread" 0.85 0.30 "" "independent routings that one token of a batch is worth";
    ExpertPower "expert_power" 0.90 0.15 "" "exponent of the tokens of a batch in it: tokens of one batch choose alike";
    ExpertImbalance "expert_imbalance" 1.0 0.50 "" "experts that the fullest rank reads beyond the mean of experts dealt out whole, in standard deviations of the largest of n";
    KvShare "kv_bandwidth_share" 0.85 0.10 "" "share of memory bandwidth when the cache is read in decode";
    LatentRate "latent_decode_compute_share" 0.55 0.30 "" "share of the 16-bit peak in latent (MLA) decode attention";
    PrefillRate "prefill_compute_share" 0.65 0.20 "" "share of the peak rate in dense products of a prefill";
    ExpertRate "expert_compute_share" 0.50 0.40 "" "factor on it in expert products";
    RateBlackwell "compute_blackwell" 0.85 0.20 "" "factor on compute on Blackwell";
    RateAmpere "compute_ampere" 1.1 0.30 "" "factor on compute on Ampere";
    RateAmd "compute_amd" 1.0 0.50 "" "factor on compute on AMD";
    RateVllm "compute_vllm" 1.0 0.20 "" "factor on compute in vLLM";
    RateSglang "compute_sglang" 1.0 0.20 "" "factor on compute in SGLang";
    RateTrt "compute_tensorrt" 0.95 0.20 "" "factor on compute in TensorRT-LLM";
    RateOther "compute_other" 1.0 0.50 "" "factor on compute in other engines";
    FormatGain "format_gain_dense" 0.90 0.15 "" "exponent of (peak of the format / 16-bit peak) that dense products gain";
    FormatGainExperts "format_gain_experts" 0.60 0.30 "" "the same for expert products";
    KneeTokens "knee_tokens" 150.0 0.60 "tokens" "tokens of a chunk at which a dense product reaches half its rate";
    KneeWidth "knee_width" 650.0 0.50 "features" "features on a rank at which a dense product reaches half its rate";
    KneeExpertTokens "knee_expert_tokens" 20.0 0.60 "tokens" "tokens of one expert at which its product reaches half its rate";
    KneeExpertWidth "knee_expert_width" 400.0 0.60 "features" "features of an expert on a rank at which it reaches half its rate";
    AttentionRate "attention_compute_share" 0.45 0.30 "" "share of the 16-bit peak in prefill attention";
    LayerCost "layer_seconds" 3.4e-5 0.30 "s" "fixed cost of a layer in decode: launches, norms, cache write";
    LayerExpert "layer_expert_seconds" 3.0e-5 0.40 "s" "added where a layer routes to experts";
    LayerLatent "layer_latent_seconds" 1.8e-5 0.40 "s" "added where attention is latent (MLA)";
    LayerState "layer_state_seconds" 1.3e-5 0.50 "s" "added where a layer keeps a recurrent state";
    LayerFp8 "layer_fp8_seconds" 4.5e-6 0.50 "s" "added for quantising activations of fp8 dense products";
    LayerFp4 "layer_fp4_seconds" 8.0e-6 0.50 "s" "added for quantising activations of 4-bit float dense products";
    LayerExpertFp8 "layer_expert_fp8_seconds" 2.8e-5 0.50 "s" "added where experts are fp8";
    LayerExpertFp4 "layer_expert_fp4_seconds" 5.0e-6 0.50 "s" "added where experts are nvfp4";
    LayerExpertMx "layer_expert_mxfp4_seconds" 5.0e-6 0.50 "s" "added where experts are mxfp4";
    LayerSparse "layer_sparse_seconds" 3.0e-5 0.50 "s" "added where attention is sparse: indexer and choice of tokens";
    StepCost "step_seconds" 6.0e-4 0.60 "s" "fixed cost of a decode step";
    SequenceCost "sequence_seconds" 1.2e-5 0.50 "s" "cost of one more sequence in a step: scheduling, sampling, output";
    YearGain "yearly_gain" 1.8 0.20 "" "factor by which fixed costs fall in a year of engine releases";
    CostVllm "cost_vllm" 1.15 0.20 "" "factor on fixed costs in vLLM";
    CostSglang "cost_sglang" 0.95 0.20 "" "factor on fixed costs in SGLang";
    CostTrt "cost_tensorrt" 1.0 0.20 "" "factor on fixed costs in TensorRT-LLM";
    CostOther "cost_other" 1.0 0.25 "" "factor on fixed costs in other engines";
    CostBlackwell "cost_blackwell" 0.90 0.15 "" "factor on fixed costs on Blackwell";
    CostAmpere "cost_ampere" 1.3 0.20 "" "factor on fixed costs on Ampere";
    CostAmd "cost_amd" 1.5 0.25 "" "factor on fixed costs on AMD";
    CostVllmBlackwell "cost_vllm_blackwell" 1.0 0.10 "" "factor on fixed costs, vLLM on Blackwell";
    CostSglangBlackwell "cost_sglang_blackwell" 1.1 0.12 "" "factor on fixed costs, SGLang on Blackwell";
    CostTrtBlackwell "cost_tensorrt_blackwell" 0.9 0.12 "" "factor on fixed costs, TensorRT-LLM on Blackwell";
    CostVllmExperts "cost_vllm_experts" 1.0 0.12 "" "factor on fixed costs, vLLM with experts";
    CostSglangExperts "cost_sglang_experts" 1.0 0.12 "" "factor on fixed costs, SGLang with experts";
    CostTrtExperts "cost_tensorrt_experts" 1.1 0.12 "" "factor on fixed costs, TensorRT-LLM with experts";
    CostMxfp4 "cost_mxfp4" 1.0 0.20 "" "factor on fixed costs of mxfp4 models before Blackwell";
    CostMxfp4Blackwell "cost_mxfp4_blackwell" 0.72 0.20 "" "the same on Blackwell, which has fused kernels for them";
    CostTrtMxfp4 "cost_tensorrt_mxfp4" 1.1 0.15 "" "factor on fixed costs of mxfp4 models in TensorRT-LLM before Blackwell";
    CostEager "cost_eager" 2.2 0.30 "" "factor on fixed costs without CUDA graphs";
    SequenceSglang "sequence_sglang" 1.4 0.30 "" "factor on the cost of a sequence in SGLang";
    SequenceBurst "sequence_burst" 6.0 0.40 "" "factor on the cost of a sequence when all come at once: client and server stream them on one host";
    RequestBurst "request_burst_seconds" 8.0e-3 0.50 "s" "handling of a request among those that come at once, one after the other";
    CollectiveScale "collective_scale" 1.0 0.20 "" "factor on measured collectives inside a serving step";
    ExchangeScale "exchange_scale" 1.0 0.40 "" "factor on the exchange of tokens between experts";
    PromptLaunch "prompt_layer_seconds" 1.0e-4 0.40 "s" "least time of a layer in a prefill: launches outside CUDA graphs";
    PromptExpert "prompt_expert_seconds" 1.5e-4 0.60 "s" "added to it where a layer routes to experts";
    PromptLatent "prompt_latent_seconds" 7.0e-4 0.60 "s" "added to it where attention is latent (MLA): expansion, merges, block-scaled products";
    PromptToken "prompt_token_seconds" 3.0e-6 0.60 "s" "handling of a prompt token before the engine sees it: transport, tokeniser";
    FirstToken "first_token_seconds" 2.0e-2 0.30 "s" "request handling before and after the first token";
    FirstVllm "first_token_vllm" 1.0 0.20 "" "factor on it in vLLM";
    FirstSglang "first_token_sglang" 2.0 0.35 "" "factor on it in SGLang";
    FirstTrt "first_token_tensorrt" 1.2 0.30 "" "factor on it in TensorRT-LLM";
    FirstSteps "first_token_steps" 3.0 0.40 "" "decode steps that a new request waits for under load";
    PollShare "poll_share" 0.60 0.25 "" "share of the steps between two looks for new requests that one waits for";
    FirstGroupSteps "first_token_group_steps" 1.5 0.50 "" "further steps with attention DP: groups wait for each other";
    FirstGroupStepsTrt "first_token_group_steps_tensorrt" 45.0 0.30 "" "the same in TensorRT-LLM, which holds prompts back until all groups have one (up to its timeout_iters)";
    ColdStart "cold_start_seconds" 0.8e-2 0.50 "s" "added to a mean over few requests: the first ones are slow";
    ColdSglang "cold_start_sglang" 12.0 0.40 "" "factor on it in SGLang, which compiles kernels at their first use";
    Burst "burst_share" 0.13 0.15 "" "share of the clients that a request queues behind in the mean over a run of varied lengths: a run of ten requests a client starts with all clients at once";
    BurstFixed "burst_fixed_lengths" 0.10 0.30 "" "the same with equal lengths, engines that mix prompts into decode";
    BurstFixedSglang "burst_fixed_sglang" 0.95 0.10 "" "the same in SGLang, which runs prompts first: requests that started together end together and come back together";
    Clump "clump" 1.0 0.40 "prompts" "prompts of equal length that a prompt shares its passes with";
    ClumpTrt "clump_tensorrt" 3.0 0.30 "" "factor on it in TensorRT-LLM";
    SteadyQueue "steady_queue" 3.0 0.40 "" "prompts waited for in a steady load, for each load^2 / (1 - load) of prompts";
    BurstAll "burst_all_at_once" 1.0 0.10 "" "the same share when all requests arrive at once";
    Interference "prefill_interference" 1.0 0.15 "" "share of other requests' prefill that stretches decode";
    SlotWait "slot_wait" 1.3 0.30 "" "factor on the wait for a slot when more requests come than fit";
    Acceptance "draft_acceptance" 0.66 0.10 "" "chance that a draft token holds where those before it did";
}

/// Number of constants.
pub const COUNT: usize = PRIORS.len();

/// One value for each constant.
#[derive(Debug, Clone, PartialEq)]
pub struct Values([f64; COUNT]);

impl Values {
    /// The priors themselves.
    #[must_use]
    pub fn priors() -> Self {
        let mut values = [1.0; COUNT];
        for (value, prior) in values.iter_mut().zip(PRIORS) {
            *value = prior.value;
        }
        Self(values)
    }

    /// From logarithms, in the order of [`Parameter`]; missing ones stay at their prior, unusable ones too.
    #[must_use]
    pub fn from_logs(logs: &[f64]) -> Self {
        let mut values = Self::priors();
        for (value, log) in values.0.iter_mut().zip(logs) {
            let given = log.exp();
            if given.is_finite() && given > 0.0 {
                *value = given;
            }
        }
        values
    }

    /// The value of a constant.
    #[must_use]
    pub fn get(&self, parameter: Parameter) -> f64 {
        self.0.get(parameter as usize).copied().unwrap_or(1.0)
    }

    /// Set a constant by name. False when there is none of that name or the value is not a positive number.
    pub fn set(&mut self, name: &str, value: f64) -> bool {
        let known = PRIORS.iter().position(|prior| prior.name == name);
        match known.and_then(|i| self.0.get_mut(i)) {
            Some(slot) if value.is_finite() && value > 0.0 => {
                *slot = value;
                true
            }
            _ => false,
        }
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Prior, f64)> + '_ {
        PRIORS.iter().zip(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_values_round_trip() {
        let mut names: Vec<_> = PRIORS.iter().map(|p| p.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
        let mut values = Values::priors();
        assert!(values.set("layer_seconds", 5e-5));
        assert_eq!(values.get(Parameter::LayerCost), 5e-5);
        assert!(!values.set("layer_seconds", f64::NAN) && !values.set("no_such", 1.0));
        assert_eq!(values.get(Parameter::LayerCost), 5e-5);
        let logs: Vec<f64> = values.iter().map(|(_, v)| v.ln()).collect();
        let again = Values::from_logs(&logs);
        for ((_, a), (_, b)) in again.iter().zip(values.iter()) {
            assert!((a / b - 1.0).abs() < 1e-12);
        }
    }
}
