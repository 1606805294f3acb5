//! Settings of the Slack face, and its secrets from text or file.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Secret;

/// The Slack app. Without a signing secret there is none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlackSection {
    /// Several with commas between them while they are rotated.
    pub signing_secret: Secret,
    pub signing_secret_file: PathBuf,
    pub bot_token: Secret,
    pub bot_token_file: PathBuf,
    pub dashboard_url: String,
    pub test_origin: String,
}

impl SlackSection {
    /// The signing secrets: of the setting, else of the file. None: no Slack.
    ///
    /// # Errors
    /// A sentence when the file cannot be read.
    pub fn signing_secrets(&self) -> Result<Vec<Secret>, String> {
        let text = self.signing_secret.or_file(&self.signing_secret_file, "slack.signing_secret_file")?;
        let each = text.expose().split([',', '\n']).map(str::trim).filter(|secret| !secret.is_empty());
        Ok(each.map(Secret::from).collect())
    }

    /// The bot's token: of the setting, else of the file; empty where there is none.
    ///
    /// # Errors
    /// A sentence when the file cannot be read.
    pub fn token(&self) -> Result<Secret, String> {
        self.bot_token.or_file(&self.bot_token_file, "slack.bot_token_file")
    }

    /// Where messages go in tests instead of to Slack.
    #[must_use]
    pub fn test_origin(&self) -> Option<&str> {
        Some(self.test_origin.as_str()).filter(|origin| !origin.is_empty())
    }

    /// The dashboard for links.
    #[must_use]
    pub fn dashboard(&self) -> Option<String> {
        Some(self.dashboard_url.trim_end_matches('/').to_owned()).filter(|url| !url.is_empty())
    }

    /// True when links can be made of the dashboard's address.
    pub(super) fn has_usable_dashboard(&self) -> bool {
        let url = &self.dashboard_url;
        let plain = url.chars().all(|c| c.is_ascii_graphic() && !"<>|\"?#".contains(c)) && url.len() <= 500;
        url.is_empty() || (plain && (url.starts_with("https://") || url.starts_with("http://")))
    }

    /// True for no test origin, or one on this machine: messages may never be sent anywhere else than to Slack.
    pub(super) fn has_safe_test_origin(&self) -> bool {
        let Some(origin) = self.test_origin() else { return true };
        let Some(rest) = origin.strip_prefix("http://") else { return false };
        let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "80"));
        let loopback = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        loopback && port.parse::<u16>().is_ok()
    }
}

/// Bytes of a file with a secret.
const MOST: u64 = 64 << 10;

impl Secret {
    /// This secret, or where it is empty and a file is named, the file's text.
    ///
    /// # Errors
    /// A sentence with the setting's name when the file cannot be read.
    pub fn or_file(&self, file: &Path, setting: &str) -> Result<Self, String> {
        if !self.expose().is_empty() || file.as_os_str().is_empty() {
            return Ok(self.clone());
        }
        let fault = |why: &str| format!("{setting}: {} {why}", file.display());
        let size = std::fs::metadata(file).map_err(|e| fault(&format!("cannot be read: {e}")))?.len();
        if size > MOST {
            return Err(fault("is too large for a secret"));
        }
        let text = std::fs::read_to_string(file).map_err(|e| fault(&format!("cannot be read: {e}")))?;
        Ok(Self::from(text.trim()))
    }
}
