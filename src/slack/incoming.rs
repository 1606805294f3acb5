//! What Slack sends, read: slash commands (a form), events (JSON), presses of buttons (JSON in a form).
//!
//! Source: Slack's documentation of slash commands, the Events API and `block_actions` payloads.

use serde::Deserialize;
use serde_json::Value;

/// A slash command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    pub team_id: String,
    /// As typed, e.g. `/shardwise`.
    pub command: String,
    /// What followed it, in plain characters.
    pub text: String,
    pub response_url: String,
    /// Slack looks whether the certificate holds; there is no question.
    pub ssl_check: bool,
}

impl Command {
    /// Read the form. Fields that are not ours are passed over.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let mut command = Self::default();
        for (name, value) in form_urlencoded::parse(body) {
            match name.as_ref() {
                "team_id" => command.team_id = value.into_owned(),
                "command" => command.command = value.into_owned(),
                "text" => command.text = plain(&value),
                "response_url" => command.response_url = value.into_owned(),
                "ssl_check" => command.ssl_check = value == "1",
                _ => {}
            }
        }
        command
    }
}

/// What the Events API sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The address is being set up: the challenge is to be sent back.
    Verification(String),
    Mention(Mention),
    /// One that is none of ours.
    Other,
}

/// Somebody wrote to the bot in a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    pub event_id: String,
    pub team_id: String,
    pub channel: String,
    /// The message to answer under.
    pub thread: String,
    pub text: String,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    challenge: String,
    #[serde(default)]
    team_id: String,
    #[serde(default)]
    event_id: String,
    event: Option<Inner>,
}

#[derive(Deserialize)]
struct Inner {
    #[serde(rename = "type")]
    kind: String,
    /// There on messages of bots; ours must not answer itself.
    bot_id: Option<String>,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    ts: String,
    thread_ts: Option<String>,
}

impl Event {
    /// Read the JSON.
    ///
    /// # Errors
    /// A sentence when it is not the JSON of an event.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let envelope: Envelope =
            serde_json::from_slice(body).map_err(|error| format!("not an event: {error}"))?;
        let is_mention = |event: &Inner| event.kind == "app_mention" && event.bot_id.is_none();
        Ok(match (envelope.kind.as_str(), envelope.event) {
            ("url_verification", _) => Self::Verification(envelope.challenge),
            ("event_callback", Some(event)) if is_mention(&event) => Self::Mention(Mention {
                event_id: envelope.event_id,
                team_id: envelope.team_id,
                channel: event.channel,
                thread: event.thread_ts.unwrap_or(event.ts),
                text: plain(&event.text),
            }),
            _ => Self::Other,
        })
    }
}

/// A button that was pressed.
#[derive(Debug, Clone, PartialEq)]
pub struct Press {
    pub action: String,
    /// What the button carries.
    pub value: Option<Value>,
    pub response_url: String,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    response_url: String,
    #[serde(default)]
    actions: Vec<Action>,
}

#[derive(Deserialize)]
struct Action {
    action_id: String,
    value: Option<String>,
}

impl Press {
    /// Read the form. `None`: an interaction that is none of ours.
    ///
    /// # Errors
    /// A sentence when the form has no payload of JSON.
    pub fn read(body: &[u8]) -> Result<Option<Self>, String> {
        let payload = form_urlencoded::parse(body).find(|(name, _)| name == "payload");
        let (_, text) = payload.ok_or_else(|| "the form has no payload".to_owned())?;
        let payload: Payload =
            serde_json::from_str(&text).map_err(|error| format!("not a payload: {error}"))?;
        if payload.kind != "block_actions" {
            return Ok(None);
        }
        let response_url = payload.response_url;
        Ok(payload.actions.into_iter().next().map(|action| Self {
            action: action.action_id,
            value: action.value.and_then(|text| serde_json::from_str(&text).ok()),
            response_url,
        }))
    }
}

/// Slack's text as people typed it: mentions go, links keep their label, and `&amp; &lt; &gt;` are characters again.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        out.push_str(&rest[..start]);
        let inside = &rest[start + 1..];
        let Some(end) = inside.find('>') else {
            rest = &rest[start..];
            break;
        };
        let tag = &inside[..end];
        let (target, label) = tag.split_once('|').unwrap_or((tag, tag));
        match target.chars().next() {
            Some('@' | '!') => out.push(' '),
            Some('#') => out.push_str(label.trim_start_matches('#')),
            _ if target.contains("://") || target.starts_with("mailto:") => out.push_str(label),
            _ => {
                // a sign that somebody typed
                out.push('<');
                rest = inside;
                continue;
            }
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    out.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn texts_are_what_people_typed() {
        for (sent, typed) in [
            ("<@U0LAN0Z89> llama 70b on 8 H100", "llama 70b on 8 H100"),
            ("ttft &lt; 1 s &amp; tpot &lt; 40 ms", "ttft < 1 s & tpot < 40 ms"),
            ("&amp;lt;!channel&amp;gt;", "&lt;!channel&gt;"),
            ("<!channel> hi <!subteam^S1|@ops>", "hi"),
            ("<http://llama.cpp|llama.cpp> on <#C1|general>", "llama.cpp on general"),
            ("<https://a.b/c>", "https://a.b/c"),
            ("a < b > c", "a < b > c"),
            ("a < b", "a < b"),
            ("<", "<"),
            ("<>", "<>"),
            ("ü<@ü>ü", "ü ü"),
        ] {
            assert_eq!(plain(sent), typed, "{sent}");
        }
    }
}
