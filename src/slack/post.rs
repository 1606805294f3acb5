//! Messages that are sent later: to the address that came with a command, or into a channel with the bot's token.
//!
//! Nothing is ever sent to a host that a request names, unless it is Slack's own.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::time::Instant;

use super::blocks::Message;
use crate::config::Secret;

/// Host of the addresses that Slack gives with commands and presses of buttons.
const HOOKS: &str = "https://hooks.slack.com";
/// Where the Web API lives.
const API: &str = "https://slack.com";
/// Slack takes so many answers at one address, for so long.
const MOST_POSTS: u32 = 5;
const POSTS_FOR: Duration = Duration::from_mins(30);
/// One attempt.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Bytes of Slack's answer that are read.
const MOST_ANSWER: usize = 64 << 10;

/// An address to answer at, on Slack's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseUrl(Url);

/// Why something was not sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PostError {
    #[error("the address to answer at is not Slack's")]
    NotSlack,
    #[error("Slack refused: {0}")]
    Refused(String),
    #[error("Slack could not be reached: {0}")]
    Away(String),
    #[error("there is no bot token")]
    NoToken,
}

/// The way out.
pub struct Outlet {
    client: Client,
    hooks: Url,
    api: Url,
    token: Option<HeaderValue>,
    first_pause: Duration,
}

impl Outlet {
    /// A way out to Slack, or to `test_origin`, which settings may name for tests and nothing else may.
    ///
    /// # Errors
    /// A sentence when the token or the origin cannot be used.
    pub fn new(token: &Secret, test_origin: Option<&str>) -> Result<Self, String> {
        let place = |usual: &str| {
            Url::parse(test_origin.unwrap_or(usual)).map_err(|_| "slack.test_origin is no address".to_owned())
        };
        let token = match token.expose() {
            "" => None,
            text => {
                let mut value = HeaderValue::from_str(&format!("Bearer {text}"))
                    .map_err(|_| "the bot token holds characters that no header may".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        // fails only where another provider was installed first, which serves as well
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .user_agent(concat!("shardwise/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ATTEMPT)
            .referer(false);
        if test_origin.is_some() {
            client = client.no_proxy();
        }
        let client =
            client.build().map_err(|error| format!("the client for Slack cannot be built: {error}"))?;
        let first_pause = Duration::from_secs(1);
        Ok(Self { client, hooks: place(HOOKS)?, api: place(API)?, token, first_pause })
    }

    /// True when messages can be sent into channels.
    #[must_use]
    pub const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// An address from a request, if it is on Slack's host.
    ///
    /// # Errors
    /// [`PostError::NotSlack`] for every other host, scheme or port, and for one with a user in it.
    pub fn response_url(&self, text: &str) -> Result<ResponseUrl, PostError> {
        let url = Url::parse(text).map_err(|_| PostError::NotSlack)?;
        let plain = url.username().is_empty() && url.password().is_none();
        let same = url.scheme() == self.hooks.scheme()
            && url.host() == self.hooks.host()
            && url.port_or_known_default() == self.hooks.port_or_known_default();
        if plain && same { Ok(ResponseUrl(url)) } else { Err(PostError::NotSlack) }
    }

    /// Answer at an address. It is tried again while Slack allows it.
    ///
    /// # Errors
    /// [`PostError`] once there is no use in trying again.
    pub async fn respond(&self, to: &ResponseUrl, message: &Message) -> Result<(), PostError> {
        let body = serde_json::to_vec(message).map_err(|error| PostError::Refused(error.to_string()))?;
        self.tried(&to.0, None, &body).await.map(|_| ())
    }

    /// Write into a channel, under a message.
    ///
    /// # Errors
    /// As [`Self::respond`]; [`PostError::NoToken`].
    pub async fn write(&self, channel: &str, thread: &str, message: &Message) -> Result<(), PostError> {
        let token = self.token.as_ref().ok_or(PostError::NoToken)?;
        let url = self.api.join("/api/chat.postMessage").map_err(|_| PostError::NotSlack)?;
        let body = json!({
            "channel": channel, "thread_ts": thread, "text": message.text, "blocks": message.blocks,
            "unfurl_links": false, "unfurl_media": false,
        });
        let answer = self.tried(&url, Some(token), body.to_string().as_bytes()).await?;
        #[derive(Deserialize)]
        struct Said {
            ok: bool,
            #[serde(default)]
            error: String,
        }
        match serde_json::from_slice(&answer) {
            Ok(Said { ok: true, .. }) => Ok(()),
            Ok(Said { error, .. }) => Err(PostError::Refused(error.chars().take(100).collect())),
            Err(_) => Err(PostError::Refused("an answer that is not JSON".to_owned())),
        }
    }

    async fn tried(&self, url: &Url, token: Option<&HeaderValue>, body: &[u8]) -> Result<Vec<u8>, PostError> {
        let started = Instant::now();
        let mut pause = self.first_pause;
        let mut posts = 0;
        loop {
            posts += 1;
            let (fault, asked_pause) = match self.once(url, token, body).await {
                Ok(answer) => {
                    metrics::counter!("shardwise_slack_posts_total", "result" => "sent").increment(1);
                    return Ok(answer);
                }
                Err(fault) => fault,
            };
            let wait = asked_pause.unwrap_or(pause);
            let may_try = matches!(fault, PostError::Away(_)) && posts < MOST_POSTS;
            if !may_try || started.elapsed() + wait > POSTS_FOR {
                metrics::counter!("shardwise_slack_posts_total", "result" => "failed").increment(1);
                return Err(fault);
            }
            tokio::time::sleep(wait).await;
            pause = pause.saturating_mul(2);
        }
    }

    /// One attempt; a fault with the pause that Slack asks for.
    async fn once(
        &self,
        url: &Url,
        token: Option<&HeaderValue>,
        body: &[u8],
    ) -> Result<Vec<u8>, (PostError, Option<Duration>)> {
        let mut request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json; charset=utf-8")
            .body(body.to_vec());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        // the address is a secret: whoever has it can write there
        let away = |error: reqwest::Error| (PostError::Away(error.without_url().to_string()), None);
        let mut response = request.send().await.map_err(away)?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            let asked = response.headers().get("retry-after").and_then(|v| v.to_str().ok()?.parse().ok());
            let pause = asked.map(|seconds: u64| Duration::from_secs(seconds.min(600)));
            return Err((PostError::Away(format!("status {}", status.as_u16())), pause));
        }
        if !status.is_success() {
            return Err((PostError::Refused(format!("status {}", status.as_u16())), None));
        }
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            if answer.len() + chunk.len() > MOST_ANSWER {
                break;
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::{Outlet, PostError};

    #[test]
    fn only_slacks_own_host_is_answered() {
        let outlet = Outlet::new(&"".into(), None).expect("an outlet");
        for good in [
            "https://hooks.slack.com/commands/T1/2/x",
            "https://hooks.slack.com:443/actions/T1/2/x",
            "https://HOOKS.slack.com/app/T1/2/x",
        ] {
            assert!(outlet.response_url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://hooks.slack.com/commands/x",
            "https://hooks.slack.com.evil.example/x",
            "https://evil.example/hooks.slack.com",
            "https://hooks.slack.com@evil.example/x",
            "https://user@hooks.slack.com/x",
            "https://hooks.slack.com:8443/x",
            "https://slack.com/x",
            "https://xhooks.slack.com/x",
            "https://127.0.0.1/x",
            "http://169.254.169.254/latest/meta-data",
            "file:///etc/passwd",
            "hooks.slack.com",
            "",
        ] {
            assert_eq!(outlet.response_url(bad), Err(PostError::NotSlack), "{bad}");
        }
    }
}
