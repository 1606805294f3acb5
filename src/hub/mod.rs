//! Configurations from a hub that speaks the Hugging Face protocol:
//! `GET {endpoint}/{org}/{name}/resolve/{revision}/config.json`.
//!
//! One object for the whole process. It asks at most once for what several callers want at the same time,
//! waits as the hub asks, gives up within a bound, and leaves a broken hub alone for a while. It calls the
//! endpoint and the listed hosts of its redirects, and nothing else, whatever the input ([`address`], [`name`]).

pub mod address;
pub mod breaker;
mod error;
mod files;
pub mod hints;
pub mod name;
mod transfer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};

use crate::config::{HubSection, Secret};
use address::Endpoint;
use breaker::Breaker;
pub use error::HubError;
use files::{object_of, total_size_of};
pub use name::{HubId, Revision};
use transfer::Transfer;

/// Requests to the hub at the same time.
const AT_ONCE: usize = 16;
/// The most waiting between two attempts that the hub did not ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How to reach a hub.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// `https://huggingface.co`, or a mirror of the same protocol.
    pub endpoint: String,
    pub token: Option<Secret>,
    /// Hosts besides the endpoint's that a redirect may lead to, by https.
    pub redirect_hosts: Vec<String>,
    /// For one attempt, the body included.
    pub attempt_timeout: Duration,
    /// For all attempts together, pauses included.
    pub total_timeout: Duration,
    /// Attempts, the first included.
    pub attempts: u32,
    /// Before the second attempt; doubled before each further one.
    pub first_pause: Duration,
    /// The largest config.json that is read, decompressed.
    pub config_limit_bytes: usize,
    /// The largest index of safetensors that is read, decompressed.
    pub index_limit_bytes: usize,
}

impl HubSettings {
    /// The hub that the settings of the server name; `None` where it is switched off.
    #[must_use]
    pub fn of(section: &HubSection) -> Option<Self> {
        let hosts = section.redirect_hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
        section.enabled.then(|| Self {
            endpoint: section.endpoint.clone(),
            token: Some(section.token.clone()),
            redirect_hosts: hosts.map(str::to_owned).collect(),
            attempt_timeout: Duration::from_millis(section.attempt_timeout_ms),
            total_timeout: Duration::from_millis(section.total_timeout_ms),
            ..Self::public()
        })
    }

    /// The public hub without a token.
    #[must_use]
    pub fn public() -> Self {
        Self {
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
            redirect_hosts: [
                "cdn-lfs.huggingface.co",
                "cdn-lfs.hf.co",
                "cdn-lfs-us-1.hf.co",
                "cas-bridge.xethub.hf.co",
            ]
            .map(str::to_owned)
            .to_vec(),
            attempt_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(12),
            attempts: 3,
            first_pause: Duration::from_millis(200),
            config_limit_bytes: 4 << 20,
            index_limit_bytes: 64 << 20,
        }
    }
}

/// What the hub has under an id and revision.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Found(Arc<Fetched>),
    /// What the caller has is still what the hub has.
    NotModified,
}

/// A configuration as the hub sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetched {
    /// The id under which it was found: another than asked for where the model was renamed.
    pub id: HubId,
    pub revision: Revision,
    /// The commit that the revision stands for.
    pub commit: Option<String>,
    pub etag: Option<String>,
    pub config: Value,
    /// The quantisation block of a checkpoint that keeps it in `hf_quant_config.json`.
    pub quantization_config: Option<Value>,
}

/// Tells the time; tests tell another.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

type Key = (HubId, Revision, Option<String>);
type Flight = Arc<OnceCell<Result<Answer, HubError>>>;

/// A hub.
pub struct Hub {
    transfer: Transfer,
    settings: HubSettings,
    clock: Clock,
    breaker: Mutex<Breaker>,
    at_once: Semaphore,
    in_flight: Mutex<BTreeMap<Key, Flight>>,
}

impl Hub {
    /// A client of a hub.
    ///
    /// # Errors
    /// A sentence when the settings cannot be used.
    pub fn new(settings: HubSettings) -> Result<Self, String> {
        Self::with_clock(settings, Arc::new(Instant::now))
    }

    /// The same with another clock for the breaker.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_clock(settings: HubSettings, clock: Clock) -> Result<Self, String> {
        let endpoint = Endpoint::read(&settings.endpoint, &settings.redirect_hosts)?;
        Ok(Self {
            transfer: Transfer::new(endpoint, settings.token.clone())?,
            settings,
            clock,
            breaker: Mutex::default(),
            at_once: Semaphore::new(AT_ONCE),
            in_flight: Mutex::default(),
        })
    }

    /// The endpoint, for `source` of what comes from it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.transfer.endpoint().to_string()
    }

    /// The configuration of a model; with the `etag` of one already known, only if it is another.
    /// Callers who want the same at the same time share one request.
    ///
    /// # Errors
    /// [`HubError`]; it says whether to come back.
    pub async fn config(&self, id: &str, revision: &str, etag: Option<&str>) -> Result<Answer, HubError> {
        let id = HubId::read(id).ok_or(HubError::BadName)?;
        let revision = Revision::read(revision).ok_or(HubError::BadRevision)?;
        let key = (id, revision, etag.map(str::to_owned));
        let flight = Joined::board(self, key);
        let (id, revision, etag) = &flight.key;
        flight.flight.get_or_init(|| self.ask(id, revision, etag.as_deref())).await.clone()
    }

    /// Total bytes of a checkpoint, as its index of safetensors states them; `None` where it has no index
    /// (a checkpoint in one file).
    ///
    /// # Errors
    /// [`HubError`]; it says whether to come back.
    pub async fn checkpoint_bytes(&self, id: &str, revision: &str) -> Result<Option<u64>, HubError> {
        let id = HubId::read(id).ok_or(HubError::BadName)?;
        let revision = Revision::read(revision).ok_or(HubError::BadRevision)?;
        let file = "model.safetensors.index.json";
        let body = match self.patiently(&id, &revision, file, None, self.settings.index_limit_bytes).await {
            Ok(Some(body)) => body,
            Ok(None) | Err(HubError::NoConfig(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        total_size_of(&body.bytes, file)
    }

    async fn ask(&self, id: &HubId, revision: &Revision, etag: Option<&str>) -> Result<Answer, HubError> {
        let file = "config.json";
        let limit = self.settings.config_limit_bytes;
        let Some(body) = self.patiently(id, revision, file, etag, limit).await? else {
            return Ok(Answer::NotModified);
        };
        let config = object_of(&body.bytes, file)?;
        let id = body.id.unwrap_or_else(|| id.clone());
        let quantization_config = self.side_quantization(&id, revision, &config).await?;
        Ok(Answer::Found(Arc::new(Fetched {
            id,
            revision: revision.clone(),
            commit: body.commit,
            etag: body.etag,
            config,
            quantization_config,
        })))
    }

    /// Quantised checkpoints of some tools keep their block beside config.json. It is asked for only where
    /// the name says that the checkpoint is quantised and config.json does not say how.
    async fn side_quantization(
        &self,
        id: &HubId,
        revision: &Revision,
        config: &Value,
    ) -> Result<Option<Value>, HubError> {
        const WORDS: [&str; 6] = ["fp4", "fp8", "int4", "int8", "w4a", "w8a"];
        let name = id.name().to_ascii_lowercase();
        let said = ["quantization_config", "compression_config"].iter().any(|k| config.get(k).is_some());
        if said || !WORDS.iter().any(|word| name.contains(word)) {
            return Ok(None);
        }
        let file = "hf_quant_config.json";
        match self.patiently(id, revision, file, None, self.settings.config_limit_bytes).await {
            Ok(Some(body)) => object_of(&body.bytes, file).map(Some),
            Ok(None) | Err(HubError::NoConfig(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ask until there is an answer, or no more attempts or time. `None`: not modified.
    async fn patiently(
        &self,
        id: &HubId,
        revision: &Revision,
        file: &'static str,
        etag: Option<&str>,
        limit: usize,
    ) -> Result<Option<transfer::Body>, HubError> {
        let url = self.transfer.endpoint().file(id, revision, file)?;
        let asked = transfer::Asked { id, revision, file, etag, limit };
        let deadline = tokio::time::Instant::now() + self.settings.total_timeout;
        let mut pause = self.settings.first_pause;
        let mut attempt = 1;
        loop {
            self.breaker(Breaker::admit).map_err(|wait| HubError::Unavailable {
                reason: "it failed or asked for a pause a moment ago".to_owned(),
                retry_after: Some(wait),
            })?;
            let until = deadline.min(tokio::time::Instant::now() + self.settings.attempt_timeout);
            let got = tokio::time::timeout_at(until, self.once(&url, &asked))
                .await
                .unwrap_or(Err(HubError::TimedOut));
            self.note(&got);
            let error = match got {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let wait = error.retry_after().unwrap_or(pause.min(LONGEST_PAUSE));
            let in_time = tokio::time::Instant::now() + wait < deadline;
            if !error.is_passing() || attempt >= self.settings.attempts || !in_time {
                if let Some(wait) = error.retry_after() {
                    self.breaker(|b, now| b.hold(now, wait));
                }
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            pause = pause.saturating_mul(2);
            attempt += 1;
        }
    }

    async fn once(
        &self,
        url: &reqwest::Url,
        asked: &transfer::Asked<'_>,
    ) -> Result<Option<transfer::Body>, HubError> {
        let _place = self.at_once.acquire().await.map_err(|e| HubError::Internal(e.to_string()))?;
        self.transfer.get(url, asked).await
    }

    fn note(&self, got: &Result<Option<transfer::Body>, HubError>) {
        let outcome = match got {
            Ok(Some(_)) => "found",
            Ok(None) => "not_modified",
            Err(HubError::RateLimited { .. }) => "rate_limited",
            Err(error) if error.is_passing() => "failed",
            Err(_) => "refused",
        };
        metrics::counter!("shardwise_hub_requests_total", "outcome" => outcome).increment(1);
        match got {
            Err(HubError::Unavailable { .. } | HubError::TimedOut | HubError::Truncated) => {
                metrics::gauge!("shardwise_hub_ready").set(0.0);
                self.breaker(Breaker::failed);
            }
            _ => {
                metrics::gauge!("shardwise_hub_ready").set(1.0);
                self.breaker(|b, _| b.answered());
            }
        }
    }

    fn breaker<T>(&self, act: impl FnOnce(&mut Breaker, Instant) -> T) -> T {
        let now = (self.clock)();
        act(&mut self.breaker.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// A caller's place in a request that others may share. The last to leave takes it off the list.
struct Joined<'h> {
    hub: &'h Hub,
    key: Key,
    flight: Flight,
}

impl<'h> Joined<'h> {
    fn board(hub: &'h Hub, key: Key) -> Self {
        let mut flights = hub.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        let flight = Arc::clone(flights.entry(key.clone()).or_default());
        Self { hub, key, flight }
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        let mut flights = self.hub.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        // ours and the list's: nobody else waits. An answered flight takes nobody else along.
        let over = Arc::strong_count(&self.flight) <= 2 || self.flight.initialized();
        if over && flights.get(&self.key).is_some_and(|listed| Arc::ptr_eq(listed, &self.flight)) {
            flights.remove(&self.key);
        }
    }
}
