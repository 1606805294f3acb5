//! The two halves of a split deployment: prefill workers compute a prompt's cache, decode workers read it and go on.
//!
//! Sources: vLLM `docs/features/nixl_connector_usage.md` (026c83f: `--kv-transfer-config`, `VLLM_NIXL_SIDE_CHANNEL_*`),
//! SGLang 0.5.23 `server_args.py` (`--disaggregation-*`), TensorRT-LLM `docs/source/features/disagg-serving.md` (0434b982:
//! `cache_transceiver_config`, a context server without the overlap scheduler).

use serde_json::{Value, json};

use super::start::Start;
use super::{Engine, Role, Wanted};

pub(crate) const NIXL: &str = "nixl";
/// Where vLLM's workers shake hands; each attention group counts up from it.
pub(super) const SIDE_CHANNEL_PORT: u64 = 5600;
/// Where SGLang's decode workers find a prefill worker.
pub(super) const BOOTSTRAP_PORT: u64 = 8998;
/// Ports that a half may take on a node: decode workers come after those of prefill.
const PORTS_OF_A_HALF: u64 = 100;

/// What may carry the cache, the usual one first.
pub(crate) fn connectors(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Vllm => &[NIXL],
        Engine::Sglang => &[NIXL, "mooncake"],
        Engine::TensorRtLlm => &[NIXL, "ucx", "mpi"],
    }
}

impl Role {
    /// The word for it in names and flags.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

impl<'a> Wanted<'a> {
    /// The same as one half of a pair, and with the first GPU of its own on a node that holds both.
    pub(crate) fn half(self, role: Role, connector: &'a str, own_from: Option<u64>) -> Self {
        Self { role, own_from, connector, ..self }
    }

    /// The file of options of this half.
    pub(super) fn options_file(&self) -> &'static str {
        match self.role {
            Role::Both => super::tensorrt_llm::OPTIONS_FILE,
            Role::Prefill => "trtllm-options-prefill.yaml",
            Role::Decode => "trtllm-options-decode.yaml",
        }
    }

    /// How far ports of this half lie behind the usual ones, on a node where both may run.
    pub(super) fn ports_from(&self) -> u64 {
        if self.role == Role::Decode { PORTS_OF_A_HALF } else { 0 }
    }

    /// What stands in front of a command of a half: where others reach this worker.
    pub(super) fn reachable(&self, replica: u64) -> String {
        if self.role == Role::Both || self.engine != Engine::Vllm {
            return String::new();
        }
        let groups = replica.saturating_mul(self.layout.layout.attention_dp.max(1));
        let port = SIDE_CHANNEL_PORT.saturating_add(self.ports_from()).saturating_add(groups);
        format!("VLLM_NIXL_SIDE_CHANNEL_HOST=$NODE_IP VLLM_NIXL_SIDE_CHANNEL_PORT={port} ")
    }
}

/// The flags of a half.
pub(super) fn flags(start: &mut Start, wanted: &Wanted<'_>) {
    match (wanted.engine, wanted.role) {
        (_, Role::Both) | (Engine::TensorRtLlm, _) => {}
        (Engine::Vllm, role) => {
            let role = if role == Role::Prefill { "kv_producer" } else { "kv_consumer" };
            let config = json!({"kv_connector": "NixlConnector", "kv_role": role});
            start.text("--kv-transfer-config", &config.to_string());
        }
        (Engine::Sglang, role) => {
            start.text("--disaggregation-mode", role.word());
            start.text("--disaggregation-transfer-backend", wanted.connector);
        }
    }
}

/// TensorRT-LLM's options of a half: the buffer holds the longest prompt in whole pages.
pub(super) fn options(wanted: &Wanted<'_>) -> Vec<(&'static str, Value)> {
    if wanted.role == Role::Both {
        return Vec::new();
    }
    let page = wanted.layout.capacity.block_size.max(1);
    let buffer = wanted.max_model_len().checked_next_multiple_of(page).unwrap_or(u64::MAX);
    let transceiver =
        json!({"backend": wanted.connector.to_ascii_uppercase(), "max_tokens_in_buffer": buffer});
    let mut options = vec![("cache_transceiver_config", transceiver)];
    if wanted.role == Role::Prefill {
        options.push(("disable_overlap_scheduler", json!(true)));
    }
    options
}
