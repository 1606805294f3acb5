//! Settings of the server: defaults file, file, environment, flags. The later one wins, and each value
//! remembers where it came from. This is the only place that reads the environment.

mod secret;
mod slack;
mod source;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

pub use secret::Secret;
pub use slack::SlackSection;
pub use source::{Origin, Sources, environment};

/// The defaults, which are the documentation too.
pub const DEFAULTS: &str = include_str!("default.toml");

/// Every setting.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub server: Server,
    pub database: Database,
    pub cache: Cache,
    pub plans: Plans,
    pub log: Log,
    pub hub: HubSection,
    pub planner: Planner,
    pub slack: SlackSection,
}

/// The listeners and their limits.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub listen: SocketAddr,
    #[serde(deserialize_with = "source::maybe_address")]
    pub metrics_listen: Option<SocketAddr>,
    pub request_timeout_ms: u64,
    pub body_limit_bytes: usize,
    pub max_in_flight: usize,
    pub drain_ms: u64,
    pub stop_timeout_ms: u64,
}

/// Where things are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    pub url: Secret,
    pub path: PathBuf,
    pub connections: u32,
    pub acquire_timeout_ms: u64,
    pub migrate: bool,
}

/// Which database the settings name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Postgres(Secret),
    Sqlite(PathBuf),
}

impl Database {
    /// The database to use. `data_home` is the platform's folder for data, where there is one.
    ///
    /// # Errors
    /// A sentence when `url` has an unknown scheme.
    pub fn place(&self, data_home: Option<&Path>) -> Result<Place, String> {
        let url = self.url.expose();
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Place::Postgres(self.url.clone()));
        }
        if let Some(path) = url.strip_prefix("sqlite:") {
            return Ok(Place::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path))));
        }
        if !url.is_empty() {
            return Err("database.url starts with postgres://, postgresql:// or sqlite:".to_owned());
        }
        if !self.path.as_os_str().is_empty() {
            return Ok(Place::Sqlite(self.path.clone()));
        }
        let file = Path::new("shardwise.sqlite");
        Ok(Place::Sqlite(
            data_home.map_or_else(|| file.to_path_buf(), |home| home.join("shardwise").join(file)),
        ))
    }

    /// How long a call waits for a connection.
    #[must_use]
    pub const fn acquire_timeout(&self) -> Duration {
        Duration::from_millis(self.acquire_timeout_ms)
    }
}

/// What is kept in memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    pub answers_bytes: u64,
    pub plans_bytes: u64,
    pub models_fresh_ms: u64,
}

/// How plans are stored.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plans {
    pub stored_per_s: u64,
    pub stored_bytes_per_s: u64,
    pub stored_plan_bytes: u64,
    pub keep_days: u32,
}

/// Where unknown models are fetched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubSection {
    pub enabled: bool,
    pub endpoint: String,
    pub token: Secret,
    /// Hosts with commas between them.
    pub redirect_hosts: String,
    pub attempt_timeout_ms: u64,
    pub total_timeout_ms: u64,
    pub refresh_hours: u64,
}

/// What plans rest on.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planner {
    /// A calibration file; empty for the one in the program.
    pub calibration: PathBuf,
}

/// What is logged.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub level: String,
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{origin}: {detail}")]
pub struct ConfigError {
    pub origin: Origin,
    pub detail: String,
}

impl Settings {
    /// The settings of these sources.
    ///
    /// # Errors
    /// Every value that cannot be used, with where it came from.
    pub fn read(sources: &Sources) -> Result<Self, Vec<ConfigError>> {
        let settings: Self = sources.typed().map_err(|error| vec![error])?;
        let faults = settings.faults(sources);
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    }

    /// What types alone cannot say.
    fn faults(&self, sources: &Sources) -> Vec<ConfigError> {
        let (server, database, cache) = (&self.server, &self.database, &self.cache);
        let day_ms = 86_400_000;
        let checks = [
            (
                "server.request_timeout_ms",
                (10..=day_ms).contains(&server.request_timeout_ms),
                "10 to 86400000",
            ),
            (
                "server.body_limit_bytes",
                (1024..=256 << 20).contains(&server.body_limit_bytes),
                "1024 to 268435456",
            ),
            ("server.max_in_flight", (1..=1_000_000).contains(&server.max_in_flight), "1 to 1000000"),
            ("server.drain_ms", server.drain_ms <= day_ms, "0 to 86400000"),
            ("server.stop_timeout_ms", server.stop_timeout_ms <= day_ms, "0 to 86400000"),
            ("database.connections", (1..=1000).contains(&database.connections), "1 to 1000"),
            (
                "database.acquire_timeout_ms",
                (1..=60_000).contains(&database.acquire_timeout_ms),
                "1 to 60000",
            ),
            ("database.url", database.place(None).is_ok(), "postgres://…, postgresql://… or sqlite:…"),
            ("cache.answers_bytes", cache.answers_bytes <= 1 << 40, "0 to 2^40"),
            ("cache.plans_bytes", cache.plans_bytes <= 1 << 40, "0 to 2^40"),
            ("cache.models_fresh_ms", cache.models_fresh_ms <= day_ms, "0 to 86400000"),
            ("hub.attempt_timeout_ms", (1..=600_000).contains(&self.hub.attempt_timeout_ms), "1 to 600000"),
            ("hub.total_timeout_ms", (1..=600_000).contains(&self.hub.total_timeout_ms), "1 to 600000"),
            ("hub.refresh_hours", (1..=87_600).contains(&self.hub.refresh_hours), "1 to 87600"),
            (
                "slack.dashboard_url",
                self.slack.has_usable_dashboard(),
                "https://… or http://…, without query",
            ),
            ("slack.test_origin", self.slack.has_safe_test_origin(), "http://127.0.0.1:PORT, or empty"),
            ("plans.stored_per_s", self.plans.stored_per_s <= 1_000_000, "0 to 1000000"),
            ("plans.stored_bytes_per_s", self.plans.stored_bytes_per_s <= 1 << 40, "0 to 2^40"),
            ("plans.stored_plan_bytes", self.plans.stored_plan_bytes <= 64 << 20, "0 to 67108864"),
        ];
        checks
            .into_iter()
            .filter(|(_, holds, _)| !holds)
            .map(|(key, _, allowed)| ConfigError {
                origin: sources.origin(key),
                detail: format!("{key} is outside what is allowed: {allowed}"),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
