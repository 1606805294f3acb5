//! Values to YAML. Every scalar that could be read as anything but its own text is quoted by the serializer.

use serde_json::Value;

/// One document, ending with a newline.
pub(super) fn document(value: &Value) -> String {
    let mut text = serde_saphyr::to_string(value).unwrap_or_default();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Documents of one file, under a comment. The comment is one line, whatever it holds.
pub(super) fn file(comment: &str, documents: &[Value]) -> String {
    let comment: String = comment.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let bodies: Vec<String> = documents.iter().map(document).collect();
    format!("# {comment}\n{}", bodies.join("---\n"))
}
