//! `shardwise serve`, `shardwise migrate`, `shardwise openapi`: settings in, a running service (or its parts) out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::Value;
use thiserror::Error;

use crate::catalogue::calibration::{CalibrationError, install_file};
use crate::config::{ConfigError, Database, Place, Settings, SlackSection, Sources, environment};
use crate::http;
use crate::hub::{Hub, HubSettings};
use crate::service::observations::ObservationAnswer;
use crate::service::{App, Expect, HubAccess, Limits, ModelView, Put, ServiceError};
use crate::slack::post::Outlet;
use crate::slack::signature::Verifier;
use crate::slack::{self, Slack};
use crate::store::plans::Stored;
use crate::store::{PostgresStore, SqliteStore, Store, StoreError, migrations};
use crate::telemetry::{self, TelemetryError};

/// Settings from the command line. Every other setting: `--set section.key=value`.
#[derive(Debug, Default, Args)]
pub struct SettingsArgs {
    /// A file of settings; SHARDWISE_CONFIG names one too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the API (server.listen).
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of /metrics (server.metrics_listen); empty for none.
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    /// postgres://… or sqlite:FILE (database.url). Prefer DATABASE_URL: flags show in process lists.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Constants of the latency model from your own measurements (planner.calibration).
    #[arg(long, value_name = "FILE")]
    calibration: Option<String>,
    /// What is logged (log.level).
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Any setting, e.g. `--set server.max_in_flight=64`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// `shardwise serve`.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Print every setting with its value and where it came from, and end.
    #[arg(long)]
    pub print_settings: bool,
}

/// `shardwise migrate`.
#[derive(Debug, Default, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Why the service did not start, or ended early.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The settings cannot be used: a fault of the input.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Settings(Vec<ConfigError>),
    /// A flag that cannot be read.
    #[error("{0}")]
    Flag(String),
    /// The database did what it should not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The calibration file cannot be used.
    #[error("planner.calibration: {0}")]
    Calibration(#[from] CalibrationError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<Vec<ConfigError>> for ServeError {
    fn from(faults: Vec<ConfigError>) -> Self {
        Self::Settings(faults)
    }
}

impl ServeError {
    /// True when the caller must change the settings, false when something else must change.
    #[must_use]
    pub const fn is_bad_input(&self) -> bool {
        matches!(self, Self::Settings(_) | Self::Flag(_) | Self::Calibration(_))
    }
}

/// The settings that a start with these flags would have, a line each with its origin.
///
/// # Errors
/// [`ServeError`] when a setting cannot be read.
pub fn settings(args: &ServeArgs) -> Result<String, ServeError> {
    let sources = args.settings.sources()?;
    Settings::read(&sources)?;
    let mut text = String::new();
    for (key, value, origin) in sources.shown() {
        text.push_str(&format!("{key} = {value}  # {origin}\n"));
    }
    Ok(text)
}

/// Run the service until it is told to stop.
///
/// # Errors
/// [`ServeError`] when it cannot start.
pub fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    let sources = args.settings.sources()?;
    let settings = Settings::read(&sources)?;
    telemetry::start_logs(&settings.log)?;
    for name in &sources.unknown_variables {
        tracing::warn!(variable = name, "this environment variable is no setting");
    }
    let calibration = &settings.planner.calibration;
    if !calibration.as_os_str().is_empty() {
        install_file(calibration)?;
        tracing::info!(file = %calibration.display(), "latency constants from a file");
    }
    let metrics = settings.server.metrics_listen.map(|_| telemetry::start_metrics()).transpose()?;
    let limits = limits(&settings);
    let hub =
        HubSettings::of(&settings.hub).map(Hub::new).transpose().map_err(ServeError::Flag)?.map(|hub| {
            HubAccess::new(hub, Duration::from_secs(settings.hub.refresh_hours.saturating_mul(3600)))
        });
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let store = open(&settings.database)?;
        let (app, background) = App::with_hub(store, settings.database.migrate, &limits, hub);
        let listening = |api, metrics| tracing::info!(%api, ?metrics, "listening");
        let slack = slack(&settings.slack, &app).map_err(ServeError::Flag)?;
        let stop = http::server::told_to_stop();
        http::serve(app, background, &settings.server, metrics, slack, stop, listening).await?;
        Ok(())
    })
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        answers_bytes: settings.cache.answers_bytes,
        plans_bytes: settings.cache.plans_bytes,
        models_fresh: Duration::from_millis(settings.cache.models_fresh_ms),
        stored: Stored {
            per_s: settings.plans.stored_per_s,
            bytes_per_s: settings.plans.stored_bytes_per_s,
            plan_bytes: settings.plans.stored_plan_bytes,
        },
        keep_days: settings.plans.keep_days,
    }
}

/// Store a configuration in the database of the settings, as `PUT /v1/models/{id}` does.
///
/// # Errors
/// [`ServeError`] when the database cannot be reached; inside, what the service says of the configuration.
pub fn store_model(
    args: &SettingsArgs,
    id: &str,
    body: &Value,
) -> Result<Result<(Put, ModelView), ServiceError>, ServeError> {
    let settings = Settings::read(&args.sources()?)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let store = open(&settings.database)?;
        if settings.database.migrate {
            store.migrate().await?;
        }
        let (app, _) = App::new(store, false, &limits(&settings));
        Ok(app.put_model(id, body, &Expect::Anything).await)
    })
}

/// The start-ups that the database of the settings keeps, the newest ones.
///
/// # Errors
/// [`ServeError`] when the database cannot be reached; inside, what the service says of them.
pub fn kept_observations() -> Result<Result<Vec<ObservationAnswer>, ServiceError>, ServeError> {
    let settings = Settings::read(&SettingsArgs::default().sources()?)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let store = open(&settings.database)?;
        if settings.database.migrate {
            store.migrate().await?;
        }
        let (app, _) = App::new(store, false, &limits(&settings));
        Ok(app.all_observations().await)
    })
}

/// Bring the schema of the database to the newest migration.
///
/// # Errors
/// [`ServeError::Store`] when it cannot be reached.
pub fn migrate(args: &MigrateArgs) -> Result<String, ServeError> {
    let settings = Settings::read(&args.settings.sources()?)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let store = open(&settings.database)?;
        store.migrate().await?;
        Ok(format!("the {} schema is at migration {}", store.kind(), migrations::head()))
    })
}

/// The Slack face that the settings name; none without a signing secret.
fn slack(section: &SlackSection, app: &Arc<App>) -> Result<Option<Arc<Slack>>, String> {
    let secrets = section.signing_secrets()?;
    if secrets.is_empty() {
        return Ok(None);
    }
    if let Some(origin) = section.test_origin() {
        tracing::warn!(origin, "slack.test_origin is set: answers go there and not to Slack");
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let answers: Arc<dyn slack::Answers> = Arc::<App>::clone(app);
    Ok(Some(Slack::of(slack::Parts {
        verifier: Verifier::of(secrets),
        outlet: Outlet::new(&section.token()?, section.test_origin())?,
        answers,
        clock: Arc::new(now),
        budget: slack::BUDGET,
        dashboard: section.dashboard(),
    })))
}

/// The store that the settings name. Nothing is connected yet.
fn open(database: &Database) -> Result<Arc<dyn Store>, ServeError> {
    match database.place(data_home().as_deref()).map_err(ServeError::Flag)? {
        Place::Postgres(url) => {
            let store = PostgresStore::at(url.expose(), database.connections, database.acquire_timeout())?;
            Ok(Arc::new(store))
        }
        Place::Sqlite(path) => {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                std::fs::create_dir_all(folder)?;
            }
            Ok(Arc::new(SqliteStore::at(&path, database.connections, database.acquire_timeout())))
        }
    }
}

/// The platform's folder for data of programs.
fn data_home() -> Option<PathBuf> {
    let variables = environment();
    let folder = |name: &str| variables.get(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    folder("XDG_DATA_HOME")
        .or_else(|| folder("LOCALAPPDATA"))
        .or_else(|| folder("HOME").map(|home| home.join(".local/share")))
}

impl SettingsArgs {
    /// Defaults, file, environment and these flags, laid over one another.
    fn sources(&self) -> Result<Sources, ServeError> {
        let variables = environment();
        let mut sources = Sources::defaults().map_err(|fault| vec![fault])?;
        let file = self.config.clone().or_else(|| variables.get("SHARDWISE_CONFIG").map(PathBuf::from));
        if let Some(file) = file {
            sources = sources.file(&file)?;
        }
        sources = sources.variables(&variables)?;
        let named = [
            ("--listen", "server.listen", &self.listen),
            ("--metrics-listen", "server.metrics_listen", &self.metrics_listen),
            ("--database-url", "database.url", &self.database_url),
            ("--calibration", "planner.calibration", &self.calibration),
            ("--log-level", "log.level", &self.log_level),
        ];
        for (flag, key, value) in named {
            if let Some(value) = value {
                sources = sources.flag(flag, key, value)?;
            }
        }
        for pair in &self.set {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| ServeError::Flag(format!("--set takes section.key=value, got {pair:?}")))?;
            sources = sources.flag("--set", key.trim(), value)?;
        }
        Ok(sources)
    }
}
