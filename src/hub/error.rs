//! Why the hub gave no answer.

use std::time::Duration;

use thiserror::Error;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HubError {
    #[error("a hub's model is named `org/name`, of letters, digits, `.`, `_` and `-`")]
    BadName,
    #[error("a revision is a branch, tag, commit or `refs/pr/<number>`")]
    BadRevision,
    #[error("the hub has no model `{0}`, or it is private")]
    NotFound(String),
    #[error("the hub has no revision `{revision}` of `{id}`")]
    NoRevision { id: String, revision: String },
    #[error("`{0}` has no config.json on the hub")]
    NoConfig(String),
    #[error("`{0}` is gated on the hub: accept its terms there and configure a token that may read it")]
    Gated(String),
    #[error("the hub does not accept the configured token")]
    TokenRefused,
    #[error("the hub allows no more requests now")]
    RateLimited { retry_after: Option<Duration> },
    #[error("the hub does not work now: {reason}")]
    Unavailable { reason: String, retry_after: Option<Duration> },
    #[error("the hub did not answer in time")]
    TimedOut,
    #[error("the hub sent more than {limit} bytes for {file}")]
    TooLarge { file: &'static str, limit: usize },
    #[error("the hub sent something else than JSON for {file}: {reason}")]
    NotJson { file: &'static str, reason: String },
    #[error("the hub's answer broke off")]
    Truncated,
    #[error("the hub redirects to {0}, where this service does not go")]
    RedirectRefused(String),
    #[error("the hub client failed: {0}")]
    Internal(String),
}

impl HubError {
    /// A further attempt may succeed.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Unavailable { .. } | Self::TimedOut | Self::Truncated)
    }

    /// How long the hub asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
