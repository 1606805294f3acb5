//! Logs and metrics. Bodies, tokens and addresses of databases are never logged.

use std::io::IsTerminal as _;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::TryInitError;
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{Log, LogFormat};

/// Telemetry that could not be started.
#[derive(Debug, Error)]
pub enum TelemetryError {
    #[error("log.level is no filter: {0}")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    #[error("logs are already taken: {0}")]
    Logs(#[from] TryInitError),
    #[error("metrics cannot be recorded: {0}")]
    Metrics(#[from] BuildError),
}

/// Log to standard error as the settings say.
///
/// # Errors
/// [`TelemetryError`] when the level is no filter, or logs were started before.
pub fn start_logs(log: &Log) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&log.level)?;
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match log.format {
        LogFormat::Text => registry.with(lines).try_init()?,
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init()?,
    }
    Ok(())
}

/// Latencies in seconds: from a remembered answer to a request that times out.
const LATENCY_BUCKETS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Record metrics from now on; the handle renders them in Prometheus' text form.
///
/// # Errors
/// [`TelemetryError::Metrics`] when a recorder is already there.
pub fn start_metrics() -> Result<PrometheusHandle, TelemetryError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), LATENCY_BUCKETS)?
        .install_recorder()?;
    describe();
    Ok(handle)
}

/// What a metric is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric that is recorded, with its help. A test holds this list to the code and to the boards of `deploy/grafana`.
pub const METRICS: [(Kind, &str, &str); 19] = [
    (Kind::Counter, "shardwise_http_requests_total", "Requests answered, by route, method and status."),
    (Kind::Histogram, "shardwise_http_request_seconds", "Time to answer a request, by route."),
    (Kind::Gauge, "shardwise_http_in_flight", "Requests in work."),
    (Kind::Counter, "shardwise_http_shed_total", "Requests refused because too many were in work."),
    (Kind::Counter, "shardwise_plans_total", "Plans computed, by feasibility."),
    (Kind::Histogram, "shardwise_plan_seconds", "Time to compute a plan."),
    (
        Kind::Counter,
        "shardwise_cache_lookups_total",
        "Lookups in memory, by kind (answers, models, fits) and result.",
    ),
    (Kind::Counter, "shardwise_plans_stored_total", "Plans written to the database."),
    (Kind::Counter, "shardwise_plans_not_stored_total", "Plans kept in memory only, by reason."),
    (Kind::Gauge, "shardwise_database_ready", "1 while the database answers."),
    (Kind::Counter, "shardwise_database_failures_total", "Calls that found the database away."),
    (Kind::Counter, "shardwise_hub_requests_total", "Requests to the hub, by outcome."),
    (Kind::Gauge, "shardwise_hub_ready", "1 when the hub answered the last request, whatever it said."),
    (Kind::Counter, "shardwise_slack_requests_total", "Requests from Slack, by kind and result."),
    (Kind::Counter, "shardwise_slack_posts_total", "Answers posted to Slack later, by result."),
    (Kind::Gauge, "shardwise_predicted_kv_tokens", "KV tokens of a model's best layout on a saved cluster."),
    (Kind::Gauge, "shardwise_predicted_sequences", "Whole sequences of the asked context in that layout."),
    (Kind::Gauge, "shardwise_replication_factor", "How many ranks hold the same KV bytes in that layout."),
    (
        Kind::Gauge,
        "shardwise_prediction_residual_ratio",
        "Predicted over observed KV tokens: the median of the kept start-ups of an engine's version.",
    ),
];

fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    for (kind, name, help) in METRICS {
        match kind {
            Kind::Counter => describe_counter!(name, help),
            Kind::Gauge => describe_gauge!(name, help),
            Kind::Histogram => describe_histogram!(name, help),
        }
    }
}
