//! Wrappers that put a tower before a decoder of any class: which class that decoder is.

use super::Context;

/// The class of each kind of decoder that stands alone, for text configs that name only their kind
/// (`config/vllm.py` `with_hf_config`, by the table of transformers).
const BY_MODEL_TYPE: &[(&str, &str)] = &[
    ("cohere2", "Cohere2ForCausalLM"),
    ("gemma", "GemmaForCausalLM"),
    ("gemma2", "Gemma2ForCausalLM"),
    ("gemma3_text", "Gemma3ForCausalLM"),
    ("gpt_oss", "GptOssForCausalLM"),
    ("granite", "GraniteForCausalLM"),
    ("internlm2", "InternLM2ForCausalLM"),
    ("llama", "LlamaForCausalLM"),
    ("ministral3", "Ministral3ForCausalLM"),
    ("mistral", "MistralForCausalLM"),
    ("mixtral", "MixtralForCausalLM"),
    ("phi3", "Phi3ForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("qwen3_moe", "Qwen3MoeForCausalLM"),
];

/// The decoder's class under a wrapper; `None` where the wrapper's own name says what the decoder is.
pub fn decoder<'c>(context: &Context<'c>) -> Option<&'c str> {
    match context.architecture {
        "Gemma3nForConditionalGeneration" => Some("Gemma3nForCausalLM"),
        "Glm4vForConditionalGeneration" => Some("Glm4ForCausalLM"),
        "Glm4vMoeForConditionalGeneration" => Some("Glm4MoeForCausalLM"),
        "Idefics3ForConditionalGeneration" | "SmolVLMForConditionalGeneration" | "Phi3VForCausalLM" => {
            Some("LlamaForCausalLM")
        }
        // whatever the text config names, by its kind alone
        "PaliGemmaForConditionalGeneration" if context.config.model_type == "gemma" => {
            Some("GemmaForCausalLM")
        }
        "PaliGemmaForConditionalGeneration" => Some("Gemma2ForCausalLM"),
        "Qwen2AudioForConditionalGeneration" | "Qwen2_5OmniModel" | "Qwen2_5OmniForConditionalGeneration" => {
            Some("Qwen2ForCausalLM")
        }
        "Qwen3OmniMoeForConditionalGeneration" => Some("Qwen3MoeForCausalLM"),
        "Cohere2VisionForConditionalGeneration"
        | "InternVLChatModel"
        | "InternVLForConditionalGeneration"
        | "InternS1ForConditionalGeneration"
        | "LlavaForConditionalGeneration"
        | "LlavaNextForConditionalGeneration"
        | "LlavaNextVideoForConditionalGeneration"
        | "LlavaOnevisionForConditionalGeneration" => {
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

/// Wrappers whose class cannot be cut into pipeline stages, whatever its decoder can.
pub fn stays_whole(architecture: &str) -> bool {
    matches!(architecture, "Idefics3ForConditionalGeneration" | "SmolVLMForConditionalGeneration")
}
