//! Whether a message is valid Block Kit: Slack's limits, written down a second time.
//!
//! Source: Slack's reference of blocks, block elements and composition objects; the limit on all blocks together is what
//! Slack enforces (slackapi/bolt-js issue 2509).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Every fault of a message for a `response_url` or a slash command's answer.
pub fn faults(message: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    let response = message["response_type"].as_str().unwrap_or("none");
    check(matches!(response, "ephemeral" | "in_channel"), format!("response_type {response}"));
    let text = message["text"].as_str().unwrap_or_default();
    check((1..=4000).contains(&text.chars().count()), "text of 1 to 4,000 characters".to_owned());
    let blocks = message["blocks"].as_array().cloned().unwrap_or_default();
    check((1..=50).contains(&blocks.len()), format!("{} blocks", blocks.len()));
    let total = Value::Array(blocks.clone()).to_string().chars().count();
    check(total <= 13_200, format!("{total} characters of blocks"));
    let mut actions = BTreeSet::new();
    for block in &blocks {
        faults.extend(block_faults(block, &mut actions));
    }
    faults
}

fn block_faults(block: &Value, actions: &mut BTreeSet<String>) -> Vec<String> {
    let Some(object) = block.as_object() else { return vec!["a block is no object".to_owned()] };
    let mut faults = Vec::new();
    if object.get("block_id").and_then(Value::as_str).is_some_and(|id| id.chars().count() > 255) {
        faults.push("a block_id is too long".to_owned());
    }
    match object.get("type").and_then(Value::as_str).unwrap_or_default() {
        "section" => {
            faults.extend(unknown_keys(object, &["type", "text", "fields", "block_id", "accessory"]));
            let fields = object.get("fields").and_then(Value::as_array);
            match object.get("text") {
                Some(text) => faults.extend(text_faults(text, 3000, true)),
                None if fields.is_none() => faults.push("a section has neither text nor fields".to_owned()),
                None => {}
            }
            if let Some(fields) = fields {
                if !(1..=10).contains(&fields.len()) {
                    faults.push(format!("{} fields", fields.len()));
                }
                faults.extend(fields.iter().flat_map(|field| text_faults(field, 2000, true)));
            }
        }
        "actions" => {
            faults.extend(unknown_keys(object, &["type", "elements", "block_id"]));
            let elements = object.get("elements").and_then(Value::as_array).cloned().unwrap_or_default();
            if !(1..=25).contains(&elements.len()) {
                faults.push(format!("{} elements of actions", elements.len()));
            }
            faults.extend(elements.iter().flat_map(|button| button_faults(button, actions)));
        }
        "context" => {
            let elements = object.get("elements").and_then(Value::as_array).cloned().unwrap_or_default();
            if !(1..=10).contains(&elements.len()) {
                faults.push(format!("{} elements of a context", elements.len()));
            }
            faults.extend(elements.iter().flat_map(|text| text_faults(text, 3000, true)));
        }
        "header" => faults.extend(text_faults(&object["text"], 150, false)),
        "divider" => {}
        other => faults.push(format!("a block of type {other:?}")),
    }
    faults
}

fn button_faults(button: &Value, actions: &mut BTreeSet<String>) -> Vec<String> {
    let Some(object) = button.as_object() else { return vec!["an element is no object".to_owned()] };
    let mut faults = unknown_keys(object, &["type", "text", "action_id", "value", "url", "style"]);
    if object.get("type").and_then(Value::as_str) != Some("button") {
        faults.push("an element is no button".to_owned());
    }
    faults.extend(text_faults(&button["text"], 75, false));
    let id = button["action_id"].as_str().unwrap_or_default();
    if !(1..=255).contains(&id.chars().count()) || !actions.insert(id.to_owned()) {
        faults.push(format!("action_id {id:?} is empty, too long or there twice"));
    }
    for (key, most) in [("value", 2000), ("url", 3000)] {
        let Some(given) = object.get(key) else { continue };
        if given.as_str().is_none_or(|text| text.chars().count() > most) {
            faults.push(format!("{key} is no text of at most {most}: {given}"));
        }
    }
    let url = object.get("url").and_then(Value::as_str).unwrap_or("https://");
    if !(url.starts_with("https://") || url.starts_with("http://")) {
        faults.push(format!("url {url}"));
    }
    faults
}

fn text_faults(text: &Value, most: usize, may_have_marks: bool) -> Vec<String> {
    let Some(object) = text.as_object() else { return vec!["a text is no object".to_owned()] };
    let mut faults = Vec::new();
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
    let content = object.get("text").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "mrkdwn" if may_have_marks => {
            faults.extend(unknown_keys(object, &["type", "text", "verbatim"]));
            faults.extend(mark_faults(content));
        }
        "plain_text" => faults.extend(unknown_keys(object, &["type", "text", "emoji"])),
        other => faults.push(format!("a text of type {other:?}")),
    }
    if !(1..=most).contains(&content.chars().count()) {
        faults.push(format!("a text of {} characters, at most {most}", content.chars().count()));
    }
    faults
}

/// `<…>` is a link of ours, or it would be a mention or a broken mark; `&` begins one of Slack's three entities.
fn mark_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '>', '&']) {
        let mark = &rest[at..];
        let length = match mark.as_bytes()[0] {
            b'<' => match mark.find('>') {
                Some(end) if mark.starts_with("<https://") || mark.starts_with("<http://") => end + 1,
                _ => {
                    faults.push(format!(
                        "a mark that is no link: {}",
                        mark.chars().take(40).collect::<String>()
                    ));
                    1
                }
            },
            b'&' => match ["&amp;", "&lt;", "&gt;"].iter().find(|entity| mark.starts_with(**entity)) {
                Some(entity) => entity.len(),
                None => {
                    faults.push("a bare ampersand".to_owned());
                    1
                }
            },
            _ => {
                faults.push("a bare >".to_owned());
                1
            }
        };
        rest = &mark[length..];
    }
    faults
}

fn unknown_keys(object: &Map<String, Value>, known: &[&str]) -> Vec<String> {
    object
        .keys()
        .filter(|key| !known.contains(&key.as_str()))
        .map(|key| format!("unknown key {key}"))
        .collect()
}

/// The lines that people read.
pub fn lines(message: &Value) -> Vec<String> {
    let blocks = message["blocks"].as_array().cloned().unwrap_or_default();
    blocks
        .iter()
        .filter_map(|block| block["text"]["text"].as_str())
        .flat_map(str::lines)
        .map(str::to_owned)
        .collect()
}

/// The buttons, by what they say.
pub fn buttons(message: &Value) -> Vec<(String, Value)> {
    let blocks = message["blocks"].as_array().cloned().unwrap_or_default();
    let elements = blocks.iter().filter_map(|block| block["elements"].as_array().cloned()).flatten();
    elements.map(|button| (button["text"]["text"].as_str().unwrap_or_default().to_owned(), button)).collect()
}
