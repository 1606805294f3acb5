//! Messages as Block Kit, never beyond its limits.
//!
//! Limits: Slack's reference of blocks and block elements (50 blocks, 3,000 characters a text, 25 elements of actions,
//! 75 characters on a button, 2,000 in its value, 3,000 in an address). Over all blocks Slack refuses more than about
//! 13,200 characters with `msg_blocks_too_long`, which its reference does not say (slackapi/bolt-js issue 2509).

use serde::Serialize;

/// Characters of a text.
const TEXT: usize = 3000;
/// Characters on a button.
const LABEL: usize = 75;
/// Characters that a button carries.
const VALUE: usize = 2000;
/// Characters of an address.
const ADDRESS: usize = 3000;
/// Characters of all blocks together, counted as the JSON that is sent: the strictest reading.
const TOTAL: usize = 13_200;

/// Who sees an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The one who asked.
    Ephemeral,
    InChannel,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    pub response_type: Audience,
    /// The message whose button was pressed stays as it is.
    pub replace_original: bool,
    /// For notifications and screen readers.
    pub text: String,
    pub blocks: Vec<Block>,
}

/// A block; these are all that we use.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Section { text: Text },
    Actions { elements: Vec<Button> },
}

/// A text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Text {
    /// With Slack's marks. `verbatim`: nothing in it becomes a link or a mention by itself.
    Mrkdwn {
        text: String,
        verbatim: bool,
    },
    PlainText {
        text: String,
    },
}

/// A button.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Button {
    #[serde(rename = "type")]
    kind: &'static str,
    text: Text,
    action_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl Button {
    /// A button that sends a value back; nothing when the value is longer than Slack carries.
    #[must_use]
    pub fn sending(action: &str, label: &str, value: String) -> Option<Self> {
        (value.chars().count() <= VALUE).then(|| Self::of(action, label, Some(value), None))
    }

    /// A button that opens an address; nothing when the address is too long.
    #[must_use]
    pub fn opening(action: &str, label: &str, url: String) -> Option<Self> {
        (url.chars().count() <= ADDRESS).then(|| Self::of(action, label, None, Some(url)))
    }

    fn of(action: &str, label: &str, value: Option<String>, url: Option<String>) -> Self {
        let label = label.chars().take(LABEL).collect();
        Self {
            kind: "button",
            text: Text::PlainText { text: label },
            action_id: action.to_owned(),
            value,
            url,
        }
    }
}

impl Message {
    /// Lines with buttons beneath. Lines that go beyond a text's limit are left out from the end, buttons that would
    /// go beyond the total too.
    #[must_use]
    pub fn of(audience: Audience, lines: &[String], mut buttons: Vec<Button>) -> Self {
        let text = within(lines);
        loop {
            let section = Block::Section { text: Text::Mrkdwn { text: text.clone(), verbatim: true } };
            let mut blocks = vec![section];
            if !buttons.is_empty() {
                blocks.push(Block::Actions { elements: buttons.clone() });
            }
            let size = serde_json::to_string(&blocks).map_or(0, |json| json.chars().count());
            if size <= TOTAL || buttons.pop().is_none() {
                return Self { response_type: audience, replace_original: false, text, blocks };
            }
        }
    }
}

/// The lines that a text holds; at least a part of the first.
fn within(lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let room = TEXT - text.chars().count();
        if line.chars().count() + 1 > room {
            if text.is_empty() {
                return cut(line, TEXT);
            }
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
    // an empty text is no text to Slack
    if text.is_empty() { "…".to_owned() } else { text }
}

/// The first characters of a line, not ending inside an entity or a link.
fn cut(line: &str, most: usize) -> String {
    let mut text: String = line.chars().take(most - 1).collect();
    for (open, close) in [('<', '>'), ('&', ';')] {
        if let Some(start) = text.rfind(open)
            && !text[start..].contains(close)
        {
            text.truncate(start);
        }
    }
    text.push('…');
    text
}

/// A text from outside as a part of a line: on one line, of a bounded length, and nothing in it is a mention or a link.
#[must_use]
pub fn safe(text: &str) -> String {
    const MOST: usize = 400;
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(MOST) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.push(' '),
            // these turn the rest of a line around
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c => out.push(c),
        }
    }
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_within_the_limits() {
        let long = "x&<!channel>".repeat(2000);
        let button = |n: usize| Button::sending(&format!("a{n}"), &long, "v".repeat(2000)).expect("fits");
        let message =
            Message::of(Audience::InChannel, &[safe(&long), long.clone()], (0..9).map(button).collect());
        let json = serde_json::to_string(&message.blocks).expect("JSON");
        assert!(
            json.chars().count() <= TOTAL && json.contains("\"a0\"") && !json.contains("\"a8\""),
            "{json}"
        );
        assert!(message.text.chars().count() <= TEXT && !message.text.contains("<!"), "{}", message.text);
        assert_eq!(Button::sending("a", "b", "v".repeat(2001)), None);
        assert_eq!(Button::opening("a", "b", "v".repeat(3001)), None);
        assert_eq!(Message::of(Audience::Ephemeral, &[], Vec::new()).text, "…");
    }

    #[test]
    fn a_cut_line_is_whole_in_its_marks() {
        assert_eq!(cut("abc&amp;def", 6), "abc…");
        assert_eq!(cut("ab<https://x|y>", 9), "ab…");
        assert_eq!(cut("ab<x|y>cdefg", 10), "ab<x|y>cd…");
    }
}
