//! Wrappers that put a tower before a decoder of any class: which class that decoder is.

use super::Context;

/// The class of each kind of decoder that stands alone, for text configs that name only their kind
/// (`config/vllm.py` `with_hf_config`, by the table of transformers).
const BY_MODEL_TYPE: &[(&str, &str)] = &[
    ("gemma2", "Gemma2ForCausalLM"),
    ("gpt_oss", "GptOssForCausalLM"),
    ("internlm2", "InternLM2ForCausalLM"),
    ("llama", "LlamaForCausalLM"),
    ("mistral", "MistralForCausalLM"),
    ("phi3", "Phi3ForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("qwen3_moe", "Qwen3MoeForCausalLM"),
];

/// The decoder's class under a wrapper; `None` where the wrapper's own name says what the decoder is.
pub fn decoder<'c>(context: &Context<'c>) -> Option<&'c str> {
    match context.architecture {
        "Glm4vForConditionalGeneration" => Some("Glm4ForCausalLM"),
        "Glm4vMoeForConditionalGeneration" => Some("Glm4MoeForCausalLM"),
        "InternVLChatModel" | "InternVLForConditionalGeneration" | "InternS1ForConditionalGeneration" => {
            let text = context.config;
            let named = text.texts(&["architectures"]).and_then(|names| names.first().copied());
            // without a word of its own the text config shows the wrapper's
            named.filter(|name| *name != context.architecture).or_else(|| {
                BY_MODEL_TYPE.iter().find(|(kind, _)| *kind == text.model_type).map(|(_, class)| *class)
            })
        }
        _ => None,
    }
}
