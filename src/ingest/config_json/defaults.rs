//! Defaults of configuration classes: what a field means when it is absent.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// By model type, then by field. `data/models/class_defaults.json` names its source.
static DEFAULTS: LazyLock<BTreeMap<String, BTreeMap<String, Value>>> = LazyLock::new(|| {
    // a broken data file is caught by the test below; an empty table only means "no defaults"
    serde_json::from_str(include_str!("../../../data/models/class_defaults.json")).unwrap_or_default()
});

/// By model type, then by field, sizes among them: what a section (a text or tower config inside another) leaves out. Files hold
/// of a section only what differs from its class (transformers `to_diff_dict`). `data/models/section_defaults.json` names its source.
static SECTIONS: LazyLock<BTreeMap<String, BTreeMap<String, Value>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../data/models/section_defaults.json")).unwrap_or_default()
});

/// The class default of a field of a section that names its own model type.
pub fn of_section(model_type: &str, field: &str) -> Option<&'static Value> {
    SECTIONS.get(model_type)?.get(field)
}

/// The class default of a field for a model type, if it has one.
pub fn of(model_type: &str, field: &str) -> Option<&'static Value> {
    DEFAULTS.get(model_type)?.get(field)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_read() {
        assert_eq!(super::of("qwen3", "head_dim").and_then(serde_json::Value::as_u64), Some(128));
        assert_eq!(
            super::of("gemma2", "tie_word_embeddings").and_then(serde_json::Value::as_bool),
            Some(true)
        );
        let size = |kind, field| super::of_section(kind, field).and_then(serde_json::Value::as_u64);
        assert_eq!(size("gemma3_text", "num_attention_heads"), Some(8));
        assert_eq!(size("siglip_vision_model", "patch_size"), Some(16));
    }
}
